//! Savings by fusion: launches, bytes and time.

use crate::claim::{Context, Evidence, counts, output};
use crate::report::{Check, Fusion};
use crate::subject::{Computation, Inputs, Referee, WorkloadReferee};
use crate::trial::Arm;
use kiln::{Device, Result as KilnResult, Tensor};
use kiln_bench::{ElementType, Fault, KilnWorkload, Op};

fn chain(context: &Context<'_>) -> WorkloadReferee {
    WorkloadReferee { op: Op::Chain8 { len: context.elem_count() }, dtype: ElementType::F32 }
}

pub(super) fn time(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let workload = chain(context);
    let fused = Computation::of_workload(workload, context.device);
    let unfused = Computation::of_tensors(context.device, tensors, |set| one_at_a_time(set));
    let mut arms = [Arm::new("fused", fused), Arm::new("unfused", unfused)];
    let (measured, _) = context.measure_bounded(&mut arms, &workload)?;
    let [fused, unfused] = costs(context)?;
    for (cost, times) in [fused, unfused].iter().zip(&measured.arms) {
        context.plots.fusion.push(Fusion {
            device: context.device.info().id.clone(),
            form: times.name.clone(),
            launches: cost.launches,
            bytes: cost.bytes,
            seconds: times.median(),
        });
    }
    Ok(Evidence::faster(measured, |s| (s * 1e6, "µs")))
}

pub(super) fn launches(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    if !cfg!(feature = "events") {
        return Ok(Evidence::Declined("this build lacks the feature `events`, which counts launches".to_string()));
    }
    let [fused, unfused] = costs(context)?;
    let ran = counts(fused.launches == fused.ran && unfused.launches == unfused.ran, launch_counts(&fused, &unfused));
    let ratio = unfused.ran as f64 / fused.ran as f64;
    Ok(Evidence::counted(ratio, (fused.ran as f64, "launches"), vec![fused.output, unfused.output, ran]))
}

pub(super) fn bytes(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let [fused, unfused] = costs(context)?;
    let ratio = unfused.bytes as f64 / fused.bytes as f64;
    Ok(Evidence::counted(ratio, (fused.bytes as f64 / 1e6, "MB"), vec![fused.output, unfused.output]))
}

/// Cost of one form of the chain.
struct Cost {
    /// Launches according to `explain`, before the run.
    launches: u64,
    bytes: u64,
    /// Kernels that the device counted during the run.
    ran: u64,
    output: Check,
}

/// Measures the costs of the fused chain, and of its ops computed one at a time.
fn costs(context: &Context<'_>) -> Result<[Cost; 2], Fault> {
    let workload = chain(context);
    let inputs = workload.inputs(100);
    let fused = cost(context.device, "fused", &workload, &inputs, |inputs| {
        Ok(vec![KilnWorkload::with_data(&workload.op, workload.dtype, inputs, context.device)?.expression()?.remove(0)])
    })?;
    let unfused =
        cost(context.device, "unfused", &workload, &inputs, |inputs| steps(&tensors(inputs, context.device)?))?;
    Ok([fused, unfused])
}

/// Measures the cost of computing tensors in order. Each may depend on earlier ones, and the last one is the output to check.
fn cost(
    device: &Device,
    name: &str,
    workload: &WorkloadReferee,
    inputs: &Inputs,
    build: impl FnOnce(&Inputs) -> KilnResult<Vec<Tensor>>,
) -> Result<Cost, Fault> {
    let results = build(inputs)?;
    let launched = || device.kernel_statistics().iter().map(|kernel| kernel.launches).sum::<u64>();
    let (mut launches, mut bytes) = (0, 0);
    let mut compute = || -> KilnResult<u64> {
        let before = launched();
        for result in &results {
            // Before `eval`: a computed tensor has no plan.
            let explained = result.explain()?;
            launches += explained.kernels() as u64;
            bytes += explained.bytes_moved();
            result.eval()?;
        }
        // The statistics lack kernels that a GPU has not finished.
        device.synchronize()?;
        Ok(launched() - before)
    };
    // The device counts kernels only while it is profiled.
    let profiling = device.profile();
    let ran = compute()?;
    drop(profiling);
    let wrong = workload.judge(inputs, &KilnWorkload::read(&results[results.len() - 1..])?).err();
    let output = output(wrong.map(|wrong| format!("{name}: {wrong}")), format!("{name}: correct"));
    Ok(Cost { launches, bytes, ran, output })
}

/// Formats the planned and the counted launches.
fn launch_counts(fused: &Cost, unfused: &Cost) -> String {
    let text = |cost: &Cost| format!("{} kernels planned, {} launched", cost.launches, cost.ran);
    format!("fused: {}; unfused: {}", text(fused), text(unfused))
}

/// Builds the ops of [`Op::Chain8`] without computing them.
fn steps(inputs: &[Tensor]) -> KilnResult<Vec<Tensor>> {
    let [a, b] = inputs else { unreachable!("the chain has two inputs") };
    let product = a.mul(b)?;
    let sum = product.add(a)?;
    let half = sum.mul_scalar(0.5)?;
    let difference = half.sub(b)?;
    let size = difference.abs()?;
    let larger = size.maximum(a)?;
    let clamped = larger.minimum(0.75)?;
    let negative = clamped.neg()?;
    Ok(vec![product, sum, half, difference, size, larger, clamped, negative])
}

fn tensors(inputs: &Inputs, device: &Device) -> KilnResult<Vec<Tensor>> {
    inputs.iter().map(|input| Tensor::from_slice(input, input.len(), device)).collect()
}

/// Runs the chain with one kernel per op: the inputs of each op are computed before it, so nothing fuses.
fn one_at_a_time(inputs: &[Tensor]) -> KilnResult<Vec<Tensor>> {
    let mut last = Vec::new();
    for step in steps(inputs)? {
        step.eval()?;
        last = vec![step];
    }
    Ok(last)
}
