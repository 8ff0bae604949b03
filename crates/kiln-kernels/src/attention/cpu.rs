//! Attention on the CPU: blocked, with online softmax, as in FlashAttention. For each block of keys: scores, the running maximum, weights, and the
//! rescaled accumulation.

use super::Attention;
use crate::matmul::cpu::part_range;
use crate::matmul::matrix::Matrix;
use crate::matmul::microkernel::{Block, COLUMNS, ROWS, Rows, Side};
use crate::matmul::scratch;
use crate::matmul::vector::{self, LANES, Vector, Work, exp2};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result, SimdLevel};
use std::ops::Range;

/// Queries per block. It affects results in one case: a NaN in V is skipped if no query of the block attends to its key.
const QUERIES: usize = 4 * COLUMNS;

/// Keys per block: with [`QUERIES`] their scores take 48 KiB.
const KEYS: usize = 32 * ROWS;

/// Maximum blocks of queries per task: each block of keys is packed once for all of them.
const TOGETHER: usize = 8;

/// The initial maximum. It is finite, because the difference of two of these has to be 0, not NaN.
const NO_SCORE: f32 = f32::MIN;

pub(super) fn run(op: &Attention, call: &HostCall<'_>) -> Result<()> {
    let (q_shape, v_shape) = (call.operands[0].layout.shape(), call.operands[2].layout.shape());
    let (heads, m) = (q_shape[0] * q_shape[1], q_shape[2]);
    // Without keys (n = 0) there are still results to store: zeros.
    if heads * m * v_shape[3] == 0 {
        return Ok(());
    }
    let blocks = m.div_ceil(QUERIES);
    // Several tasks per thread, so that no thread waits long for another at the end.
    let together = (heads * blocks / (6 * call.workers.count())).clamp(1, TOGETHER);
    let parts = blocks.div_ceil(together);
    call.workers.run(heads * parts, &|task| {
        let (head, queries) = (task / parts, part_range(m, QUERIES, parts, task % parts));
        let matrix = |operand: usize| Matrix::of(&call.operands[operand], head);
        let (q, k, v) = (matrix(0), matrix(1), matrix(2));
        let mask = op.has_mask.then(|| matrix(3));
        attend(op, call, head, &Head { q, k, v, mask, level: call.workers.simd() }, &queries);
    })
}

/// The operands of one head.
struct Head<'a> {
    q: Matrix<'a>,
    k: Matrix<'a>,
    v: Matrix<'a>,
    mask: Option<Matrix<'a>>,
    level: SimdLevel,
}

/// Scratch memory for a block of queries. A row has an element for each query, padded to whole tiles.
#[derive(Clone, Copy)]
struct Memory {
    width: usize,
    /// The queries: panels of [`COLUMNS`], with a row for each of their elements.
    queries: *mut f32,
    /// The accumulated results: a row for each of their elements.
    accumulated: *mut f32,
    /// The largest score so far.
    largest: *mut f32,
    /// The sum of the weights so far.
    sums: *mut f32,
    /// A row for each key of a block: scores, then weights. Blocks of queries share it, one after the other.
    scores: *mut f32,
    /// Factors that rescale `accumulated` and `sums` to the new maximum. Shared like `scores`.
    factors: *mut f32,
}

