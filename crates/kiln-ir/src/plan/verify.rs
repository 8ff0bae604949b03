//! Verification of graphs and plans, in debug builds and tests.

use super::{Place, Plan, Source, Step};
use crate::graph::{Op, OpGraph, OpNode, Reduce, TensorType, View};
use crate::kernel::{Body, Core, Instruction, Operand};
use crate::op::{ElementOp, Signature};
use crate::{Class, DType, Error, ErrorKind, Result, Shape};

/// Returns an `Internal` error unless the condition holds.
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Error::new(ErrorKind::Internal, format!($($message)+)));
        }
    };
}

impl OpGraph {
    /// Checks that inputs precede their users and that every node has the shape and dtype that its op infers.
    ///
    /// # Errors
    /// Returns `Internal`, with the index of the node, if the graph is malformed, which is a bug of its builder.
    pub fn verify(&self) -> Result<()> {
        for (id, node) in self.nodes.iter().enumerate() {
            check!(node.inputs.iter().all(|&input| input < id), "node {id}: expected inputs before it");
            let inputs: Vec<&TensorType> = node.inputs.iter().map(|&input| &self.nodes[input].ty).collect();
            verify_node(node, &inputs).map_err(|error| error.context(format!("node {id}")))?;
        }
        check!(self.outputs.iter().all(|&output| output < self.nodes.len()), "expected outputs among the nodes");
        Ok(())
    }
}

fn verify_node(node: &OpNode, inputs: &[&TensorType]) -> Result<()> {
    let ty = &node.ty;
    let arity = match &node.op {
        Op::Input(_) | Op::Scalar | Op::Iota => 0,
        Op::Element(op) => op.arity(),
        Op::Cast | Op::View(_) | Op::Reduce(..) => 1,
        Op::Kernel(_) => inputs.len(),
    };
    check!(inputs.len() == arity, "expected {arity} inputs, found {}", inputs.len());
    match &node.op {
        Op::Input(layout) => check!(*layout.shape() == ty.shape, "expected a layout of {}", ty.shape),
        Op::Scalar => {}
        Op::Iota => check!(ty.dtype == DType::U32, "iota expected u32, found {}", ty.dtype),
        Op::Element(op) => {
            check!(inputs.iter().all(|input| input.shape == ty.shape), "`{}` expected shapes {}", op.name, ty.shape);
            let dtypes: Vec<DType> = inputs.iter().map(|input| input.dtype).collect();
            check!(has_dtypes(op, &dtypes, ty.dtype), "`{}` does not map {dtypes:?} to {}", op.name, ty.dtype);
        }
        Op::Cast => check!(inputs[0].shape == ty.shape, "cast expected shape {}", ty.shape),
        Op::View(view) => {
            check!(inputs[0].dtype == ty.dtype, "a view expected {}, found {}", inputs[0].dtype, ty.dtype);
            check!(is_view(view, &inputs[0].shape, &ty.shape), "{view:?} of {} is not {}", inputs[0].shape, ty.shape);
        }
        Op::Reduce(op, axes) => verify_reduce(*op, axes, inputs[0], ty)?,
        Op::Kernel(op) => {
            let expected = op.infer(&inputs.iter().copied().cloned().collect::<Vec<_>>())?;
            check!(expected == *ty, "`{}` expected {expected:?}, found {ty:?}", op.name());
        }
    }
    Ok(())
}

fn has_dtypes(op: &ElementOp, inputs: &[DType], output: DType) -> bool {
    let all = |range: &[DType], dtype: DType| range.iter().all(|&input| input == dtype);
    match op.signature {
        Signature::Same { .. } => all(inputs, output) && op.takes(output.class()),
        Signature::Compare => inputs[0] == inputs[1] && output == DType::U8 && op.takes(inputs[0].class()),
        Signature::Select => matches!(inputs[0], DType::U8 | DType::Bool) && all(&inputs[1..], output),
        Signature::Bits { .. } => all(inputs, DType::U32) && output == DType::U32,
        Signature::BitsToFloat { .. } => all(inputs, DType::U32) && output == DType::F32,
    }
}

fn is_view(view: &View, input: &Shape, output: &Shape) -> bool {
    match view {
        View::Permute(axes) => {
            let mut sorted = axes.to_vec();
            sorted.sort_unstable();
            sorted.iter().copied().eq(0..input.rank())
                && axes.iter().map(|&axis| input[axis]).eq(output.iter().copied())
        }
        View::Broadcast => input.broadcast(output).as_ref() == Some(output),
        View::Reshape => input.elem_count() == output.elem_count(),
        &View::Slice { axis, start, step } => {
            axis < input.rank() && *output == input.with(axis, output[axis]) && {
                // With a negative step the last element is the lowest, so both ends are checked.
                let last = start as isize + step * (output[axis] as isize - 1);
                output[axis] == 0 || start < input[axis] && (0..input[axis] as isize).contains(&last)
            }
        }
    }
}

