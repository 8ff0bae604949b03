//! Kernels that compute each row along the last axis by itself, in `f32`, whatever the elements are stored as.

use crate::indices::{invalid, text};
use crate::matmul::vector::{LANES, Stored, Vector};
use crate::memory::elements;
use crate::walk::{Walk, share};
use kiln_ir::graph::TensorType;
use kiln_ir::host::{HostCall, HostOperand, HostOutput};
use kiln_ir::{DType, Layout, Result};
use std::borrow::Cow;

/// Results that are stored at once, where rows are shorter: what half of a first-level cache holds.
pub(crate) const STORED: usize = 4096;

/// The last axis of a tensor of floats is one of its axes.
pub(crate) fn check_rows(op: &str, x: &TensorType) -> Result<()> {
    if x.dtype.is_float() && x.shape.rank() > 0 {
        return Ok(());
    }
    Err(invalid(format!("{op} expected floats along at least one axis, found {}", text(x))))
}

/// Whether the elements of each row are next to each other.
pub(crate) fn has_whole_rows(layout: &Layout) -> bool {
    let last = layout.shape().rank().checked_sub(1);
    last.is_some_and(|last| layout.shape()[last] <= 1 || layout.strides()[last] == 1)
}

/// A walk over the starts of the rows, and their length.
pub(crate) fn rows_of(layout: &Layout) -> (Walk<1>, usize) {
    let last = layout.shape().rank() - 1;
    let starts = Walk::new(&layout.shape()[..last], [&layout.strides()[..last]], [layout.offset() as isize]);
    (starts, layout.shape()[last])
}

/// Vectors that go through a pass together, each with sums of its own, so that none waits for the one before it.
pub(crate) const TOGETHER: usize = 4;

/// What is done to the vectors of a row, one after the other. It is `#[inline(always)]`, or it is not compiled for the level.
pub(crate) trait Pass<V> {
    /// Takes a vector and gives what it becomes. The place says which of the sums it belongs to.
    fn take(&mut self, place: usize, x: V) -> V;
}

/// Takes a row through a pass. The last vector is filled up with `fill`.
#[inline(always)]
pub(crate) fn read<V: Vector, T: Stored>(row: &[T], fill: f32, pass: &mut impl Pass<V>) {
    let (whole, rest) = row.as_chunks::<LANES>();
    let (groups, singles) = whole.as_chunks::<TOGETHER>();
    for group in groups {
        for (place, from) in group.iter().enumerate() {
            pass.take(place, T::load(from));
        }
    }
    for from in singles {
        pass.take(0, T::load(from));
    }
    if !rest.is_empty() {
        pass.take(1, load_rest(rest, fill));
    }
}

