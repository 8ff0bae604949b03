//! Reductions: a program's results become one for each kept element.
//!
//! The work is cut into pieces by the shape alone, and pieces are joined in order: every number of threads gives the same
//! bits.

use super::body::{TileProgram, bug};
use super::columns::{Columns, Rows};
use super::fold::{Cell, Folding};
use super::tiles::{Arena, Memory, Runner};
use super::workers::Pieces;
use crate::threads::Start;
use kiln_ir::graph::Reduce;
use kiln_ir::kernel::{Body, Instruction, Operand};
use kiln_ir::{Class, DType, Result, Shape, SimdLevel};
use smallvec::SmallVec;
use std::ops::Range;

/// About how many elements one piece of work has.
const PIECE: usize = 1 << 16;
/// How many kept elements are joined and given to the program behind at a time.
const BATCH: usize = 256;
/// Narrow columns are added up several rows at a time, up to about this many elements.
const WIDE: usize = 64;

/// A reduction, ready to run.
pub(crate) struct ReduceStep {
    op: Reduce,
    class: Class,
    folding: Folding,
    /// Where the elements are read from memory as they are.
    direct: Option<Direct>,
    /// How many elements there are of each kind.
    kept: usize,
    reduced: usize,
    order: Order,
    pub(crate) input: TileProgram,
    pub(crate) body: TileProgram,
}

/// Which elements are neighbours in the space of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Those that become one: element `r` of row `k` is number `k * reduced + r`.
    Rows,
    /// Those that stay apart: it is number `r * kept + k`. The axes are swapped for it, because memory lies this way.
    Columns,
}

/// An input that is the elements of its first operand, which lie without gaps in the order of the space.
struct Direct {
    dtype: DType,
    /// Elements before the first.
    offset: usize,
}

impl Direct {
    fn of(input: &Body) -> Option<Self> {
        let [Instruction::Load { operand: 0 }] = input.program.instructions[..] else { return None };
        let Operand { dtype, layout } = input.operands.first()?;
        let is_read = layout.is_contiguous() && dtype.bytes() > 1;
        is_read.then(|| Self { dtype: *dtype, offset: layout.offset() })
    }
}

impl ReduceStep {
    /// # Errors
    /// `Internal` where the kernel is not well formed.
    pub(crate) fn new(op: Reduce, input: &Body, kept: usize, body: TileProgram, level: SimdLevel) -> Result<Self> {
        if kept > input.space.rank() {
            return Err(bug(format!("a reduction keeps {kept} axes of {}", input.space)));
        }
        let (kept_axes, reduced_axes) = input.space.split_at(kept);
        let [kept_len, reduced_len] = [kept_axes, reduced_axes].map(|axes| axes.iter().product::<usize>());
        let order = if lies_in_columns(input, kept) { Order::Columns } else { Order::Rows };
        let swapped = (order == Order::Columns).then(|| swap(input, kept));
        let input = swapped.as_ref().unwrap_or(input);
        let last = input.program.instructions.last().ok_or_else(|| bug("a reduction of nothing".into()))?;
        let (class, direct) = (input.class(last), Direct::of(input));
        let stored = direct.as_ref().map_or(DType::F32, |direct| direct.dtype);
        let folding = Folding::new(op, class, stored, level);
        let input = TileProgram::new(input, None, level)?;
        Ok(Self { op, class, folding, direct, kept: kept_len, reduced: reduced_len, order, input, body })
    }

