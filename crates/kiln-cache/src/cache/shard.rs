//! One shard: a hash table of slots, their order of use and of insertion, and the creations under way.

use super::flight::Flight;
use super::ghost::Ghosts;
use super::order::Order;
use super::stamp;
use crate::metrics::LastEvent;
use crate::policy::EvictionOrder;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use hashbrown::HashTable;
use std::sync::Arc;

/// Stamp of the oldest entry of an empty shard: newer than everything.
pub(crate) const NO_ENTRY: u64 = u64::MAX;

/// A part of the cache with a lock of its own. Aligned so that two shards never share a cache line.
#[repr(align(128))]
pub(crate) struct Shard<K, V> {
    state: Mutex<ShardState<K, V>>,
    oldest_used: AtomicU64,
    oldest_inserted: AtomicU64,
}

/// What a lookup in a shard comes to.
pub(crate) enum Lookup<V> {
    Hit {
        value: Arc<V>,
        bytes: u64,
    },
    Miss,
    /// The entry is there and idle for too long. Whether the floor of the policy protects it, the shard cannot know.
    Stale,
}

pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: Arc<V>,
    pub(crate) bytes: u64,
    pub(crate) used_at: u64,
}

pub(crate) struct ShardState<K, V> {
    table: HashTable<u32>,
    slots: Vec<Slot<K, V>>,
    /// By slot, as `slots`.
    origins: Vec<Origin>,
    free: Vec<u32>,
    by_use: Order,
    by_insertion: Order,
    /// The highest stamp seen here; see [`stamp`].
    clock: u64,
    ghosts: Ghosts,
    counters: Counters,
    /// The last event that was not a hit, and the clock at that time.
    last_event: Option<(u64, LastEvent)>,
    /// Creations under way. A handful at most, so a list.
    flights: Vec<(u64, K, Arc<Flight<V>>)>,
    /// Every step in the order it took effect, for tests that replay it on a model.
    #[cfg(test)]
    pub(crate) journal: Vec<(LastEvent, u64)>,
}

/// What a hit reads and writes; one cache line for a small key.
#[repr(align(64))]
struct Slot<K, V> {
    /// `None` while the slot is on the free list.
    entry: Option<Entry<K, V>>,
    used_stamp: u64,
    reuse_count: u64,
}

/// What only insertion and eviction need of an entry.
#[derive(Clone, Copy)]
struct Origin {
    hash: u64,
    created_at: u64,
    stamp: u64,
}

/// Counters that lookups bump under the shard's lock, where they cost next to nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) refaults: u64,
    pub(crate) max_reuse: u64,
}

/// When the entries at the ends of both orders were inserted and used.
pub(crate) struct Extremes {
    pub(crate) first_created_at: u64,
    pub(crate) last_created_at: u64,
    pub(crate) first_used_at: u64,
    pub(crate) last_used_at: u64,
}

/// What an attempt to evict the oldest entry of a shard comes to.
pub(crate) enum Eviction<K, V> {
    Evicted(Entry<K, V>),
    /// The oldest entry does not pass the test.
    Kept,
    /// Another thread used or removed it first.
    Moved,
}

/// What a `clear` took out.
pub(crate) struct Cleared<K, V> {
    pub(crate) entries: Vec<Entry<K, V>>,
    /// Keys and flights of creations that nobody will find any more; dropped with no lock held.
    _flights: Vec<(u64, K, Arc<Flight<V>>)>,
}

impl<K: Eq, V> Shard<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(ShardState {
                table: HashTable::new(),
                slots: Vec::new(),
                origins: Vec::new(),
                free: Vec::new(),
                by_use: Order::new(),
                by_insertion: Order::new(),
                clock: 0,
                ghosts: Ghosts::default(),
                counters: Counters::default(),
                last_event: None,
                flights: Vec::new(),
                #[cfg(test)]
                journal: Vec::new(),
            }),
            oldest_used: AtomicU64::new(NO_ENTRY),
            oldest_inserted: AtomicU64::new(NO_ENTRY),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockedShard<'_, K, V> {
        LockedShard { shard: self, state: self.state.lock() }
    }

    /// Stamp of the oldest entry in an order, without the lock: a hint, checked again once the lock is held.
    pub(crate) fn oldest_stamp(&self, order: EvictionOrder) -> u64 {
        match order {
            EvictionOrder::Lru => self.oldest_used.load(Ordering::Relaxed),
            EvictionOrder::Fifo => self.oldest_inserted.load(Ordering::Relaxed),
        }
    }
}

