//! `kiln bench OP --shape …`: one op on user-given shapes.

use super::report::Speed;
use super::{Args, open, write_line};
use crate::Fallible;
use crate::eval::single as checkable;
use crate::npy::tuple;
use crate::ops::find;
use crate::run::Dims;
use crate::terminal::{Report, count, seconds};
use kiln::function::{Dynamic, Function};
use kiln::ir::plan::{Plan, Step};
use kiln::ir::{Bytes, Class};
use kiln::{DType, Device, Status, Tensor};
use kiln_bench::{Arm, Checked, Fault, Operand, SamplingConfig, SingleOp, compare};
use kiln_validate::limits::DeviceLimits;
use serde::Serialize;
use std::process::ExitCode;

pub(super) fn run(args: &Args) -> Fallible<ExitCode> {
    let ops = args.workloads.iter().map(|name| measurable(name)).collect::<Fallible<Vec<_>>>()?;
    let device = open(&args.device, args.threads)?;
    let sampling = if args.quick { SamplingConfig::quick() } else { SamplingConfig::new() };
    let mut limits = DeviceLimits::measure(&device).map_err(|fault| fault.to_string())?;
    let mut status = ExitCode::SUCCESS;
    for (function, single) in ops {
        let dtype = args.dtype.unwrap_or_else(|| default_dtype(function));
        let operands = single.sample(&shapes(function.name(), single, &args.shapes)?, dtype);
        let report = measure(function, single, &operands, &device, &sampling, &mut limits)?;
        if report.fault.is_some() {
            status = ExitCode::FAILURE;
        }
        write_line(&report, args.json)?;
    }
    Ok(status)
}

/// Returns the op with this name and the reference for its output.
fn measurable(name: &str) -> Fallible<(Function, SingleOp)> {
    let function = find(name)?;
    let single = checkable(function).ok_or_else(|| {
        let methods = Function::all().filter(|function| matches!(function, Function::Method(_)));
        let all: Vec<&str> = methods.filter(|&method| checkable(method).is_some()).map(Function::name).collect();
        let all = all.join(", ");
        format!("`{name}` has no reference to check its output against; expected an elementwise op, or one of {all}")
    })?;
    Ok((function, single))
}

fn default_dtype(function: Function) -> DType {
    match function {
        Function::Op(op) if !op.takes(Class::Float) => DType::U32,
        _ => DType::F32,
    }
}

/// Returns a shape for each operand: a single `--shape` is used for all of them.
fn shapes(name: &str, single: SingleOp, given: &[Dims]) -> Result<Vec<Vec<usize>>, String> {
    let wanted = single.operands();
    let lengths = |Dims(lengths): &Dims| -> Result<Vec<usize>, String> {
        let lengths: Option<Vec<usize>> = lengths.iter().map(|&length| usize::try_from(length).ok()).collect();
        let elements = lengths.iter().flatten().try_fold(1usize, |all, &length| all.checked_mul(length));
        match (lengths, elements) {
            (Some(lengths), Some(1..)) => Ok(lengths),
            _ => Err(format!("`--shape` expected at least one element and fewer than 2^64, found {given:?}")),
        }
    };
    let shapes = given.iter().map(lengths).collect::<Result<Vec<_>, _>>()?;
    match &shapes[..] {
        [one] => Ok(vec![one.clone(); wanted]),
        several if several.len() == wanted => Ok(shapes),
        several => {
            let found = several.len();
            let wanted = if wanted == 1 { "one `--shape`".to_string() } else { format!("one `--shape`, or {wanted}") };
            Err(format!("{name} expected {wanted}, found {found}"))
        }
    }
}

/// Checks the output of an op, then times it.
fn measure(
    function: Function,
    single: SingleOp,
    operands: &[Operand],
    device: &Device,
    sampling: &SamplingConfig,
    limits: &mut DeviceLimits,
) -> Fallible<OpReport> {
    let tensors = operands.iter().map(|operand| operand.tensor(device)).collect::<kiln::Result<Vec<_>>>()?;
    let arguments: Vec<Dynamic> = tensors.into_iter().map(Dynamic::Tensor).collect();
    // Each call creates a new pending tensor: evaluating the same one again would do nothing.
    let call = || function.call(&arguments, device).map_err(|call| call.error);
    let output = call()?;
    let explanation = output.explain()?;
    let plan = explanation.plan();
    let mut report = OpReport::new(function, operands, &output, plan);
    match single.check(operands, &output, plan) {
        Ok(Checked { elements, allowed }) => {
            let (allowed_ulps, allowed_absolute) = (allowed.ulps, allowed.absolute);
            report.checked = Some(Compared { elements, allowed_ulps, allowed_absolute });
        }
        Err(wrong) => {
            report.fault = Some(wrong.to_string());
            return Ok(report);
        }
    }
    let run = || -> Result<(), Fault> {
        let result = call()?;
        result.eval()?;
        // The CPU device computes synchronously; a GPU does not.
        if result.status() == Status::Submitted {
            device.synchronize()?;
        }
        Ok(())
    };
    if let Some(timing) = compare(&mut [Arm::new(function.name(), run)], sampling).pop() {
        let timing = timing.map_err(|fault| fault.to_string())?;
        let [flops, read, written] = [report.flops, report.bytes_read, report.bytes_written].map(|count| count as f64);
        report.speed = Speed::new(timing, flops, read + written, Some(limits.roofline_of(flops, read, written)));
    }
    Ok(report)
}

