//! How long the steps of a program take.
//!
//! Reading the clock takes as long as an op on a few elements. So small steps in a row that do the same are timed together:
//! names, launches and the sum of their times stay exact.

use kiln_device::{KernelCost, KernelRun};
use kiln_ir::plan::Step;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The most bytes and the most operations of a step that is timed together with its neighbours.
const MAX_SMALL: KernelCost = KernelCost { bytes: 16 << 10, flops: 16 << 10 };

/// Steps in a row that are timed together.
pub(super) struct Stretch {
    pub(super) steps: Range<usize>,
    name: Arc<str>,
    cost: KernelCost,
}

/// Steps of a plan, as they are timed.
pub(super) fn stretches(steps: &[Step]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let cost = cost(step);
        let is_small = cost.bytes <= MAX_SMALL.bytes && cost.flops <= MAX_SMALL.flops;
        match stretches.last_mut() {
            Some(last) if is_small && last.cost == cost && *last.name == *step.kernel.name => {
                last.steps.end = index + 1;
            }
            _ => stretches.push(Stretch { steps: index..index + 1, name: step.kernel.name.as_str().into(), cost }),
        }
    }
    stretches
}

fn cost(step: &Step) -> KernelCost {
    KernelCost { bytes: step.read_bytes() + step.written_bytes(), flops: step.kernel.flops() }
}

/// What ran in a submission, and when.
#[derive(Debug, Default)]
pub(crate) struct Laps {
    pub(crate) runs: Vec<KernelRun>,
    /// When the last stretch ended.
    last: Option<Instant>,
}

impl Laps {
    /// Begins to time a program.
    pub(super) fn begin(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Notes that a kernel has run since then.
    pub(crate) fn add(&mut self, name: &str, cost: KernelCost, began: Instant) {
        let time = Some((began, began.elapsed()));
        self.runs.push(KernelRun { name: name.into(), cost, launches: 1, time });
    }

    /// Notes that a stretch has run since the last one ended.
    pub(super) fn end(&mut self, stretch: &Stretch) {
        let now = Instant::now();
        let began = self.last.replace(now).unwrap_or(now);
        let Stretch { steps, name, cost } = stretch;
        let time = Some((began, now.duration_since(began)));
        self.runs.push(KernelRun { name: Arc::clone(name), cost: *cost, launches: steps.len() as u64, time });
    }
}