/// A shard whose lock is held. Methods that change the oldest entry publish its new stamp.
pub(crate) struct LockedShard<'a, K, V> {
    shard: &'a Shard<K, V>,
    pub(crate) state: MutexGuard<'a, ShardState<K, V>>,
}

impl<K: Eq, V> LockedShard<'_, K, V> {
    /// Looks the key up and, if the entry is fresh, uses it. Counts the hit; the caller counts a miss.
    #[inline]
    pub(crate) fn touch(&mut self, hash: u64, key: &K, now: u64, max_idle: u64) -> Lookup<V> {
        let state = &mut *self.state;
        let Some(at) = state.find(hash, key) else {
            return Lookup::Miss;
        };
        let slot = &mut state.slots[at as usize];
        let Some(entry) = slot.entry.as_mut() else {
            return Lookup::Miss;
        };
        if now.saturating_sub(entry.used_at) > max_idle {
            return Lookup::Stale;
        }
        let hit = Lookup::Hit { value: Arc::clone(&entry.value), bytes: entry.bytes };
        // Threads may read the clock in one order and get the lock in the other.
        entry.used_at = entry.used_at.max(now);
        slot.used_stamp = stamp::next(&mut state.clock);
        slot.reuse_count += 1;
        state.counters.hits += 1;
        state.counters.max_reuse = state.counters.max_reuse.max(slot.reuse_count);
        #[cfg(test)]
        state.journal.push((LastEvent::Hit, hash));
        let was_oldest = state.by_use.oldest() == Some(at);
        if state.by_use.newest() != Some(at) {
            state.by_use.unlink(at);
            state.by_use.push(at);
        }
        if was_oldest {
            self.publish_oldest_used();
        }
        hit
    }

    /// Inserts an entry and returns the one that it replaces.
    pub(crate) fn insert(&mut self, hash: u64, entry: Entry<K, V>) -> Option<Entry<K, V>> {
        let replaced = self.remove(hash, &entry.key);
        let state = &mut *self.state;
        let stamp = stamp::next(&mut state.clock);
        let origin = Origin { hash, created_at: entry.used_at, stamp };
        let slot = Slot { entry: Some(entry), used_stamp: stamp, reuse_count: 0 };
        let at = if let Some(at) = state.free.pop() {
            state.slots[at as usize] = slot;
            state.origins[at as usize] = origin;
            at
        } else {
            state.slots.push(slot);
            state.origins.push(origin);
            u32::try_from(state.slots.len() - 1)
                .expect("a shard of four thousand million entries has long run out of memory")
        };
        let origins = &state.origins;
        state.table.insert_unique(hash, at, |&at| origins[at as usize].hash);
        state.by_use.push(at);
        state.by_insertion.push(at);
        state.note(LastEvent::Insert, hash);
        self.publish_oldest_used();
        self.publish_oldest_inserted();
        replaced
    }

    /// Takes out the entry of a key.
    pub(crate) fn remove(&mut self, hash: u64, key: &K) -> Option<Entry<K, V>> {
        let at = self.state.find(hash, key)?;
        self.take(at)
    }

    /// Takes out the oldest entry in an order, if its stamp is still the expected one and it passes the test.
    pub(crate) fn evict_oldest(
        &mut self,
        order: EvictionOrder,
        expected_stamp: Option<u64>,
        test: impl FnOnce(&Entry<K, V>) -> bool,
    ) -> Eviction<K, V> {
        let Some((at, stamp)) = self.state.oldest(order) else {
            return Eviction::Moved;
        };
        if expected_stamp.is_some_and(|expected| expected != stamp) {
            return Eviction::Moved;
        }
        if !self.state.slots[at as usize].entry.as_ref().is_some_and(test) {
            return Eviction::Kept;
        }
        let hash = self.state.origins[at as usize].hash;
        let Some(entry) = self.take(at) else {
            return Eviction::Moved;
        };
        self.state.ghosts.remember(hash);
        self.state.count_eviction(hash);
        Eviction::Evicted(entry)
    }

    /// Takes out everything. Creations under way are forgotten too: they finish for those who wait, and keep nothing.
    pub(crate) fn clear(&mut self) -> Cleared<K, V> {
        let state = &mut *self.state;
        state.table.clear();
        state.origins.clear();
        state.free.clear();
        state.by_use = Order::new();
        state.by_insertion = Order::new();
        let slots = std::mem::take(&mut state.slots);
        let flights = std::mem::take(&mut state.flights);
        state.note(LastEvent::Clear, 0);
        self.publish_oldest_used();
        self.publish_oldest_inserted();
        Cleared { entries: slots.into_iter().filter_map(|slot| slot.entry).collect(), _flights: flights }
    }

    fn take(&mut self, at: u32) -> Option<Entry<K, V>> {
        let state = &mut *self.state;
        let entry = state.slots[at as usize].entry.take()?;
        let hash = state.origins[at as usize].hash;
        if let Ok(found) = state.table.find_entry(hash, |&other| other == at) {
            found.remove();
        }
        state.by_use.unlink(at);
        state.by_insertion.unlink(at);
        state.free.push(at);
        self.publish_oldest_used();
        self.publish_oldest_inserted();
        Some(entry)
    }

    fn publish_oldest_used(&self) {
        let stamp = self.state.oldest(EvictionOrder::Lru).map_or(NO_ENTRY, |(_, stamp)| stamp);
        self.shard.oldest_used.store(stamp, Ordering::Relaxed);
    }

    fn publish_oldest_inserted(&self) {
        let stamp = self.state.oldest(EvictionOrder::Fifo).map_or(NO_ENTRY, |(_, stamp)| stamp);
        self.shard.oldest_inserted.store(stamp, Ordering::Relaxed);
    }
}

