//! Throughput of ops as a fraction of the roofline.

use crate::claim::{Context, Evidence};
use crate::report::RooflinePoint;
use crate::subject::{Computation, Inputs, WorkloadReferee};
use crate::trial::Arm;
use kiln::{Device, DeviceKind, Tensor};
use kiln_bench::{ElementType, Fault, Op};

/// Measures an op on many elements against the roofline.
pub(super) fn many_elements(context: &mut Context<'_>, id: &str, op: fn(usize) -> Op) -> Result<Evidence, Fault> {
    let op = op(context.elem_count());
    share_of_limit(context, id, op)
}

pub(super) fn matmul(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let n = if context.is_software() { 256 } else { 1024 };
    share_of_limit(context, "matmul", Op::Matmul { m: n, k: n, n })
}

impl Context<'_> {
    /// Returns whether the device is a software GPU.
    pub(super) fn is_software(&self) -> bool {
        self.device.info().kind == DeviceKind::SoftwareGpu
    }

    /// Returns a number of elements that exceeds the caches; fewer for software devices and quick runs.
    pub(super) fn elem_count(&self) -> usize {
        if self.is_software() {
            1 << 18
        } else if self.quick {
            1 << 20
        } else {
            1 << 24
        }
    }
}

fn share_of_limit(context: &mut Context<'_>, id: &str, op: Op) -> Result<Evidence, Fault> {
    let workload = WorkloadReferee { op, dtype: ElementType::F32 };
    let arm = Arm::new("kiln", Computation::of_workload(workload, context.device));
    let (measured, roofline) = context.measure_bounded(&mut [arm], &workload)?;
    let median = measured.arms[0].median();
    let (flops, bytes) = (op.flops(), op.bytes_read(workload.dtype) + op.bytes_written(workload.dtype));
    context.plots.roofline.push(RooflinePoint {
        id: id.to_string(),
        device: context.device.info().id.clone(),
        flops_per_byte: flops / bytes,
        flops_per_s: flops / median,
        limit_flops_per_s: flops / roofline,
    });
    let is_arithmetic = matches!(op, Op::Matmul { .. });
    let value = if is_arithmetic { (flops / median / 1e9, "GFLOP/s") } else { (bytes / median / 1e9, "GB/s") };
    let ratio = measured.arms[0].share_of(roofline);
    Ok(Evidence::timed(measured, ratio, value))
}

pub(super) fn small_ops(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let count = if context.is_software() { 100 } else { 1000 };
    let workload = WorkloadReferee { op: Op::TinyIndependent { count, len: 16 }, dtype: ElementType::F32 };
    let single = Computation::of_tensors(context.device, chunks, one_at_a_time);
    let mut arms =
        [Arm::new("together", Computation::of_workload(workload, context.device)), Arm::new("one at a time", single)];
    let measured = context.measure(&mut arms, &workload)?;
    Ok(Evidence::faster(measured, |s| (s / count as f64 * 1e9, "ns/op")))
}

/// Returns the short tensors of the first input, and the second input.
fn chunks(inputs: &Inputs, device: &Device) -> kiln::Result<(Vec<Tensor>, Tensor)> {
    let [a, b] = &inputs[..] else { unreachable!("the sums have two inputs") };
    let tensor = |elements: &[f32]| Tensor::from_slice(elements, elements.len(), device);
    Ok((a.chunks(b.len()).map(tensor).collect::<kiln::Result<_>>()?, tensor(b)?))
}

/// Adds short tensors, computing each sum before the next one is recorded.
fn one_at_a_time((singles, b): &(Vec<Tensor>, Tensor)) -> kiln::Result<Vec<Tensor>> {
    let sum = |single: &Tensor| single.add(b).and_then(|sum| sum.eval().map(|()| sum));
    singles.iter().map(sum).collect()
}
