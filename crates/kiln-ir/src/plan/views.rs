//! Paths of views: how an element of a kernel's space is found in a node that is computed inside the kernel.

use crate::graph::{NodeId, Op, OpGraph, OpNode, View};
use crate::{Layout, Shape};
use std::collections::HashMap;

/// A path of views from a space down to a node.
pub(super) type Path = usize;

/// The path of a node that has the space's own shape and order.
pub(super) const STRAIGHT: Path = 0;

/// Every path in use, each once, so that equal paths have equal numbers.
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
    /// The path to the input of a view, from the path to the view. Identity views add no segment, and a
    /// reshape of a reshape is one segment.
    pub(super) fn through(&mut self, outer: Path, view: &View, shape: &Shape, input: &Shape) -> Path {
        let is_nothing = input == shape
            && match view {
                View::Broadcast | View::Reshape => true,
                View::Permute(axes) => axes.iter().enumerate().all(|(to, &from)| to == from),
                View::Slice { start, step, .. } => *start == 0 && *step == 1,
            };
        if is_nothing {
            return outer;
        }
        if *view == View::Reshape
            && let Some(segment) = outer.checked_sub(1).map(|index| &self.segments[index])
            && segment.view == View::Reshape
        {
            return if segment.shape == *input { segment.outer } else { outer };
        }
        let segment = PathSegment { outer, view: view.clone(), shape: shape.clone() };
        *self.numbers.entry(segment).or_insert_with_key(|segment| {
            self.segments.push(segment.clone());
            self.segments.len()
        })
    }

    /// The input of a view and the path to it, from the path to the view; `None` of a node that is none.
    pub(super) fn enter(&mut self, graph: &OpGraph, node: NodeId, outer: Path) -> Option<(NodeId, Path)> {
        let OpNode { op: Op::View(view), inputs, ty } = &graph.nodes[node] else { return None };
        Some((inputs[0], self.through(outer, view, &ty.shape, &graph.nodes[inputs[0]].ty.shape)))
    }

    /// How the space sees what lies like this; `None` where strides cannot say it.
    pub(super) fn apply(&self, path: Path, layout: &Layout) -> Option<Layout> {
        let (mut layout, mut path) = (layout.clone(), path);
        while path != STRAIGHT {
            let segment = &self.segments[path - 1];
            layout = segment.view.apply(&layout, &segment.shape)?;
            path = segment.outer;
        }
        Some(layout)
    }

    /// Whether the space's elements are those of the node, all of them in the same order.
    pub(super) fn keeps_order(&self, path: Path, shape: &Shape) -> bool {
        path == STRAIGHT
            || self.apply(path, &Layout::contiguous(shape.clone())).is_some_and(|seen| {
                seen.is_contiguous() && seen.offset() == 0 && seen.shape().elem_count() == shape.elem_count()
            })
    }
}
