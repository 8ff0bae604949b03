//! The report of `kiln profile`.

use crate::terminal::{self, Report, plain, seconds, table_of};
use kiln::ir::Bytes;
use kiln::observe::{DeviceSummary, KernelSummary};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The JSON format of a profile; unknown fields are `null`.
#[derive(Debug, Serialize)]
pub(super) struct ProfileReport {
    command: String,
    /// `null` if a signal ended it.
    exit_status: Option<i32>,
    timeline: PathBuf,
    pub(super) devices: Vec<DeviceProfile>,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceProfile {
    #[serde(flatten)]
    pub(super) summary: DeviceSummary,
    /// Replaces the kernels of the summary.
    pub(super) kernels: Vec<KernelLine>,
}

/// One kernel. Rates are of the timed launches.
#[derive(Debug, Serialize)]
pub(super) struct KernelLine {
    #[serde(flatten)]
    pub(super) kernel: KernelSummary,
    mean_ns: Option<f64>,
    gbytes_per_s: Option<f64>,
    gflops_per_s: Option<f64>,
    pub(super) limit: Option<LimitShare>,
}

/// How close a kernel comes to the roofline of its device.
#[derive(Debug, Serialize)]
pub(super) struct LimitShare {
    /// The limiting resource: `copy`, bytes per second of a copy, or `fma`, multiply-adds per second.
    pub(super) of: &'static str,
    /// Roofline time divided by measured time, 1 at the limit.
    pub(super) share: f64,
}

impl ProfileReport {
    pub(super) fn new(command: &str, exit_status: Option<i32>, timeline: &Path, devices: Vec<DeviceSummary>) -> Self {
        let device = |mut summary: DeviceSummary| {
            let kernels = std::mem::take(&mut summary.kernels);
            DeviceProfile { summary, kernels: kernels.into_iter().map(KernelLine::new).collect() }
        };
        let devices = devices.into_iter().map(device).collect();
        Self { command: command.to_string(), exit_status, timeline: timeline.to_path_buf(), devices }
    }
}

impl KernelLine {
    fn new(kernel: KernelSummary) -> Self {
        // A byte per nanosecond is a gigabyte per second.
        let rate = |amount: u64| (kernel.total_ns > 0).then(|| amount as f64 / kernel.total_ns as f64);
        Self {
            mean_ns: (kernel.timed > 0).then(|| kernel.total_ns as f64 / kernel.timed as f64),
            gbytes_per_s: rate(kernel.timed_bytes),
            gflops_per_s: rate(kernel.timed_flops),
            limit: None,
            kernel,
        }
    }

    fn cells(&self) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let time = |ns: Option<f64>| ns.map_or("-".into(), short_time);
        vec![
            plain(&self.kernel.name),
            self.kernel.launches.to_string(),
            time((self.kernel.timed > 0).then_some(self.kernel.total_ns as f64)),
            time(self.mean_ns),
            Bytes(self.kernel.bytes).to_string(),
            number(self.gbytes_per_s),
            number(self.gflops_per_s),
            self.limit.as_ref().map_or("-".into(), |limit| format!("{:.0} % {}", 100.0 * limit.share, limit.of)),
        ]
    }
}

const HEAD: [&str; 8] = ["kernel", "launches", "total", "mean", "bytes", "GB/s", "GFLOP/s", "roofline"];

impl Report for ProfileReport {
    fn text(&self) -> String {
        let mut text = String::new();
        for device in &self.devices {
            text += &device.text();
            text += "\n";
        }
        text + &format!("timeline: {} (for https://ui.perfetto.dev)\n", self.timeline.display())
    }
}

impl DeviceProfile {
    fn text(&self) -> String {
        let summary = &self.summary;
        let name = summary.name.as_deref().map_or_else(String::new, |name| format!(" ({})", plain(name)));
        let mut text = format!("{}{name}\n", plain(&summary.device));
        if self.kernels.is_empty() {
            text += "no kernel ran\n";
        } else {
            text += &table_of(&HEAD, self.kernels.iter().map(KernelLine::cells));
        }
        let window = summary.window_ns.max(1) as f64;
        let (watched, rest) = (short_time(summary.window_ns as f64), short_time(summary.unattributed_ns as f64));
        let share = 100.0 * summary.unattributed_ns as f64 / window;
        text += &format!("unattributed: {rest} of {watched} watched, {share:.1} %\n");
        if summary.untimed_launches > 0 {
            text += &format!("untimed launches: {}; their time is unattributed\n", summary.untimed_launches);
        }
        if summary.dropped_events > 0 {
            let events = terminal::count(summary.dropped_events, "event");
            text += &format!("incomplete: {events} dropped (buffer full, or write failed)\n");
        }
        if summary.name.is_none() {
            text += "incomplete: the start of the event stream is missing\n";
        }
        if summary.is_cut_off {
            text += "incomplete: the end of the event stream is missing\n";
        }
        text
    }
}

fn short_time(ns: f64) -> String {
    seconds(ns * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, launches: u64, timed: u64, total_ns: u64) -> KernelSummary {
        KernelSummary {
            name: name.to_string(),
            launches,
            bytes: 1000 * launches,
            flops: 500 * launches,
            timed,
            total_ns,
            timed_bytes: 1000 * timed,
            timed_flops: 500 * timed,
        }
    }

    #[test]
    fn the_table_says_what_is_known_and_what_is_not() {
        let summary = DeviceSummary {
            device: "cpu".into(),
            name: Some("toy".into()),
            window_ns: 40_000,
            kernels_ns: 10_000,
            unattributed_ns: 30_000,
            untimed_launches: 1,
            dropped_events: 2,
            kernels: vec![kernel("matmul", 10, 10, 10_000), kernel("gather", 1, 0, 0)],
            ..DeviceSummary::default()
        };
        let mut report = ProfileReport::new("toy", Some(0), Path::new("out.json"), vec![summary]);
        report.devices[0].kernels[0].limit = Some(LimitShare { of: "fma", share: 0.25 });
        insta::assert_snapshot!(report.text(), @"
        cpu (toy)
        kernel  launches  total    mean     bytes    GB/s  GFLOP/s  roofline
        matmul  10        10.0 µs  1.00 µs  9.8 KiB  1.00  0.50     25 % fma
        gather  1         -        -        1000 B   -     -        -
        unattributed: 30.0 µs of 40.0 µs watched, 75.0 %
        untimed launches: 1; their time is unattributed
        incomplete: 2 events dropped (buffer full, or write failed)

        timeline: out.json (for https://ui.perfetto.dev)
        ");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["devices"][0]["kernels"][0]["gflops_per_s"], 0.5);
        assert_eq!(json["devices"][0]["kernels"][1]["mean_ns"], serde_json::Value::Null);
        assert_eq!(json["devices"][0]["unattributed_ns"], 30_000);
    }
}
