//! Running a program tile by tile.

use super::blocks::{BLOCK_ROWS, Block};
use super::body::{Code, Machine, Register, TileProgram};
use super::machine::{Broadcast, Parameter, Pointers};
use kiln_ir::DType;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Words of all scratch tiles of a program together: half of a small first-level cache.
const ARENA_WORDS: usize = 4096;
/// The longest tile, for programs that need no scratch tile or one.
const MAX_TILE: usize = 4096;
/// The shortest; programs with more tiles than fit take their memory from the heap.
const MIN_TILE: usize = 64;
/// Tiles begin at multiples of this many words: a cache line.
const LINE_WORDS: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; LINE_WORDS]);

/// Scratch memory of one thread for one loop: on its stack, so that a small program allocates nothing.
pub(crate) struct Arena {
    lines: [MaybeUninit<Line>; ARENA_WORDS / LINE_WORDS],
    heap: Vec<Line>,
}

impl Arena {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { lines: [const { MaybeUninit::uninit() }; ARENA_WORDS / LINE_WORDS], heap: Vec::new() }
    }

    /// The first `words` words, initialised.
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

/// The memory that a program works on.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// The start of the memory that each operand lies in.
    pub(crate) operands: &'a [*const u8],
    /// Where the output begins; null where the program has none.
    pub(crate) output: *mut u8,
    /// The scalars of the run.
    pub(crate) scalars: &'a [u32],
}

// SAFETY: threads read the operands, and each writes other elements of the output.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

/// A program at work on one thread.
pub(crate) struct Runner<'a> {
    program: &'a TileProgram,
    memory: Memory<'a>,
    bases: SmallVec<[Base; 16]>,
    /// For machine code.
    parameters: SmallVec<[Broadcast; 4]>,
    tile_len: usize,
}

/// Where a register begins, and whether it moves with the elements (all ones) or is the same for each tile (zero).
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

    /// The same for elements of so many bytes.
    #[inline(always)]
    fn at_bytes(self, element: usize, bytes: usize) -> *mut u8 {
        self.start.cast::<u8>().wrapping_add((element & self.mask) * bytes)
    }
}

