//! Softmax on the CPU: the largest of a row, its exponentials with their sum, the quotients, all while the row is in the first-level cache.

use super::Softmax;
use crate::matmul::vector::{Vector, Work, at};
use crate::rows::{Pass, Stored, TOGETHER, by_storage, each_row, read, total, write};
use kiln_ir::Result;
use kiln_ir::host::HostCall;

pub(super) fn run(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, run_stored(op, call))
}

fn run_stored<T: Stored>(op: &Softmax, call: &HostCall<'_>) -> Result<()> {
    let level = call.workers.simd();
    each_row::<T>(call, 2, |row, out| {
        if op.log {
            at(level, LogRow { row, out });
        } else {
            at(level, Row { row, out });
        }
    })
}

/// A row, and where its softmax goes.
struct Row<'a, T> {
    row: &'a [T],
    out: &'a mut [f32],
}

impl<T: Stored> Work for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let mut pass = Exponentials { largest: V::splat(largest::<V, T>(self.row)), sums: [V::splat(0.0); TOGETHER] };
        write(self.row, f32::NEG_INFINITY, self.out, &mut pass);
        let factor = (1.0 / total(pass.sums)) as f32;
        for number in self.out {
            *number *= factor;
        }
    }
}

/// A row, and where the logarithm of its softmax goes.
struct LogRow<'a, T> {
    row: &'a [T],
    out: &'a mut [f32],
}

impl<T: Stored> Work for LogRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let largest = V::splat(largest::<V, T>(self.row));
        let mut pass = Exponentials { largest, sums: [V::splat(0.0); TOGETHER] };
        read(self.row, f32::NEG_INFINITY, &mut pass);
        let log_sum = V::splat(total(pass.sums).ln() as f32);
        write(self.row, 0.0, self.out, &mut Logarithms { largest, log_sum });
    }
}

/// The largest number of a row that is not a NaN: one that is makes the sum a NaN later.
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
    fn take(&mut self, place: usize, x: V) -> V {
        // In this order a NaN leaves what was found before.
        self.0[place] = x.max(self.0[place]);
        x
    }
}

struct Exponentials<V> {
    largest: V,
    sums: [V; TOGETHER],
}

impl<V: Vector> Pass<V> for Exponentials<V> {
    #[inline(always)]
    fn take(&mut self, place: usize, x: V) -> V {
        let exponential = x.sub(self.largest).exp();
        self.sums[place] = self.sums[place].add(exponential);
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
        // The largest first: the sum of both would be rounded to it.
        x.sub(self.largest).sub(self.log_sum)
    }
}
