//! Recency stamps: order uses of entries without a counter that all threads contend for.
//!
//! A single shared counter would cost more than the lookup itself as soon as two threads increment it. A stamp has two
//! parts instead. The high bits are the epoch: the number of insertions in this process, a counter that hits only read.
//! The low bits order the uses within an epoch as a Lamport clock does: every thread and every shard remembers the
//! highest stamp it has seen, and a use takes the next one. This gives the following order:
//!
//! - Insertions, and uses before and after them, are ordered exactly across threads, shards and caches.
//! - Between two insertions, uses by one thread are ordered exactly, and so are uses of one shard.
//! - Between two insertions, uses of different shards by different threads may be ordered either way.
//!
//! A single-threaded program therefore sees an exact order, and so does a trim over all caches of a registry.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bits for uses within an epoch. If they overflow, the next epoch begins early.
const USE_BITS: u32 = 24;

/// The logical time of the process. It contains no state of a cache; only the order of stamps matters.
///
/// Not loom's atomic: no memory synchronisation depends on it, so relaxed operations are enough.
static EPOCH: AtomicU64 = AtomicU64::new(0);

// A number that only grows, and has no meaning across threads.
#[cfg(not(loom))]
thread_local! {
    static STAMP: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static STAMP: Cell<u64> = Cell::new(0);
}

/// Returns the stamp of the last insertion. Later uses have a higher stamp, earlier ones a lower stamp.
#[inline]
pub(crate) fn last_insertion() -> u64 {
    EPOCH.load(Ordering::Relaxed) << USE_BITS
}

/// Returns the stamp of a new insertion, which begins an epoch.
pub(crate) fn next_insertion(shard_clock: &mut u64) -> u64 {
    let stamp = (EPOCH.fetch_add(1, Ordering::Relaxed) + 1) << USE_BITS;
    *shard_clock = stamp.max(*shard_clock);
    stamp
}

/// Returns the stamp of a use: higher than the last insertion and all stamps that this thread and the shard have seen.
#[inline]
pub(crate) fn next_use(shard_clock: &mut u64) -> u64 {
    let floor = last_insertion();
    STAMP.with(|thread_stamp| {
        let stamp = thread_stamp.get().max(*shard_clock).max(floor) + 1;
        thread_stamp.set(stamp);
        *shard_clock = stamp;
        if stamp >> USE_BITS > floor >> USE_BITS {
            // The use bits overflowed into the epoch, so later insertions must be above it.
            EPOCH.fetch_max(stamp >> USE_BITS, Ordering::Relaxed);
        }
        stamp
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_orders_uses_of_two_shards() {
        let (mut a, mut b) = (0, 0);
        let stamps = [next_use(&mut a), next_use(&mut b), next_use(&mut b), next_use(&mut a)];
        assert!(stamps.is_sorted_by(|x, y| x < y), "{stamps:?}");
    }

    #[test]
    fn uses_and_insertions_are_ordered_across_threads_and_shards() {
        let many_uses = (0..1000).map(|_| next_use(&mut 0)).max().unwrap();
        let insertion_elsewhere = std::thread::spawn(|| next_insertion(&mut 0)).join().unwrap();
        assert!(many_uses < insertion_elsewhere);
        let use_elsewhere = std::thread::spawn(|| next_use(&mut 0)).join().unwrap();
        assert!(insertion_elsewhere < use_elsewhere, "though that thread has used nothing before");
        assert!(use_elsewhere < next_insertion(&mut 0));
    }

    #[test]
    fn a_full_epoch_ends_early() {
        let mut clock = last_insertion() + (3 << USE_BITS) - 1;
        let stamp = next_use(&mut clock);
        assert!(last_insertion() <= stamp && stamp < next_insertion(&mut clock));
    }
}
