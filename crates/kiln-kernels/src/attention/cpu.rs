//! Attention on the CPU.

use super::Attention;
use crate::matmul::matrix::Matrix;
use crate::matmul::scratch;
use crate::matmul::tile::{Block, COLUMNS, ROWS, Rows, Side};
use crate::matmul::vector::{self, LANES, Vector, Work};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result, SimdLevel};
use std::ops::Range;

/// Queries of a task. Results do not depend on how many there are, but a NaN in a value that no query of the task attends to does not show.
const QUERIES: usize = 4 * COLUMNS;

/// Keys of a block: with [`QUERIES`] their scores take 24 KiB.
const KEYS: usize = 16 * ROWS;

/// Where there are no scores yet. Not infinite, because the distance between two of these has to be 0.
const NO_SCORE: f32 = f32::MIN;

pub(super) fn run(op: &Attention, call: &HostCall<'_>) -> Result<()> {
    let (q_shape, v_shape) = (call.operands[0].layout.shape(), call.operands[2].layout.shape());
    let (heads, m) = (q_shape[0] * q_shape[1], q_shape[2]);
    if heads * m * v_shape[3] == 0 {
        return Ok(());
    }
    let parts = m.div_ceil(QUERIES);
    call.workers.run(heads * parts, &|task| {
        let head = task / parts;
        let queries = task % parts * QUERIES..(task % parts * QUERIES + QUERIES).min(m);
        let matrix = |operand: usize| Matrix::of(&call.operands[operand], head);
        let (q, k, v) = (matrix(0), matrix(1), matrix(2));
        let mask = op.has_mask.then(|| matrix(3));
        attend(op, call, head, &Head { q, k, v, mask, queries, level: call.workers.simd() });
    })
}

/// Some queries of a head, and all of its keys and values.
struct Head<'a> {
    q: Matrix<'a>,
    k: Matrix<'a>,
    v: Matrix<'a>,
    mask: Option<Matrix<'a>>,
    queries: Range<usize>,
    level: SimdLevel,
}

/// Scratch memory of a task. A row has an element for each query, whole tiles.
#[derive(Clone, Copy)]
struct Memory {
    width: usize,
    /// The queries: panels of 16, with a row for each of their elements.
    queries: *mut f32,
    /// A row for each key of a block: scores, then weights.
    scores: *mut f32,
    /// A row for each element of the result.
    gathered: *mut f32,
    /// The largest score so far.
    largest: *mut f32,
    /// The sum of the weights so far.
    sums: *mut f32,
}

fn attend(op: &Attention, call: &HostCall<'_>, head: usize, task: &Head<'_>) {
    let (d, e, count) = (task.q.columns, task.v.columns, task.queries.len());
    let width = count.next_multiple_of(COLUMNS);
    let is_copied = task.k.dtype != DType::F32;
    let copied = |rows: usize, columns: usize| if is_copied { rows.next_multiple_of(ROWS) * columns } else { 0 };
    let lengths = [d * width, KEYS * width, e * width, width, width, copied(KEYS, d), copied(e, KEYS), count * e];
    scratch::with(lengths, |[queries, scores, gathered, largest, sums, keys, values, results]| {
        let memory = Memory { width, queries, scores, gathered, largest, sums };
        // SAFETY: the scratch memory is as long as `lengths` says, which is enough for a block; the operands are whole; no other task has
        // these results.
        unsafe {
            let part = task.q.part(task.queries.start, count, 0, d);
            part.pack::<COLUMNS>(task.level, queries, d * COLUMNS);
            vector::at(task.level, Start { memory, d, e, scale: op.scale });
            let end = last_key(op, task);
            for start in (0..end).step_by(KEYS) {
                let block = start..(start + KEYS).min(end);
                score(op, task, memory, &block, keys);
                vector::at(task.level, Weigh { memory, keys: block.len(), e });
                let v = task.v.part(block.start, block.len(), 0, e).transposed();
                let b = Side { first: scores, lane: 1, step: width as isize, panel: COLUMNS as isize };
                multiply(task.level, v, values, b, gathered, width, true);
            }
            vector::at(task.level, End { memory, count, e, results });
            let start = (head * task.q.rows + task.queries.start) * e;
            call.output.store(start, std::slice::from_raw_parts_mut(results, count * e));
        }
    });
}

/// One past the last key that a query of the task may attend to.
fn last_key(op: &Attention, task: &Head<'_>) -> usize {
    let (m, n) = (task.q.rows, task.k.rows);
    if op.causal { (task.queries.end + n).saturating_sub(m).min(n) } else { n }
}

