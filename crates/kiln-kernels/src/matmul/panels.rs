//! Operands as the microkernel reads them: panels of `W` rows of the left operand, or of `W` columns of the right one.

use super::matrix::Matrix;
use super::microkernel::Side;
use kiln_ir::SimdLevel;
use std::ops::Range;

/// An operand in panels: a packed copy, or an `f32` operand in place.
///
/// A packed copy is divided into blocks of steps along the reduction axis. A block has all panels, one after the other. A panel has all of the
/// block's steps, each with `W` elements.
#[derive(Clone, Copy)]
pub(crate) struct Panels<const W: usize> {
    first: *mut f32,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// A packed copy of this many rows or columns, rounded up to whole panels.
    Copied { lanes: usize, from: usize },
    /// The operand itself.
    Direct { lane: isize, step: isize },
}

// SAFETY: whoever writes through it promises that nothing else uses those panels.
unsafe impl<const W: usize> Send for Panels<W> {}
// SAFETY: as above.
unsafe impl<const W: usize> Sync for Panels<W> {}

impl<const W: usize> Panels<W> {
    /// Creates panels for a packed copy of `lanes` rows or columns.
    pub(crate) fn new(first: *mut f32, lanes: usize) -> Self {
        Self { first, kind: Kind::Copied { lanes: lanes.next_multiple_of(W), from: 0 } }
    }

    /// Creates panels that read a matrix of `f32` in place. Its rows are the rows of the panels.
    pub(crate) fn direct(matrix: Matrix<'_>) -> Self {
        let first = matrix.pointer::<f32>().cast_mut();
        Self { first, kind: Kind::Direct { lane: matrix.row, step: matrix.column } }
    }

    /// Packs some panels of a matrix for some steps.
    ///
    /// # Safety
    /// The panels must be a packed copy with room for the matrix, and nothing else may use those that are filled.
    pub(crate) unsafe fn fill(self, level: SimdLevel, matrix: Matrix<'_>, panels: Range<usize>, steps: Range<usize>) {
        let (start, end) = (panels.start * W, (panels.end * W).min(matrix.rows));
        let part = matrix.part(start, end - start, steps.start, steps.len());
        // SAFETY: promised by the caller.
        unsafe { part.pack::<W>(level, self.from(panels.start).start(&steps), steps.len() * W) }
    }

    /// Returns the panels from `panel` on.
    pub(crate) fn from(self, panel: usize) -> Self {
        match self.kind {
            Kind::Copied { lanes, from } => Self { kind: Kind::Copied { lanes, from: from + panel }, ..self },
            Kind::Direct { lane, .. } => {
                Self { first: self.first.wrapping_offset((panel * W) as isize * lane), ..self }
            }
        }
    }

    /// Returns the panels for a block of steps.
    pub(crate) fn side(self, steps: &Range<usize>) -> Side {
        let first = self.start(steps);
        match self.kind {
            Kind::Copied { .. } => Side { first, lane: 1, step: W as isize, panel: (steps.len() * W) as isize },
            Kind::Direct { lane, step } => Side { first, lane, step, panel: W as isize * lane },
        }
    }

    /// Returns the start of the first panel for a block of steps.
    fn start(self, steps: &Range<usize>) -> *mut f32 {
        match self.kind {
            // All lanes of the steps before this block come first. Panels are as long as their block, so `fill` and `side` must get the same blocks.
            Kind::Copied { lanes, from } => self.first.wrapping_add(steps.start * lanes + from * W * steps.len()),
            Kind::Direct { step, .. } => self.first.wrapping_offset(steps.start as isize * step),
        }
    }
}
