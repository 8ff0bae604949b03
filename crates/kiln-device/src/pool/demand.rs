//! The number of free blocks that each class may cache over all shards, and the demand that determines it.
//!
//! A shard needs a permit to cache a block, and a class has as many permits as its limit. Only slow paths use this
//! module.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Limits and demand of each group: the blocks of one class and usage.
pub(crate) struct Demand {
    groups: Box<[Group]>,
    /// Requests that no free block served.
    misses: AtomicU64,
}

#[derive(Default)]
struct Group {
    limit: AtomicU32,
    /// Permits held by shards.
    permits: AtomicU32,
    /// Blocks that were released to the driver or a slab.
    released: AtomicU64,
    /// Blocks returned beyond the limit, and requests that no free block served, since the limit was last decided.
    overflowed: AtomicU32,
    missed: AtomicU32,
    /// Blocks that were displaced by others since the last maintenance or miss.
    displaced: AtomicU32,
}

/// The demand of a group since its limit was last decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemandSample {
    pub(crate) current_limit: u32,
    pub(crate) overflowed: u32,
    pub(crate) missed: u32,
}

impl Demand {
    pub(crate) fn new(groups: usize) -> Self {
        Self { groups: (0..groups).map(|_| Group::default()).collect(), misses: AtomicU64::new(0) }
    }

    /// Returns the misses of all groups, which serve as a clock for the age of free blocks.
    #[inline]
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }

    pub(crate) fn set_limits(&self, limit: u32) {
        self.groups.iter().for_each(|group| group.limit.store(limit, Relaxed));
    }

    pub(crate) fn raise_limit(&self, group: usize, limit: u32) {
        self.groups[group].limit.fetch_max(limit, Relaxed);
    }

    pub(crate) fn limit(&self, group: usize) -> u32 {
        self.groups[group].limit.load(Relaxed)
    }

    /// Takes a permit to cache one more free block, if the limit allows it.
    pub(crate) fn take_permit(&self, group: usize) -> bool {
        let limit = self.limit(group);
        // A limit that was lowered below the permits in use refuses new ones until the shards return theirs.
        let add = |permits| (permits < limit).then_some(permits + 1);
        self.groups[group].permits.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    pub(crate) fn return_permits(&self, group: usize, count: u32) {
        self.groups[group].permits.fetch_sub(count, Relaxed);
    }

    pub(crate) fn permits(&self, group: usize) -> u32 {
        self.groups[group].permits.load(Relaxed)
    }

    pub(crate) fn record_miss(&self, group: usize) {
        self.misses.fetch_add(1, Relaxed);
        self.groups[group].missed.fetch_add(1, Relaxed);
    }

    pub(crate) fn record_overflow(&self, group: usize) {
        self.groups[group].overflowed.fetch_add(1, Relaxed);
    }

    pub(crate) fn has_overflowed(&self, group: usize) -> bool {
        self.groups[group].overflowed.load(Relaxed) > 0
    }

    pub(crate) fn record_displaced(&self, group: usize, blocks: u32) {
        self.groups[group].displaced.fetch_add(blocks, Relaxed);
    }

    /// Returns whether blocks were displaced since the last call.
    pub(crate) fn take_displaced(&self, group: usize) -> bool {
        self.groups[group].displaced.swap(0, Relaxed) > 0
    }

    pub(crate) fn record_released(&self, group: usize) {
        self.groups[group].released.fetch_add(1, Relaxed);
    }

    pub(crate) fn released(&self, group: usize) -> u64 {
        self.groups[group].released.load(Relaxed)
    }

    /// Sets the limit according to the demand since the last decision, and resets the demand.
    pub(crate) fn decide_limit(&self, group: usize, decide: impl FnOnce(DemandSample) -> u32) {
        let group = &self.groups[group];
        let seen = DemandSample {
            current_limit: group.limit.load(Relaxed),
            // Read and reset in one step, so that concurrent events count for the next decision.
            overflowed: group.overflowed.swap(0, Relaxed),
            missed: group.missed.swap(0, Relaxed),
        };
        group.limit.store(decide(seen), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_by_the_limit_of_their_group() {
        let demand = Demand::new(2);
        assert!(!demand.take_permit(0));
        demand.set_limits(2);
        assert_eq!([0, 0, 0, 1].map(|group| demand.take_permit(group)), [true, true, false, true]);
        demand.raise_limit(0, 3);
        demand.raise_limit(1, 1);
        assert_eq!([demand.limit(0), demand.limit(1)], [3, 2]);
        assert_eq!([0, 0].map(|group| demand.take_permit(group)), [true, false]);
        demand.return_permits(0, 2);
        assert_eq!([demand.permits(0), demand.permits(1)], [1, 1]);
        assert!(demand.take_permit(0));
    }

    /// Permits above a lowered limit stay valid, but no new permit is given until enough have been returned.
    #[test]
    fn a_lowered_limit_gives_no_permit_until_enough_came_back() {
        let demand = Demand::new(1);
        demand.set_limits(2);
        assert!(demand.take_permit(0) && demand.take_permit(0));
        demand.set_limits(1);
        demand.return_permits(0, 1);
        assert!(!demand.take_permit(0));
        demand.return_permits(0, 1);
        assert!(demand.take_permit(0));
    }

    #[test]
    fn a_limit_follows_the_demand_since_the_last_decision() {
        let demand = Demand::new(2);
        demand.set_limits(8);
        demand.record_miss(0);
        demand.record_miss(0);
        demand.record_miss(1);
        demand.record_overflow(0);
        assert!(demand.has_overflowed(0) && !demand.has_overflowed(1));
        demand.decide_limit(0, |seen| {
            assert_eq!(seen, DemandSample { current_limit: 8, overflowed: 1, missed: 2 });
            16
        });
        demand.decide_limit(0, |seen| {
            assert_eq!(seen, DemandSample { current_limit: 16, overflowed: 0, missed: 0 });
            seen.current_limit
        });
        assert!(!demand.has_overflowed(0));
        assert_eq!((demand.limit(0), demand.limit(1), demand.misses()), (16, 8, 3));
    }

    #[test]
    fn displaced_and_released_blocks_are_counted_by_group() {
        let demand = Demand::new(2);
        demand.record_displaced(1, 3);
        demand.record_released(1);
        assert_eq!([0, 1, 1].map(|group| demand.take_displaced(group)), [false, true, false]);
        assert_eq!([demand.released(0), demand.released(1)], [0, 1]);
    }
}
