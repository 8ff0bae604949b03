//! Eviction policies: an eviction order, and limits that trigger evictions.

use crate::cache::QueueOrder;
use crate::clock::nanos;
use crate::error::{CacheError, CacheErrorKind};
use std::fmt;
use std::time::Duration;

/// The limits of a cache and its eviction order.
///
/// A policy has an order (least recently used first, first in first out, or a [ranking](Self::ranked)) and up to three
/// limits: entries, bytes and idle time. [`none`](Self::none) has no limit; the other constructors are common
/// combinations, and the `with_*` methods refine any of them. A limit added to `none` evicts in least-recently-used
/// order.
///
/// `min_entries` takes precedence over every limit and every trim: a cache with `min_entries` entries keeps them even
/// if they exceed `max_bytes` or `max_idle_duration`, and such an entry is then a valid hit. With a `min_entries` of
/// zero (the default) every limit holds strictly, and a value larger than `max_bytes` is returned to its caller without
/// being cached.
///
/// ```
/// use kiln_resource_cache::EvictionPolicy;
/// use std::time::Duration;
///
/// let policy = EvictionPolicy::hybrid(1000, Duration::from_secs(2 * 3600))
///     .with_max_bytes(256 << 20)
///     .with_min_entries(16);
/// assert_eq!(policy.max_entries(), Some(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionPolicy {
    order: EvictionOrder,
    ranking: Option<Ranking>,
    max_entries: Option<usize>,
    max_bytes: Option<u64>,
    max_idle: Option<Duration>,
    min_entries: usize,
    batch: usize,
}

/// Which entry is evicted first.
///
/// ```
/// use kiln_resource_cache::{EvictionOrder, EvictionPolicy};
///
/// assert_eq!(EvictionPolicy::size_limited_lru(100).order(), EvictionOrder::Lru);
/// assert_eq!(EvictionPolicy::fifo().with_max_entries(100).order(), EvictionOrder::Fifo);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOrder {
    /// The least recently used entry.
    Lru,
    /// The first inserted entry, whether used since or not.
    Fifo,
}

/// The properties of an entry, for a [ranking](EvictionPolicy::ranked).
///
/// See [`EvictionPolicy::ranked`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryMetrics {
    /// Time since the insertion.
    pub age: Duration,
    /// Time since the last use.
    pub idle: Duration,
    /// Hits since the insertion. Sampled in large caches; see the crate documentation on order.
    pub hits: u64,
    /// Bytes, as reported by the weigher.
    pub bytes: u64,
    /// Duration of the creation; zero for a value that was inserted directly.
    pub create_time: Duration,
}

/// A function that returns the score of an entry: the higher, the longer it is kept.
type Score = dyn Fn(&EntryMetrics) -> f64 + Send + Sync;

/// A user-defined order.
#[derive(Clone, Copy)]
struct Ranking {
    name: &'static str,
    score: &'static Score,
}

impl PartialEq for Ranking {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && std::ptr::addr_eq(self.score, other.score)
    }
}

impl Eq for Ranking {}

impl fmt::Debug for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl EvictionPolicy {
    /// Creates a policy without limits: entries stay until `clear`, `remove`, a `trim` or the registry's byte budget.
    pub const fn none() -> Self {
        Self {
            order: EvictionOrder::Lru,
            ranking: None,
            max_entries: None,
            max_bytes: None,
            max_idle: None,
            min_entries: 0,
            batch: 1,
        }
    }

    /// Creates a policy that evicts the least recently used entry first; add limits with the `with_*` methods. Without
    /// limits it equals [`none`](Self::none).
    pub const fn lru() -> Self {
        Self::none()
    }

    /// Creates a policy that evicts in first-in, first-out order; add limits with the `with_*` methods.
    pub const fn fifo() -> Self {
        Self { order: EvictionOrder::Fifo, ..Self::none() }
    }

    /// Creates a policy that evicts entries that were not used for longer than `max_idle`.
    pub const fn idle_timeout(max_idle: Duration) -> Self {
        Self::none().with_max_idle_duration(max_idle)
    }

    /// Creates a policy with at most `max_entries` entries, least recently used first.
    pub const fn size_limited_lru(max_entries: usize) -> Self {
        Self::none().with_max_entries(max_entries)
    }

