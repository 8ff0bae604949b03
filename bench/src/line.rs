//! One line of the table: a work in one dtype, done by every library that can.

use crate::arms::{LIBRARIES, NotThere, Task};
use crate::options::Options;
use kiln_bench::limits::Least;
use kiln_bench::{Closeness, Fault, Limits, Number, Ready, Timing, Work, compare};
use serde::Serialize;

/// A work in one dtype, measured.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) work: &'static str,
    pub(crate) dtype: Number,
    /// What is divided by to get the time of one op: 10,000 for small adds, otherwise 1.
    pub(crate) ops_per_run: usize,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) arms: Vec<Measured>,
    /// The least time that the machine allows.
    pub(crate) least: Option<Least>,
    /// What the best peer's time over Kiln's is to be at least.
    pub(crate) target: f64,
}

/// An arm of a line.
#[derive(Serialize)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome")]
pub(crate) enum Outcome {
    /// Its output is right, and it took this long.
    Timed {
        /// Whether its output is far off for its dtype, if not wrong.
        is_rough: bool,
        #[serde(flatten)]
        timing: Timing,
    },
    /// The library lacks what the work needs.
    Skipped { reason: &'static str },
    /// Its output is wrong, so it is no opponent.
    Wrong { reason: String },
    /// It failed.
    Failed { reason: String },
}

impl Line {
    /// Measures a work in one dtype.
    pub(crate) fn measure(work: &'static Work, number: Number, options: &Options, limits: &mut Limits) -> Self {
        let op = work.op;
        let data = op.data(number);
        let mut ready = Vec::new();
        let mut arms = Vec::new();
        for library in LIBRARIES.iter().filter(|library| options.wants_arm(library.name)) {
            let task = Task { op, number, data: &data, threads: options.threads };
            let checked = (library.prepare)(&task).map_err(Outcome::from).and_then(|ready| checked(&task, ready));
            match checked {
                Ok((work, closeness)) => ready.push((library.name, work, closeness)),
                Err(outcome) => arms.push(Measured { name: library.name, outcome }),
            }
        }
        drop(data);
        let mut turns: Vec<_> = ready.iter().map(|(name, work, _)| work.arm(name)).collect();
        let timings = compare(&mut turns, &options.effort());
        arms.extend(ready.iter().zip(timings).map(|((name, _, closeness), timing)| {
            let is_rough = *closeness == Closeness::Rough;
            let outcome = timing.map_or_else(Outcome::failed, |timing| Outcome::Timed { is_rough, timing });
            Measured { name, outcome }
        }));
        arms.sort_by_key(|arm| LIBRARIES.iter().position(|library| library.name == arm.name));
        Self {
            work: work.id,
            dtype: number,
            ops_per_run: op.ops_per_run(),
            flops: op.flops(),
            bytes: op.bytes_read(number) + op.bytes_written(number),
            arms,
            least: limits.least(&op, number),
            target: work.target(number),
        }
    }

    /// The time of an arm whose output is right.
    pub(crate) fn timing(&self, name: &str) -> Option<&Timing> {
        self.timings().find(|(arm, _)| *arm == name).map(|(_, timing)| timing)
    }

    fn timings(&self) -> impl Iterator<Item = (&'static str, &Timing)> {
        self.arms.iter().filter_map(|arm| match &arm.outcome {
            Outcome::Timed { timing, .. } => Some((arm.name, timing)),
            _ => None,
        })
    }

    /// The peer with the least time, by this measure of it, and that time over Kiln's.
    pub(crate) fn ratio(&self, time: impl Fn(&Timing) -> f64) -> Option<(&'static str, f64)> {
        let ours = time(self.timing("kiln")?);
        let peers = self.timings().filter(|(name, _)| *name != "kiln").map(|(name, timing)| (name, time(timing)));
        let (name, best) = peers.min_by(|one, other| one.1.total_cmp(&other.1))?;
        Some((name, best / ours))
    }

    /// The least time over Kiln's median: 1 where nothing is left to gain.
    pub(crate) fn share(&self) -> Option<f64> {
        Some(self.least?.seconds() / self.timing("kiln")?.median)
    }
}

impl Outcome {
    fn failed(fault: Fault) -> Self {
        Self::Failed { reason: fault.to_string() }
    }
}

impl From<NotThere> for Outcome {
    fn from(not_there: NotThere) -> Self {
        match not_there {
            NotThere::Lacks(reason) => Self::Skipped { reason },
            NotThere::Broken(fault) => Self::failed(fault),
        }
    }
}

fn checked(task: &Task<'_>, ready: Ready) -> Result<(Ready, Closeness), Outcome> {
    let output = ready.output().map_err(Outcome::failed)?;
    let closeness = task.op.check_on(task.number, task.data, &output);
    let closeness = closeness.map_err(|wrong| Outcome::Wrong { reason: wrong.to_string() })?;
    Ok((ready, closeness))
}
