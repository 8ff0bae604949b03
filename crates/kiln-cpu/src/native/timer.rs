//! Times the steps of a plan.
//!
//! Reading the clock takes as long as an op on a few elements. Consecutive small steps that run the same kernel are
//! therefore timed together; names, launches and the sum of their times stay exact.

use kiln_device::{KernelCost, KernelRun};
use kiln_ir::plan::Step;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Upper bounds on bytes and operations of a step that may be timed together with its neighbours.
const MAX_SMALL: KernelCost = KernelCost { bytes: 16 << 10, flops: 16 << 10 };

/// Consecutive steps that are timed together.
pub(super) struct TimedSteps {
    pub(super) steps: Range<usize>,
    name: Arc<str>,
    cost: KernelCost,
}

/// Groups steps of a plan for timing.
pub(super) fn timed_steps(steps: &[Step]) -> Vec<TimedSteps> {
    let mut timed_steps: Vec<TimedSteps> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let bytes = step.read_bytes() + step.written_bytes();
        let cost = KernelCost { bytes, flops: step.kernel.flops() };
        let is_small = cost.bytes <= MAX_SMALL.bytes && cost.flops <= MAX_SMALL.flops;
        match timed_steps.last_mut() {
            Some(last) if is_small && last.cost == cost && *last.name == *step.kernel.name => {
                last.steps.end = index + 1;
            }
            _ => timed_steps.push(TimedSteps { steps: index..index + 1, name: step.kernel.name.as_str().into(), cost }),
        }
    }
    timed_steps
}

/// Records the kernels of a submission with their times.
#[derive(Debug, Default)]
pub(crate) struct KernelTimer {
    pub(crate) runs: Vec<KernelRun>,
    /// When the last timed steps ended.
    last: Option<Instant>,
}

impl KernelTimer {
    /// Starts timing a plan.
    pub(super) fn begin(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Records a kernel that has run since `began`.
    pub(crate) fn add(&mut self, name: &str, cost: KernelCost, began: Instant) {
        let time = Some((began, began.elapsed()));
        self.runs.push(KernelRun { name: name.into(), cost, launches: 1, time });
    }

    /// Records steps that have run since the previous ones ended.
    pub(super) fn end(&mut self, timed: &TimedSteps) {
        let now = Instant::now();
        // One clock reading is the end of these steps and the start of the next.
        let began = self.last.replace(now).unwrap_or(now);
        let TimedSteps { steps, name, cost } = timed;
        let time = Some((began, now.duration_since(began)));
        self.runs.push(KernelRun { name: Arc::clone(name), cost: *cost, launches: steps.len() as u64, time });
    }
}
