//! Accumulation loops: sums, and the interface common to all reductions.
//!
//! Each loop is written once over vectors of a fixed length and compiled for every SIMD level and storage format, so
//! all levels produce the same bits. Several accumulators hide the latency of an addition.

use super::columns::{Columns, Lanes, Rows, add_columns};
use super::extremum::{ArgExtremum, Extremum, Max, Min};
#[cfg(target_arch = "x86_64")]
use super::lanes::avx2::Avx2;
use super::lanes::{Bf16, F16, LANES, Stored, Vector, Whole};
use kiln_ir::graph::Reduce;
use kiln_ir::{Class, DType, SimdLevel};

/// Elements of a row that are summed in `f32` before the sum is added in `f64`.
const SUM_ELEMENTS: usize = 4096;
/// Independent vector accumulators of a row.
const VECTORS: usize = 8;

/// The accumulator of one kept element.
#[derive(Clone, Copy)]
pub(super) struct Accumulator {
    pub(super) sum: f64,
    /// The current maximum or minimum, or the sum of integers.
    pub(super) word: u32,
    pub(super) index: u32,
}

/// The loops of one reduction, for one storage format and SIMD level.
///
/// # Safety
/// The processor must support the level, and elements must be readable and aligned.
#[derive(Clone, Copy)]
pub(super) struct Folding {
    /// The initial accumulator.
    pub(super) start: Accumulator,
    /// Merges the accumulator of a later part of the same row.
    pub(super) join: fn(&mut Accumulator, &Accumulator),
    /// Accumulates consecutive rows of `len` elements, one per accumulator. `first` is the index of the first
    /// element in its row.
    pub(super) rows: unsafe fn(from: *const u8, len: usize, first: usize, accumulators: &mut [Accumulator]),
    /// Accumulates rows, which are at most as wide as there are columns.
    pub(super) columns: unsafe fn(rows: Rows, columns: &mut Columns),
}

impl Folding {
    /// Returns the loops of a reduction. Elements are stored as floats of any width, or as words.
    pub(super) fn new(op: Reduce, class: Class, stored: DType, level: SimdLevel) -> Self {
        match (op, class) {
            (Reduce::Sum | Reduce::Mean, Class::Float) => floats::<Sum>(stored, level),
            (Reduce::Sum | Reduce::Mean, Class::Int | Class::Uint) => words::<WrappingSum>(level),
            (Reduce::Max, Class::Float) => floats::<Extremum<Max<f32>>>(stored, level),
            (Reduce::Max, Class::Int) => words::<Extremum<Max<i32>>>(level),
            (Reduce::Max, Class::Uint) => words::<Extremum<Max<u32>>>(level),
            (Reduce::Min, Class::Float) => floats::<Extremum<Min<f32>>>(stored, level),
            (Reduce::Min, Class::Int) => words::<Extremum<Min<i32>>>(level),
            (Reduce::Min, Class::Uint) => words::<Extremum<Min<u32>>>(level),
            (Reduce::ArgMax, Class::Float) => floats::<ArgExtremum<Max<f32>>>(stored, level),
            (Reduce::ArgMax, Class::Int) => words::<ArgExtremum<Max<i32>>>(level),
            (Reduce::ArgMax, Class::Uint) => words::<ArgExtremum<Max<u32>>>(level),
            (Reduce::ArgMin, Class::Float) => floats::<ArgExtremum<Min<f32>>>(stored, level),
            (Reduce::ArgMin, Class::Int) => words::<ArgExtremum<Min<i32>>>(level),
            (Reduce::ArgMin, Class::Uint) => words::<ArgExtremum<Min<u32>>>(level),
            (_, Class::Wide) => unreachable!("64-bit elements are reduced by separate kernels"),
        }
    }
}

fn floats<F: Fold>(stored: DType, level: SimdLevel) -> Folding {
    match stored {
        DType::F16 => loops::<F, F16>(level),
        DType::BF16 => loops::<F, Bf16>(level),
        _ => words::<F>(level),
    }
}

fn words<F: Fold>(level: SimdLevel) -> Folding {
    loops::<F, Whole>(level)
}

