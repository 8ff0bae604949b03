//! Reports: the `explain` text and the costs of a plan.

use super::{Plan, Step};
use crate::graph::{NodeId, Op, OpGraph, Reduce, TensorType};
use crate::kernel::{Body, Core, Instruction, Kernel, Operand, Program};
use crate::{Bytes, Layout};
use std::borrow::Cow;
use std::fmt;

/// Maximum number of ops in a kernel name.
const NAMED_OPS: usize = 6;

impl Plan {
    /// Describes the kernels, the ops fused into each, what did not fuse and why, and the memory traffic.
    pub fn explain(&self) -> Explain<'_> {
        Explain(self)
    }

    /// Returns the memory traffic of all steps in bytes. An element that a kernel reads more than once, or through a
    /// broadcast, counts once.
    pub fn moved_bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.read_bytes() + step.written_bytes()).sum()
    }
}

impl Step {
    /// Returns the bytes that the step reads. Each element of an operand counts once; kernels that select elements by
    /// index report an [upper bound](crate::KernelOp::read_bytes).
    pub fn read_bytes(&self) -> u64 {
        let all = self.kernel.operands().map(read_bytes);
        let Core::Op { op, operands } = &self.kernel.core else { return all.sum() };
        let types: Vec<TensorType> = operands.iter().map(Operand::ty).collect();
        // Operands of the epilogue follow those of the core; they are read as a whole.
        let limit = |index: usize| if index < types.len() { op.read_bytes(index, &types) } else { u64::MAX };
        all.enumerate().map(|(index, bytes)| bytes.min(limit(index))).sum()
    }

    /// Returns the bytes that the step writes.
    pub fn written_bytes(&self) -> u64 {
        self.kernel.output.bytes()
    }
}

impl Kernel {
    /// Returns the operands of the core, then those of the body.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.core.operands().iter().chain(&self.body.operands)
    }

    /// Returns the arithmetic operations of one run; an elementwise op counts as one.
    pub fn flops(&self) -> u64 {
        let core = match &self.core {
            Core::Map => 0,
            Core::Reduce { input, .. } => body_flops(input) + input.space.elem_count() as u64,
            Core::Op { op, operands } => op.flops(&operands.iter().map(Operand::ty).collect::<Vec<_>>()),
        };
        core + body_flops(&self.body)
    }

    /// Returns `map`, `reduce`, or the name of a hand-written kernel.
    pub fn kind(&self) -> &str {
        match &self.core {
            Core::Map => "map",
            Core::Reduce { .. } => "reduce",
            Core::Op { op, .. } => op.name(),
        }
    }

    /// Returns the names of the fused ops, in order.
    pub fn ops(&self) -> Vec<Cow<'_, str>> {
        ops(&self.core, &self.body.program)
    }
}

impl Reduce {
    /// Returns the name used in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Min => "min",
            Self::ArgMax => "argmax",
            Self::ArgMin => "argmin",
        }
    }
}

fn body_flops(body: &Body) -> u64 {
    let ops = body.program.instructions.iter().filter(|i| matches!(i, Instruction::Op { .. })).count();
    ops as u64 * body.space.elem_count() as u64
}

fn read_bytes(operand: &Operand) -> u64 {
    (distinct_elements(&operand.layout) * operand.dtype.bytes()) as u64
}

fn distinct_elements(layout: &Layout) -> usize {
    let axes = layout.shape().iter().zip(layout.strides());
    axes.map(|(&length, &stride)| if stride == 0 { length.min(1) } else { length }).product()
}

fn ops<'k>(core: &'k Core, program: &Program) -> Vec<Cow<'k, str>> {
    let inside = match core {
        Core::Reduce { input, .. } => &input.program.instructions[..],
        Core::Map | Core::Op { .. } => &[],
    };
    let core_name = match core {
        Core::Map => None,
        Core::Reduce { op, .. } => Some(op.name().into()),
        Core::Op { op, .. } => Some(op.name().into()),
    };
    inside.iter().filter_map(op_name).chain(core_name).chain(program.instructions.iter().filter_map(op_name)).collect()
}

fn op_name<'k>(instruction: &Instruction) -> Option<Cow<'k, str>> {
    match instruction {
        Instruction::Op { op, .. } => Some(op.name.into()),
        Instruction::Cast { to, .. } => Some(format!("to_{to}").into()),
        Instruction::Load { .. } | Instruction::Scalar { .. } | Instruction::Iota | Instruction::Core { .. } => None,
    }
}

/// Returns the name of a kernel, composed of its first ops.
pub(super) fn kernel_name(core: &Core, program: &Program) -> String {
    let ops = ops(core, program);
    match (&ops[..], program.instructions.first()) {
        ([], Some(Instruction::Scalar { .. })) => "fill".to_owned(),
        ([], Some(Instruction::Iota)) => "iota".to_owned(),
        ([], _) => "copy".to_owned(),
        (ops, _) if ops.len() <= NAMED_OPS => ops.join("_"),
        (ops, _) => format!("{}_and_{}_more", ops[..NAMED_OPS].join("_"), ops.len() - NAMED_OPS),
    }
}

/// Returns the memory traffic in bytes if every op were its own kernel and views were free.
pub(super) fn unfused_bytes(graph: &OpGraph, live: &[bool]) -> u64 {
    let is_op = |node: NodeId| {
        live[node] && !matches!(graph.nodes[node].op, Op::Input(_) | Op::Scalar | Op::Iota | Op::View(_))
    };
    let moved = |node: NodeId| {
        let node = &graph.nodes[node];
        let all = node.inputs.iter().map(|&input| unfused_read(graph, input));
        let read: u64 = match &node.op {
            Op::Kernel(op) => {
                let types: Vec<TensorType> = node.inputs.iter().map(|&input| graph.nodes[input].ty.clone()).collect();
                all.enumerate().map(|(index, bytes)| bytes.min(op.read_bytes(index, &types))).sum()
            }
            _ => all.sum(),
        };
        node.ty.bytes() + read
    };
    (0..graph.nodes.len()).filter(|&node| is_op(node)).map(moved).sum()
}

