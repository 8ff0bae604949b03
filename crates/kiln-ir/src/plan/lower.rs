//! Lowering: generates the programs of a kernel and their operands.

use super::fuse::{Fuser, StoreReason};
use super::space::simplify;
use super::views::{IDENTITY, Path};
use crate::graph::{NodeId, Op, Reduce};
use crate::kernel::{Body, Core, Instruction, Operand, Program};
use crate::op::{ElementOp, Signature};
use crate::{Class, DType, Layout, Shape};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// The source of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    /// An input of the graph.
    Input(NodeId),
    /// A stored node.
    Stored(NodeId),
}

/// A kernel whose operands are graph nodes.
pub(super) struct Lowered {
    /// The node that it stores.
    pub(super) root: NodeId,
    pub(super) core: Core,
    pub(super) core_nodes: Nodes,
    pub(super) body: Body,
    pub(super) body_nodes: Nodes,
}

/// The graph nodes of a program or a core.
#[derive(Default)]
pub(super) struct Nodes {
    /// The source of each operand.
    pub(super) leaves: Vec<Leaf>,
    /// Computed nodes, with the instruction of each.
    pub(super) computed: Vec<(NodeId, usize)>,
}

/// The error of lowering: a node that must be stored by another kernel first, and why. The fuser stores it and starts
/// another round.
type Blocked = (NodeId, StoreReason);

/// Lowers the kernel that stores `root`. `core` is its reduction or kernel op; without one, it is a map.
pub(super) fn kernel(fuser: &mut Fuser<'_>, root: NodeId, core: Option<NodeId>) -> Result<Lowered, Blocked> {
    let graph = fuser.graph;
    let (lowered_core, core_nodes) = match core.map(|core| (core, &graph.nodes[core])) {
        None => (Core::Map, Nodes::default()),
        Some((id, node)) => match &node.op {
            &Op::Reduce(op, ref axes) => {
                let (path, space, kept) = fuser.reduced_space(&graph.nodes[node.inputs[0]].ty.shape, axes);
                let mut prologue = Lowerer::new(fuser, None);
                prologue.value(node.inputs[0], path, false)?;
                let (input, nodes, kept) = prologue.finish(&space, kept, true);
                (Core::Reduce { op, input, kept }, nodes)
            }
            Op::Kernel(op) => {
                let (mut operands, mut nodes) = (Vec::with_capacity(node.inputs.len()), Nodes::default());
                for (index, &operand) in node.inputs.iter().enumerate() {
                    let copied = (operand, StoreReason::Copied { kernel: id, operand: index });
                    let (leaf, layout) = fuser.operand(&**op, index, operand).ok_or(copied)?;
                    operands.push(Operand { dtype: graph.nodes[operand].ty.dtype, layout });
                    nodes.leaves.push(leaf);
                }
                (Core::Op { op: Arc::clone(op), operands }, nodes)
            }
            _ => (Core::Map, Nodes::default()),
        },
    };
    let space = &graph.nodes[root].ty.shape;
    let mut epilogue = Lowerer::new(fuser, core);
    epilogue.value(root, IDENTITY, true)?;
    // A hand-written kernel is guaranteed the output's shape as the space of its epilogue, so its axes are not merged.
    let (body, body_nodes, _) = epilogue.finish(space, space.rank(), !matches!(lowered_core, Core::Op { .. }));
    Ok(Lowered { root, core: lowered_core, core_nodes, body, body_nodes })
}

/// Builds one program: a prologue, or the epilogue of a core.
struct Lowerer<'f, 'a> {
    fuser: &'f mut Fuser<'a>,
    /// The node whose result an epilogue starts from.
    core: Option<NodeId>,
    operands: Vec<Operand>,
    instructions: Vec<Instruction>,
    nodes: Nodes,
    /// Values computed so far, by node and path.
    values: HashMap<(NodeId, Path), usize>,
    /// Inputs of the views entered on the way to the current node, outermost first, with their paths.
    views: Vec<(NodeId, Path)>,
}

impl<'f, 'a> Lowerer<'f, 'a> {
    fn new(fuser: &'f mut Fuser<'a>, core: Option<NodeId>) -> Self {
        Self {
            fuser,
            core,
            operands: Vec::new(),
            instructions: Vec::new(),
            nodes: Nodes::default(),
            values: HashMap::new(),
            views: Vec::new(),
        }
    }

    /// Returns the instruction that computes a node as seen through a path of views. The recursion depth is bounded by
    /// the program size.
    fn value(&mut self, node: NodeId, path: Path, is_root: bool) -> Result<usize, Blocked> {
        let depth = self.views.len();
        // The root is marked as stored, by this very kernel, which must compute it.
        let (mut id, mut under, mut is_stored) = (node, path, self.fuser.stored[node] && !is_root);
        let graph = self.fuser.graph;
        // Views are not instructions: they change the path, and so the layout that an operand is read with.
        while !is_stored && let Some(below) = self.fuser.paths.enter(graph, id, under) {
            self.views.push(below);
            (id, under) = below;
            is_stored = self.fuser.stored[id];
        }
        // By path too: under another path, an element of the space needs another element of the node.
        let value = match self.values.get(&(id, under)) {
            Some(&value) => value,
            None => {
                let value = self.compute(id, under, is_stored)?;
                self.values.insert((id, under), value);
                value
            }
        };
        // The caller's other operands are not seen through these views.
        self.views.truncate(depth);
        Ok(value)
    }

