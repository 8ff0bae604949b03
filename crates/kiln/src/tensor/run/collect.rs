//! From tensors to a graph: everything that has to run for them, once each, inputs first.

use crate::Tensor;
use crate::tensor::node::{Planned, Storage};
use kiln_device::Buffer;
use kiln_ir::Layout;
use kiln_ir::graph::{NodeId, Op, OpGraph, OpNode};
use kiln_ir::plan::PlanKey;
use parking_lot::Mutex;
use std::sync::Arc;

/// What has to run, with the data that it runs on. The graph itself is made only where its plan is not known yet.
#[derive(Default)]
pub(super) struct Collected {
    /// The key of the graph's plan.
    pub(super) key: PlanKey,
    /// The nodes of the graph.
    nodes: Vec<Visited>,
    /// The inputs of all nodes, one node after the other.
    edges: Vec<NodeId>,
    /// The nodes whose results are wanted.
    pub(super) outputs: Vec<NodeId>,
    /// The nodes whose results are welcome.
    pub(super) held: Vec<NodeId>,
    /// How many of the tensors that were asked for are here: the first of the outputs.
    pub(super) wanted: usize,
    pub(super) scalars: Vec<u32>,
    inputs: Vec<Input>,
    /// Tensors whose inputs are being collected, each with how many of them are.
    stack: Vec<(Tensor, Arc<Planned>, usize)>,
}

/// A node of the graph.
struct Visited {
    tensor: Tensor,
    /// How it is computed; `None` for an input.
    planned: Option<Arc<Planned>>,
    /// How many handles to the tensor this list and the nodes of the graph account for.
    handles: usize,
}

