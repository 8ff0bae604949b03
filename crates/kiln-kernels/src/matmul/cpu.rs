//! The product on the CPU: which way it goes, how it is cut into blocks, and where the blocks go.
//!
//! The cuts along the axis that is summed over depend on its length alone. Those along rows and columns depend on the number of threads too,
//! and change no result: each element is the same sum wherever its block ends.

use super::few;
use super::matrix::Matrix;
use super::panels::Panels;
use super::scratch;
use super::tile::{Block, COLUMNS, ROWS};
use super::vector;
use kiln_ir::host::{HostCall, HostOperand};
use kiln_ir::{DType, Error, ErrorKind, Result, SimdLevel};
use std::ops::Range;

/// Steps along the summed axis in one block: a panel of columns (16 KiB) and one of rows (6 KiB) fit in a first-level cache of 32 KiB.
const BLOCK_STEPS: usize = 256;

/// Rows of a block: with [`BLOCK_STEPS`] a quarter of a second-level cache of 512 KiB.
const BLOCK_ROWS: usize = 20 * ROWS;

/// Columns of a block. The sums of a block are kept until all steps are done: with [`BLOCK_ROWS`] another quarter.
const BLOCK_COLUMNS: usize = 16 * COLUMNS;

/// Elements of the left operand that are copied to panels at a time, for all threads: an eighth of a last-level cache of 32 MiB.
const SHARED_A: usize = 1 << 20;

/// Elements of the right operand that are copied to panels at a time: a quarter.
const SHARED_B: usize = 2 << 20;

/// Elements of the right operand that one task copies to panels for itself.
const OWN_B: usize = 1 << 17;

/// Products up to this many multiplications copy operands to panels in each task; beyond, the panels of all tasks are made first.
const SMALL: usize = 200 * 200 * 200;

/// Products up to this many multiplications are done before another thread would wake up.
pub(super) const INLINE: usize = 80 * 80 * 64;

/// Right operands up to this many elements are read where they are: they fit in the first-level cache.
const CACHED: usize = 64 * 64;

/// Matrices to multiply, one after the other.
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
    /// Whether the product of the operands turned around is computed: a column of results is a row then.
    is_turned: bool,
}

pub(super) fn run(call: &HostCall<'_>) -> Result<()> {
    let [a, b] = call.operands else {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("matmul expected 2 operands, found {}", call.operands.len()),
        ));
    };
    let (a_shape, b_shape) = (a.layout.shape(), b.layout.shape());
    let batch = a_shape.rank() - 2;
    let (m, n, k) = (a_shape[batch], b_shape[batch + 1], a_shape[batch + 1]);
    let is_turned = n == 1 && m > 1;
    let (m, n) = if is_turned { (n, m) } else { (m, n) };
    let batches = a_shape[..batch].iter().product();
    let product = Product { call, level: call.workers.simd(), batches, m, n, k, a, b, is_turned };
    if batches * m * n == 0 {
        Ok(())
    } else if few::suits(&product) {
        few::run(&product)
    } else if m * n * k <= SMALL {
        product.run_small()
    } else {
        product.run_large()
    }
}

impl<'a> Product<'a> {
    /// The operands at an index along the batch axes.
    pub(super) fn matrices(&self, batch: usize) -> (Matrix<'a>, Matrix<'a>) {
        let (a, b) = (Matrix::of(self.a, batch), Matrix::of(self.b, batch));
        if self.is_turned { (b.transposed(), a.transposed()) } else { (a, b) }
    }

    /// Runs tasks on all threads, or on this one where waking the others takes longer.
    pub(super) fn run_tasks(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if tasks == 1 || self.batches * self.m * self.n * self.k <= INLINE {
            (0..tasks).for_each(task);
            Ok(())
        } else {
            self.call.workers.run(tasks, task)
        }
    }

    /// Each task copies what it needs to panels of its own, or reads it where it is.
    fn run_small(&self) -> Result<()> {
        let is_inline = self.batches * self.m * self.n * self.k <= INLINE;
        let wanted = if is_inline { 1 } else { (2 * self.call.workers.count()).div_ceil(self.batches) };
        let (panels, strips) = (self.n.div_ceil(COLUMNS), self.m.div_ceil(ROWS));
        let most_panels = (OWN_B / (COLUMNS * self.k.max(1))).clamp(1, BLOCK_COLUMNS / COLUMNS);
        let column_parts = panels.div_ceil(most_panels).max(wanted.min(panels));
        let row_parts = wanted.div_ceil(column_parts).min(strips);
        self.run_tasks(self.batches * column_parts * row_parts, &|task| {
            let (batch, part) = (task / (column_parts * row_parts), task % (column_parts * row_parts));
            let columns = cut(self.n, COLUMNS, column_parts, part / row_parts);
            self.compute_alone(batch, cut(self.m, ROWS, row_parts, part % row_parts), columns);
        })
    }

