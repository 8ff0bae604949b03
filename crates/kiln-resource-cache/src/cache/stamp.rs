//! Recency stamps: who was used before whom, without a counter that all threads fight over.
//!
//! One shared counter would give every use a number, and would cost more than the lookup itself as soon as two
//! threads bump it. A stamp has two parts instead. The high bits are the epoch: how many insertions there have been in
//! this process, a counter that hits only read. The low bits order the uses within an epoch as a Lamport clock does:
//! every thread and every shard remembers the highest stamp it has seen, and a use takes one more. What follows:
//!
//! - insertions, and uses before and after them, are ordered exactly, whichever threads, shards and caches they are in;
//! - between two insertions, uses by one thread are ordered exactly, and so are uses of one shard;
//! - between two insertions, uses of different shards by different threads may be ordered either way.
//!
//! A single-threaded program thus sees exact order, and so does a trim over all caches of a registry.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Uses that an epoch has room for. Should it run out, the next epoch begins early.
const USE_BITS: u32 = 24;

/// A logical time, as process-wide as real time: it holds nothing of any cache, and all order is relative to it. (Not
/// the model checker's atomic: order, not synchronisation, hangs on it.)
static EPOCH: AtomicU64 = AtomicU64::new(0);

// The only thread-local state of the crate: a number that only grows, and means nothing across threads.
#[cfg(not(loom))]
thread_local! {
    static STAMP: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static STAMP: Cell<u64> = Cell::new(0);
}

/// The stamp of the last insertion: every use since is above it, everything before is below.
#[inline]
pub(crate) fn last_insertion() -> u64 {
    EPOCH.load(Ordering::Relaxed) << USE_BITS
}

/// The stamp of an insertion: begins an epoch.
pub(crate) fn insertion(shard_clock: &mut u64) -> u64 {
    let stamp = (EPOCH.fetch_add(1, Ordering::Relaxed) + 1) << USE_BITS;
    *shard_clock = stamp.max(*shard_clock);
    stamp
}

/// The stamp of a use: above the last insertion and everything that this thread and the shard have seen.
#[inline]
pub(crate) fn of_use(shard_clock: &mut u64) -> u64 {
    let floor = last_insertion();
    STAMP.with(|own| {
        let stamp = own.get().max(*shard_clock).max(floor) + 1;
        own.set(stamp);
        *shard_clock = stamp;
        if stamp >> USE_BITS > floor >> USE_BITS {
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
        let stamps = [of_use(&mut a), of_use(&mut b), of_use(&mut b), of_use(&mut a)];
        assert!(stamps.is_sorted_by(|x, y| x < y), "{stamps:?}");
    }

    #[test]
    fn uses_and_insertions_are_ordered_across_threads_and_shards() {
        let many_uses = (0..1000).map(|_| of_use(&mut 0)).max().unwrap();
        let insertion_elsewhere = std::thread::spawn(|| insertion(&mut 0)).join().unwrap();
        assert!(many_uses < insertion_elsewhere);
        let use_elsewhere = std::thread::spawn(|| of_use(&mut 0)).join().unwrap();
        assert!(insertion_elsewhere < use_elsewhere, "though that thread has used nothing before");
        assert!(use_elsewhere < insertion(&mut 0));
    }

    #[test]
    fn a_full_epoch_ends_early() {
        let mut clock = last_insertion() + (3 << USE_BITS) - 1;
        let stamp = of_use(&mut clock);
        assert!(last_insertion() <= stamp && stamp < insertion(&mut clock));
    }
}
