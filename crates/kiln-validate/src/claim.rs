//! What a claim is, and how it ends.

use crate::clock::{Balanced, Clock};
use crate::limits::DeviceLimits;
use crate::report::{Check, Outcome, Plots, Status};
use crate::subject::{Referee, WorkReferee};
use crate::times::Ratio;
use crate::trial::{Arm, Measured, Trial, check};
use kiln::Device;
use kiln_bench::{Effort, Fault};
use serde::Serialize;
use std::path::Path;

/// A statement about performance, with everything that it takes to show it.
#[derive(Serialize)]
pub struct Claim {
    /// Its name.
    pub id: &'static str,
    /// The claim in a sentence.
    pub title: &'static str,
    /// What is measured, and how.
    pub measures: &'static str,
    /// What Kiln is compared with.
    pub comparison: &'static str,
    /// What the ratio is to be at least, by device.
    #[serde(flatten)]
    pub target: Targets,
    /// Whether it runs where few samples are taken.
    pub in_quick: bool,
    /// Measures it.
    #[serde(skip)]
    pub run: fn(&mut Context<'_>) -> Result<Evidence, Fault>,
}

/// What the ratio of a claim is to be at least; `None` where the claim says nothing about such a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Targets {
    /// On the CPU device.
    #[serde(rename = "target_cpu")]
    pub cpu: Option<f64>,
    /// On a GPU.
    #[serde(rename = "target_gpu")]
    pub gpu: Option<f64>,
}

impl Targets {
    /// Of the CPU device alone.
    pub const fn cpu(target: f64) -> Self {
        Self { cpu: Some(target), gpu: None }
    }

    /// Of a GPU alone.
    pub const fn gpu(target: f64) -> Self {
        Self { cpu: None, gpu: Some(target) }
    }

    /// Of both.
    pub const fn both(cpu: f64, gpu: f64) -> Self {
        Self { cpu: Some(cpu), gpu: Some(gpu) }
    }
}

/// What a claim has at hand.
pub struct Context<'a> {
    /// The device that it is about.
    pub device: &'a Device,
    /// What the device could do.
    pub limits: &'a mut DeviceLimits,
    /// How long to measure.
    pub effort: Effort,
    /// Whether few samples are taken, of smaller works.
    pub quick: bool,
    /// Tells the time.
    pub clock: &'a dyn Clock,
    /// The `kiln` program, for claims about fresh processes.
    pub program: Option<&'a Path>,
    /// What plots show.
    pub plots: &'a mut Plots,
}