    /// A part of a small product.
    fn compute_alone(&self, batch: usize, rows: Range<usize>, columns: Range<usize>) {
        let (a, b) = self.matrices(batch);
        let (a, b) = (a.part(rows.start, rows.len(), 0, self.k), b.part(0, self.k, columns.start, columns.len()));
        let is_a_direct = a.dtype == DType::F32;
        let fits = b.dtype == DType::F32 && b.column == 1 && columns.len().is_multiple_of(COLUMNS);
        let is_b_direct = fits && (self.k * self.n <= CACHED || rows.len() <= 2 * ROWS);
        let (block_rows, width) = (rows.len().min(BLOCK_ROWS), columns.len().next_multiple_of(COLUMNS));
        let a_length = if is_a_direct { 0 } else { block_rows.next_multiple_of(ROWS) * self.k };
        let b_length = if is_b_direct { 0 } else { width * self.k };
        scratch::with([a_length, b_length, block_rows * width], |[a_panels, b_panels, sums]| {
            // SAFETY: the panels have room for the whole part.
            let b = unsafe { self.panels::<COLUMNS>(b.transposed(), is_b_direct, b_panels) };
            for start in (0..rows.len()).step_by(block_rows) {
                let count = block_rows.min(rows.len() - start);
                // SAFETY: the panels have room for a block.
                let a = unsafe { self.panels::<ROWS>(a.part(start, count, 0, self.k), is_a_direct, a_panels) };
                let first = rows.start + start;
                self.compute(a, b, &Target { batch, rows: first..first + count, columns: columns.clone(), sums });
            }
        });
    }

    /// An operand as panels: where it is, or copied.
    ///
    /// # Safety
    /// `out` has room for the copy.
    unsafe fn panels<const W: usize>(&self, matrix: Matrix<'_>, is_direct: bool, out: *mut f32) -> Panels<W> {
        if is_direct {
            return Panels::direct(matrix);
        }
        let panels = Panels::new(out, matrix.rows);
        for block in 0..step_blocks(self.k) {
            // SAFETY: as promised by the caller.
            unsafe { panels.fill(self.level, matrix, 0..matrix.rows.div_ceil(W), step_block(self.k, block)) };
        }
        panels
    }

