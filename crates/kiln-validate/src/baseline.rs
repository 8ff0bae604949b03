//! Against an earlier report: ratios that became worse. Ratios are those of one run on one machine, so they mean the same on another.

use crate::report::{Outcome, Report, Status};
use serde::{Deserialize, Serialize};

/// What is kept of a report: the ratio of each claim on each device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The version of Kiln.
    pub version: String,
    /// The ratios.
    pub claims: Vec<BaselineClaim>,
}

/// A claim as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineClaim {
    /// The claim's name.
    pub id: String,
    /// The device.
    pub device: String,
    /// The ratio; `None` where none was found.
    pub ratio: Option<f64>,
}

/// A claim that became worse.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regression {
    /// The claim's name.
    pub id: String,
    /// The device.
    pub device: String,
    /// The ratio as it was.
    pub before: f64,
    /// The ratio now; `None` where the claim failed by its output, or is gone.
    pub now: Option<f64>,
    /// In words.
    pub reason: String,
}

impl Baseline {
    /// What is kept of a report.
    pub fn of(report: &Report) -> Self {
        let claim = |claim: &Outcome| BaselineClaim {
            id: claim.id.clone(),
            device: claim.device.clone(),
            ratio: claim.ratio.filter(|ratio| ratio.is_finite()),
        };
        Self { version: report.version.clone(), claims: report.claims.iter().map(claim).collect() }
    }

    /// The claims whose ratio fell by more than a share: of 0.1, from 2 to less than 1.8. Where the interval of the ratio reaches the
    /// bound, noise explains it. A claim that was not measured this time is no regression, unless its output was wrong.
    pub fn regressions(&self, report: &Report, most: f64) -> Vec<Regression> {
        let find = |known: &BaselineClaim| {
            report.claims.iter().find(|claim| claim.id == known.id && claim.device == known.device)
        };
        let judge = |known: &BaselineClaim| {
            let (before, claim) = (known.ratio?, find(known)?);
            let wrong = claim.checks.iter().find(|check| !check.passed && check.name == crate::trial::check::OUTPUT);
            let best = claim.interval.map_or(claim.ratio, |[_, high]| Some(high));
            let reason = match (wrong, best) {
                (Some(check), _) => check.detail.clone(),
                // A number that another check makes worthless says nothing.
                (None, _) if claim.status == Status::NotShown && claim.checks.iter().any(|check| !check.passed) => {
                    return None;
                }
                (None, Some(best)) if best < before * (1.0 - most) => {
                    format!("fell from {before:.3} to {:.3}", claim.ratio.unwrap_or(best))
                }
                _ => return None,
            };
            let now = claim.ratio.filter(|_| wrong.is_none());
            Some(Regression { id: known.id.clone(), device: known.device.clone(), before, now, reason })
        };
        self.claims.iter().filter_map(judge).collect()
    }
}
