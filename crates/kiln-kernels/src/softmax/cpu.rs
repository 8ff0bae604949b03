//! Softmax on the CPU: the largest of a row, the sum of its exponentials, the quotients, all while the row is in the first-level cache.

use super::Softmax;
use crate::rows::{CHUNK, Chunk, Chunks, Level, RowTask, Stored, at_level, by_storage, each_row};
use kiln_ir::Result;
use kiln_ir::host::HostCall;

pub(super) fn run(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, run_stored(op, call))
}

fn run_stored<T: Stored>(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    each_row::<T>(call, 2, |row, out| at_level(level, Row { log: op.log, row, out }))
}

/// One row and where its result goes.
struct Row<'a, T> {
    log: bool,
    row: &'a [T],
    out: &'a mut [f32],
}

impl<T: Stored> RowTask for Row<'_, T> {
    #[inline(always)]
    fn run<L: Level>(self) {
        let row = Chunks::of(self.row);
        let largest = largest::<L, T>(&row);
        let (whole, rest) = self.out.as_chunks_mut();
        let mut space = [0.0; CHUNK];
        let mut sums = [0.0; CHUNK];
        if self.log {
            for (from, to) in row.whole.iter().zip(&mut *whole) {
                *to = shifted(T::widen::<L>(from, &mut space), largest);
                let mut exponentials = [0.0; CHUNK];
                exponentiate::<L>(to, &mut exponentials, &mut sums);
            }
            let last = row.last::<L>(f32::NEG_INFINITY).map(|last| shifted(&last, largest));
            if let Some(last) = last {
                let mut exponentials = [0.0; CHUNK];
                exponentiate::<L>(&last, &mut exponentials, &mut sums);
                rest.copy_from_slice(&last[..rest.len()]);
            }
            let log_sum = total(&sums).ln() as f32;
            for number in self.out {
                *number -= log_sum;
            }
        } else {
            for (from, to) in row.whole.iter().zip(&mut *whole) {
                let differences = shifted(T::widen::<L>(from, &mut space), largest);
                exponentiate::<L>(&differences, to, &mut sums);
            }
            if let Some(last) = row.last::<L>(f32::NEG_INFINITY) {
                let mut exponentials = [0.0; CHUNK];
                exponentiate::<L>(&shifted(&last, largest), &mut exponentials, &mut sums);
                rest.copy_from_slice(&exponentials[..rest.len()]);
            }
            let factor = (1.0 / total(&sums)) as f32;
            for number in self.out {
                *number *= factor;
            }
        }
    }
}

/// The largest number of a row that is not a NaN: one that is makes the sum a NaN later.
#[inline(always)]
fn largest<L: Level, T: Stored>(row: &Chunks<'_, T>) -> f32 {
    let mut largest = [f32::NEG_INFINITY; CHUNK];
    let mut space = [0.0; CHUNK];
    for chunk in row.whole {
        keep_larger(&mut largest, T::widen::<L>(chunk, &mut space));
    }
    if let Some(last) = row.last::<L>(f32::NEG_INFINITY) {
        keep_larger(&mut largest, &last);
    }
    largest.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

#[inline(always)]
fn keep_larger(largest: &mut Chunk, chunk: &Chunk) {
    for (largest, &number) in largest.iter_mut().zip(chunk) {
        *largest = if number > *largest { number } else { *largest };
    }
}

#[inline(always)]
fn shifted(chunk: &Chunk, largest: f32) -> Chunk {
    let mut differences = [0.0; CHUNK];
    for (difference, &number) in differences.iter_mut().zip(chunk) {
        *difference = number - largest;
    }
    differences
}

#[inline(always)]
fn exponentiate<L: Level>(differences: &Chunk, exponentials: &mut Chunk, sums: &mut Chunk) {
    for ((&difference, exponential), sum) in differences.iter().zip(exponentials).zip(sums) {
        *exponential = exp::<L>(difference);
        *sum += *exponential;
    }
}

/// Added to a float below 2^22, it leaves the nearest integer in the lowest bits.
const TO_INTEGER: f32 = 12_582_912.0;

/// The exponential of a number that is not positive, which needs less than that of any: results below the smallest normal number are 0.
#[inline(always)]
fn exp<L: Level>(x: f32) -> f32 {
    let shifted = L::mul_add(x, std::f32::consts::LOG2_E, TO_INTEGER);
    let n = shifted - TO_INTEGER;
    // ln 2 in two parts, the first short enough that its product with n is exact.
    let r = L::mul_add(n, -0.693_359_4, x);
    let r = L::mul_add(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0] {
        p = L::mul_add(p, r, coefficient);
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    // A NaN is not below, and stays one.
    if x < -87.0 { 0.0 } else { p * power }
}

/// The sum, in double precision: what it is rounded to decides about every result of the row.
#[inline(always)]
fn total(sums: &Chunk) -> f64 {
    sums.iter().map(|&sum| f64::from(sum)).sum()
}
