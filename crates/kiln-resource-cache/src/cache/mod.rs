//! `Cache<K, V>`: one bounded, shared, observable cache.
//!
//! The parts, in the order a lookup meets them: [`shard`] finds and uses an entry; [`create`] runs a creation once for
//! all who wait ([`flight`]); [`evict`] makes room by the policy. [`queue`] and [`stamp`] give eviction its order.

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
use evict::{Evicted, Gate, Incoming};
use shard::{HitContext, Lookup, LookupTime, Shard};
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// The most that one entry can weigh: 256 TiB, so that sums do not overflow.
const MAX_WEIGHT: u64 = 1 << 48;

/// Up to this many entries, every hit is written into its entry.
const EXACT_ENTRIES: usize = 256;

/// A bounded cache that many threads share, of values that are expensive to create.
///
/// Values are handed out as `Arc<V>`: evicting an entry never takes it away from those who hold it. All methods take
/// `&self`. Creation runs without any lock held, once per key however many threads ask.
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
    gate: Mutex<Gate>,
    /// The policy's idle limit, where a hit can read it.
    max_idle: AtomicU64,
    /// Written with the gate held.
    len: AtomicUsize,
    /// Written with the gate held.
    bytes: AtomicU64,
    /// Values that were too large to be kept.
    oversize: AtomicU64,
    lookup_times: MeanTime,
    create_times: MeanTime,
    events: Option<Arc<EventHub>>,
    /// Whether hits must go the long way because entries can expire. Written with the gate held.
    needs_care: AtomicBool,
    /// The next lookup goes the long way, to be measured.
    sample_next: AtomicBool,
    /// Operations since the cache was built; counted only while someone listens to events.
    operations: AtomicU64,
    budget: Arc<Budget>,
}

/// Seeded anew for each cache, except under the model checker, which needs every run to be the same.
#[cfg(not(loom))]
type KeyHasher = foldhash::fast::RandomState;
#[cfg(loom)]
type KeyHasher = foldhash::fast::FixedState;

type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;