fn verify_reduce(op: Reduce, axes: &[usize], input: &TensorType, ty: &TensorType) -> Result<()> {
    let rank = input.shape.rank();
    let is_reduced = |axis: usize| axes.contains(&axis);
    check!(axes.iter().all(|&axis| axis < rank), "{op:?} expected axes below {rank}, found {axes:?}");
    let shape: Shape = (0..rank).map(|axis| if is_reduced(axis) { 1 } else { input.shape[axis] }).collect();
    check!(shape == ty.shape, "{op:?} over {axes:?} expected shape {shape}, found {}", ty.shape);
    let reduced: usize = (0..rank).filter(|&axis| is_reduced(axis)).map(|axis| input.shape[axis]).product();
    let dtype_fits = match op {
        Reduce::Sum | Reduce::Max | Reduce::Min => ty.dtype.class() == input.dtype.class(),
        Reduce::Mean => ty.dtype.is_float() && input.dtype.is_float(),
        Reduce::ArgMax | Reduce::ArgMin => ty.dtype == DType::U32,
    };
    check!(dtype_fits, "{op:?} of {} does not produce {}", input.dtype, ty.dtype);
    // Without elements, a sum is 0 and a mean is NaN, but there is no maximum or minimum.
    let takes_nothing = matches!(op, Reduce::Sum | Reduce::Mean);
    check!(takes_nothing || reduced > 0 || ty.shape.elem_count() == 0, "{op:?} expected elements, found none");
    Ok(())
}

impl Plan {
    /// Checks that programs are well-formed, that operands are in bounds, and that no slot is overwritten before its
    /// value is read.
    ///
    /// # Errors
    /// Returns `Internal`, with the index of the step.
    pub fn verify(&self, graph: &OpGraph) -> Result<()> {
        let inputs: Vec<_> = graph.nodes.iter().filter(|node| matches!(node.op, Op::Input(_))).collect();
        let mut holds: Vec<Option<usize>> = vec![None; self.slots.len()];
        // Empty values have no step, so they count as written.
        let mut is_written: Vec<bool> = self.values.iter().map(|value| value.ty.bytes() == 0).collect();
        for (index, step) in self.steps.iter().enumerate() {
            self.verify_step(step, &inputs).map_err(|error| error.context(format!("step {index}")))?;
            for read in &step.reads {
                let Source::Value(value) = *read else { continue };
                check!(is_written[value], "step {index} reads value {value}, which no step before it writes");
                if let (Place::Slot(slot), true) = (self.values[value].place, self.values[value].ty.bytes() > 0) {
                    check!(holds[slot] == Some(value), "step {index} reads value {value}, whose slot was overwritten");
                }
            }
            check!(!is_written[step.writes], "step {index} writes value {} again", step.writes);
            is_written[step.writes] = true;
            if let Place::Slot(slot) = self.values[step.writes].place {
                check!(
                    self.slots[slot] >= step.kernel.output.bytes(),
                    "step {index} writes past the end of slot {slot}"
                );
                // A step stores results while it still reads its operands, so they must not share a slot.
                let shares = |read: &Source| match *read {
                    Source::Value(value) => self.values[value].place == Place::Slot(slot),
                    Source::Input(_) => false,
                };
                let reads_it = step.reads.iter().any(shares);
                check!(!reads_it, "step {index} writes slot {slot}, which it reads");
                holds[slot] = Some(step.writes);
            }
        }
        check!(self.outputs.len() == graph.outputs.len(), "expected an output for each output of the graph");
        for (output, &node) in self.outputs.iter().zip(&graph.outputs) {
            let ty = &graph.nodes[node].ty;
            let operand = Operand { dtype: ty.dtype, layout: output.layout.clone() };
            check!(*output.layout.shape() == ty.shape, "an output expected shape {}", ty.shape);
            self.verify_range(output.source, &operand, &inputs)?;
            if let Source::Value(value) = output.source {
                check!(is_written[value], "no step writes value {value}, an output");
                check!(self.values[value].place == Place::Dedicated, "value {value} is an output in a slot");
            }
        }
        Ok(())
    }