    /// How many kept elements there are.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// # Safety
    /// As [`Runner::new`], for both programs.
    ///
    /// # Errors
    /// `Internal` where a thread panicked.
    pub(crate) unsafe fn run(&self, input: Memory<'_>, body: Memory<'_>, pieces: &Pieces<'_>) -> Result<()> {
        if self.kept == 0 {
            return Ok(());
        }
        let cost = self.kept * (self.reduced * (self.input.cost + 1) + self.body.cost);
        let cut = self.cut();
        let (across, along) = (self.kept.div_ceil(cut.kept), self.reduced.div_ceil(cut.reduced).max(1));
        let piece = |number: usize| {
            let (kept, reduced) = (number % across * cut.kept, number / across * cut.reduced);
            let kept = kept..(kept + cut.kept).min(self.kept);
            Piece { kept, reduced: reduced..(reduced + cut.reduced).min(self.reduced) }
        };
        if along == 1 {
            return pieces.run(cost, across, &|number| {
                let Piece { kept, reduced } = piece(number);
                let mut cells: SmallVec<[Cell; 16]> = SmallVec::from_elem(self.folding.start, BATCH.min(kept.len()));
                for start in kept.clone().step_by(BATCH) {
                    let batch = Piece { kept: start..(start + BATCH).min(kept.end), reduced: reduced.clone() };
                    let cells = &mut cells[..batch.kept.len()];
                    cells.fill(self.folding.start);
                    // SAFETY: the caller's promise; each piece has kept elements of its own.
                    unsafe {
                        self.reduce(&batch, input, cells);
                        self.finish(start, cells, body);
                    }
                }
            });
        }
        let mut cells = vec![self.folding.start; self.kept * along];
        let parts = Start(cells.as_mut_ptr());
        pieces.run(cost, across * along, &|number| {
            let piece = piece(number);
            let first = number / across * self.kept + piece.kept.start;
            // SAFETY: each piece has cells of its own; the rest is the caller's promise.
            unsafe {
                let cells = std::slice::from_raw_parts_mut(parts.at(first), piece.kept.len());
                self.reduce(&piece, input, cells);
            }
        })?;
        let (joined, others) = cells.split_at_mut(self.kept);
        for row in others.chunks(self.kept) {
            joined.iter_mut().zip(row).for_each(|(cell, other)| (self.folding.join)(cell, other));
        }
        // SAFETY: the caller's promise.
        joined.chunks(BATCH).enumerate().for_each(|(batch, cells)| unsafe { self.finish(batch * BATCH, cells, body) });
        Ok(())
    }

    /// How large the pieces are, by the shape alone.
    fn cut(&self) -> Cut {
        match self.order {
            Order::Rows if self.reduced > 2 * PIECE => Cut { kept: 1, reduced: PIECE },
            Order::Rows => Cut { kept: (PIECE / self.reduced.max(1)).max(1), reduced: self.reduced.max(1) },
            // As wide as a batch, and only where that gives few pieces, cut along the columns too, into pieces that are
            // large enough that to join them takes little of the time.
            Order::Columns => {
                let kept = BATCH.min(self.kept);
                let is_wide = self.kept >= 32 * BATCH;
                let reduced = if is_wide { self.reduced } else { 2 * PIECE / kept };
                Cut { kept, reduced: reduced.max(1) }
            }
        }
    }