/// Returns the bytes read from an input; for a view, at most those of its base.
fn unfused_read(graph: &OpGraph, input: NodeId) -> u64 {
    let mut node = &graph.nodes[input];
    // The minimum along the chain: a broadcast reads at most its base, and a slice at most itself.
    let mut bytes = node.ty.bytes();
    while let Op::View(_) = node.op {
        node = &graph.nodes[node.inputs[0]];
        bytes = bytes.min(node.ty.bytes());
    }
    if matches!(node.op, Op::Scalar | Op::Iota) { 0 } else { bytes }
}

/// Displays a plan as text.
///
/// ```
/// use kiln_ir::graph::{Op, OpGraph, OpNode, TensorType};
/// use kiln_ir::{DType, Layout, Shape, op, plan::{Plan, Target}};
///
/// let ty = TensorType { shape: Shape::from((2, 3)), dtype: DType::F32 };
/// let node = |op, inputs: &[usize]| OpNode { op, inputs: inputs.into(), ty: ty.clone() };
/// let input = Op::Input(Layout::contiguous(ty.shape.clone()).into());
/// let nodes = vec![node(input, &[]), node(Op::Element(&op::RELU), &[0])];
/// let plan = Plan::new(&OpGraph { nodes, outputs: vec![1], held: Vec::new() }, &Target::CPU)?;
/// assert!(plan.explain().to_string().starts_with("kernel 0: map `relu` -> f32 (2, 3)"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Explain<'a>(&'a Plan);

impl fmt::Display for Explain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        for (number, step) in plan.steps.iter().enumerate() {
            let kernel = &step.kernel;
            let TensorType { shape, dtype } = &kernel.output;
            writeln!(f, "kernel {number}: {} `{}` -> {dtype} {shape}", kernel.kind(), kernel.name)?;
            let ops = kernel.ops();
            if !ops.is_empty() {
                writeln!(f, "    ops: {}", ops.join(", "))?;
            }
            let (read, written) = (Bytes(step.read_bytes()), Bytes(step.written_bytes()));
            writeln!(f, "    reads {read}, writes {written}, {} operations", kernel.flops())?;
        }
        for note in fold_notes(&plan.notes) {
            writeln!(f, "note: {note}")?;
        }
        let (count, moved) = (plan.steps.len(), Bytes(plan.moved_bytes()));
        let s = if count == 1 { "" } else { "s" };
        writeln!(f, "{count} kernel{s}; {moved} moved, {} without fusion", Bytes(plan.unfused_bytes))?;
        let (peak, unshared) = (Bytes(plan.peak_bytes()), Bytes(plan.unshared_bytes()));
        write!(f, "{peak} allocated at peak, {unshared} without memory sharing")
    }
}

/// Merges equal notes: a model of twelve equal layers produces twelve equal notes. Notes that differ only in the op
/// they begin with form one group. Groups keep the order of their first note.
fn fold_notes(notes: &[String]) -> Vec<String> {
    let mut groups: Vec<NoteGroup<'_>> = Vec::new();
    for note in notes {
        // A note that does not begin with a name is grouped only with equal notes.
        let (name, rest) = note.strip_prefix('`').and_then(|note| note.split_once('`')).unwrap_or(("", note));
        let index = groups.iter().position(|group| group.rest == rest).unwrap_or(groups.len());
        if index == groups.len() {
            groups.push(NoteGroup { rest, names: Vec::new() });
        }
        let names = &mut groups[index].names;
        match names.iter_mut().find(|(other, _)| *other == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    groups.iter().map(NoteGroup::text).collect()
}

/// Notes that are equal except for the name they begin with.
struct NoteGroup<'a> {
    rest: &'a str,
    /// Each name with its number of notes.
    names: Vec<(&'a str, usize)>,
}

impl NoteGroup<'_> {
    fn text(&self) -> String {
        let quoted = |name: &str| if name.is_empty() { String::new() } else { format!("`{name}`") };
        let all: usize = self.names.iter().map(|(_, count)| count).sum();
        let times = if all > 1 { format!("{all} times: ") } else { String::new() };
        let names = match &self.names[..] {
            [(name, _)] => quoted(name),
            names => {
                let name = |&(name, count): &(&str, usize)| {
                    if count > 1 { format!("{} ({count})", quoted(name)) } else { quoted(name) }
                };
                let mut names: Vec<String> = names.iter().map(name).collect();
                let last = names.pop().unwrap_or_default();
                format!("{} or {last}", names.join(", "))
            }
        };
        format!("{times}{names}{}", self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::fold_notes;

    #[test]
    fn equal_notes_are_one_line_with_a_count() {
        let fold = |notes: &[&str]| fold_notes(&notes.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(fold(&[]).is_empty());
        assert_eq!(fold(&["`add` is stored: a", "`add` is stored: b"]), ["`add` is stored: a", "`add` is stored: b"]);
        assert_eq!(
            fold(&["`add` is stored: a", "`exp` is stored: b", "`add` is stored: a"]),
            ["2 times: `add` is stored: a", "`exp` is stored: b"]
        );
        assert_eq!(
            fold(&["`add` is stored: a", "`mul` is stored: a", "`add` is stored: a", "`exp` is stored: a"]),
            ["4 times: `add` (2), `mul` or `exp` is stored: a"]
        );
        assert_eq!(fold(&["no name", "no name", "`a", "`a"]), ["2 times: no name", "2 times: `a"]);
    }
}
