//! A shard: a hash table of entries and the creations in progress, under one lock.

use super::flight::Flight;
use super::ghost::Ghosts;
use super::queue::{QueueItem, QueueOrder};
use super::stamp;
use crate::clock::{SampledClock, TimeSource};
use crate::metrics::{CacheMetrics, LastEvent};
use crate::policy::EntryMetrics;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use hashbrown::HashTable;
use std::sync::Arc;
use std::time::Duration;

/// The number of hits of a shard between two that are timed.
const SAMPLE_PERIOD: u64 = 512;

/// A part of the cache with its own lock. Aligned so that two shards never share a cache line.
#[repr(align(128))]
pub(crate) struct Shard<K, V>(Mutex<ShardState<K, V>>);

/// The result of a lookup in a shard.
pub(crate) enum Lookup<V> {
    Hit {
        value: Arc<V>,
        bytes: u64,
    },
    Miss,
    /// The entry exceeds the idle limit. The shard cannot know whether `min_entries` protects it.
    Stale,
}

#[derive(Clone, Copy)]
pub(crate) enum LookupTime<'a> {
    /// Entries cannot expire; the time is only recorded.
    Untimed(&'a TimeSource),
    /// Entries idle for longer than `max_idle` are stale.
    Limited { now: u64, max_idle: u64 },
}

/// The properties of the cache that a hit needs.
pub(crate) struct HitContext<'a> {
    pub(crate) time: &'a TimeSource,
    /// See [`stamp::last_insertion`].
    pub(crate) last_insertion: u64,
    /// Whether the cache is large enough for hits to be sampled.
    pub(crate) may_share: bool,
    /// Set when a lookup should be timed again.
    pub(crate) sample_next: &'a AtomicBool,
}

/// The part of an entry that a hit reads, and the stamp that it writes. 32 bytes with a small key, so that a thousand
/// entries fit into the CPU cache, and aligned so that none straddles two cache lines.
#[repr(align(32))]
struct Entry<K, V> {
    value: Arc<V>,
    used_stamp: u64,
    key: K,
    /// Index of the rest of the entry in `details`.
    detail: u32,
}

/// The rest of an entry, which a sampled hit does not touch.
#[derive(Clone, Copy)]
pub(crate) struct Detail {
    pub(crate) used_at: u64,
    created_at: u64,
    bytes: u64,
    /// The stamp of the insertion, which identifies the entry.
    id: u64,
    reuse_count: u64,
    create_nanos: u64,
}

/// An entry to be inserted.
pub(crate) struct NewEntry<K, V> {
    pub(crate) key: K,
    pub(crate) value: Arc<V>,
    pub(crate) bytes: u64,
    pub(crate) create_nanos: u64,
    pub(crate) now: u64,
}

/// A removed entry. The caller drops it when no lock is held.
pub(crate) struct Removed<K, V> {
    _key: K,
    pub(crate) value: Arc<V>,
    pub(crate) bytes: u64,
}

/// The fields that a hit needs come first and share one cache line with the lock; `repr(C)` keeps that order.
#[repr(C)]
pub(crate) struct ShardState<K, V> {
    table: HashTable<Entry<K, V>>,
    sampled_clock: SampledClock,
    /// Without the hits that share the last clock reading; see [`Self::hits`].
    hits: u64,
    /// The highest stamp seen in this shard; see [`stamp`].
    clock: u64,
    details: Vec<Detail>,
    free_details: Vec<u32>,
    misses: u64,
    evictions: u64,
    refaults: u64,
    /// The highest reuse count among removed entries.
    max_removed_reuse: u64,
    /// The last event that was not a hit: its stamp, and the number of hits before it.
    last_event: Option<(u64, LastEvent, u64)>,
    ghosts: Ghosts,
    /// Creations in progress. A list, because there are few.
    flights: Vec<(u64, K, Arc<Flight<V>>)>,
    /// All events in the order in which they took effect, for tests that replay them on a model.
    #[cfg(test)]
    pub(crate) journal: Vec<(LastEvent, u64)>,
}

