//! Comparison with an earlier report. Ratios come from one run on one machine, so they are comparable across machines.

use crate::report::{Outcome, Report};
use serde::{Deserialize, Serialize};

/// The stored part of a report: the ratio of each claim on each device.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Version of Kiln.
    pub version: String,
    /// The ratios.
    pub claims: Vec<BaselineClaim>,
}

/// A stored claim.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineClaim {
    /// Name of the claim.
    pub id: String,
    /// The device.
    pub device: String,
    /// Ratio; `None` if none was measured.
    pub ratio: Option<f64>,
}

/// A claim that got worse.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regression {
    /// Name of the claim.
    pub id: String,
    /// The device.
    pub device: String,
    /// Ratio in the baseline.
    pub before: f64,
    /// Current ratio; `None` if the output was wrong or nothing was measured.
    pub now: Option<f64>,
    /// Description of the regression.
    pub reason: String,
}

impl Baseline {
    /// Creates a baseline from a report.
    pub fn of(report: &Report) -> Self {
        let claim = |claim: &Outcome| BaselineClaim {
            id: claim.id.clone(),
            device: claim.device.clone(),
            // A failed check invalidates the ratio.
            ratio: claim.ratio.filter(|ratio| ratio.is_finite() && claim.checks.iter().all(|check| check.passed)),
        };
        Self { version: report.version.clone(), claims: report.claims.iter().map(claim).collect() }
    }

    /// Returns the claims whose ratio fell by more than the fraction `most`: with 0.1, from 2 to less than 1.8. A claim that was not measured this
    /// time is not a regression.
    pub fn regressions(&self, report: &Report, most: f64) -> Vec<Regression> {
        let is_of = |known: &BaselineClaim, claim: &Outcome| claim.id == known.id && claim.device == known.device;
        let judge =
            |known: &BaselineClaim| known.against(report.claims.iter().find(|claim| is_of(known, claim))?, most);
        self.claims.iter().filter_map(judge).collect()
    }
}

impl BaselineClaim {
    /// Compares a claim with the baseline. A ratio whose interval reaches the bound is explained by noise, and a ratio with another failed check
    /// is ignored; a wrong output, and a claim that could not run, are always regressions.
    fn against(&self, claim: &Outcome, most: f64) -> Option<Regression> {
        let before = self.ratio?;
        let (now, reason) = if let Some(wrong) = claim.wrong_output() {
            (None, wrong.detail.clone())
        } else if let Some(now) = claim.ratio {
            if claim.checks.iter().any(|check| !check.passed) {
                return None;
            }
            let best = claim.interval.map_or(now, |[_, high]| high);
            // The comparison is false for a NaN ratio, which counts as a regression.
            if best >= before * (1.0 - most) {
                return None;
            }
            (Some(now), format!("fell from {before:.3} to {now:.3}"))
        } else {
            (None, format!("nothing was measured: {}", claim.reason))
        };
        Some(Regression { id: self.id.clone(), device: self.device.clone(), before, now, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Check, Status};

    fn outcome(ratio: f64, interval: [f64; 2], status: Status, checks: &[(&str, bool)]) -> Outcome {
        let check = |(name, passed): &(&str, bool)| Check {
            name: name.to_string(),
            passed: *passed,
            detail: "why".to_string(),
        };
        Outcome {
            id: "one".to_string(),
            title: String::new(),
            device: "cpu".to_string(),
            value: None,
            unit: String::new(),
            target: 1.0,
            comparison: String::new(),
            ratio: Some(ratio),
            interval: Some(interval),
            status,
            reason: String::new(),
            median: None,
            spread: None,
            samples: 0,
            checks: checks.iter().map(check).collect(),
        }
    }

    /// Noise is not a regression; a wrong output always is.
    #[test]
    fn a_regression_is_beyond_the_bound_and_beyond_the_noise() {
        let known = BaselineClaim { id: "one".to_string(), device: "cpu".to_string(), ratio: Some(2.0) };
        let table = [
            (outcome(1.9, [1.9, 1.9], Status::Shown, &[]), None),
            (outcome(1.7, [1.6, 1.79], Status::Shown, &[]), Some("fell from 2.000 to 1.700")),
            (outcome(1.7, [1.6, 1.81], Status::Shown, &[]), None),
            (outcome(1.0, [1.0, 1.0], Status::NotShown, &[("clock", false)]), None),
            (outcome(2.5, [2.5, 2.5], Status::Failed, &[("output", false), ("clock", false)]), Some("why")),
        ];
        for (claim, reason) in table {
            let found = known.against(&claim, 0.1);
            assert_eq!(found.as_ref().map(|found| found.reason.as_str()), reason, "{claim:?}");
            assert_eq!(found.and_then(|found| found.now).is_some(), reason.is_some_and(|reason| reason != "why"));
        }
        let gone =
            Outcome { ratio: None, reason: "no device".to_string(), ..outcome(0.0, [0.0; 2], Status::NotShown, &[]) };
        let found = known.against(&gone, 0.1).map(|found| found.reason);
        assert_eq!(found.as_deref(), Some("nothing was measured: no device"));
        let unmeasured = BaselineClaim { ratio: None, ..known };
        assert_eq!(unmeasured.against(&outcome(0.1, [0.1, 0.1], Status::Failed, &[]), 0.1), None);
    }
}
