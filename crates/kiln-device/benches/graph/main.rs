//! `cargo bench -p kiln-device --bench graph`: measures the performance claims about graphs.
//!
//! See the harness for the method and the arguments after `--`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

mod chains;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "other benchmarks use more of it")]
mod harness;
mod overhead;

use harness::report::Report;
use harness::{Effort, Section};
use std::process::ExitCode;

/// The state that all sections share.
struct Bench {
    effort: Effort,
    report: Report,
}

const SECTIONS: [Section<Bench>; 2] = [("chains", chains::run), ("overhead", overhead::run)];

fn main() -> ExitCode {
    harness::run(&SECTIONS, |effort| Bench { effort, report: Report::default() }, |bench| bench.report.finish())
}
