//! Counters of a pool beyond those of each shard, and the violations found by its debug mode.

use super::debug::Violation;
use super::statistics::RecentActivity;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum number of violations that are kept.
const MAX_VIOLATIONS: usize = 64;

/// The counted events. None of them occurs when a free block serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    DriverAllocation,
    DriverRelease,
    DriverFailure,
    OutOfMemory,
    PressureCleanup,
    Violation,
}

#[derive(Default)]
pub(crate) struct Counters {
    counts: [AtomicU64; 6],
    violations: Mutex<Vec<Violation>>,
    at_maintenance: Mutex<RecentActivity>,
}

impl Counters {
    pub(crate) fn add(&self, what: Counter) {
        self.counts[what as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self, what: Counter) -> u64 {
        self.counts[what as usize].load(Relaxed)
    }

    /// Counts a violation, and keeps it if it is among the first.
    pub(crate) fn add_violation(&self, violation: Violation) {
        self.add(Counter::Violation);
        let mut violations = self.violations.lock();
        if violations.len() < MAX_VIOLATIONS {
            violations.push(violation);
        }
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.violations.lock().clone()
    }

    /// Stores the activity up to a maintenance, from which recent activity is counted.
    pub(crate) fn begin_interval(&self, activity: RecentActivity) {
        *self.at_maintenance.lock() = activity;
    }

    /// Returns the activity up to the last maintenance.
    pub(crate) fn at_maintenance(&self) -> RecentActivity {
        *self.at_maintenance.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::super::debug::ViolationKind;
    use super::*;

    #[test]
    fn each_kind_is_counted_for_itself() {
        use Counter::{DriverAllocation, DriverFailure, DriverRelease, OutOfMemory, PressureCleanup, Violation};
        let kinds = [DriverAllocation, DriverRelease, DriverFailure, OutOfMemory, PressureCleanup, Violation];
        let counters = Counters::default();
        for (times, kind) in kinds.into_iter().enumerate() {
            (0..times).for_each(|_| counters.add(kind));
        }
        assert_eq!(kinds.map(|kind| counters.get(kind)), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn all_violations_are_counted_and_the_first_are_kept() {
        let counters = Counters::default();
        for offset in 0..100 {
            let (kind, label) = (ViolationKind::WriteAfterFree, "weights".to_owned());
            counters.add_violation(Violation { kind, label, bytes: 256, offset, found: 1 });
        }
        let kept: Vec<u64> = counters.violations().iter().map(|violation| violation.offset).collect();
        assert_eq!(kept, (0..64).collect::<Vec<_>>());
        assert_eq!(counters.get(Counter::Violation), 100);
    }
}
