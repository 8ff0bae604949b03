//! Products of a few rows. Reading the right operand once bounds their time, so it is not packed.

use super::cpu::{Product, part_range};
use super::matrix::{Matrix, gather};
use super::scratch;
use super::vector::{self, LANES, Stored, Vector, Work, prefetch};
use half::{bf16, f16};
use kiln_ir::{DType, Result};
use std::marker::PhantomData;
use std::ops::Range;

/// Maximum number of rows.
const ROWS: usize = 4;

/// Minimum columns per task.
const COLUMNS: usize = 64;

/// Maximum columns per task: their sums fit in the L1 cache.
const MAX_COLUMNS: usize = 1024;

/// Returns whether this path applies: few rows, and a right operand with contiguous rows or columns.
pub(super) fn applies(product: &Product<'_>) -> bool {
    let (_, b) = product.matrices(0);
    product.m <= ROWS && product.k > 0 && (b.row == 1 || b.column == 1)
}

pub(super) fn run(product: &Product<'_>) -> Result<()> {
    let Product { call, batches, m, n, k, .. } = *product;
    let wanted = call.workers.count().div_ceil(batches);
    let parts = n.div_ceil(MAX_COLUMNS).max(wanted.min(n.div_ceil(COLUMNS)));
    product.run_tasks(batches * parts, &|task| {
        let (batch, columns) = (task / parts, part_range(n, 2 * LANES, parts, task % parts));
        let (a, b) = product.matrices(batch);
        let b = b.part(0, k, columns.start, columns.len());
        let width = columns.len().next_multiple_of(2 * LANES);
        // Two and three rows are padded to four: that adds arithmetic, but no reads of `b`, which bound the time.
        let computed = if m == 1 { 1 } else { ROWS };
        scratch::with([computed * k, computed * width], |[rows, sums]| {
            // SAFETY: there is room for the rows and their sums; the operands are complete; no other task has these results.
            unsafe {
                a.widen(rows);
                rows.add(m * k).write_bytes(0, (computed - m) * k);
                let skinny = SkinnyProduct { rows, is_one: m == 1, b, sums, width };
                match b.dtype {
                    DType::F16 => vector::at(product.level, TypedProduct::<f16>(skinny, PhantomData)),
                    DType::BF16 => vector::at(product.level, TypedProduct::<bf16>(skinny, PhantomData)),
                    _ => vector::at(product.level, TypedProduct::<f32>(skinny, PhantomData)),
                }
                store(product, batch, &columns, sums, width);
            }
        });
    })
}

unsafe fn store(product: &Product<'_>, batch: usize, columns: &Range<usize>, sums: *mut f32, width: usize) {
    for row in 0..product.m {
        let start = (batch * product.m + row) * product.n + columns.start;
        // SAFETY: promised by the caller.
        unsafe {
            product.call.output.store(start, std::slice::from_raw_parts_mut(sums.add(row * width), columns.len()));
        }
    }
}

/// The sums of some columns.
#[derive(Clone, Copy)]
struct SkinnyProduct<'a> {
    /// The left operand, row-major.
    rows: *const f32,
    /// Whether there is one row, or [`ROWS`] rows padded with 0.
    is_one: bool,
    b: Matrix<'a>,
    sums: *mut f32,
    /// Elements from one row of sums to the next: a multiple of two vectors.
    width: usize,
}

struct TypedProduct<'a, E>(SkinnyProduct<'a>, PhantomData<E>);

impl<E: Stored> Work for TypedProduct<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let skinny = self.0;
        // SAFETY: the creator of a `SkinnyProduct` promises that its pointers are valid.
        unsafe {
            // Contiguous rows are added as vectors, contiguous columns are dot products. Four columns of one row, or two of four rows, are
            // independent sums that hide the latency of an FMA.
            match (skinny.b.column == 1, skinny.is_one) {
                (true, true) => skinny.add_rows::<V, E, 1>(),
                (true, false) => skinny.add_rows::<V, E, ROWS>(),
                (false, true) => skinny.dot_columns::<V, E, 1, 4>(),
                (false, false) => skinny.dot_columns::<V, E, ROWS, 2>(),
            }
        }
    }
}

