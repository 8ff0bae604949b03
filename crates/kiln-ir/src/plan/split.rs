//! Reductions of many elements to few results become two: a device with thousands of threads would leave all but a few idle.

use crate::graph::{Axes, NodeId, Op, OpGraph, OpNode, Reduce, TensorType, View};
use crate::{DType, Shape};
use std::borrow::Cow;

/// A reduction with this many results keeps a device busy.
const MANY_RESULTS: usize = 1024;

/// The graph with every reduction of more than `limit` elements to each of few results split, and what to say about it.
///
/// The first reduced axis is cut into parts: a view for every layout, whatever is fused below it. Each part is reduced, then the parts are.
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

/// The axis to cut and the number of parts, if the node is to be split: as many parts as each has elements, as nearly as the axis allows.
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
    /// Adds a node, in as many reductions as it takes.
    fn push(&mut self, node: OpNode) -> NodeId {
        let node = match (parts(&self.graph, &node, self.limit), &node.op) {
            (Some((axis, parts)), Op::Reduce(op, axes)) => self.reduce_parts(*op, axes, &node, axis, parts),
            _ => node,
        };
        self.graph.nodes.push(node);
        self.graph.nodes.len() - 1
    }

    /// Adds the reduction of each part, and gives what is left of the node: the reduction of the parts.
    fn reduce_parts(&mut self, op: Reduce, axes: &[usize], node: &OpNode, axis: usize, parts: usize) -> OpNode {
        let TensorType { shape, dtype } = self.graph.nodes[node.inputs[0]].ty.clone();
        let wide = dtype.computed();
        let elements = shape.elem_count() / node.ty.shape.elem_count();
        self.notes.push(format!("`{}` of {elements} elements is split: its {parts} parts come first", op.name()));
        // The axis becomes two: the parts, and the elements of each.
        let mut lengths = shape.to_vec();
        lengths[axis] /= parts;
        lengths.insert(axis, parts);
        let in_parts: Axes = axes.iter().map(|&reduced| reduced + usize::from(reduced >= axis)).collect();
        let cut = self.view(node.inputs[0], Shape::from(lengths.clone()), dtype);
        in_parts.iter().for_each(|&reduced| lengths[reduced] = 1);
        let ty = TensorType { shape: Shape::from(lengths.clone()), dtype: wide };
        let partial = self.push(OpNode { op: Op::Reduce(op, in_parts), inputs: [cut].as_slice().into(), ty });
        // The elements of each part are one now: without their axis the shape has the node's rank again.
        lengths.remove(axis + 1);
        let joined = self.view(partial, Shape::from(lengths), wide);
        let op = Op::Reduce(op, [axis].as_slice().into());
        OpNode { op, inputs: [joined].as_slice().into(), ty: node.ty.clone() }
    }

    fn view(&mut self, input: NodeId, shape: Shape, dtype: DType) -> NodeId {
        let (op, ty) = (Op::View(View::Reshape), TensorType { shape, dtype });
        self.push(OpNode { op, inputs: [input].as_slice().into(), ty })
    }
}