/// What a claim rests on.
#[derive(Clone, Debug)]
#[must_use]
pub enum Evidence {
    /// Numbers, which count where all checks hold.
    Found {
        /// How many times as good as the comparison.
        ratio: Ratio,
        /// What was measured, and its unit.
        value: (f64, &'static str),
        /// The times of Kiln, where the claim is about time: median, spread and samples.
        times: Option<(f64, f64, usize)>,
        /// What was checked.
        checks: Vec<Check>,
    },
    /// It cannot be shown here, for this reason.
    Declined(String),
}

impl Context<'_> {
    /// Times arms; Kiln's is the first.
    ///
    /// # Errors
    /// What keeps an arm from running.
    pub fn measure(&mut self, arms: &mut [Arm<'_>], referee: &dyn Referee) -> Result<Measured, Fault> {
        let mut order = Balanced::new(self.effort.seed);
        let memory_bytes_per_s = self.limits.copy_bytes_per_s();
        let mut trial = Trial { clock: self.clock, order: &mut order, effort: self.effort, memory_bytes_per_s };
        trial.measure(arms, referee)
    }

    /// Times arms that do a work of the bench, with the least time that the device needs for it.
    ///
    /// The limit is measured before and after the arms, and the better one counts: on a machine that others use, it changes in between.
    ///
    /// # Errors
    /// What keeps an arm from running; a work without a limit.
    pub fn measure_bounded(&mut self, arms: &mut [Arm<'_>], work: &WorkReferee) -> Result<(Measured, f64), Fault> {
        self.limits.improve(self.device, &work.op, work.number)?;
        let measured = self.measure(arms, work)?;
        self.limits.improve(self.device, &work.op, work.number)?;
        let least_s = self.limits.least_s(&work.op, work.number).ok_or("expected a work with a limit, found none")?;
        Ok((measured.bounded(least_s), least_s))
    }
}

impl Evidence {
    /// How many times as fast the first arm is as the second. `value` turns the first arm's median into a number with a unit.
    pub fn faster(measured: Measured, value: impl FnOnce(f64) -> (f64, &'static str)) -> Self {
        let (own, other) = (&measured.arms[0], &measured.arms[1]);
        let (ratio, value) = (own.faster_than(other), value(own.median()));
        Self::timed(measured, ratio, value)
    }

    /// A ratio with the times and checks of a trial.
    pub fn timed(measured: Measured, ratio: Ratio, value: (f64, &'static str)) -> Self {
        let own = &measured.arms[0];
        let times = Some((own.median(), own.spread(), own.samples()));
        Self::Found { ratio, value, times, checks: measured.checks }
    }

    /// A ratio of counts.
    pub fn counted(ratio: f64, value: (f64, &'static str), checks: Vec<Check>) -> Self {
        Self::Found { ratio: Ratio::exact(ratio), value, times: None, checks }
    }

    /// With another check.
    pub fn with(mut self, check: Check) -> Self {
        if let Self::Found { checks, .. } = &mut self {
            checks.push(check);
        }
        self
    }
}

/// A check of counters.
pub fn counts(passed: bool, detail: impl Into<String>) -> Check {
    Check::new(check::COUNTS, passed, detail)
}

/// A check of outputs: right, as `detail` says, unless something wrong was found.
pub(crate) fn output(wrong: Option<String>, detail: impl Into<String>) -> Check {
    Check::new(check::OUTPUT, wrong.is_none(), wrong.unwrap_or_else(|| detail.into()))
}

impl Claim {
    /// How the claim ends with this evidence.
    pub fn outcome(&self, device: &str, target: f64, evidence: Result<Evidence, Fault>) -> Outcome {
        let mut outcome = Outcome {
            id: self.id.to_string(),
            title: self.title.to_string(),
            device: device.to_string(),
            value: None,
            unit: String::new(),
            target,
            comparison: self.comparison.to_string(),
            ratio: None,
            interval: None,
            status: Status::NotShown,
            reason: String::new(),
            median: None,
            spread: None,
            samples: 0,
            checks: Vec::new(),
        };
        match evidence {
            Err(fault) => outcome.reason = format!("it could not run: {fault}"),
            Ok(Evidence::Declined(reason)) => outcome.reason = reason,
            Ok(Evidence::Found { ratio, value: (value, unit), times, checks }) => {
                (outcome.status, outcome.reason) = verdict(ratio, target, &checks);
                (outcome.value, outcome.unit) = (Some(value), unit.to_string());
                (outcome.ratio, outcome.interval) = (Some(ratio.median), Some(ratio.interval));
                if let Some((median, spread, samples)) = times {
                    (outcome.median, outcome.spread, outcome.samples) = (Some(median), Some(spread), samples);
                }
                outcome.checks = checks;
            }
        }
        outcome
    }
}

/// A wrong output fails. A number that another check makes worthless shows nothing. A target within the noise is neither reached nor missed.
fn verdict(ratio: Ratio, target: f64, checks: &[Check]) -> (Status, String) {
    if let Some(wrong) = checks.iter().find(|found| !found.passed && found.name == check::OUTPUT) {
        return (Status::Failed, wrong.detail.clone());
    }
    if let Some(fault) = checks.iter().find(|found| !found.passed) {
        return (Status::NotShown, fault.detail.clone());
    }
    let Ratio { median, interval: [low, high], best } = ratio;
    if low >= target {
        (Status::Shown, String::new())
    } else if best < target {
        (Status::Failed, format!("expected at least {target}, found {median:.3}"))
    } else {
        let best = if best > high { format!(", {best:.3} at best") } else { String::new() };
        let reason =
            format!("the target of {target} is within the noise: the ratio is between {low:.3} and {high:.3}{best}");
        (Status::NotShown, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, passed: bool) -> Check {
        Check { name: name.to_string(), passed, detail: format!("{name} detail") }
    }

    #[test]
    fn a_claim_is_shown_only_with_all_checks_and_beyond_the_noise() {
        let ratio = |low: f64, median: f64, high: f64| Ratio { median, interval: [low, high], best: high };
        let fine = || vec![found(check::OUTPUT, true), found(check::WORK, true)];
        let table = [
            (ratio(1.1, 1.2, 1.3), fine(), Status::Shown, ""),
            (ratio(0.9, 1.2, 1.3), fine(), Status::NotShown, "within the noise"),
            (Ratio { best: 1.1, ..ratio(0.7, 0.8, 0.9) }, fine(), Status::NotShown, "0.900, 1.100 at best"),
            (ratio(0.7, 0.8, 0.9), fine(), Status::Failed, "expected at least 1, found 0.800"),
            (ratio(1.1, 1.2, 1.3), vec![found(check::WORK, false)], Status::NotShown, "work detail"),
            (
                ratio(1.1, 1.2, 1.3),
                vec![found(check::WORK, false), found(check::OUTPUT, false)],
                Status::Failed,
                "output detail",
            ),
            (ratio(f64::NAN, f64::NAN, f64::NAN), fine(), Status::NotShown, "within the noise"),
        ];
        for (ratio, checks, status, reason) in table {
            let (found, why) = verdict(ratio, 1.0, &checks);
            assert_eq!(found, status, "{ratio:?}");
            assert!(why.contains(reason), "{why}");
        }
    }
}
