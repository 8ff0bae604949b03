//! One shard: a hash table of entries and the creations under way, under one lock.

use super::flight::Flight;
use super::ghost::Ghosts;
use super::queue::Mark;
use super::stamp;
use crate::clock::{TimeSource, UseClock};
use crate::metrics::LastEvent;
use crate::policy::EvictionOrder;
use crate::sync::{Mutex, MutexGuard};
use hashbrown::HashTable;
use std::sync::Arc;

/// Up to this many entries of a shard, every hit is written into its entry. With 32 shards, about 250 in all.
const EXACT_ENTRIES: usize = 8;

/// A part of the cache with a lock of its own. Aligned so that two shards never share a cache line.
#[repr(align(128))]
pub(crate) struct Shard<K, V>(Mutex<ShardState<K, V>>);

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

/// The time of a lookup.
#[derive(Clone, Copy)]
pub(crate) enum LookupTime<'a> {
    /// Nothing can expire; the time is only noted.
    Untimed(&'a TimeSource),
    /// Entries idle for longer than `max_idle` are stale.
    Limited { now: u64, max_idle: u64 },
}

/// One entry: a cache line of its own if the key is small, and the only line but the lock's that a hit writes to.
#[repr(align(64))]
pub(crate) struct Entry<K, V> {
    pub(crate) value: Arc<V>,
    used_stamp: u64,
    pub(crate) used_at: u64,
    reuse_count: u32,
    pub(crate) key: K,
    pub(crate) bytes: u64,
    created_at: u64,
    /// The stamp of the insertion.
    id: u64,
}

/// What a hit writes comes first, in the cache line of the lock; then what it reads.
#[repr(C)]
pub(crate) struct ShardState<K, V> {
    hits: u64,
    use_clock: UseClock,
    /// The highest stamp seen here; see [`stamp`].
    clock: u64,
    table: HashTable<Entry<K, V>>,
    misses: u64,
    evictions: u64,
    refaults: u64,
    /// The highest reuse count among the entries that are gone.
    past_reuse: u32,
    /// The last event that was not a hit: its stamp, and the hits so far.
    last_event: Option<(u64, LastEvent, u64)>,
    ghosts: Ghosts,
    /// Creations under way. A handful at most, so a list.
    flights: Vec<(u64, K, Arc<Flight<V>>)>,
    /// Every step in the order it took effect, for tests that replay it on a model.
    #[cfg(test)]
    pub(crate) journal: Vec<(LastEvent, u64)>,
}

/// What a shard contributes to the metrics of its cache. Times are `None` for an empty shard.
pub(crate) struct Census {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) refaults: u64,
    pub(crate) max_reuse: u32,
    pub(crate) last_event: Option<(u64, LastEvent)>,
    pub(crate) times: Option<UseTimes>,
}

/// When the first and the last entry were inserted and used.
pub(crate) struct UseTimes {
    pub(crate) first_created_at: u64,
    pub(crate) last_created_at: u64,
    pub(crate) first_used_at: u64,
    pub(crate) last_used_at: u64,
}

/// How an entry stands to a mark of the queue.
pub(crate) enum Standing {
    /// There is no such entry any more.
    Gone,
    /// It was used since; its stamp now.
    Used(u64),
    /// As the mark says.
    Current,
}

/// What a `clear` took out; dropped by the caller once no lock is held.
pub(crate) struct Cleared<K, V> {
    pub(crate) entries: HashTable<Entry<K, V>>,
    _flights: Vec<(u64, K, Arc<Flight<V>>)>,
}

impl<K, V> Entry<K, V> {
    pub(crate) fn new(key: K, value: Arc<V>, bytes: u64, now: u64) -> Self {
        Self { value, used_stamp: 0, used_at: now, reuse_count: 0, key, bytes, created_at: now, id: 0 }
    }