/// Measurement of an op. The JSON format is this struct; inapplicable fields are `null`.
#[derive(Debug, Serialize)]
struct OpReport {
    op: &'static str,
    dtype: &'static str,
    device: String,
    threads: Option<u32>,
    shapes: Vec<Vec<usize>>,
    output_dtype: &'static str,
    output_shape: Vec<usize>,
    kernels: usize,
    /// Bytes that the kernels read and write.
    bytes_read: u64,
    bytes_written: u64,
    /// FLOPs; an elementwise op counts as one. 0 if elements are only moved.
    flops: u64,
    #[serde(flatten)]
    speed: Speed,
    /// How many elements were compared and with which tolerance; `None` if the output was wrong.
    checked: Option<Compared>,
    /// Describes the error in the output; `None` if the output is correct.
    fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Compared {
    elements: usize,
    allowed_ulps: f64,
    allowed_absolute: f64,
}

impl OpReport {
    fn new(function: Function, operands: &[Operand], output: &Tensor, plan: Option<&Plan>) -> Self {
        let (info, steps) = (output.device().info(), plan.map_or(&[][..], |plan| &plan.steps));
        Self {
            op: function.name(),
            // The dtype of the last operand: a condition has another one.
            dtype: operands.last().map_or("", |operand| operand.dtype.name()),
            device: info.id.clone(),
            threads: info.limits.threads,
            shapes: operands.iter().map(|operand| operand.shape.clone()).collect(),
            output_dtype: output.dtype().name(),
            output_shape: output.shape().to_vec(),
            kernels: steps.len(),
            bytes_read: steps.iter().map(Step::read_bytes).sum(),
            bytes_written: steps.iter().map(Step::written_bytes).sum(),
            flops: steps.iter().map(|step| step.kernel.flops()).sum(),
            speed: Speed::default(),
            checked: None,
            fault: None,
        }
    }
}

impl Report for OpReport {
    fn text(&self) -> String {
        let shapes = self.shapes.iter().map(|shape| tuple(shape)).collect::<Vec<_>>().join(", ");
        let (op, dtype, output_dtype, output) = (self.op, self.dtype, self.output_dtype, tuple(&self.output_shape));
        let threads = self.threads.map_or_else(String::new, |number| format!(", {}", count(number.into(), "thread")));
        let head = format!("op {op}: {dtype} {shapes} -> {output_dtype} {output} on {}{threads}\n", self.device);
        let (Some(timing), Some(checked)) = (self.speed.timing, self.checked) else {
            return format!("{head}  wrong: {}\n", self.fault.as_deref().unwrap_or("not timed"));
        };
        let [median, minimum] = [timing.median, timing.minimum].map(seconds);
        let (spread, samples) = (timing.spread * 100.0, count(timing.samples as u64, "sample"));
        let (moved, kernels) = (Bytes(self.bytes_read + self.bytes_written), count(self.kernels as u64, "kernel"));
        let Speed { gflops_per_s, gbytes_per_s, limit, share_of_limit, .. } = self.speed;
        let flops = gflops_per_s.map_or_else(String::new, |rate| format!(", {rate:.1} GFLOP/s"));
        let elements: usize = self.output_shape.iter().product();
        let compared = checked.elements;
        let allowed = match (checked.allowed_ulps, checked.allowed_absolute) {
            (0.0, 0.0) => "exactly equal".to_string(),
            (ulps, absolute) => format!("within {ulps:.2} ulp + {absolute:.1e}"),
        };
        let limit = limit.zip(share_of_limit).map_or_else(String::new, |(limit, share)| {
            let what = if limit.compute > limit.memory { "compute" } else { "memory" };
            format!(", {:.0} % of roofline ({what})", share * 100.0)
        });
        let rates = format!("{:.1} GB/s{flops}{limit}", gbytes_per_s.unwrap_or_default());
        format!(
            "{head}  median {median}, minimum {minimum}, spread {spread:.0} %, {samples}\n  {rates}; {moved} moved by {kernels}\n  \
             output checked: {compared} of {elements} elements, each {allowed}\n"
        )
    }
}
