//! Fusion: decides which nodes are stored, and in which kernel every other node is computed.
//!
//! Each round visits the nodes in reverse topological order, so that all uses of a node are known when it is visited.
//! A node is fused into its only user, or stored if several kernels use it. Then the kernels are lowered
//! (`lower`). If that fails (a reshape that strides cannot express, a limit of the target), one more node is
//! stored and a new round begins. Every round stores at least one more node, so the iteration terminates.

use super::lower::{self, Leaf, Lowered};
use super::views::{IDENTITY, Path, Paths};
use super::{Target, limit};
use crate::graph::{Axes, NodeId, Op, OpGraph, OpNode, View};
use crate::{KernelOp, Layout, Result, Shape};

/// Maximum cost that a broadcast may recompute for each copy: this many cheap ops.
const CHEAP: u32 = 4;
/// The cost of an op that is not cheap.
const COSTLY: u32 = 100;
/// Maximum nodes of a generator (a tree whose leaves are only scalars and iotas) that is recomputed in each kernel.
const GENERATOR: u32 = 16;

/// The kernels of a graph, and its outputs.
pub(super) struct Fused {
    /// The kernels, in execution order.
    pub(super) kernels: Vec<Lowered>,
    /// The location of each output.
    pub(super) outputs: Vec<(Leaf, Layout)>,
    /// Why each node is stored, for the notes.
    pub(super) reasons: Vec<Option<StoreReason>>,
    /// Whether an output depends on each node.
    pub(super) live: Vec<bool>,
}

/// Why a node is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreReason {
    /// Fusion is disabled.
    Unfused,
    Output,
    /// Several kernels use it.
    Kernels,
    /// One kernel reads it through several views.
    Views,
    /// A hand-written kernel reads it.
    OperandOf(NodeId),
    /// A hand-written kernel does not accept its layout.
    Copied {
        kernel: NodeId,
        operand: usize,
    },
    /// The kernel that uses it already has a core, or uses it as the input of a reduction.
    SecondCore,
    /// A view between it and its epilogue changes the order or number of its elements.
    Reordered,
    /// The hand-written kernel does not support an epilogue.
    NoEpilogue,
    Reshape,
    Broadcast,
    Iota,
    Operands,
    Instructions,
}

/// Identifies a program: `2 n` is the epilogue of the kernel with root node `n`, `2 n + 1` the input of reduction
/// `n`.
type ProgramId = usize;

/// The users of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    None,
    /// One program, through one path.
    One {
        program: ProgramId,
        path: Path,
    },
    /// One program, through several paths.
    Paths {
        program: ProgramId,
    },
    /// Several programs.
    Programs,
}

/// State of the fusion of a graph.
pub(super) struct Fuser<'a> {
    pub(super) graph: &'a OpGraph,
    pub(super) target: &'a Target,
    pub(super) paths: Paths,
    pub(super) stored: Vec<bool>,
    /// The index of each scalar node among the scalars.
    pub(super) numbers: Vec<usize>,
    reasons: Vec<Option<StoreReason>>,
    live: Vec<bool>,
    /// Size of the generator tree rooted at a node; 0 if it is not a generator.
    generators: Vec<u32>,
}

/// State of one round.
struct Round {
    uses: Vec<Use>,
    /// The core of the kernel with this root.
    cores: Vec<Option<NodeId>>,
    /// Number of nodes computed by each program; a load adds one more instruction.
    sizes: Vec<usize>,
    costs: Vec<u32>,
}

/// Decides which nodes are stored, and lowers the kernels.
pub(super) fn fuse(graph: &OpGraph, target: &Target) -> Result<Fused> {
    let mut fuser = Fuser::new(graph, target);
    loop {
        let cores = fuser.round();
        let (kernels, is_changed) = fuser.lower(&cores)?;
        let outputs: Vec<_> = graph.outputs.iter().map_while(|&output| fuser.output(output)).collect();
        if !is_changed && outputs.len() == graph.outputs.len() {
            return Ok(Fused { kernels, outputs, reasons: fuser.reasons, live: fuser.live });
        }
    }
}

