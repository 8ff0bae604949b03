//! The bytes a pool may hold from the driver, those it holds, and whether they are close to the limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Pressure ends at this share of the pressure at which it begins.
const PRESSURE_END: f64 = 0.8;

#[derive(Default)]
pub(crate) struct Budget {
    limit: AtomicU64,
    max_block_bytes: u64,
    reserved: AtomicU64,
    peak: AtomicU64,
    /// Every return of a block reads it, so it is written only when it changes.
    pressured: AtomicBool,
}

/// Reserved bytes that return to the budget unless they are kept.
#[must_use]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
    reserved_bytes: u64,
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

    /// The largest block that the budget and the memory allow.
    #[inline]
    pub(crate) fn largest_block(&self) -> u64 {
        self.limit().min(self.max_block_bytes)
    }

    /// Reserves bytes; `None` where the limit does not allow them.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        let limit = self.limit();
        let add = |reserved: u64| reserved.checked_add(bytes).filter(|reserved| *reserved <= limit);
        let before = self.reserved.fetch_update(Relaxed, Relaxed, add).ok()?;
        Some(Reservation { budget: self, bytes, reserved_bytes: before + bytes })
    }

    /// Takes kept bytes out of the budget again. Returns the bytes that stay reserved.
    pub(crate) fn release(&self, bytes: u64) -> u64 {
        self.reserved.fetch_sub(bytes, Relaxed).saturating_sub(bytes)
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    pub(crate) fn peak_reserved(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// The reserved share of the limit, from 0 to 1.
    pub(crate) fn pressure(&self) -> f64 {
        (self.reserved() as f64 / self.limit().max(1) as f64).min(1.0)
    }

    /// Whether `bytes` more would be above a share of the limit.
    pub(crate) fn would_exceed(&self, share: f64, bytes: u64) -> bool {
        self.reserved().saturating_add(bytes) as f64 > share * self.limit() as f64
    }

    /// Whether more is reserved than the limit: it was lowered below what is lent.
    pub(crate) fn is_over(&self) -> bool {
        self.reserved() > self.limit()
    }

    #[inline]
    pub(crate) fn is_pressured(&self) -> bool {
        self.pressured.load(Relaxed)
    }

    /// Recomputes whether the pool is under pressure, which begins above the share `begin`. It ends well below that, or
    /// each cleanup would end it and the next requests begin it again. Returns whether it changed.
    pub(crate) fn update_pressure(&self, begin: f64) -> bool {
        let mark = if self.is_pressured() { begin * PRESSURE_END } else { begin };
        self.set_pressured(self.is_over() || self.pressure() > mark)
    }

    /// Sets whether the pool is under pressure. Returns whether it changed.
    pub(crate) fn set_pressured(&self, pressured: bool) -> bool {
        let changed = self.is_pressured() != pressured;
        if changed {
            self.pressured.store(pressured, Relaxed);
        }
        changed
    }
}

impl Reservation<'_> {
    /// Keeps the bytes reserved. Returns all bytes that were reserved then.
    pub(crate) fn keep(self) -> u64 {
        let reserved = self.reserved_bytes;
        self.budget.peak.fetch_max(reserved, Relaxed);
        std::mem::forget(self);
        reserved
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

    /// Begins above 70 % and ends at 56 %; each change is reported once.
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
    fn a_lowered_limit_is_pressure_whatever_the_mark() {
        let budget = budget(100);
        budget.reserve(50).unwrap().keep();
        assert!(!budget.is_over() && !budget.would_exceed(0.5, 0) && budget.would_exceed(0.5, 1));
        budget.set_limit(40);
        assert!(budget.is_over() && budget.update_pressure(1.0) && budget.is_pressured());
        assert_eq!(budget.pressure(), 1.0);
    }
}
