//! Eviction: applies the limits of the policy, oldest entry first, over all shards.
//!
//! Evicted entries are collected in [`Evicted`], so that neither the user's `Drop` nor a sink runs while a lock is
//! held.

use super::Cache;
use super::flight::Flight;
use super::queue::{Queue, QueueItem, QueueOrder};
use super::shard::{Detail, Eviction, ItemState, NewEntry, Removed};
use crate::events::{CacheEvent, EventHub};
use crate::kernel::CacheKey;
use crate::policy::{EvictionPolicy, EvictionReason};
use crate::sync::Ordering;
use std::sync::Arc;

/// The number of stale queue items beyond twice the number of entries, at which a queue is rebuilt.
const MAX_STALE_ITEMS: usize = 64;
/// The number of entries evicted by a trim from which it also shrinks the hash tables.
const LARGE_TRIM_ENTRIES: usize = 1024;

/// The policy and the eviction queues.
///
/// Its lock serialises all insertions and evictions, so that limits hold strictly. Hits never take it. Lock order: this
/// lock before a shard's lock, never the reverse.
pub(super) struct EvictionState {
    pub(super) policy: EvictionPolicy,
    /// Indexed by [`QueueOrder`]. The queue by score only exists during an eviction, because a ranking may change at
    /// any time.
    queues: [LazyQueue; QueueOrder::ALL.len()],
    /// The entry that is being replaced. It is not evicted to make room for its replacement.
    exempt_id: Option<u64>,
}

/// A queue that exists while it is needed: always for the order of the policy, temporarily for a trim.
type LazyQueue = Option<Queue>;

/// An entry to be inserted.
pub(super) struct Incoming<'a, K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: &'a Arc<V>,
    pub(super) bytes: u64,
    pub(super) create_nanos: u64,
}

/// Entries that were evicted but not yet reported and dropped.
pub(super) struct Evicted<K, V>(Vec<EvictedEntry<K, V>>);

struct EvictedEntry<K, V> {
    reason: EvictionReason,
    size_after: usize,
    /// `None` for a value that was too large to be inserted.
    _entry: Option<Removed<K, V>>,
}

impl<K, V> Evicted<K, V> {
    fn push(&mut self, reason: EvictionReason, size_after: usize, entry: Option<Removed<K, V>>) {
        self.0.push(EvictedEntry { reason, size_after, _entry: entry });
    }
}

impl EvictionState {
    pub(super) fn new(policy: EvictionPolicy) -> Self {
        let queues = QueueOrder::ALL.map(|order| needs(&policy, order).then(Queue::default));
        Self { policy, queues, exempt_id: None }
    }

    /// Resets the queues after all entries were removed.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.policy);
    }

    #[cfg(test)]
    pub(super) fn queue_items(&self) -> usize {
        self.queues.iter().flatten().map(Queue::len).sum()
    }

    fn queue(&mut self, order: QueueOrder) -> &mut LazyQueue {
        &mut self.queues[order as usize]
    }

    /// Drops the queues that the policy does not need.
    fn drop_unused_queues(&mut self) {
        for order in QueueOrder::ALL {
            if !needs(&self.policy, order) {
                *self.queue(order) = None;
            }
        }
    }
}

/// Returns whether a policy keeps a queue in this order. Idle entries are evicted in order of use; a ranking is
/// computed for each eviction.
fn needs(policy: &EvictionPolicy, order: QueueOrder) -> bool {
    match order {
        QueueOrder::Use => policy.queue_order() == order || policy.max_idle_duration().is_some(),
        QueueOrder::Insertion => policy.queue_order() == order,
        QueueOrder::Score => false,
    }
}

/// The values removed by `put`. The caller drops them when no lock is held.
pub(super) struct Replaced<K, V> {
    _entry: Option<Removed<K, V>>,
    _flight_key: Option<K>,
    /// The new entry, if it was not kept.
    _unused: Option<NewEntry<K, V>>,
}