impl<'a> Fuser<'a> {
    fn new(graph: &'a OpGraph, target: &'a Target) -> Self {
        let count = graph.nodes.len();
        let mut live = vec![false; count];
        let mut users = vec![0u32; count];
        for &output in &graph.outputs {
            live[output] = true;
            users[output] += 1;
        }
        // Liveness: inputs precede their users, so one pass in reverse reaches everything that an output depends on.
        for node in (0..count).rev() {
            if live[node] {
                for &input in &graph.nodes[node].inputs {
                    live[input] = true;
                    users[input] += 1;
                }
            }
        }
        let mut fuser = Self {
            graph,
            target,
            paths: Paths::default(),
            stored: vec![false; count],
            numbers: numbered(graph, |op| matches!(op, Op::Scalar)),
            reasons: vec![None; count],
            generators: generators(graph),
            live,
        };
        for &output in &graph.outputs {
            fuser.store_output(output, &users);
        }
        if !target.fuse {
            for (id, node) in graph.nodes.iter().enumerate() {
                if fuser.live[id] && !matches!(node.op, Op::Input(_) | Op::Scalar | Op::Iota | Op::View(_)) {
                    fuser.store(id, StoreReason::Unfused);
                }
            }
        }
        fuser
    }

    /// Stores the base of an output's views, or only the viewed part if nothing else needs the rest.
    fn store_output(&mut self, output: NodeId, users: &[u32]) {
        let graph = self.graph;
        let (mut base, mut is_alone) = (output, users[output] == 1);
        while let Op::View(_) = graph.nodes[base].op {
            base = graph.nodes[base].inputs[0];
            is_alone &= users[base] == 1;
        }
        let node = &graph.nodes[base];
        let elements = |id: NodeId| graph.nodes[id].ty.shape.elem_count();
        match node.op {
            Op::Input(_) => {}
            Op::Element(_) | Op::Cast if is_alone && elements(output) < elements(base) => {
                self.store(output, StoreReason::Output);
            }
            _ => self.store(base, StoreReason::Output),
        }
    }

    pub(super) fn store(&mut self, node: NodeId, reason: StoreReason) {
        self.stored[node] = true;
        // Several rounds may store a node for different reasons; the first one is reported.
        self.reasons[node].get_or_insert(reason);
    }

    /// Assigns every node to a kernel; returns the core of each root's kernel.
    fn round(&mut self) -> Vec<Option<NodeId>> {
        let count = self.graph.nodes.len();
        let mut round = Round {
            uses: vec![Use::None; count],
            cores: vec![None; count],
            sizes: vec![0; 2 * count],
            costs: self.costs(),
        };
        for id in (0..count).rev() {
            if !self.live[id] {
                continue;
            }
            if !self.stored[id] {
                self.place(id, &mut round);
            }
            // `place` may have just stored it.
            if self.stored[id] {
                self.root(id, &mut round);
            }
        }
        round.cores
    }

    /// Returns the cost of recomputing each node from memory.
    fn costs(&self) -> Vec<u32> {
        let mut costs: Vec<u32> = Vec::with_capacity(self.graph.nodes.len());
        for (id, node) in self.graph.nodes.iter().enumerate() {
            let own = match node.op {
                _ if self.stored[id] => None,
                Op::Input(_) | Op::Scalar | Op::Iota | Op::Reduce(..) | Op::Kernel(_) => None,
                Op::View(_) => Some(0),
                Op::Cast => Some(1),
                Op::Element(op) => Some(if op.is_cheap() { 1 } else { COSTLY }),
            };
            // Counts a shared input once per use, so costs can double with each node: the additions saturate.
            let below = || node.inputs.iter().map(|&input| costs[input]).fold(0, u32::saturating_add);
            costs.push(own.map_or(0, |own| below().saturating_add(own)));
        }
        costs
    }

