//! The bytes in use of a pool, their peaks, and the bytes that it may hold because of them.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// Free bytes that are never displaced.
const ALWAYS_ALLOWED_FREE: u64 = 8 << 20;
const MAX_HEADROOM_DOUBLINGS: u32 = 4;

/// Bytes in use over all shards, as far as they published them.
///
/// On cache lines of its own: threads write it every few requests, and read what is next to it with each.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Occupancy {
    /// May be negative if a shard published returns before another shard published the allocations.
    in_use: AtomicI64,
    peak: AtomicI64,
    /// The peak since the last maintenance, and that of the interval before.
    recent_peak: AtomicI64,
    previous_peak: AtomicI64,
    /// How often the headroom was doubled, because displaced blocks turned out to be needed.
    headroom_doublings: AtomicU32,
}

/// The bytes that a shard allocated minus those it took back, published in large steps.
#[derive(Default)]
pub(crate) struct Unpublished {
    bytes: i64,
    /// The highest `bytes` since the last publication.
    high: i64,
}

impl Unpublished {
    /// Adds allocated bytes, or returned ones as a negative number. Returns what to publish once it reaches `step`
    /// bytes.
    #[inline]
    pub(crate) fn add(&mut self, bytes: i64, step: i64) -> Option<Self> {
        self.bytes += bytes;
        self.high = self.high.max(self.bytes);
        (self.bytes.abs() >= step).then(|| std::mem::take(self))
    }
}

impl Occupancy {
    pub(crate) fn publish(&self, change: &Unpublished) {
        // The shard's own peak between two publications counts on top of what the others published.
        let peak = self.in_use.fetch_add(change.bytes, Relaxed) + change.high;
        for highest in [&self.peak, &self.recent_peak] {
            // A read-modify-write takes the line from other threads even if it changes nothing.
            if highest.load(Relaxed) < peak {
                highest.fetch_max(peak, Relaxed);
            }
        }
    }

    /// Returns the published bytes in use.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use.load(Relaxed).max(0) as u64
    }

    /// Returns the peak of bytes in use, including what the shards have not published yet.
    pub(crate) fn peak<'a>(&self, shards: impl Iterator<Item = &'a Unpublished>) -> u64 {
        let (bytes, high) = shards.fold((0, 0), |(bytes, high), shard| (bytes + shard.bytes, shard.high.max(high)));
        // The shards' peaks need not have coincided, so only the highest of them counts, not their sum.
        let peak = self.in_use.load(Relaxed) + bytes.max(high);
        self.peak.fetch_max(peak, Relaxed).max(peak) as u64
    }

    /// Counts `bytes` as a peak of this interval.
    pub(crate) fn record_peak(&self, bytes: u64) {
        self.recent_peak.fetch_max(bytes as i64, Relaxed);
    }

    /// Returns the bytes that may be held while `occupied` are in use: their recent peak, plus `headroom` as a share of
    /// it.
    pub(crate) fn allowed(&self, occupied: u64, headroom: f64) -> u64 {
        let headroom = headroom * f64::from(1 << self.headroom_doublings.load(Relaxed));
        let recent = self.recent_peak.load(Relaxed).max(self.previous_peak.load(Relaxed));
        let peak = occupied.max(recent.max(0) as u64);
        ((peak as f64 * (1.0 + headroom)) as u64).saturating_add(ALWAYS_ALLOWED_FREE)
    }

    /// Doubles the headroom, up to sixteen times the configured one.
    pub(crate) fn double_headroom(&self) {
        let more = |n| (n < MAX_HEADROOM_DOUBLINGS).then_some(n + 1);
        let _ = self.headroom_doublings.fetch_update(Relaxed, Relaxed, more);
    }

    /// Begins a new interval. Peaks count for two intervals, so that a sweep in a quiet moment does not forget busy
    /// ones.
    pub(crate) fn begin_interval(&self, occupied: u64) {
        let peak = self.recent_peak.swap(occupied as i64, Relaxed);
        self.previous_peak.store(peak, Relaxed);
        // One doubling ends per interval, so that the headroom falls back to the configured one after a burst.
        let _ = self.headroom_doublings.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates or returns bytes in one shard whose changes are published at once.
    fn change(occupancy: &Occupancy, bytes: i64) {
        occupancy.publish(&Unpublished::default().add(bytes, 0).unwrap());
    }

    #[test]
    fn changes_are_published_in_steps_with_their_peak() {
        let occupancy = Occupancy::default();
        let mut shard = Unpublished::default();
        assert!(shard.add(60, 100).is_none());
        assert!(shard.add(-50, 100).is_none());
        assert_eq!((occupancy.in_use(), occupancy.peak([&shard].into_iter())), (0, 60));
        occupancy.publish(&shard.add(90, 100).unwrap());
        assert_eq!((occupancy.in_use(), occupancy.peak([&shard].into_iter())), (100, 100));
    }

    #[test]
    fn a_peak_between_two_publications_counts() {
        let occupancy = Occupancy::default();
        let mut shard = Unpublished::default();
        assert!(shard.add(99, 100).is_none());
        occupancy.publish(&shard.add(-199, 100).unwrap());
        assert_eq!((occupancy.in_use(), occupancy.peak(std::iter::empty())), (0, 99));
    }

    #[test]
    fn peaks_allow_free_bytes_for_two_intervals() {
        let occupancy = Occupancy::default();
        let allowed = || occupancy.allowed(0, 0.5) - ALWAYS_ALLOWED_FREE;
        change(&occupancy, 1000);
        change(&occupancy, -1000);
        assert_eq!(allowed(), 1500);
        occupancy.begin_interval(0);
        assert_eq!(allowed(), 1500);
        occupancy.begin_interval(0);
        assert_eq!(allowed(), 0);
        occupancy.record_peak(10);
        assert_eq!(allowed(), 15);
        assert_eq!(occupancy.allowed(20, 0.5) - ALWAYS_ALLOWED_FREE, 30);
    }

    #[test]
    fn headroom_doubles_up_to_a_bound_and_halves_with_each_interval() {
        let occupancy = Occupancy::default();
        let allowed = || occupancy.allowed(100, 0.5) - ALWAYS_ALLOWED_FREE;
        for expected in [200, 300, 500, 900, 900] {
            occupancy.double_headroom();
            assert_eq!(allowed(), expected);
        }
        for expected in [500, 300, 200, 150, 150] {
            occupancy.begin_interval(0);
            assert_eq!(allowed(), expected);
        }
    }
}
