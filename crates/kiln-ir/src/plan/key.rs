//! Keys of plans: graphs that have the same plan are equal, and nothing else is.

use crate::graph::{Graph, Node, Op, View};
use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a plan depends on: ops, attributes, dtypes, shapes, layouts and edges of a graph, not the values of its scalars.
///
/// Equality compares all of it. Two words that mean different things are told apart by those before them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlanKey(Vec<u64>);

impl PlanKey {
    /// Becomes the key of a graph's plan, in the memory that it has.
    pub fn set(&mut self, graph: &Graph) {
        self.0.clear();
        write(&mut self.0, graph, true);
    }
}

/// The key of a graph's plan.
pub fn key(graph: &Graph) -> PlanKey {
    let mut key = PlanKey::default();
    key.set(graph);
    key
}

/// The key of all graphs that differ in lengths, strides and offsets only.
pub fn structure(graph: &Graph) -> PlanKey {
    let mut words = Vec::new();
    write(&mut words, graph, false);
    PlanKey(words)
}

fn write(words: &mut Vec<u64>, graph: &Graph, with_lengths: bool) {
    words.reserve(3 + graph.outputs.len() + graph.held.len() + 8 * graph.nodes.len());
    words.extend([graph.nodes.len() as u64, graph.outputs.len() as u64, graph.held.len() as u64]);
    words.extend(graph.outputs.iter().chain(&graph.held).map(|&node| node as u64));
    for node in &graph.nodes {
        write_node(words, node, with_lengths);
    }
}

fn write_node(words: &mut Vec<u64>, node: &Node, with_lengths: bool) {
    let kind = match &node.op {
        Op::Input(_) => 0,
        Op::Scalar => 1,
        Op::Iota => 2,
        Op::Element(_) => 3,
        Op::Cast => 4,
        Op::View(View::Permute(_)) => 5,
        Op::View(View::Broadcast) => 6,
        Op::View(View::Reshape) => 7,
        Op::View(View::Slice { .. }) => 8,
        Op::Reduce(..) => 9,
        Op::Kernel(_) => 10,
    };
    let (dtype, rank, arity) = (node.ty.dtype as u64, node.ty.shape.rank() as u64, node.inputs.len() as u64);
    words.push(kind | dtype << 8 | rank << 16 | arity << 32);
    words.extend(node.inputs.iter().map(|&input| input as u64));
    if with_lengths {
        words.extend(node.ty.shape.iter().map(|&length| length as u64));
    }
    match &node.op {
        Op::Input(layout) if with_lengths => {
            words.extend(layout.strides().iter().map(|&stride| stride as u64));
            words.push(layout.offset() as u64);
        }
        // An entry of the table is known by where it is.
        Op::Element(op) => words.push(std::ptr::from_ref(*op) as u64),
        Op::View(View::Permute(axes)) => words.extend(axes.iter().map(|&axis| axis as u64)),
        &Op::View(View::Slice { axis, start, step }) => {
            words.push(axis as u64);
            if with_lengths {
                words.extend([start as u64, step as u64]);
            }
        }
        Op::Reduce(op, axes) => {
            words.push(*op as u64 | (axes.len() as u64) << 8);
            words.extend(axes.iter().map(|&axis| axis as u64));
        }
        Op::Kernel(op) => {
            // Two kernels of one name are still two.
            let mut hasher = DefaultHasher::new();
            let any: &dyn Any = &**op;
            any.type_id().hash(&mut hasher);
            let attributes = op.attributes();
            words.extend([hasher.finish(), attributes.len() as u64]);
            words.extend(attributes);
        }
        Op::Input(_) | Op::Scalar | Op::Iota | Op::Cast | Op::View(View::Broadcast | View::Reshape) => {}
    }
}