/// The state of an entry compared with its queue item.
pub(crate) enum ItemState {
    /// The entry was removed.
    Gone,
    /// The entry was used since and has this stamp now.
    Used(u64),
    /// The entry has the stamp of the item.
    Current,
}

/// The result of an attempt to evict the entry of a queue item.
pub(crate) enum Eviction<K, V> {
    Evicted(Removed<K, V>),
    /// The entry does not pass the test.
    Kept,
    /// The item is older than its entry, or the entry is gone.
    NotCurrent(ItemState),
}

/// The content removed by `clear`. The caller drops it when no lock is held.
pub(crate) struct Cleared<K, V> {
    pub(crate) entries: usize,
    pub(crate) bytes: u64,
    _table: HashTable<Entry<K, V>>,
    _flights: Vec<(u64, K, Arc<Flight<V>>)>,
}

impl<K: Eq, V> Shard<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(ShardState {
            table: HashTable::new(),
            sampled_clock: SampledClock::default(),
            hits: 0,
            clock: 0,
            details: Vec::new(),
            free_details: Vec::new(),
            misses: 0,
            evictions: 0,
            refaults: 0,
            max_removed_reuse: 0,
            last_event: None,
            ghosts: Ghosts::default(),
            flights: Vec::new(),
            #[cfg(test)]
            journal: Vec::new(),
        }))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, ShardState<K, V>> {
        self.0.lock()
    }
}

impl<K: Eq, V> ShardState<K, V> {
    /// Looks up a key and uses its entry, in a cache where entries cannot expire. Counts a hit; the caller counts a
    /// miss.
    ///
    /// If hits `may_share` a clock reading, only about one in 64 hits of a dense run is written into its entry and
    /// stands for the others. The first use of an entry after an insertion is always written, otherwise the entry would
    /// look unused.
    #[inline]
    pub(crate) fn touch_untimed(&mut self, hash: u64, key: &K, context: &HitContext<'_>) -> Option<&Arc<V>> {
        let entry = self.table.find_mut(hash, |entry| entry.key == *key)?;
        #[cfg(test)]
        self.journal.push((LastEvent::Hit, hash));
        if context.may_share && entry.used_stamp > context.last_insertion && self.sampled_clock.share() {
            return Some(&entry.value);
        }
        // This hit also stands for the ones that shared the last clock reading.
        let weight = 1 + self.sampled_clock.take_shared();
        let now = self.sampled_clock.read(context.time, context.may_share);
        entry.used_stamp = stamp::next_use(&mut self.clock);
        self.details[entry.detail as usize].record_use(now, weight);
        count_hits(&mut self.hits, weight, context.sample_next);
        Some(&entry.value)
    }

    /// Looks up a key and uses its entry unless it is stale. Counts a hit; the caller counts a miss.
    pub(crate) fn touch(&mut self, hash: u64, key: &K, time: LookupTime<'_>, sample_next: &AtomicBool) -> Lookup<V> {
        let Some(entry) = self.table.find_mut(hash, |entry| entry.key == *key) else {
            return Lookup::Miss;
        };
        let detail = &mut self.details[entry.detail as usize];
        let now = match time {
            LookupTime::Untimed(source) => self.sampled_clock.read(source, false),
            LookupTime::Limited { now, max_idle } if now.saturating_sub(detail.used_at) > max_idle => {
                return Lookup::Stale;
            }
            LookupTime::Limited { now, .. } => now,
        };
        let weight = 1 + self.sampled_clock.take_shared();
        detail.record_use(now, weight);
        entry.used_stamp = stamp::next_use(&mut self.clock);
        count_hits(&mut self.hits, weight, sample_next);
        #[cfg(test)]
        self.journal.push((LastEvent::Hit, hash));
        Lookup::Hit { value: Arc::clone(&entry.value), bytes: detail.bytes }
    }

    /// Returns the entry of a key without using it.
    pub(crate) fn peek(&self, hash: u64, key: &K) -> Lookup<V> {
        self.table.find(hash, |entry| entry.key == *key).map_or(Lookup::Miss, |entry| Lookup::Hit {
            value: Arc::clone(&entry.value),
            bytes: self.details[entry.detail as usize].bytes,
        })
    }

