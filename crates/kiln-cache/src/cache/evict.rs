//! Making room: the policy's limits, applied oldest first over all shards.
//!
//! Evicted entries and the news of them leave through [`Evicted`], so that neither the user's `Drop` nor a sink runs
//! while a lock is held.

use super::Cache;
use super::queue::{Mark, Queue};
use super::shard::{Detail, Eviction, Removed, Standing};
use crate::events::{CacheEvent, EventHub};
use crate::policy::{EvictionOrder, EvictionPolicy, EvictionReason};
use crate::sync::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

/// Marks of entries that are gone may pile up to this many more than there are entries, before they are swept.
const SPARE_MARKS: usize = 64;

/// What serialises everything that adds or evicts entries, so that limits hold strictly: the policy and the order in
/// which entries leave. Hits never take its lock. Locked before a shard, never after.
pub(super) struct Gate {
    pub(super) policy: EvictionPolicy,
    by_use: Queue,
    /// Kept only under a policy that evicts in this order.
    by_insertion: Option<Queue>,
}

/// Entries on their way out, each with the reason.
pub(super) struct Evicted<K, V>(Vec<(EvictionReason, Option<Removed<K, V>>)>);

impl Gate {
    pub(super) fn new(policy: EvictionPolicy) -> Self {
        let by_insertion = (policy.order() == EvictionOrder::Fifo).then(Queue::default);
        Self { policy, by_use: Queue::default(), by_insertion }
    }

    pub(super) fn push(&mut self, mark: Mark) {
        self.by_use.push(mark);
        if let Some(queue) = &mut self.by_insertion {
            queue.push(mark);
        }
    }

    /// Forgets all marks, when all entries are gone.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.policy);
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        self.by_use.len() + self.by_insertion.as_ref().map_or(0, Queue::len)
    }

    fn queue(&mut self, order: EvictionOrder) -> &mut Queue {
        match (order, &mut self.by_insertion) {
            (EvictionOrder::Fifo, Some(queue)) => queue,
            _ => &mut self.by_use,
        }
    }
}

