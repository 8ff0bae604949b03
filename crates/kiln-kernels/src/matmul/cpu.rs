//! The product on the CPU: choice of algorithm, blocking, and stores.
//!
//! Blocks along the reduction axis depend on its length alone. Blocks along rows and columns also depend on the number of threads, which
//! changes no result: each element is the same sum wherever its block ends.

use super::Matmul;
use super::matrix::Matrix;
use super::microkernel::{Block, COLUMNS, PackingBlock, ROWS, Rows};
use super::panels::Panels;
use super::scratch;
use super::skinny;
use super::vector;
use half::{bf16, f16};
use kiln_ir::host::{HostCall, HostOperand, HostRows};
use kiln_ir::{DType, Error, ErrorKind, Result, SimdLevel};
use std::marker::PhantomData;
use std::ops::Range;

/// Steps along the reduction axis per block: a panel of columns has 32 KiB, and a panel of rows 12 KiB.
const BLOCK_STEPS: usize = 512;

/// Rows per block: with [`BLOCK_STEPS`] three eighths of an L2 cache of 512 KiB.
const BLOCK_ROWS: usize = 16 * ROWS;

/// Columns per block. The sums of a block are kept until all steps are done: with [`BLOCK_ROWS`] a fifth of that cache.
const BLOCK_COLUMNS: usize = 16 * COLUMNS;

/// Minimum columns per block if the product has a fused epilogue.
const STORED_COLUMNS: usize = 4 * COLUMNS;

/// Elements of the left operand that are read or packed at a time, for all threads: half of a last-level cache of 32 MiB.
const SHARED_A: usize = 4 << 20;

/// Elements of the right operand that one task packs for itself.
const TASK_B: usize = 1 << 18;

/// Row strides that are a multiple of this many elements (2 KiB) map the six rows of a tile to one or two sets of an L1 cache of 32 KiB.
const ALIASED: isize = 1 << 9;

/// Products of up to this many multiplications read a left operand of `f32` in place.
const SMALL: usize = 200 * 200 * 200;

/// Products of up to this many multiplications finish before another thread would wake up.
const INLINE: usize = 80 * 80 * 64;

/// Right operands of up to this many elements are read in place: they fit in the L1 cache.
const CACHED: usize = 64 * 64;

/// A batch of matrix products.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) call: &'a HostCall<'a>,
    pub(super) level: SimdLevel,
    pub(super) batches: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    a: &'a HostOperand<'a>,
    b: &'a HostOperand<'a>,
    /// Whether the transposed product is computed, so that a column of results becomes a row.
    is_transposed: bool,
}

pub(super) fn run(_: &Matmul, call: &HostCall<'_>) -> Result<()> {
    let [a, b] = call.operands else {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("matmul expected 2 operands, found {}", call.operands.len()),
        ));
    };
    let (a_shape, b_shape) = (a.layout.shape(), b.layout.shape());
    let batch = a_shape.rank() - 2;
    let (m, n, k) = (a_shape[batch], b_shape[batch + 1], a_shape[batch + 1]);
    // A matrix-vector product runs as its transpose: tiles have 16 columns, of which it would use one. The m x 1 and 1 x m results have the same
    // order in memory, so stores need no change.
    let is_transposed = n == 1 && m > 1;
    let (m, n) = if is_transposed { (n, m) } else { (m, n) };
    let batches = a_shape[..batch].iter().product();
    let product = Product { call, level: call.workers.simd(), batches, m, n, k, a, b, is_transposed };
    // A product with k = 0 is not skipped: its results are zeros that have to be stored.
    if batches * m * n == 0 {
        Ok(())
    } else if skinny::applies(&product) {
        skinny::run(&product)
    } else {
        product.run_blocks()
    }
}

impl<'a> Product<'a> {
    /// Returns the operands at an index along the batch axes.
    pub(super) fn matrices(&self, batch: usize) -> (Matrix<'a>, Matrix<'a>) {
        let (a, b) = (Matrix::of(self.a, batch), Matrix::of(self.b, batch));
        if self.is_transposed { (b.transposed(), a.transposed()) } else { (a, b) }
    }

    /// Runs tasks on all threads, or on this one if waking the others takes longer.
    pub(super) fn run_tasks(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if tasks == 1 || self.is_inline() {
            (0..tasks).for_each(task);
            Ok(())
        } else {
            self.call.workers.run(tasks, task)
        }
    }

    fn is_inline(&self) -> bool {
        self.batches * self.m * self.n * self.k <= INLINE
    }

