//! `cargo bench -p kiln-device --bench kernels`: measures the performance claims about the kernel cache and command
//! lists, on the first GPU.
//!
//! See the harness for the method and the arguments after `--`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

mod commands;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "other benchmarks use more of it")]
mod harness;
mod start;
mod subjects;
mod tiers;

use harness::report::Report;
use harness::{Effort, Section};
use std::process::ExitCode;

/// The state that all sections share.
struct Bench {
    effort: Effort,
    report: Report,
}

const SECTIONS: [Section<Bench>; 4] =
    [("memory", tiers::memory), ("disk", tiers::disk), ("start", start::run), ("commands", commands::run)];

fn main() -> ExitCode {
    if let Some(directory) = std::env::var_os(start::CHILD) {
        return start::child(&directory);
    }
    if let Err(error) = kiln_gpu::probe() {
        println!("not shown: {error}");
        return if std::env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    harness::run(&SECTIONS, |effort| Bench { effort, report: Report::default() }, |bench| bench.report.finish())
}
