//! Fewer axes for the same elements: what runs over a space takes one loop, or one division of an index, for each axis.

use crate::kernel::Operand;
use crate::{Layout, Shape};

/// Drops axes of length 1 and merges adjacent ones, in the axes before `kept` and in those from there on. Gives the new space, with layouts
/// of its shape, and the new number of kept axes.
pub(super) fn simplify(space: &Shape, kept: usize, operands: &mut [Operand]) -> (Shape, usize) {
    // For each new axis, the old ones that it is made of: where it begins and ends.
    let mut groups: Vec<(usize, usize)> = Vec::new();
    let mut new_kept = 0;
    let is_empty = space.elements() == 0;
    for axis in 0..space.rank() {
        if space[axis] == 1 {
            continue;
        }
        let is_first_after_kept = axis >= kept && groups.len() == new_kept;
        match groups.last_mut() {
            Some(group)
                if !is_first_after_kept
                    && (is_empty || operands.iter().all(|o| is_one_run(&o.layout, group.1, axis))) =>
            {
                group.1 = axis;
            }
            _ => groups.push((axis, axis)),
        }
        if axis < kept {
            new_kept = groups.len();
        }
    }
    let shape: Shape = groups.iter().map(|&(first, last)| space[first..=last].iter().product()).collect();
    for operand in operands {
        let layout = &operand.layout;
        // No element of an empty space is ever read, so that strides say nothing.
        let strides: Vec<isize> =
            groups.iter().map(|&(_, last)| if is_empty { 0 } else { layout.strides()[last] }).collect();
        let offset = if is_empty { 0 } else { layout.offset() };
        operand.layout = Layout::strided(shape.clone(), &strides, offset);
    }
    (shape, new_kept)
}

/// Whether one step along the axis `outer` is a walk along all of `inner`. Axes between them have length 1.
fn is_one_run(layout: &Layout, outer: usize, inner: usize) -> bool {
    layout.strides()[outer] == layout.strides()[inner] * layout.shape()[inner] as isize
}
