//! The report of a workload by `kiln bench`.

use crate::npy::tuple;
use crate::terminal::{Report, seconds};
use kiln::Device;
use kiln_bench::limits::Roofline;
use kiln_bench::{ElementType, Input, Op, Timing, Workload};
use serde::Serialize;
use std::collections::BTreeMap;

/// A line of `kiln bench --list`.
#[derive(Debug, Serialize)]
pub(super) struct WorkloadLine {
    workload: &'static str,
    op: Op,
    inputs: Vec<Input>,
    output_shape: Vec<usize>,
    ops_per_run: usize,
    flops: f64,
    /// Minimum speedup over the best other library, by dtype.
    targets: BTreeMap<&'static str, f64>,
}

impl WorkloadLine {
    pub(super) fn of(workload: &Workload) -> Self {
        Self {
            workload: workload.id,
            op: workload.op,
            inputs: workload.op.inputs(),
            output_shape: workload.op.output_shape(),
            ops_per_run: workload.op.ops_per_run(),
            flops: workload.op.flops(),
            targets: ElementType::ALL.map(|dtype| (dtype.name(), workload.target(dtype))).into(),
        }
    }
}

impl Report for WorkloadLine {
    fn text(&self) -> String {
        let inputs: Vec<String> = self.inputs.iter().map(|input| tuple(&input.shape)).collect();
        format!("{:26}{} -> {}\n", self.workload, inputs.join(", "), tuple(&self.output_shape))
    }
}

/// Speed and roofline limit; inapplicable fields are `null`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Speed {
    /// Seconds per run; `None` if the output was wrong.
    pub(super) timing: Option<Timing>,
    /// `None` also if the op only moves elements.
    pub(super) gflops_per_s: Option<f64>,
    pub(super) gbytes_per_s: Option<f64>,
    /// Roofline seconds for the arithmetic and for the bytes, measured in the same run.
    pub(super) limit: Option<Roofline>,
    /// The larger of these divided by the median.
    pub(super) share_of_limit: Option<f64>,
}

impl Speed {
    pub(super) fn new(timing: Timing, flops: f64, bytes: f64, limit: Option<Roofline>) -> Self {
        Self {
            timing: Some(timing),
            gflops_per_s: (flops > 0.0).then_some(flops / timing.median / 1e9),
            gbytes_per_s: Some(bytes / timing.median / 1e9),
            limit,
            share_of_limit: limit.map(|limit| limit.seconds() / timing.median),
        }
    }
}

/// Measurement of a workload. The JSON format is this struct; inapplicable fields are `null`.
#[derive(Debug, Serialize)]
pub(super) struct WorkloadReport {
    workload: &'static str,
    dtype: &'static str,
    device: String,
    threads: Option<u32>,
    ops_per_run: usize,
    #[serde(flatten)]
    speed: Speed,
    /// Peak while it was timed; `None` if the system does not report it.
    pub(super) peak_resident_bytes: Option<u64>,
    /// Describes the error in the output; `None` if the output is correct.
    pub(super) fault: Option<String>,
    #[serde(skip)]
    flops: f64,
    #[serde(skip)]
    bytes: f64,
}

impl WorkloadReport {
    pub(super) fn new(workload: &Workload, dtype: ElementType, device: &Device) -> Self {
        Self {
            workload: workload.id,
            dtype: dtype.name(),
            device: device.info().id.clone(),
            threads: device.info().limits.threads,
            ops_per_run: workload.op.ops_per_run(),
            speed: Speed::default(),
            peak_resident_bytes: None,
            fault: None,
            flops: workload.op.flops(),
            bytes: workload.op.bytes_read(dtype) + workload.op.bytes_written(dtype),
        }
    }

    /// Sets the timing and the roofline limit.
    pub(super) fn set_timing(&mut self, timing: Timing, limit: Option<Roofline>) {
        self.speed = Speed::new(timing, self.flops, self.bytes, limit);
    }

    /// Formats the throughput in the unit of the limiting resource.
    fn rate(&self) -> Option<String> {
        let Speed { gflops_per_s, gbytes_per_s, limit, .. } = self.speed;
        let is_arithmetic = limit.is_some_and(|limit| limit.compute > limit.memory);
        let (rate, unit) = if is_arithmetic { (gflops_per_s?, "GFLOP/s") } else { (gbytes_per_s?, "GB/s") };
        Some(format!("{rate:.1} {unit}"))
    }
}

impl Report for WorkloadReport {
    fn text(&self) -> String {
        let Self { workload, dtype, .. } = self;
        let Some(timing) = self.speed.timing else {
            let fault = self.fault.as_deref().unwrap_or("not timed");
            return format!("{workload:26}{dtype}  wrong: {fault}\n");
        };
        let (each, unit) = (1.0 / self.ops_per_run as f64, if self.ops_per_run > 1 { "/op" } else { "" });
        let times = [timing.median, timing.minimum].map(|time| format!("{}{unit}", seconds(time * each)));
        let rate = self.rate().filter(|_| self.ops_per_run == 1).unwrap_or_default();
        let share = self.speed.share_of_limit;
        let share = share.map_or_else(String::new, |share| format!("{:.0} % of roofline", share * 100.0));
        let line =
            format!("{workload:26}{dtype}  median {:>13}  minimum {:>13}  {rate:>13}  {share:19}", times[0], times[1]);
        format!("{line}  output checked\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(id: &str) -> WorkloadReport {
        WorkloadReport::new(kiln_bench::find(id).unwrap(), ElementType::F32, &Device::cpu().unwrap())
    }

    fn timing(median: f64) -> Timing {
        Timing { median, minimum: median / 2.0, spread: 0.1, samples: 9, runs_per_sample: 2 }
    }

    #[test]
    fn a_workload_is_reported_in_the_unit_of_its_limiting_resource() {
        let mut matmul = report("matmul-1024");
        matmul.set_timing(timing(0.02), Some(Roofline { compute: 0.01, memory: 0.001 }));
        let text = matmul.text();
        let expected = "median       20.0 ms  minimum       10.0 ms  107.4 GFLOP/s  50 % of roofline";
        assert!(text.contains(expected), "{text}");
        let mut add = report("add-1m");
        add.set_timing(timing(1e-4), Some(Roofline { compute: 1e-6, memory: 9e-5 }));
        assert!(add.text().contains("125.8 GB/s  90 % of roofline"), "{}", add.text());
        assert_eq!(add.speed.share_of_limit.map(|share| (share * 100.0).round()), Some(90.0));
    }

    #[test]
    fn small_ops_report_the_time_per_op_and_a_wrong_output_has_no_time() {
        let mut tiny = report("tiny-chain");
        tiny.set_timing(timing(1e-3), None);
        assert!(tiny.text().contains("median     100 ns/op"), "{}", tiny.text());
        let wrong = WorkloadReport { fault: Some("off".to_string()), ..report("add-1m") };
        assert_eq!(wrong.text(), format!("{:26}f32  wrong: off\n", "add-1m"));
        assert!(serde_json::to_value(&wrong).unwrap()["timing"].is_null());
    }
}
