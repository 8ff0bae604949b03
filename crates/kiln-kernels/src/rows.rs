//! CPU kernels that compute each row along the last axis independently, in `f32`, for any storage dtype.

use crate::indices::{invalid, text};
use crate::matmul::vector::{LANES, Stored, Vector};
use crate::memory::elements;
use crate::strided::{StridedIter, parallel_for};
use kiln_ir::graph::TensorType;
use kiln_ir::host::{HostCall, HostOperand, HostOutput};
use kiln_ir::{DType, Layout, Result};
use std::borrow::Cow;

/// Results per store, if rows are shorter than this: half of a 32 KiB L1 cache.
pub(crate) const STORE_LEN: usize = 4096;

/// Checks that a tensor has floats and at least one axis.
pub(crate) fn check_rows(op: &str, x: &TensorType) -> Result<()> {
    if x.dtype.is_float() && x.shape.rank() > 0 {
        return Ok(());
    }
    Err(invalid(format!("{op} expected floats along at least one axis, found {}", text(x))))
}

/// Returns whether the elements of each row are contiguous.
pub(crate) fn has_whole_rows(layout: &Layout) -> bool {
    let last = layout.shape().rank().checked_sub(1);
    last.is_some_and(|last| layout.shape()[last] <= 1 || layout.strides()[last] == 1)
}

/// Returns an iterator over the starts of the rows, and the row length.
pub(crate) fn rows_of(layout: &Layout) -> (StridedIter<1>, usize) {
    let last = layout.shape().rank() - 1;
    let starts = StridedIter::new(&layout.shape()[..last], [&layout.strides()[..last]], [layout.offset() as isize]);
    (starts, layout.shape()[last])
}

/// Vectors per iteration of a pass. Each has an accumulator, so that additions do not depend on each other.
pub(crate) const TOGETHER: usize = 4;

/// An operation on the vectors of a row, in order. Implementations are `#[inline(always)]`; otherwise they are not compiled for the SIMD level.
pub(crate) trait Pass<V> {
    /// Takes a vector and returns what replaces it. `accumulator` is the index of the accumulator to use.
    fn take(&mut self, accumulator: usize, x: V) -> V;
}

/// Runs a pass over a row. The last vector is padded with `fill`.
#[inline(always)]
pub(crate) fn read<V: Vector, T: Stored>(row: &[T], fill: f32, pass: &mut impl Pass<V>) {
    let (whole, rest) = row.as_chunks::<LANES>();
    let (groups, singles) = whole.as_chunks::<TOGETHER>();
    // Which accumulator takes an element depends on the length alone, so the rounding of a sum does not depend on threads.
    for group in groups {
        for (accumulator, from) in group.iter().enumerate() {
            pass.take(accumulator, T::load(from));
        }
    }
    for from in singles {
        pass.take(0, T::load(from));
    }
    if !rest.is_empty() {
        pass.take(1, load_rest(rest, fill));
    }
}

/// Runs a pass like [`read`], and writes its results to `out`, which is as long as the row.
#[inline(always)]
pub(crate) fn write<V: Vector, T: Stored>(row: &[T], fill: f32, out: &mut [f32], pass: &mut impl Pass<V>) {
    let (whole, rest) = row.as_chunks::<LANES>();
    let (groups, singles) = whole.as_chunks::<TOGETHER>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    let (out_groups, out_singles) = out.as_chunks_mut::<TOGETHER>();
    for (group, out) in groups.iter().zip(out_groups) {
        for (accumulator, (from, to)) in group.iter().zip(out).enumerate() {
            store(pass.take(accumulator, T::load(from)), to);
        }
    }
    for (from, to) in singles.iter().zip(out_singles) {
        store(pass.take(0, T::load(from)), to);
    }
    if !rest.is_empty() {
        let lanes = pass.take(1, load_rest(rest, fill)).lanes();
        out_rest.copy_from_slice(&lanes[..rest.len()]);
    }
}

#[inline(always)]
pub(crate) fn load_rest<V: Vector, T: Stored>(rest: &[T], fill: f32) -> V {
    let mut elements = [T::zeroed(); LANES];
    elements[..rest.len()].copy_from_slice(rest);
    let mut lanes = T::load::<V>(&elements).lanes();
    // Filled as `f32`, after the conversion: 16-bit floats cannot represent every `fill`, such as the center of a norm.
    lanes[rest.len()..].fill(fill);
    f32::load(&lanes)
}

#[inline(always)]
pub(crate) fn store<V: Vector>(x: V, to: &mut [f32; LANES]) {
    // SAFETY: `to` has as many elements as a vector.
    unsafe { x.store(to.as_mut_ptr()) };
}

/// Returns the sum of all lanes, accumulated in `f64`.
#[inline(always)]
pub(crate) fn total<V: Vector>(sums: [V; TOGETHER]) -> f64 {
    sums.into_iter().flat_map(V::lanes).map(f64::from).sum()
}

