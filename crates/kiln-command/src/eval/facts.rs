//! Describes each function by calling it: kind, dtypes, gradient and accuracy come from the plan and the gradient of a call with small tensors.

use super::evaluate::evaluate;
use super::parse;
use crate::Fallible;
use kiln::function::{Dynamic, Function};
use kiln::ir::kernel::{Core, Instruction, Kernel};
use kiln::ir::op::{ElementOp, Signature};
use kiln::{DType, Device, Tensor};
use kiln_bench::{Formula, SingleOp};
use serde::Serialize;
use std::collections::BTreeMap;

/// Length of both axes of the example tensors.
pub(crate) const LENGTH: usize = 64;

/// How an op runs on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// An elementwise op: it fuses with its neighbours.
    Elementwise,
    /// A reduction: elementwise ops before and after it fuse with it.
    Reduction,
    /// A hand-written kernel.
    Kernel,
    /// Composed of several ops.
    Composite,
    /// A view: nothing is computed.
    View,
    /// Generates elements without inputs.
    Fill,
}

/// Whether an op is differentiable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gradient {
    /// It has a gradient.
    Yes,
    /// The gradient is zero wherever it is defined, and is omitted.
    Zero,
    /// `backward` refuses the op.
    No,
    /// It has no float tensor.
    None,
}

/// Error bound of a result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accuracy {
    /// The result is exact.
    Exact,
    /// ULPs of an `f32`, plus an absolute error.
    Ulps { ulps: f64, absolute: f64 },
    /// Absolute error of an `f32` for operands with 64 elements along each axis and magnitudes up to 1; it grows with both.
    AtLength64 { absolute: f64 },
    /// Determined by the ops that it is composed of.
    OfItsOps,
}

/// Properties of an op.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) signature: String,
    pub(crate) doc: &'static str,
    pub(crate) kind: Kind,
    /// Dtypes of the elements that it takes or generates.
    pub(crate) dtypes: Vec<&'static str>,
    pub(crate) gradient: Gradient,
    pub(crate) accuracy: Accuracy,
    /// Whether `kiln bench` can measure it: there is a reference for its output.
    pub(crate) bench: bool,
}

/// Returns the function in a form whose output can be checked; `None` if there is no reference.
pub(crate) fn single(function: Function) -> Option<SingleOp> {
    match function {
        Function::Op(op) => Some(SingleOp::Element(op)),
        Function::Method(_) => Formula::by_name(function.name()).map(SingleOp::Formula),
    }
}

/// Describes a function by evaluating its example.
pub(crate) fn facts(function: Function, device: &Device) -> Fallible<Facts> {
    let example = example(function);
    // Dtypes, kind and gradient are found by running the example, so the table cannot differ from what the ops do.
    let taken: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| run(&example, dtype, device).is_ok()).collect();
    // A dtype that the example takes without a conversion.
    let shown = [DType::F32, DType::U32].into_iter().find(|dtype| taken.contains(dtype));
    let dtype = shown.ok_or_else(|| format!("{} takes neither f32 nor u32 in `{example}`", function.name()))?;
    let (_, result) = run(&example, dtype, device)?;
    let explanation = result.explain()?;
    let kernels: Vec<&Kernel> =
        explanation.plan().map_or_else(Vec::new, |plan| plan.steps.iter().map(|step| &step.kernel).collect());
    let kind = kind(&kernels);
    Ok(Facts {
        name: function.name(),
        signature: function.signature(),
        doc: function.doc(),
        kind,
        dtypes: taken.iter().map(|dtype| dtype.name()).collect(),
        gradient: if kind == Kind::Fill { Gradient::None } else { gradient(&example, dtype, device)? },
        accuracy: match function {
            Function::Op(op) => accuracy(op),
            Function::Method(_) => accuracy_of_kernels(kind, &kernels),
        },
        bench: single(function).is_some(),
    })
}

/// Returns a call of the function with the variables of [`run`]: an argument for each required parameter, chosen by the parameter's name.
fn example(function: Function) -> String {
    let argument = |name: &str| match name {
        "axis" | "one" | "start" => "0",
        "other" | "shift" | "value" => "1",
        "axes" => "[1, 0]",
        "shape" => "[64, 64]",
        "end" | "length" | "count" | "depth" | "rows" | "columns" => "64",
        "times" => "[2, 1]",
        "probability" => "0.5",
        "k" => "8",
        "equation" => "'ij,jk->ik'",
        "tensors" => "[x, x]",
        "mean" | "variance" => "x[0]",
        "index" => "index",
        "condition" | "mask" => "mask",
        "dtype" => "dtype=dtype",
        _ => "x",
    };
    match function.name() {
        "attention" => "h = x.reshape(1, 1, 64, 64); attention(h, h, h)".to_string(),
        "embedding" => "embedding(x, index[0])".to_string(),
        "index_select" => "index_select(x, 0, index[0])".to_string(),
        "one_hot" => "one_hot(index, 64, dtype)".to_string(),
        "squeeze" => "squeeze(x[0:1], 0)".to_string(),
        name @ ("max_pool2d" | "avg_pool2d" | "adaptive_avg_pool2d") => format!("{name}(x.reshape(1, 1, 64, 64), 2)"),
        name @ ("max_pool1d" | "avg_pool1d") => format!("{name}(x.reshape(1, 64, 64), 2)"),
        name @ ("to" | "to_dtype") => format!("{name}(x, f16)"),
        name => {
            let parameters = function.parameters();
            let needed = parameters.iter().filter(|parameter| parameter.default.is_none() || parameter.name == "dtype");
            let arguments: Vec<&str> = needed.map(|parameter| argument(parameter.name)).collect();
            format!("{name}({})", arguments.join(", "))
        }
    }
}

