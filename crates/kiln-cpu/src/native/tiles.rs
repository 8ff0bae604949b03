//! Runs a program tile by tile.

use super::blocks::{BLOCK_ROWS, Block};
use super::body::{Code, Machine, Register, TileProgram};
use super::machine::{Broadcast, Parameter, Pointers};
use kiln_ir::DType;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Words of all scratch tiles of a program together: half of a small L1 cache.
const ARENA_WORDS: usize = 4096;
/// The longest tile, for programs with at most one scratch tile.
const MAX_TILE: usize = 4096;
/// The shortest tile; programs whose tiles do not fit in the arena allocate from the heap.
const MIN_TILE: usize = 64;
/// Tile alignment in words: a cache line.
const LINE_WORDS: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; LINE_WORDS]);

/// Scratch memory of one thread for one loop: on its stack, so that a small program does not allocate.
pub(crate) struct Arena {
    lines: [MaybeUninit<Line>; ARENA_WORDS / LINE_WORDS],
    heap: Vec<Line>,
}

impl Arena {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { lines: [const { MaybeUninit::uninit() }; ARENA_WORDS / LINE_WORDS], heap: Vec::new() }
    }

    /// Returns the first `words` words, initialised, because tiles are used as `&mut [u32]`.
    fn take(&mut self, words: usize) -> *mut u32 {
        let lines = words.div_ceil(LINE_WORDS);
        if lines > self.lines.len() {
            self.heap = vec![Line([0; LINE_WORDS]); lines];
            return self.heap.as_mut_ptr().cast();
        }
        self.lines[..lines].fill(MaybeUninit::new(Line([0; LINE_WORDS])));
        self.lines.as_mut_ptr().cast()
    }
}

/// The memory that a program accesses.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// The base address of each operand's memory.
    pub(crate) operands: &'a [*const u8],
    /// The base address of the output; null if the program has none.
    pub(crate) output: *mut u8,
    /// The scalars of the run.
    pub(crate) scalars: &'a [u32],
}

// SAFETY: threads only read the operands, and write disjoint elements of the output.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

/// Runs a program on one thread.
pub(crate) struct Runner<'a> {
    program: &'a TileProgram,
    memory: Memory<'a>,
    bases: SmallVec<[Base; 16]>,
    /// Broadcast parameters of the machine code.
    parameters: SmallVec<[Broadcast; 4]>,
    tile_len: usize,
}

/// The base of a register, and a mask: all ones if it advances with the elements, zero if each tile reuses it.
#[derive(Clone, Copy)]
struct Base {
    start: *mut u32,
    mask: usize,
}

impl Base {
    #[inline(always)]
    fn at(self, element: usize) -> *mut u32 {
        self.start.wrapping_add(element & self.mask)
    }

    /// Like [`at`](Self::at), for elements of `bytes` bytes.
    #[inline(always)]
    fn at_bytes(self, element: usize, bytes: usize) -> *mut u8 {
        self.start.cast::<u8>().wrapping_add((element & self.mask) * bytes)
    }
}

impl<'a> Runner<'a> {
    /// Prepares a program for ranges of at most `longest` elements.
    ///
    /// # Safety
    /// For as long as the runner is used: the operands must be within their memory and not be written; the output
    /// must be aligned and large enough for the space, and nothing else may access the stored elements; `scalars`
    /// must have as many elements as the program requires; and `arena` must live. The processor must support the SIMD
    /// level of the program. The space must not be empty.
    #[inline(always)]
    pub(crate) unsafe fn new(program: &'a TileProgram, memory: Memory<'a>, longest: usize, arena: &mut Arena) -> Self {
        // Whole cache lines, so that every scratch tile is aligned to one.
        let longest = longest.next_multiple_of(LINE_WORDS);
        // Machine code without scratch tiles runs over the whole range at once.
        let is_free = program.machine.is_some() && program.tiles == 0;
        let tile_len = if is_free { longest } else { tile_len(program.tiles).min(longest) };
        let scratch = arena.take(tile_len * program.tiles);
        let mut bases: SmallVec<[Base; 16]> = SmallVec::with_capacity(program.loads.len() + 2 + program.tiles);
        for (load, &memory) in program.loads.iter().zip(memory.operands) {
            // SAFETY: the operand is within this memory.
            let first = unsafe { load.first(memory) };
            bases.push(Base { start: first.cast_mut().cast(), mask: usize::MAX });
        }
        // The core's register. `run` sets its address for each tile, so it does not advance by itself.
        bases.push(Base { start: std::ptr::null_mut(), mask: 0 });
        bases.push(Base { start: memory.output.cast(), mask: usize::MAX });
        bases.extend((0..program.tiles).map(|tile| Base { start: scratch.wrapping_add(tile * tile_len), mask: 0 }));
        let mut runner = Self { program, memory, bases, parameters: SmallVec::new(), tile_len };
        runner.fill_constants();
        if let Some(machine) = &program.machine {
            let parameters = machine.code.parameters().iter().map(|&parameter| [runner.parameter(parameter); 8]);
            runner.parameters = parameters.collect();
        }
        runner
    }