impl<K, V> Default for Evicted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: CacheKey, V: Send + Sync + 'static> Cache<K, V> {
    /// Evicts stale entries, runs `work` with the eviction lock held, and reports evictions after releasing it.
    pub(super) fn with_eviction_lock<R>(&self, work: impl FnOnce(&mut EvictionState, &mut Evicted<K, V>) -> R) -> R {
        let mut evicted = Evicted::default();
        let mut state = self.eviction.lock();
        self.sweep(&mut state, &mut evicted);
        let result = work(&mut state, &mut evicted);
        drop(state);
        self.finish(evicted);
        result
    }

    /// Evicts stale entries and returns their number. Costs one relaxed load if the policy has no idle limit.
    pub(crate) fn expire(&self) -> usize {
        match self.max_idle.load(Ordering::Relaxed) {
            u64::MAX => 0,
            _ => self.with_eviction_lock(|_, evicted| evicted.0.len()),
        }
    }

    /// Evicts stale entries after a lookup found one, including that one.
    ///
    /// The found entry is evicted whatever its position in the queue: uses by several threads between two insertions
    /// need not be ordered by time. If it is still present afterwards, `min_entries` protects it.
    pub(super) fn expire_key(&self, hash: u64, key: &K) {
        self.with_eviction_lock(|state, evicted| {
            if self.len.load(Ordering::Relaxed) > state.policy.min_entries() {
                let (now, max_idle) = (self.time.now(), state.policy.max_idle_nanos());
                let stale = |detail: &Detail| now.saturating_sub(detail.used_at) > max_idle;
                let entry = self.shard(hash).lock().evict_key(hash, key, stale);
                if let Some(entry) = entry {
                    self.account_removal(1, entry.bytes);
                    evicted.push(EvictionReason::Idle, self.len.load(Ordering::Relaxed), Some(entry));
                }
            }
        });
    }

    /// Makes room for one more entry before its creation, down to `min_entries`.
    pub(super) fn make_room(&self) {
        self.with_eviction_lock(|state, evicted| {
            let max_entries = state.policy.entries_before_insertion(self.len.load(Ordering::Relaxed));
            self.shrink(state, max_entries, evicted);
        });
    }

    /// Makes room for an entry of `bytes` bytes, which counts towards `min_entries`. Returns false if it cannot be
    /// kept.
    ///
    /// The entry that it replaces, of `old` bytes, counts as removed and is exempt from eviction.
    fn make_room_for(
        &self,
        state: &mut EvictionState,
        bytes: u64,
        old: Option<u64>,
        evicted: &mut Evicted<K, V>,
    ) -> bool {
        let policy = state.policy;
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        let len = || self.len.load(Ordering::Relaxed) - usize::from(old.is_some());
        // An entry that is needed to reach `min_entries` is kept whatever its size.
        if bytes > max_bytes.min(self.budget.limit()) && len() >= policy.min_entries() {
            self.oversize.fetch_add(1, Ordering::Relaxed);
            evicted.push(EvictionReason::Oversize, len(), None);
            return false;
        }
        let (order, max_entries) = (policy.queue_order(), policy.entries_before_insertion(len()));
        while len() > max_entries && self.evict_one(state, order, EvictionReason::MaxEntries, evicted) {}
        let over = || self.bytes.load(Ordering::Relaxed) - old.unwrap_or(0) + bytes > max_bytes;
        // An eviction and the insertion leave `len()` entries in total. The 1 is the entry to evict.
        while over()
            && len() >= policy.min_entries().max(1)
            && self.evict_one(state, order, EvictionReason::MaxBytes, evicted)
        {}
        // A ranking is only valid for one eviction.
        *state.queue(QueueOrder::Score) = None;
        true
    }

    /// Sets the policy and enforces its limits.
    ///
    /// The caller has evicted stale entries under the old policy (`with_eviction_lock`): under a longer idle limit they
    /// would become valid again.
    pub(super) fn apply_policy(&self, state: &mut EvictionState, policy: EvictionPolicy, evicted: &mut Evicted<K, V>) {
        state.policy = policy;
        state.drop_unused_queues();
        for order in QueueOrder::ALL {
            if needs(&policy, order) && state.queue(order).is_none() {
                *state.queue(order) = Some(self.build_queue(order, &policy));
            }
        }
        // Copies for the hit path, which does not take this lock.
        self.max_idle.store(policy.max_idle_nanos(), Ordering::Relaxed);
        self.can_expire.store(policy.max_idle_duration().is_some(), Ordering::Relaxed);
        self.sweep(state, evicted);
        self.shrink(state, policy.max_entries().unwrap_or(usize::MAX), evicted);
    }

    /// Evicts entries up to a stamp, oldest first, while `wanted` returns true and `min_entries` allows it.
    pub(crate) fn evict_while(
        &self,
        order: QueueOrder,
        reason: EvictionReason,
        up_to_stamp: u64,
        mut wanted: impl FnMut() -> bool,
    ) -> usize {
        self.with_eviction_lock(|state, evicted| {
            let swept = evicted.0.len();
            while wanted()
                && self.len.load(Ordering::Relaxed) > state.policy.min_entries()
                && self.oldest_stamp(state, order).is_some_and(|stamp| stamp <= up_to_stamp)
                && self.evict_one(state, order, reason, evicted)
            {}
            *state.queue(QueueOrder::Score) = None;
            let count = evicted.0.len() - swept;
            // Small trims keep the capacity, because the entries are likely to come back.
            if count >= LARGE_TRIM_ENTRIES {
                self.shrink_memory(state);
            }
            count
        })
    }

    /// Drops the queues that only a trim needed.
    pub(crate) fn end_trim(&self) {
        self.eviction.lock().drop_unused_queues();
    }

    /// Shrinks hash tables and queues to their content.
    fn shrink_memory(&self, state: &mut EvictionState) {
        for shard in &self.shards {
            shard.lock().shrink_memory(|key| self.hash(key));
        }
        for order in QueueOrder::ALL {
            if state.queue(order).is_some() {
                *state.queue(order) = Some(self.build_queue(order, &state.policy));
            }
        }
    }

    /// Returns the stamp of the least recently used entry, or `None` if `min_entries` protects all entries.
    pub(crate) fn oldest_evictable(&self) -> Option<u64> {
        let mut state = self.eviction.lock();
        if self.len.load(Ordering::Relaxed) <= state.policy.min_entries() {
            return None;
        }
        self.oldest_stamp(&mut state, QueueOrder::Use)
    }

    /// Inserts a value, replacing the one of the same key. Readers see either the old or the new value.
    ///
    /// Nothing is stored if the value is too large or, for a creation, if the cache was cleared in the meantime.
    pub(super) fn put(
        &self,
        state: &mut EvictionState,
        incoming: Incoming<'_, K, V>,
        flight: Option<&Arc<Flight<V>>>,
        evicted: &mut Evicted<K, V>,
    ) -> Replaced<K, V> {
        let Incoming { hash, key, value, bytes, create_nanos } = incoming;
        let new = NewEntry { key, value: Arc::clone(value), bytes, create_nanos, now: self.time.now() };
        let mut shard = self.shard(hash).lock();
        // The flight is gone if `clear` ran during the creation: its value is returned to the callers but not cached.
        if flight.is_some_and(|flight| !shard.has_flight(flight)) {
            return Replaced { _entry: None, _flight_key: None, _unused: Some(new) };
        }
        // Makes the old entry the newest, so that it is not evicted for its replacement. The shard is unlocked while
        // room is made, because evictions lock shards.
        let old = shard.renew(hash, &new.key);
        drop(shard);
        if let Some((item, _)) = old {
            self.enqueue(state, item);
        }
        state.exempt_id = old.map(|(item, _)| item.id);
        let fits = self.make_room_for(state, bytes, old.map(|(_, bytes)| bytes), evicted);
        state.exempt_id = None;
        let mut shard = self.shard(hash).lock();
        // The shard was unlocked meanwhile, but `insert`, `remove` and `clear` need the eviction lock, which the caller
        // holds. Only hits and new flights may have happened.
        let flight_key = flight.and_then(|flight| shard.take_flight(flight));
        // Removed and inserted under one lock: a concurrent lookup finds the old or the new value, never a miss.
        let entry = shard.remove(hash, &new.key);
        let (item, unused) =
            if fits { (Some(shard.insert(hash, new, |key| self.hash(key))), None) } else { (None, Some(new)) };
        drop(shard);
        if let Some(entry) = &entry {
            self.account_removal(1, entry.bytes);
        }
        if let Some(item) = item {
            self.account_insert(bytes);
            self.enqueue(state, item);
        }
        Replaced { _entry: entry, _flight_key: flight_key, _unused: unused }
    }

    /// Adds a new entry to the queues. A queue with too many items of removed entries is rebuilt.
    fn enqueue(&self, state: &mut EvictionState, item: QueueItem) {
        let limit = 2 * self.len.load(Ordering::Relaxed) + MAX_STALE_ITEMS;
        for order in [QueueOrder::Use, QueueOrder::Insertion] {
            if let Some(queue) = state.queue(order) {
                queue.push(item);
                // A rebuilt queue has one item per entry, so the next rebuild is about as many insertions away and its
                // cost is amortised.
                if queue.len() > limit {
                    *state.queue(order) = Some(self.build_queue(order, &state.policy));
                }
            }
        }
    }

    /// Reports evictions to the sinks, then drops the entries. Called with no lock held.
    pub(super) fn finish(&self, evicted: Evicted<K, V>) {
        if let Some(hub) = self.events.as_ref().filter(|hub| hub.is_on()) {
            self.emit_evictions(hub, &evicted);
        }
        drop(evicted);
    }

    /// Emits one event for each run of evictions with the same reason.
    fn emit_evictions(&self, hub: &EventHub, evicted: &Evicted<K, V>) {
        let mut rest = evicted.0.as_slice();
        while let Some(&EvictedEntry { reason, .. }) = rest.first() {
            let count = rest.iter().take_while(|entry| entry.reason == reason).count();
            hub.emit(&CacheEvent::CacheEviction {
                cache: self.name.into(),
                strategy: self.policy().name().into(),
                count,
                reason,
                size_after: rest[count - 1].size_after,
            });
            rest = &rest[count..];
        }
    }

    /// Evicts entries that exceed the idle limit, down to `min_entries`.
    pub(super) fn sweep(&self, state: &mut EvictionState, evicted: &mut Evicted<K, V>) {
        let max_idle = state.policy.max_idle_nanos();
        if max_idle == u64::MAX {
            return;
        }
        let now = self.time.now();
        let stale = |detail: &Detail| now.saturating_sub(detail.used_at) > max_idle;
        while self.len.load(Ordering::Relaxed) > state.policy.min_entries()
            && self.evict_if(state, QueueOrder::Use, EvictionReason::Idle, evicted, stale)
        {}
    }

    /// Evicts entries down to `max_entries` and the byte limit of the policy, but not below `min_entries`.
    fn shrink(&self, state: &mut EvictionState, max_entries: usize, evicted: &mut Evicted<K, V>) {
        let policy = state.policy;
        let len = || self.len.load(Ordering::Relaxed);
        let max_entries = max_entries.max(policy.min_entries());
        let order = policy.queue_order();
        while len() > max_entries && self.evict_one(state, order, EvictionReason::MaxEntries, evicted) {}
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        while self.bytes.load(Ordering::Relaxed) > max_bytes
            && len() > policy.min_entries()
            && self.evict_one(state, order, EvictionReason::MaxBytes, evicted)
        {}
        *state.queue(QueueOrder::Score) = None;
    }

    /// Evicts the oldest entry. Returns false if there is none.
    fn evict_one(
        &self,
        state: &mut EvictionState,
        order: QueueOrder,
        reason: EvictionReason,
        evicted: &mut Evicted<K, V>,
    ) -> bool {
        self.evict_if(state, order, reason, evicted, |_| true)
    }

    /// Evicts the oldest entry if it passes `test`. Returns whether an entry was evicted.
    ///
    /// Items that are older than their entry are reinserted with the entry's current stamp. Other threads may keep
    /// using entries meanwhile; after as many steps as there are items, the entry at the front is evicted even if it
    /// was used since.
    fn evict_if(
        &self,
        state: &mut EvictionState,
        order: QueueOrder,
        reason: EvictionReason,
        evicted: &mut Evicted<K, V>,
        test: impl Fn(&Detail) -> bool,
    ) -> bool {
        let (exempt_id, policy) = (state.exempt_id, state.policy);
        let queue = state.queue(order).get_or_insert_with(|| self.build_queue(order, &policy));
        // Bounds the loop if other threads keep using entries: each item is examined at most once.
        let mut attempts_left = queue.len();
        let mut exempt_item = None;
        let mut is_evicted = false;
        while let Some(item) = queue.oldest() {
            if Some(item.id) == exempt_id {
                queue.pop();
                exempt_item = Some(item);
                continue;
            }
            match self.shard(item.hash).lock().evict(item, order, attempts_left == 0, &test) {
                Eviction::Evicted(entry) => {
                    queue.pop();
                    self.account_removal(1, entry.bytes);
                    evicted.push(reason, self.len.load(Ordering::Relaxed), Some(entry));
                    is_evicted = true;
                    break;
                }
                // `test` compares ages, and the queue is ordered by age up to concurrent uses (see `expire_key`), so
                // the entries after this one would fail as well.
                Eviction::Kept => break,
                Eviction::NotCurrent(state) => queue.correct(item, &state),
            }
            attempts_left = attempts_left.saturating_sub(1);
        }
        // The exempt entry stays in the queue until it is replaced.
        if let Some(item) = exempt_item {
            queue.push(item);
        }
        is_evicted
    }

    /// Returns the stamp of the oldest entry; an approximation if other threads use entries meanwhile.
    fn oldest_stamp(&self, state: &mut EvictionState, order: QueueOrder) -> Option<u64> {
        let policy = state.policy;
        let queue = state.queue(order).get_or_insert_with(|| self.build_queue(order, &policy));
        for _ in 0..=queue.len() {
            let item = queue.oldest()?;
            match self.shard(item.hash).lock().item_state(item, order) {
                ItemState::Current => return Some(item.stamp),
                state => queue.correct(item, &state),
            }
        }
        queue.oldest().map(|item| item.stamp)
    }

    /// Builds a queue from all entries.
    fn build_queue(&self, order: QueueOrder, policy: &EvictionPolicy) -> Queue {
        if order == QueueOrder::Score {
            return self.build_queue_by_score(policy);
        }
        let mut items = Vec::with_capacity(self.len.load(Ordering::Relaxed));
        for shard in &self.shards {
            // One shard at a time. An entry that is used after its shard was visited has an item that is too old, which
            // is corrected when it reaches the front.
            items.extend(shard.lock().queue_items(order, |key| self.hash(key)).map(|(item, _)| item));
        }
        Queue::from_items(items)
    }

    /// Builds the queue by score. The ranking is user code: no shard is locked while it runs, so hits proceed.
    fn build_queue_by_score(&self, policy: &EvictionPolicy) -> Queue {
        let now = self.time.now();
        let mut entries = Vec::with_capacity(self.len.load(Ordering::Relaxed));
        for shard in &self.shards {
            let shard = shard.lock();
            let items = shard.queue_items(QueueOrder::Score, |key| self.hash(key));
            entries.extend(items.map(|(item, detail)| (item, detail.metrics(now))));
        }
        let ranked = |(item, metrics)| QueueItem { stamp: policy.rank(&metrics), ..item };
        Queue::from_items(entries.into_iter().map(ranked).collect())
    }
}
