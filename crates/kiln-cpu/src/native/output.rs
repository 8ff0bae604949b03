//! The output of hand-written kernels, which applies the fused epilogue.

use super::body::TileProgram;
use super::tiles::{Arena, Memory, Runner, store};
use kiln_ir::host::{HostOutput, HostRows};
use kiln_ir::{Class, DType};

/// The output of one run of a hand-written kernel.
pub(crate) struct Output<'a> {
    pub(crate) program: &'a TileProgram,
    pub(crate) memory: Memory<'a>,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
}

impl HostOutput for Output<'_> {
    unsafe fn store(&self, start: usize, values: &mut [f32]) {
        // Not 0, for which `step_by` and `chunks` panic.
        let length = values.len().max(1);
        // SAFETY: the caller upholds the contract.
        unsafe { self.store_rows(HostRows { start, pitch: length, length, width: length }, values) };
    }

    unsafe fn store_rows(&self, rows: HostRows, values: &mut [f32]) {
        assert_eq!(self.program.core, Some(Class::Float), "a kernel that stores floats computes in floats");
        let HostRows { start, pitch, length, width } = rows;
        let words: &[u32] = bytemuck::cast_slice(values);
        let starts = (start..).step_by(pitch);
        let rows = || starts.clone().zip(words.chunks(width)).map(|(start, row)| (start, &row[..length]));
        // Callers promise exclusive access, but not bounds, so all rows are checked before the first is stored.
        for (start, row) in rows() {
            let is_inside = start.checked_add(row.len()).is_some_and(|end| end <= self.elements);
            assert!(is_inside, "elements {start} and {} more are within {}", row.len(), self.elements);
        }
        // SAFETY: the range is within the output, and the caller guarantees exclusive access to it. The memory
        // belongs to a step whose program was checked against it.
        unsafe {
            if self.program.is_identity() {
                return rows().for_each(|(start, row)| store(self.program, row, self.memory.output, start));
            }
            let mut arena = Arena::new();
            let mut runner = Runner::new(self.program, self.memory, length, &mut arena);
            let tile_len = runner.tile_len();
            for (start, row) in rows() {
                for (tile, words) in row.chunks(tile_len).enumerate() {
                    runner.run_and_store(start + tile * tile_len, words.len(), words.as_ptr());
                }
            }
        }
    }

    fn floats(&self) -> Option<*mut f32> {
        let is_plain = self.program.is_identity() && self.program.store == Some(DType::F32);
        is_plain.then_some(self.memory.output.cast())
    }

    fn bytes(&self) -> (*mut u8, usize) {
        (self.memory.output, self.bytes)
    }
}