    /// Creates a policy with at most `max_entries` entries, none of them unused for longer than `max_idle`.
    pub const fn hybrid(max_entries: usize, max_idle: Duration) -> Self {
        Self::size_limited_lru(max_entries).with_max_idle_duration(max_idle)
    }

    /// Creates a policy that evicts the entry with the lowest `score` first; add limits with the `with_*` methods.
    ///
    /// Entries of equal score are evicted in the order of insertion. `NaN` is the lowest score. Events report the
    /// strategy as `name`.
    ///
    /// All entries are ranked again for each eviction, so a large cache should evict in
    /// [batches](Self::with_eviction_batch). `score` runs with the eviction lock held: it must not use the cache. Idle
    /// entries, and entries that a registry evicts for its byte budget or a trim, are evicted in order of use as under
    /// any policy. A function that captures variables can be made `'static` with `Box::leak`.
    ///
    /// ```
    /// use kiln_resource_cache::{Cache, EvictionPolicy};
    ///
    /// // Keeps the entries that save the most creation time per byte.
    /// let policy = EvictionPolicy::ranked("cost_per_byte", &|entry| {
    ///     (entry.hits + 1) as f64 * entry.create_time.as_secs_f64() / entry.bytes.max(1) as f64
    /// });
    /// let cache: Cache<u32, Vec<u8>> = Cache::builder("tables")
    ///     .policy(policy.with_max_bytes(1 << 20).with_min_entries(2))
    ///     .weigher(|_, table: &Vec<u8>| table.len() as u64)
    ///     .build()?;
    /// # let _ = cache;
    ///
    /// // Evicts the largest entry first.
    /// let policy = EvictionPolicy::ranked("largest_first", &|entry| -(entry.bytes as f64)).with_max_entries(2);
    /// let cache = Cache::builder("tables").policy(policy).weigher(|_, bytes: &u64| *bytes).build()?;
    /// for key in [10, 30, 20] {
    ///     cache.get_or_insert_with(&key, || key)?;
    /// }
    /// assert!(cache.contains(&10) && cache.contains(&20) && !cache.contains(&30));
    /// # Ok::<(), kiln_resource_cache::CacheError>(())
    /// ```
    pub const fn ranked(name: &'static str, score: &'static (dyn Fn(&EntryMetrics) -> f64 + Send + Sync)) -> Self {
        Self { ranking: Some(Ranking { name, score }), ..Self::none() }
    }