    /// Makes an entry the newest in both orders, so that its replacement does not evict it. Returns its queue item and
    /// its bytes.
    pub(crate) fn renew(&mut self, hash: u64, key: &K) -> Option<(QueueItem, u64)> {
        let entry = self.table.find_mut(hash, |entry| entry.key == *key)?;
        let stamp = stamp::next_insertion(&mut self.clock);
        let detail = &mut self.details[entry.detail as usize];
        // The id changes too, because the order by insertion compares ids. Queue items with the old id become `Gone`.
        (entry.used_stamp, detail.id) = (stamp, stamp);
        Some((QueueItem { stamp, id: stamp, hash }, detail.bytes))
    }

    /// Inserts an entry for a key that has none. Returns its queue item, which is the same in both orders.
    pub(crate) fn insert(&mut self, hash: u64, new: NewEntry<K, V>, rehash: impl Fn(&K) -> u64) -> QueueItem {
        let stamp = stamp::next_insertion(&mut self.clock);
        let NewEntry { bytes, create_nanos, now, .. } = new;
        let detail = Detail { used_at: now, created_at: now, bytes, id: stamp, reuse_count: 0, create_nanos };
        let at = if let Some(at) = self.free_details.pop() {
            self.details[at as usize] = detail;
            at
        } else {
            self.details.push(detail);
            u32::try_from(self.details.len() - 1).expect("memory runs out long before four billion entries")
        };
        let entry = Entry { value: new.value, used_stamp: stamp, key: new.key, detail: at };
        self.table.insert_unique(hash, entry, |entry| rehash(&entry.key));
        self.record_event(LastEvent::Insert, hash);
        QueueItem { stamp, id: stamp, hash }
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &K) -> Option<Removed<K, V>> {
        let (entry, _) = self.table.find_entry(hash, |entry| entry.key == *key).ok()?.remove();
        self.record_event(LastEvent::Remove, hash);
        Some(self.release(entry))
    }

    /// Compares a queue item with its entry.
    pub(crate) fn item_state(&self, item: QueueItem, order: QueueOrder) -> ItemState {
        match self.table.find(item.hash, |entry| self.details[entry.detail as usize].id == item.id) {
            None => ItemState::Gone,
            // A ranking is not updated while it is used.
            Some(_) if order == QueueOrder::Score => ItemState::Current,
            Some(entry) => match entry.stamp(&self.details[entry.detail as usize], order) {
                stamp if stamp == item.stamp => ItemState::Current,
                stamp => ItemState::Used(stamp),
            },
        }
    }

    /// Evicts the entry of a queue item if the item is current or `forced` is set, and the entry passes the test.
    pub(crate) fn evict(
        &mut self,
        item: QueueItem,
        order: QueueOrder,
        forced: bool,
        test: impl FnOnce(&Detail) -> bool,
    ) -> Eviction<K, V> {
        match self.item_state(item, order) {
            ItemState::Current => {}
            ItemState::Used(_) if forced => {}
            state => return Eviction::NotCurrent(state),
        }
        let details = &self.details;
        // By id and not by key: a newer entry of the same key has another id and must not be evicted for this item.
        let Ok(found) = self.table.find_entry(item.hash, |entry| details[entry.detail as usize].id == item.id) else {
            return Eviction::NotCurrent(ItemState::Gone);
        };
        if !test(&details[found.get().detail as usize]) {
            return Eviction::Kept;
        }
        let (entry, _) = found.remove();
        self.count_eviction(item.hash);
        Eviction::Evicted(self.release(entry))
    }

    /// Evicts the entry of a key if it passes the test.
    pub(crate) fn evict_key(
        &mut self,
        hash: u64,
        key: &K,
        test: impl FnOnce(&Detail) -> bool,
    ) -> Option<Removed<K, V>> {
        let found = self.table.find_entry(hash, |entry| entry.key == *key).ok()?;
        if !test(&self.details[found.get().detail as usize]) {
            return None;
        }
        let (entry, _) = found.remove();
        self.count_eviction(hash);
        Some(self.release(entry))
    }

