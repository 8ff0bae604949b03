//! Reductions: a program's results become one for each kept element.
//!
//! The work is cut into pieces by the shape alone, and pieces are joined in order: every number of threads gives the same
//! bits.

use super::best::Best;
use super::body::{TileProgram, bug};
use super::tiles::{Arena, Memory, Runner};
use super::workers::Pieces;
use kiln_ir::graph::Reduce;
use kiln_ir::kernel::{Body, Instruction, Operand};
use kiln_ir::op::Signature;
use kiln_ir::{Class, Result, Shape, SimdLevel};
use std::ops::Range;

/// About how many elements one piece of work has.
const PIECE: usize = 1 << 16;
/// How many kept elements are joined and given to the program behind at a time.
const BATCH: usize = 256;
/// After how many rows `f32` sums of columns go into `f64` ones.
const SUM_ROWS: usize = 64;
/// Narrow columns are added up several rows at a time, up to about this many elements.
const WIDE: usize = 64;

/// A reduction, ready to run.
pub(crate) struct ReduceStep {
    op: Reduce,
    class: Class,
    /// For all but sums.
    best: Option<Best>,
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

/// What was found so far for one kept element.
#[derive(Clone, Copy)]
struct Cell {
    sum: f64,
    /// The winner, or the sum of integers.
    word: u32,
    place: u32,
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
        let input_program = TileProgram::new(swapped.as_ref().unwrap_or(input), None, level)?;
        let class = class_of(input)?;
        let best = Best::of(op, class, level);
        Ok(Self { op, class, best, kept: kept_len, reduced: reduced_len, order, input: input_program, body })
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
            (kept..(kept + cut.kept).min(self.kept), reduced..(reduced + cut.reduced).min(self.reduced))
        };
        if along == 1 {
            return pieces.run(cost, across, &|number| {
                let mut cells = [self.start(); BATCH];
                let (kept, reduced) = piece(number);
                for start in kept.clone().step_by(BATCH) {
                    let kept = start..(start + BATCH).min(kept.end);
                    let cells = &mut cells[..kept.len()];
                    cells.fill(self.start());
                    // SAFETY: the caller's promise; each piece has kept elements of its own.
                    unsafe {
                        self.reduce(kept.clone(), reduced.clone(), input, cells);
                        self.finish(kept.start, cells, body);
                    }
                }
            });
        }
        let mut cells = vec![self.start(); self.kept * along];
        let parts = Parts(cells.as_mut_ptr());
        pieces.run(cost, across * along, &|number| {
            let (kept, reduced) = piece(number);
            let first = number / across * self.kept + kept.start;
            // SAFETY: each piece has cells of its own; the rest is the caller's promise.
            unsafe {
                let cells = std::slice::from_raw_parts_mut(parts.at(first), kept.len());
                self.reduce(kept, reduced, input, cells);
            }
        })?;
        let (joined, others) = cells.split_at_mut(self.kept);
        for row in others.chunks(self.kept) {
            joined.iter_mut().zip(row).for_each(|(cell, other)| self.join(cell, other));
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
            // As wide as a batch, and only where that gives few pieces, cut along the columns too.
            Order::Columns => {
                let kept = BATCH.min(self.kept);
                let is_wide = self.kept >= 32 * BATCH;
                let reduced = if is_wide { self.reduced } else { (PIECE / kept).next_multiple_of(SUM_ROWS) };
                Cut { kept, reduced: reduced.max(1) }
            }
        }
    }

    fn start(&self) -> Cell {
        Cell { sum: 0.0, word: self.best.map_or(0, |best| best.lowest), place: 0 }
    }

    /// Adds a range of rows and columns to the cells of the kept ones.
    ///
    /// # Safety
    /// As [`Runner::new`]; the ranges are inside of the space.
    unsafe fn reduce(&self, kept: Range<usize>, reduced: Range<usize>, memory: Memory<'_>, cells: &mut [Cell]) {
        if reduced.is_empty() {
            return;
        }
        let mut arena = Arena::new();
        // SAFETY: the caller's promise.
        unsafe {
            let longest = kept.len() * reduced.len();
            let mut runner = Runner::new(&self.input, memory, longest, &mut arena);
            match self.order {
                Order::Rows => self.reduce_rows(kept, reduced, &mut runner, cells),
                Order::Columns => self.reduce_columns(&kept, &reduced, &mut runner, cells),
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_rows(
        &self,
        kept: Range<usize>,
        reduced: Range<usize>,
        runner: &mut Runner<'_>,
        cells: &mut [Cell],
    ) {
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
                let values = unsafe {
                    let values = runner.run(first + done, run, std::ptr::null());
                    std::slice::from_raw_parts(values, run)
                };
                if let [cell] = cells {
                    self.add_run(cell, values, reduced.start + done);
                } else {
                    let rows = values.chunks(self.reduced);
                    cells.iter_mut().zip(rows).for_each(|(cell, row)| self.add_run(cell, row, 0));
                }
                done += run;
            }
        }
    }

    /// Adds elements of one row, of which the first has this place in it.
    fn add_run(&self, cell: &mut Cell, values: &[u32], place: usize) {
        let loops = self.input.loops;
        // SAFETY: the processor has the level of the program.
        unsafe {
            match (&self.best, self.op) {
                (None, _) if self.class == Class::Float => cell.sum += (loops.sum)(values),
                (None, _) => cell.word = cell.word.wrapping_add((loops.sum_integers)(values)),
                (Some(best), _) => {
                    let word = (best.of_tile)(values);
                    if (best.wins)(word, cell.word) {
                        cell.word = word;
                        if self.is_arg() {
                            cell.place = (place + (best.place)(values, word)) as u32;
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`reduce`](Self::reduce).
    unsafe fn reduce_columns(
        &self,
        kept: &Range<usize>,
        reduced: &Range<usize>,
        runner: &mut Runner<'_>,
        cells: &mut [Cell],
    ) {
        let width = kept.len();
        // Whole rows lie without gaps between them, so several fit a tile, and narrow ones are taken together.
        let is_whole = width == self.kept;
        let wide = WIDE.min(runner.tile_len());
        let together = if is_whole && !self.is_arg() { (wide / width).max(1) } else { 1 };
        let per_tile = if is_whole { (runner.tile_len() / (width * together)).max(1) * together } else { 1 };
        let mut state = Columns::new(width * together, self);
        let mut row = reduced.start;
        while row < reduced.end {
            let rows = per_tile.min(reduced.end - row);
            for part in (0..width * rows).step_by(runner.tile_len()) {
                // More than one step only where a single row is longer than a tile.
                let len = runner.tile_len().min(width * rows - part);
                // SAFETY: these rows are inside of the space; the runner leaves as many words.
                let values = unsafe {
                    let values = runner.run(row * self.kept + kept.start + part, len, std::ptr::null());
                    std::slice::from_raw_parts(values, len)
                };
                if rows > 1 || len == width {
                    state.add_rows(self, values, row, cells);
                } else {
                    state.add_part(self, values, row, part, cells);
                }
            }
            row += rows;
        }
        state.fold(self, cells);
    }

    /// Joins what was found in a later part of the same row.
    fn join(&self, cell: &mut Cell, later: &Cell) {
        match &self.best {
            Some(best) if (best.wins)(later.word, cell.word) => *cell = *later,
            Some(_) => {}
            None => {
                cell.sum += later.sum;
                cell.word = cell.word.wrapping_add(later.word);
            }
        }
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

    fn is_arg(&self) -> bool {
        matches!(self.op, Reduce::ArgMax | Reduce::ArgMin)
    }
}

struct Cut {
    kept: usize,
    reduced: usize,
}

/// Cells that pieces write side by side.
struct Parts(*mut Cell);

// SAFETY: each piece reaches cells of its own.
unsafe impl Sync for Parts {}

impl Parts {
    /// # Safety
    /// There is such a cell.
    unsafe fn at(&self, index: usize) -> *mut Cell {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(index) }
    }
}

/// Columns as vectors want them, before they go into cells.
struct Columns {
    sums: [f32; BATCH],
    words: [u32; BATCH],
    places: [u32; BATCH],
    /// How many columns there are, several rows of them side by side.
    width: usize,
    /// Rows in `sums` since they were folded.
    pending: usize,
}

impl Columns {
    fn new(width: usize, step: &ReduceStep) -> Self {
        let lowest = step.start().word;
        Self { sums: [0.0; BATCH], words: [lowest; BATCH], places: [0; BATCH], width, pending: 0 }
    }

    /// Adds whole rows that lie without gaps, the first of which has number `row`.
    fn add_rows(&mut self, step: &ReduceStep, values: &[u32], row: usize, cells: &mut [Cell]) {
        for (index, values) in values.chunks(self.width).enumerate() {
            self.add_part(step, values, row + index, 0, cells);
        }
    }

    /// Adds columns from number `part` on of one row.
    fn add_part(&mut self, step: &ReduceStep, values: &[u32], row: usize, part: usize, cells: &mut [Cell]) {
        let (loops, range) = (step.input.loops, part..part + values.len());
        // SAFETY: the processor has the level of the program.
        unsafe {
            match &step.best {
                None if step.class == Class::Float => {
                    (loops.add)(&mut self.sums[range.clone()], values);
                    self.pending += usize::from(range.end == self.width);
                    if self.pending == SUM_ROWS {
                        self.fold_sums(cells);
                    }
                }
                None => (loops.add_integers)(&mut self.words[range], values),
                Some(best) if step.is_arg() => {
                    let (words, places) = (&mut self.words[range.clone()], &mut self.places[range]);
                    (best.rows)(words, places, values, row as u32);
                }
                Some(best) => (best.of_rows)(&mut self.words[range], values),
            }
        }
    }

    fn fold_sums(&mut self, cells: &mut [Cell]) {
        for sums in self.sums[..self.width].chunks(cells.len()) {
            cells.iter_mut().zip(sums).for_each(|(cell, &sum)| cell.sum += f64::from(sum));
        }
        self.sums[..self.width].fill(0.0);
        self.pending = 0;
    }

    /// Puts everything into the cells.
    fn fold(&mut self, step: &ReduceStep, cells: &mut [Cell]) {
        self.fold_sums(cells);
        for (words, places) in self.words[..self.width].chunks(cells.len()).zip(self.places.chunks(cells.len())) {
            for ((cell, &word), &place) in cells.iter_mut().zip(words).zip(places) {
                step.join(cell, &Cell { sum: 0.0, word, place });
            }
        }
    }
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

/// What the last instruction gives.
fn class_of(body: &Body) -> Result<Class> {
    let last = body.program.instructions.last().ok_or_else(|| bug("a reduction of nothing".into()))?;
    Ok(match last {
        &Instruction::Load { operand } => body.operands[operand].dtype.class(),
        &Instruction::Scalar { class, .. } | &Instruction::Core { class } => class,
        Instruction::Iota => Class::Uint,
        Instruction::Cast { to, .. } => to.class(),
        Instruction::Op { op, class, .. } => match op.signature {
            Signature::Same { .. } | Signature::Select => *class,
            Signature::Compare | Signature::Bits { .. } => Class::Uint,
            Signature::BitsToFloat { .. } => Class::Float,
        },
    })
}
