//! One line of the table: a workload in one dtype, run by every library that supports it.

use crate::arms::{LIBRARIES, Task, Unavailable};
use crate::options::Options;
use kiln_bench::limits::Roofline;
use kiln_bench::{Closeness, ElementType, Fault, Limits, PreparedWorkload, Timing, Workload, compare};
use serde::Serialize;

/// The measurement of a workload in one dtype.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) workload: &'static str,
    pub(crate) dtype: ElementType,
    /// Number of ops per run: 10,000 for small adds, otherwise 1.
    pub(crate) ops_per_run: usize,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) arms: Vec<Measured>,
    /// Roofline of the machine.
    pub(crate) roofline: Option<Roofline>,
    /// Minimum ratio of the best peer's time to Kiln's.
    pub(crate) target: f64,
}

/// The outcome of one library.
#[derive(Serialize)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome")]
pub(crate) enum Outcome {
    /// The output is correct.
    Timed {
        /// Whether the output is less accurate than its dtype allows, but not wrong.
        is_rough: bool,
        #[serde(flatten)]
        timing: Timing,
    },
    /// The library does not support the workload.
    Skipped { reason: &'static str },
    /// The output is wrong, so it is not compared.
    Wrong { reason: String },
    /// The library failed.
    Failed { reason: String },
}

impl Line {
    /// Measures a workload in one dtype.
    pub(crate) fn measure(
        workload: &'static Workload,
        dtype: ElementType,
        options: &Options,
        limits: &mut Limits,
    ) -> Self {
        let op = workload.op;
        let data = op.data(dtype);
        let mut prepared = Vec::new();
        let mut arms = Vec::new();
        for library in LIBRARIES.iter().filter(|library| options.wants_arm(library.name)) {
            let task = Task { op, dtype, data: &data, threads: options.threads };
            let checked = (library.prepare)(&task).map_err(Outcome::from).and_then(|prepared| checked(&task, prepared));
            match checked {
                Ok((workload, closeness)) => prepared.push((library.name, workload, closeness)),
                Err(outcome) => arms.push(Measured { name: library.name, outcome }),
            }
        }
        drop(data);
        let mut turns: Vec<_> = prepared.iter().map(|(name, workload, _)| workload.arm(name)).collect();
        let timings = compare(&mut turns, &options.sampling());
        arms.extend(prepared.iter().zip(timings).map(|((name, _, closeness), timing)| {
            let is_rough = *closeness == Closeness::Rough;
            let outcome = timing.map_or_else(Outcome::failed, |timing| Outcome::Timed { is_rough, timing });
            Measured { name, outcome }
        }));
        arms.sort_by_key(|arm| LIBRARIES.iter().position(|library| library.name == arm.name));
        Self {
            workload: workload.id,
            dtype,
            ops_per_run: op.ops_per_run(),
            flops: op.flops(),
            bytes: op.bytes_read(dtype) + op.bytes_written(dtype),
            arms,
            roofline: limits.roofline(&op, dtype),
            target: workload.target(dtype),
        }
    }

    /// Returns the time of an arm with a correct output.
    pub(crate) fn timing(&self, name: &str) -> Option<&Timing> {
        self.timings().find(|(arm, _)| *arm == name).map(|(_, timing)| timing)
    }

    fn timings(&self) -> impl Iterator<Item = (&'static str, &Timing)> {
        self.arms.iter().filter_map(|arm| match &arm.outcome {
            Outcome::Timed { timing, .. } => Some((arm.name, timing)),
            _ => None,
        })
    }

    /// Returns the fastest peer by this statistic, and its time divided by Kiln's.
    pub(crate) fn ratio(&self, time: impl Fn(&Timing) -> f64) -> Option<(&'static str, f64)> {
        let kiln = time(self.timing("kiln")?);
        let peers = self.timings().filter(|(name, _)| *name != "kiln").map(|(name, timing)| (name, time(timing)));
        let (name, best) = peers.min_by(|one, other| one.1.total_cmp(&other.1))?;
        Some((name, best / kiln))
    }

    /// Returns the roofline time divided by Kiln's median, 1 at the limit.
    pub(crate) fn share(&self) -> Option<f64> {
        Some(self.roofline?.seconds() / self.timing("kiln")?.median)
    }
}

impl Outcome {
    fn failed(fault: Fault) -> Self {
        Self::Failed { reason: fault.to_string() }
    }
}

impl From<Unavailable> for Outcome {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::Unsupported(reason) => Self::Skipped { reason },
            Unavailable::Failed(fault) => Self::failed(fault),
        }
    }
}

fn checked(task: &Task<'_>, prepared: PreparedWorkload) -> Result<(PreparedWorkload, Closeness), Outcome> {
    let output = prepared.output().map_err(Outcome::failed)?;
    let closeness = task.op.check_on(task.dtype, task.data, &output);
    let closeness = closeness.map_err(|wrong| Outcome::Wrong { reason: wrong.to_string() })?;
    Ok((prepared, closeness))
}