    /// Removes everything, including the creations in progress: they return their value to the waiting threads, but are
    /// not cached.
    pub(crate) fn clear(&mut self) -> Cleared<K, V> {
        let (mut max_reuse, mut bytes) = (self.max_removed_reuse, 0);
        for detail in self.live_details() {
            max_reuse = max_reuse.max(detail.reuse_count);
            bytes += detail.bytes;
        }
        self.max_removed_reuse = max_reuse;
        self.record_event(LastEvent::Clear, 0);
        self.details = Vec::new();
        self.free_details = Vec::new();
        let table = std::mem::take(&mut self.table);
        let flights = std::mem::take(&mut self.flights);
        Cleared { entries: table.len(), bytes, _table: table, _flights: flights }
    }

    /// Returns the queue item and the details of each entry.
    pub(crate) fn queue_items(
        &self,
        order: QueueOrder,
        hash: impl Fn(&K) -> u64,
    ) -> impl Iterator<Item = (QueueItem, &Detail)> {
        self.table.iter().map(move |entry| {
            let detail = &self.details[entry.detail as usize];
            (QueueItem { stamp: entry.stamp(detail, order), id: detail.id, hash: hash(&entry.key) }, detail)
        })
    }

    /// Adds counters and ages to the metrics of the cache. Visits every entry.
    pub(crate) fn add_to(&self, metrics: &mut CacheMetrics, now: u64) {
        metrics.hits += self.hits();
        metrics.misses += self.misses;
        metrics.evictions += self.evictions;
        metrics.refaults += self.refaults;
        metrics.max_entry_reuse_count = metrics.max_entry_reuse_count.max(self.max_removed_reuse);
        // Hits wait for the lock during this loop, so it only compares integers.
        let (mut created, mut used) = ((u64::MAX, 0), (u64::MAX, 0));
        for detail in self.live_details() {
            metrics.max_entry_reuse_count = metrics.max_entry_reuse_count.max(detail.reuse_count);
            created = (created.0.min(detail.created_at), created.1.max(detail.created_at));
            used = (used.0.min(detail.used_at), used.1.max(detail.used_at));
        }
        if created.0 <= created.1 {
            let since = |at: u64| Duration::from_nanos(now.saturating_sub(at));
            merge_age(&mut metrics.oldest_entry_age, since(created.0), Duration::max);
            merge_age(&mut metrics.newest_entry_age, since(created.1), Duration::min);
            merge_age(&mut metrics.longest_idle_age, since(used.0), Duration::max);
            merge_age(&mut metrics.shortest_idle_age, since(used.1), Duration::min);
        }
    }

    pub(crate) fn last_event(&self) -> Option<(u64, LastEvent)> {
        match self.last_event {
            // Hits record no event, to stay cheap. If their number has grown since the last event, a hit was last.
            Some((stamp, event, hits)) if hits == self.hits() => Some((stamp, event)),
            _ => (self.hits() > 0).then_some((self.clock, LastEvent::Hit)),
        }
    }

    pub(crate) fn lookups(&self) -> (u64, u64) {
        (self.hits(), self.misses)
    }

    fn hits(&self) -> u64 {
        self.hits + self.sampled_clock.shared()
    }

    /// Shrinks the tables if most of their capacity is unused.
    pub(crate) fn shrink_memory(&mut self, hash: impl Fn(&K) -> u64) {
        // Only below a quarter, so that a table does not shrink and grow in turns.
        if self.table.capacity() <= 4 * self.table.len() + 64 {
            return;
        }
        self.table.shrink_to_fit(|entry| hash(&entry.key));
        // Renumbers the details densely, in the order of the table.
        let mut details = Vec::with_capacity(self.table.len());
        for (at, entry) in self.table.iter_mut().enumerate() {
            details.push(self.details[entry.detail as usize]);
            entry.detail = at as u32;
        }
        self.details = details;
        self.free_details = Vec::new();
    }

    pub(crate) fn has_flight(&self, flight: &Arc<Flight<V>>) -> bool {
        self.flights.iter().any(|(_, _, other)| Arc::ptr_eq(other, flight))
    }

