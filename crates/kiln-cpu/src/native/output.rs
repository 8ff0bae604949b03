//! Where hand-written kernels put their results: through the program behind them, to memory.

use super::body::TileProgram;
use super::tiles::{Arena, Memory, Runner, store};
use kiln_ir::Class;
use kiln_ir::host::HostOutput;

/// The output of one run of a hand-written kernel.
pub(crate) struct Output<'a> {
    pub(crate) program: &'a TileProgram,
    pub(crate) memory: Memory<'a>,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
}

impl HostOutput for Output<'_> {
    unsafe fn store(&self, start: usize, values: &mut [f32]) {
        assert_eq!(self.program.core, Some(Class::Float), "a kernel that stores floats computes in floats");
        let is_inside = start.checked_add(values.len()).is_some_and(|end| end <= self.elements);
        assert!(is_inside, "elements {start} and {} more are inside of {}", values.len(), self.elements);
        let words: &[u32] = bytemuck::cast_slice(values);
        if words.is_empty() {
            return;
        }
        // SAFETY: the range is inside of the output and the caller's alone. The memory is that of a step whose program
        // was checked against it.
        unsafe {
            if self.program.is_identity() {
                return store(self.program, words, self.memory.output, start);
            }
            let mut arena = Arena::new();
            let mut runner = Runner::new(self.program, self.memory, words.len(), &mut arena);
            let tile_len = runner.tile_len();
            for (tile, words) in words.chunks(tile_len).enumerate() {
                runner.run_and_store(start + tile * tile_len, words.len(), words.as_ptr());
            }
        }
    }

    fn bytes(&self) -> (*mut u8, usize) {
        (self.memory.output, self.bytes)
    }
}
