//! Iteration in blocks instead of rows, for operands with a transposed layout.
//!
//! Each element of a row of a transposed matrix is in a different cache line. A block of several rows uses all
//! elements of a line.

use kiln_ir::kernel::{Body, Instruction, Operand};

/// Rows of a block: the number of 32-bit words in a cache line.
pub(crate) const BLOCK_ROWS: usize = 16;
/// Smaller spaces fit in a cache in any order.
const MIN_ELEMENTS: usize = 1 << 14;

/// The division of a space: blocks of several rows along one axis, and a part of the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// The axis of the rows.
    axis: usize,
    /// Its length.
    rows: usize,
    /// The length of the last axis.
    columns: usize,
    /// Row stride, in elements of the space.
    pub(crate) pitch: usize,
    elements: usize,
}

/// A block: `rows` runs of `columns` elements, the first at `start`, separated by the pitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Blocks {
    /// Returns the division for a body without a core, if one of its operands is transposed; `None` if iteration in
    /// rows is as good.
    pub(crate) fn of(body: &Body) -> Option<Self> {
        let elements = body.space.elem_count();
        let takes_core = body.program.instructions.iter().any(|code| matches!(code, Instruction::Core { .. }));
        // A core passes its results as runs of consecutive elements, which a block does not have.
        if elements < MIN_ELEMENTS || takes_core {
            return None;
        }
        // Does not underflow: a space of rank 0 has one element, fewer than `MIN_ELEMENTS`.
        let last = body.space.rank() - 1;
        // An axis other than the last along which the operand is contiguous, if the last one has a large stride.
        let transposed_axis = |operand: &Operand| {
            let strides = operand.layout.strides();
            let axis = (0..last).find(|&axis| strides[axis].abs() == 1 && body.space[axis] >= BLOCK_ROWS)?;
            (strides[last].unsigned_abs() >= BLOCK_ROWS && body.space[last] >= BLOCK_ROWS).then_some(axis)
        };
        let axis = body.operands.iter().find_map(transposed_axis)?;
        let pitch = body.space[axis + 1..].iter().product();
        Some(Self { axis, rows: body.space[axis], columns: body.space[last], pitch, elements })
    }

    /// Returns an operand's row stride and column stride.
    pub(crate) fn strides(&self, operand: &Operand) -> [isize; 2] {
        let strides = operand.layout.strides();
        [strides[self.axis], strides[strides.len() - 1]]
    }

    /// Returns the number of blocks of at most `columns` columns.
    pub(crate) fn count(&self, columns: usize) -> usize {
        self.elements / (self.rows * self.columns) * self.rows.div_ceil(BLOCK_ROWS) * self.columns.div_ceil(columns)
    }

    /// Returns a block by its index, for blocks of at most `columns` columns. Adjacent indices have adjacent columns.
    pub(crate) fn block(&self, number: usize, columns: usize) -> Block {
        // Mixed radix, least significant digit first: part of the row, block of rows, then all other axes.
        let across = self.columns.div_ceil(columns);
        let (number, column) = (number / across, number % across * columns);
        let down = self.rows.div_ceil(BLOCK_ROWS);
        let (number, row) = (number / down, number % down * BLOCK_ROWS);
        // Axes between the rows and the last axis, and axes before the rows.
        let between = self.pitch / self.columns;
        let (outer, between) = (number / between, number % between * self.columns);
        Block {
            start: outer * self.rows * self.pitch + row * self.pitch + between + column,
            rows: BLOCK_ROWS.min(self.rows - row),
            columns: columns.min(self.columns - column),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each element is in exactly one block.
    #[test]
    fn blocks_cover_a_space_once() {
        for (outer, rows, between, columns) in [(1, 16, 1, 16), (3, 33, 2, 70), (2, 17, 5, 64), (1, 100, 1, 65)] {
            let (pitch, elements) = (between * columns, outer * rows * between * columns);
            let blocks = Blocks { axis: 0, rows, columns, pitch, elements };
            let mut seen = vec![0; elements];
            for number in 0..blocks.count(64) {
                let block = blocks.block(number, 64);
                for row in 0..block.rows {
                    let start = block.start + row * pitch;
                    seen[start..start + block.columns].iter_mut().for_each(|seen| *seen += 1);
                }
            }
            assert!(seen.iter().all(|&seen| seen == 1), "{blocks:?}");
        }
    }
}
