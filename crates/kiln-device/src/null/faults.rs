//! Faults that a test plants.

use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Faults {
    pub(super) allocation: Fuse,
    pub(super) map: Fuse,
    pub(super) submission: Fuse,
    pub(super) skip: Fuse,
    pub(super) translation: Fuse,
    pub(super) load: Fuse,
    /// Submissions that never end.
    pub(super) lost: BTreeSet<u64>,
    /// Submissions that end without having done anything.
    pub(super) skipped: BTreeSet<u64>,
}

/// Strikes at chosen events, counted from when each was chosen.
#[derive(Default)]
pub(super) struct Fuse {
    events: u64,
    strikes_at: BTreeSet<u64>,
}

impl Fuse {
    /// Strikes at the `n`-th event from now.
    pub(super) fn arm(&mut self, n: u64) {
        self.strikes_at.insert(self.events + n);
    }

    /// Counts an event, and says whether it is one of the chosen.
    pub(super) fn strikes(&mut self) -> bool {
        self.events += 1;
        self.strikes_at.remove(&self.events)
    }
}
