//! Norms on the CPU. Each row takes two passes while it is in the L1 cache: the sums of deviations from an estimate of the mean, then the result.

use crate::matmul::vector::{LANES, Stored, Vector, Work, at};
use crate::rows::{Pass, TOGETHER, by_storage, each_row, load_rest, numbers, read, store, total};
use kiln_ir::Result;
use kiln_ir::host::HostCall;

/// Runs layer norm if `is_centred`, which subtracts the mean; otherwise RMS norm.
pub(super) fn run(eps: f32, is_centred: bool, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, run_stored(eps, is_centred, call))
}

fn run_stored<T: Stored>(eps: f32, is_centred: bool, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    let (weight, bias) = (call.operands.get(1).map(numbers), call.operands.get(2).map(numbers));
    each_row::<T>(call, 1, |row, out| {
        let affine = Affine { weight: weight.as_deref(), bias: bias.as_deref() };
        at(level, Row { eps, is_centred, row, affine, out });
    })
}

struct Row<'a, T> {
    eps: f32,
    is_centred: bool,
    row: &'a [T],
    affine: Affine<'a>,
    out: &'a mut [f32],
}

impl<T: Stored> Work for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        if !self.is_centred {
            let [_, squares] = sums::<V, T>(self.row, 0.0);
            let factor = 1.0 / (squares / self.row.len() as f64 + f64::from(self.eps)).sqrt();
            return self.affine.write(self.row, &Scaled::<V>::new(0.0, factor, 0.0), self.out);
        }
        let mut center = estimate_mean::<V, T>(self.row);
        let [mut off, mut variance] = deviations::<V, T>(self.row, center);
        // If the estimate is off by more than one standard deviation, E[d²] - E[d]² cancels, and d² may overflow: repeat with the computed
        // mean.
        if off * off > variance || !variance.is_finite() {
            center = (f64::from(center) + off) as f32;
            [off, variance] = deviations::<V, T>(self.row, center);
        }
        // Rounding may give a slightly negative variance. The comparison is false for NaN, which stays NaN.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        let factor = 1.0 / (variance + f64::from(self.eps)).sqrt();
        let scaled = Scaled::<V>::new(center, factor, -off * factor);
        self.affine.write(self.row, &scaled, self.out);
    }
}

/// Returns an estimate of the mean: the mean of the first elements.
#[inline(always)]
fn estimate_mean<V: Vector, T: Stored>(row: &[T]) -> f32 {
    let Some(first) = row.first_chunk::<{ TOGETHER * LANES }>() else { return row[0].into() };
    // Divides before adding, so that the largest floats do not overflow.
    let (mut mean, share) = (V::splat(0.0), V::splat(1.0 / first.len() as f32));
    for from in first.as_chunks::<LANES>().0 {
        mean = T::load::<V>(from).mul_add(share, mean);
    }
    mean.sum()
}

/// Returns the distance of the mean from `center`, and the variance.
#[inline(always)]
fn deviations<V: Vector, T: Stored>(row: &[T], center: f32) -> [f64; 2] {
    // Shifted-data variance, E[(x - c)²] - E[x - c]². It is accurate in one pass if c is near the mean.
    let [off, squares] = sums::<V, T>(row, center).map(|sum| sum / row.len() as f64);
    [off, squares - off * off]
}

/// Elements that accumulate in `f32` before they are added to an `f64` total.
const MAX_F32_TERMS: usize = 4096;

/// Returns the sum of the deviations from `center`, and of their squares.
#[inline(always)]
fn sums<V: Vector, T: Stored>(row: &[T], center: f32) -> [f64; 2] {
    let mut totals = [0.0; 2];
    for part in row.chunks(MAX_F32_TERMS) {
        let nothing = [V::splat(0.0); TOGETHER];
        let mut pass = Sums { center: V::splat(center), sums: nothing, squares: nothing };
        // Padded with `center`, which has the deviation 0.
        read(part, center, &mut pass);
        totals = [totals[0] + total(pass.sums), totals[1] + total(pass.squares)];
    }
    totals
}

struct Sums<V> {
    center: V,
    sums: [V; TOGETHER],
    squares: [V; TOGETHER],
}

impl<V: Vector> Pass<V> for Sums<V> {
    #[inline(always)]
    fn take(&mut self, accumulator: usize, x: V) -> V {
        let deviation = x.sub(self.center);
        self.sums[accumulator] = self.sums[accumulator].add(deviation);
        self.squares[accumulator] = deviation.mul_add(deviation, self.squares[accumulator]);
        x
    }
}

/// Computes `(x - center) * factor + shift`.
struct Scaled<V> {
    center: V,
    factor: V,
    shift: V,
}

impl<V: Vector> Scaled<V> {
    #[inline(always)]
    fn new(center: f32, factor: f64, shift: f64) -> Self {
        Self { center: V::splat(center), factor: V::splat(factor as f32), shift: V::splat(shift as f32) }
    }

    #[inline(always)]
    fn of(&self, x: V) -> V {
        // Subtracts first: scaling x and a large mean separately would lose the small difference between them.
        x.sub(self.center).mul_add(self.factor, self.shift)
    }
}

/// The affine transform of a normalized row.
#[derive(Clone, Copy)]
struct Affine<'a> {
    weight: Option<&'a [f32]>,
    /// Requires a weight.
    bias: Option<&'a [f32]>,
}

impl Affine<'_> {
    #[inline(always)]
    fn write<V: Vector, T: Stored>(self, row: &[T], scaled: &Scaled<V>, out: &mut [f32]) {
        match (self.weight, self.bias) {
            (Some(weight), Some(bias)) => {
                write(row, [weight, bias], out, |x, [weight, bias]| scaled.of(x).mul_add(weight, bias));
            }
            (Some(weight), None) => write(row, [weight], out, |x, [weight]| scaled.of(x).mul(weight)),
            _ => write(row, [], out, |x, []| scaled.of(x)),
        }
    }
}

/// Computes a row from its elements and those of vectors of the same length.
#[inline(always)]
fn write<V: Vector, T: Stored, const N: usize>(
    row: &[T],
    vectors: [&[f32]; N],
    out: &mut [f32],
    compute: impl Fn(V, [V; N]) -> V,
) {
    let (whole, rest) = row.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    let count = whole.len().min(out.len());
    let wholes = vectors.map(|vector| &vector.as_chunks::<LANES>().0[..count]);
    for index in 0..count {
        let mut at = [V::splat(0.0); N];
        for (at, vector) in at.iter_mut().zip(wholes) {
            *at = f32::load(&vector[index]);
        }
        store(compute(T::load(&whole[index]), at), &mut out[index]);
    }
    if !rest.is_empty() {
        let mut at = [V::splat(0.0); N];
        for (at, vector) in at.iter_mut().zip(vectors) {
            *at = load_rest(&vector[count * LANES..], 0.0);
        }
        out_rest.copy_from_slice(&compute(load_rest(rest, 0.0), at).lanes()[..rest.len()]);
    }
}