/// The scores of a block of keys; infinitely small where a query does not attend to a key.
unsafe fn score(op: &Attention, task: &Head<'_>, memory: Memory, keys: &Range<usize>, copy: *mut f32) {
    let Memory { width, queries, scores, .. } = memory;
    let (d, count) = (task.k.columns, task.queries.len());
    let b = Side { first: queries, lane: 1, step: COLUMNS as isize, panel: (d * COLUMNS) as isize };
    // SAFETY: as promised by the caller.
    let scores = unsafe {
        multiply(task.level, task.k.part(keys.start, keys.len(), 0, d), copy, b, scores, width, false);
        std::slice::from_raw_parts_mut(scores, keys.len() * width)
    };
    if op.causal {
        for (key, row) in keys.clone().zip(scores.chunks_exact_mut(width)) {
            // Query i attends to keys up to i + n - m, so the first ones of the task may not.
            let first = (key + task.q.rows).saturating_sub(task.k.rows);
            row[..first.saturating_sub(task.queries.start).min(count)].fill(f32::NEG_INFINITY);
        }
    }
    if let Some(mask) = task.mask {
        let mask = mask.part(task.queries.start, count, keys.start, keys.len());
        let attends = |query: usize, key: usize| {
            // SAFETY: the element is inside of the operand.
            unsafe { mask.pointer::<u8>().offset(query as isize * mask.row + key as isize * mask.column).read() != 0 }
        };
        for (key, row) in scores.chunks_exact_mut(width).enumerate() {
            if mask.row == 0 {
                // One mask for all queries.
                if !attends(0, key) {
                    row.fill(f32::NEG_INFINITY);
                }
                continue;
            }
            for (query, score) in row[..count].iter_mut().enumerate() {
                *score = if attends(query, key) { *score } else { f32::NEG_INFINITY };
            }
        }
    }
}

/// Multiplies a matrix with rows of `width` elements into rows of as many.
///
/// # Safety
/// `copy` has room for whole panels of a matrix that is not `f32`, `c` for the rows, and `b` is a side of a product with it.
unsafe fn multiply(level: SimdLevel, a: Matrix<'_>, copy: *mut f32, b: Side, c: *mut f32, width: usize, add: bool) {
    let (rows, steps) = (a.rows, a.columns);
    let a = if a.dtype == DType::F32 {
        Side { first: a.pointer(), lane: a.row, step: a.column, panel: ROWS as isize * a.row }
    } else {
        // SAFETY: as promised by the caller.
        unsafe { a.pack::<ROWS>(level, copy, steps * ROWS) };
        Side { first: copy, lane: 1, step: ROWS as isize, panel: (steps * ROWS) as isize }
    };
    let c = Rows { first: c, row: width };
    vector::at(level, Block { steps, rows, panels: width / COLUMNS, a, b, before: add.then_some(c), scale: None, c });
}

/// Multiplies the queries by the scale, and begins with nothing.
struct Start {
    memory: Memory,
    d: usize,
    e: usize,
    scale: f32,
}

impl Work for Start {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Memory { width, queries, gathered, largest, sums, .. } = self.memory;
        // SAFETY: the scratch memory is as long as its rows.
        unsafe {
            for index in (0..self.d * width).step_by(LANES) {
                V::load(queries.add(index)).mul(V::splat(self.scale)).store(queries.add(index));
            }
            gathered.write_bytes(0, self.e * width);
            sums.write_bytes(0, width);
            std::slice::from_raw_parts_mut(largest, width).fill(NO_SCORE);
        }
    }
}

/// Makes weights of the scores of a block, and brings what was gathered before to the same scale.
struct Weigh {
    memory: Memory,
    keys: usize,
    e: usize,
}

impl Work for Weigh {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Memory { width, scores, gathered, largest, sums, .. } = self.memory;
        for query in (0..width).step_by(LANES) {
            // SAFETY: the scratch memory is as long as its rows.
            unsafe {
                let before = V::load(largest.add(query));
                let mut now = before;
                for key in 0..self.keys {
                    now = V::load(scores.add(key * width + query)).max(now);
                }
                now.store(largest.add(query));
                let factor = before.sub(now).exp();
                let mut sum = V::splat(0.0);
                for key in 0..self.keys {
                    let at = scores.add(key * width + query);
                    let weight = V::load(at).sub(now).exp();
                    weight.store(at);
                    sum = sum.add(weight);
                }
                V::load(sums.add(query)).mul_add(factor, sum).store(sums.add(query));
                for index in 0..self.e {
                    let at = gathered.add(index * width + query);
                    V::load(at).mul(factor).store(at);
                }
            }
        }
    }
}

/// Divides by the sums of the weights, and turns what was gathered into rows of results.
struct End {
    memory: Memory,
    count: usize,
    e: usize,
    results: *mut f32,
}

impl Work for End {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Memory { width, gathered, sums, .. } = self.memory;
        // SAFETY: the scratch memory is as long as its rows, and there are `count` rows of results.
        unsafe {
            for sum in std::slice::from_raw_parts_mut(sums, width) {
                *sum = if *sum == 0.0 { 0.0 } else { 1.0 / *sum };
            }
            for query in (0..self.count).step_by(LANES) {
                let factor = V::load(sums.add(query));
                for first in (0..self.e).step_by(LANES) {
                    let length = LANES.min(self.e - first);
                    let mut block = [V::splat(0.0); LANES];
                    for (index, values) in block.iter_mut().enumerate().take(length) {
                        *values = V::load(gathered.add((first + index) * width + query)).mul(factor);
                    }
                    let block = V::transpose(block);
                    for (index, values) in block.into_iter().enumerate().take(self.count - query) {
                        let to = self.results.add((query + index) * self.e + first);
                        if length == LANES {
                            values.store(to);
                        } else {
                            std::slice::from_raw_parts_mut(to, length).copy_from_slice(&values.lanes()[..length]);
                        }
                    }
                }
            }
        }
    }
}
