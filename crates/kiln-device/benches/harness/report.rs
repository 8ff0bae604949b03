//! Output lines: numbers with their target and verdict.

use kiln_testkit::arms::{Quartiles, Results};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Checks of the output of a measurement, shared by its threads.
#[derive(Default)]
pub(crate) struct Checks {
    failed: AtomicU64,
}

impl Checks {
    pub(crate) fn expect(&self, holds: bool) {
        if !holds {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The target of a number.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// A number with its unit.
pub(crate) struct Number {
    value: f64,
    spread: Option<(f64, f64)>,
    unit: &'static str,
}

impl Number {
    pub(crate) fn new(value: f64, unit: &'static str) -> Self {
        Self { value, spread: None, unit }
    }

    pub(crate) fn of(quartiles: Quartiles, unit: &'static str) -> Self {
        Self { value: quartiles.median, spread: Some((quartiles.low, quartiles.high)), unit }
    }

    fn spread(&self) -> String {
        self.spread.map_or(String::new(), |(low, high)| format!(" [{low:.2} to {high:.2}]"))
    }
}

/// Counts the verdicts of a run.
#[derive(Default)]
pub(crate) struct Report {
    shown: u32,
    not_shown: u32,
    wrong: u32,
}

impl Report {
    /// Prints a number with its target and the verdict.
    pub(crate) fn claim(&mut self, what: &str, number: &Number, target: Target, checks: &Checks) {
        let Number { value, unit, .. } = number;
        let (reached, words, limit) = match target {
            Target::AtLeast(limit) => (*value >= limit, "at least", limit),
            Target::AtMost(limit) => (*value <= limit, "at most", limit),
        };
        let verdict = match (checks.failed(), reached) {
            (0, true) => {
                self.shown += 1;
                "shown".into()
            }
            (0, false) => {
                self.not_shown += 1;
                "not shown".into()
            }
            (failed, _) => {
                self.wrong += 1;
                format!("not shown: {failed} wrong outputs")
            }
        };
        let spread = number.spread();
        println!("  {what:<50} {value:>8.2} {unit}{spread}, target {words} {limit} {unit}: {verdict}");
    }

    /// Reports that a number does not count, because something else was measured.
    pub(crate) fn withhold(&mut self, what: &str, reason: &str) {
        self.not_shown += 1;
        println!("  {what:<50} not shown: {reason}");
    }

    /// Prints a separate correctness check.
    pub(crate) fn check(&mut self, what: &str, holds: bool) {
        if holds {
            self.shown += 1;
        } else {
            self.wrong += 1;
        }
        println!("  {what:<50} {}", if holds { "shown" } else { "not shown: wrong" });
    }

    /// Prints a number that has no target.
    pub(crate) fn note(&mut self, what: &str, number: &Number, checks: &Checks) {
        let Number { value, unit, .. } = number;
        println!("  {what:<50} {value:>8.2} {unit}{}{}", number.spread(), self.count_wrong(checks));
    }

    /// Returns the end of a line without a target if its outputs are wrong.
    pub(crate) fn count_wrong(&mut self, checks: &Checks) -> String {
        if checks.failed() == 0 {
            return String::new();
        }
        self.wrong += 1;
        format!(": not shown, {} wrong outputs", checks.failed())
    }

    /// Prints the verdicts in one line. Only a wrong output fails the process.
    pub(crate) fn finish(&self) -> ExitCode {
        println!("{} shown, {} not shown, {} wrong", self.shown, self.not_shown, self.wrong);
        if self.wrong > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Prints the median and quartiles of every arm.
pub(crate) fn print_arms(results: &Results) {
    for name in results.names() {
        let Quartiles { low, median, high } = results.quartiles(name);
        println!("  {name:<34} {median:>9.1} ns   [{low:.1} to {high:.1}]");
    }
}
