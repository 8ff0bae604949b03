//! What the benchmarks of this crate share besides their arms: verdicts, and how long a run takes.
//!
//! Arms of a comparison run interleaved, in random order, after a warm-up; times are medians with their quartiles, and a
//! ratio is the median of the ratios within a round. Every measurement checks its output: a number whose check failed is
//! not shown, and the process then ends with status 1. A slow machine alone never does that. Numbers of one run compare;
//! numbers of two runs on a shared machine do not.
//!
//! After `--`: names of sections to run only these, `--quick` for a short run. With `--test`, and without the `--bench`
//! that `cargo bench` gives, as under `cargo test --benches`, everything runs for a moment: the checks count then, not
//! the numbers.

pub(crate) mod report;

use std::process::ExitCode;

/// How long a run takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    Quick,
    /// Only so long that every check has run.
    Check,
}

impl Effort {
    /// One of three numbers, of rounds or of operations.
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

/// Runs the sections that the command line asks for on what `start` makes, and ends as `finish` says.
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

/// What the command line asks for: how long, and which of the sections; what is wrong with it otherwise.
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
