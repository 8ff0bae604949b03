//! Earlier runs: one line of JSON for each, in an append-only file.

use crate::Fallible;
use kiln_validate::Report;
use kiln_validate::baseline::Baseline;
use kiln_validate::times::median;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Number of earlier runs that a trend is based on.
const LOOK_BACK: usize = 10;
/// Minimum relative change of a ratio that counts as a trend.
const SMALLEST_TREND: f64 = 0.1;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    began_unix_s: u64,
    quick: bool,
    #[serde(flatten)]
    ratios: Baseline,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Trend {
    pub(super) id: String,
    pub(super) device: String,
    /// Median of the earlier runs.
    pub(super) before: f64,
    pub(super) now: f64,
    pub(super) runs: usize,
}

/// Reads the runs in a file; none if it does not exist yet.
pub(super) fn read(path: &Path) -> Fallible<Vec<Line>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read the history {}: {error}", path.display()).into()),
    };
    let line = |(number, line): (usize, &str)| {
        let fault = |error| format!("{}:{}: expected a run, found {error}", path.display(), number + 1);
        serde_json::from_str(line).map_err(|error| fault(error).into())
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}

pub(super) fn append(path: &Path, report: &Report) -> Fallible<()> {
    let line = Line { began_unix_s: report.began_unix_s, quick: report.quick, ratios: Baseline::of(report) };
    let text = serde_json::to_string(&line)? + "\n";
    let written =
        OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(written.map_err(|error| format!("cannot write the history {}: {error}", path.display()))?)
}

/// Returns the claims that moved against the median of the last runs of the same kind.
pub(super) fn trends(known: &[Line], report: &Report) -> Vec<Trend> {
    // Quick runs use other sizes and fewer samples, so they are compared only with each other.
    let alike: Vec<&Line> = known.iter().rev().filter(|line| line.quick == report.quick).take(LOOK_BACK).collect();
    let of_claim = |id: &str, device: &str| {
        let find =
            |line: &&Line| line.ratios.claims.iter().find(|claim| claim.id == id && claim.device == device)?.ratio;
        alike.iter().filter_map(find).collect::<Vec<f64>>()
    };
    let trend = |claim: &kiln_validate::report::Outcome| {
        let (now, earlier) = (claim.ratio?, of_claim(&claim.id, &claim.device));
        let before = median(earlier.iter().copied());
        // NaN without earlier runs; the comparison is then false.
        let moved = (now / before - 1.0).abs() >= SMALLEST_TREND;
        let (id, device) = (claim.id.clone(), claim.device.clone());
        moved.then_some(Trend { id, device, before, now, runs: earlier.len() })
    };
    report.claims.iter().filter_map(trend).collect()
}
