//! Kernels that compute each row along the last axis by itself, in `f32`, whatever the elements are stored as.

use crate::indices::{invalid, text};
use crate::memory::elements;
use crate::walk::{Walk, share};
use bytemuck::Pod;
use half::{bf16, f16};
#[cfg(test)]
use kiln_ir::DType;
use kiln_ir::graph::TensorType;
use kiln_ir::host::{HostCall, HostOperand};
use kiln_ir::{Layout, Result, SimdLevel};

/// Numbers that are computed with at once: four vectors of eight, so that each can wait for the one before it.
pub(crate) const CHUNK: usize = 32;

/// Numbers in a row.
pub(crate) type Chunk = [f32; CHUNK];

/// Results that are stored at once, where rows are shorter: what half of a first-level cache holds.
const STORED: usize = 4096;

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

/// A kind of vector instructions that rows are computed with.
pub(crate) trait Level {
    /// Whether a product and a sum are one instruction.
    const FMA: bool;

    /// Half-precision numbers as `f32`.
    fn halves(from: &[f16; CHUNK], to: &mut Chunk);

    /// `a * b + c`.
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }
}

/// What every processor of the architecture has.
struct Portable;

impl Level for Portable {
    const FMA: bool = cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma");

    #[inline(always)]
    fn halves(from: &[f16; CHUNK], to: &mut Chunk) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.to_f32();
        }
    }
}

/// AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Level for Avx2 {
    const FMA: bool = true;

    #[inline(always)]
    fn halves(from: &[f16; CHUNK], to: &mut Chunk) {
        use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
        for (from, to) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
            // SAFETY: both are eight elements long, and `at_level` has found F16C before it uses this level.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
    }
}

/// The computation of one row.
pub(crate) trait RowTask {
    /// Computes it. Must be `#[inline(always)]`, and so must what it calls: only then it is compiled for the level.
    fn run<L: Level>(self);
}

/// Computes a row with the instructions of a level.
pub(crate) fn at_level<K: RowTask>(level: SimdLevel, task: K) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a level is never above what the processor has.
        SimdLevel::Avx2 | SimdLevel::Avx512 => unsafe { with_avx2(task) },
        _ => task.run::<Portable>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_avx2<K: RowTask>(task: K) {
    task.run::<Avx2>();
}

/// What floats are stored as.
pub(crate) trait Stored: Pod + Into<f32> + Send + Sync {
    /// A chunk as numbers: where they are, or in the space that is given.
    fn widen<'a, L: Level>(from: &'a [Self; CHUNK], space: &'a mut Chunk) -> &'a Chunk;
}

impl Stored for f32 {
    #[inline(always)]
    fn widen<'a, L: Level>(from: &'a Chunk, _space: &'a mut Chunk) -> &'a Chunk {
        from
    }
}

impl Stored for f16 {
    #[inline(always)]
    fn widen<'a, L: Level>(from: &'a [Self; CHUNK], space: &'a mut Chunk) -> &'a Chunk {
        L::halves(from, space);
        space
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn widen<'a, L: Level>(from: &'a [Self; CHUNK], space: &'a mut Chunk) -> &'a Chunk {
        for (to, from) in space.iter_mut().zip(from) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
        space
    }
}

/// The chunks of a row, the last one filled up.
pub(crate) struct Chunks<'a, T> {
    pub(crate) whole: &'a [[T; CHUNK]],
    rest: &'a [T],
}

impl<'a, T: Stored> Chunks<'a, T> {
    #[inline(always)]
    pub(crate) fn of(row: &'a [T]) -> Self {
        let (whole, rest) = row.as_chunks();
        Self { whole, rest }
    }

    /// The chunk at the end that is not whole, with `fill` behind it.
    #[inline(always)]
    pub(crate) fn last<L: Level>(&self, fill: f32) -> Option<Chunk> {
        if self.rest.is_empty() {
            return None;
        }
        let (mut elements, mut space) = ([T::zeroed(); CHUNK], [0.0; CHUNK]);
        elements[..self.rest.len()].copy_from_slice(self.rest);
        let mut chunk = *T::widen::<L>(&elements, &mut space);
        chunk[self.rest.len()..].fill(fill);
        Some(chunk)
    }
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
    let last = layout.shape().rank() - 1;
    let length = layout.shape()[last];
    if layout.shape().elements() == 0 {
        return Ok(());
    }
    let rows = Walk::new(&layout.shape()[..last], [&layout.strides()[..last]], [layout.offset() as isize]);
    let together = (STORED / length).max(1);
    share(call.workers, rows.items(), (8 + length / 4) * cost, |range| {
        let mut results = vec![0.0; together.min(range.len()) * length];
        let (mut start, mut filled) = (range.start * length, 0);
        let end = range.end * length;
        rows.each(range, |[place]| {
            compute(&x[place as usize..][..length], &mut results[filled..filled + length]);
            filled += length;
            if filled == results.len() || start + filled == end {
                // SAFETY: the parts of the loop have no rows in common.
                unsafe { call.output.store(start, &mut results[..filled]) };
                start += filled;
                filled = 0;
            }
        });
    })
}

/// The elements of a small operand, as numbers.
pub(crate) fn numbers(operand: &HostOperand<'_>) -> Vec<f32> {
    by_storage!(operand.dtype, widened(operand))
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
