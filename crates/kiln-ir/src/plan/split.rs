//! Splits reductions of many elements to few results into two stages: a single stage would leave most threads of a
//! device idle.

use crate::graph::{Axes, NodeId, Op, OpGraph, OpNode, Reduce, TensorType, View};
use crate::{DType, Shape};
use std::borrow::Cow;

/// A reduction with at least this many results keeps a device busy.
const MANY_RESULTS: usize = 1024;

/// Splits every reduction with few results and more than `limit` elements per result. Returns the graph and the notes
/// for the report.
///
/// The first reduced axis is split into parts. That is a view for every layout, whatever is fused into the
/// reduction's input. Each part is reduced, then the partial results are.
pub(super) fn split(graph: &OpGraph, limit: usize) -> (Cow<'_, OpGraph>, Vec<String>) {
    if !graph.nodes.iter().any(|node| parts(graph, node, limit).is_some()) {
        return (Cow::Borrowed(graph), Vec::new());
    }
    let mut splitter = Splitter { graph: OpGraph::default(), limit, notes: Vec::new() };
    let mut new_ids: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let mut node = node.clone();
        node.inputs.iter_mut().for_each(|input| *input = new_ids[*input]);
        new_ids.push(splitter.push(node));
    }
    splitter.graph.outputs = graph.outputs.iter().map(|&output| new_ids[output]).collect();
    splitter.graph.held = graph.held.iter().map(|&node| new_ids[node]).collect();
    (Cow::Owned(splitter.graph), splitter.notes)
}

/// Returns the axis to split and the number of parts, or `None` if the node is not split. The number of parts is a divisor
/// of the axis, chosen to balance the two stages.
fn parts(graph: &OpGraph, node: &OpNode, limit: usize) -> Option<(usize, usize)> {
    let Op::Reduce(Reduce::Sum | Reduce::Mean | Reduce::Max | Reduce::Min, axes) = &node.op else { return None };
    let shape = &graph.nodes[node.inputs[0]].ty.shape;
    let results = node.ty.shape.elem_count();
    let elements: usize = axes.iter().map(|&axis| shape[axis]).product();
    if results == 0 || results >= MANY_RESULTS || elements <= limit {
        return None;
    }
    let axis = axes.iter().copied().filter(|&axis| shape[axis] > 1).min()?;
    let length = shape[axis];
    // Only divisors, so that all parts have equal length and the split is a reshape.
    let small = (1..=length.isqrt()).filter(|divisor| length.is_multiple_of(*divisor));
    let divisors = small.flat_map(|divisor| [divisor, length / divisor]).filter(|&parts| 1 < parts && parts < elements);
    let parts = divisors.min_by_key(|&parts| parts.max(elements / parts))?;
    Some((axis, parts))
}

struct Splitter {
    graph: OpGraph,
    limit: usize,
    notes: Vec<String>,
}

impl Splitter {
    /// Appends a node, split into as many reductions as needed.
    fn push(&mut self, node: OpNode) -> NodeId {
        let node = match (parts(&self.graph, &node, self.limit), &node.op) {
            (Some((axis, parts)), Op::Reduce(op, axes)) => self.reduce_parts(*op, axes, &node, axis, parts),
            _ => node,
        };
        self.graph.nodes.push(node);
        self.graph.nodes.len() - 1
    }

    /// Appends the reduction of each part, and returns the reduction of the partial results.
    fn reduce_parts(&mut self, op: Reduce, axes: &[usize], node: &OpNode, axis: usize, parts: usize) -> OpNode {
        let TensorType { shape, dtype } = self.graph.nodes[node.inputs[0]].ty.clone();
        // Partial results keep the computed dtype: rounding each to `f16` or `bf16` would lose digits.
        let wide = dtype.computed();
        let elements = shape.elem_count() / node.ty.shape.elem_count();
        self.notes.push(format!("`{}` of {elements} elements is split into {parts} partial reductions", op.name()));
        // Split the axis in two: parts, and elements per part.
        let mut lengths = shape.to_vec();
        lengths[axis] /= parts;
        lengths.insert(axis, parts);
        let in_parts: Axes = axes.iter().map(|&reduced| reduced + usize::from(reduced >= axis)).collect();
        let cut = self.view(node.inputs[0], Shape::from(lengths.clone()), dtype);
        in_parts.iter().for_each(|&reduced| lengths[reduced] = 1);
        let ty = TensorType { shape: Shape::from(lengths.clone()), dtype: wide };
        // Recursive: a part that is still too long is split again.
        let partial = self.push(OpNode { op: Op::Reduce(op, in_parts), inputs: [cut].as_slice().into(), ty });
        // The elements of each part are reduced to length 1. Removing that axis restores the node's rank.
        lengths.remove(axis + 1);
        let view = self.view(partial, Shape::from(lengths), wide);
        let op = Op::Reduce(op, [axis].as_slice().into());
        OpNode { op, inputs: [view].as_slice().into(), ty: node.ty.clone() }
    }

    fn view(&mut self, input: NodeId, shape: Shape, dtype: DType) -> NodeId {
        let (op, ty) = (Op::View(View::Reshape), TensorType { shape, dtype });
        self.push(OpNode { op, inputs: [input].as_slice().into(), ty })
    }
}