fn loops<F: Fold, S: Stored>(level: SimdLevel) -> Folding {
    let (start, join) = (F::START, F::join);
    match level {
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 | SimdLevel::Avx512 => {
            Folding { start, join, rows: avx2::rows::<F, S>, columns: avx2::columns::<F, S> }
        }
        // On other architectures the baseline target includes everything that the levels name.
        _ => Folding { start, join, rows: add_rows::<F, [u32; LANES], S>, columns: add_columns::<F, [u32; LANES], S> },
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Accumulator, Avx2, Columns, Fold, Rows, Stored};

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn rows<F: Fold, S: Stored>(
        from: *const u8,
        len: usize,
        first: usize,
        accumulators: &mut [Accumulator],
    ) {
        // SAFETY: the caller upholds the contract.
        unsafe { super::add_rows::<F, Avx2, S>(from, len, first, accumulators) };
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn columns<F: Fold, S: Stored>(rows: Rows, columns: &mut Columns) {
        // SAFETY: the caller upholds the contract.
        unsafe { super::add_columns::<F, Avx2, S>(rows, columns) };
    }
}

/// The accumulation of a reduction. Everything is `#[inline(always)]`, so that it is compiled for the SIMD level.
pub(super) trait Fold {
    /// The initial accumulator; its word is the identity of `add_to_columns`.
    const START: Accumulator;

    /// Accumulates elements of one row; `first` is the index of the first.
    fn add_run<V: Vector, S: Stored>(values: &[S::Bits], first: usize, accumulator: &mut Accumulator);

    /// Accumulates elements of `N` rows into adjacent columns; `first` is the index of the first row.
    fn add_to_columns<V: Vector, const N: usize>(row: impl Fn(usize) -> V, first: usize, lanes: Lanes<'_>);

    fn join(accumulator: &mut Accumulator, later: &Accumulator);
}

/// # Safety
/// As [`Folding::rows`].
#[inline(always)]
unsafe fn add_rows<F: Fold, V: Vector, S: Stored>(
    from: *const u8,
    len: usize,
    first: usize,
    accumulators: &mut [Accumulator],
) {
    // SAFETY: the caller upholds the contract.
    let values: &[S::Bits] = unsafe { std::slice::from_raw_parts(from.cast(), len * accumulators.len()) };
    // `len` is not 0, for which `chunks_exact` panics: `ReduceStep::reduce` returns early if nothing is reduced.
    for (accumulator, row) in accumulators.iter_mut().zip(values.chunks_exact(len)) {
        F::add_run::<V, S>(row, first, accumulator);
    }
}

/// Sum of floats: short runs in `f32`, their sums in `f64`.
struct Sum;

impl Fold for Sum {
    const START: Accumulator = Accumulator { sum: 0.0, word: 0, index: 0 };

    #[inline(always)]
    fn add_run<V: Vector, S: Stored>(values: &[S::Bits], _first: usize, accumulator: &mut Accumulator) {
        let (groups, rest) = values.as_chunks::<{ VECTORS * LANES }>();
        let mut wide = [0f64; LANES];
        // A lane sums at most 64 terms in `f32` before it is widened, so its error does not grow with the row.
        for block in groups.chunks(SUM_ELEMENTS / (VECTORS * LANES)) {
            let mut sums = [V::splat(0); VECTORS];
            for group in block {
                for (sum, from) in sums.iter_mut().zip(group.as_chunks().0) {
                    *sum = sum.add_floats(S::load(from));
                }
            }
            let [a, b, c, d, e, f, g, h] = sums;
            let (low, high) =
                (a.add_floats(b).add_floats(c.add_floats(d)), e.add_floats(f).add_floats(g.add_floats(h)));
            widen(&mut wide, low.add_floats(high));
        }
        let (vectors, rest) = rest.as_chunks();
        for from in vectors {
            widen(&mut wide, S::load::<V>(from));
        }
        accumulator.sum += rest.iter().fold(0.0, |sum, &from| sum + f64::from(f32::from_bits(S::word(from))));
        if values.len() >= LANES {
            let [a, b, c, d, e, f, g, h] = wide;
            // A fixed tree, with the distances of `Vector::fold` (4, 2, 1), so that every SIMD level gives the same bits.
            accumulator.sum += ((a + e) + (c + g)) + ((b + f) + (d + h));
        }
    }

    #[inline(always)]
    fn add_to_columns<V: Vector, const N: usize>(row: impl Fn(usize) -> V, _first: usize, lanes: Lanes<'_>) {
        let mut sum = V::splat(0);
        for index in 0..N {
            sum = sum.add_floats(row(index));
        }
        *lanes.sums = V::load(lanes.sums).add_floats(sum).words();
    }

    fn join(accumulator: &mut Accumulator, later: &Accumulator) {
        accumulator.sum += later.sum;
    }
}

#[inline(always)]
fn widen<V: Vector>(sums: &mut [f64; LANES], values: V) {
    sums.iter_mut().zip(values.words()).for_each(|(sum, value)| *sum += f64::from(f32::from_bits(value)));
}

/// Wrapping sum of integers.
struct WrappingSum;

impl Fold for WrappingSum {
    const START: Accumulator = Accumulator { sum: 0.0, word: 0, index: 0 };

    #[inline(always)]
    fn add_run<V: Vector, S: Stored>(values: &[S::Bits], _first: usize, accumulator: &mut Accumulator) {
        let (vectors, rest) = values.as_chunks();
        let mut sum = V::splat(0);
        for from in vectors {
            sum = sum.add_integers(S::load(from));
        }
        let sum = sum.fold(V::add_integers).wrapping_add(accumulator.word);
        accumulator.word = rest.iter().fold(sum, |sum, &from| sum.wrapping_add(S::word(from)));
    }

    #[inline(always)]
    fn add_to_columns<V: Vector, const N: usize>(row: impl Fn(usize) -> V, _first: usize, lanes: Lanes<'_>) {
        let mut sum = V::load(lanes.words);
        for index in 0..N {
            sum = sum.add_integers(row(index));
        }
        *lanes.words = sum.words();
    }

    fn join(accumulator: &mut Accumulator, later: &Accumulator) {
        accumulator.word = accumulator.word.wrapping_add(later.word);
    }
}
