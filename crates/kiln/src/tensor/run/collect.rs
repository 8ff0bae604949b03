//! From tensors to a graph: everything that has to run for them, once each, inputs first.

use crate::Tensor;
use crate::tensor::node::{State, Storage};
use foldhash::fast::FixedState;
use kiln_ir::Layout;
use kiln_ir::graph::{Graph, Node, NodeId, Op};
use kiln_runtime::Buffer;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The number of each node, by its address.
type Ids = HashMap<usize, NodeId, FixedState>;

/// What has to run, as a graph, with the data that it runs on.
#[derive(Default)]
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
        let mut collected = Self::default();
        let mut ids = Ids::with_capacity_and_hasher(64, FixedState::default());
        // Inputs first, with a stack of its own: a chain of ops may be longer than a thread's stack is deep.
        let mut stack: Vec<(Tensor, bool)> = Vec::with_capacity(64);
        for &tensor in wanted {
            stack.push((tensor.clone(), false));
            while let Some((tensor, has_inputs)) = stack.pop() {
                if ids.contains_key(&tensor.address()) {
                    continue;
                }
                let state = tensor.0.lock();
                match &*state {
                    State::Planned(planned) if !has_inputs && !planned.inputs.is_empty() => {
                        let inputs = planned.inputs.clone();
                        drop(state);
                        stack.push((tensor, true));
                        stack.extend(inputs.into_iter().rev().map(|input| (input, false)));
                    }
                    state_now => {
                        let node = collected.node(state_now, &tensor, &ids);
                        drop(state);
                        ids.insert(tensor.address(), collected.graph.nodes.len());
                        collected.graph.nodes.push(node);
                        collected.tensors.push(tensor);
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
        let is_pending =
            |id: &usize| !matches!(self.graph.nodes[*id].op, Op::Input(_)) && !self.graph.outputs.contains(id);
        // One handle is in the list of tensors.
        let is_held = |id: &usize| Arc::strong_count(&self.tensors[*id].0) > uses[*id] + 1;
        let held = (0..self.tensors.len()).filter(is_pending).filter(is_held);
        let is_view = |id: &usize| matches!(self.graph.nodes[*id].op, Op::View(_));
        let (again, once): (Vec<usize>, Vec<usize>) =
            held.filter(|id| !is_view(id)).partition(|&id| self.tensors[id].0.was_inlined());
        self.graph.outputs.extend(again);
        self.graph.held = once;
    }

    /// The node of a tensor whose inputs are there.
    fn node(&mut self, state: &State, tensor: &Tensor, ids: &Ids) -> Node {
        let (op, inputs) = match state {
            State::Ready(storage) => {
                let (buffer, layout) = without_offset(storage, tensor);
                self.inputs.push(buffer);
                (Op::Input(layout), SmallVec::new())
            }
            State::Planned(planned) => {
                if matches!(planned.op, Op::Scalar) {
                    self.scalars.push(planned.scalar);
                }
                (planned.op.clone(), planned.inputs.iter().map(|input| ids[&input.address()]).collect())
            }
        };
        Node { op, inputs, ty: tensor.0.ty.clone() }
    }

    /// The tensors that were asked for.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        self.graph.outputs.iter().map(|&id| &self.tensors[id])
    }
}

/// The elements in a buffer that begins with them, as near as the device allows: where a view begins is not part of a plan's key, so that
/// a loop over the parts of a tensor is planned once.
fn without_offset(storage: &Storage, tensor: &Tensor) -> (Buffer, Layout) {
    let element = tensor.dtype().bytes();
    let start = storage.layout.reach().start;
    // A GPU binds at multiples of this; the CPU device, which binds nothing, reads from any element on.
    let step = storage.buffer.device_info().limits.binding_alignment_bytes as usize / element;
    let skipped = start - start % step.max(1);
    match storage.buffer.slice((skipped * element) as u64..) {
        Ok(buffer) if skipped > 0 => (buffer, storage.layout.starting_at(skipped)),
        _ => (storage.buffer.clone(), storage.layout.clone()),
    }
}

/// How many nodes have to run for these tensors, if fewer than `limit`; otherwise `limit`.
pub(in crate::tensor) fn count_pending(tensors: &[Tensor], limit: usize) -> usize {
    let mut seen = HashSet::with_capacity_and_hasher(limit, FixedState::default());
    let mut stack: Vec<Tensor> = tensors.to_vec();
    while let Some(tensor) = stack.pop() {
        if let State::Planned(planned) = &*tensor.0.lock()
            && seen.insert(tensor.address())
        {
            stack.extend(planned.inputs.iter().cloned());
        }
        if seen.len() >= limit {
            break;
        }
    }
    seen.len()
}

impl Tensor {
    /// What tells nodes apart.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}
