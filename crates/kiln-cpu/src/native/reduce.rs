//! Reductions: the results of a program are reduced to one per kept element.
//!
//! *Kept* elements are those of the result; each is the reduction of `reduced` input elements.
//!
//! The work is divided by the shape alone, and partial results are merged in order, so the result is bitwise
//! identical for any number of threads.

use super::body::{TileProgram, bug};
use super::columns::{Columns, Rows};
use super::fold::{Accumulator, Folding};
use super::tiles::{Arena, Memory, Runner};
use super::workers::PlanWorkers;
use crate::threads::SharedPtr;
use kiln_ir::graph::Reduce;
use kiln_ir::kernel::{Body, Instruction, Operand};
use kiln_ir::{Class, DType, Result, Shape, SimdLevel};
use smallvec::SmallVec;
use std::ops::Range;

/// Approximate number of elements in a piece of work.
const PIECE_ELEMS: usize = 1 << 16;
/// Number of kept elements that are merged and passed to the epilogue at a time.
const BATCH: usize = 256;
/// Rows with fewer kept elements than this are accumulated several at a time.
const MIN_COLUMN_ELEMS: usize = 64;

/// A compiled reduction.
pub(crate) struct ReduceStep {
    op: Reduce,
    class: Class,
    folding: Folding,
    /// Set if the elements are read from memory without a program.
    direct: Option<Direct>,
    /// Numbers of kept and reduced elements.
    kept: usize,
    reduced: usize,
    order: Order,
    pub(crate) input: TileProgram,
    pub(crate) body: TileProgram,
}

/// Which elements are innermost, that is adjacent, in the space of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Reduced elements: element `r` of row `k` has index `k * reduced + r`.
    Rows,
    /// Kept elements: the index is `r * kept + k`. The axes are swapped to match the order in memory.
    Columns,
}

/// A prologue that only loads its first operand, contiguous in the order of the space.
struct Direct {
    dtype: DType,
    /// Offset of the first element, in elements.
    offset: usize,
}

impl Direct {
    fn of(input: &Body) -> Option<Self> {
        let [Instruction::Load { operand: 0 }] = input.program.instructions[..] else { return None };
        let Operand { dtype, layout } = input.operands.first()?;
        // The accumulation loops read halves and words; bytes must be widened by the program.
        let is_read = layout.is_contiguous() && dtype.bytes() > 1;
        is_read.then(|| Self { dtype: *dtype, offset: layout.offset() })
    }
}

impl ReduceStep {
    /// # Errors
    /// Returns `Internal` if the kernel is malformed.
    pub(crate) fn new(op: Reduce, input: &Body, kept: usize, body: TileProgram, level: SimdLevel) -> Result<Self> {
        if kept > input.space.rank() {
            return Err(bug(format!("a reduction keeps {kept} axes of {}", input.space)));
        }
        let (kept_axes, reduced_axes) = input.space.split_at(kept);
        let [kept_len, reduced_len] = [kept_axes, reduced_axes].map(|axes| axes.iter().product::<usize>());
        let order = if prefers_columns(input, kept) { Order::Columns } else { Order::Rows };
        let swapped = (order == Order::Columns).then(|| swap(input, kept));
        let input = swapped.as_ref().unwrap_or(input);
        let last = input.program.instructions.last().ok_or_else(|| bug("a reduction has no instructions".into()))?;
        let (class, direct) = (input.class(last), Direct::of(input));
        // The results of a program are words of the class; `F32` selects the loops over words for every class.
        let stored = direct.as_ref().map_or(DType::F32, |direct| direct.dtype);
        let folding = Folding::new(op, class, stored, level);
        let input = TileProgram::new(input, None, level)?;
        Ok(Self { op, class, folding, direct, kept: kept_len, reduced: reduced_len, order, input, body })
    }

