//! Claims, their evidence and how they are judged.

use crate::clock::{BalancedOrder, Clock};
use crate::limits::DeviceLimits;
use crate::report::{Check, Outcome, Plots, Status};
use crate::subject::{Referee, WorkloadReferee};
use crate::times::Ratio;
use crate::trial::{Arm, Measured, Trial, check};
use kiln::Device;
use kiln_bench::{Fault, SamplingConfig};
use serde::Serialize;
use std::path::Path;

/// A performance claim and the code that measures it.
///
/// See the [crate documentation](crate) for an example.
#[derive(Serialize)]
pub struct Claim {
    /// Name of the claim.
    pub id: &'static str,
    /// The claim as a sentence.
    pub title: &'static str,
    /// A description of the measurement.
    pub measures: &'static str,
    /// The baseline that Kiln is compared with.
    pub comparison: &'static str,
    /// Minimum ratio, by device kind.
    #[serde(flatten)]
    pub target: Targets,
    /// Whether the claim is part of a quick run.
    pub in_quick: bool,
    /// Measures the claim.
    #[serde(skip)]
    pub run: fn(&mut Context<'_>) -> Result<Evidence, Fault>,
}

/// Minimum ratios of a claim; `None` if the claim does not apply to that kind of device.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Targets {
    /// Target on the CPU device.
    #[serde(rename = "target_cpu")]
    pub cpu: Option<f64>,
    /// Target on a GPU.
    #[serde(rename = "target_gpu")]
    pub gpu: Option<f64>,
}

impl Targets {
    /// Creates a target for the CPU device only.
    pub const fn cpu(target: f64) -> Self {
        Self { cpu: Some(target), gpu: None }
    }

    /// Creates a target for GPUs only.
    pub const fn gpu(target: f64) -> Self {
        Self { cpu: None, gpu: Some(target) }
    }

    /// Creates targets for both.
    pub const fn both(cpu: f64, gpu: f64) -> Self {
        Self { cpu: Some(cpu), gpu: Some(gpu) }
    }
}

/// The environment in which a claim runs.
///
/// See the [crate documentation](crate) for an example.
pub struct Context<'a> {
    /// The device under test.
    pub device: &'a Device,
    /// Measured limits of the device.
    pub limits: &'a mut DeviceLimits,
    /// How long to measure.
    pub sampling: SamplingConfig,
    /// Whether this is a quick run: fewer samples, smaller workloads.
    pub quick: bool,
    /// Clock of the measurements.
    pub clock: &'a dyn Clock,
    /// The `kiln` program, for claims about fresh processes.
    pub program: Option<&'a Path>,
    /// Plot data, which claims append to.
    pub plots: &'a mut Plots,
}

/// The evidence for a claim.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub enum Evidence {
    /// A measurement, which counts if all checks pass.
    Found {
        /// Ratio to the comparison; larger is better.
        ratio: Ratio,
        /// Measured value and its unit.
        value: (f64, &'static str),
        /// Kiln's times, if the claim is about time: median, spread and number of samples.
        times: Option<(f64, f64, usize)>,
        /// The checks and their results.
        checks: Vec<Check>,
    },
    /// The claim cannot be shown here; contains the reason.
    Declined(String),
}

impl Context<'_> {
    /// Times the arms; the first one is Kiln.
    ///
    /// # Errors
    /// Returns the error of an arm that cannot run.
    pub fn measure(&mut self, arms: &mut [Arm<'_>], referee: &dyn Referee) -> Result<Measured, Fault> {
        let mut order = BalancedOrder::new(self.sampling.seed);
        let memory_bytes_per_s = self.limits.copy_bytes_per_s();
        let mut trial = Trial { clock: self.clock, order: &mut order, sampling: self.sampling, memory_bytes_per_s };
        trial.measure(arms, referee)
    }

    /// Times arms that run a `kiln-bench` workload, and returns the roofline time of the device with them.
    ///
    /// The limit is measured before and after the arms and the better one counts, because it changes on a machine with other users.
    ///
    /// # Errors
    /// Returns the error of an arm that cannot run, or an error if the workload has no limit.
    pub fn measure_bounded(
        &mut self,
        arms: &mut [Arm<'_>],
        workload: &WorkloadReferee,
    ) -> Result<(Measured, f64), Fault> {
        self.limits.improve(self.device, &workload.op, workload.dtype)?;
        let measured = self.measure(arms, workload)?;
        self.limits.improve(self.device, &workload.op, workload.dtype)?;
        // `improve` has measured this footprint, so `None` means that the workload has no roofline.
        let roofline_s = self
            .limits
            .roofline_s(&workload.op, workload.dtype)
            .ok_or("expected a workload with a roofline, found none")?;
        Ok((measured.bounded(roofline_s), roofline_s))
    }
}

impl Evidence {
    /// Creates evidence from the speedup of the first arm over the second. `value` turns the first arm's median into a number with a unit.
    pub fn faster(measured: Measured, value: impl FnOnce(f64) -> (f64, &'static str)) -> Self {
        let (own, other) = (&measured.arms[0], &measured.arms[1]);
        let (ratio, value) = (own.faster_than(other), value(own.median()));
        Self::timed(measured, ratio, value)
    }

    /// Creates evidence from a ratio and the times and checks of a trial.
    pub fn timed(measured: Measured, ratio: Ratio, value: (f64, &'static str)) -> Self {
        let own = &measured.arms[0];
        let times = Some((own.median(), own.spread(), own.samples()));
        Self::Found { ratio, value, times, checks: measured.checks }
    }

    /// Creates evidence from a ratio of counts, which have no noise.
    pub fn counted(ratio: f64, value: (f64, &'static str), checks: Vec<Check>) -> Self {
        Self::Found { ratio: Ratio::exact(ratio), value, times: None, checks }
    }

    /// Adds a check.
    pub fn with(mut self, check: Check) -> Self {
        if let Self::Found { checks, .. } = &mut self {
            checks.push(check);
        }
        self
    }
}

/// Creates a check of counters.
///
/// See the [crate documentation](crate) for an example.
pub fn counts(passed: bool, detail: impl Into<String>) -> Check {
    Check::new(check::COUNTS, passed, detail)
}

/// Creates a check of outputs: it passes with `detail` unless `wrong` is set.
pub(crate) fn output(wrong: Option<String>, detail: impl Into<String>) -> Check {
    Check::new(check::OUTPUT, wrong.is_none(), wrong.unwrap_or_else(|| detail.into()))
}

impl Claim {
    /// Judges the claim by this evidence.
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
            Err(fault) => outcome.reason = format!("could not run: {fault}"),
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

/// Judges a ratio. A wrong output fails; any other failed check invalidates the number; a target within the noise is neither reached nor missed.
fn verdict(ratio: Ratio, target: f64, checks: &[Check]) -> (Status, String) {
    if let Some(wrong) = checks.iter().find(|found| !found.passed && found.name == check::OUTPUT) {
        return (Status::Failed, wrong.detail.clone());
    }
    if let Some(fault) = checks.iter().find(|found| !found.passed) {
        return (Status::NotShown, fault.detail.clone());
    }
    let Ratio { median, interval: [low, high], best } = ratio;
    // Both comparisons are false for NaN, so a ratio without samples is not shown.
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
