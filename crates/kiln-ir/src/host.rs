//! The interface of kernels that run on the CPU: threads, operands in memory, and the output.

use crate::{DType, Layout, Result, SimdLevel};

/// The thread pool that a kernel runs on.
///
/// ```
/// use kiln_ir::SimdLevel;
/// struct ThisThread;
/// impl kiln_ir::host::Workers for ThisThread {
///     fn count(&self) -> usize { 1 }
///     fn simd(&self) -> SimdLevel { SimdLevel::Scalar }
///     fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> kiln_ir::Result<()> {
///         (0..parts).for_each(task);
///         Ok(())
///     }
/// }
/// ```
pub trait Workers: Sync {
    /// Returns the maximum number of threads in a parallel loop.
    fn count(&self) -> usize;

    /// Returns the SIMD level to use, which the processor supports.
    fn simd(&self) -> SimdLevel;

    /// Calls `task` once for every index below `parts`, on all threads, and returns when all calls have returned.
    ///
    /// # Errors
    /// Returns `Internal` if a call panicked.
    fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()>;
}

/// An operand of a kernel in memory.
///
/// See [`HostCall`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct HostOperand<'a> {
    /// The element type.
    pub dtype: DType,
    /// The layout, in elements from the start of `bytes`. Every element is in bounds.
    pub layout: &'a Layout,
    /// The memory, aligned for the elements.
    pub bytes: &'a [u8],
}

/// The output of a kernel: contiguous and row-major. The fused epilogue and the conversion to the output's dtype are
/// applied when results are stored.
///
/// See [`HostCall`] for an example.
pub trait HostOutput: Sync {
    /// Stores results of a kernel that computes in `f32`, beginning at element `start`. `values` is overwritten as
    /// scratch memory.
    ///
    /// # Safety
    /// No other call may store any of these elements at the same time.
    ///
    /// # Panics
    /// Panics if the range is out of bounds, or if the kernel does not compute in `f32`.
    unsafe fn store(&self, start: usize, values: &mut [f32]);

    /// Stores several rows of a matrix. Much cheaper than one [`store`](Self::store) per row if rows are short.
    ///
    /// # Safety
    /// As [`store`](Self::store).
    ///
    /// # Panics
    /// As [`store`](Self::store).
    unsafe fn store_rows(&self, rows: HostRows, values: &mut [f32]) {
        for (row, values) in values.chunks_mut(rows.width).enumerate() {
            // SAFETY: the caller upholds the contract of `store`.
            unsafe { self.store(rows.start + row * rows.pitch, &mut values[..rows.length]) };
        }
    }

    /// Returns the output's memory if it is `f32` without a fused epilogue, so that a kernel may write to it
    /// directly.
    fn floats(&self) -> Option<*mut f32> {
        None
    }

    /// Returns the output's memory, for kernels that only move elements. Such kernels never have a fused epilogue.
    fn bytes(&self) -> (*mut u8, usize);
}

/// The position of a block of rows.
///
/// See [`HostCall`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct HostRows {
    /// First element of the output to store.
    pub start: usize,
    /// Row stride of the output, in elements.
    pub pitch: usize,
    /// Elements per row.
    pub length: usize,
    /// Row stride of the values. Elements past `length` are not stored.
    pub width: usize,
}

/// One run of a kernel on the CPU.
///
/// ```
/// use kiln_ir::host::{HostCall, HostRows};
///
/// // Fills an output that has the shape of the operand, a matrix, with ones.
/// fn run(call: &HostCall<'_>) {
///     let shape = call.operands[0].layout.shape();
///     let rows = HostRows { start: 0, pitch: shape[1], length: shape[1], width: shape[1] };
///     // SAFETY: no other thread stores results.
///     unsafe { call.output.store_rows(rows, &mut vec![1.0; shape.elem_count()]) };
/// }
/// ```
pub struct HostCall<'a> {
    /// The threads to run on.
    pub workers: &'a dyn Workers,
    /// The operands, in the order of the op's inputs.
    pub operands: &'a [HostOperand<'a>],
    /// Where results are stored.
    pub output: &'a dyn HostOutput,
}