    /// Limits the number of entries.
    #[must_use]
    pub const fn with_max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = Some(max_entries);
        self
    }

    /// Limits the total bytes of the entries.
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Evicts entries that were not used for longer than this.
    #[must_use]
    pub const fn with_max_idle_duration(mut self, max_idle: Duration) -> Self {
        self.max_idle = Some(max_idle);
        self
    }

    /// Sets the number of entries below which nothing is evicted, for any reason.
    #[must_use]
    pub const fn with_min_entries(mut self, min_entries: usize) -> Self {
        self.min_entries = min_entries;
        self
    }

    /// Sets the number of entries that are evicted at once when `max_entries` is reached, so that the next misses find
    /// room. Default: 1. Fewer are evicted if `min_entries` requires it.
    ///
    /// ```
    /// use kiln_resource_cache::{Cache, EvictionPolicy};
    ///
    /// let policy = EvictionPolicy::size_limited_lru(100).with_eviction_batch(10);
    /// let cache: Cache<u32, u32> = Cache::builder("plans").policy(policy).build()?;
    /// for key in 0..101 {
    ///     cache.insert(key, key);
    /// }
    /// assert_eq!(cache.metrics().size, 91);
    /// # Ok::<(), kiln_resource_cache::CacheError>(())
    /// ```
    #[must_use]
    pub const fn with_eviction_batch(mut self, entries: usize) -> Self {
        self.batch = entries;
        self
    }

    /// Returns the eviction order. Under a [ranking](Self::ranked) it applies to idle entries, and to entries that a
    /// registry evicts for its byte budget or a trim.
    pub const fn order(&self) -> EvictionOrder {
        self.order
    }

    /// Returns the limit on entries.
    pub const fn max_entries(&self) -> Option<usize> {
        self.max_entries
    }

    /// Returns the limit on bytes.
    pub const fn max_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    /// Returns the limit on idle time.
    pub const fn max_idle_duration(&self) -> Option<Duration> {
        self.max_idle
    }

    /// Returns the number of entries below which nothing is evicted.
    pub const fn min_entries(&self) -> usize {
        self.min_entries
    }

    /// Returns the number of entries that are evicted at once when `max_entries` is reached.
    pub const fn eviction_batch(&self) -> usize {
        self.batch
    }

    /// Returns the queue order in which the limits of the policy evict.
    pub(crate) fn queue_order(&self) -> QueueOrder {
        match (self.ranking, self.order) {
            (Some(_), _) => QueueOrder::Score,
            (None, EvictionOrder::Lru) => QueueOrder::Use,
            (None, EvictionOrder::Fifo) => QueueOrder::Insertion,
        }
    }

    /// Converts the score of an entry to an integer with the same order.
    pub(crate) fn rank(&self, entry: &EntryMetrics) -> u64 {
        let score = self.ranking.map_or(f64::NAN, |ranking| (ranking.score)(entry));
        // The bit patterns of positive floats are ordered, those of negative ones are in reverse order. Adding 0.0
        // turns -0.0 into 0.0.
        match (score + 0.0).to_bits() {
            _ if score.is_nan() => 0,
            bits if bits >> 63 == 0 => bits | 1 << 63,
            bits => !bits,
        }
    }

    /// Returns how many entries may stay before an insertion: one less than `max_entries`, or a batch less if the cache
    /// is full.
    pub(crate) fn entries_before_insertion(&self, len: usize) -> usize {
        match self.max_entries {
            // At most `max - 1`, which leaves room for the new entry even if `min_entries` equals `max`. `validate` has
            // rejected a `max` of 0.
            Some(max) if len >= max => max.saturating_sub(self.batch).max(self.min_entries).min(max - 1),
            Some(max) => max - 1,
            None => usize::MAX,
        }
    }

    /// Returns the name of the strategy in events: `none`, `lru`, `fifo`, `idle_timeout`, `hybrid`, or that of the
    /// ranking.
    pub const fn name(&self) -> &'static str {
        if let Some(ranking) = self.ranking {
            return ranking.name;
        }
        let sized = self.max_entries.is_some() || self.max_bytes.is_some();
        match (self.order, sized, self.max_idle) {
            (EvictionOrder::Fifo, ..) => "fifo",
            (EvictionOrder::Lru, true, Some(_)) => "hybrid",
            (EvictionOrder::Lru, true, None) => "lru",
            (EvictionOrder::Lru, false, Some(_)) => "idle_timeout",
            (EvictionOrder::Lru, false, None) => "none",
        }
    }

    /// Returns `InvalidArgument` if a limit is zero or `min_entries` is above `max_entries`.
    pub(crate) fn validate(&self, cache: &str) -> Result<(), CacheError> {
        let fault = if self.max_entries == Some(0) {
            "max_entries is 0, expected at least 1; to keep nothing, do not use a cache".to_owned()
        } else if self.max_bytes == Some(0) {
            "max_bytes is 0, expected at least 1; to keep nothing, do not use a cache".to_owned()
        } else if self.max_idle == Some(Duration::ZERO) {
            "max_idle_duration is 0, expected more than 0; every entry would expire at once".to_owned()
        } else if self.name().is_empty() {
            "the name of the ranking is empty, expected one that identifies it in events".to_owned()
        } else if self.batch == 0 {
            "eviction_batch is 0, expected at least 1".to_owned()
        } else if let Some(max) = self.max_entries
            && self.min_entries > max
        {
            format!("min_entries ({}) is above max_entries ({max})", self.min_entries)
        } else {
            return Ok(());
        };
        Err(CacheError::new(CacheErrorKind::InvalidArgument, format!("eviction policy of cache `{cache}`: {fault}")))
    }

    /// Returns the idle limit in nanoseconds, or `u64::MAX` if there is none.
    pub(crate) fn max_idle_nanos(&self) -> u64 {
        self.max_idle.map_or(u64::MAX, nanos)
    }
}

