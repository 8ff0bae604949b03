//! Making room: the policy's limits, applied oldest first over all shards.
//!
//! Evicted entries leave through [`Evicted`], so that neither the user's `Drop` nor a sink runs while a lock is held.

use super::Cache;
use super::flight::Flight;
use super::queue::{Mark, Queue, QueueOrder};
use super::shard::{Detail, Eviction, NewEntry, Removed, Standing};
use crate::events::{CacheEvent, EventHub};
use crate::kernel::CacheKey;
use crate::policy::{EvictionPolicy, EvictionReason};
use crate::sync::Ordering;
use std::sync::Arc;

/// Marks of entries that are gone may pile up to this many more than there are entries, before they are swept.
const SPARE_MARKS: usize = 64;
/// Entries that a trim evicts before it also gives back the memory of the tables.
const LARGE_TRIM: usize = 1024;

/// What serialises everything that adds or evicts entries, so that limits hold strictly: the policy and the order in
/// which entries leave. Hits never take its lock. Locked before a shard, never after.
pub(super) struct Gate {
    pub(super) policy: EvictionPolicy,
    /// By [`QueueOrder`]. That of worth is kept only during an eviction: a ranking may change from one moment to the next.
    queues: [LazyQueue; QueueOrder::ALL.len()],
    /// The entry that is being replaced: not to be evicted to make room for its successor.
    exempt_id: Option<u64>,
}

/// A queue while something needs it: the policy all the time, a trim for a while.
type LazyQueue = Option<Queue>;

/// An entry on its way in.
pub(super) struct Incoming<'a, K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: &'a Arc<V>,
    pub(super) bytes: u64,
    pub(super) create_nanos: u64,
}

/// Entries on their way out.
pub(super) struct Evicted<K, V>(Vec<Departure<K, V>>);

struct Departure<K, V> {
    reason: EvictionReason,
    size_after: usize,
    /// `None` for a value that was too large to get in.
    _entry: Option<Removed<K, V>>,
}

impl<K, V> Evicted<K, V> {
    fn push(&mut self, reason: EvictionReason, size_after: usize, entry: Option<Removed<K, V>>) {
        self.0.push(Departure { reason, size_after, _entry: entry });
    }
}

impl Gate {
    pub(super) fn new(policy: EvictionPolicy) -> Self {
        let queues = QueueOrder::ALL.map(|order| needs(&policy, order).then(Queue::default));
        Self { policy, queues, exempt_id: None }
    }

    /// Forgets all marks, when all entries are gone.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.policy);
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        self.queues.iter().flatten().map(Queue::len).sum()
    }

    fn queue(&mut self, order: QueueOrder) -> &mut LazyQueue {
        &mut self.queues[order as usize]
    }

    /// Lets go of the queues that the policy does not keep.
    fn drop_spare_queues(&mut self) {
        for order in QueueOrder::ALL {
            if !needs(&self.policy, order) {
                *self.queue(order) = None;
            }
        }
    }
}

/// Whether a policy keeps a queue in this order. Idle entries leave in order of use; a ranking is made anew each time.
fn needs(policy: &EvictionPolicy, order: QueueOrder) -> bool {
    match order {
        QueueOrder::Use => policy.queue_order() == order || policy.max_idle_duration().is_some(),
        QueueOrder::Insertion => policy.queue_order() == order,
        QueueOrder::Worth => false,
    }
}

/// What a `put` took out; dropped by the caller once no lock is held.
pub(super) struct Replaced<K, V> {
    _entry: Option<Removed<K, V>>,
    _flight_key: Option<K>,
    /// What came in and was not kept.
    _unused: Option<NewEntry<K, V>>,
}

