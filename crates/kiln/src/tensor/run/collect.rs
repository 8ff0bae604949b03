//! From tensors to a graph: everything that has to run for them, once each, inputs first.

use crate::Tensor;
use crate::tensor::node::Storage;
use kiln_ir::Layout;
use kiln_ir::graph::{Graph, Node, NodeId, Op};
use kiln_ir::plan::PlanKey;
use kiln_runtime::Buffer;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;

/// What has to run, as a graph, with the data that it runs on.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) graph: Graph,
    /// The key of the graph's plan.
    pub(super) key: PlanKey,
    /// The tensor of each node of the graph.
    pub(super) tensors: Vec<Tensor>,
    /// How many of the tensors that were asked for are here: the first of the outputs.
    pub(super) wanted: usize,
    pub(super) scalars: Vec<u32>,
    inputs: Vec<Input>,
    /// Tensors whose inputs are being collected, each with how many of them are.
    stack: Vec<(Tensor, usize)>,
    /// For each node, how many handles to it the graph and its list of tensors account for.
    handles: Vec<usize>,
}

/// The memory of an input.
enum Input {
    /// That of the tensor of a node, from its beginning on.
    Whole(NodeId),
    /// A part of it.
    Part(Buffer),
}

/// Collects the graphs of a device, one at a time: in the place of a map from tensors to numbers, each node remembers its number in the last
/// graph.
#[derive(Default)]
pub(crate) struct Collector {
    /// Graphs that were run, empty again: collecting into one takes no memory from the system.
    #[expect(clippy::vec_box, reason = "moving one costs more than the allocation that it had once")]
    spare: Mutex<Vec<Box<Collected>>>,
}

/// The most graphs that are kept for reuse, and the most nodes of each.
const MAX_SPARE: usize = 8;
const MAX_SPARE_NODES: usize = 2048;

impl Collector {
    /// Everything that `wanted`, tensors of the collector's device, depend on. From `limit` nodes on, the rest of them is left out.
    pub(super) fn collect(&self, wanted: &[&Tensor], limit: usize) -> Box<Collected> {
        let mut spare = self.spare.lock();
        let mut collected = spare.pop().unwrap_or_default();
        collected.fill(wanted, limit);
        drop(spare);
        collected.key.set(&collected.graph);
        collected
    }

    /// Takes back what [`collect`](Self::collect) gave.
    pub(super) fn recycle(&self, mut collected: Box<Collected>) {
        if collected.tensors.len() > MAX_SPARE_NODES {
            return;
        }
        // Before the lock: the last handles to tensors may go here.
        collected.clear();
        let mut spare = self.spare.lock();
        if spare.len() < MAX_SPARE {
            spare.push(collected);
        }
    }
}

impl Collected {
    fn fill(&mut self, wanted: &[&Tensor], limit: usize) {
        for &tensor in wanted {
            if self.tensors.len() >= limit {
                break;
            }
            let number = self.number_of(tensor).unwrap_or_else(|| self.visit(tensor));
            self.graph.outputs.push(number);
        }
        self.wanted = self.graph.outputs.len();
        self.note_held();
        if self.wanted < wanted.len() {
            // What the rest shares with these is computed once.
            self.graph.outputs.append(&mut self.graph.held);
        }
    }

    /// The node of a tensor, behind those of everything that it depends on. The stack is not the thread's: a chain of ops may be longer than
    /// that is deep.
    fn visit(&mut self, tensor: &Tensor) -> NodeId {
        self.stack.push((tensor.clone(), 0));
        while let Some((tensor, mut found)) = self.stack.pop() {
            let guard = tensor.0.planned();
            let Some(planned) = &*guard else {
                drop(guard);
                self.push_input(tensor);
                continue;
            };
            let mut missing = None;
            for input in &planned.inputs[found..] {
                if self.number_of(input).is_none() {
                    if input.0.storage().is_none() {
                        missing = Some(input.clone());
                        break;
                    }
                    self.push_input(input.clone());
                }
                found += 1;
            }
            if let Some(input) = missing {
                drop(guard);
                self.stack.extend([(tensor, found), (input, 0)]);
                continue;
            }
            if matches!(planned.op, Op::Scalar) {
                self.scalars.push(planned.scalar);
            }
            let mut inputs = SmallVec::new();
            planned.inputs.iter().for_each(|input| inputs.push(input.0.number()));
            let node = Node { op: planned.op.clone(), inputs, ty: tensor.0.kind.ty.clone() };
            drop(guard);
            self.push(node, tensor);
        }
        self.tensors.len() - 1
    }

