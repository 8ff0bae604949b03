//! [`Cache`]: a bounded, concurrent, observable cache.
//!
//! In the order of a lookup: [`shard`] finds and uses an entry; [`create`] runs a creation once for all waiting threads
//! ([`flight`]); [`evict`] makes room as the policy says. [`queue`] and [`stamp`] define the order of eviction,
//! [`ghost`] detects limits that are too tight.

mod builder;
mod create;
mod evict;
mod flight;
mod ghost;
mod queue;
mod shard;
mod stamp;

pub use builder::{CacheBuilder, CacheSettings};
pub(crate) use create::Found;
pub(crate) use queue::QueueOrder;

use crate::advice::{self, Advice};
use crate::builder::Builder;
use crate::clock::TimeSource;
use crate::error::CacheError;
use crate::events::{CacheEvent, EventHub};
use crate::kernel::CacheKey;
use crate::metrics::{CacheMetrics, LastEvent, MeanTime};
use crate::policy::{EvictionPolicy, EvictionReason};
use crate::registry::Budget;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};
use evict::{Evicted, EvictionState, Incoming};
use shard::{HitContext, Lookup, LookupTime, Shard};
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// The maximum weight of an entry, 256 TiB, so that sums do not overflow.
const MAX_WEIGHT: u64 = 1 << 48;

/// Caches with up to this many entries record every hit in its entry; larger ones sample.
const EXACT_ENTRIES: usize = 256;

/// A bounded, thread-safe cache of values that are expensive to create.
///
/// Values are returned as `Arc<V>`, so an eviction never invalidates a value in use. All methods take `&self`. A
/// creation runs without any lock held, once per key however many threads request it.
///
/// ```
/// use kiln_resource_cache::{Cache, EvictionPolicy};
///
/// let cache: Cache<(u32, u32), Vec<f32>> = Cache::builder("twiddles")
///     .policy(EvictionPolicy::lru().with_max_entries(1000).with_max_bytes(64 << 20))
///     .weigher(|_, table: &Vec<f32>| (table.len() * 4) as u64)
///     .build()?;
/// let table = cache.get_or_insert_with(&(1024, 2), || vec![0.0; 1024])?;
/// assert_eq!(table.len(), 1024);
/// assert_eq!(cache.metrics().bytes, 4096);
/// # Ok::<(), kiln_resource_cache::CacheError>(())
/// ```
pub struct Cache<K, V> {
    name: &'static str,
    hasher: KeyHasher,
    shards: Box<[Shard<K, V>]>,
    weigher: Weigher<K, V>,
    time: TimeSource,
    eviction: Mutex<EvictionState>,
    /// The idle limit of the policy in nanoseconds, readable without the eviction lock.
    max_idle: AtomicU64,
    /// Written with the eviction lock held.
    len: AtomicUsize,
    /// Written with the eviction lock held.
    bytes: AtomicU64,
    /// The number of values that were too large to be cached.
    oversize: AtomicU64,
    lookup_times: MeanTime,
    create_times: MeanTime,
    events: Option<Arc<EventHub>>,
    /// Whether entries can expire, so that hits must take the slow path. Written with the eviction lock held.
    can_expire: AtomicBool,
    /// Whether the next lookup takes the slow path, to be timed.
    sample_next: AtomicBool,
    /// The number of operations, counted only while a sink is on.
    operations: AtomicU64,
    budget: Arc<Budget>,
}

/// Randomly seeded for each cache, except under loom, which needs deterministic runs.
#[cfg(not(loom))]
type KeyHasher = foldhash::fast::RandomState;
#[cfg(loom)]
type KeyHasher = foldhash::fast::FixedState;

type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;

