//! Norms on the CPU, each row in three passes while it is in the first-level cache: the mean, the sums of what is left, the result.

use super::{LayerNorm, RmsNorm};
use crate::rows::{CHUNK, Chunk, Chunks, Level, RowTask, Stored, at_level, by_storage, each_row, numbers};
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
        at_level(level, LayerRow { eps: op.eps, row, vectors, out });
    })
}

fn rms_rows<T: Stored>(op: &RmsNorm, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    let weight = call.operands.get(1).map(numbers);
    each_row::<T>(call, 1, |row, out| at_level(level, RmsRow { eps: op.eps, row, weight: weight.as_deref(), out }))
}

struct LayerRow<'a, T> {
    eps: f32,
    row: &'a [T],
    vectors: Option<(&'a [f32], &'a [f32])>,
    out: &'a mut [f32],
}

impl<T: Stored> RowTask for LayerRow<'_, T> {
    #[inline(always)]
    fn run<L: Level>(self) {
        let (row, length) = (Chunks::of(self.row), self.row.len() as f64);
        let [sum, _] = sums::<L, T>(&row, 0.0);
        // Rounded, the mean of large numbers is off by more than small deviations allow: what it is off by is the mean of the
        // deviations from it, which are small and sum up well.
        let near = (sum / length) as f32;
        let [sum, squares] = sums::<L, T>(&row, near);
        let off = sum / length;
        let variance = (squares / length - off * off).max(0.0);
        // `max` drops a NaN, which comes with one in the sum.
        let factor = 1.0 / (variance + off * 0.0 + f64::from(self.eps)).sqrt();
        let (shift, factor) = ((-off * factor) as f32, factor as f32);
        affine::<L, T>(&row, self.out, near, factor, shift);
        if let Some((weight, bias)) = self.vectors {
            for ((number, &weight), &bias) in self.out.iter_mut().zip(weight).zip(bias) {
                *number = L::mul_add(*number, weight, bias);
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

impl<T: Stored> RowTask for RmsRow<'_, T> {
    #[inline(always)]
    fn run<L: Level>(self) {
        let row = Chunks::of(self.row);
        let [_, squares] = sums::<L, T>(&row, 0.0);
        let factor = 1.0 / (squares / self.row.len() as f64 + f64::from(self.eps)).sqrt();
        affine::<L, T>(&row, self.out, 0.0, factor as f32, 0.0);
        if let Some(weight) = self.weight {
            for (number, &weight) in self.out.iter_mut().zip(weight) {
                *number *= weight;
            }
        }
    }
}

/// Chunks that are added up in single precision before double precision takes over.
const CHUNKS: usize = 128;

/// The sum of the deviations from `center`, and of their squares.
#[inline(always)]
fn sums<L: Level, T: Stored>(row: &Chunks<'_, T>, center: f32) -> [f64; 2] {
    let mut totals = [0.0; 2];
    let mut space = [0.0; CHUNK];
    for chunks in row.whole.chunks(CHUNKS) {
        let (mut sums, mut squares) = ([0.0; CHUNK], [0.0; CHUNK]);
        for chunk in chunks {
            add::<L>(T::widen::<L>(chunk, &mut space), center, &mut sums, &mut squares);
        }
        totals = [totals[0] + total(&sums), totals[1] + total(&squares)];
    }
    if let Some(last) = row.last::<L>(center) {
        let (mut sums, mut squares) = ([0.0; CHUNK], [0.0; CHUNK]);
        add::<L>(&last, center, &mut sums, &mut squares);
        totals = [totals[0] + total(&sums), totals[1] + total(&squares)];
    }
    totals
}

#[inline(always)]
fn add<L: Level>(chunk: &Chunk, center: f32, sums: &mut Chunk, squares: &mut Chunk) {
    for ((&number, sum), square) in chunk.iter().zip(sums).zip(squares) {
        let deviation = number - center;
        *sum += deviation;
        *square = L::mul_add(deviation, deviation, *square);
    }
}

#[inline(always)]
fn total(sums: &Chunk) -> f64 {
    sums.iter().map(|&sum| f64::from(sum)).sum()
}

/// `(x - center) * factor + shift`.
#[inline(always)]
fn affine<L: Level, T: Stored>(row: &Chunks<'_, T>, out: &mut [f32], center: f32, factor: f32, shift: f32) {
    let (whole, rest) = out.as_chunks_mut::<CHUNK>();
    let mut space = [0.0; CHUNK];
    for (from, to) in row.whole.iter().zip(whole) {
        for (&number, to) in T::widen::<L>(from, &mut space).iter().zip(to) {
            *to = L::mul_add(number - center, factor, shift);
        }
    }
    if let Some(last) = row.last::<L>(0.0) {
        for (&number, to) in last.iter().zip(rest) {
            *to = L::mul_add(number - center, factor, shift);
        }
    }
}