    /// Adds a range of rows and columns to the cells of the kept ones.
    ///
    /// # Safety
    /// As [`Runner::new`]; the ranges are inside of the space.
    unsafe fn reduce(&self, piece: &Piece, memory: Memory<'_>, cells: &mut [Cell]) {
        if piece.reduced.is_empty() {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(direct) = &self.direct {
                return self.reduce_direct(direct, piece, memory, cells);
            }
            let (mut arena, longest) = (Arena::new(), piece.kept.len() * piece.reduced.len());
            let mut runner = Runner::new(&self.input, memory, longest, &mut arena);
            match self.order {
                Order::Rows => self.reduce_rows(piece, &mut runner, cells),
                Order::Columns => self.reduce_columns(piece, &mut runner, cells),
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_direct(&self, direct: &Direct, piece: &Piece, memory: Memory<'_>, cells: &mut [Cell]) {
        let (Piece { kept, reduced }, bytes) = (piece, direct.dtype.bytes());
        // SAFETY: the elements of these rows are in the operand's memory, and the processor has the level.
        unsafe {
            let at = |element: usize| memory.operands[0].add((direct.offset + element) * bytes);
            match self.order {
                Order::Rows => {
                    let from = at(kept.start * self.reduced + reduced.start);
                    (self.folding.rows)(from, reduced.len(), reduced.start, cells);
                }
                Order::Columns => {
                    let from = at(reduced.start * self.kept + kept.start);
                    let (width, count) = (kept.len(), reduced.len());
                    let rows = Rows { from, bytes, pitch: self.kept, width, count, place: reduced.start };
                    let mut columns = self.columns(width);
                    columns.add(&self.folding, rows, cells);
                    columns.fold(&self.folding, cells);
                }
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_rows(&self, piece: &Piece, runner: &mut Runner<'_>, cells: &mut [Cell]) {
        let Piece { kept, reduced } = piece;
        let tile_len = runner.tile_len();
        // Short rows share a tile.
        let rows = if reduced.len() == self.reduced { (tile_len / self.reduced).max(1) } else { 1 };
        for (batch, cells) in cells.chunks_mut(rows).enumerate() {
            let first = (kept.start + batch * rows) * self.reduced + reduced.start;
            let len = reduced.len() * cells.len();
            let mut done = 0;
            while done < len {
                let run = tile_len.min(len - done);
                // SAFETY: the elements of these rows are inside of the space; the runner leaves as many words.
                unsafe {
                    let values = runner.run(first + done, run, std::ptr::null());
                    (self.folding.rows)(values.cast(), run / cells.len(), reduced.start + done, cells);
                }
                done += run;
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_columns(&self, piece: &Piece, runner: &mut Runner<'_>, cells: &mut [Cell]) {
        let Piece { kept, reduced } = piece;
        // A row that is longer than a tile runs in several parts.
        let tile_len = runner.tile_len();
        for (part, cells) in cells.chunks_mut(tile_len).enumerate() {
            let width = cells.len();
            let mut columns = self.columns(width);
            // Whole rows lie without gaps between them, so several fit a tile.
            let per_tile = if width == self.kept { tile_len / width } else { 1 };
            for place in reduced.clone().step_by(per_tile) {
                let count = per_tile.min(reduced.end - place);
                let first = place * self.kept + kept.start + part * tile_len;
                // SAFETY: these rows are inside of the space; the runner leaves as many words.
                unsafe {
                    let from = runner.run(first, count * width, std::ptr::null()).cast();
                    let rows = Rows { from, bytes: size_of::<u32>(), pitch: width, width, count, place };
                    columns.add(&self.folding, rows, cells);
                }
            }
            columns.fold(&self.folding, cells);
        }
    }

    /// Columns for as many kept elements: several times as many where they are narrow and rows lie without gaps.
    fn columns(&self, kept: usize) -> Columns {
        let is_arg = matches!(self.op, Reduce::ArgMax | Reduce::ArgMin);
        let together = if kept == self.kept && !is_arg { (WIDE / kept).max(1) } else { 1 };
        Columns::new(kept * together, self.folding.start)
    }

    /// Stores the results of kept elements, after the program behind.
    ///
    /// # Safety
    /// As [`Runner::new`]; the elements are inside of the output, and nobody else stores them.
    unsafe fn finish(&self, start: usize, cells: &[Cell], memory: Memory<'_>) {
        let mut results = [0; BATCH];
        let results = &mut results[..cells.len()];
        results.iter_mut().zip(cells).for_each(|(result, cell)| *result = self.result(cell));
        let mut arena = Arena::new();
        // SAFETY: the caller's promise.
        unsafe {
            let mut runner = Runner::new(&self.body, memory, results.len(), &mut arena);
            let tile_len = runner.tile_len();
            for (tile, results) in results.chunks(tile_len).enumerate() {
                runner.run_and_store(start + tile * tile_len, results.len(), results.as_ptr());
            }
        }
    }

    fn result(&self, cell: &Cell) -> u32 {
        match self.op {
            Reduce::Sum if self.class == Class::Float => (cell.sum as f32).to_bits(),
            Reduce::Mean => ((cell.sum / self.reduced as f64) as f32).to_bits(),
            Reduce::Sum | Reduce::Max | Reduce::Min => cell.word,
            Reduce::ArgMax | Reduce::ArgMin => cell.place,
        }
    }
}

/// How large pieces are.
struct Cut {
    kept: usize,
    reduced: usize,
}

/// Ranges of the kept elements, and of those that become one.
struct Piece {
    kept: Range<usize>,
    reduced: Range<usize>,
}

/// Whether the kept elements are closer together in memory than those that become one.
fn lies_in_columns(input: &Body, kept: usize) -> bool {
    let inner = |range: Range<usize>, operand: &Operand| {
        let axes = range.rev().find(|&axis| input.space[axis] > 1);
        axes.map(|axis| operand.layout.strides()[axis].unsigned_abs())
    };
    // Numbers of elements are those of the space as it is.
    if input.program.instructions.contains(&Instruction::Iota) {
        return false;
    }
    let rank = input.space.rank();
    let votes = input.operands.iter().map(|operand| match (inner(0..kept, operand), inner(kept..rank, operand)) {
        (Some(0), _) | (_, Some(0) | None) | (None, _) => 0,
        (Some(kept), Some(reduced)) => i32::from(kept < reduced) - i32::from(reduced < kept),
    });
    votes.sum::<i32>() > 0
}

/// The body with the reduced axes first.
fn swap(body: &Body, kept: usize) -> Body {
    let axes: Vec<usize> = (kept..body.space.rank()).chain(0..kept).collect();
    let swapped = |operand: &Operand| Operand { dtype: operand.dtype, layout: operand.layout.permuted(&axes) };
    Body {
        space: axes.iter().map(|&axis| body.space[axis]).collect::<Shape>(),
        operands: body.operands.iter().map(swapped).collect(),
        program: body.program.clone(),
    }
}