impl<K, V> Default for Evicted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Cache<K, V>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Lets go of stale entries. Costs one relaxed load for a policy without an idle limit.
    pub(super) fn expire(&self) {
        if self.max_idle.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        let mut evicted = Evicted::default();
        let mut gate = self.gate.lock();
        self.sweep(&mut gate, &mut evicted);
        drop(gate);
        self.finish(evicted);
    }

    /// The part of a miss that comes before the creation: a place for one more entry, as far as the floor allows.
    pub(super) fn make_room(&self) {
        let mut evicted = Evicted::default();
        let mut gate = self.gate.lock();
        self.sweep(&mut gate, &mut evicted);
        let max_entries = gate.policy.max_entries().map(|max| max - 1);
        self.shrink(&mut gate, max_entries, &mut evicted);
        drop(gate);
        self.finish(evicted);
    }

    /// Makes room for an entry of this size, the new one counted as part of the floor. False if it cannot be kept.
    pub(super) fn make_room_for(&self, gate: &mut Gate, bytes: u64, evicted: &mut Evicted<K, V>) -> bool {
        let policy = gate.policy;
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        let len = || self.len.load(Ordering::Relaxed);
        if bytes > max_bytes.min(self.shared.max_entry_bytes) && len() >= policy.min_entries() {
            self.shards[0].lock().count_eviction(0);
            evicted.0.push((EvictionReason::Oversize, None));
            return false;
        }
        let max_entries = policy.max_entries().unwrap_or(usize::MAX);
        while len() >= max_entries && self.evict_one(gate, policy.order(), EvictionReason::MaxEntries, evicted) {}
        let over = || self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > max_bytes;
        while over()
            && len() >= policy.min_entries().max(1)
            && self.evict_one(gate, policy.order(), EvictionReason::MaxBytes, evicted)
        {}
        true
    }

    /// Puts a policy in force and brings the cache under its limits. What is stale under the old one goes first: no
    /// operation brings it back.
    pub(super) fn adopt(&self, gate: &mut Gate, policy: EvictionPolicy, evicted: &mut Evicted<K, V>) {
        self.sweep(gate, evicted);
        let order = policy.order();
        if order == EvictionOrder::Fifo && gate.by_insertion.is_none() {
            gate.by_insertion = Some(self.queue_of_entries(order));
        } else if order == EvictionOrder::Lru {
            gate.by_insertion = None;
        }
        gate.policy = policy;
        self.max_idle.store(policy.max_idle_nanos(), Ordering::Relaxed);
        self.decide_care();
        self.sweep(gate, evicted);
        self.shrink(gate, policy.max_entries(), evicted);
    }

    /// Evicts entries up to a stamp, oldest first, while the caller wants more and the floor allows it.
    pub(crate) fn evict_while(
        &self,
        order: EvictionOrder,
        reason: EvictionReason,
        up_to_stamp: u64,
        mut wanted: impl FnMut() -> bool,
    ) -> usize {
        let mut evicted = Evicted::default();
        let mut gate = self.gate.lock();
        self.sweep(&mut gate, &mut evicted);
        let swept = evicted.0.len();
        while wanted()
            && self.len.load(Ordering::Relaxed) > gate.policy.min_entries()
            && self.oldest_stamp(&mut gate, order).is_some_and(|stamp| stamp <= up_to_stamp)
            && self.evict_one(&mut gate, order, reason, &mut evicted)
        {}
        drop(gate);
        let count = evicted.0.len() - swept;
        self.finish(evicted);
        count
    }

    /// Stamp of the least recently used entry that a trim may take; `None` if the floor protects all of them.
    pub(crate) fn oldest_evictable(&self) -> Option<u64> {
        let mut gate = self.gate.lock();
        if self.len.load(Ordering::Relaxed) <= gate.policy.min_entries() {
            return None;
        }
        self.oldest_stamp(&mut gate, EvictionOrder::Lru)
    }

    /// Lists a new entry, and sweeps the marks of entries that left otherwise than by eviction once they pile up.
    pub(super) fn enqueue(&self, gate: &mut Gate, mark: Mark) {
        gate.push(mark);
        self.last_insertion.store(mark.stamp, Ordering::Relaxed);
        let limit = 2 * self.len.load(Ordering::Relaxed) + SPARE_MARKS;
        if gate.by_use.len() > limit {
            gate.by_use = self.queue_of_entries(EvictionOrder::Lru);
        }
        if gate.by_insertion.as_ref().is_some_and(|queue| queue.len() > limit) {
            gate.by_insertion = Some(self.queue_of_entries(EvictionOrder::Fifo));
        }
    }

    /// Tells the sinks what went and why, then drops it. Called with no lock held.
    pub(super) fn finish(&self, evicted: Evicted<K, V>) {
        if let Some(hub) = &self.events {
            self.tell_evictions(hub, &evicted);
        }
        drop(evicted);
    }

    fn tell_evictions(&self, hub: &EventHub, evicted: &Evicted<K, V>) {
        let mut rest = evicted.0.as_slice();
        while let Some(&(reason, _)) = rest.first() {
            let count = rest.iter().take_while(|(other, _)| *other == reason).count();
            hub.emit(&CacheEvent::CacheEviction {
                cache: self.name.clone(),
                strategy: self.policy().name().into(),
                count,
                reason,
                size_after: self.len.load(Ordering::Relaxed),
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
            && self.evict_if(gate, EvictionOrder::Lru, EvictionReason::Idle, evicted, stale)
        {}
    }

    /// Evicts down to `max_entries` and the policy's bytes, but not below the floor.
    fn shrink(&self, gate: &mut Gate, max_entries: Option<usize>, evicted: &mut Evicted<K, V>) {
        let policy = gate.policy;
        let len = || self.len.load(Ordering::Relaxed);
        let max_entries = max_entries.unwrap_or(usize::MAX).max(policy.min_entries());
        while len() > max_entries && self.evict_one(gate, policy.order(), EvictionReason::MaxEntries, evicted) {}
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        while self.bytes.load(Ordering::Relaxed) > max_bytes
            && len() > policy.min_entries()
            && self.evict_one(gate, policy.order(), EvictionReason::MaxBytes, evicted)
        {}
    }

    /// Evicts the oldest entry. False if there is none.
    fn evict_one(
        &self,
        gate: &mut Gate,
        order: EvictionOrder,
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
        order: EvictionOrder,
        reason: EvictionReason,
        evicted: &mut Evicted<K, V>,
        test: impl Fn(&Detail) -> bool,
    ) -> bool {
        let queue = gate.queue(order);
        let mut patience = queue.len();
        while let Some(mark) = queue.oldest() {
            match self.shard(mark.hash).lock().evict(mark, order, patience == 0, &test) {
                Eviction::Evicted(entry) => {
                    queue.pop();
                    self.account_removal(1, entry.bytes);
                    evicted.0.push((reason, Some(entry)));
                    return true;
                }
                Eviction::Kept => return false,
                Eviction::NotCurrent(standing) => queue.correct(mark, &standing),
            }
            patience = patience.saturating_sub(1);
        }
        false
    }

    /// The stamp of the oldest entry, as good as other threads let it be.
    fn oldest_stamp(&self, gate: &mut Gate, order: EvictionOrder) -> Option<u64> {
        let queue = gate.queue(order);
        for _ in 0..=queue.len() {
            let mark = queue.oldest()?;
            match self.shard(mark.hash).lock().standing(mark, order) {
                Standing::Current => return Some(mark.stamp),
                standing => queue.correct(mark, &standing),
            }
        }
        queue.oldest().map(|mark| mark.stamp)
    }

    fn queue_of_entries(&self, order: EvictionOrder) -> Queue {
        let mut marks = Vec::with_capacity(self.len.load(Ordering::Relaxed));
        for shard in &self.shards {
            shard.lock().marks(order, |key| self.hash(key), &mut marks);
        }
        Queue::of(marks)
    }
}