    /// The node of a tensor that is in memory.
    fn push_input(&mut self, tensor: Tensor) {
        let storage = tensor.0.storage().expect("what is not planned is stored");
        let (input, layout) = match without_offset(storage, &tensor) {
            Some((part, layout)) => (Input::Part(part), Arc::new(layout)),
            None => (Input::Whole(self.tensors.len()), Arc::clone(&storage.layout)),
        };
        self.inputs.push(input);
        let node = Node { op: Op::Input(layout), inputs: SmallVec::new(), ty: tensor.0.kind.ty.clone() };
        self.push(node, tensor);
    }

    fn push(&mut self, node: Node, tensor: Tensor) {
        tensor.0.set_number(self.tensors.len());
        self.graph.nodes.push(node);
        self.tensors.push(tensor);
    }

    /// The node of a tensor, if it has one: a number of an earlier graph leads to another tensor.
    fn number_of(&self, tensor: &Tensor) -> Option<NodeId> {
        let number = tensor.0.number();
        self.tensors.get(number).filter(|found| Arc::ptr_eq(&found.0, &tensor.0)).map(|_| number)
    }

    /// Notes the nodes that somebody beside this graph has a handle to: they are kept if they are stored, and those that were computed once
    /// already without being stored are stored this time. Handles come and go while this counts, which costs a store too many or a
    /// computation later.
    fn note_held(&mut self) {
        // One handle is in the list of tensors.
        self.handles.resize(self.tensors.len(), 1);
        for node in &self.graph.nodes {
            for &input in &node.inputs {
                self.handles[input] += 1;
            }
        }
        // Outputs are stored whoever has a handle.
        self.graph.outputs.iter().for_each(|&output| self.handles[output] = usize::MAX);
        for (id, (node, tensor)) in self.graph.nodes.iter().zip(&self.tensors).enumerate() {
            if Arc::strong_count(&tensor.0) <= self.handles[id] || matches!(node.op, Op::Input(_) | Op::View(_)) {
                continue;
            }
            let list = if tensor.0.was_inlined() { &mut self.graph.outputs } else { &mut self.graph.held };
            list.push(id);
        }
    }

    /// The tensors of the graph's outputs.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        self.graph.outputs.iter().map(|&id| &self.tensors[id])
    }

    /// The memory of the inputs, in order.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.inputs.iter().map(|input| match input {
            Input::Part(buffer) => buffer,
            Input::Whole(node) => &self.tensors[*node].0.storage().expect("inputs are stored").buffer,
        })
    }

    /// How many nodes have to run.
    pub(super) fn pending(&self) -> usize {
        self.tensors.len() - self.inputs.len()
    }

    fn clear(&mut self) {
        let Self { graph: Graph { nodes, outputs, held }, key: _, tensors, wanted: _, scalars, inputs, stack, handles } =
            self;
        nodes.clear();
        outputs.clear();
        held.clear();
        tensors.clear();
        scalars.clear();
        inputs.clear();
        stack.clear();
        handles.clear();
    }
}

/// The elements in a buffer that begins with them, as near as the device allows, where that is not the tensor's own: where a view begins is
/// not part of a plan's key, so that a loop over the parts of a tensor is planned once.
fn without_offset(storage: &Storage, tensor: &Tensor) -> Option<(Buffer, Layout)> {
    if storage.layout.offset() == 0 {
        return None;
    }
    let element = tensor.dtype().bytes();
    let start = storage.layout.reach().start;
    // A GPU binds at multiples of this; the CPU device, which binds nothing, reads from any element on.
    let step = storage.buffer.device_info().limits.binding_alignment_bytes as usize / element;
    let skipped = start - start % step.max(1);
    let part = storage.buffer.slice((skipped * element) as u64..).ok().filter(|_| skipped > 0)?;
    Some((part, storage.layout.starting_at(skipped)))
}
