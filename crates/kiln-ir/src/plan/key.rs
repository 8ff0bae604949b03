//! Keys of plans: two keys are equal exactly if their graphs have the same plan.

use crate::Layout;
use crate::graph::{NodeId, Op, OpGraph, TensorType, View};
use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Everything that a plan depends on: ops, attributes, dtypes, shapes, layouts and edges of a graph, but not the
/// values of its scalars.
///
/// Equality compares all words. Preceding words determine the meaning of each word.
///
/// ```
/// use kiln_ir::graph::{Op, OpGraph, OpNode, TensorType};
/// use kiln_ir::{DType, Layout, Shape, plan};
///
/// let graph = |length: usize| {
///     let ty = TensorType { shape: Shape::new(&[length]), dtype: DType::F32 };
///     let op = Op::Input(Layout::contiguous(ty.shape.clone()).into());
///     OpGraph { nodes: vec![OpNode { op, inputs: Default::default(), ty }], outputs: vec![0], held: Vec::new() }
/// };
/// assert_ne!(plan::key(&graph(2)), plan::key(&graph(3)));
/// assert_eq!(plan::structure(&graph(2)), plan::structure(&graph(3)));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PlanKey(Vec<u64>);

/// Prints a hash, because a key may have thousands of words. Eight lanes break the dependency chain of the
/// multiplications.
impl fmt::Debug for PlanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut lanes, chunks) = ([0u64; 8], self.0.chunks_exact(8));
        let rest = chunks.remainder().iter().fold(self.0.len() as u64, |sum, &word| mix(sum, word));
        for words in chunks {
            for (lane, &word) in lanes.iter_mut().zip(words) {
                *lane = mix(*lane, word);
            }
        }
        let mixed = lanes.into_iter().fold(rest, mix);
        write!(f, "{:016x}", (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
}

impl PlanKey {
    /// Returns the size of its words in bytes.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Clears the key and keeps its allocation.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends an input node.
    pub fn push_input(&mut self, layout: &Layout, ty: &TensorType) {
        write_input(&mut self.0, layout, ty, true);
    }

    /// Appends a node.
    pub fn push(&mut self, op: &Op, inputs: &[NodeId], ty: &TensorType) {
        write_node(&mut self.0, op, inputs, ty, true);
    }

    /// Completes the key with the outputs and held nodes.
    pub fn finish(&mut self, outputs: &[NodeId], held: &[NodeId]) {
        self.0.extend([END, outputs.len() as u64, held.len() as u64]);
        self.0.extend(outputs.iter().chain(held).map(|&node| node as u64));
    }
}

/// Returns the key of a graph's plan.
///
/// See [`PlanKey`] for an example.
pub fn key(graph: &OpGraph) -> PlanKey {
    write(graph, true)
}

/// Returns a key shared by all graphs that differ only in lengths, strides and offsets.
///
/// See [`PlanKey`] for an example.
pub fn structure(graph: &OpGraph) -> PlanKey {
    write(graph, false)
}

fn write(graph: &OpGraph, with_lengths: bool) -> PlanKey {
    let mut key = PlanKey::default();
    for node in &graph.nodes {
        write_node(&mut key.0, &node.op, &node.inputs, &node.ty, with_lengths);
    }
    key.finish(&graph.outputs, &graph.held);
    key
}

/// Tags of the node kinds, and of the end.
const INPUT: u64 = 0;
const END: u64 = 11;

fn write_head(words: &mut Vec<u64>, kind: u64, inputs: &[NodeId], ty: &TensorType, with_lengths: bool) {
    let (dtype, rank, arity) = (ty.dtype as u64, ty.shape.rank() as u64, inputs.len() as u64);
    // Rank and arity determine how many words follow, so that different nodes cannot produce the same sequence.
    words.push(kind | dtype << 8 | rank << 16 | arity << 32);
    words.extend(inputs.iter().map(|&input| input as u64));
    if with_lengths {
        words.extend(ty.shape.iter().map(|&length| length as u64));
    }
}

fn write_input(words: &mut Vec<u64>, layout: &Layout, ty: &TensorType, with_lengths: bool) {
    write_head(words, INPUT, &[], ty, with_lengths);
    if with_lengths {
        words.extend(layout.strides().iter().map(|&stride| stride as u64));
        words.push(layout.offset() as u64);
    }
}

fn write_node(words: &mut Vec<u64>, op: &Op, inputs: &[NodeId], ty: &TensorType, with_lengths: bool) {
    let kind = match op {
        Op::Input(layout) => return write_input(words, layout, ty, with_lengths),
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
    write_head(words, kind, inputs, ty, with_lengths);
    match op {
        // The address identifies a static op.
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
            // The type id distinguishes kernels with the same name.
            let mut hasher = DefaultHasher::new();
            let any: &dyn Any = &**op;
            // Type ids and the addresses of ops differ between builds or processes, so a key is valid only in its process.
            any.type_id().hash(&mut hasher);
            let attributes = op.attributes();
            words.extend([hasher.finish(), attributes.len() as u64]);
            words.extend(attributes);
        }
        Op::Input(_) | Op::Scalar | Op::Iota | Op::Cast | Op::View(View::Broadcast | View::Reshape) => {}
    }
}
