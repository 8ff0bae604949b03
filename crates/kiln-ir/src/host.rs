//! What a kernel that runs on the CPU is given: threads, operands in memory, and where its results go.

use crate::{DType, Layout, Result, SimdLevel};

/// The threads that a kernel runs on.
pub trait Workers: Sync {
    /// How many threads take part in a loop at most.
    fn count(&self) -> usize;

    /// The vector instructions to use. Never more than the processor has.
    fn simd(&self) -> SimdLevel;

    /// Calls `task` once for every number below `parts`, on all threads, and returns when all calls have ended.
    ///
    /// # Errors
    /// `Internal` where a call panicked.
    fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()>;
}

/// An operand of a kernel in memory.
#[derive(Clone, Copy, Debug)]
pub struct HostOperand<'a> {
    /// What its elements are.
    pub dtype: DType,
    /// Where they are, counted in elements from the start of `bytes`, which they all are inside of.
    pub layout: &'a Layout,
    /// The memory, aligned for the elements.
    pub bytes: &'a [u8],
}

/// Where the results of a kernel go: row by row, without gaps, converted to the output's dtype after what was fused behind the kernel is
/// applied to them.
pub trait HostOutput: Sync {
    /// Stores results of a kernel that computes in `f32`, from element `start` on; `values` serves as scratch memory.
    ///
    /// # Safety
    /// No other call stores any of these elements at the same time.
    ///
    /// # Panics
    /// Where the range is outside of the output, or where the kernel does not compute in `f32`.
    unsafe fn store(&self, start: usize, values: &mut [f32]);

    /// [`store`](Self::store) for some rows of a matrix. Much cheaper than a call for each, where they are short.
    ///
    /// # Safety
    /// As [`store`](Self::store).
    ///
    /// # Panics
    /// As [`store`](Self::store).
    unsafe fn store_rows(&self, rows: HostRows, values: &mut [f32]) {
        for (row, values) in values.chunks_mut(rows.width).enumerate() {
            // SAFETY: as promised by the caller.
            unsafe { self.store(rows.start + row * rows.pitch, &mut values[..rows.length]) };
        }
    }

    /// The memory of an output of `f32` behind whose kernel nothing is fused, where a kernel may put its results itself.
    fn floats(&self) -> Option<*mut f32> {
        None
    }

    /// The memory of the output, for a kernel that moves elements and computes nothing. Nothing is ever fused behind such a kernel.
    fn bytes(&self) -> (*mut u8, usize);
}

/// Where rows of results are.
#[derive(Clone, Copy, Debug)]
pub struct HostRows {
    /// The first element of the output that is stored.
    pub start: usize,
    /// Elements of the output from one row to the next.
    pub pitch: usize,
    /// Elements of each row.
    pub length: usize,
    /// From one row of the values to the next. What is between them is not stored.
    pub width: usize,
}

/// One run of a kernel on the CPU.
pub struct HostCall<'a> {
    /// The threads to run on.
    pub workers: &'a dyn Workers,
    /// The operands, in the order of the op's inputs.
    pub operands: &'a [HostOperand<'a>],
    /// Where the results go.
    pub output: &'a dyn HostOutput,
}
