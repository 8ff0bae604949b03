//! Recency stamps: who was used before whom, without a counter that all threads fight over.
//!
//! One shared counter would give every use a number, and would cost more than the lookup itself as soon as two
//! threads bump it. These stamps are Lamport clocks instead: every thread and every shard remembers the highest stamp
//! it has seen, and a use takes one more than both. What follows:
//!
//! - uses by one thread are ordered exactly, across shards and across caches, so a single-threaded program sees exact
//!   least-recently-used and first-in-first-out order, and so does a trim over all caches of a registry;
//! - uses of one shard by several threads are ordered as they happened;
//! - truly concurrent uses of different shards may be ordered either way, as they may by any clock.

use std::cell::Cell;

/// One sampled lookup in this many. A prime, so that callers that alternate between caches sample all of them.
const SAMPLE_PERIOD: u32 = 61;

struct ThreadTicks {
    stamp: Cell<u64>,
    until_sample: Cell<u32>,
}

// The only thread-local state of the crate: a number that only grows, and means nothing across threads.
thread_local! {
    static TICKS: ThreadTicks = const {
        ThreadTicks { stamp: Cell::new(0), until_sample: Cell::new(0) }
    };
}

/// A stamp above everything that this thread and the shard have seen; advances both.
#[inline]
pub(crate) fn next(shard_clock: &mut u64) -> u64 {
    TICKS.with(|ticks| {
        let stamp = ticks.stamp.get().max(*shard_clock) + 1;
        ticks.stamp.set(stamp);
        *shard_clock = stamp;
        stamp
    })
}

/// Whether this lookup is one of those whose time is measured.
#[inline]
pub(crate) fn sample_due() -> bool {
    TICKS.with(|ticks| {
        let left = ticks.until_sample.get();
        ticks.until_sample.set(if left == 0 { SAMPLE_PERIOD - 1 } else { left - 1 });
        left == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_orders_uses_of_two_shards() {
        let (mut a, mut b) = (0, 0);
        let stamps = [next(&mut a), next(&mut b), next(&mut b), next(&mut a)];
        assert!(stamps.is_sorted_by(|x, y| x < y), "{stamps:?}");
    }

    #[test]
    fn a_thread_that_follows_another_through_a_shard_is_ordered_after_it() {
        let mut shared = 0;
        let first = (0..100).map(|_| next(&mut shared)).last().unwrap();
        let second = std::thread::spawn(move || {
            let mut other = 0;
            let through = next(&mut shared);
            (through, next(&mut other))
        });
        let (through, other) = second.join().unwrap();
        assert!(first < through && through < other);
    }
}
