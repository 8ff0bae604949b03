//! Elementwise programs as machine code: one loop over vectors, in which values stay in registers.
//!
//! A loop for each op moves every value through the first cache and back. For chains of cheap ops that is most of the time, so on
//! processors with AVX2 a program becomes code of its own when it is made. Its instructions are those of the loops, so the bits of
//! results are the same. What it has no instruction for runs as loops, and so does everything where the system refuses executable memory.

mod assembler;
mod lower;
mod registers;
#[cfg(test)]
mod tests;

pub(crate) use lower::{Argument, Parameter};

use kiln_ir::kernel::Body;
use kiln_ir::{DType, SimdLevel};
use lower::Lowered;
use memmap2::{Mmap, MmapMut};
use registers::Store;
use smallvec::SmallVec;

/// Longer programs run as loops: their code would not stay in the instruction cache.
const MAX_OPS: usize = 1024;
/// Results of at least so many bytes are not kept in a cache, which they would only push other data out of.
const STREAM_BYTES: usize = 24 << 20;
/// Elements of a vector.
const LANES: usize = 8;

/// A word in each lane of a vector.
pub(crate) type Broadcast = [u32; LANES];

/// The machine code of a program.
pub(crate) struct MachineCode {
    /// Readable and executable, never writable.
    code: Mmap,
    /// Where the loop begins that stores past the caches; it wants an output that is aligned to vectors.
    streaming: Option<usize>,
    /// What is read, with the bytes of an element.
    arguments: Vec<(Argument, usize)>,
    parameters: Vec<Parameter>,
    /// Bytes of an element of the output.
    output_bytes: usize,
}

/// Pointers to the arguments, and to the output behind them.
pub(crate) type Pointers = SmallVec<[*mut u8; 12]>;

/// The arguments' pointers, the number of elements, the parameters. The convention is that of Linux on every system.
#[cfg(target_arch = "x86_64")]
type Entry = unsafe extern "sysv64" fn(*const *mut u8, usize, *const Broadcast);
/// Never called: there is no code for other processors.
#[cfg(not(target_arch = "x86_64"))]
type Entry = unsafe extern "C" fn(*const *mut u8, usize, *const Broadcast);

impl MachineCode {
    /// Bytes that it takes: code comes in pages.
    pub(crate) fn bytes(&self) -> usize {
        const PAGE_BYTES: usize = 4096;
        self.code.len().next_multiple_of(PAGE_BYTES)
    }

    /// Makes code of a body whose results are stored as `store`, or as words where that is `None`; `None` where it cannot be.
    pub(crate) fn new(body: &Body, store: Option<DType>, level: SimdLevel) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") || level < SimdLevel::Avx2 {
            return None;
        }
        let dtypes: Vec<DType> = body.operands.iter().map(|operand| operand.dtype).collect();
        let lowered = Lowered::new(&body.program, &dtypes, |operand| body.operands[operand].layout.is_splat())?;
        if lowered.ops.len() > MAX_OPS {
            return None;
        }
        let form = if store == Some(DType::F16) { Store::Halves } else { Store::Words };
        let output_bytes = if form == Store::Halves { 2 } else { 4 };
        let mut bytes = registers::emit(&lowered, form, false)?;
        // A result that stays in its place is read again at once.
        let is_large = store.is_some() && body.space.elem_count() * output_bytes >= STREAM_BYTES;
        let streaming = is_large.then_some(bytes.len());
        if streaming.is_some() {
            bytes.extend(registers::emit(&lowered, form, true)?);
        }
        let arguments = lowered.arguments.iter().map(|&argument| {
            let bytes = if let Argument::Operand(operand) = argument { dtypes[operand].bytes() } else { 4 };
            (argument, bytes)
        });
        let arguments = arguments.collect();
        Some(Self { code: map(&bytes)?, streaming, arguments, parameters: lowered.parameters, output_bytes })
    }

    /// What it reads, with the bytes of an element.
    pub(crate) fn arguments(&self) -> &[(Argument, usize)] {
        &self.arguments
    }

    /// What is the same for all elements of a run.
    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Bytes of an element of the output.
    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Computes `len` elements.
    ///
    /// # Safety
    /// The pointers are those of the arguments, in order, which hold as many elements, and of the output, which has room for them and which
    /// nobody else touches; there are as many parameters as the code wants. The processor has AVX2, FMA and F16C.
    #[inline]
    pub(crate) unsafe fn run(&self, pointers: &Pointers, parameters: &[Broadcast], len: usize) {
        let whole = len / LANES * LANES;
        // SAFETY: the caller's promise.
        unsafe {
            if whole > 0 {
                self.call(pointers, parameters, whole);
            }
            if whole < len {
                self.run_rest(pointers, parameters, whole, len - whole);
            }
        }
    }

    /// Computes the elements of an incomplete vector, in copies that are complete.
    ///
    /// # Safety
    /// As [`run`](Self::run), from element `start` on.
    #[cold]
    unsafe fn run_rest(&self, pointers: &Pointers, parameters: &[Broadcast], start: usize, len: usize) {
        let mut blocks: SmallVec<[Broadcast; 12]> = SmallVec::from_elem([0; LANES], pointers.len());
        let copies: Pointers = blocks.iter_mut().map(|block| block.as_mut_ptr().cast()).collect();
        let output = self.arguments.len();
        // SAFETY: a block holds a vector of words; the rest is the caller's promise.
        unsafe {
            for (index, &(_, bytes)) in self.arguments.iter().enumerate() {
                copies[index].copy_from_nonoverlapping(pointers[index].add(start * bytes), len * bytes);
            }
            self.call(&copies, parameters, LANES);
            let bytes = self.output_bytes;
            pointers[output].add(start * bytes).copy_from_nonoverlapping(copies[output], len * bytes);
        }
    }

    /// # Safety
    /// As [`run`](Self::run); `len` is a multiple of a vector's elements and not zero.
    #[inline]
    unsafe fn call(&self, pointers: &Pointers, parameters: &[Broadcast], len: usize) {
        let is_aligned = |pointer: &*mut u8| (*pointer as usize).is_multiple_of(size_of::<Broadcast>());
        let offset = self.streaming.filter(|_| pointers.last().is_some_and(is_aligned)).unwrap_or(0);
        // SAFETY: the code at this offset is a function of this type: `registers::emit` made it.
        unsafe {
            let entry = std::mem::transmute::<*const u8, Entry>(self.code.as_ptr().add(offset));
            entry(pointers.as_ptr(), len, parameters.as_ptr());
        }
    }
}

/// Puts code where it can be executed, and not be changed any more; `None` where the system does not allow it.
fn map(bytes: &[u8]) -> Option<Mmap> {
    let mut pages = MmapMut::map_anon(bytes.len()).ok()?;
    pages[..bytes.len()].copy_from_slice(bytes);
    pages.make_exec().ok()
}