    /// All threads copy the operands to panels, then multiply them block by block.
    fn run_large(&self) -> Result<()> {
        let row_parts = self.m.div_ceil((SHARED_A / self.k).max(BLOCK_ROWS));
        let column_parts = self.n.div_ceil((SHARED_B / self.k).max(BLOCK_COLUMNS));
        let a_length = self.m.div_ceil(ROWS).div_ceil(row_parts) * ROWS * self.k;
        let b_length = self.n.div_ceil(COLUMNS).div_ceil(column_parts) * COLUMNS * self.k;
        scratch::with([a_length, b_length], |[a_panels, b_panels]| {
            for batch in 0..self.batches {
                let (a, b) = self.matrices(batch);
                for columns in (0..column_parts).map(|part| cut(self.n, COLUMNS, column_parts, part)) {
                    let b = b.part(0, self.k, columns.start, columns.len()).transposed();
                    for rows in (0..row_parts).map(|part| cut(self.m, ROWS, row_parts, part)) {
                        let a = a.part(rows.start, rows.len(), 0, self.k);
                        let a_panels = Panels::<ROWS>::new(a_panels, a.rows);
                        let b_panels = Panels::<COLUMNS>::new(b_panels, b.rows);
                        let b_packed = if rows.start == 0 { b.rows.div_ceil(COLUMNS) } else { 0 };
                        self.pack_shared((a, a_panels), (b, b_panels), b_packed)?;
                        self.compute_shared(batch, (a_panels, b_panels), &rows, &columns)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Copies the left operand and the first `b_count` panels of the right one.
    fn pack_shared(
        &self,
        (a, a_panels): (Matrix<'_>, Panels<ROWS>),
        (b, b_panels): (Matrix<'_>, Panels<COLUMNS>),
        b_count: usize,
    ) -> Result<()> {
        // About as many elements in a task of either operand, and whole cache lines of those that lie side by side.
        const A_COUNT: usize = 16;
        const B_COUNT: usize = 6;
        let (a_count, blocks) = (a.rows.div_ceil(ROWS), step_blocks(self.k));
        let (a_tasks, b_tasks) = (a_count.div_ceil(A_COUNT), b_count.div_ceil(B_COUNT));
        self.call.workers.run((a_tasks + b_tasks) * blocks, &|task| {
            let (task, steps) = (task / blocks, step_block(self.k, task % blocks));
            // SAFETY: the panels have room for the whole part, and each task writes its own.
            unsafe {
                if task < a_tasks {
                    let range = task * A_COUNT..(task * A_COUNT + A_COUNT).min(a_count);
                    a_panels.fill(self.level, a, range, steps);
                } else {
                    let first = (task - a_tasks) * B_COUNT;
                    b_panels.fill(self.level, b, first..(first + B_COUNT).min(b_count), steps);
                }
            }
        })
    }

    /// Multiplies what is in panels.
    fn compute_shared(
        &self,
        batch: usize,
        (a, b): (Panels<ROWS>, Panels<COLUMNS>),
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> Result<()> {
        // Several tasks for each thread, so that none waits long for another one at the end.
        let wanted = 6 * self.call.workers.count();
        let column_parts = columns.len().div_ceil(BLOCK_COLUMNS);
        let row_parts =
            rows.len().div_ceil(BLOCK_ROWS).max(wanted.div_ceil(column_parts)).min(rows.len().div_ceil(ROWS));
        self.call.workers.run(row_parts * column_parts, &|task| {
            let (row, column) = (task % row_parts, task / row_parts);
            let (row, column) =
                (cut(rows.len(), ROWS, row_parts, row), cut(columns.len(), COLUMNS, column_parts, column));
            scratch::with([row.len() * column.len().next_multiple_of(COLUMNS)], |[sums]| {
                let (a, b) = (a.from(row.start / ROWS), b.from(column.start / COLUMNS));
                let first = rows.start + row.start;
                let columns = columns.start + column.start..columns.start + column.end;
                self.compute(a, b, &Target { batch, rows: first..first + row.len(), columns, sums });
            });
        })
    }

    /// Multiplies one block and stores its results.
    fn compute(&self, a: Panels<ROWS>, b: Panels<COLUMNS>, target: &Target) {
        let Target { batch, rows, columns, sums } = target;
        let width = columns.len().next_multiple_of(COLUMNS);
        for block in 0..step_blocks(self.k) {
            let steps = step_block(self.k, block);
            let (a, b) = (a.side(&steps), b.side(&steps));
            let (rows, panels, steps) = (rows.len(), width / COLUMNS, steps.len());
            vector::at(self.level, Block { steps, rows, panels, a, b, c: *sums, c_row: width, add: block > 0 });
        }
        // Rows follow each other without gaps where the block is as wide as the result.
        let (count, length) = if width == self.n { (1, rows.len() * width) } else { (rows.len(), columns.len()) };
        for row in 0..count {
            let start = (batch * self.m + rows.start + row) * self.n + columns.start;
            // SAFETY: the sums are this task's own, all rows are written, and no other task has these elements.
            unsafe { self.call.output.store(start, std::slice::from_raw_parts_mut(sums.add(row * width), length)) }
        }
    }
}

/// Where the results of a block belong, and memory for its sums.
struct Target {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    sums: *mut f32,
}

/// One of `parts` about equal parts of a length, in whole units.
pub(super) fn cut(length: usize, unit: usize, parts: usize, part: usize) -> Range<usize> {
    let units = length.div_ceil(unit);
    units * part / parts * unit..(units * (part + 1) / parts * unit).min(length)
}

/// In how many blocks the steps are taken; one for no steps, which gives zeros.
pub(super) fn step_blocks(steps: usize) -> usize {
    steps.div_ceil(BLOCK_STEPS).max(1)
}

/// The steps of one block.
pub(super) fn step_block(steps: usize, block: usize) -> Range<usize> {
    cut(steps, 1, step_blocks(steps), block)
}
