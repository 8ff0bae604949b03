//! Faults that a test injects.

use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Faults {
    pub(super) allocation: FaultTrigger,
    pub(super) map: FaultTrigger,
    pub(super) submission: FaultTrigger,
    pub(super) skip: FaultTrigger,
    pub(super) translation: FaultTrigger,
    pub(super) load: FaultTrigger,
    /// Submissions that never complete.
    pub(super) lost: BTreeSet<u64>,
    /// Submissions that complete without effect.
    pub(super) skipped: BTreeSet<u64>,
}

/// Fires at selected events, counted from the time of each selection.
#[derive(Default)]
pub(super) struct FaultTrigger {
    events: u64,
    fires_at: BTreeSet<u64>,
}

impl FaultTrigger {
    /// Fires at the `n`-th event from now.
    pub(super) fn arm(&mut self, n: u64) {
        self.fires_at.insert(self.events + n);
    }

    /// Counts an event and returns whether it is a selected one.
    pub(super) fn fires(&mut self) -> bool {
        self.events += 1;
        self.fires_at.remove(&self.events)
    }
}