/// The memory of an input.
enum Input {
    /// That of the tensor of a node, from its beginning on.
    Whole(NodeId),
    /// A part of it.
    Part(Buffer, Arc<Layout>),
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
        collected.key.finish(&collected.outputs, &collected.held);
        collected
    }

    /// Takes back what [`collect`](Self::collect) gave.
    pub(super) fn recycle(&self, mut collected: Box<Collected>) {
        if collected.nodes.len() > MAX_SPARE_NODES {
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
            if self.nodes.len() >= limit {
                break;
            }
            let number = self.number_of(tensor).unwrap_or_else(|| self.visit(tensor));
            self.outputs.push(number);
        }
        self.wanted = self.outputs.len();
        self.note_held();
        if self.wanted < wanted.len() {
            // What the rest shares with these is computed once.
            self.outputs.append(&mut self.held);
        }
    }

    /// The node of a tensor, behind those of everything that it depends on. The stack is not the thread's: a chain of ops may be longer than
    /// that is deep.
    fn visit(&mut self, tensor: &Tensor) -> NodeId {
        self.enter(tensor);
        while let Some((tensor, planned, mut found)) = self.stack.pop() {
            let missing = loop {
                match planned.inputs.get(found) {
                    Some(input) if self.number_of(input).is_none() => break Some(input.clone()),
                    Some(_) => found += 1,
                    None => break None,
                }
            };
            match missing {
                Some(input) => {
                    self.stack.push((tensor, planned, found + 1));
                    self.enter(&input);
                }
                None => self.push_planned(tensor, planned),
            }
        }
        self.nodes.len() - 1
    }

    /// Makes a node of a tensor: at once where it is in memory, behind those of its inputs otherwise.
    fn enter(&mut self, tensor: &Tensor) {
        match tensor.0.planned() {
            Some(planned) => self.stack.push((tensor.clone(), planned, 0)),
            None => self.push_input(tensor.clone()),
        }
    }

    /// The node of a tensor that is in memory.
    fn push_input(&mut self, tensor: Tensor) {
        let storage = tensor.0.storage().expect("what is not planned is stored");
        let ty = &tensor.0.kind.ty;
        match without_offset(storage, &tensor) {
            Some((part, layout)) => {
                self.key.push_input(&layout, ty);
                self.inputs.push(Input::Part(part, layout.into()));
            }
            None => {
                self.key.push_input(&storage.layout, ty);
                self.inputs.push(Input::Whole(self.nodes.len()));
            }
        }
        self.push(tensor, None);
    }

    /// The node of a tensor whose inputs have theirs.
    fn push_planned(&mut self, tensor: Tensor, planned: Arc<Planned>) {
        let first = self.edges.len();
        for input in &planned.inputs {
            let number = input.0.number();
            self.nodes[number].handles += 1;
            self.edges.push(number);
        }
        self.key.push(&planned.op, &self.edges[first..], &tensor.0.kind.ty);
        if matches!(planned.op, Op::Scalar) {
            self.scalars.push(planned.scalar);
        }
        self.push(tensor, Some(planned));
    }

    fn push(&mut self, tensor: Tensor, planned: Option<Arc<Planned>>) {
        tensor.0.set_number(self.nodes.len());
        self.nodes.push(Visited { tensor, planned, handles: 1 });
    }

    /// The node of a tensor, if it has one: a number of an earlier graph leads to another tensor.
    fn number_of(&self, tensor: &Tensor) -> Option<NodeId> {
        let number = tensor.0.number();
        self.nodes.get(number).filter(|found| Arc::ptr_eq(&found.tensor.0, &tensor.0)).map(|_| number)
    }

    /// Notes the nodes that somebody beside this graph has a handle to, or that gradients may need: they are kept if they are stored, and those
    /// that were computed once already without being stored are stored this time. What kernels and reductions computed for
    /// gradients is stored at once. Handles come and go while this counts, which costs a store too many or a
    /// computation later.
    fn note_held(&mut self) {
        // Outputs are stored whoever has a handle.
        self.outputs.iter().for_each(|&output| self.nodes[output].handles = usize::MAX);
        for (id, Visited { tensor, planned, handles }) in self.nodes.iter().enumerate() {
            let is_recorded =
                tensor.0.record.as_ref().is_some_and(|record| record.is_wanted()) && *handles < usize::MAX;
            if Arc::strong_count(&tensor.0) <= *handles && !is_recorded {
                continue;
            }
            let Some(planned) = planned.as_ref().filter(|planned| !matches!(planned.op, Op::View(_))) else { continue };
            let is_costly = is_recorded && matches!(planned.op, Op::Kernel(_) | Op::Reduce(..));
            let list = if is_costly || tensor.0.was_inlined() { &mut self.outputs } else { &mut self.held };
            list.push(id);
        }
    }

    /// The graph of the nodes.
    pub(super) fn graph(&self) -> OpGraph {
        let (mut edges, mut inputs) = (self.edges.iter().copied(), self.inputs.iter());
        let node = |Visited { tensor, planned, .. }: &Visited| {
            let (op, arity) = match planned {
                Some(planned) => (planned.op.clone(), planned.inputs.len()),
                None => (Op::Input(self.layout(inputs.next().expect("each node without an op is an input"))), 0),
            };
            OpNode { op, inputs: edges.by_ref().take(arity).collect(), ty: tensor.0.kind.ty.clone() }
        };
        let nodes = self.nodes.iter().map(node).collect();
        OpGraph { nodes, outputs: self.outputs.clone(), held: self.held.clone() }
    }

    /// How the elements of an input lie in its memory.
    fn layout(&self, input: &Input) -> Arc<Layout> {
        Arc::clone(match input {
            Input::Part(_, layout) => layout,
            Input::Whole(node) => &self.stored(*node).layout,
        })
    }

    /// The tensor of a node.
    pub(super) fn tensor(&self, node: NodeId) -> &Tensor {
        &self.nodes[node].tensor
    }

    /// The memory of the inputs, in order.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.inputs.iter().map(|input| match input {
            Input::Part(buffer, _) => buffer,
            Input::Whole(node) => &self.stored(*node).buffer,
        })
    }

    fn stored(&self, input: NodeId) -> &Storage {
        self.tensor(input).0.storage().expect("inputs are stored")
    }

    /// How many nodes have to run.
    pub(super) fn pending(&self) -> usize {
        self.nodes.len() - self.inputs.len()
    }

    fn clear(&mut self) {
        let Self { key, nodes, edges, outputs, held, wanted: _, scalars, inputs, stack } = self;
        key.clear();
        nodes.clear();
        edges.clear();
        outputs.clear();
        held.clear();
        scalars.clear();
        inputs.clear();
        stack.clear();
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
    let step = tensor.device().target().input_alignment_bytes / element;
    let skipped = start - start % step.max(1);
    let part = storage.buffer.slice((skipped * element) as u64..).ok().filter(|_| skipped > 0)?;
    Some((part, storage.layout.starting_at(skipped)))
}