impl<'a> Runner<'a> {
    /// Makes a program ready for tiles of at most `longest` elements.
    ///
    /// # Safety
    /// The operands lie in their memory and nobody writes them; the output has room for the space, is aligned, and
    /// nobody else touches the elements that are stored; the run brings as many scalars as the program wants; all of
    /// that, and `arena`, for as long as the runner is used. The processor has the level of the program. The space is
    /// not empty.
    #[inline(always)]
    pub(crate) unsafe fn new(program: &'a TileProgram, memory: Memory<'a>, longest: usize, arena: &mut Arena) -> Self {
        let longest = longest.next_multiple_of(LINE_WORDS);
        // Machine code that needs no scratch tile runs over everything at once.
        let is_free = program.machine.is_some() && program.tiles == 0;
        let tile_len = if is_free { longest } else { tile_len(program.tiles).min(longest) };
        let scratch = arena.take(tile_len * program.tiles);
        let mut bases: SmallVec<[Base; 16]> = SmallVec::with_capacity(program.loads.len() + 2 + program.tiles);
        for (load, &memory) in program.loads.iter().zip(memory.operands) {
            // SAFETY: the operand lies in this memory.
            let first = unsafe { load.first(memory) };
            bases.push(Base { start: first.cast_mut().cast(), mask: usize::MAX });
        }
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

    /// The longest range that one call runs.
    pub(crate) fn tile_len(&self) -> usize {
        self.tile_len
    }

    fn fill_constants(&self) {
        for &(register, constant) in &self.program.constants {
            // SAFETY: the register is a scratch tile, which is this long and nobody else's.
            unsafe { self.slice_mut(register, 0, self.tile_len) }.fill(self.parameter(constant));
        }
    }

    /// A word that is the same for all elements.
    fn parameter(&self, parameter: Parameter) -> u32 {
        match parameter {
            Parameter::Scalar(scalar) => self.memory.scalars[scalar],
            // SAFETY: by the contract of `new` the operand lies in its memory and has an element.
            Parameter::Splat(operand) => unsafe {
                self.program.loads[operand].splat(self.memory.operands[operand], self.program.loops)
            },
        }
    }

    /// Runs the program for `len` elements from `start` on and returns where the result is: the core's results for
    /// them are at `core`, where the program takes any.
    ///
    /// # Safety
    /// The range is inside of the space and not longer than [`tile_len`](Self::tile_len); `core` holds as many words. The
    /// program does not run in blocks.
    #[inline]
    pub(crate) unsafe fn run(&mut self, start: usize, len: usize, core: *const u32) -> *const u32 {
        self.bases[usize::from(self.program.core_register())].start = core.cast_mut();
        let Self { program, memory, .. } = *self;
        // SAFETY: the caller's promise; the narrow tile is there where a load needs it.
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
        self.base(program.result).at(start)
    }

    /// Runs the code for a tile, with loads and numbers as the caller makes them.
    ///
    /// # Safety
    /// Places hold `len` words from element `start` on, and `load` and `iota` fill what they are given.
    #[inline(always)]
    unsafe fn run_code(&self, start: usize, len: usize, load: impl Fn(usize, &mut [u32]), iota: impl Fn(&mut [u32])) {
        debug_assert!(len <= self.tile_len, "a tile holds the range");
        for code in &self.program.code {
            // SAFETY: an op's result never shares a register with its arguments, scratch tiles are as long as a tile, and
            // memory holds the range. The processor has the level of the loops.
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
            // SAFETY: as above; the parameters are those that the code wants.
            unsafe { code.run(&pointers, &self.parameters, len) };
        }
    }

    /// Runs the program and stores the results.
    ///
    /// # Safety
    /// As [`run`](Self::run); the program has an output.
    #[inline]
    pub(crate) unsafe fn run_and_store(&mut self, start: usize, len: usize, core: *const u32) {
        // SAFETY: the caller's promise.
        let result = unsafe { self.run(start, len, core) };
        if self.program.result == self.program.output() {
            return;
        }
        // SAFETY: `run` leaves `len` words there, which the output does not overlap.
        unsafe { store(self.program, std::slice::from_raw_parts(result, len), self.memory.output, start) };
    }

    /// Runs the program and stores the results of a whole range, tile by tile.
    ///
    /// # Safety
    /// The range is inside of the space; the program has an output, and takes no core.
    pub(crate) unsafe fn run_range(&mut self, range: std::ops::Range<usize>) {
        let mut start = range.start;
        while start < range.end {
            let len = self.tile_len.min(range.end - start);
            // SAFETY: the tile is inside of the range.
            unsafe { self.run_and_store(start, len, std::ptr::null()) };
            start += len;
        }
    }

    /// Columns of a block that fits a tile.
    pub(crate) fn block_columns(&self) -> usize {
        self.tile_len / BLOCK_ROWS
    }

    /// Runs the program for a block and stores the results.
    ///
    /// # Safety
    /// The block is inside of the space and has at most [`block_columns`](Self::block_columns); the program runs in blocks.
    pub(crate) unsafe fn run_block(&self, block: Block, pitch: usize) {
        let Self { program, memory, .. } = *self;
        let Block { start, rows, columns } = block;
        // SAFETY: the caller's promise. All registers that the code names are scratch tiles, which are long enough.
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

    /// The tile for elements that are gathered before they are converted; null where no load needs it.
    fn narrow(&self) -> *mut u32 {
        self.program.narrow.map_or(std::ptr::null_mut(), |register| self.base(register).start)
    }

    #[inline(always)]
    fn base(&self, register: Register) -> Base {
        self.bases[usize::from(register)]
    }

    /// # Safety
    /// The register holds `len` words from element `start` on, and nobody writes them.
    #[inline(always)]
    unsafe fn slice(&self, register: Register, start: usize, len: usize) -> &[u32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base(register).at(start), len) }
    }

    /// # Safety
    /// The register holds `len` words from element `start` on, and nobody else touches them.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the memory is behind a pointer, not inside of the runner")]
    unsafe fn slice_mut(&self, register: Register, start: usize, len: usize) -> &mut [u32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base(register).at(start), len) }
    }
}

/// How long the tiles of a program are: all together stay in the first cache.
fn tile_len(tiles: usize) -> usize {
    (ARENA_WORDS / tiles.max(1) / LINE_WORDS * LINE_WORDS).clamp(MIN_TILE, MAX_TILE)
}

/// Stores words as elements of the output, from element `start` on.
///
/// # Safety
/// The output has room for them, aligned, and nobody else touches them. The processor has the level of the program.
pub(crate) unsafe fn store(program: &TileProgram, values: &[u32], output: *mut u8, start: usize) {
    let (loops, len) = (program.loops, values.len());
    let Some(dtype) = program.store else { return };
    // SAFETY: the caller's promise.
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