impl<K: CacheKey, V: Send + Sync + 'static> Cache<K, V> {
    /// Starts building a cache. The name appears in events, advice and errors.
    pub fn builder(name: &'static str) -> CacheBuilder<K, V> {
        Builder::new(CacheSettings::new(name))
    }

    /// Returns the name of the cache.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the value of a key, if it is cached and not stale. Counts as a hit or a miss.
    #[inline]
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let hash = self.hash(key);
        if let Some(value) = self.fast_hit(hash, key) {
            return Some(value);
        }
        self.get_slow(hash, key)
    }

    /// Returns whether a key has an entry that is not stale. Not a use: counts as neither hit nor miss.
    pub fn contains(&self, key: &K) -> bool {
        self.expire();
        let hash = self.hash(key);
        matches!(self.shard(hash).lock().peek(hash, key), Lookup::Hit { .. })
    }

    /// The fast path of a hit: without events, expiry or timing. `None` means that the slow path must decide.
    #[inline]
    fn fast_hit(&self, hash: u64, key: &K) -> Option<Arc<V>> {
        // Relaxed is enough: these flags only choose between two correct paths.
        if self.can_expire.load(Ordering::Relaxed) || self.sample_next.load(Ordering::Relaxed) || self.is_observed() {
            return None;
        }
        let context = HitContext {
            time: &self.time,
            last_insertion: stamp::last_insertion(),
            may_share: self.len.load(Ordering::Relaxed) > EXACT_ENTRIES,
            sample_next: &self.sample_next,
        };
        self.shard(hash).lock().touch_untimed(hash, key, &context).map(Arc::clone)
    }

    /// The slow path of `get`.
    #[inline(never)]
    fn get_slow(&self, hash: u64, key: &K) -> Option<Arc<V>> {
        let began = self.start_if_sampled();
        let mut time = self.lookup_time();
        let found = loop {
            let mut shard = self.shard(hash).lock();
            match shard.touch(hash, key, time, &self.sample_next) {
                Lookup::Hit { value, bytes } => break Some((value, bytes)),
                Lookup::Stale => {
                    drop(shard);
                    // The shard is unlocked first: expiry takes the eviction lock, which comes before a shard's lock.
                    time = self.expire_for(hash, key, time);
                }
                Lookup::Miss => {
                    shard.count_miss(hash);
                    break None;
                }
            }
        };
        // Only hits are timed. A sampled miss leaves the flag set, so that a later hit is timed instead.
        if let (Some(began), Some(_)) = (began, &found) {
            self.record_hit_time(began);
        }
        if self.is_observed() {
            self.emit_access(key, found.is_some(), found.as_ref().map_or(0, |(_, bytes)| *bytes));
        }
        found.map(|(value, _)| value)
    }

    /// Inserts a value, replacing the one of the same key, and returns it.
    ///
    /// A value larger than the policy's `max_bytes` is returned without being cached.
    pub fn insert(&self, key: K, value: V) -> Arc<V> {
        let hash = self.hash(&key);
        let bytes = self.weigh(&key, &value);
        let value = Arc::new(value);
        let incoming = Incoming { hash, key, value: &value, bytes, create_nanos: 0 };
        let replaced = self.with_eviction_lock(|state, evicted| self.put(state, incoming, None, evicted));
        drop(replaced);
        self.budget.enforce();
        value
    }

    /// Removes the entry of a key and returns its value. Not counted as an eviction.
    pub fn remove(&self, key: &K) -> Option<Arc<V>> {
        let hash = self.hash(key);
        self.expire();
        let state = self.eviction.lock();
        // With the eviction lock held, so that entries and counters change together.
        let removed = self.shard(hash).lock().remove(hash, key);
        if let Some(entry) = &removed {
            self.account_removal(1, entry.bytes);
        }
        drop(state);
        // The key is dropped here, with no lock held, because `Drop` is user code.
        removed.map(|entry| entry.value)
    }

    /// Removes all entries. Creations in progress return their value to the waiting threads, but are not cached.
    pub fn clear(&self) {
        self.expire();
        let mut state = self.eviction.lock();
        // Under the eviction lock over all shards, so that no insertion lands in a shard that is already cleared.
        // `cleared` outlives the lock: dropping entries runs user code.
        let cleared: Vec<_> = self.shards.iter().map(|shard| shard.lock().clear()).collect();
        for shard in &cleared {
            self.account_removal(shard.entries, shard.bytes);
        }
        state.clear();
        drop(state);
    }

    /// Returns the number of entries that are not stale.
    ///
    /// A stale entry may still be counted if several threads used entries between two insertions, until it is looked up
    /// or reaches the front of the queue.
    pub fn len(&self) -> usize {
        self.expire();
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether the cache has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all entries, as the weigher reported them at insertion.
    pub fn bytes(&self) -> u64 {
        self.expire();
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the eviction policy.
    pub fn policy(&self) -> EvictionPolicy {
        self.eviction.lock().policy
    }

    /// Changes the eviction policy. The new limits hold when this returns.
    pub fn set_policy(&self, policy: EvictionPolicy) -> Result<(), CacheError> {
        policy.validate(self.name)?;
        self.with_eviction_lock(|state, evicted| self.apply_policy(state, policy, evicted));
        Ok(())
    }

    /// Evicts entries in the order of the policy until at most `target_bytes` are left or `min_entries` is reached.
    /// Returns the number of evicted entries.
    pub fn trim(&self, target_bytes: u64) -> usize {
        let order = self.policy().queue_order();
        self.evict_while(order, EvictionReason::Trim, u64::MAX, || self.bytes.load(Ordering::Relaxed) > target_bytes)
    }

    /// Returns counters and ages. Evicts stale entries first, so that they are not counted. Visits every entry: about
    /// 15 µs per thousand.
    pub fn metrics(&self) -> CacheMetrics {
        let now = self.time.now();
        self.expire();
        let mut metrics = CacheMetrics {
            size: self.len.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            // A value that is too large counts as inserted and evicted at once; the shards add the other evictions.
            evictions: self.oversize.load(Ordering::Relaxed),
            oversize: self.oversize.load(Ordering::Relaxed),
            mean_create_time: self.create_times.mean(),
            mean_lookup_time: self.lookup_times.mean(),
            ..CacheMetrics::default()
        };
        let mut last_event: Option<(u64, LastEvent)> = None;
        for shard in &self.shards {
            let shard = shard.lock();
            shard.add_to(&mut metrics, now);
            last_event = last_event.into_iter().chain(shard.last_event()).max_by_key(|(stamp, _)| *stamp);
        }
        metrics.last_event = last_event.map(|(_, event)| event);
        metrics
    }

    /// Returns recommendations if the hit rate is low or the limits are too tight for the workload.
    pub fn advice(&self) -> Vec<Advice> {
        advice::about(self.name, &self.policy(), &self.metrics())
    }

    /// Returns the number of events that a sink failed to record. A failing sink never fails a lookup.
    pub fn sink_failures(&self) -> u64 {
        self.events.as_ref().map_or(0, |hub| hub.failures())
    }

    /// Returns the current time if the duration of this lookup is to be measured.
    fn start_if_sampled(&self) -> Option<u64> {
        self.sample_next.load(Ordering::Relaxed).then(|| self.time.now())
    }

    fn record_hit_time(&self, began: u64) {
        self.lookup_times.record(Duration::from_nanos(self.time.now().saturating_sub(began)));
        self.sample_next.store(false, Ordering::Relaxed);
    }

    /// Returns whether a sink is on.
    #[inline]
    fn is_observed(&self) -> bool {
        self.events.as_ref().is_some_and(|hub| hub.is_on())
    }

    #[inline]
    fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard<K, V> {
        // Uses other bits than the hash table in the shard, which starts from the low and the top bits.
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }

    /// Returns the time of a lookup: precise if entries can expire, otherwise coarse and read on demand.
    #[inline]
    fn lookup_time(&self) -> LookupTime<'_> {
        match self.max_idle.load(Ordering::Relaxed) {
            u64::MAX => LookupTime::Untimed(&self.time),
            max_idle => LookupTime::Limited { now: self.time.now(), max_idle },
        }
    }

    /// Evicts after a lookup found a stale entry. The lookup continues without an idle limit: an entry that is still
    /// present is protected by `min_entries`.
    #[cold]
    fn expire_for<'a>(&'a self, hash: u64, key: &K, time: LookupTime<'a>) -> LookupTime<'a> {
        let LookupTime::Limited { now, .. } = time else {
            return time;
        };
        self.expire_key(hash, key);
        LookupTime::Limited { now, max_idle: u64::MAX }
    }

    fn weigh(&self, key: &K, value: &V) -> u64 {
        (self.weigher)(key, value).min(MAX_WEIGHT)
    }

    fn account_insert(&self, bytes: u64) {
        self.len.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.adjust(0, bytes);
    }

    fn account_removal(&self, entries: usize, bytes: u64) {
        self.len.fetch_sub(entries, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.adjust(bytes, 0);
    }

    /// Emits an access event and, at every summary interval, a summary. Called with no lock held.
    #[cold]
    fn emit_access(&self, key: &K, hit: bool, bytes: u64) {
        let Some(hub) = &self.events else { return };
        hub.emit(&CacheEvent::ResourceCacheAccess { cache_key: format!("{}:{key:?}", self.name), hit, bytes });
        let operations = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        if operations.is_multiple_of(hub.summary_interval()) {
            // The shards are locked one after another; the sum need not be exact.
            let lookups = self.shards.iter().map(|shard| shard.lock().lookups());
            let (hits, misses) = lookups.fold((0, 0), |sum, shard| (sum.0 + shard.0, sum.1 + shard.1));
            hub.emit(&CacheEvent::ResourceCacheSummary {
                cache: self.name.into(),
                hits,
                misses,
                hit_rate: hits as f64 / (hits + misses).max(1) as f64,
                size: self.len(),
            });
        }
    }
}

impl<K, V> Debug for Cache<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.name)
            .field("len", &self.len.load(Ordering::Relaxed))
            .field("bytes", &self.bytes.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