/// [`read`], with what the row becomes written to `out`, which is as long.
#[inline(always)]
pub(crate) fn write<V: Vector, T: Stored>(row: &[T], fill: f32, out: &mut [f32], pass: &mut impl Pass<V>) {
    let (whole, rest) = row.as_chunks::<LANES>();
    let (groups, singles) = whole.as_chunks::<TOGETHER>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    let (out_groups, out_singles) = out.as_chunks_mut::<TOGETHER>();
    for (group, out) in groups.iter().zip(out_groups) {
        for (place, (from, to)) in group.iter().zip(out).enumerate() {
            store(pass.take(place, T::load(from)), to);
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
    lanes[rest.len()..].fill(fill);
    f32::load(&lanes)
}

#[inline(always)]
pub(crate) fn store<V: Vector>(x: V, to: &mut [f32; LANES]) {
    // SAFETY: there are as many as a vector has.
    unsafe { x.store(to.as_mut_ptr()) };
}

/// The sum of all lanes, in double precision.
#[inline(always)]
pub(crate) fn total<V: Vector>(sums: [V; TOGETHER]) -> f64 {
    sums.into_iter().flat_map(V::lanes).map(f64::from).sum()
}

/// Calls a function that is generic over how floats are stored.
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

/// Computes each row of the first operand and stores it. `cost` is about what an element takes, in quarters of a nanosecond.
pub(crate) fn each_row<T: Stored>(
    call: &HostCall<'_>,
    cost: usize,
    compute: impl Fn(&[T], &mut [f32]) + Sync,
) -> Result<()> {
    let (x, layout) = (elements::<T>(&call.operands[0]), call.operands[0].layout);
    if layout.shape().elem_count() == 0 {
        return Ok(());
    }
    let (rows, length) = rows_of(layout);
    let together = (STORED / length).max(1);
    share(call.workers, rows.items(), (8 + length / 4) * cost, |range| {
        let mut results = Results::new(call.output, range.start * length, together.min(range.len()) * length);
        let end = range.end * length;
        rows.each(range, |[place]| {
            // SAFETY: the parts of the loop have no rows in common, and all are inside of the output.
            unsafe { results.put(length, end, |out| compute(&x[place as usize..][..length], out)) };
        });
    })
}

/// Results of one thread, in order: where they are wanted at once where nothing is done to them, otherwise some at a time.
pub(crate) struct Results<'a> {
    output: &'a dyn HostOutput,
    direct: Option<*mut f32>,
    scratch: Vec<f32>,
    /// The first element that is not stored, and how many after it are in the scratch memory.
    start: usize,
    filled: usize,
}

impl<'a> Results<'a> {
    /// For elements from `start` on. They are stored when there are `capacity`, a multiple of what comes at a time.
    pub(crate) fn new(output: &'a dyn HostOutput, start: usize, capacity: usize) -> Self {
        let direct = output.floats();
        let scratch = if direct.is_some() { Vec::new() } else { vec![0.0; capacity] };
        Self { output, direct, scratch, start, filled: 0 }
    }

    /// Has the next `len` results computed, and stored where memory is full or where they are the last before `end`.
    ///
    /// # Safety
    /// Nobody else stores them, and they are inside of the output.
    pub(crate) unsafe fn put(&mut self, len: usize, end: usize, compute: impl FnOnce(&mut [f32])) {
        if let Some(memory) = self.direct {
            // SAFETY: the caller's promise.
            compute(unsafe { std::slice::from_raw_parts_mut(memory.add(self.start), len) });
            self.start += len;
            return;
        }
        compute(&mut self.scratch[self.filled..self.filled + len]);
        self.filled += len;
        if self.filled == self.scratch.len() || self.start + self.filled == end {
            // SAFETY: the caller's promise.
            unsafe { self.output.store(self.start, &mut self.scratch[..self.filled]) };
            self.start += self.filled;
            self.filled = 0;
        }
    }
}

/// The elements of a small operand, as numbers.
pub(crate) fn numbers<'a>(operand: &HostOperand<'a>) -> Cow<'a, [f32]> {
    let layout = operand.layout;
    if operand.dtype == DType::F32 && layout.is_contiguous() {
        return Cow::Borrowed(&elements(operand)[layout.offset()..][..layout.shape().elem_count()]);
    }
    Cow::Owned(by_storage!(operand.dtype, widened(operand)))
}

fn widened<T: Stored>(operand: &HostOperand<'_>) -> Vec<f32> {
    let (from, walk) = (elements::<T>(operand), Walk::over(operand.layout));
    let mut numbers = Vec::with_capacity(walk.items());
    walk.each(0..walk.items(), |[place]| numbers.push(from[place as usize].into()));
    numbers
}

/// Compares results with those of a reference: to the rounding of the dtype, and besides to `error` of the number, or of `scale` where it
/// is smaller.
#[cfg(test)]
pub(crate) fn assert_close(found: &crate::testing::Memory, expected: &[f64], error: f64, scale: f64, context: &str) {
    // Half of the distance to the next number, relative to normal ones and for the smallest ones.
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
