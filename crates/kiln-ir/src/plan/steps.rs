//! Builds the steps of a plan: kernels with numbered values, and notes for the report.

use super::fuse::{Fused, StoreReason, numbered};
use super::lower::{Leaf, Lowered};
use super::report::kernel_name;
use super::space::simplify;
use super::{Place, Plan, PlanOutput, Source, Step, Target, Value};
use crate::graph::{NodeId, Op, OpGraph, TensorType};
use crate::kernel::{Body, Core, Instruction, Kernel, Operand, Program};
use crate::{DType, Layout, Shape};

/// Builds the plan. Slots are assigned later, by `memory`.
pub(super) fn build(graph: &OpGraph, target: &Target, fused: Fused) -> Plan {
    let mut builder = Builder {
        graph,
        target,
        inputs: numbered(graph, |op| matches!(op, Op::Input(_))),
        value_of: vec![usize::MAX; graph.nodes.len()],
        plan: Plan {
            steps: Vec::with_capacity(fused.kernels.len()),
            values: Vec::with_capacity(fused.kernels.len()),
            slots: Vec::new(),
            outputs: Vec::new(),
            held: Vec::new(),
            notes: Vec::new(),
            unfused_bytes: super::report::unfused_bytes(graph, &fused.live),
        },
    };
    let roots: Vec<NodeId> = fused.kernels.iter().map(|kernel| kernel.root).collect();
    for kernel in fused.kernels {
        builder.kernel(kernel);
    }
    for (leaf, layout) in fused.outputs {
        let source = builder.source(leaf);
        if let Source::Value(value) = source {
            builder.plan.values[value].place = Place::Dedicated;
        }
        builder.plan.outputs.push(PlanOutput { source, layout });
    }
    for &node in &graph.held {
        // A held node that is not stored has the index `usize::MAX`, for which there is no value.
        if let Some(value) = builder.plan.values.get_mut(builder.value_of[node]) {
            value.place = Place::Dedicated;
            builder.plan.held.push((node, builder.value_of[node]));
        }
    }
    for root in roots {
        let note = fused.reasons[root].and_then(|reason| builder.note(root, reason));
        builder.plan.notes.extend(note);
    }
    builder.plan
}

struct Builder<'a> {
    graph: &'a OpGraph,
    target: &'a Target,
    inputs: Vec<usize>,
    value_of: Vec<usize>,
    plan: Plan,
}

impl Builder<'_> {
    fn source(&self, leaf: Leaf) -> Source {
        match leaf {
            Leaf::Input(node) => Source::Input(self.inputs[node]),
            Leaf::Stored(node) => Source::Value(self.value_of[node]),
        }
    }

    fn kernel(&mut self, lowered: Lowered) {
        let output = self.graph.nodes[lowered.root].ty.clone();
        let Lowered { root, core, core_nodes, body, body_nodes } = lowered;
        let leaves = core_nodes.leaves.iter().chain(&body_nodes.leaves);
        let reads = leaves.map(|&leaf| self.source(leaf)).collect();
        let name = kernel_name(&core, &body.program);
        let stores = match &core {
            Core::Map => true,
            Core::Op { op, .. } if op.stores_any_dtype() => true,
            // Without CPU code it is a WGSL kernel on every device, and WGSL kernels cannot store packed elements.
            Core::Op { op, .. }
                if !op.has_host_code() && matches!(output.dtype, DType::BF16 | DType::I8 | DType::U8 | DType::Bool) =>
            {
                false
            }
            Core::Reduce { .. } | Core::Op { .. } => self.target.stores.contains(&output.dtype),
        };
        let wide = TensorType { dtype: output.dtype.computed(), shape: output.shape.clone() };
        let stored = if stores { output.clone() } else { wide.clone() };
        self.step(Kernel { name, core, body, output: stored }, reads);
        if !stores {
            self.convert(&wide, output);
        }
        // The last value: the converted one if there are two.
        self.value_of[root] = self.plan.values.len() - 1;
    }

    /// Appends a map that converts the last value to another dtype of its class.
    fn convert(&mut self, from: &TensorType, output: TensorType) {
        let mut operands = vec![Operand { dtype: from.dtype, layout: Layout::contiguous(from.shape.clone()) }];
        let (space, _): (Shape, _) = simplify(&from.shape, from.shape.rank(), &mut operands);
        let program = Program { instructions: vec![Instruction::Load { operand: 0 }] };
        let name = format!("to_{}", output.dtype);
        let reads = vec![Source::Value(self.plan.values.len() - 1)];
        self.step(Kernel { name, core: Core::Map, body: Body { space, operands, program }, output }, reads);
    }

    /// Appends a value, and the step that writes it unless it is empty.
    fn step(&mut self, kernel: Kernel, reads: Vec<Source>) {
        let ty = kernel.output.clone();
        if ty.shape.elem_count() > 0 {
            self.plan.steps.push(Step { kernel, reads, writes: self.plan.values.len() });
        }
        // A placeholder: `memory` assigns the slot.
        self.plan.values.push(Value { ty, place: Place::Slot(0) });
    }

    /// Explains why a node was stored that could have been fused.
    fn note(&self, node: NodeId, reason: StoreReason) -> Option<String> {
        let name = self.graph.nodes[node].op.name();
        let value = Source::Value(self.value_of[node]);
        let readers = self.plan.steps.iter().filter(|step| step.reads.contains(&value)).count();
        let is_elementwise = matches!(self.graph.nodes[node].op, Op::Element(_) | Op::Cast);
        let text = match reason {
            StoreReason::Unfused => return None,
            StoreReason::Output if readers == 0 => return None,
            StoreReason::Output => "it is an output".to_owned(),
            StoreReason::Kernels => format!("{readers} kernels use it"),
            StoreReason::Views => "one kernel reads it through several views".to_owned(),
            StoreReason::OperandOf(kernel) if is_elementwise => {
                format!("`{}` reads it", self.graph.nodes[kernel].op.name())
            }
            StoreReason::OperandOf(_) => return None,
            StoreReason::Copied { kernel, operand } => {
                let kernel = self.graph.nodes[kernel].op.name();
                return Some(format!("`{kernel}` operand {operand} is copied: the kernel does not accept its layout"));
            }
            StoreReason::SecondCore => "the kernel that uses it has another core op".to_owned(),
            StoreReason::Reordered => "its epilogue reads its elements in another order or number".to_owned(),
            StoreReason::NoEpilogue => "its kernel does not support an epilogue".to_owned(),
            StoreReason::Reshape => "strides cannot express its reshape".to_owned(),
            StoreReason::Broadcast => "a broadcast would recompute it for each copy".to_owned(),
            StoreReason::Iota => "a view reads its elements in another order or number".to_owned(),
            StoreReason::Operands => format!("the kernel would read more than {} operands", self.target.max_operands),
            StoreReason::Instructions => {
                format!("the kernel would have more than {} instructions", self.target.max_instructions)
            }
        };
        Some(format!("`{name}` is stored: {text}"))
    }
}