impl<K: CacheKey, V: Send + Sync + 'static> Cache<K, V> {
    /// Begins a cache. The name appears in events, advice and errors.
    pub fn builder(name: &'static str) -> CacheBuilder<K, V> {
        Builder::new(CacheSettings::new(name))
    }

    /// The name given at the start.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The value of a key, if it is there and not stale. Counts as a hit or a miss.
    #[inline]
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let hash = self.hash(key);
        if let Some(value) = self.quick_hit(hash, key) {
            return Some(value);
        }
        self.get_with_care(hash, key)
    }

    /// Whether a key has an entry that is not stale. Not a use: it counts as neither hit nor miss.
    pub fn contains(&self, key: &K) -> bool {
        self.expire();
        let hash = self.hash(key);
        matches!(self.shard(hash).lock().peek(hash, key), Lookup::Hit { .. })
    }

    /// A hit without events, expiry or measurement. `None` says nothing about the key.
    #[inline]
    fn quick_hit(&self, hash: u64, key: &K) -> Option<Arc<V>> {
        if self.needs_care.load(Ordering::Relaxed) || self.sample_next.load(Ordering::Relaxed) || self.is_heard() {
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

    /// The rest of `get`.
    #[inline(never)]
    fn get_with_care(&self, hash: u64, key: &K) -> Option<Arc<V>> {
        let began = self.sampled_start();
        let mut time = self.lookup_time();
        let found = loop {
            let mut shard = self.shard(hash).lock();
            match shard.touch(hash, key, time, &self.sample_next) {
                Lookup::Hit { value, bytes } => break Some((value, bytes)),
                Lookup::Stale => {
                    drop(shard);
                    time = self.expire_for(hash, key, time);
                }
                Lookup::Miss => {
                    shard.count_miss(hash);
                    break None;
                }
            }
        };
        if let (Some(began), Some(_)) = (began, &found) {
            self.measured_hit(began);
        }
        if self.is_heard() {
            self.tell_access(key, found.is_some(), found.as_ref().map_or(0, |(_, bytes)| *bytes));
        }
        found.map(|(value, _)| value)
    }

    /// Puts a value in, replacing the one that the key has, and returns its shared handle.
    ///
    /// A value larger than the policy's `max_bytes` is returned without being kept.
    pub fn insert(&self, key: K, value: V) -> Arc<V> {
        let hash = self.hash(&key);
        let bytes = self.weigh(&key, &value);
        let value = Arc::new(value);
        let incoming = Incoming { hash, key, value: &value, bytes, create_nanos: 0 };
        let replaced = self.with_gate(|gate, evicted| self.put(gate, incoming, None, evicted));
        drop(replaced);
        self.budget.enforce();
        value
    }

    /// Takes the entry of a key out and returns its value. Not an eviction.
    pub fn remove(&self, key: &K) -> Option<Arc<V>> {
        let hash = self.hash(key);
        self.expire();
        let gate = self.gate.lock();
        let removed = self.shard(hash).lock().remove(hash, key);
        if let Some(entry) = &removed {
            self.account_removal(1, entry.bytes);
        }
        drop(gate);
        removed.map(|entry| entry.value)
    }

    /// Takes all entries out. Creations under way finish for those who wait for them, and are not kept.
    pub fn clear(&self) {
        self.expire();
        let mut gate = self.gate.lock();
        let cleared: Vec<_> = self.shards.iter().map(|shard| shard.lock().clear()).collect();
        for shard in &cleared {
            self.account_removal(shard.entries, shard.bytes);
        }
        gate.clear();
        drop(gate);
    }

    /// Entries now, without those that are stale; but one that threads used in another order than time tells, between
    /// two insertions, may still count until it is looked up or its turn comes.
    pub fn len(&self) -> usize {
        self.expire();
        self.len.load(Ordering::Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all entries now, as the weigher told at their insertion.
    pub fn bytes(&self) -> u64 {
        self.expire();
        self.bytes.load(Ordering::Relaxed)
    }

    /// The policy in force.
    pub fn policy(&self) -> EvictionPolicy {
        self.gate.lock().policy
    }

    /// Changes the policy, at once: when this returns, the new limits hold.
    pub fn set_policy(&self, policy: EvictionPolicy) -> Result<(), CacheError> {
        policy.validate(self.name)?;
        self.with_gate(|gate, evicted| self.adopt(gate, policy, evicted));
        Ok(())
    }

    /// Evicts in the policy's order until at most `target_bytes` are left or the policy's floor is reached.
    /// Returns the number of evicted entries.
    pub fn trim(&self, target_bytes: u64) -> usize {
        let order = self.policy().queue_order();
        self.evict_while(order, EvictionReason::Trim, u64::MAX, || self.bytes.load(Ordering::Relaxed) > target_bytes)
    }

    /// Counters and ages. Lets go of stale entries first, so that the numbers speak of what can be returned. Looks at
    /// every entry: about 15 µs for a thousand of them.
    pub fn metrics(&self) -> CacheMetrics {
        let now = self.time.now();
        self.expire();
        let mut metrics = CacheMetrics {
            size: self.len.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
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

    /// What to change, if the hit rate is low or the limits are too tight for the workload.
    pub fn advice(&self) -> Vec<Advice> {
        advice::about(self.name, &self.policy(), &self.metrics())
    }

    /// Events that an attached sink failed to take. A failing sink never fails a lookup.
    pub fn sink_failures(&self) -> u64 {
        self.events.as_ref().map_or(0, |hub| hub.failures())
    }

    /// The time, if this lookup is one whose duration is measured.
    fn sampled_start(&self) -> Option<u64> {
        self.sample_next.load(Ordering::Relaxed).then(|| self.time.now())
    }

    fn measured_hit(&self, began: u64) {
        self.lookup_times.record(Duration::from_nanos(self.time.now().saturating_sub(began)));
        self.sample_next.store(false, Ordering::Relaxed);
    }

    /// Whether somebody listens to events now.
    #[inline]
    fn is_heard(&self) -> bool {
        self.events.as_ref().is_some_and(|hub| hub.is_on())
    }

    #[inline]
    fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard<K, V> {
        // Bits that the table inside the shard does not start from.
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }

    /// The time of a lookup: precise where something can expire, cheap elsewhere.
    #[inline]
    fn lookup_time(&self) -> LookupTime<'_> {
        match self.max_idle.load(Ordering::Relaxed) {
            u64::MAX => LookupTime::Untimed(&self.time),
            max_idle => LookupTime::Limited { now: self.time.now(), max_idle },
        }
    }

    /// What a lookup goes on with after it met a stale entry: without a limit, because what is still there is protected.
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

    /// Tells the sinks about one access and, every so often, where the cache stands. Called with no lock held.
    #[cold]
    fn tell_access(&self, key: &K, hit: bool, bytes: u64) {
        let Some(hub) = &self.events else { return };
        hub.emit(&CacheEvent::ResourceCacheAccess { cache_key: format!("{}:{key:?}", self.name), hit, bytes });
        let operations = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        if operations.is_multiple_of(hub.summary_interval()) {
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