impl Default for EvictionPolicy {
    fn default() -> Self {
        Self::none()
    }
}

/// The reason of an eviction, as reported in [`CacheEvent::CacheEviction`](crate::events::CacheEvent).
///
/// ```
/// use kiln_resource_cache::events::{CacheEvent, ChannelSink};
/// use kiln_resource_cache::{Cache, EvictionPolicy, EvictionReason};
///
/// let (sink, events) = ChannelSink::new(16);
/// let policy = EvictionPolicy::size_limited_lru(1);
/// let cache: Cache<u32, u32> = Cache::builder("plans").policy(policy).sink(sink).build()?;
/// for key in [1, 2] { cache.insert(key, key); }
/// assert!(events.try_iter().any(|event| {
///     matches!(event, CacheEvent::CacheEviction { reason: EvictionReason::MaxEntries, .. })
/// }));
/// # Ok::<(), kiln_resource_cache::CacheError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EvictionReason {
    /// The cache exceeded `max_entries`.
    MaxEntries,
    /// The cache exceeded `max_bytes`.
    MaxBytes,
    /// The entries exceeded `max_idle_duration`.
    Idle,
    /// A new entry was larger than `max_bytes` or the registry's budget, and was not cached.
    Oversize,
    /// The registry's byte budget was exceeded.
    Budget,
    /// `trim` was called.
    Trim,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_policies_are_refused_and_say_why() {
        let second = Duration::from_secs(1);
        for (policy, expected) in [
            (EvictionPolicy::size_limited_lru(0), "max_entries is 0"),
            (EvictionPolicy::lru().with_max_bytes(0), "max_bytes is 0"),
            (EvictionPolicy::idle_timeout(Duration::ZERO), "max_idle_duration is 0"),
            (EvictionPolicy::hybrid(0, second), "max_entries is 0"),
            (EvictionPolicy::size_limited_lru(3).with_eviction_batch(0), "eviction_batch is 0"),
            (EvictionPolicy::ranked("", &|_| 0.0), "the name of the ranking is empty"),
            (EvictionPolicy::hybrid(3, second).with_min_entries(4), "min_entries (4) is above max_entries (3)"),
        ] {
            let error = policy.validate("plans").unwrap_err();
            assert_eq!(error.kind(), CacheErrorKind::InvalidArgument);
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.to_string().contains("`plans`"), "{error}");
        }
    }

    #[test]
    fn good_policies_pass_and_have_names() {
        let second = Duration::from_secs(1);
        for (policy, name) in [
            (EvictionPolicy::none(), "none"),
            (EvictionPolicy::none().with_max_entries(1), "lru"),
            (EvictionPolicy::lru().with_max_bytes(1), "lru"),
            (EvictionPolicy::fifo().with_max_entries(3).with_min_entries(3), "fifo"),
            (EvictionPolicy::idle_timeout(second).with_min_entries(9), "idle_timeout"),
            (EvictionPolicy::size_limited_lru(1), "lru"),
            (EvictionPolicy::hybrid(1, second), "hybrid"),
            (EvictionPolicy::ranked("by_size", &|entry| entry.bytes as f64).with_max_idle_duration(second), "by_size"),
        ] {
            policy.validate("plans").unwrap();
            assert_eq!(policy.name(), name);
        }
    }

    #[test]
    fn ranks_are_in_the_order_of_score() {
        let entry = |bytes| EntryMetrics {
            age: Duration::ZERO,
            idle: Duration::ZERO,
            hits: 0,
            bytes,
            create_time: Duration::ZERO,
        };
        const SCORES: [f64; 9] =
            [f64::NAN, f64::NEG_INFINITY, -3.5, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 1.0, 1e300, f64::INFINITY];
        let policy = EvictionPolicy::ranked("table", &|entry| SCORES[entry.bytes as usize]);
        let ranks: Vec<u64> = (0..SCORES.len() as u64).map(|at| policy.rank(&entry(at))).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        let negative_zero = EvictionPolicy::ranked("zero", &|_| -0.0).rank(&entry(0));
        assert_eq!(negative_zero, ranks[4]);
        assert_eq!(EvictionPolicy::ranked("nan", &|_| -f64::NAN).rank(&entry(0)), 0);
    }
}