    /// Returns the number of kept elements.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// # Safety
    /// As [`Runner::new`], for both programs.
    ///
    /// # Errors
    /// Returns `Internal` if a thread panicked.
    pub(crate) unsafe fn run(&self, input: Memory<'_>, body: Memory<'_>, workers: &PlanWorkers<'_>) -> Result<()> {
        if self.kept == 0 {
            return Ok(());
        }
        let cost = self.kept * (self.reduced * (self.input.cost + 1) + self.body.cost);
        let size = self.piece_size();
        let (kept_pieces, reduced_pieces) = (self.kept.div_ceil(size.kept), self.reduced.div_ceil(size.reduced).max(1));
        let piece = |number: usize| {
            let (kept, reduced) = (number % kept_pieces * size.kept, number / kept_pieces * size.reduced);
            let kept = kept..(kept + size.kept).min(self.kept);
            Piece { kept, reduced: reduced..(reduced + size.reduced).min(self.reduced) }
        };
        if reduced_pieces == 1 {
            return workers.run(cost, kept_pieces, &|number| {
                let Piece { kept, reduced } = piece(number);
                let mut accumulators: SmallVec<[Accumulator; 16]> =
                    SmallVec::from_elem(self.folding.start, BATCH.min(kept.len()));
                for start in kept.clone().step_by(BATCH) {
                    let batch = Piece { kept: start..(start + BATCH).min(kept.end), reduced: reduced.clone() };
                    let accumulators = &mut accumulators[..batch.kept.len()];
                    accumulators.fill(self.folding.start);
                    // SAFETY: guaranteed by the caller; pieces have disjoint kept elements.
                    unsafe {
                        self.reduce(&batch, input, accumulators);
                        self.finish(start, accumulators, body);
                    }
                }
            });
        }
        let mut accumulators = vec![self.folding.start; self.kept * reduced_pieces];
        let parts = SharedPtr(accumulators.as_mut_ptr());
        workers.run(cost, kept_pieces * reduced_pieces, &|number| {
            let piece = piece(number);
            let first = number / kept_pieces * self.kept + piece.kept.start;
            // SAFETY: pieces have disjoint accumulators; the rest is guaranteed by the caller.
            unsafe {
                let accumulators = std::slice::from_raw_parts_mut(parts.at(first), piece.kept.len());
                self.reduce(&piece, input, accumulators);
            }
        })?;
        let (totals, others) = accumulators.split_at_mut(self.kept);
        for row in others.chunks(self.kept) {
            totals.iter_mut().zip(row).for_each(|(accumulator, other)| (self.folding.join)(accumulator, other));
        }
        // SAFETY: the caller upholds the contract.
        totals
            .chunks(BATCH)
            .enumerate()
            .for_each(|(batch, accumulators)| unsafe { self.finish(batch * BATCH, accumulators, body) });
        Ok(())
    }

    /// Returns the size of a piece, which depends on the shape alone.
    fn piece_size(&self) -> PieceSize {
        match self.order {
            Order::Rows if self.reduced > 2 * PIECE_ELEMS => PieceSize { kept: 1, reduced: PIECE_ELEMS },
            Order::Rows => PieceSize { kept: (PIECE_ELEMS / self.reduced.max(1)).max(1), reduced: self.reduced.max(1) },
            // As wide as a batch. If that gives few pieces, they are also divided along the columns, into pieces
            // large enough that merging takes little of the time.
            Order::Columns => {
                let kept = BATCH.min(self.kept);
                let is_wide = self.kept >= 32 * BATCH;
                let reduced = if is_wide { self.reduced } else { 2 * PIECE_ELEMS / kept };
                PieceSize { kept, reduced: reduced.max(1) }
            }
        }
    }

