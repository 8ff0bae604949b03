//! Where a device puts what its kernels did.

use super::statistics::{KernelStatistics, Totals};
use crate::command::Dispatch;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What one launch of a kernel costs, as far as its author or its plan knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// Bytes that it reads and writes.
    pub bytes: u64,
    /// Arithmetic operations.
    pub flops: u64,
}

/// Launches of one kernel in a row, as a device tells them.
#[derive(Clone, Debug)]
pub struct KernelRun {
    /// The name of the kernel.
    pub name: Arc<str>,
    /// What one launch costs.
    pub cost: KernelCost,
    /// How often it ran.
    pub launches: u64,
    /// When the first launch began, on the clock of the host, and how long all of them took; `None` where that is not known.
    pub time: Option<(Instant, Duration)>,
}

impl KernelRun {
    /// A dispatch, of which it is not known how long it takes.
    pub fn untimed(dispatch: &Dispatch) -> Self {
        Self { name: dispatch.kernel().name().into(), cost: dispatch.cost(), launches: 1, time: None }
    }
}

/// What watches the kernels of a device. A device has one, and tells it what ran while it [is on](Self::is_on).
#[derive(Debug, Default)]
pub struct Recorder {
    profiling: AtomicBool,
    totals: Mutex<Totals>,
}

impl Recorder {
    /// A recorder that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether somebody watches. Always `false` without the feature `events`, which leaves out what depends on it.
    #[inline]
    pub fn is_on(&self) -> bool {
        cfg!(feature = "events") && self.profiling.load(Ordering::Relaxed)
    }

    /// Takes what a submission ran, in order.
    pub fn record(&self, submission: u64, runs: &[KernelRun]) {
        let _ = submission;
        if self.profiling.load(Ordering::Relaxed) {
            let mut totals = self.totals.lock();
            runs.iter().for_each(|run| totals.add(run));
        }
    }

    pub(super) fn set_profiling(&self, on: bool) {
        if on && !self.profiling.load(Ordering::Relaxed) {
            self.totals.lock().clear();
        }
        self.profiling.store(on, Ordering::Relaxed);
    }

    pub(super) fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        self.totals.lock().statistics()
    }
}