    fn stamp(&self, order: EvictionOrder) -> u64 {
        match order {
            EvictionOrder::Lru => self.used_stamp,
            EvictionOrder::Fifo => self.id,
        }
    }
}

impl<K: Eq, V> Shard<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(ShardState {
            hits: 0,
            use_clock: UseClock::default(),
            clock: 0,
            table: HashTable::new(),
            misses: 0,
            evictions: 0,
            refaults: 0,
            past_reuse: 0,
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
    /// Looks the key up and uses its entry, where nothing can expire. Counts the hit; the caller counts a miss.
    ///
    /// In a dense run of hits on a large shard, only one hit in 64 is written into its entry, and stands for the
    /// others; but the first use of an entry after an insertion always is, or the entry would look unused.
    #[inline]
    pub(crate) fn touch_untimed(
        &mut self,
        hash: u64,
        key: &K,
        time: &TimeSource,
        last_insertion: u64,
    ) -> Option<&Entry<K, V>> {
        let is_large = self.table.len() > EXACT_ENTRIES;
        let entry = self.table.find_mut(hash, |entry| entry.key == *key)?;
        self.hits += 1;
        #[cfg(test)]
        self.journal.push((LastEvent::Hit, hash));
        if entry.used_stamp > last_insertion && self.use_clock.share() {
            return Some(entry);
        }
        let (now, weight) = self.use_clock.read(time, is_large);
        entry.used_at = now;
        entry.used_stamp = stamp::next(&mut self.clock, last_insertion);
        entry.reuse_count = entry.reuse_count.saturating_add(weight);
        Some(entry)
    }

    /// Looks the key up and, if its entry is fresh, uses it. Counts the hit; the caller counts a miss.
    pub(crate) fn touch(&mut self, hash: u64, key: &K, time: LookupTime<'_>, last_insertion: u64) -> Lookup<V> {
        let hit = match time {
            LookupTime::Untimed(source) => self.touch_untimed(hash, key, source, last_insertion),
            LookupTime::Limited { now, max_idle } => {
                let Some(entry) = self.table.find_mut(hash, |entry| entry.key == *key) else {
                    return Lookup::Miss;
                };
                if now.saturating_sub(entry.used_at) > max_idle {
                    return Lookup::Stale;
                }
                // Threads may read the clock in one order and get the lock in the other.
                entry.used_at = entry.used_at.max(now);
                entry.used_stamp = stamp::next(&mut self.clock, last_insertion);
                entry.reuse_count = entry.reuse_count.saturating_add(1);
                self.hits += 1;
                #[cfg(test)]
                self.journal.push((LastEvent::Hit, hash));
                Some(&*entry)
            }
        };
        hit.map_or(Lookup::Miss, |entry| Lookup::Hit { value: Arc::clone(&entry.value), bytes: entry.bytes })
    }

    /// Inserts an entry for a key that has none. Returns its mark, the same in both orders.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        mut entry: Entry<K, V>,
        last_insertion: u64,
        rehash: impl Fn(&K) -> u64,
    ) -> Mark {
        let stamp = stamp::next(&mut self.clock, last_insertion);
        (entry.id, entry.used_stamp) = (stamp, stamp);
        self.table.insert_unique(hash, entry, |entry| rehash(&entry.key));
        self.note(LastEvent::Insert, hash);
        Mark { stamp, id: stamp, hash }
    }

    /// Takes out the entry of a key.
    pub(crate) fn remove(&mut self, hash: u64, key: &K) -> Option<Entry<K, V>> {
        self.take(hash, |entry| entry.key == *key)
    }

    /// How the entry of a mark stands, and whether it passes the test.
    pub(crate) fn standing(
        &self,
        mark: Mark,
        order: EvictionOrder,
        test: impl FnOnce(&Entry<K, V>) -> bool,
    ) -> (Standing, bool) {
        match self.table.find(mark.hash, |entry| entry.id == mark.id) {
            None => (Standing::Gone, false),
            Some(entry) if entry.stamp(order) != mark.stamp => (Standing::Used(entry.stamp(order)), test(entry)),
            Some(entry) => (Standing::Current, test(entry)),
        }
    }

    /// Takes out the entry of a mark, as an eviction.
    pub(crate) fn evict(&mut self, mark: Mark) -> Option<Entry<K, V>> {
        let entry = self.take(mark.hash, |entry| entry.id == mark.id)?;
        self.ghosts.remember(mark.hash);
        self.count_eviction(mark.hash);
        Some(entry)
    }

    /// Takes out everything. Creations under way are forgotten too: they finish for those who wait, and keep nothing.
    pub(crate) fn clear(&mut self) -> Cleared<K, V> {
        self.past_reuse = self.max_reuse();
        self.note(LastEvent::Clear, 0);
        Cleared { entries: std::mem::take(&mut self.table), _flights: std::mem::take(&mut self.flights) }
    }

    /// Adds the marks of all entries.
    pub(crate) fn marks(&self, order: EvictionOrder, hash: impl Fn(&K) -> u64, marks: &mut Vec<Mark>) {
        let mark = |entry: &Entry<K, V>| Mark { stamp: entry.stamp(order), id: entry.id, hash: hash(&entry.key) };
        marks.extend(self.table.iter().map(mark));
    }

    /// Counters and times; looks at every entry.
    pub(crate) fn census(&self) -> Census {
        let last_event = match self.last_event {
            Some((stamp, event, hits)) if hits == self.hits => Some((stamp, event)),
            _ => (self.hits > 0).then_some((self.clock, LastEvent::Hit)),
        };
        Census {
            hits: self.hits,
            misses: self.misses,
            evictions: self.evictions,
            refaults: self.refaults,
            max_reuse: self.max_reuse(),
            last_event,
            times: self.table.iter().fold(None, |times, entry| Some(UseTimes::with(times, entry))),
        }
    }

    /// Hits and misses.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        (self.hits, self.misses)
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
        self.hits += 1;
        self.note(LastEvent::Joined, hash);
    }

    pub(crate) fn count_miss(&mut self, hash: u64) {
        self.misses += 1;
        self.refaults += u64::from(self.ghosts.recall(hash));
        self.note(LastEvent::Miss, hash);
    }

    pub(crate) fn count_eviction(&mut self, hash: u64) {
        self.evictions += 1;
        self.note(LastEvent::Eviction, hash);
    }

    /// Remembers what happened last, to the entry of which hash.
    #[cfg_attr(not(test), expect(unused_variables, reason = "only the journal of tests needs the hash"))]
    pub(crate) fn note(&mut self, event: LastEvent, hash: u64) {
        self.last_event = Some((stamp::next(&mut self.clock, 0), event, self.hits));
        #[cfg(test)]
        self.journal.push((event, hash));
    }

    fn take(&mut self, hash: u64, same: impl FnMut(&Entry<K, V>) -> bool) -> Option<Entry<K, V>> {
        let (entry, _) = self.table.find_entry(hash, same).ok()?.remove();
        self.past_reuse = self.past_reuse.max(entry.reuse_count);
        Some(entry)
    }

    fn max_reuse(&self) -> u32 {
        self.table.iter().map(|entry| entry.reuse_count).fold(self.past_reuse, u32::max)
    }
}

impl UseTimes {
    fn with<K, V>(times: Option<Self>, entry: &Entry<K, V>) -> Self {
        let (created, used) = (entry.created_at, entry.used_at);
        times.map_or(
            Self { first_created_at: created, last_created_at: created, first_used_at: used, last_used_at: used },
            |times| Self {
                first_created_at: times.first_created_at.min(created),
                last_created_at: times.last_created_at.max(created),
                first_used_at: times.first_used_at.min(used),
                last_used_at: times.last_used_at.max(used),
            },
        )
    }
}