impl<K: Eq, V> ShardState<K, V> {
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// What happened last, and the stamp of it. A hit moves the clock and nothing else.
    pub(crate) fn last_event(&self) -> Option<(u64, LastEvent)> {
        match self.last_event {
            Some((stamp, event)) if stamp == self.clock => Some((stamp, event)),
            _ => (self.clock > 0).then_some((self.clock, LastEvent::Hit)),
        }
    }

    pub(crate) fn extremes(&self) -> Option<Extremes> {
        let created_at = |at: Option<u32>| Some(self.origins[at? as usize].created_at);
        let used_at = |at: Option<u32>| Some(self.slots[at? as usize].entry.as_ref()?.used_at);
        Some(Extremes {
            first_created_at: created_at(self.by_insertion.oldest())?,
            last_created_at: created_at(self.by_insertion.newest())?,
            first_used_at: used_at(self.by_use.oldest())?,
            last_used_at: used_at(self.by_use.newest())?,
        })
    }

    pub(crate) fn find_flight(&self, hash: u64, key: &K) -> Option<&Arc<Flight<V>>> {
        let same = |flight: &&(u64, K, Arc<Flight<V>>)| flight.0 == hash && flight.1 == *key;
        self.flights.iter().find(same).map(|(_, _, flight)| flight)
    }

    /// Lists a creation that begins.
    pub(crate) fn add_flight(&mut self, hash: u64, key: K, flight: Arc<Flight<V>>) {
        self.flights.push((hash, key, flight));
    }

    /// Takes a creation off the list and returns its key; `None` if a `clear` did that already.
    pub(crate) fn take_flight(&mut self, flight: &Arc<Flight<V>>) -> Option<K> {
        let at = self.flights.iter().position(|(_, _, other)| Arc::ptr_eq(other, flight))?;
        Some(self.flights.swap_remove(at).1)
    }

    /// Counts a lookup that was served by another thread's creation.
    pub(crate) fn count_joined(&mut self, hash: u64) {
        self.counters.hits += 1;
        self.note(LastEvent::Joined, hash);
    }

    pub(crate) fn count_miss(&mut self, hash: u64) {
        self.counters.misses += 1;
        self.counters.refaults += u64::from(self.ghosts.recall(hash));
        self.note(LastEvent::Miss, hash);
    }

    pub(crate) fn count_eviction(&mut self, hash: u64) {
        self.counters.evictions += 1;
        self.note(LastEvent::Eviction, hash);
    }

    /// Remembers what happened last, to the entry of which hash.
    #[cfg_attr(not(test), expect(unused_variables, reason = "only the journal of tests needs the hash"))]
    pub(crate) fn note(&mut self, event: LastEvent, hash: u64) {
        self.last_event = Some((stamp::next(&mut self.clock), event));
        #[cfg(test)]
        self.journal.push((event, hash));
    }

    #[inline]
    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let same = |&at: &u32| self.slots[at as usize].entry.as_ref().is_some_and(|entry| entry.key == *key);
        self.table.find(hash, same).copied()
    }

    fn oldest(&self, order: EvictionOrder) -> Option<(u32, u64)> {
        match order {
            EvictionOrder::Lru => self.by_use.oldest().map(|at| (at, self.slots[at as usize].used_stamp)),
            EvictionOrder::Fifo => self.by_insertion.oldest().map(|at| (at, self.origins[at as usize].stamp)),
        }
    }
}
