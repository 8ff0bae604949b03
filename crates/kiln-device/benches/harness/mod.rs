//! The harness of this crate's benchmarks: verdicts, and the duration of a run.
//!
//! The arms of a comparison run interleaved, in random order, after a warm-up. Times are medians with quartiles, and a
//! ratio is the median of the ratios within a round. Every measurement checks its output: if a check fails, the number
//! is not shown and the process exits with status 1. A slow machine alone never causes that. Numbers of different runs
//! on a shared machine are not comparable.
//!
//! After `--`: names of sections, to run only these; `--quick` for a short run. With `--test`, and without the
//! `--bench` that `cargo bench` passes, as under `cargo test --benches`, everything runs briefly: only the checks count
//! then.

pub(crate) mod report;

use std::process::ExitCode;

/// The duration of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    Quick,
    /// Just long enough to run every check.
    Check,
}

impl Effort {
    /// Selects one of three numbers of rounds or operations.
    pub(crate) fn pick<T>(self, full: T, quick: T, check: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Check => check,
        }
    }
}

/// A part of a benchmark with its name on the command line.
pub(crate) type Section<B> = (&'static str, fn(&mut B));

/// Runs the selected sections on the state that `start` creates, and exits as `finish` says.
pub(crate) fn run<B>(
    sections: &[Section<B>],
    start: impl FnOnce(Effort) -> B,
    finish: impl FnOnce(B) -> ExitCode,
) -> ExitCode {
    let names: Vec<&'static str> = sections.iter().map(|(name, _)| *name).collect();
    let (effort, wanted) = match arguments(&names) {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = start(effort);
    for (name, run) in sections {
        if wanted.contains(name) {
            run(&mut bench);
            println!();
        }
    }
    finish(bench)
}

/// Parses the command line: the duration and the selected sections, or an error message.
fn arguments(sections: &[&'static str]) -> Result<(Effort, Vec<&'static str>), String> {
    let (mut bench, mut quick, mut test) = (false, false, false);
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--bench" => bench = true,
            "--quick" => quick = true,
            "--test" => test = true,
            name => match sections.iter().find(|section| **section == name) {
                Some(section) => wanted.push(*section),
                None => {
                    let names = sections.join(", ");
                    return Err(format!("expected --quick or sections out of {names}, found `{argument}`"));
                }
            },
        }
    }
    let effort = match (quick, bench && !test) {
        (true, _) => Effort::Quick,
        (false, true) => Effort::Full,
        (false, false) => Effort::Check,
    };
    Ok((effort, if wanted.is_empty() { sections.to_vec() } else { wanted }))
}
