//! View paths: how an element of a kernel's space maps to an element of a node fused into the kernel.

use crate::graph::{NodeId, Op, OpGraph, OpNode, View};
use crate::{Layout, Shape};
use std::collections::HashMap;

/// A chain of views from a space to a node.
pub(super) type Path = usize;

/// The empty path: the node has the shape and order of the space.
pub(super) const IDENTITY: Path = 0;

/// Interned paths, so that equal paths have equal ids.
#[derive(Default)]
pub(super) struct Paths {
    /// Path `n` is segment `n - 1`.
    segments: Vec<PathSegment>,
    numbers: HashMap<PathSegment, Path>,
}

/// The last view of a path.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PathSegment {
    /// The path to the view.
    outer: Path,
    view: View,
    /// The shape of the view.
    shape: Shape,
}

impl Paths {
    /// Extends the path to a view by the view, giving the path to its input. Identity views add no segment, and a
    /// reshape of a reshape is one segment.
    pub(super) fn through(&mut self, outer: Path, view: &View, shape: &Shape, input: &Shape) -> Path {
        let is_identity = input == shape
            && match view {
                View::Broadcast | View::Reshape => true,
                View::Permute(axes) => axes.iter().enumerate().all(|(to, &from)| to == from),
                View::Slice { start, step, .. } => *start == 0 && *step == 1,
            };
        if is_identity {
            return outer;
        }
        if *view == View::Reshape
            && let Some(segment) = outer.checked_sub(1).map(|index| &self.segments[index])
            && segment.view == View::Reshape
        {
            // Both keep the row-major order, so the outer reshape alone is enough. If it restores the input's shape, the
            // two cancel.
            return if segment.shape == *input { segment.outer } else { outer };
        }
        let segment = PathSegment { outer, view: view.clone(), shape: shape.clone() };
        *self.numbers.entry(segment).or_insert_with_key(|segment| {
            self.segments.push(segment.clone());
            self.segments.len()
        })
    }

    /// Returns the input of a view and the path to it; `None` if the node is not a view.
    pub(super) fn enter(&mut self, graph: &OpGraph, node: NodeId, outer: Path) -> Option<(NodeId, Path)> {
        let OpNode { op: Op::View(view), inputs, ty } = &graph.nodes[node] else { return None };
        Some((inputs[0], self.through(outer, view, &ty.shape, &graph.nodes[inputs[0]].ty.shape)))
    }

    /// Returns the layout seen from the space; `None` if strides cannot express it.
    pub(super) fn apply(&self, path: Path, layout: &Layout) -> Option<Layout> {
        let (mut layout, mut path) = (layout.clone(), path);
        // From the node to the space: the last segment is the view nearest to the node.
        while path != IDENTITY {
            let segment = &self.segments[path - 1];
            layout = segment.view.apply(&layout, &segment.shape)?;
            path = segment.outer;
        }
        Some(layout)
    }

    /// Returns whether the path keeps all elements of the node, in the same order.
    pub(super) fn keeps_order(&self, path: Path, shape: &Shape) -> bool {
        path == IDENTITY
            || self.apply(path, &Layout::contiguous(shape.clone())).is_some_and(|seen| {
                seen.is_contiguous() && seen.offset() == 0 && seen.shape().elem_count() == shape.elem_count()
            })
    }
}
