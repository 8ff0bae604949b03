//! `cargo bench -p kiln-device`: measures the performance claims about the pool.
//!
//! See the harness for the method and the arguments after `--`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

mod counted;
mod drift;
#[path = "../harness/mod.rs"]
mod harness;
mod idle;
mod latency;
mod plot;
mod resident;
mod reuse;
mod stress;
mod transfer;

use harness::report::Report;
use harness::{Effort, Section};
use kiln_device::{Device, PoolOptions};
use std::cell::OnceCell;
use std::process::ExitCode;

/// The state that all sections share.
struct Bench {
    effort: Effort,
    report: Report,
    gpu: OnceCell<Option<Device>>,
}

impl Bench {
    /// Opens a CPU device with a new pool.
    fn cpu(&self, pool: PoolOptions) -> Device {
        kiln_cpu::open(kiln_cpu::CpuOptions::new().pool(pool)).unwrap()
    }

    /// Returns the GPU, opened at its first use, because its driver holds memory that would disturb other sections.
    fn gpu(&self) -> Option<Device> {
        let open = || match kiln_gpu::open(0, kiln_gpu::GpuOptions::new()) {
            Ok(gpu) => {
                println!("  gpu: {} ({}, {})", gpu.info().name, gpu.info().kind, gpu.info().driver);
                Some(gpu)
            }
            Err(error) => {
                println!("  gpu: none, its benchmarks are skipped ({error})");
                None
            }
        };
        self.gpu.get_or_init(open).clone()
    }

    /// Returns the available devices with their names in the output.
    fn devices(&self) -> Vec<(&'static str, Device)> {
        let gpu = self.gpu().map(|gpu| ("gpu", gpu));
        [("cpu", self.cpu(PoolOptions::new()))].into_iter().chain(gpu).collect()
    }
}

/// Ordered: resident memory can only be measured before the other sections have run.
const SECTIONS: [Section<Bench>; 6] = [
    ("idle", idle::run),
    ("reuse", reuse::run),
    ("latency", latency::run),
    ("stress", stress::run),
    ("drift", drift::run),
    ("transfer", transfer::run),
];

fn main() -> ExitCode {
    harness::run(
        &SECTIONS,
        |effort| Bench { effort, report: Report::default(), gpu: OnceCell::new() },
        |bench| bench.report.finish(),
    )
}