    /// Returns the maximum length of a range in one call.
    pub(crate) fn tile_len(&self) -> usize {
        self.tile_len
    }

    fn fill_constants(&self) {
        for &(register, constant) in &self.program.constants {
            // SAFETY: the register is a scratch tile of this length, with exclusive access.
            unsafe { self.slice_mut(register, 0, self.tile_len) }.fill(self.parameter(constant));
        }
    }

    /// Returns a word that is the same for all elements.
    fn parameter(&self, parameter: Parameter) -> u32 {
        match parameter {
            Parameter::Scalar(scalar) => self.memory.scalars[scalar],
            // SAFETY: by the contract of `new`, the operand is within its memory and has an element.
            Parameter::Splat(operand) => unsafe {
                self.program.loads[operand].splat(self.memory.operands[operand], self.program.loops)
            },
        }
    }

    /// Runs the program for `len` elements from `start`, and returns a pointer to the result. `core` points to the
    /// core's results for these elements, if the program reads them.
    ///
    /// # Safety
    /// The range must be within the space and not longer than [`tile_len`](Self::tile_len); `core` must hold as many
    /// words. The program must not run in blocks.
    #[inline]
    pub(crate) unsafe fn run(&mut self, start: usize, len: usize, core: *const u32) -> *const u32 {
        self.bases[usize::from(self.program.core_register())].start = core.cast_mut();
        let Self { program, memory, .. } = *self;
        // SAFETY: guaranteed by the caller; the narrow tile exists if a load needs it.
        unsafe {
            self.run_code(
                start,
                len,
                |operand, out| {
                    let (load, memory) = (&program.loads[operand], memory.operands[operand]);
                    if program.machine.is_some() {
                        load.gather(memory, start, len, out.as_mut_ptr());
                    } else {
                        load.fill(memory, start, out, self.narrow(), program.loops);
                    }
                },
                |out| (program.loops.iota)(out, start as u32),
            );
        }
        // Counts in words, so it is wrong for an output of narrower elements, but then the caller does not read it:
        // the result is already stored.
        self.base(program.result).at(start)
    }

    /// Runs the code for a tile, with the caller's loads and indices.
    ///
    /// # Safety
    /// Registers must hold `len` words from element `start`, and `load` and `iota` must fill their slices.
    #[inline(always)]
    unsafe fn run_code(&self, start: usize, len: usize, load: impl Fn(usize, &mut [u32]), iota: impl Fn(&mut [u32])) {
        debug_assert!(len <= self.tile_len, "a tile holds the range");
        for code in &self.program.code {
            // SAFETY: an op's result never shares a register with its arguments, scratch tiles are as long as a tile,
            // and memory holds the range. The processor supports the SIMD level of the loops.
            unsafe {
                match *code {
                    Code::Loop { run, args, arity, out } => {
                        let arg = |index: usize| -> &[u32] {
                            if index < usize::from(arity) { self.slice(args[index], start, len) } else { &[] }
                        };
                        run(self.slice_mut(out, start, len), [arg(0), arg(1), arg(2)]);
                    }
                    Code::Load { operand, out } => load(usize::from(operand), self.slice_mut(out, start, len)),
                    Code::Iota { out } => iota(self.slice_mut(out, start, len)),
                }
            }
        }
        if let Some(Machine { code, registers }) = &self.program.machine {
            let pointers: Pointers =
                registers.iter().map(|&(register, bytes)| self.base(register).at_bytes(start, bytes)).collect();
            // SAFETY: as above; the parameters are those of the code.
            unsafe { code.run(&pointers, &self.parameters, len) };
        }
    }

    /// Runs the program and stores the results.
    ///
    /// # Safety
    /// As [`run`](Self::run); the program must have an output.
    #[inline]
    pub(crate) unsafe fn run_and_store(&mut self, start: usize, len: usize, core: *const u32) {
        // SAFETY: the caller upholds the contract.
        let result = unsafe { self.run(start, len, core) };
        if self.program.result == self.program.output() {
            return;
        }
        // SAFETY: `run` returns a pointer to `len` words, which do not overlap the output.
        unsafe { store(self.program, std::slice::from_raw_parts(result, len), self.memory.output, start) };
    }