    /// Fuses a node into its user, or stores it.
    fn place(&mut self, id: NodeId, round: &mut Round) {
        let node = &self.graph.nodes[id];
        let used = round.uses[id];
        match &node.op {
            Op::Input(_) | Op::Scalar | Op::Iota => {}
            Op::View(_) => self.place_view(id, round, used),
            Op::Element(_) | Op::Cast => {
                let refusal = match used {
                    Use::None => None,
                    Use::One { program, .. } => {
                        round.sizes[program] += 1;
                        // `>=`, because a program has at least one leaf (a load, scalar or iota) in addition to its nodes.
                        (round.sizes[program] >= self.target.max_instructions).then_some(StoreReason::Instructions)
                    }
                    // Recomputed in each kernel: it reads no memory, so that is cheaper than a store and loads.
                    _ if self.generators[id] > 0 => None,
                    Use::Paths { .. } => (round.costs[id] > CHEAP).then_some(StoreReason::Views),
                    Use::Programs if self.is_cast_input(node) => None,
                    Use::Programs => Some(StoreReason::Kernels),
                };
                match refusal {
                    Some(reason) => self.store(id, reason),
                    None => node.inputs.iter().for_each(|&input| round.uses[input].add(used)),
                }
            }
            Op::Reduce(..) => self.place_core(id, None, round, used),
            Op::Kernel(op) => self.place_core(id, Some(&**op), round, used),
        }
    }

    /// Returns whether this is a cast of an input that is no larger than its result: reading the input is at least as
    /// fast as reading a copy.
    fn is_cast_input(&self, node: &OpNode) -> bool {
        let mut below = &self.graph.nodes[node.inputs[0]];
        while let Op::View(_) = below.op {
            below = &self.graph.nodes[below.inputs[0]];
        }
        matches!((&node.op, &below.op), (Op::Cast, Op::Input(_))) && below.ty.dtype.bytes() <= node.ty.dtype.bytes()
    }

    fn place_view(&mut self, id: NodeId, round: &mut Round, used: Use) {
        let node = &self.graph.nodes[id];
        let input = node.inputs[0];
        let is_expanding = node.ty.shape.elem_count() > self.graph.nodes[input].ty.shape.elem_count();
        if used != Use::None && is_expanding && round.costs[input] > CHEAP {
            // The base precedes this view, so this round has yet to visit it, and makes it a root.
            self.store(self.base(input), StoreReason::Broadcast);
        }
        round.uses[input].add(match used {
            Use::One { program, path } => {
                let (_, path) = self.paths.enter(self.graph, id, path).unwrap_or((id, path));
                Use::One { program, path }
            }
            other => other,
        });
    }

    /// Fuses an epilogue into a core if one program is its only user, element by element.
    fn place_core(&mut self, id: NodeId, op: Option<&dyn KernelOp>, round: &mut Round, used: Use) {
        let refusal = match used {
            Use::None => return,
            Use::Programs => Some(StoreReason::Kernels),
            Use::Paths { .. } => Some(StoreReason::Views),
            Use::One { .. } if op.is_some_and(|op| !op.fuses_epilogue()) => Some(StoreReason::NoEpilogue),
            Use::One { program, path } => {
                if !self.paths.keeps_order(path, &self.graph.nodes[id].ty.shape) {
                    Some(StoreReason::Reordered)
                } else if program % 2 == 1 || round.cores[program / 2].is_some() {
                    // An odd program is the prologue of a reduction, whose kernel has that reduction as its core.
                    Some(StoreReason::SecondCore)
                } else {
                    round.cores[program / 2] = Some(id);
                    None
                }
            }
        };
        match refusal {
            Some(reason) => self.store(id, reason),
            None => self.use_operands(id, round),
        }
    }