    pub(crate) fn find_flight(&self, hash: u64, key: &K) -> Option<&Arc<Flight<V>>> {
        let same = |flight: &&(u64, K, Arc<Flight<V>>)| flight.0 == hash && flight.1 == *key;
        self.flights.iter().find(same).map(|(_, _, flight)| flight)
    }

    /// Registers a creation.
    pub(crate) fn add_flight(&mut self, hash: u64, key: K, flight: Arc<Flight<V>>) {
        self.flights.push((hash, key, flight));
    }

    /// Unregisters a creation and returns its key, or `None` if `clear` already removed it.
    pub(crate) fn take_flight(&mut self, flight: &Arc<Flight<V>>) -> Option<K> {
        let at = self.flights.iter().position(|(_, _, other)| Arc::ptr_eq(other, flight))?;
        Some(self.flights.swap_remove(at).1)
    }

    /// Counts a lookup that was served by a creation of another thread.
    pub(crate) fn count_joined(&mut self, hash: u64) {
        self.hits += 1;
        self.record_event(LastEvent::Joined, hash);
    }

    pub(crate) fn count_miss(&mut self, hash: u64) {
        self.misses += 1;
        self.refaults += u64::from(self.ghosts.recall(hash));
        self.record_event(LastEvent::Miss, hash);
    }

    fn count_eviction(&mut self, hash: u64) {
        self.evictions += 1;
        self.ghosts.remember(hash, self.table.len());
        self.record_event(LastEvent::Eviction, hash);
    }

    /// Records the last event. The hash is only used by the journal of the tests.
    #[cfg_attr(not(test), expect(unused_variables, reason = "only the journal of tests needs the hash"))]
    pub(crate) fn record_event(&mut self, event: LastEvent, hash: u64) {
        self.last_event = Some((stamp::next_use(&mut self.clock), event, self.hits()));
        #[cfg(test)]
        self.journal.push((event, hash));
    }

    fn release(&mut self, entry: Entry<K, V>) -> Removed<K, V> {
        let detail = self.details[entry.detail as usize];
        self.free_details.push(entry.detail);
        // Kept for the metrics, which cover removed entries as well.
        self.max_removed_reuse = self.max_removed_reuse.max(detail.reuse_count);
        Removed { _key: entry.key, value: entry.value, bytes: detail.bytes }
    }

    fn live_details(&self) -> impl Iterator<Item = &Detail> {
        self.table.iter().map(|entry| &self.details[entry.detail as usize])
    }
}

/// Counts hits, and requests that a lookup is timed every `SAMPLE_PERIOD` hits.
fn count_hits(hits: &mut u64, weight: u64, sample_next: &AtomicBool) {
    // Compares quotients, because a weight above 1 may step over a multiple of the period.
    if *hits / SAMPLE_PERIOD != (*hits + weight) / SAMPLE_PERIOD {
        sample_next.store(true, Ordering::Relaxed);
    }
    *hits += weight;
}

impl<K, V> Entry<K, V> {
    fn stamp(&self, detail: &Detail, order: QueueOrder) -> u64 {
        match order {
            QueueOrder::Use => self.used_stamp,
            QueueOrder::Insertion | QueueOrder::Score => detail.id,
        }
    }
}

impl Detail {
    fn record_use(&mut self, now: u64, weight: u64) {
        // Threads may read the clock in one order and acquire the lock in the other.
        self.used_at = self.used_at.max(now);
        self.reuse_count += weight;
    }

    pub(crate) fn metrics(&self, now: u64) -> EntryMetrics {
        let since = |at: u64| Duration::from_nanos(now.saturating_sub(at));
        EntryMetrics {
            age: since(self.created_at),
            idle: since(self.used_at),
            hits: self.reuse_count,
            bytes: self.bytes,
            create_time: Duration::from_nanos(self.create_nanos),
        }
    }
}

fn merge_age(slot: &mut Option<Duration>, value: Duration, choose: fn(Duration, Duration) -> Duration) {
    *slot = Some(slot.map_or(value, |old| choose(old, value)));
}
