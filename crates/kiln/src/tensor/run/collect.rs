//! From tensors to a graph: everything that has to run for them, once each, inputs first.

use crate::Tensor;
use crate::tensor::node::{Planned, State};
use kiln_ir::graph::{Graph, Node, NodeId, Op};
use kiln_runtime::Buffer;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// What has to run, as a graph, with the data that it runs on.
pub(super) struct Collected {
    pub(super) graph: Graph,
    /// The tensor of each node of the graph.
    pub(super) tensors: Vec<Tensor>,
    pub(super) inputs: Vec<Buffer>,
    pub(super) scalars: Vec<u32>,
}

impl Collected {
    /// Everything that `wanted` depends on.
    pub(super) fn new(wanted: &[&Tensor]) -> Self {
        let mut collected =
            Self { graph: Graph::default(), tensors: Vec::new(), inputs: Vec::new(), scalars: Vec::new() };
        let mut ids = HashMap::with_hasher(foldhash::fast::FixedState::default());
        // Inputs first, with a stack of its own: a chain of ops may be longer than a thread's stack is deep.
        let mut stack: Vec<Visit> = Vec::new();
        for &tensor in wanted {
            stack.push(Visit::Enter(tensor.clone()));
            while let Some(visit) = stack.pop() {
                match visit {
                    Visit::Enter(tensor) if ids.contains_key(&tensor.address()) => {}
                    Visit::Enter(tensor) => match tensor.0.state() {
                        State::Ready(storage) => {
                            ids.insert(tensor.address(), collected.graph.nodes.len());
                            collected.inputs.push(storage.buffer);
                            collected.push(tensor, Op::Input(storage.layout), SmallVec::new());
                        }
                        State::Planned(planned) => {
                            let inputs = planned.inputs.clone();
                            stack.push(Visit::Leave(tensor, planned));
                            stack.extend(inputs.into_iter().rev().map(Visit::Enter));
                        }
                    },
                    Visit::Leave(tensor, _) if ids.contains_key(&tensor.address()) => {}
                    Visit::Leave(tensor, planned) => {
                        let inputs = planned.inputs.iter().map(|input| ids[&input.address()]).collect();
                        if matches!(planned.op, Op::Scalar) {
                            collected.scalars.push(planned.scalar);
                        }
                        ids.insert(tensor.address(), collected.graph.nodes.len());
                        collected.push(tensor, planned.op, inputs);
                    }
                }
            }
            collected.graph.outputs.push(ids[&tensor.address()]);
        }
        collected.note_held();
        collected
    }

    /// Notes the nodes that somebody beside this graph has a handle to: they are kept if they are stored, and those that were computed once
    /// already without being stored are stored this time. Handles come and go while this counts, which costs a store too many or a
    /// computation later.
    fn note_held(&mut self) {
        let mut uses = vec![0; self.tensors.len()];
        for node in &self.graph.nodes {
            for &input in &node.inputs {
                uses[input] += 1;
            }
        }
        let is_pending = |id: &usize| !matches!(self.graph.nodes[*id].op, Op::Input(_)) && !self.graph.outputs.contains(id);
        // One handle is in the list of tensors.
        let is_held = |id: &usize| Arc::strong_count(&self.tensors[*id].0) > uses[*id] + 1;
        let held = (0..self.tensors.len()).filter(is_pending).filter(is_held);
        let is_view = |id: &usize| matches!(self.graph.nodes[*id].op, Op::View(_));
        let (again, once): (Vec<usize>, Vec<usize>) =
            held.filter(|id| !is_view(id)).partition(|&id| self.tensors[id].0.was_inlined());
        self.graph.outputs.extend(again);
        self.graph.held = once;
    }

    fn push(&mut self, tensor: Tensor, op: Op, inputs: SmallVec<[NodeId; 3]>) {
        self.graph.nodes.push(Node { op, inputs, ty: tensor.0.ty.clone() });
        self.tensors.push(tensor);
    }

    /// The tensors that were asked for.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        self.graph.outputs.iter().map(|&id| &self.tensors[id])
    }
}

/// A step of the walk: on the way to the inputs, or back from them.
enum Visit {
    Enter(Tensor),
    Leave(Tensor, Planned),
}

/// How many nodes have to run for these tensors.
pub(in crate::tensor) fn count_pending(tensors: &[Tensor]) -> usize {
    let wanted: Vec<&Tensor> = tensors.iter().collect();
    let collected = Collected::new(&wanted);
    collected.graph.nodes.len() - collected.inputs.len()
}

impl Tensor {
    /// What tells nodes apart.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}