    /// Starts a kernel at a stored node.
    fn root(&mut self, id: NodeId, round: &mut Round) {
        let node = &self.graph.nodes[id];
        let whole = Use::One { program: 2 * id, path: IDENTITY };
        match &node.op {
            Op::Input(_) | Op::Scalar | Op::Iota => {}
            Op::View(_) => self.place_view(id, round, whole),
            Op::Element(_) | Op::Cast => {
                round.sizes[2 * id] += 1;
                node.inputs.iter().for_each(|&input| round.uses[input].add(whole));
            }
            Op::Reduce(..) | Op::Kernel(_) => {
                round.cores[id] = Some(id);
                self.use_operands(id, round);
            }
        }
    }

    fn use_operands(&mut self, id: NodeId, round: &mut Round) {
        let node = &self.graph.nodes[id];
        match &node.op {
            Op::Reduce(_, axes) => {
                let input = node.inputs[0];
                let (path, ..) = self.reduced_space(&self.graph.nodes[input].ty.shape, axes);
                round.uses[input].add(Use::One { program: 2 * id + 1, path });
            }
            Op::Kernel(op) => {
                for (index, &operand) in node.inputs.iter().enumerate() {
                    // Views are free if the kernel accepts their layout: then their base is stored, otherwise a copy.
                    if self.operand(&**op, index, operand).is_some() {
                        let base = self.base(operand);
                        if !matches!(self.graph.nodes[base].op, Op::Input(_)) {
                            self.store(base, StoreReason::OperandOf(id));
                        }
                    } else {
                        self.store(operand, StoreReason::Copied { kernel: id, operand: index });
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the space of a reduction's input: the path to the input, the shape, and the number of kept axes.
    pub(super) fn reduced_space(&mut self, shape: &Shape, axes: &[usize]) -> (Path, Shape, usize) {
        let mut order: Axes = (0..shape.rank()).filter(|axis| !axes.contains(axis)).collect();
        let kept = order.len();
        order.extend((0..shape.rank()).filter(|axis| axes.contains(axis)));
        let space: Shape = order.iter().map(|&axis| shape[axis]).collect();
        (self.paths.through(IDENTITY, &View::Permute(order), &space, shape), space, kept)
    }

    /// Returns the base of a chain of views: the first node that is stored or not a view.
    fn base(&self, node: NodeId) -> NodeId {
        let mut base = node;
        while let (Op::View(_), false) = (&self.graph.nodes[base].op, self.stored[base]) {
            base = self.graph.nodes[base].inputs[0];
        }
        base
    }

    /// Returns the base of a chain of views, the path to it, and the inputs of the views, outermost first, with their
    /// paths.
    fn descend(&mut self, node: NodeId) -> (NodeId, Path, Vec<(NodeId, Path)>) {
        let (mut base, mut path, mut views) = (node, IDENTITY, Vec::new());
        while !self.stored[base]
            && let Some(below) = self.paths.enter(self.graph, base, path)
        {
            (base, path) = below;
            views.push(below);
        }
        (base, path, views)
    }

    /// Returns the location of a hand-written kernel's operand, assuming that its base is in memory; `None` if the
    /// kernel does not accept the layout.
    pub(super) fn operand(&mut self, op: &dyn KernelOp, index: usize, operand: NodeId) -> Option<(Leaf, Layout)> {
        let (base, path, _) = self.descend(operand);
        // A copy made for this operand is contiguous at offset 0 and is always accepted. An input that was copied
        // because of its offset is not the copy.
        let is_copy = self.stored[operand];
        let is_plain = |layout: &Layout| layout.is_contiguous() && layout.offset() == 0;
        self.read(base, path, |layout| is_copy && is_plain(layout) || op.takes(index, layout))
    }

    /// Returns the location of a stored node or input seen through a path: the input itself, or its copy if
    /// there is one.
    pub(super) fn read(&self, base: NodeId, path: Path, takes: impl Fn(&Layout) -> bool) -> Option<(Leaf, Layout)> {
        let node = &self.graph.nodes[base];
        if let Op::Input(layout) = &node.op {
            let seen = self.paths.apply(path, layout).filter(&takes);
            if seen.is_some() || !self.stored[base] {
                return seen.map(|seen| (Leaf::Input(base), seen));
            }
        }
        let seen = self.paths.apply(path, &Layout::contiguous(node.ty.shape.clone())).filter(takes)?;
        Some((Leaf::Stored(base), seen))
    }

    /// Returns the location of an output. If strides cannot express it, stores a node and returns `None`.
    fn output(&mut self, output: NodeId) -> Option<(Leaf, Layout)> {
        let (node, path, views) = self.descend(output);
        let found = self.read(node, path, |_| true);
        if found.is_none() {
            let (node, reason) = self.innermost_readable(&views);
            self.store(node, reason);
        }
        found
    }

    /// Returns the innermost of the view inputs, given outermost first with their paths, that can be read through its
    /// path once it is stored.
    pub(super) fn innermost_readable(&self, views: &[(NodeId, Path)]) -> (NodeId, StoreReason) {
        let is_readable = |&&(node, path): &&(NodeId, Path)| {
            let stored = Layout::contiguous(self.graph.nodes[node].ty.shape.clone());
            self.paths.apply(path, &stored).is_some()
        };
        // Strides can always express the outermost view of a stored node.
        // `views` is not empty: without views the path is the identity or the permutation of a reduction, and strides
        // can express both.
        let &(node, _) = views.iter().rev().find(is_readable).unwrap_or(&views[0]);
        (node, StoreReason::Reshape)
    }

    /// Lowers every kernel. If one fails, stores a node; another round is then needed.
    fn lower(&mut self, cores: &[Option<NodeId>]) -> Result<(Vec<Lowered>, bool)> {
        let (mut kernels, mut is_changed) = (Vec::new(), false);
        // The roots of this round. Nodes stored below have no core assigned yet; they are lowered in the next round.
        for root in (0..self.graph.nodes.len()).filter(|&id| self.stored[id] && self.live[id]).collect::<Vec<_>>() {
            let kernel = lower::kernel(self, root, cores[root]);
            let excess = kernel.as_ref().map_or(Ok(None), |kernel| limit::excess(self.graph, self.target, kernel))?;
            match (kernel, excess) {
                (Ok(kernel), None) => kernels.push(kernel),
                (Err((node, reason)), _) | (_, Some((node, reason))) => {
                    self.store(node, reason);
                    is_changed = true;
                }
            }
        }
        Ok((kernels, is_changed))
    }
}

impl Use {
    fn add(&mut self, other: Self) {
        // The join of the lattice None < One < Paths < Programs.
        *self = match (*self, other) {
            (Self::None, other) | (other, Self::None) => other,
            (a, b) if a == b => a,
            (a, b) => match (a.program(), b.program()) {
                (Some(program), Some(other)) if program == other => Self::Paths { program },
                _ => Self::Programs,
            },
        };
    }

    fn program(self) -> Option<ProgramId> {
        match self {
            Self::One { program, .. } | Self::Paths { program } => Some(program),
            Self::None | Self::Programs => None,
        }
    }
}

/// Returns, for each generator (a tree whose leaves are only scalars and iotas), its number of nodes if small; 0 for
/// all other nodes.
fn generators(graph: &OpGraph) -> Vec<u32> {
    let mut sizes: Vec<u32> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let size = match node.op {
            Op::Scalar | Op::Iota => 1,
            Op::Element(_) | Op::Cast | Op::View(_) if node.inputs.iter().all(|&input| sizes[input] > 0) => {
                1 + node.inputs.iter().map(|&input| sizes[input]).sum::<u32>()
            }
            _ => 0,
        };
        sizes.push(if size <= GENERATOR { size } else { 0 });
    }
    sizes
}

/// Returns, for each node of a kind, the number of preceding nodes of that kind: the index among the inputs or
/// scalars.
pub(super) fn numbered(graph: &OpGraph, is_kind: impl Fn(&Op) -> bool) -> Vec<usize> {
    let mut count = 0;
    let number = |node: &OpNode| {
        let before = count;
        count += usize::from(is_kind(&node.op));
        before
    };
    graph.nodes.iter().map(number).collect()
}