    fn verify_range(&self, source: Source, operand: &Operand, inputs: &[&OpNode]) -> Result<()> {
        let (range, dtype) = match source {
            Source::Input(input) => match &inputs[input].op {
                // The plan knows only the elements of the layout, not the size of the buffer.
                Op::Input(layout) => (layout.range(), inputs[input].ty.dtype),
                _ => (0..0, inputs[input].ty.dtype),
            },
            Source::Value(value) => (0..self.values[value].ty.shape.elem_count(), self.values[value].ty.dtype),
        };
        check!(dtype == operand.dtype, "{source:?} is {dtype}, read as {}", operand.dtype);
        let read = operand.layout.range();
        let is_inside = read.is_empty() || range.start <= read.start && read.end <= range.end;
        check!(is_inside, "{source:?} covers {range:?} but is read at {read:?}");
        Ok(())
    }

    fn verify_step(&self, step: &Step, inputs: &[&OpNode]) -> Result<()> {
        let kernel = &step.kernel;
        let output = &kernel.output;
        check!(self.values[step.writes].ty == *output, "expected the type of the value that is written");
        check!(kernel.operands().count() == step.reads.len(), "expected a source for each operand");
        for (operand, &source) in kernel.operands().zip(&step.reads) {
            self.verify_range(source, operand, inputs)?;
        }
        let core = match &kernel.core {
            Core::Map => None,
            Core::Reduce { op, input, kept } => {
                let class = verify_body(input, None)?;
                let rows: usize = input.space[..*kept].iter().product();
                check!(rows == output.shape.elem_count(), "expected {} rows, found {rows}", output.shape.elem_count());
                // An arg-reduction produces indices, whatever the class of its elements.
                Some(if matches!(op, Reduce::ArgMax | Reduce::ArgMin) { Class::Uint } else { class })
            }
            Core::Op { op, operands } => {
                let class = op.infer(&operands.iter().map(Operand::ty).collect::<Vec<_>>())?.dtype.class();
                check!(kernel.body.space == output.shape, "expected the output's shape as the space of the epilogue");
                check!(
                    op.fuses_epilogue() || kernel.body.program.instructions.len() == 1,
                    "expected no epilogue, found one"
                );
                Some(class)
            }
        };
        let class = verify_body(&kernel.body, core)?;
        check!(class == output.dtype.class(), "the program produces {class:?}, stored as {}", output.dtype);
        let elements = kernel.body.space.elem_count();
        check!(elements == output.shape.elem_count(), "the space has {elements} elements, the output {}", output.shape);
        Ok(())
    }
}

/// Checks a program, and returns the class of its result.
fn verify_body(body: &Body, core: Option<Class>) -> Result<Class> {
    for operand in &body.operands {
        check!(
            *operand.layout.shape() == body.space,
            "an operand of shape {} in {}",
            operand.layout.shape(),
            body.space
        );
    }
    let mut classes: Vec<Class> = Vec::new();
    for (index, instruction) in body.program.instructions.iter().enumerate() {
        let class = instruction_class(instruction, body, core, &classes);
        let class = class.map_err(|error| error.context(format!("instruction {index}, {instruction:?}")))?;
        classes.push(class);
    }
    classes.last().copied().ok_or_else(|| Error::new(ErrorKind::Internal, "expected instructions, found none"))
}

fn instruction_class(instruction: &Instruction, body: &Body, core: Option<Class>, before: &[Class]) -> Result<Class> {
    match instruction {
        &Instruction::Load { operand } => {
            check!(operand < body.operands.len(), "expected an operand below {}", body.operands.len());
        }
        Instruction::Scalar { .. } | Instruction::Iota => {}
        &Instruction::Core { class } => check!(core == Some(class), "the core produces {core:?}"),
        Instruction::Cast { arg, from, .. } => {
            check!(before.get(*arg) == Some(from), "expected an earlier value of this class");
        }
        Instruction::Op { op, class, args } => {
            check!(args.iter().all(|&arg| arg < before.len()), "expected earlier values");
            check!(op.takes(*class), "`{}` does not support {class:?}", op.name);
            let given: Vec<Class> = args.iter().map(|&arg| before[arg]).collect();
            let expected = match op.signature {
                Signature::Same { arity } => vec![*class; arity],
                Signature::Compare => vec![*class; 2],
                Signature::Select => vec![Class::Uint, *class, *class],
                Signature::Bits { arity } | Signature::BitsToFloat { arity } => vec![Class::Uint; arity],
            };
            check!(given == expected, "expected {expected:?}, found {given:?}");
        }
    }
    Ok(body.class(instruction))
}
