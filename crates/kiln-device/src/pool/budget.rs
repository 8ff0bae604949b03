//! The budget of a pool: the bytes it may hold from the driver, the bytes it holds, and memory pressure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Pressure ends at this fraction of the threshold at which it begins.
const PRESSURE_END: f64 = 0.8;

/// The byte limit of a pool, and the bytes that are reserved under it.
#[derive(Default)]
pub(crate) struct Budget {
    limit: AtomicU64,
    max_block_bytes: u64,
    reserved: AtomicU64,
    peak: AtomicU64,
    /// Read at every return of a block, so it is only written when it changes, to keep its cache line shared.
    pressured: AtomicBool,
}

/// Reserved bytes, which are released on drop unless they are kept.
#[must_use]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
    /// All reserved bytes, including these, at the time of the reservation.
    total_bytes: u64,
}

impl Budget {
    pub(crate) fn new(max_block_bytes: u64) -> Self {
        Self { max_block_bytes, ..Self::default() }
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Returns the size of the largest block that the budget and the memory allow.
    #[inline]
    pub(crate) fn largest_block(&self) -> u64 {
        self.limit().min(self.max_block_bytes)
    }

    /// Reserves bytes, or returns `None` if the limit does not allow it.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let limit = self.limit();
        // A compare-exchange loop, so that concurrent reservations do not exceed the limit together.
        let add = |reserved: u64| reserved.checked_add(bytes).filter(|reserved| *reserved <= limit);
        // Relaxed: the counter orders no other memory accesses.
        let before = self.reserved.fetch_update(Relaxed, Relaxed, add).ok()?;
        Some(Reservation { budget: self, bytes, total_bytes: before + bytes })
    }

    /// Releases kept bytes. Returns the bytes that stay reserved.
    pub(crate) fn release(&self, bytes: u64) -> u64 {
        self.reserved.fetch_sub(bytes, Relaxed).saturating_sub(bytes)
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    pub(crate) fn peak_reserved(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// Returns the reserved share of the limit, from 0 to 1.
    pub(crate) fn pressure(&self) -> f64 {
        (self.reserved() as f64 / self.limit().max(1) as f64).min(1.0)
    }

    /// Returns whether `bytes` more would exceed a share of the limit.
    pub(crate) fn would_exceed(&self, share: f64, bytes: u64) -> bool {
        self.reserved().saturating_add(bytes) as f64 > share * self.limit() as f64
    }

    /// Returns whether the limit is exceeded, because it was lowered below the bytes in use.
    pub(crate) fn is_over(&self) -> bool {
        self.reserved() > self.limit()
    }

    #[inline]
    pub(crate) fn is_pressured(&self) -> bool {
        self.pressured.load(Relaxed)
    }

    /// Updates whether the pool is under pressure, which begins above the share `begin`. Returns whether it changed.
    ///
    /// The threshold has hysteresis: pressure ends well below `begin`, otherwise each cleanup would end it and the next
    /// requests would begin it again.
    pub(crate) fn update_pressure(&self, begin: f64) -> bool {
        let threshold = if self.is_pressured() { begin * PRESSURE_END } else { begin };
        self.set_pressured(self.is_over() || self.pressure() > threshold)
    }

    /// Sets whether the pool is under pressure. Returns whether it changed.
    pub(crate) fn set_pressured(&self, pressured: bool) -> bool {
        // Two threads may both see a change; the event is then emitted twice, which is harmless.
        let changed = self.is_pressured() != pressured;
        if changed {
            self.pressured.store(pressured, Relaxed);
        }
        changed
    }
}

impl Reservation<'_> {
    /// Keeps the bytes reserved. Returns the total reserved bytes at the time of the reservation.
    pub(crate) fn keep(self) -> u64 {
        let total = self.total_bytes;
        self.budget.peak.fetch_max(total, Relaxed);
        std::mem::forget(self);
        total
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: u64) -> Budget {
        let budget = Budget::new(64);
        budget.set_limit(limit);
        budget
    }

    #[test]
    fn reservations_stay_within_the_limit_and_return_unless_kept() {
        let budget = budget(100);
        assert_eq!(budget.reserve(60).unwrap().keep(), 60);
        assert!(budget.reserve(41).is_none());
        assert!(budget.reserve(u64::MAX).is_none());
        let refused = budget.reserve(40).unwrap();
        assert_eq!(budget.reserved(), 100);
        drop(refused);
        assert_eq!((budget.reserved(), budget.peak_reserved()), (60, 60));
        assert_eq!(budget.release(60), 0);
        assert_eq!((budget.reserved(), budget.peak_reserved()), (0, 60));
    }

    #[test]
    fn the_largest_block_is_bounded_by_limit_and_memory() {
        assert_eq!(budget(100).largest_block(), 64);
        assert_eq!(budget(10).largest_block(), 10);
    }

    /// Pressure begins above 70 % and ends at 56 %; each change is reported once.
    #[test]
    fn pressure_ends_below_where_it_begins() {
        let budget = budget(100);
        for (reserve, release, pressured, changed) in [
            (70, 0, false, false),
            (1, 0, true, true),
            (0, 14, true, false),
            (0, 2, false, true),
            (15, 0, false, false),
        ] {
            budget.reserve(reserve).unwrap().keep();
            budget.release(release);
            assert_eq!(budget.update_pressure(0.7), changed, "at {}", budget.reserved());
            assert_eq!(budget.is_pressured(), pressured, "at {}", budget.reserved());
        }
    }

    #[test]
    fn a_lowered_limit_is_pressure_whatever_the_threshold() {
        let budget = budget(100);
        budget.reserve(50).unwrap().keep();
        assert!(!budget.is_over() && !budget.would_exceed(0.5, 0) && budget.would_exceed(0.5, 1));
        budget.set_limit(40);
        assert!(budget.is_over() && budget.update_pressure(1.0) && budget.is_pressured());
        assert_eq!(budget.pressure(), 1.0);
    }
}
