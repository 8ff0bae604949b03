//! Making room: the policy's limits, applied oldest first over all shards.
//!
//! Evicted entries and the news of them leave through [`Evicted`], so that neither the user's `Drop` nor a sink runs
//! while a lock is held.

use super::Cache;
use super::shard::{Entry, Eviction, NO_ENTRY, Shard};
use crate::events::CacheEvent;
use crate::policy::{EvictionOrder, EvictionPolicy, EvictionReason};
use crate::sync::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

/// How often the search for the oldest entry starts over because another thread used it meanwhile. After that the
/// oldest entry of the shard looked at last goes, which is at most a few uses from the oldest of all.
const PATIENCE: usize = 8;

/// Entries on their way out, each with the reason.
pub(super) struct Evicted<K, V>(Vec<(EvictionReason, Option<Entry<K, V>>)>);

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
    pub(super) fn expire(&self, now: u64) {
        if self.max_idle.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        let mut evicted = Evicted::default();
        let gate = self.gate.lock();
        self.sweep(&gate, now, &mut evicted);
        drop(gate);
        self.finish(evicted);
    }

    /// The part of a miss that comes before the creation: a place for one more entry, as far as the floor allows.
    pub(super) fn make_room(&self) {
        let mut evicted = Evicted::default();
        let gate = self.gate.lock();
        self.sweep(&gate, self.time.now(), &mut evicted);
        self.shrink(&gate, gate.max_entries().map(|max| max - 1), &mut evicted);
        drop(gate);
        self.finish(evicted);
    }

    /// Makes room for an entry of this size, the new one counted as part of the floor. False if it cannot be kept.
    pub(super) fn make_room_for(&self, policy: &EvictionPolicy, bytes: u64, evicted: &mut Evicted<K, V>) -> bool {
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        let len = || self.len.load(Ordering::Relaxed);
        if bytes > max_bytes.min(self.shared.max_entry_bytes) && len() >= policy.min_entries() {
            self.shards[0].lock().state.count_eviction(0);
            evicted.0.push((EvictionReason::Oversize, None));
            return false;
        }
        let max_entries = policy.max_entries().unwrap_or(usize::MAX);
        while len() >= max_entries && self.evict_one(policy.order(), EvictionReason::MaxEntries, evicted, |_| true) {}
        let over = || self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > max_bytes;
        while over()
            && len() >= policy.min_entries().max(1)
            && self.evict_one(policy.order(), EvictionReason::MaxBytes, evicted, |_| true)
        {}
        true
    }

    /// Brings the cache under the limits of a policy that was just set.
    pub(super) fn apply_limits(&self, policy: &EvictionPolicy, evicted: &mut Evicted<K, V>) {
        self.sweep(policy, self.time.now(), evicted);
        self.shrink(policy, policy.max_entries(), evicted);
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
        let gate = self.gate.lock();
        self.sweep(&gate, self.time.now(), &mut evicted);
        while wanted()
            && self.len.load(Ordering::Relaxed) > gate.min_entries()
            && self.oldest_shard(order).is_some_and(|(stamp, _)| stamp <= up_to_stamp)
            && self.evict_one(order, reason, &mut evicted, |_| true)
        {}
        drop(gate);
        let count = evicted.0.len();
        self.finish(evicted);
        count
    }

    /// Stamp of the least recently used entry that a trim may take; `None` if the floor protects all of them.
    pub(crate) fn oldest_evictable(&self) -> Option<u64> {
        let floor = self.gate.lock().min_entries();
        if self.len.load(Ordering::Relaxed) <= floor {
            return None;
        }
        self.oldest_shard(EvictionOrder::Lru).map(|(stamp, _)| stamp)
    }

    /// Tells the sinks what went and why, then drops it. Called with no lock held.
    pub(super) fn finish(&self, evicted: Evicted<K, V>) {
        let Some(hub) = &self.events else { return };
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

    pub(super) fn sweep(&self, policy: &EvictionPolicy, now: u64, evicted: &mut Evicted<K, V>) {
        let max_idle = policy.max_idle_nanos();
        if max_idle == u64::MAX {
            return;
        }
        let stale = |entry: &Entry<K, V>| now.saturating_sub(entry.used_at) > max_idle;
        while self.len.load(Ordering::Relaxed) > policy.min_entries()
            && self.evict_one(EvictionOrder::Lru, EvictionReason::Idle, evicted, stale)
        {}
    }

    /// Evicts down to `max_entries` and the policy's bytes, but not below the floor.
    fn shrink(&self, policy: &EvictionPolicy, max_entries: Option<usize>, evicted: &mut Evicted<K, V>) {
        let above_floor = || self.len.load(Ordering::Relaxed) > policy.min_entries();
        let max_entries = max_entries.unwrap_or(usize::MAX);
        while above_floor()
            && self.len.load(Ordering::Relaxed) > max_entries
            && self.evict_one(policy.order(), EvictionReason::MaxEntries, evicted, |_| true)
        {}
        let max_bytes = policy.max_bytes().unwrap_or(u64::MAX);
        while above_floor()
            && self.bytes.load(Ordering::Relaxed) > max_bytes
            && self.evict_one(policy.order(), EvictionReason::MaxBytes, evicted, |_| true)
        {}
    }

    /// Evicts the oldest entry of all shards if it passes the test; the gate is held. False if nothing went.
    fn evict_one(
        &self,
        order: EvictionOrder,
        reason: EvictionReason,
        evicted: &mut Evicted<K, V>,
        test: impl Fn(&Entry<K, V>) -> bool,
    ) -> bool {
        for attempt in 0..=PATIENCE {
            let Some((stamp, shard)) = self.oldest_shard(order) else {
                return false;
            };
            let expected = (attempt < PATIENCE).then_some(stamp);
            match shard.lock().evict_oldest(order, expected, &test) {
                Eviction::Evicted(entry) => {
                    self.account_removal(&entry);
                    evicted.0.push((reason, Some(entry)));
                    return true;
                }
                Eviction::Kept => return false,
                Eviction::Moved => {}
            }
        }
        false
    }

    fn oldest_shard(&self, order: EvictionOrder) -> Option<(u64, &Shard<K, V>)> {
        let oldest = self.shards.iter().map(|shard| (shard.oldest_stamp(order), shard));
        oldest.min_by_key(|(stamp, _)| *stamp).filter(|(stamp, _)| *stamp != NO_ENTRY)
    }
}