/// Calls a function that is generic over the storage type of floats.
macro_rules! by_storage {
    ($dtype:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $dtype {
            kiln_ir::DType::F16 => $function::<half::f16>($($argument),*),
            kiln_ir::DType::BF16 => $function::<half::bf16>($($argument),*),
            _ => $function::<f32>($($argument),*),
        }
    };
}
pub(crate) use by_storage;

/// Computes each row of the first operand and stores it. `cost` is the approximate time per element, in quarters of a nanosecond.
pub(crate) fn each_row<T: Stored>(
    call: &HostCall<'_>,
    cost: usize,
    compute: impl Fn(&[T], &mut [f32]) + Sync,
) -> Result<()> {
    let (x, layout) = (elements::<T>(&call.operands[0]), call.operands[0].layout);
    // Also excludes rows of length 0, by which the code below divides.
    if layout.shape().elem_count() == 0 {
        return Ok(());
    }
    let (rows, length) = rows_of(layout);
    let together = (STORE_LEN / length).max(1);
    parallel_for(call.workers, rows.items(), (8 + length / 4) * cost, |range| {
        // The capacity is whole rows, as `put` requires.
        let mut results = Results::new(call.output, range.start * length, together.min(range.len()) * length);
        let end = range.end * length;
        rows.each(range, |[offset]| {
            // SAFETY: the ranges of the tasks are disjoint, and all rows are within the output.
            unsafe { results.put(length, end, |out| compute(&x[offset as usize..][..length], out)) };
        });
    })
}

/// Writes the results of one thread, in order: directly to the output if it has no fused epilogue, otherwise through a scratch buffer.
pub(crate) struct Results<'a> {
    output: &'a dyn HostOutput,
    direct: Option<*mut f32>,
    scratch: Vec<f32>,
    /// The first element that is not stored yet, and how many elements from there on are in the scratch buffer.
    start: usize,
    filled: usize,
}

impl<'a> Results<'a> {
    /// Creates a writer for elements from `start` on. It stores them once there are `capacity`, a multiple of the length of each `put`.
    pub(crate) fn new(output: &'a dyn HostOutput, start: usize, capacity: usize) -> Self {
        let direct = output.floats();
        let scratch = if direct.is_some() { Vec::new() } else { vec![0.0; capacity] };
        Self { output, direct, scratch, start, filled: 0 }
    }

    /// Computes the next `len` results. Stores them if the scratch buffer is full or if they are the last before `end`.
    ///
    /// # Safety
    /// The results must be within the output, and no other thread may store them.
    pub(crate) unsafe fn put(&mut self, len: usize, end: usize, compute: impl FnOnce(&mut [f32])) {
        if let Some(memory) = self.direct {
            // SAFETY: the caller promises that the range is within the output and not shared.
            compute(unsafe { std::slice::from_raw_parts_mut(memory.add(self.start), len) });
            self.start += len;
            return;
        }
        compute(&mut self.scratch[self.filled..self.filled + len]);
        self.filled += len;
        if self.filled == self.scratch.len() || self.start + self.filled == end {
            // SAFETY: the caller promises that the range is within the output and not shared.
            unsafe { self.output.store(self.start, &mut self.scratch[..self.filled]) };
            self.start += self.filled;
            self.filled = 0;
        }
    }
}

/// Returns the elements of a small operand as `f32`.
pub(crate) fn numbers<'a>(operand: &HostOperand<'a>) -> Cow<'a, [f32]> {
    let layout = operand.layout;
    if operand.dtype == DType::F32 && layout.is_contiguous() {
        return Cow::Borrowed(&elements(operand)[layout.offset()..][..layout.shape().elem_count()]);
    }
    Cow::Owned(by_storage!(operand.dtype, widened(operand)))
}

fn widened<T: Stored>(operand: &HostOperand<'_>) -> Vec<f32> {
    let (from, iter) = (elements::<T>(operand), StridedIter::over(operand.layout));
    let mut numbers = Vec::with_capacity(iter.items());
    iter.each(0..iter.items(), |[offset]| numbers.push(from[offset as usize].into()));
    numbers
}

/// Compares results with a reference. The tolerance is the rounding of the dtype plus `error` relative to the expected value, or to `scale` if
/// that is larger.
#[cfg(test)]
pub(crate) fn assert_close(found: &crate::testing::Memory, expected: &[f64], error: f64, scale: f64, context: &str) {
    // Half an ULP: relative for normal numbers, absolute for subnormal ones.
    let (relative, absolute) = match found.dtype {
        DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        DType::BF16 => (2f64.powi(-8), 2f64.powi(-134)),
        _ => (2f64.powi(-24), f64::from(f32::MIN_POSITIVE)),
    };
    for (index, &expected) in expected.iter().enumerate() {
        let value = found.get(index);
        let close =
            (value - expected).abs() <= relative * expected.abs() + error * expected.abs().max(scale) + absolute;
        let same = close || (value.is_nan() && expected.is_nan()) || value == expected;
        assert!(same, "{context}: expected {expected}, found {value} at {index}");
    }
}
