//! The byte budget that the caches and slots of a registry share, and its enforcement.

use super::slot::ErasedSlot;
use super::type_map::TypeMap;
use crate::advice::Advice;
use crate::cache::{Cache, QueueOrder};
use crate::kernel::CacheKey;
use crate::metrics::CacheMetrics;
use crate::policy::EvictionReason;
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::any::{Any, TypeId};
use std::sync::{Arc, Weak};

/// A byte counter with a limit. A standalone cache has its own, without a limit.
pub(crate) struct Budget {
    used: AtomicU64,
    /// `u64::MAX` if there is no limit.
    limit: AtomicU64,
    /// The caches and slots that count here. Weak, because they hold the budget.
    members: Weak<Members>,
}

pub(super) struct Members {
    pub(super) budget: Arc<Budget>,
    caches: Mutex<Vec<Member>>,
    pub(super) slots: TypeMap<Box<dyn ErasedSlot>>,
}

#[derive(Clone)]
pub(super) struct Member {
    /// The kernel type, or the type of the cache if it has no kernel type.
    pub(super) id: TypeId,
    pub(super) type_name: &'static str,
    pub(super) name: &'static str,
    pub(super) cache: Arc<dyn ErasedCache>,
}

impl Budget {
    /// Creates the budget of a standalone cache.
    pub(crate) fn unlimited() -> Arc<Self> {
        Arc::new(Self::new(u64::MAX, Weak::new()))
    }

    fn new(limit: u64, members: Weak<Members>) -> Self {
        Self { used: AtomicU64::new(0), limit: AtomicU64::new(limit), members }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::SeqCst)
    }

    /// Adjusts the used bytes by the difference between `before` and `now`.
    pub(crate) fn adjust(&self, before: u64, now: u64) {
        // Modulo 2^64, so that one atomic operation both raises and lowers the counter.
        self.used.fetch_add(now.wrapping_sub(before), Ordering::SeqCst);
    }

    pub(super) fn set_limit(&self, limit: u64) {
        // SeqCst here and in `adjust`: of a thread that inserts and one that lowers the limit, at least one must see
        // the change of the other and evict.
        self.limit.store(limit, Ordering::SeqCst);
        self.enforce();
    }

    /// Evicts entries if the limit is exceeded: after an insertion, a slot's growth or a lower limit. Called with no
    /// lock held.
    pub(crate) fn enforce(&self) {
        let limit = self.limit();
        if self.bytes() > limit
            && let Some(members) = self.members.upgrade()
        {
            members.evict_to(limit, EvictionReason::Budget);
        }
    }
}

impl Members {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new_cyclic(|members| Self {
            budget: Arc::new(Budget::new(limit, Weak::clone(members))),
            caches: Mutex::new(Vec::new()),
            slots: TypeMap::new(),
        })
    }

    /// Returns a copy of the caches, by name, so that no lock is held while user code runs.
    pub(super) fn caches(&self) -> Vec<Member> {
        self.caches.lock().clone()
    }

    /// Returns the cache of this name if it has the same type, or adds the one that `build` creates.
    ///
    /// # Errors
    /// Returns the error of `taken` if a cache of another type has the name, or that of `build`.
    pub(super) fn find_or_add<E>(
        &self,
        (id, name, type_name): (TypeId, &'static str, &'static str),
        taken: impl FnOnce(&Member) -> E,
        build: impl FnOnce() -> Result<Arc<dyn ErasedCache>, E>,
    ) -> Result<Arc<dyn ErasedCache>, E> {
        let mut caches = self.caches.lock();
        match caches.binary_search_by_key(&name, |member| member.name) {
            Ok(at) if caches[at].id == id => Ok(Arc::clone(&caches[at].cache)),
            Ok(at) => Err(taken(&caches[at])),
            Err(at) => {
                // Under the lock, so that two threads do not build the same cache. `build` runs no user code.
                let cache = build()?;
                caches.insert(at, Member { id, type_name, name, cache: Arc::clone(&cache) });
                Ok(cache)
            }
        }
    }

    /// Evicts the least recently used entries of all caches until `target_bytes` are left or every cache is at its
    /// `min_entries`. Stale entries are evicted first. Returns the number of evicted entries.
    ///
    /// This is a merge: the cache with the oldest entry evicts entries until its oldest is newer than that of the next
    /// cache. If other threads keep using the entries that are about to be evicted, the order is computed again up to
    /// eight times, then ignored.
    pub(super) fn evict_to(&self, target_bytes: u64, reason: EvictionReason) -> usize {
        let caches = self.caches();
        let is_over = || self.budget.bytes() > target_bytes;
        let mut evicted = caches.iter().map(|member| member.cache.expire()).sum();
        // Other threads may use the candidates while they are being evicted.
        let mut attempts_left = 8;
        while is_over() {
            let oldest = |member: &'_ Member| member.cache.oldest_evictable();
            let mut ranked: Vec<_> = caches.iter().filter_map(|member| Some((oldest(member)?, member))).collect();
            ranked.sort_by_key(|(stamp, _)| *stamp);
            let Some((_, first)) = ranked.first() else {
                break;
            };
            let next = ranked.get(1).map_or(u64::MAX, |(stamp, _)| *stamp);
            let up_to = if attempts_left > 0 { next } else { u64::MAX };
            let count = first.cache.evict_lru(reason, up_to, &is_over);
            evicted += count;
            // Nothing was evicted although the order was ignored: other threads removed the evictable entries.
            if count == 0 && attempts_left == 0 {
                break;
            }
            attempts_left = if count == 0 { attempts_left - 1 } else { 8 };
        }
        for member in &caches {
            member.cache.end_trim();
        }
        evicted
    }
}

/// A cache without its key and value types.
pub(super) trait ErasedCache: Any + Send + Sync {
    /// Returns the number of entries and their bytes.
    fn usage(&self) -> (usize, u64);
    fn metrics(&self) -> CacheMetrics;
    fn advice(&self) -> Vec<Advice>;
    fn clear(&self);
    fn expire(&self) -> usize;
    fn end_trim(&self);
    fn oldest_evictable(&self) -> Option<u64>;
    fn evict_lru(&self, reason: EvictionReason, up_to_stamp: u64, wanted: &dyn Fn() -> bool) -> usize;
}

impl<K: CacheKey, V: Send + Sync + 'static> ErasedCache for Cache<K, V> {
    fn usage(&self) -> (usize, u64) {
        (self.len(), self.bytes())
    }
    fn metrics(&self) -> CacheMetrics {
        self.metrics()
    }
    fn advice(&self) -> Vec<Advice> {
        self.advice()
    }
    fn clear(&self) {
        self.clear();
    }
    fn expire(&self) -> usize {
        self.expire()
    }
    fn end_trim(&self) {
        self.end_trim();
    }
    fn oldest_evictable(&self) -> Option<u64> {
        self.oldest_evictable()
    }
    fn evict_lru(&self, reason: EvictionReason, up_to_stamp: u64, wanted: &dyn Fn() -> bool) -> usize {
        self.evict_while(QueueOrder::Use, reason, up_to_stamp, wanted)
    }
}
