//! Recency stamps: who was used before whom, without a counter that all threads fight over.
//!
//! One shared counter would give every use a number, and would cost more than the lookup itself as soon as two
//! threads bump it. These stamps are Lamport clocks instead: every thread, every shard and every cache (at insertions)
//! remembers the highest stamp it has seen, and a use takes one more than those it meets. What follows:
//!
//! - uses by one thread are ordered exactly, across shards and across caches, so a single-threaded program sees exact
//!   least-recently-used and first-in-first-out order, and so does a trim over all caches of a registry;
//! - uses of one shard by several threads are ordered as they happened, and so are uses and insertions of one cache;
//! - uses of different shards by different threads between two insertions may be ordered either way.

use std::cell::Cell;

// The only thread-local state of the crate: a number that only grows, and means nothing across threads.
#[cfg(not(loom))]
thread_local! {
    static STAMP: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static STAMP: Cell<u64> = Cell::new(0);
}

/// A stamp above `floor` and above everything that this thread and the shard have seen; advances both.
#[inline]
pub(crate) fn next(shard_clock: &mut u64, floor: u64) -> u64 {
    STAMP.with(|own| {
        let stamp = own.get().max(*shard_clock).max(floor) + 1;
        own.set(stamp);
        *shard_clock = stamp;
        stamp
    })
}

/// Whether the lookup that begins now is one whose time is measured: one in 512.
///
/// Scattered by a multiplication, because threads that meet in a shard and callers that alternate between caches see
/// stamps with a pattern.
#[inline]
pub(crate) fn sample_due() -> bool {
    STAMP.with(|own| own.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_orders_uses_of_two_shards() {
        let (mut a, mut b) = (0, 0);
        let stamps = [next(&mut a, 0), next(&mut b, 0), next(&mut b, 0), next(&mut a, 0)];
        assert!(stamps.is_sorted_by(|x, y| x < y), "{stamps:?}");
    }

    #[test]
    fn a_thread_that_follows_another_through_a_shard_is_ordered_after_it() {
        let mut shared = 0;
        let first = (0..100).map(|_| next(&mut shared, 0)).last().unwrap();
        let second = std::thread::spawn(move || {
            let mut other = 0;
            let through = next(&mut shared, 0);
            (through, next(&mut other, 0))
        });
        let (through, other) = second.join().unwrap();
        assert!(first < through && through < other);
    }

    #[test]
    fn a_use_after_an_insertion_is_ordered_after_it_even_in_another_shard_by_another_thread() {
        let insertion = 1_000_000;
        let stamp = std::thread::spawn(move || next(&mut 3, insertion)).join().unwrap();
        assert!(stamp > insertion);
    }

    #[test]
    fn about_one_lookup_in_512_is_sampled_also_with_a_stride() {
        for stride in 1..=4 {
            let mut clock = 0;
            let sampled = (0..512_000).filter(|_| {
                for _ in 0..stride {
                    next(&mut clock, 0);
                }
                sample_due()
            });
            let sampled = sampled.count();
            assert!((700..1300).contains(&sampled), "{sampled} of 512,000 with stride {stride}");
        }
    }
}
