//! Collects the pending graph of tensors in topological order.

use crate::Tensor;
use crate::tensor::node::{Planned, Storage};
use kiln_device::Buffer;
use kiln_ir::Layout;
use kiln_ir::graph::{NodeId, Op, OpGraph, OpNode};
use kiln_ir::plan::PlanKey;
use parking_lot::Mutex;
use std::sync::Arc;

/// A collected graph with its input data. The `OpGraph` is built only on a plan cache miss.
#[derive(Default)]
pub(super) struct Collected {
    /// The key of the graph's plan.
    pub(super) key: PlanKey,
    /// The nodes of the graph.
    nodes: Vec<Visited>,
    /// The inputs of all nodes, concatenated in node order.
    edges: Vec<NodeId>,
    /// Nodes whose results must be stored.
    pub(super) outputs: Vec<NodeId>,
    /// Nodes with outside handles, whose results are kept if the plan stores them anyway.
    pub(super) held: Vec<NodeId>,
    /// The number of requested tensors in this graph: the leading outputs.
    pub(super) wanted: usize,
    pub(super) scalars: Vec<u32>,
    inputs: Vec<Input>,
    /// Tensors whose inputs are being collected, each with the number of inputs done.
    stack: Vec<(Tensor, Arc<Planned>, usize)>,
}

/// A node of the graph.
struct Visited {
    tensor: Tensor,
    /// How it is computed; `None` for an input.
    planned: Option<Arc<Planned>>,
    /// The number of handles to the tensor held by this list and by nodes of the graph.
    handles: usize,
}

/// The memory of an input.
enum Input {
    /// The memory of a node's tensor, from its start.
    Whole(NodeId),
    /// A slice of that memory.
    Part(Buffer, Arc<Layout>),
}

/// Collects the graphs of a device, one at a time: instead of a map from tensors to indices, each node stores its
/// index in the last graph.
#[derive(Default)]
pub(crate) struct Collector {
    /// Cleared graphs for reuse, so that collecting does not allocate.
    #[expect(clippy::vec_box, reason = "a box is cheaper to move than the struct, and is allocated once")]
    spare: Mutex<Vec<Box<Collected>>>,
}

/// Maximum number of graphs kept for reuse, and maximum nodes of each.
const MAX_SPARE: usize = 8;
const MAX_SPARE_NODES: usize = 2048;

impl Collector {
    /// Collects everything that `wanted`, tensors of the collector's device, depend on. Stops adding tensors once the
    /// graph has `limit` nodes.
    pub(super) fn collect(&self, wanted: &[&Tensor], limit: usize) -> Box<Collected> {
        let mut spare = self.spare.lock();
        let mut collected = spare.pop().unwrap_or_default();
        // The lock also guards the indices that `fill` writes to the nodes.
        collected.fill(wanted, limit);
        drop(spare);
        collected.key.finish(&collected.outputs, &collected.held);
        collected
    }