impl SkinnyProduct<'_> {
    /// Adds rows of the right operand, each multiplied by a scalar. Takes four rows at a time, because each pass reads and writes
    /// the sums.
    #[inline(always)]
    unsafe fn add_rows<V: Vector, E: Stored, const M: usize>(&self) {
        // SAFETY: promised by the caller.
        unsafe {
            self.sums.write_bytes(0, M * self.width);
            let mut step = 0;
            while step + 4 <= self.b.rows {
                self.add_some::<V, E, M, 4>(step);
                step += 4;
            }
            while step < self.b.rows {
                self.add_some::<V, E, M, 1>(step);
                step += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn add_some<V: Vector, E: Stored, const M: usize, const S: usize>(&self, step: usize) {
        let from = self.b.pointer::<E>().wrapping_offset(step as isize * self.b.row);
        let whole = self.b.columns / (2 * LANES) * (2 * LANES);
        // SAFETY: promised by the caller.
        unsafe {
            for column in (0..whole).step_by(2 * LANES) {
                let mut values = [[V::splat(0.0); 2]; S];
                for (index, values) in values.iter_mut().enumerate() {
                    let from = from.wrapping_offset(index as isize * self.b.row).add(column);
                    // The hardware prefetcher misses these rows: each is a short run, far from the next.
                    prefetch(from.wrapping_offset(S as isize * self.b.row));
                    *values = [E::load_from::<V>(from), E::load_from::<V>(from.add(LANES))];
                }
                self.add_values::<V, M, S>(step, column, values);
            }
            // Rows of sums are padded to two vectors (`width`), so whole vectors of them can be loaded and stored here too.
            let rest = self.b.columns - whole;
            if rest > 0 {
                let mut values = [[V::splat(0.0); 2]; S];
                for (index, values) in values.iter_mut().enumerate() {
                    let from = from.wrapping_offset(index as isize * self.b.row).add(whole);
                    let right = gather::<V, E>(from.wrapping_add(LANES), 1, rest.saturating_sub(LANES));
                    *values = [gather::<V, E>(from, 1, rest.min(LANES)), right];
                }
                self.add_values::<V, M, S>(step, whole, values);
            }
        }
    }

    #[inline(always)]
    unsafe fn add_values<V: Vector, const M: usize, const S: usize>(
        &self,
        step: usize,
        column: usize,
        values: [[V; 2]; S],
    ) {
        for row in 0..M {
            // SAFETY: promised by the caller.
            unsafe {
                let to = self.sums.add(row * self.width + column);
                let (mut left, mut right) = (V::load(to), V::load(to.add(LANES)));
                for (index, values) in values.iter().enumerate() {
                    let factor = V::splat(self.rows.add(row * self.b.rows + step + index).read());
                    left = factor.mul_add(values[0], left);
                    right = factor.mul_add(values[1], right);
                }
                left.store(to);
                right.store(to.add(LANES));
            }
        }
    }

    /// Computes dot products of each row with the columns of the right operand, `C` columns at a time.
    #[inline(always)]
    unsafe fn dot_columns<V: Vector, E: Stored, const M: usize, const C: usize>(&self) {
        let mut column = 0;
        // SAFETY: promised by the caller.
        unsafe {
            while column + C <= self.b.columns {
                self.dot_some::<V, E, M, C>(column);
                column += C;
            }
            while column < self.b.columns {
                self.dot_some::<V, E, M, 1>(column);
                column += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn dot_some<V: Vector, E: Stored, const M: usize, const C: usize>(&self, column: usize) {
        let steps = self.b.rows;
        let whole = steps / LANES * LANES;
        let mut sums = [[V::splat(0.0); M]; C];
        // SAFETY: promised by the caller.
        unsafe {
            for step in (0..whole).step_by(LANES) {
                self.dot_steps::<V, E, M, C>(column, step, LANES, &mut sums);
            }
            // The missing lanes are 0 in both operands and add nothing.
            if whole < steps {
                self.dot_steps::<V, E, M, C>(column, whole, steps - whole, &mut sums);
            }
            for (index, sums) in sums.into_iter().enumerate() {
                for (row, sum) in sums.into_iter().enumerate() {
                    self.sums.add(row * self.width + column + index).write(sum.sum());
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn dot_steps<V: Vector, E: Stored, const M: usize, const C: usize>(
        &self,
        column: usize,
        step: usize,
        count: usize,
        sums: &mut [[V; M]; C],
    ) {
        // SAFETY: promised by the caller.
        unsafe {
            let mut rows = [V::splat(0.0); M];
            for (row, values) in rows.iter_mut().enumerate() {
                *values = gather::<V, f32>(self.rows.add(row * self.b.rows + step), 1, count);
            }
            for (index, sums) in sums.iter_mut().enumerate() {
                let from = self.b.pointer::<E>().offset((column + index) as isize * self.b.column + step as isize);
                let values = gather::<V, E>(from, 1, count);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = row.mul_add(values, *sum);
                }
            }
        }
    }
}