    /// Runs the blocked product. All threads pack the left operand together, unless it is read in place.
    fn run_blocks(&self) -> Result<()> {
        if self.reads_a() {
            return self.run_parts(0..self.batches, &(0..self.m), None);
        }
        // Parts are packed and multiplied one after the other, so that the panels of one stay in the last-level cache while all threads read them.
        let row_parts = self.m.div_ceil((SHARED_A / self.k.max(1)).max(BLOCK_ROWS));
        // No part of `part_range` has more strips than this; the last strip is padded to whole rows.
        scratch::with([self.m.div_ceil(ROWS).div_ceil(row_parts) * ROWS * self.k], |[panels]| {
            for batch in 0..self.batches {
                for rows in (0..row_parts).map(|part| part_range(self.m, ROWS, row_parts, part)) {
                    let (a, _) = self.matrices(batch);
                    let a = a.part(rows.start, rows.len(), 0, self.k);
                    let panels = Panels::new(panels, a.rows);
                    // Returns after all tasks, so the panels are complete before a task of `run_parts` reads them.
                    self.pack(a, panels)?;
                    self.run_parts(batch..batch + 1, &rows, Some(panels))?;
                }
            }
            Ok(())
        })
    }

    /// Returns whether the left operand is read in place: the product is small, or the operand fits in the last-level cache and its rows do not
    /// map to the same few sets of the L1 cache.
    fn reads_a(&self) -> bool {
        let (a, _) = self.matrices(0);
        let avoids_aliasing = a.column == 1 && a.row % ALIASED != 0 && self.m * self.k <= SHARED_A;
        a.dtype == DType::F32 && (avoids_aliasing || self.m * self.n * self.k <= SMALL)
    }

    /// Packs rows of the left operand.
    fn pack(&self, a: Matrix<'_>, panels: Panels<ROWS>) -> Result<()> {
        // 16 panels are 96 rows: whole cache lines, if the rows of a column are contiguous.
        const COUNT: usize = 16;
        let (count, blocks) = (a.rows.div_ceil(ROWS), step_blocks(self.k));
        self.run_tasks(count.div_ceil(COUNT) * blocks, &|task| {
            let (first, steps) = (task / blocks * COUNT, step_block(self.k, task % blocks));
            // SAFETY: the panels have room for all rows, and each task writes its own.
            unsafe { panels.fill(self.level, a, first..(first + COUNT).min(count), steps) };
        })
    }

    /// Multiplies some rows. Each task takes some columns and packs them for itself.
    fn run_parts(&self, batches: Range<usize>, rows: &Range<usize>, a: Option<Panels<ROWS>>) -> Result<()> {
        // Several tasks per thread, so that no thread waits long for another at the end.
        let wanted = if self.is_inline() { 1 } else { (6 * self.call.workers.count()).div_ceil(batches.len()) };
        let panels = self.n.div_ceil(COLUMNS);
        let max_panels = (TASK_B / (COLUMNS * self.k.max(1))).clamp(1, BLOCK_COLUMNS / COLUMNS);
        // The epilogue runs row by row, with a fixed cost per row. Short rows are therefore slow.
        let min_panels = if self.call.output.floats().is_some() { 1 } else { STORED_COLUMNS / COLUMNS };
        // Columns are divided first. Rows are divided only if that gives too few tasks, because every row part packs the same columns again.
        let column_parts = panels.div_ceil(max_panels).max(self.even_parts(panels, wanted).min(panels / min_panels));
        let row_parts = wanted.div_ceil(column_parts).min(rows.len().div_ceil(ROWS));
        let parts = column_parts * row_parts;
        self.run_tasks(batches.len() * parts, &|task| {
            let (batch, part) = (batches.start + task / parts, task % parts);
            let columns = part_range(self.n, COLUMNS, column_parts, part / row_parts);
            let part = part_range(rows.len(), ROWS, row_parts, part % row_parts);
            // Parts are whole strips, so this division has no remainder.
            let a = a.map(|a| a.from(part.start / ROWS));
            self.compute_part(batch, rows.start + part.start..rows.start + part.end, &columns, a);
        })
    }

    /// Returns the number of column parts: at least `wanted`, and chosen so that threads get equal numbers of panels if possible.
    fn even_parts(&self, panels: usize, wanted: usize) -> usize {
        let threads = self.call.workers.count();
        // The panels of the busiest thread. Among equal results `min_by_key` returns the first, which has the fewest parts.
        let longest = |parts: &usize| parts.div_ceil(threads) * panels.div_ceil(*parts);
        (wanted..2 * wanted).min_by_key(longest).unwrap_or(wanted)
    }