/// Computes the results of some queries of a head, over all of its keys and values.
fn attend(op: &Attention, call: &HostCall<'_>, head: usize, task: &Head<'_>, queries: &Range<usize>) {
    let (d, e) = (task.q.columns, task.v.columns);
    let is_copied = task.k.dtype != DType::F32;
    let copied = |rows: usize, columns: usize| if is_copied { rows.next_multiple_of(ROWS) * columns } else { 0 };
    let block_len = (d + e + 2) * QUERIES;
    let blocks = queries.len().div_ceil(QUERIES);
    let lengths = [blocks * block_len, KEYS * QUERIES, QUERIES, copied(KEYS, d), copied(e, KEYS), QUERIES * e];
    scratch::with(lengths, |[memory, scores, factors, keys, values, results]| {
        let blocks = || {
            (0..blocks).map(|block| {
                let start = queries.start + block * QUERIES;
                let queries = start..(start + QUERIES).min(queries.end);
                let first = memory.wrapping_add(block * block_len);
                let [accumulated, largest, sums] = [d, d + e, d + e + 1].map(|row| first.wrapping_add(row * QUERIES));
                let width = queries.len().next_multiple_of(COLUMNS);
                (queries, Memory { width, queries: first, accumulated, largest, sums, scores, factors })
            })
        };
        // SAFETY: the scratch memory is as long as `lengths` says, which is enough for a block; the operands are complete; no other task has
        // these results.
        unsafe {
            for (queries, memory) in blocks() {
                // Padding queries are 0, and their results are not stored.
                let part = task.q.part(queries.start, queries.len(), 0, d);
                part.pack::<COLUMNS>(task.level, memory.queries, d * COLUMNS);
                vector::at(task.level, Initialize { memory, d, e, scale: op.scale });
            }
            let end = key_end(op, task, queries);
            for start in (0..end).step_by(KEYS) {
                let count = KEYS.min(end - start);
                let k = side(task.level, task.k.part(start, count, 0, d), keys);
                let v = side(task.level, task.v.part(start, count, 0, e).transposed(), values);
                for (queries, memory) in blocks() {
                    let keys = start..key_end(op, task, &queries).clamp(start, start + count);
                    score(op, task, (&queries, &keys), memory, k);
                    vector::at(task.level, ComputeWeights { memory, keys: keys.len() });
                    accumulate(task, memory, keys.len(), v);
                }
            }
            for (queries, memory) in blocks() {
                // Without an epilogue, results go straight to the output; otherwise through scratch memory.
                let start = (head * task.q.rows + queries.start) * e;
                let output = call.output.floats().map(|output| output.wrapping_add(start));
                let results = output.unwrap_or(results);
                vector::at(task.level, Normalize { memory, count: queries.len(), e, results });
                if output.is_none() {
                    call.output.store(start, std::slice::from_raw_parts_mut(results, queries.len() * e));
                }
            }
        }
    });
}

/// Returns one past the last key that any of these queries may attend to.
fn key_end(op: &Attention, task: &Head<'_>, queries: &Range<usize>) -> usize {
    let (m, n) = (task.q.rows, task.k.rows);
    // Query i attends to keys up to i + n - m. The subtraction is last and saturates, because n may be less than m.
    if op.causal { (queries.end + n).saturating_sub(m).min(n) } else { n }
}

/// Returns a matrix as the left side of a product, read in place or packed.
///
/// # Safety
/// `copy` must have room for whole panels of a matrix that is not `f32`.
unsafe fn side(level: SimdLevel, a: Matrix<'_>, copy: *mut f32) -> Side {
    if a.dtype == DType::F32 {
        return Side { first: a.pointer(), lane: a.row, step: a.column, panel: ROWS as isize * a.row };
    }
    let panel = a.columns * ROWS;
    // SAFETY: promised by the caller.
    unsafe { a.pack::<ROWS>(level, copy, panel) };
    Side { first: copy, lane: 1, step: ROWS as isize, panel: panel as isize }
}