    /// Accumulates a range of kept and reduced elements into the accumulators.
    ///
    /// # Safety
    /// As [`Runner::new`]; the ranges must be within the space.
    unsafe fn reduce(&self, piece: &Piece, memory: Memory<'_>, accumulators: &mut [Accumulator]) {
        if piece.reduced.is_empty() {
            return;
        }
        // SAFETY: the caller upholds the contract.
        unsafe {
            if let Some(direct) = &self.direct {
                return self.reduce_direct(direct, piece, memory, accumulators);
            }
            let (mut arena, longest) = (Arena::new(), piece.kept.len() * piece.reduced.len());
            let mut runner = Runner::new(&self.input, memory, longest, &mut arena);
            match self.order {
                Order::Rows => self.reduce_rows(piece, &mut runner, accumulators),
                Order::Columns => self.reduce_columns(piece, &mut runner, accumulators),
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_direct(
        &self,
        direct: &Direct,
        piece: &Piece,
        memory: Memory<'_>,
        accumulators: &mut [Accumulator],
    ) {
        let (Piece { kept, reduced }, bytes) = (piece, direct.dtype.bytes());
        // SAFETY: the elements of these rows are within the operand's memory, and the processor supports the SIMD
        // level.
        unsafe {
            let at = |element: usize| memory.operands[0].add((direct.offset + element) * bytes);
            match self.order {
                Order::Rows => {
                    let from = at(kept.start * self.reduced + reduced.start);
                    (self.folding.rows)(from, reduced.len(), reduced.start, accumulators);
                }
                Order::Columns => {
                    let from = at(reduced.start * self.kept + kept.start);
                    let (width, count) = (kept.len(), reduced.len());
                    let rows = Rows { from, bytes, pitch: self.kept, width, count, index: reduced.start };
                    let mut columns = self.columns(width);
                    columns.add(&self.folding, rows, accumulators);
                    columns.fold(&self.folding, accumulators);
                }
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_rows(&self, piece: &Piece, runner: &mut Runner<'_>, accumulators: &mut [Accumulator]) {
        let Piece { kept, reduced } = piece;
        let tile_len = runner.tile_len();
        // Short rows share a tile.
        let rows = if reduced.len() == self.reduced { (tile_len / self.reduced).max(1) } else { 1 };
        for (batch, accumulators) in accumulators.chunks_mut(rows).enumerate() {
            let first = (kept.start + batch * rows) * self.reduced + reduced.start;
            let len = reduced.len() * accumulators.len();
            let mut done = 0;
            while done < len {
                // Either all rows of the batch fit in a tile and run at once, or it is a single row in several runs. So
                // every accumulator gets `run / accumulators.len()` elements.
                let run = tile_len.min(len - done);
                // SAFETY: the elements of these rows are within the space; `run` returns a pointer to that many
                // words.
                unsafe {
                    let values = runner.run(first + done, run, std::ptr::null());
                    (self.folding.rows)(values.cast(), run / accumulators.len(), reduced.start + done, accumulators);
                }
                done += run;
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_columns(&self, piece: &Piece, runner: &mut Runner<'_>, accumulators: &mut [Accumulator]) {
        let Piece { kept, reduced } = piece;
        // A row that is longer than a tile runs in several parts.
        let tile_len = runner.tile_len();
        for (part, accumulators) in accumulators.chunks_mut(tile_len).enumerate() {
            let width = accumulators.len();
            let mut columns = self.columns(width);
            // Whole rows are contiguous, so several fit in a tile.
            let per_tile = if width == self.kept { tile_len / width } else { 1 };
            for index in reduced.clone().step_by(per_tile) {
                let count = per_tile.min(reduced.end - index);
                let first = index * self.kept + kept.start + part * tile_len;
                // SAFETY: these rows are within the space; `run` returns a pointer to that many words.
                unsafe {
                    let from = runner.run(first, count * width, std::ptr::null()).cast();
                    let rows = Rows { from, bytes: size_of::<u32>(), pitch: width, width, count, index };
                    columns.add(&self.folding, rows, accumulators);
                }
            }
            columns.fold(&self.folding, accumulators);
        }
    }

    /// Creates the columns of `kept` elements: several per element if they are narrow and the rows are contiguous.
    fn columns(&self, kept: usize) -> Columns {
        let is_arg = matches!(self.op, Reduce::ArgMax | Reduce::ArgMin);
        let together = if kept == self.kept && !is_arg { (MIN_COLUMN_ELEMS / kept).max(1) } else { 1 };
        Columns::new(kept * together, self.folding.start)
    }

    /// Applies the epilogue to the results of kept elements, and stores them.
    ///
    /// # Safety
    /// As [`Runner::new`]; the elements must be within the output, and nothing else may store them.
    unsafe fn finish(&self, start: usize, accumulators: &[Accumulator], memory: Memory<'_>) {
        let mut results = [0; BATCH];
        let results = &mut results[..accumulators.len()];
        results.iter_mut().zip(accumulators).for_each(|(result, accumulator)| *result = self.result(accumulator));
        let mut arena = Arena::new();
        // SAFETY: the caller upholds the contract.
        unsafe {
            let mut runner = Runner::new(&self.body, memory, results.len(), &mut arena);
            let tile_len = runner.tile_len();
            for (tile, results) in results.chunks(tile_len).enumerate() {
                runner.run_and_store(start + tile * tile_len, results.len(), results.as_ptr());
            }
        }
    }

    fn result(&self, accumulator: &Accumulator) -> u32 {
        match self.op {
            Reduce::Sum if self.class == Class::Float => (accumulator.sum as f32).to_bits(),
            // Divided in `f64`, so that a mean is rounded to `f32` only once.
            Reduce::Mean => ((accumulator.sum / self.reduced as f64) as f32).to_bits(),
            Reduce::Sum | Reduce::Max | Reduce::Min => accumulator.word,
            Reduce::ArgMax | Reduce::ArgMin => accumulator.index,
        }
    }
}

/// The size of a piece.
struct PieceSize {
    kept: usize,
    reduced: usize,
}

/// Ranges of kept and reduced elements.
struct Piece {
    kept: Range<usize>,
    reduced: Range<usize>,
}

/// Returns whether kept elements are closer together in memory than reduced ones. Each operand votes with its innermost
/// strides.
fn prefers_columns(input: &Body, kept: usize) -> bool {
    let inner = |range: Range<usize>, operand: &Operand| {
        let axes = range.rev().find(|&axis| input.space[axis] > 1);
        axes.map(|axis| operand.layout.strides()[axis].unsigned_abs())
    };
    // An iota depends on the order of the space, so the axes must not be swapped.
    if input.program.instructions.contains(&Instruction::Iota) {
        return false;
    }
    let rank = input.space.rank();
    // Each operand votes for the order in which its neighbours in memory are adjacent. One that is broadcast along
    // an inner axis does not vote.
    let votes = input.operands.iter().map(|operand| match (inner(0..kept, operand), inner(kept..rank, operand)) {
        (Some(0), _) | (_, Some(0) | None) | (None, _) => 0,
        (Some(kept), Some(reduced)) => i32::from(kept < reduced) - i32::from(reduced < kept),
    });
    votes.sum::<i32>() > 0
}

/// Returns the body with the reduced axes first.
fn swap(body: &Body, kept: usize) -> Body {
    let axes: Vec<usize> = (kept..body.space.rank()).chain(0..kept).collect();
    let swapped = |operand: &Operand| Operand { dtype: operand.dtype, layout: operand.layout.permuted(&axes) };
    Body {
        space: axes.iter().map(|&axis| body.space[axis]).collect::<Shape>(),
        operands: body.operands.iter().map(swapped).collect(),
        program: body.program.clone(),
    }
}
