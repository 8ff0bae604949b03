//! `cargo bench -p kiln-runtime --bench graph`: what graphs promise, shown or not shown on this machine, in one run.
//!
//! How it measures, and what to give after `--`: see the harness.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

mod chains;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "other benchmarks use more of it")]
mod harness;
mod overhead;

use harness::Effort;
use harness::report::Report;
use std::process::ExitCode;

/// What every section gets.
struct Bench {
    effort: Effort,
    report: Report,
}

type Section = (&'static str, fn(&mut Bench));

const SECTIONS: [Section; 2] = [("chains", chains::run), ("overhead", overhead::run)];

fn main() -> ExitCode {
    let (effort, wanted) = match harness::arguments(&SECTIONS.map(|(name, _)| name)) {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench { effort, report: Report::default() };
    for (name, run) in SECTIONS {
        if wanted.contains(&name) {
            run(&mut bench);
            println!();
        }
    }
    bench.report.finish()
}