impl<K, V> Default for Evicted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: CacheKey, V: Send + Sync + 'static> Cache<K, V> {
    /// Lets go of stale entries, then does `work`, with the gate held; tells the sinks what was evicted.
    pub(super) fn with_gate<R>(&self, work: impl FnOnce(&mut Gate, &mut Evicted<K, V>) -> R) -> R {
        let mut evicted = Evicted::default();
        let mut gate = self.gate.lock();
        self.sweep(&mut gate, &mut evicted);
        let result = work(&mut gate, &mut evicted);
        drop(gate);
        self.finish(evicted);
        result
    }

    /// Lets go of stale entries; returns how many. Costs one relaxed load for a policy without an idle limit.
    pub(crate) fn expire(&self) -> usize {
        match self.max_idle.load(Ordering::Relaxed) {
            u64::MAX => 0,
            _ => self.with_gate(|_, evicted| evicted.0.len()),
        }
    }

    /// Lets go of stale entries after a lookup met one, and of that one whatever its place in the order: uses by several
    /// threads between two insertions need not be in line by time. What is still there then is protected by the floor.
    pub(super) fn expire_key(&self, hash: u64, key: &K) {
        self.with_gate(|gate, evicted| {
            if self.len.load(Ordering::Relaxed) > gate.policy.min_entries() {
                let (now, max_idle) = (self.time.now(), gate.policy.max_idle_nanos());
                let stale = |detail: &Detail| now.saturating_sub(detail.used_at) > max_idle;
                let entry = self.shard(hash).lock().evict_key(hash, key, stale);
                if let Some(entry) = entry {
                    self.account_removal(1, entry.bytes);
                    evicted.push(EvictionReason::Idle, self.len.load(Ordering::Relaxed), Some(entry));
                }
            }
        });
    }

    /// The part of a miss that comes before the creation: a place for one more entry, as far as the floor allows.
    pub(super) fn make_room(&self) {
        self.with_gate(|gate, evicted| {
            let max_entries = gate.policy.entries_before_insertion(self.len.load(Ordering::Relaxed));
            self.shrink(gate, max_entries, evicted);
        });
    }

    /// Makes room for an entry of this size, the new one counted as part of the floor. The entry that it replaces, of
    /// `old` bytes, counts as gone, and is exempt from eviction. False if the new one cannot be kept.
    fn make_room_for(&self, gate: &mut Gate, bytes: u64, old: Option<u64>, evicted: &mut Evicted<K, V>) -> bool {
        let policy = gate.policy;
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        let len = || self.len.load(Ordering::Relaxed) - usize::from(old.is_some());
        if bytes > max_bytes.min(self.budget.limit()) && len() >= policy.min_entries() {
            self.oversize.fetch_add(1, Ordering::Relaxed);
            evicted.push(EvictionReason::Oversize, len(), None);
            return false;
        }
        let (order, max_entries) = (policy.queue_order(), policy.entries_before_insertion(len()));
        while len() > max_entries && self.evict_one(gate, order, EvictionReason::MaxEntries, evicted) {}
        let over = || self.bytes.load(Ordering::Relaxed) - old.unwrap_or(0) + bytes > max_bytes;
        while over()
            && len() >= policy.min_entries().max(1)
            && self.evict_one(gate, order, EvictionReason::MaxBytes, evicted)
        {}
        *gate.queue(QueueOrder::Worth) = None;
        true
    }

    /// Puts a policy in force and brings the cache under its limits. The caller has swept under the old policy (`with_gate`): a longer idle
    /// limit would otherwise bring stale entries back.
    pub(super) fn adopt(&self, gate: &mut Gate, policy: EvictionPolicy, evicted: &mut Evicted<K, V>) {
        gate.policy = policy;
        gate.drop_spare_queues();
        for order in QueueOrder::ALL {
            if needs(&policy, order) && gate.queue(order).is_none() {
                *gate.queue(order) = Some(self.queue_of_entries(order, &policy));
            }
        }
        self.max_idle.store(policy.max_idle_nanos(), Ordering::Relaxed);
        self.needs_care.store(policy.max_idle_duration().is_some(), Ordering::Relaxed);
        self.sweep(gate, evicted);
        self.shrink(gate, policy.max_entries().unwrap_or(usize::MAX), evicted);
    }

    /// Evicts entries up to a stamp, oldest first, while the caller wants more and the floor allows it.
    pub(crate) fn evict_while(
        &self,
        order: QueueOrder,
        reason: EvictionReason,
        up_to_stamp: u64,
        mut wanted: impl FnMut() -> bool,
    ) -> usize {
        self.with_gate(|gate, evicted| {
            let swept = evicted.0.len();
            while wanted()
                && self.len.load(Ordering::Relaxed) > gate.policy.min_entries()
                && self.oldest_stamp(gate, order).is_some_and(|stamp| stamp <= up_to_stamp)
                && self.evict_one(gate, order, reason, evicted)
            {}
            *gate.queue(QueueOrder::Worth) = None;
            let count = evicted.0.len() - swept;
            if count >= LARGE_TRIM {
                self.shrink_memory(gate);
            }
            count
        })
    }

    /// Lets go of a queue that only a trim needed.
    pub(crate) fn end_trim(&self) {
        self.gate.lock().drop_spare_queues();
    }

    /// Gives back what tables and queues no longer need.
    fn shrink_memory(&self, gate: &mut Gate) {
        for shard in &self.shards {
            shard.lock().shrink_memory(|key| self.hash(key));
        }
        for order in QueueOrder::ALL {
            if gate.queue(order).is_some() {
                *gate.queue(order) = Some(self.queue_of_entries(order, &gate.policy));
            }
        }
    }

    /// Stamp of the least recently used entry that a trim may take; `None` if the floor protects all of them.
    pub(crate) fn oldest_evictable(&self) -> Option<u64> {
        let mut gate = self.gate.lock();
        if self.len.load(Ordering::Relaxed) <= gate.policy.min_entries() {
            return None;
        }
        self.oldest_stamp(&mut gate, QueueOrder::Use)
    }

    /// Puts a value in, replacing the one that the key has: readers see the old one or the new one. Keeps nothing if the
    /// value is too large or, for a creation, if a `clear` came in between.
    pub(super) fn put(
        &self,
        gate: &mut Gate,
        incoming: Incoming<'_, K, V>,
        flight: Option<&Arc<Flight<V>>>,
        evicted: &mut Evicted<K, V>,
    ) -> Replaced<K, V> {
        let Incoming { hash, key, value, bytes, create_nanos } = incoming;
        let new = NewEntry { key, value: Arc::clone(value), bytes, create_nanos, now: self.time.now() };
        let mut shard = self.shard(hash).lock();
        if flight.is_some_and(|flight| !shard.has_flight(flight)) {
            return Replaced { _entry: None, _flight_key: None, _unused: Some(new) };
        }
        let old = shard.renew(hash, &new.key);
        drop(shard);
        if let Some((mark, _)) = old {
            self.enqueue(gate, mark);
        }
        gate.exempt_id = old.map(|(mark, _)| mark.id);
        let fits = self.make_room_for(gate, bytes, old.map(|(_, bytes)| bytes), evicted);
        gate.exempt_id = None;
        let mut shard = self.shard(hash).lock();
        let flight_key = flight.and_then(|flight| shard.take_flight(flight));
        let entry = shard.remove(hash, &new.key);
        let (mark, unused) =
            if fits { (Some(shard.insert(hash, new, |key| self.hash(key))), None) } else { (None, Some(new)) };
        drop(shard);
        if let Some(entry) = &entry {
            self.account_removal(1, entry.bytes);
        }
        if let Some(mark) = mark {
            self.account_insert(bytes);
            self.enqueue(gate, mark);
        }
        Replaced { _entry: entry, _flight_key: flight_key, _unused: unused }
    }

    /// Lists a new entry, and sweeps the marks of entries that left otherwise than by eviction once they pile up.
    fn enqueue(&self, gate: &mut Gate, mark: Mark) {
        let limit = 2 * self.len.load(Ordering::Relaxed) + SPARE_MARKS;
        for order in [QueueOrder::Use, QueueOrder::Insertion] {
            if let Some(queue) = gate.queue(order) {
                queue.push(mark);
                if queue.len() > limit {
                    *gate.queue(order) = Some(self.queue_of_entries(order, &gate.policy));
                }
            }
        }
    }

    /// Tells the sinks what went and why, then drops it. Called with no lock held.
    pub(super) fn finish(&self, evicted: Evicted<K, V>) {
        if let Some(hub) = self.events.as_ref().filter(|hub| hub.is_on()) {
            self.tell_evictions(hub, &evicted);
        }
        drop(evicted);
    }

    fn tell_evictions(&self, hub: &EventHub, evicted: &Evicted<K, V>) {
        let mut rest = evicted.0.as_slice();
        while let Some(&Departure { reason, .. }) = rest.first() {
            let count = rest.iter().take_while(|departure| departure.reason == reason).count();
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

    /// Evicts what is idle for too long, but not below the floor.
    pub(super) fn sweep(&self, gate: &mut Gate, evicted: &mut Evicted<K, V>) {
        let max_idle = gate.policy.max_idle_nanos();
        if max_idle == u64::MAX {
            return;
        }
        let now = self.time.now();
        let stale = |detail: &Detail| now.saturating_sub(detail.used_at) > max_idle;
        while self.len.load(Ordering::Relaxed) > gate.policy.min_entries()
            && self.evict_if(gate, QueueOrder::Use, EvictionReason::Idle, evicted, stale)
        {}
    }

    /// Evicts down to `max_entries` and the policy's bytes, but not below the floor.
    fn shrink(&self, gate: &mut Gate, max_entries: usize, evicted: &mut Evicted<K, V>) {
        let policy = gate.policy;
        let len = || self.len.load(Ordering::Relaxed);
        let max_entries = max_entries.max(policy.min_entries());
        let order = policy.queue_order();
        while len() > max_entries && self.evict_one(gate, order, EvictionReason::MaxEntries, evicted) {}
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        while self.bytes.load(Ordering::Relaxed) > max_bytes
            && len() > policy.min_entries()
            && self.evict_one(gate, order, EvictionReason::MaxBytes, evicted)
        {}
        *gate.queue(QueueOrder::Worth) = None;
    }

    /// Evicts the oldest entry. False if there is none.
    fn evict_one(
        &self,
        gate: &mut Gate,
        order: QueueOrder,
        reason: EvictionReason,
        evicted: &mut Evicted<K, V>,
    ) -> bool {
        self.evict_if(gate, order, reason, evicted, |_| true)
    }

    /// Evicts the oldest entry if it passes the test. False if nothing went.
    ///
    /// Marks that are behind their entries are put back on the way. Other threads may go on using entries meanwhile;
    /// once every mark has been looked at, the entry at the front goes as it stands.
    fn evict_if(
        &self,
        gate: &mut Gate,
        order: QueueOrder,
        reason: EvictionReason,
        evicted: &mut Evicted<K, V>,
        test: impl Fn(&Detail) -> bool,
    ) -> bool {
        let (exempt_id, policy) = (gate.exempt_id, gate.policy);
        let queue = gate.queue(order).get_or_insert_with(|| self.queue_of_entries(order, &policy));
        let mut patience = queue.len();
        let mut set_aside = None;
        let mut went = false;
        while let Some(mark) = queue.oldest() {
            if Some(mark.id) == exempt_id {
                queue.pop();
                set_aside = Some(mark);
                continue;
            }
            match self.shard(mark.hash).lock().evict(mark, order, patience == 0, &test) {
                Eviction::Evicted(entry) => {
                    queue.pop();
                    self.account_removal(1, entry.bytes);
                    evicted.push(reason, self.len.load(Ordering::Relaxed), Some(entry));
                    went = true;
                    break;
                }
                Eviction::Kept => break,
                Eviction::NotCurrent(standing) => queue.correct(mark, &standing),
            }
            patience = patience.saturating_sub(1);
        }
        if let Some(mark) = set_aside {
            queue.push(mark);
        }
        went
    }

    /// The stamp of the oldest entry, as good as other threads let it be.
    fn oldest_stamp(&self, gate: &mut Gate, order: QueueOrder) -> Option<u64> {
        let policy = gate.policy;
        let queue = gate.queue(order).get_or_insert_with(|| self.queue_of_entries(order, &policy));
        for _ in 0..=queue.len() {
            let mark = queue.oldest()?;
            match self.shard(mark.hash).lock().standing(mark, order) {
                Standing::Current => return Some(mark.stamp),
                standing => queue.correct(mark, &standing),
            }
        }
        queue.oldest().map(|mark| mark.stamp)
    }

    fn queue_of_entries(&self, order: QueueOrder, policy: &EvictionPolicy) -> Queue {
        if order == QueueOrder::Worth {
            return self.queue_by_worth(policy);
        }
        let mut marks = Vec::with_capacity(self.len.load(Ordering::Relaxed));
        for shard in &self.shards {
            marks.extend(shard.lock().marks(order, |key| self.hash(key)).map(|(mark, _)| mark));
        }
        Queue::of(marks)
    }

    /// The ranking is the user's code: no shard is locked while it runs, so hits go on.
    fn queue_by_worth(&self, policy: &EvictionPolicy) -> Queue {
        let now = self.time.now();
        let mut entries = Vec::with_capacity(self.len.load(Ordering::Relaxed));
        for shard in &self.shards {
            let shard = shard.lock();
            let marks = shard.marks(QueueOrder::Worth, |key| self.hash(key));
            entries.extend(marks.map(|(mark, detail)| (mark, detail.metrics(now))));
        }
        let ranked = |(mark, metrics)| Mark { stamp: policy.rank(&metrics), ..mark };
        Queue::of(entries.into_iter().map(ranked).collect())
    }
}