    fn compute(&mut self, id: NodeId, path: Path, is_stored: bool) -> Result<usize, Blocked> {
        let node = &self.fuser.graph.nodes[id];
        let dtype = node.ty.dtype;
        if is_stored || matches!(node.op, Op::Input(_)) {
            return match self.fuser.read(id, path, |_| true) {
                Some((leaf, layout)) => Ok(self.load(leaf, dtype, &layout)),
                None => Err(self.fuser.innermost_readable(&self.views)),
            };
        }
        match &node.op {
            Op::Scalar => {
                let scalar = self.fuser.numbers[id];
                Ok(self.push(Instruction::Scalar { scalar, class: dtype.class() }))
            }
            // The instruction gives the index in the kernel's space, which must have the elements of the node in order.
            Op::Iota if self.fuser.paths.keeps_order(path, &node.ty.shape) => Ok(self.push(Instruction::Iota)),
            Op::Iota => Err((id, StoreReason::Iota)),
            Op::Cast => {
                let input = node.inputs[0];
                let from = self.fuser.graph.nodes[input].ty.dtype;
                let arg = self.value(input, path, false)?;
                // Values are computed in `from.computed()` already, so a cast to it changes nothing.
                let is_noop = dtype == from.computed();
                let value =
                    if is_noop { arg } else { self.push(Instruction::Cast { arg, from: from.class(), to: dtype }) };
                self.nodes.computed.push((id, value));
                Ok(value)
            }
            Op::Element(op) => {
                let args: SmallVec<[usize; 3]> =
                    node.inputs.iter().map(|&input| self.value(input, path, false)).collect::<Result<_, _>>()?;
                let class = class_of(op, |input| self.fuser.graph.nodes[node.inputs[input]].ty.dtype);
                let value = self.push(Instruction::Op { op, class, args });
                let value =
                    if matches!(op.signature, Signature::Same { .. }) { self.wrap(value, dtype) } else { value };
                self.nodes.computed.push((id, value));
                Ok(value)
            }
            op => {
                debug_assert_eq!(self.core, Some(id), "only the core is not computed by instructions");
                let value = self.push(Instruction::Core { class: dtype.class() });
                // 8-bit elements are summed in words, so only the total wraps.
                Ok(if matches!(op, Op::Reduce(Reduce::Sum, _)) { self.wrap(value, dtype) } else { value })
            }
        }
    }

    /// Wraps the result of 8-bit integer arithmetic, which is computed in 32 bits. `Bool` ops only produce 0 and 1.
    fn wrap(&mut self, arg: usize, dtype: DType) -> usize {
        match dtype {
            DType::U8 | DType::I8 => self.push(Instruction::Cast { arg, from: dtype.class(), to: dtype }),
            _ => arg,
        }
    }

    /// Appends a load of a leaf, as a new operand unless an equal one exists.
    fn load(&mut self, leaf: Leaf, dtype: DType, layout: &Layout) -> usize {
        // The stride of an axis of length 1 is irrelevant; zeroing it makes equal operands compare equal.
        let strides: SmallVec<[isize; 4]> = layout
            .shape()
            .iter()
            .zip(layout.strides())
            .map(|(&length, &stride)| if length == 1 { 0 } else { stride })
            .collect();
        let operand = Operand { dtype, layout: Layout::strided(layout.shape().clone(), &strides, layout.offset()) };
        let known = self.nodes.leaves.iter().zip(&self.operands).position(|known| known == (&leaf, &operand));
        let operand = known.unwrap_or_else(|| {
            self.nodes.leaves.push(leaf);
            self.operands.push(operand);
            self.operands.len() - 1
        });
        self.push(Instruction::Load { operand })
    }

    /// Appends an instruction, or returns an equal existing one (common subexpression elimination).
    fn push(&mut self, instruction: Instruction) -> usize {
        let known = self.instructions.iter().position(|known| *known == instruction);
        known.unwrap_or_else(|| {
            self.instructions.push(instruction);
            self.instructions.len() - 1
        })
    }

    /// Returns the program over `space`, its nodes, and the number of kept axes. Simplifying merges axes of the space.
    fn finish(mut self, space: &Shape, kept: usize, is_simplified: bool) -> (Body, Nodes, usize) {
        let (space, kept) =
            if is_simplified { simplify(space, kept, &mut self.operands) } else { (space.clone(), kept) };
        let program = Program { instructions: self.instructions };
        (Body { space, operands: self.operands, program }, self.nodes, kept)
    }
}

/// Returns the class that selects the variant of an op: the class of its operands, apart from the condition of a select.
fn class_of(op: &ElementOp, dtype: impl Fn(usize) -> DType) -> Class {
    match op.signature {
        Signature::Same { .. } | Signature::Compare => dtype(0).class(),
        Signature::Select => dtype(1).class(),
        Signature::Bits { .. } | Signature::BitsToFloat { .. } => Class::Uint,
    }
}
