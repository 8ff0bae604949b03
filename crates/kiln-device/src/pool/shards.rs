//! The shards of a pool, and their assignment to threads.

use super::shard::Shard;
use crate::memory::RawMemory;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// More shards than cores, because there may be many threads and an empty shard costs little.
const MIN_SHARDS: usize = 8;
const MAX_SHARDS: usize = 64;

/// The shards, a power of two. Each is in an `Arc`, so that a returning block keeps its shard alive without a reference
/// count that all threads share.
pub(crate) struct Shards<M: RawMemory + ?Sized>(Box<[SharedShard<M>]>);

type SharedShard<M> = Arc<Padded<Mutex<Shard<M>>>>;

/// Padded to its own cache lines, so that threads with different shards do not cause false sharing.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

thread_local! {
    /// The number of the thread, which selects its shard in every pool.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn thread_number() -> usize {
    /// Assigns numbers round-robin.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            // Masked, so that it is never `usize::MAX`, which marks an unassigned thread.
            shard.set(NEXT.fetch_add(1, Relaxed) & (usize::MAX >> 1));
        }
        shard.get()
    })
}

impl<M: RawMemory + ?Sized> Shards<M> {
    pub(crate) fn new(classes: u16) -> Self {
        let count = (2 * crate::cores()).next_power_of_two().clamp(MIN_SHARDS, MAX_SHARDS);
        Self((0..count).map(|_| Arc::new(Padded(Mutex::new(Shard::new(classes))))).collect())
    }

    #[inline]
    pub(crate) fn own(&self) -> MutexGuard<'_, Shard<M>> {
        self.own_shared().0.lock()
    }

    #[inline]
    pub(crate) fn own_shared(&self) -> &SharedShard<M> {
        &self.0[self.own_index()]
    }

    #[inline]
    fn own_index(&self) -> usize {
        thread_number() & (self.0.len() - 1)
    }

    pub(crate) fn lock(&self, index: usize) -> MutexGuard<'_, Shard<M>> {
        self.0[index].0.lock()
    }

    /// Returns the indices of all shards, starting with that of this thread.
    pub(crate) fn indices_from_own(&self) -> impl Iterator<Item = usize> + use<M> {
        let (own, mask) = (self.own_index(), self.0.len() - 1);
        (0..=mask).map(move |step| (own + step) & mask)
    }

    /// Locks the shards one after another, never two at once.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<M>>> {
        self.0.iter().map(|shard| shard.0.lock())
    }

    /// Locks all shards in order, for a consistent snapshot.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Shard<M>>> {
        // Cannot deadlock: all other code locks one shard at a time, and two callers lock in the same order.
        self.each().collect()
    }
}