    fn compute_part(&self, batch: usize, rows: Range<usize>, columns: &Range<usize>, a: Option<Panels<ROWS>>) {
        let (left, b) = self.matrices(batch);
        let a = a.unwrap_or_else(|| Panels::direct(left.part(rows.start, rows.len(), 0, self.k)));
        let b = b.part(0, self.k, columns.start, columns.len());
        // Whole panels of contiguous columns are loaded as vectors, in place or while they are packed. Other columns are packed before the product,
        // because they need a transpose or padding.
        let is_whole = b.column == 1 && columns.len().is_multiple_of(COLUMNS);
        // Not packed where the copy would be read by at most two strips of rows, or where all columns fit in the L1 cache.
        let is_read = b.dtype == DType::F32 && (self.k * self.n <= CACHED || rows.len() <= 2 * ROWS);
        let is_direct = is_whole && is_read;
        let blocks = rows.len().div_ceil(BLOCK_ROWS);
        let max_rows = rows.len().div_ceil(ROWS).div_ceil(blocks) * ROWS;
        let width = columns.len().next_multiple_of(COLUMNS);
        let length = if is_direct { 0 } else { width * self.k };
        scratch::with([length, max_rows * width], |[panels, sums]| {
            let panels = if is_direct { Panels::direct(b.transposed()) } else { Panels::new(panels, columns.len()) };
            if !is_whole {
                for block in 0..step_blocks(self.k) {
                    // SAFETY: there is room for the whole part.
                    unsafe {
                        panels.fill(self.level, b.transposed(), 0..width / COLUMNS, step_block(self.k, block));
                    }
                }
            }
            for block in 0..blocks {
                let Range { start, end } = part_range(rows.len(), ROWS, blocks, block);
                let target = Target { batch, rows: rows.start + start..rows.start + end, columns, sums };
                // The first block of rows packs the columns on the way; the blocks after it read those panels.
                let is_first = block == 0 && is_whole && !is_direct;
                self.compute(a.from(start / ROWS), panels, is_first.then_some(b), &target);
            }
        });
    }

    /// Multiplies one block and stores its results. If `from` is given, it is packed into `b` on the way.
    fn compute(&self, a: Panels<ROWS>, b: Panels<COLUMNS>, from: Option<Matrix<'_>>, target: &Target<'_>) {
        let Target { batch, rows, columns, sums } = target;
        let width = columns.len().next_multiple_of(COLUMNS);
        let start = (batch * self.m + rows.start) * self.n + columns.start;
        let sums = Rows { first: *sums, row: width };
        // Without an epilogue, whole tiles are written straight to the output.
        let output = self.call.output.floats().filter(|_| columns.len() == width);
        let results = output.map_or(sums, |first| Rows { first: first.wrapping_add(start), row: self.n });
        let blocks = step_blocks(self.k);
        for block in 0..blocks {
            let steps = step_block(self.k, block);
            // Partial sums go to `sums`, which stays in the L2 cache. Only the last block of steps writes results.
            let (before, c) = ((block > 0).then_some(sums), if block + 1 == blocks { results } else { sums });
            let (a, b, count) = (a.side(&steps), b.side(&steps), steps.len());
            let block = Block { steps: count, rows: rows.len(), panels: width / COLUMNS, a, b, before, scale: None, c };
            // `from` is given only if panels are whole, so `width` columns exist.
            let Some(from) = from.map(|from| from.part(steps.start, count, 0, width)) else {
                vector::at(self.level, block);
                continue;
            };
            // The first strip packs the columns that it reads. It has to run before the other strips, which read the panels.
            let [block, rest] = block.split();
            match from.dtype {
                DType::F16 => vector::at(self.level, PackingBlock::<f16> { block, from, element: PhantomData }),
                DType::BF16 => vector::at(self.level, PackingBlock::<bf16> { block, from, element: PhantomData }),
                _ => vector::at(self.level, PackingBlock::<f32> { block, from, element: PhantomData }),
            }
            vector::at(self.level, rest);
        }
        if output.is_some() {
            return;
        }
        // SAFETY: the sums belong to this task, all rows are written, and no other task has these elements.
        unsafe {
            let values = std::slice::from_raw_parts_mut(sums.first, rows.len() * width);
            if width == self.n {
                // Rows are contiguous if the block is as wide as the result.
                self.call.output.store(start, values);
            } else {
                let rows = HostRows { start, pitch: self.n, length: columns.len(), width };
                self.call.output.store_rows(rows, values);
            }
        }
    }
}

/// Where the results of a block belong, and memory for its sums.
struct Target<'a> {
    batch: usize,
    rows: Range<usize>,
    columns: &'a Range<usize>,
    sums: *mut f32,
}

/// Returns one of `parts` about equal parts of a length, in whole units.
pub(crate) fn part_range(length: usize, unit: usize, parts: usize, part: usize) -> Range<usize> {
    let units = length.div_ceil(unit);
    units * part / parts * unit..(units * (part + 1) / parts * unit).min(length)
}

/// Returns the number of blocks along the reduction axis. It is 1 for no steps: that block writes the zeros.
pub(super) fn step_blocks(steps: usize) -> usize {
    steps.div_ceil(BLOCK_STEPS).max(1)
}

/// Returns the steps of one block.
pub(super) fn step_block(steps: usize, block: usize) -> Range<usize> {
    part_range(steps, 1, step_blocks(steps), block)
}