/// Evaluates an example on tensors of this dtype; returns `x` and the result.
fn run(example: &str, dtype: DType, device: &Device) -> Fallible<(Tensor, Tensor)> {
    let program = parse::parse(example).map_err(|fault| fault.render(example))?;
    let shape = (LENGTH, LENGTH);
    let ones = |dtype| Tensor::from_slice(&[1u8; LENGTH * LENGTH], shape, device)?.to_dtype(dtype);
    let x = if dtype.is_float() { ones(dtype)?.requires_grad()? } else { stored(ones(dtype)?)? };
    let variables = BTreeMap::from([
        ("x".to_string(), Dynamic::Tensor(x.clone())),
        ("index".to_string(), Dynamic::Tensor(stored(ones(DType::U32)?)?)),
        ("mask".to_string(), Dynamic::Tensor(stored(ones(DType::U8)?)?)),
        ("dtype".to_string(), Dynamic::DType(dtype)),
    ]);
    let result = evaluate(&program, variables, device).map_err(|fault| fault.render(example))?;
    Ok((x, result))
}

fn gradient(example: &str, dtype: DType, device: &Device) -> Fallible<Gradient> {
    let (x, result) = run(example, dtype, device)?;
    if !dtype.is_float() {
        return Ok(Gradient::None);
    }
    if !result.is_tracked() || !result.dtype().is_float() {
        return Ok(Gradient::Zero);
    }
    match result.sum_all()?.backward() {
        Err(error) if error.kind() == kiln::ErrorKind::Unsupported => Ok(Gradient::No),
        Err(error) => Err(error.into()),
        Ok(()) if x.grad().is_some() => Ok(Gradient::Yes),
        Ok(()) => Ok(Gradient::Zero),
    }
}

/// Evaluates a tensor, so that no plan computes it.
fn stored(tensor: Tensor) -> kiln::Result<Tensor> {
    tensor.eval()?;
    Ok(tensor)
}

fn kind(kernels: &[&Kernel]) -> Kind {
    match kernels {
        [] => Kind::View,
        [kernel] if kernel.operands().next().is_none() => Kind::Fill,
        [kernel] if kernel.ops().len() > 1 => Kind::Composite,
        [kernel] => match kernel.core {
            Core::Map => Kind::Elementwise,
            Core::Reduce { .. } => Kind::Reduction,
            Core::Op { .. } => Kind::Kernel,
        },
        _ => Kind::Composite,
    }
}

fn accuracy(op: &ElementOp) -> Accuracy {
    let result =
        if matches!(op.signature, Signature::Compare | Signature::Bits { .. }) { DType::U8 } else { DType::F32 };
    let is_float = op.takes(kiln::ir::Class::Float) || matches!(op.signature, Signature::BitsToFloat { .. });
    let bound = op.error_bound(if is_float { result } else { DType::U8 });
    if bound == kiln::ir::op::Tolerance::EXACT {
        return Accuracy::Exact;
    }
    // Excludes denormals, which devices may flush to zero.
    let absolute = bound.absolute - f64::from(f32::MIN_POSITIVE);
    Accuracy::Ulps { ulps: bound.ulps, absolute }
}

fn accuracy_of_kernels(kind: Kind, kernels: &[&Kernel]) -> Accuracy {
    let is_cast = |kernel: &Kernel| {
        kernel.body.program.instructions.iter().any(|instruction| matches!(instruction, Instruction::Cast { .. }))
    };
    let rounded = Accuracy::Ulps { ulps: 0.5, absolute: 0.0 };
    match (kind, kernels) {
        (Kind::Composite, _) => Accuracy::OfItsOps,
        (Kind::Fill, [kernel]) => {
            if kernel.ops().is_empty() {
                rounded
            } else {
                Accuracy::OfItsOps
            }
        }
        (_, [kernel]) if is_cast(kernel) => rounded,
        (_, [kernel]) => match kernel.core.error_bound(&vec![1.0; kernel.operands().count()]) {
            0.0 => Accuracy::Exact,
            absolute => Accuracy::AtLength64 { absolute },
        },
        _ => Accuracy::Exact,
    }
}