/// Computes the scores of a block of keys; negative infinity where a query does not attend to a key.
unsafe fn score(
    op: &Attention,
    task: &Head<'_>,
    (queries, keys): (&Range<usize>, &Range<usize>),
    memory: Memory,
    k: Side,
) {
    let (width, d, count) = (memory.width, task.k.columns, queries.len());
    let b = Side { first: memory.queries, lane: 1, step: COLUMNS as isize, panel: (d * COLUMNS) as isize };
    let (rows, panels, c) = (keys.len(), width / COLUMNS, Rows { first: memory.scores, row: width });
    vector::at(task.level, Block { steps: d, rows, panels, a: k, b, before: None, scale: None, c });
    // SAFETY: promised by the caller.
    let scores = unsafe { std::slice::from_raw_parts_mut(memory.scores, keys.len() * width) };
    if op.causal {
        for (key, row) in keys.clone().zip(scores.chunks_exact_mut(width)) {
            // Query i attends to keys up to i + n - m, so the first queries of the task may not attend to this key.
            let first = (key + task.q.rows).saturating_sub(task.k.rows);
            row[..first.saturating_sub(queries.start).min(count)].fill(f32::NEG_INFINITY);
        }
    }
    if let Some(mask) = task.mask {
        let mask = mask.part(queries.start, count, keys.start, keys.len());
        let attends = |query: usize, key: usize| {
            // SAFETY: the element is within the operand.
            unsafe { mask.pointer::<u8>().offset(query as isize * mask.row + key as isize * mask.column).read() != 0 }
        };
        for (key, row) in scores.chunks_exact_mut(width).enumerate() {
            if mask.row == 0 {
                // The mask is broadcast over the queries.
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

/// Adds the weighted values to the rescaled results.
fn accumulate(task: &Head<'_>, memory: Memory, keys: usize, v: Side) {
    let Memory { width, accumulated, scores, factors, .. } = memory;
    // The weights of a key are a row, which is a step of this product: they serve as panels without packing.
    let b = Side { first: scores, lane: 1, step: width as isize, panel: COLUMNS as isize };
    let (rows, panels, c) = (task.v.columns, width / COLUMNS, Rows { first: accumulated, row: width });
    vector::at(task.level, Block { steps: keys, rows, panels, a: v, b, before: Some(c), scale: Some(factors), c });
}

/// Multiplies the queries by the scale, and initializes the accumulators.
struct Initialize {
    memory: Memory,
    d: usize,
    e: usize,
    scale: f32,
}

impl Work for Initialize {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Memory { width, queries, accumulated, largest, sums, .. } = self.memory;
        let scale = V::splat(self.scale);
        // SAFETY: the scratch memory is as long as its rows.
        unsafe {
            // Scaling the queries once takes fewer multiplications than scaling their score with every key.
            for index in (0..self.d * width).step_by(LANES) {
                V::load(queries.add(index)).mul(scale).store(queries.add(index));
            }
            accumulated.write_bytes(0, self.e * width);
            sums.write_bytes(0, width);
            std::slice::from_raw_parts_mut(largest, width).fill(NO_SCORE);
        }
    }
}

/// Turns the scores of a block into weights, and computes the factors that rescale earlier results to the new maximum.
struct ComputeWeights {
    memory: Memory,
    keys: usize,
}

impl Work for ComputeWeights {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Memory { width, scores, largest, sums, factors, .. } = self.memory;
        let log2_e = V::splat(std::f32::consts::LOG2_E);
        for query in (0..width).step_by(LANES) {
            // SAFETY: the scratch memory is as long as its rows.
            unsafe {
                let before = V::load(largest.add(query));
                let mut now = before;
                for key in 0..self.keys {
                    // `max` returns its second operand for NaN: a NaN score is not the maximum, but its weight is NaN.
                    now = V::load(scores.add(key * width + query)).max(now);
                }
                now.store(largest.add(query));
                let factor = exp2(before.sub(now).mul(log2_e));
                factor.store(factors.add(query));
                let mut sum = V::splat(0.0);
                for key in 0..self.keys {
                    let at = scores.add(key * width + query);
                    let weight = exp2(V::load(at).sub(now).mul(log2_e));
                    weight.store(at);
                    sum = sum.add(weight);
                }
                V::load(sums.add(query)).mul_add(factor, sum).store(sums.add(query));
            }
        }
    }
}

/// Divides by the sums of the weights, and transposes the accumulated results into rows.
struct Normalize {
    memory: Memory,
    count: usize,
    e: usize,
    results: *mut f32,
}

impl Work for Normalize {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Memory { width, accumulated, sums, .. } = self.memory;
        // SAFETY: the scratch memory is as long as its rows, and there are `count` rows of results.
        unsafe {
            for sum in std::slice::from_raw_parts_mut(sums, width) {
                // A query that attends to no key has a sum of 0, and gives zeros.
                *sum = if *sum == 0.0 { 0.0 } else { 1.0 / *sum };
            }
            for query in (0..self.count).step_by(LANES) {
                let factor = V::load(sums.add(query));
                for first in (0..self.e).step_by(LANES) {
                    let length = LANES.min(self.e - first);
                    let mut block = [V::splat(0.0); LANES];
                    for (index, values) in block.iter_mut().enumerate().take(length) {
                        *values = V::load(accumulated.add((first + index) * width + query)).mul(factor);
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
