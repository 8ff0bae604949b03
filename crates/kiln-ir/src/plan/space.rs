//! Simplification of iteration spaces: each axis costs a loop, or a division of the index.

use crate::kernel::Operand;
use crate::{Layout, Shape};

/// Drops axes of length 1 and merges adjacent axes, separately before and after `kept`. Updates the layouts, and
/// returns the new space and its number of kept axes.
pub(super) fn simplify(space: &Shape, kept: usize, operands: &mut [Operand]) -> (Shape, usize) {
    // No element of an empty space is read, so its strides are irrelevant.
    if space.elem_count() == 0 {
        let still = Layout::strided(space.clone(), &vec![0; space.rank()], 0);
        operands.iter_mut().for_each(|operand| operand.layout = still.clone());
    }
    // Kept and reduced axes are iterated by different counters, so an axis of one group never merges with the other.
    let [(mut lengths, mut merged), (reduced, others)] = [0..kept, kept..space.rank()].map(|axes| {
        let strides: Vec<&[isize]> = operands.iter().map(|operand| &operand.layout.strides()[axes.clone()]).collect();
        Layout::merge_axes(&space[axes], &strides)
    });
    let new_kept = lengths.len();
    lengths.extend(reduced);
    merged.iter_mut().zip(others).for_each(|(merged, others)| merged.extend(others));
    let shape = Shape::from(lengths);
    for (operand, strides) in operands.iter_mut().zip(merged) {
        operand.layout = Layout::strided(shape.clone(), &strides, operand.layout.offset());
    }
    (shape, new_kept)
}
