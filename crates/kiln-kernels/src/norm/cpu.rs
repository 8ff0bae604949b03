//! Norms on the CPU, each row in three passes while it is in the first-level cache: the mean, the sums of what is left, the result.

use super::{LayerNorm, RmsNorm};
use crate::matmul::vector::{Vector, Work, at};
use crate::rows::{Pass, Stored, TOGETHER, by_storage, each_row, numbers, read, total, write};
use kiln_ir::Result;
use kiln_ir::host::HostCall;

pub(super) fn layer_norm(op: &LayerNorm, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, layer_rows(op, call))
}

pub(super) fn rms_norm(op: &RmsNorm, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, rms_rows(op, call))
}

fn layer_rows<T: Stored>(op: &LayerNorm, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    let (weight, bias) = (call.operands.get(1).map(numbers), call.operands.get(2).map(numbers));
    each_row::<T>(call, 1, |row, out| {
        let vectors = weight.as_deref().zip(bias.as_deref());
        at(level, LayerRow { eps: op.eps, row, vectors, out });
    })
}

fn rms_rows<T: Stored>(op: &RmsNorm, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    let weight = call.operands.get(1).map(numbers);
    each_row::<T>(call, 1, |row, out| at(level, RmsRow { eps: op.eps, row, weight: weight.as_deref(), out }))
}

struct LayerRow<'a, T> {
    eps: f32,
    row: &'a [T],
    vectors: Option<(&'a [f32], &'a [f32])>,
    out: &'a mut [f32],
}

impl<T: Stored> Work for LayerRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let length = self.row.len() as f64;
        let [sum, _] = sums::<V, T>(self.row, 0.0);
        // Rounded, the mean of large numbers is off by more than small deviations allow: what it is off by is the mean of the
        // deviations from it, which are small and sum up well.
        let center = (sum / length) as f32;
        let [sum, squares] = sums::<V, T>(self.row, center);
        let off = sum / length;
        let variance = squares / length - off * off;
        // Rounding may leave a little less than nothing. A NaN is not below, and stays one.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        let factor = 1.0 / (variance + f64::from(self.eps)).sqrt();
        let mut pass = Scaled::<V>::new(center, factor, -off * factor);
        write(self.row, 0.0, self.out, &mut pass);
        if let Some((weight, bias)) = self.vectors {
            for ((number, &weight), &bias) in self.out.iter_mut().zip(weight).zip(bias) {
                *number = *number * weight + bias;
            }
        }
    }
}

struct RmsRow<'a, T> {
    eps: f32,
    row: &'a [T],
    weight: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl<T: Stored> Work for RmsRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let [_, squares] = sums::<V, T>(self.row, 0.0);
        let factor = 1.0 / (squares / self.row.len() as f64 + f64::from(self.eps)).sqrt();
        write(self.row, 0.0, self.out, &mut Scaled::<V>::new(0.0, factor, 0.0));
        if let Some(weight) = self.weight {
            for (number, &weight) in self.out.iter_mut().zip(weight) {
                *number *= weight;
            }
        }
    }
}

/// Elements that are added up in single precision before double precision takes over.
const PART: usize = 4096;

/// The sum of the deviations from `center`, and of their squares.
#[inline(always)]
fn sums<V: Vector, T: Stored>(row: &[T], center: f32) -> [f64; 2] {
    let mut totals = [0.0; 2];
    for part in row.chunks(PART) {
        let nothing = [V::splat(0.0); TOGETHER];
        let mut pass = Sums { center: V::splat(center), sums: nothing, squares: nothing };
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
    fn take(&mut self, place: usize, x: V) -> V {
        let deviation = x.sub(self.center);
        self.sums[place] = self.sums[place].add(deviation);
        self.squares[place] = deviation.mul_add(deviation, self.squares[place]);
        x
    }
}

/// `(x - center) * factor + shift`.
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
}

impl<V: Vector> Pass<V> for Scaled<V> {
    #[inline(always)]
    fn take(&mut self, _place: usize, x: V) -> V {
        x.sub(self.center).mul_add(self.factor, self.shift)
    }
}
