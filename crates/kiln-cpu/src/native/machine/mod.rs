//! Elementwise programs as machine code: one loop over vectors that keeps values in registers.
//!
//! A loop per op moves every value through the L1 cache and back, which dominates chains of cheap ops. On processors
//! with AVX2, a program is therefore compiled to machine code. It uses the instructions of the loops, so results are
//! bitwise identical. Ops without a matching instruction run as loops, and so does everything if the system refuses
//! executable memory.

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
/// Outputs of at least this many bytes use non-temporal stores, because they would only evict other data from the
/// caches.
const STREAM_BYTES: usize = 24 << 20;
/// Elements per vector.
const LANES: usize = 8;

/// A word broadcast to all lanes of a vector.
pub(crate) type Broadcast = [u32; LANES];

/// The machine code of a program.
pub(crate) struct MachineCode {
    /// Readable and executable, never writable.
    code: Mmap,
    /// Offset of the loop with non-temporal stores, which requires an output aligned to vectors.
    streaming: Option<usize>,
    /// The arguments, with their element size in bytes.
    arguments: Vec<(Argument, usize)>,
    parameters: Vec<Parameter>,
    /// Element size of the output.
    output_bytes: usize,
}

/// Pointers to the arguments, followed by the output.
pub(crate) type Pointers = SmallVec<[*mut u8; 12]>;

/// Takes the argument pointers, the number of elements and the parameters. Uses the System V calling convention on
/// every system.
#[cfg(target_arch = "x86_64")]
type Entry = unsafe extern "sysv64" fn(*const *mut u8, usize, *const Broadcast);
/// Never called: there is no code for other architectures.
#[cfg(not(target_arch = "x86_64"))]
type Entry = unsafe extern "C" fn(*const *mut u8, usize, *const Broadcast);

impl MachineCode {
    /// Returns its size in bytes, rounded up to whole pages.
    pub(crate) fn bytes(&self) -> usize {
        const PAGE_BYTES: usize = 4096;
        self.code.len().next_multiple_of(PAGE_BYTES)
    }

    /// Compiles a body whose results are stored as `store`, or as words if that is `None`. Returns `None` if it is
    /// not supported.
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
        // Only for stored results: a result that stays in its register is read again at once.
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

    /// Returns the arguments, with their element size in bytes.
    pub(crate) fn arguments(&self) -> &[(Argument, usize)] {
        &self.arguments
    }

    /// Returns the parameters, which are the same for all elements of a run.
    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the element size of the output, in bytes.
    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Computes `len` elements.
    ///
    /// # Safety
    /// `pointers` must be those of the arguments, in order, each with `len` elements, followed by the output, which
    /// must have room for them and be accessed by nothing else. `parameters` must have as many elements as the code
    /// requires. The processor must support AVX2, FMA and F16C.
    #[inline]
    pub(crate) unsafe fn run(&self, pointers: &Pointers, parameters: &[Broadcast], len: usize) {
        let whole = len / LANES * LANES;
        // SAFETY: the caller upholds the contract.
        unsafe {
            if whole > 0 {
                self.call(pointers, parameters, whole);
            }
            if whole < len {
                self.run_rest(pointers, parameters, whole, len - whole);
            }
        }
    }

    /// Computes the elements of a partial vector, in full-size copies.
    ///
    /// # Safety
    /// As [`run`](Self::run), from element `start`.
    #[cold]
    unsafe fn run_rest(&self, pointers: &Pointers, parameters: &[Broadcast], start: usize, len: usize) {
        // The code loads and stores whole vectors, which would access memory past the end of the buffers.
        let mut blocks: SmallVec<[Broadcast; 12]> = SmallVec::from_elem([0; LANES], pointers.len());
        let copies: Pointers = blocks.iter_mut().map(|block| block.as_mut_ptr().cast()).collect();
        let output = self.arguments.len();
        // SAFETY: a block holds a vector of words; the rest is guaranteed by the caller.
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
    /// As [`run`](Self::run); `len` must be a nonzero multiple of the vector length.
    #[inline]
    unsafe fn call(&self, pointers: &Pointers, parameters: &[Broadcast], len: usize) {
        let is_aligned = |pointer: &*mut u8| (*pointer as usize).is_multiple_of(size_of::<Broadcast>());
        // `MOVNTPS` faults on a misaligned address. Only the first must be checked: the loop advances by whole vectors.
        let offset = self.streaming.filter(|_| pointers.last().is_some_and(is_aligned)).unwrap_or(0);
        // SAFETY: `registers::emit` generated a function of this type at this offset.
        unsafe {
            let entry = std::mem::transmute::<*const u8, Entry>(self.code.as_ptr().add(offset));
            entry(pointers.as_ptr(), len, parameters.as_ptr());
        }
    }
}

/// Copies code to memory that is executable and no longer writable; `None` if the system does not allow it.
fn map(bytes: &[u8]) -> Option<Mmap> {
    let mut pages = MmapMut::map_anon(bytes.len()).ok()?;
    pages[..bytes.len()].copy_from_slice(bytes);
    pages.make_exec().ok()
}