    /// Runs the program over a range, tile by tile, and stores the results.
    ///
    /// # Safety
    /// The range must be within the space; the program must have an output, and must not read core results.
    pub(crate) unsafe fn run_range(&mut self, range: std::ops::Range<usize>) {
        let mut start = range.start;
        while start < range.end {
            let len = self.tile_len.min(range.end - start);
            // SAFETY: the tile is within the range.
            unsafe { self.run_and_store(start, len, std::ptr::null()) };
            start += len;
        }
    }

    /// Returns the columns of a block that fits in a tile.
    pub(crate) fn block_columns(&self) -> usize {
        // At least 4: a tile has `MIN_TILE` words or more, because a space in blocks has many more elements.
        self.tile_len / BLOCK_ROWS
    }

    /// Runs the program for a block and stores the results.
    ///
    /// # Safety
    /// The block must be within the space and have at most [`block_columns`](Self::block_columns) columns; the
    /// program must run in blocks.
    pub(crate) unsafe fn run_block(&self, block: Block, pitch: usize) {
        let Self { program, memory, .. } = *self;
        let Block { start, rows, columns } = block;
        // SAFETY: guaranteed by the caller. All registers used by the code are scratch tiles, which are long enough.
        unsafe {
            self.run_code(
                0,
                rows * columns,
                |operand, out| {
                    let (load, memory) = (&program.loads[operand], memory.operands[operand]);
                    if program.machine.is_some() {
                        load.gather_block(memory, block, out.as_mut_ptr());
                    } else {
                        load.fill_block(memory, block, out, self.narrow(), program.loops);
                    }
                },
                |out| {
                    for (row, out) in out.chunks_mut(columns).enumerate() {
                        (program.loops.iota)(out, (start + row * pitch) as u32);
                    }
                },
            );
            let result = self.slice(program.result, 0, rows * columns);
            for (row, values) in result.chunks(columns).enumerate() {
                store(program, values, memory.output, start + row * pitch);
            }
        }
    }

    /// Returns the tile for elements that are gathered before they are converted; null if no load needs it.
    fn narrow(&self) -> *mut u32 {
        self.program.narrow.map_or(std::ptr::null_mut(), |register| self.base(register).start)
    }

    #[inline(always)]
    fn base(&self, register: Register) -> Base {
        self.bases[usize::from(register)]
    }

    /// # Safety
    /// The register must hold `len` words from element `start`, and nothing may write them.
    #[inline(always)]
    unsafe fn slice(&self, register: Register, start: usize, len: usize) -> &[u32] {
        // SAFETY: the caller upholds the contract.
        unsafe { std::slice::from_raw_parts(self.base(register).at(start), len) }
    }

    /// # Safety
    /// The register must hold `len` words from element `start`, and nothing else may access them.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the pointer refers to memory outside the runner")]
    unsafe fn slice_mut(&self, register: Register, start: usize, len: usize) -> &mut [u32] {
        // SAFETY: the caller upholds the contract.
        unsafe { std::slice::from_raw_parts_mut(self.base(register).at(start), len) }
    }
}

/// Returns the tile length of a program, such that all tiles together stay in the L1 cache.
fn tile_len(tiles: usize) -> usize {
    (ARENA_WORDS / tiles.max(1) / LINE_WORDS * LINE_WORDS).clamp(MIN_TILE, MAX_TILE)
}

/// Stores words as elements of the output, beginning at element `start`.
///
/// # Safety
/// The output must be aligned and large enough, and nothing else may access these elements. The processor must
/// support the SIMD level of the program.
pub(crate) unsafe fn store(program: &TileProgram, values: &[u32], output: *mut u8, start: usize) {
    let (loops, len) = (program.loops, values.len());
    let Some(dtype) = program.store else { return };
    // SAFETY: the caller upholds the contract.
    unsafe {
        let to = output.add(start * dtype.bytes());
        match dtype {
            DType::F32 | DType::I32 | DType::U32 => values.as_ptr().copy_to_nonoverlapping(to.cast(), len),
            DType::F16 => (loops.to_f16)(values, std::slice::from_raw_parts_mut(to.cast(), len)),
            DType::BF16 => (loops.to_bf16)(values, std::slice::from_raw_parts_mut(to.cast(), len)),
            DType::I8 | DType::U8 | DType::Bool => (loops.to_u8)(values, std::slice::from_raw_parts_mut(to, len)),
            DType::I64 | DType::F64 => unreachable!("64-bit elements are copied as words"),
        }
    }
}
