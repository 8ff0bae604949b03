//! Softmax on the CPU: the maximum of a row, its exponentials and their sum, then the quotients, all while the row is in the L1 cache.

use super::Softmax;
use crate::matmul::vector::{Stored, Vector, Work, at};
use crate::memory::{Target, elements};
use crate::rows::{Pass, Results, STORE_LEN, TOGETHER, by_storage, each_row, read, rows_of, total, write};
use crate::strided::parallel_for;
use kiln_ir::Result;
use kiln_ir::host::{HostCall, Workers};

pub(super) fn run(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, run_stored(op, call))
}

fn run_stored<T: Stored>(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    if call.operands[0].layout.shape().last().is_some_and(|&length| length > LONG) {
        return long_rows::<T>(op, call);
    }
    each_row::<T>(call, 2, |row, out| at(level, Row { row, out, log: op.log }))
}

/// Longer rows do not fit a cache, and are shared between threads.
const LONG: usize = 1 << 16;
/// Elements of a long row per task. Sums are formed per block, so results do not depend on the number of threads.
const BLOCK: usize = 1 << 14;

/// Computes long rows one after the other, in three parallel loops over the blocks of each.
fn long_rows<T: Stored>(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    let (x, level) = (elements::<T>(&call.operands[0]), call.workers.simd());
    let (rows, length) = rows_of(call.operands[0].layout);
    let mut starts = Vec::with_capacity(rows.items());
    rows.each(0..rows.items(), |[offset]| starts.push(offset as usize));
    for (index, &start) in starts.iter().enumerate() {
        let row = &x[start..start + length];
        // `f64::max` ignores NaN, as `LargestOf` does. A NaN in the row reaches the sum, which makes every result NaN.
        let largest = of_blocks(call.workers, row, |block| f64::from(at(level, LargestOf(block))))?;
        let largest = largest.into_iter().fold(f64::NEG_INFINITY, f64::max) as f32;
        let sums = of_blocks(call.workers, row, |block| at(level, SumOf { row: block, largest }))?;
        let sum: f64 = sums.into_iter().sum();
        parallel_for(call.workers, length.div_ceil(BLOCK), 2 * BLOCK, |range| {
            let (first, end) = (range.start * BLOCK, (range.end * BLOCK).min(length));
            let mut results = Results::new(call.output, index * length + first, STORE_LEN);
            for row in row[first..end].chunks(STORE_LEN) {
                let log = op.log;
                // SAFETY: the ranges of the tasks are disjoint and within the output.
                unsafe {
                    results.put(row.len(), index * length + end, |out| {
                        at(level, Quotients { row, out, largest, sum, log });
                    });
                }
            }
        })?;
    }
    Ok(())
}

/// Computes a number for each block of a row.
fn of_blocks<T: Stored>(workers: &dyn Workers, row: &[T], number: impl Fn(&[T]) -> f64 + Sync) -> Result<Vec<f64>> {
    let mut numbers = vec![0.0; row.len().div_ceil(BLOCK)];
    let (count, target) = (numbers.len(), Target::over(&mut numbers));
    parallel_for(workers, count, BLOCK, |range| {
        for block in range {
            let elements = &row[block * BLOCK..row.len().min((block + 1) * BLOCK)];
            // SAFETY: the ranges of the tasks are disjoint.
            unsafe { target.slice(block, 1)[0] = number(elements) };
        }
    })?;
    Ok(numbers)
}

struct LargestOf<'a, T>(&'a [T]);

impl<T: Stored> Work for LargestOf<'_, T> {
    type Output = f32;

    #[inline(always)]
    fn run<V: Vector>(self) -> f32 {
        largest::<V, T>(self.0)
    }
}

/// Sums the exponentials of a block.
struct SumOf<'a, T> {
    row: &'a [T],
    largest: f32,
}

impl<T: Stored> Work for SumOf<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector>(self) -> f64 {
        let mut pass = Exponentials { largest: V::splat(self.largest), sums: [V::splat(0.0); TOGETHER] };
        // The padding has the exponential 0.
        read(self.row, f32::NEG_INFINITY, &mut pass);
        total(pass.sums)
    }
}

/// Computes part of a row whose maximum and sum are known.
struct Quotients<'a, T> {
    row: &'a [T],
    out: &'a mut [f32],
    largest: f32,
    sum: f64,
    log: bool,
}

impl<T: Stored> Work for Quotients<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let largest = V::splat(self.largest);
        if self.log {
            let log_sum = V::splat(self.sum.ln() as f32);
            return write(self.row, 0.0, self.out, &mut Logarithms { largest, log_sum });
        }
        let mut pass = Exponentials { largest, sums: [V::splat(0.0); TOGETHER] };
        write(self.row, f32::NEG_INFINITY, self.out, &mut pass);
        scale(self.out, self.sum);
    }
}

#[inline(always)]
fn scale(numbers: &mut [f32], sum: f64) {
    // One division per call. It is computed in `f64`, so the factor is off by about half an ULP.
    let factor = (1.0 / sum) as f32;
    for number in numbers {
        *number *= factor;
    }
}

/// Computes the softmax of a row, or its logarithm.
struct Row<'a, T> {
    row: &'a [T],
    out: &'a mut [f32],
    log: bool,
}

impl<T: Stored> Work for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let largest = V::splat(largest::<V, T>(self.row));
        let mut pass = Exponentials { largest, sums: [V::splat(0.0); TOGETHER] };
        if self.log {
            read(self.row, f32::NEG_INFINITY, &mut pass);
            let log_sum = V::splat(total(pass.sums).ln() as f32);
            return write(self.row, 0.0, self.out, &mut Logarithms { largest, log_sum });
        }
        write(self.row, f32::NEG_INFINITY, self.out, &mut pass);
        scale(self.out, total(pass.sums));
    }
}

/// Returns the maximum of a row, ignoring NaN: a NaN makes the sum NaN later.
#[inline(always)]
fn largest<V: Vector, T: Stored>(row: &[T]) -> f32 {
    let mut pass = Largest([V::splat(f32::NEG_INFINITY); TOGETHER]);
    read(row, f32::NEG_INFINITY, &mut pass);
    let [a, b, c, d] = pass.0;
    a.max(b).max(c.max(d)).lanes().into_iter().fold(f32::NEG_INFINITY, f32::max)
}

struct Largest<V>([V; TOGETHER]);

impl<V: Vector> Pass<V> for Largest<V> {
    #[inline(always)]
    fn take(&mut self, accumulator: usize, x: V) -> V {
        // `max` returns its second operand for NaN, so this order keeps the maximum so far.
        self.0[accumulator] = x.max(self.0[accumulator]);
        x
    }
}

struct Exponentials<V> {
    largest: V,
    sums: [V; TOGETHER],
}

impl<V: Vector> Pass<V> for Exponentials<V> {
    #[inline(always)]
    fn take(&mut self, accumulator: usize, x: V) -> V {
        // The difference is at most 0, as `exp` requires. It is NaN if both are infinite, which is the documented result of such rows.
        let exponential = x.sub(self.largest).exp();
        self.sums[accumulator] = self.sums[accumulator].add(exponential);
        exponential
    }
}

struct Logarithms<V> {
    largest: V,
    log_sum: V,
}

impl<V: Vector> Pass<V> for Logarithms<V> {
    #[inline(always)]
    fn take(&mut self, _place: usize, x: V) -> V {
        // Subtracts the maximum first: `largest + log_sum` could round to `largest`.
        x.sub(self.largest).sub(self.log_sum)
    }
}
