//! How near ops come to the limits of the machine.

use crate::claim::{Context, Evidence};
use crate::report::RooflinePoint;
use crate::subject::{Inputs, KilnWork, Subject, WorkReferee};
use crate::trial::Arm;
use kiln::{Device, DeviceKind, Tensor};
use kiln_bench::{Fault, Number, Op, Ours};

pub(super) fn elementwise(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let len = context.elements();
    share_of_limit(context, "elementwise", Op::Add { len })
}

pub(super) fn reduction(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let len = context.elements();
    share_of_limit(context, "reduction", Op::Sum { len })
}

pub(super) fn activation(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let len = context.elements();
    share_of_limit(context, "activation", Op::Gelu { len })
}

pub(super) fn matmul(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let n = if context.is_software() { 256 } else { 1024 };
    share_of_limit(context, "matmul", Op::Matmul { m: n, k: n, n })
}

impl Context<'_> {
    /// Whether the device is a GPU in name only.
    pub(super) fn is_software(&self) -> bool {
        self.device.info().kind == DeviceKind::SoftwareGpu
    }

    /// How many elements a work has that is to take more than the caches; fewer where time is short.
    pub(super) fn elements(&self) -> usize {
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
    let work = WorkReferee { op, number: Number::F32 };
    let arm = Arm::new("kiln", KilnWork::new(work, context.device));
    let (measured, least) = context.measure_bounded(&mut [arm], &work)?;
    let median = measured.arms[0].median();
    let (flops, bytes) = (op.flops(), op.bytes_read(work.number) + op.bytes_written(work.number));
    context.plots.roofline.push(RooflinePoint {
        id: id.to_string(),
        device: context.device.info().id.clone(),
        flops_per_byte: flops / bytes,
        flops_per_s: flops / median,
        limit_flops_per_s: flops / least,
    });
    let is_arithmetic = matches!(op, Op::Matmul { .. });
    let value = if is_arithmetic { (flops / median / 1e9, "GFLOP/s") } else { (bytes / median / 1e9, "GB/s") };
    let ratio = measured.arms[0].share_of(least);
    Ok(Evidence::timed(measured, ratio, value))
}

pub(super) fn small_ops(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let count = if context.is_software() { 100 } else { 1000 };
    let work = WorkReferee { op: Op::TinyIndependent { count, len: 16 }, number: Number::F32 };
    let single = Singles { device: context.device.clone(), sets: Vec::new(), results: Vec::new() };
    let mut arms = [Arm::new("together", KilnWork::new(work, context.device)), Arm::new("one by one", single)];
    let measured = context.measure(&mut arms, &work)?;
    let value = (measured.arms[0].median() / count as f64 * 1e9, "ns an op");
    Ok(Evidence::faster(measured, value))
}

/// Sums of short tensors, each of which is computed before the next one is written down.
struct Singles {
    device: Device,
    sets: Vec<(Vec<Tensor>, Tensor)>,
    results: Vec<Tensor>,
}

impl Subject for Singles {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        (self.sets, self.results) = (Vec::new(), Vec::new());
        for set in sets {
            let [a, b] = &set[..] else { return Err("expected two inputs".into()) };
            let tensor = |elements: &[f32]| Tensor::from_slice(elements, elements.len(), &self.device);
            self.sets.push((a.chunks(b.len()).map(tensor).collect::<kiln::Result<_>>()?, tensor(b)?));
        }
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        self.results.clear();
        let (singles, b) = &self.sets[set];
        for single in singles {
            let sum = single.add(b)?;
            sum.eval()?;
            self.results.push(sum);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        Ok(Ours::read(&self.results)?)
    }
}