    /// Returns a graph from [`collect`](Self::collect) for reuse.
    pub(super) fn recycle(&self, mut collected: Box<Collected>) {
        if collected.nodes.len() > MAX_SPARE_NODES {
            return;
        }
        // Cleared before locking: this may drop the last handles to tensors.
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
            // Checked between tensors only: a tensor is collected with everything it depends on, so a graph may
            // exceed the limit.
            if self.nodes.len() >= limit {
                break;
            }
            let number = self.number_of(tensor).unwrap_or_else(|| self.visit(tensor));
            self.outputs.push(number);
        }
        self.wanted = self.outputs.len();
        self.mark_held();
        if self.wanted < wanted.len() {
            // Store shared nodes, so that the remaining tensors do not recompute them.
            self.outputs.append(&mut self.held);
        }
    }

    /// Adds a tensor after everything that it depends on. Uses an explicit stack, because a long chain of ops would
    /// overflow the thread's stack.
    fn visit(&mut self, tensor: &Tensor) -> NodeId {
        self.enter(tensor);
        // Depth-first search in post-order: an entry stays on the stack until all its inputs have a node.
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
                    // Entries above this one are popped first, so `input` has its node when the search returns here.
                    self.stack.push((tensor, planned, found + 1));
                    self.enter(&input);
                }
                None => self.push_planned(tensor, planned),
            }
        }
        // In post-order the root comes last.
        self.nodes.len() - 1
    }

    /// Adds a stored tensor at once, and schedules others after their inputs.
    fn enter(&mut self, tensor: &Tensor) {
        match tensor.0.planned() {
            Some(planned) => self.stack.push((tensor.clone(), planned, 0)),
            None => self.push_input(tensor.clone()),
        }
    }

    /// Adds a stored tensor as an input node.
    fn push_input(&mut self, tensor: Tensor) {
        // `set_ready` sets the storage before it takes the planned op, so a thread that sees no op also sees the
        // storage.
        let storage = tensor.0.storage().expect("a tensor without a planned op is stored");
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

    /// Adds a tensor whose inputs are already in the graph.
    fn push_planned(&mut self, tensor: Tensor, planned: Arc<Planned>) {
        let first = self.edges.len();
        for input in &planned.inputs {
            // `visit` found a node for every input under the same lock, so the index refers to this graph.
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
        // The handle in this list counts as one; each use as an input adds one more. A node with further handles is
        // held by someone outside the graph.
        self.nodes.push(Visited { tensor, planned, handles: 1 });
    }

    /// Returns the node of a tensor, if it is in this graph. An index left over from an earlier graph refers to
    /// another tensor.
    fn number_of(&self, tensor: &Tensor) -> Option<NodeId> {
        let number = tensor.0.number();
        self.nodes.get(number).filter(|found| Arc::ptr_eq(&found.tensor.0, &tensor.0)).map(|_| number)
    }

    /// Marks nodes that have handles outside this graph, or that gradients may need. They are kept if the plan stores
    /// them; nodes already computed once without being stored are stored this time. Results of kernels and reductions
    /// that gradients need are always stored. Other threads may change handle counts meanwhile, which costs at most
    /// an extra store or a later recomputation.
    fn mark_held(&mut self) {
        // Outputs are stored regardless of handles.
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

    /// Builds the op graph.
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

    /// Returns the memory layout of an input.
    fn layout(&self, input: &Input) -> Arc<Layout> {
        Arc::clone(match input {
            Input::Part(_, layout) => layout,
            Input::Whole(node) => &self.stored(*node).layout,
        })
    }

    /// Returns the tensor of a node.
    pub(super) fn tensor(&self, node: NodeId) -> &Tensor {
        &self.nodes[node].tensor
    }

    /// Returns the buffers of the inputs, in order.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.inputs.iter().map(|input| match input {
            Input::Part(buffer, _) => buffer,
            Input::Whole(node) => &self.stored(*node).buffer,
        })
    }

    fn stored(&self, input: NodeId) -> &Storage {
        self.tensor(input).0.storage().expect("inputs are stored")
    }

    /// Returns the number of nodes to run.
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

/// Returns the buffer sliced to start at the elements, as closely as the device's alignment allows, if that differs
/// from the tensor's own. The start of a view is then not part of the plan key, so a loop over slices of a tensor is
/// planned once.
fn without_offset(storage: &Storage, tensor: &Tensor) -> Option<(Buffer, Layout)> {
    if storage.layout.offset() == 0 {
        return None;
    }
    let element = tensor.dtype().bytes();
    let start = storage.layout.range().start;
    // In elements. It is 0 if an element is larger than the alignment, and then every element is aligned.
    let step = tensor.device().target().input_alignment_bytes / element;
    let skipped = start - start % step.max(1);
    let part = storage.buffer.slice((skipped * element) as u64..).ok().filter(|_| skipped > 0)?;
    Some((part, storage.layout.starting_at(skipped)))
}
