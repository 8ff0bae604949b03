//! `cargo bench -p kiln-runtime`: what the pool promises, shown or not shown on this machine, in one run.
//!
//! Arms of a comparison run interleaved, in random order, after a warm-up; times are medians with their quartiles, and a
//! ratio is the median of the ratios within a round. Every measurement checks its output: a number whose check failed is
//! not shown, and the process then ends with status 1. A slow machine alone never does that. Numbers of one run compare;
//! numbers of two runs on a shared machine do not.
//!
//! After `--`: names of sections to run only these, `--quick` for a short run. With `--test`, and without the `--bench`
//! that `cargo bench` gives, as under `cargo test --benches`, everything runs for a moment: the checks count then, not
//! the numbers.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

mod counted;
mod drift;
mod harness;
mod idle;
mod latency;
mod plot;
mod report;
mod resident;
mod reuse;
mod stress;
mod transfer;

use kiln_runtime::{Device, PoolOptions};
use report::Report;
use std::cell::OnceCell;
use std::process::ExitCode;

/// How long a run takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    Full,
    Quick,
    /// Only so long that every check has run.
    Check,
}

impl Effort {
    /// One of three numbers, of rounds or of operations.
    fn pick<T>(self, full: T, quick: T, check: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Check => check,
        }
    }
}

/// What every section gets.
struct Bench {
    effort: Effort,
    report: Report,
    gpu: OnceCell<Option<Device>>,
}

impl Bench {
    /// A CPU device with a fresh pool.
    fn cpu(&self, pool: PoolOptions) -> Device {
        kiln_cpu::open(kiln_cpu::CpuOptions::new().pool(pool)).unwrap()
    }

    /// The GPU, opened when a section first asks: its driver holds memory that would hide what another section measures.
    fn gpu(&self) -> Option<Device> {
        let open = || match kiln_gpu::open(0, kiln_gpu::GpuOptions::new()) {
            Ok(gpu) => {
                println!("  gpu: {} ({}, {})", gpu.info().name, gpu.info().kind, gpu.info().driver);
                Some(gpu)
            }
            Err(error) => {
                println!("  gpu: none, its lines are left out ({error})");
                None
            }
        };
        self.gpu.get_or_init(open).clone()
    }

    /// The devices there are, with the names that lines use.
    fn devices(&self) -> Vec<(&'static str, Device)> {
        let gpu = self.gpu().map(|gpu| ("gpu", gpu));
        [("cpu", self.cpu(PoolOptions::new()))].into_iter().chain(gpu).collect()
    }
}

type Section = (&'static str, fn(&mut Bench));

/// The resident memory of the process is clean only before the others have run.
const SECTIONS: [Section; 6] = [
    ("idle", idle::run),
    ("reuse", reuse::run),
    ("latency", latency::run),
    ("stress", stress::run),
    ("drift", drift::run),
    ("transfer", transfer::run),
];

fn main() -> ExitCode {
    let (mut bench, mut quick, mut test) = (false, false, false);
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--bench" => bench = true,
            "--quick" => quick = true,
            "--test" => test = true,
            name if SECTIONS.iter().any(|(section, _)| *section == name) => wanted.push(argument),
            _ => {
                let names = SECTIONS.map(|(name, _)| name).join(", ");
                println!("expected --quick or sections out of {names}, found `{argument}`");
                return ExitCode::from(2);
            }
        }
    }
    let effort = match (quick, bench && !test) {
        (true, _) => Effort::Quick,
        (false, true) => Effort::Full,
        (false, false) => Effort::Check,
    };
    let mut bench = Bench { effort, report: Report::default(), gpu: OnceCell::new() };
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(&mut bench);
            println!();
        }
    }
    bench.report.finish()
}
