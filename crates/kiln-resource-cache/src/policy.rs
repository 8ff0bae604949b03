//! When a cache lets go of entries: an order to evict in, and limits that trigger it.

use crate::clock::nanos;
use crate::error::{CacheError, CacheErrorKind};
use std::time::Duration;

/// When and in which order a cache evicts.
///
/// A policy is an order (least recently used first, or first in first out) and up to three limits: entries, bytes
/// and idle time. [`none`](Self::none) has no limit; the other constructors are the common combinations, and the
/// `with_*` methods refine any of them. A limit added to `none` evicts in least-recently-used order.
///
/// `min_entries` is a floor under every limit and under every trim, and it wins: a cache at its floor keeps its
/// entries even when they exceed `max_bytes` or are idle for longer than `max_idle_duration`, and such an entry is
/// then a valid hit. With a floor of zero (the default) every limit holds strictly, and an entry that is larger than
/// `max_bytes` by itself is handed to its caller without being kept.
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
    max_entries: Option<usize>,
    max_bytes: Option<u64>,
    max_idle: Option<Duration>,
    min_entries: usize,
    batch: usize,
}

/// Which entry goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOrder {
    /// The least recently used.
    Lru,
    /// The first inserted, whether used since or not.
    Fifo,
}

impl EvictionPolicy {
    /// No limit: entries stay until `clear`, `remove`, a `trim` or the registry's byte budget.
    pub const fn none() -> Self {
        Self { order: EvictionOrder::Lru, max_entries: None, max_bytes: None, max_idle: None, min_entries: 0, batch: 1 }
    }

    /// Least recently used first; add limits with the `with_*` methods.
    pub const fn lru() -> Self {
        Self::none()
    }

    /// First in, first out; add limits with the `with_*` methods.
    pub const fn fifo() -> Self {
        Self { order: EvictionOrder::Fifo, ..Self::none() }
    }

    /// Entries that were not used for longer than `max_idle` go.
    pub const fn idle_timeout(max_idle: Duration) -> Self {
        Self::none().with_max_idle_duration(max_idle)
    }

    /// At most `max_entries`, least recently used first.
    pub const fn size_limited_lru(max_entries: usize) -> Self {
        Self::none().with_max_entries(max_entries)
    }

    /// At most `max_entries`, and none that was not used for longer than `max_idle`.
    pub const fn hybrid(max_entries: usize, max_idle: Duration) -> Self {
        Self::size_limited_lru(max_entries).with_max_idle_duration(max_idle)
    }

    /// Keeps at most this many entries.
    #[must_use]
    pub const fn with_max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = Some(max_entries);
        self
    }

    /// Keeps entries of at most this many bytes together.
    #[must_use]
    pub const fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Lets go of entries that were not used for longer than this.
    #[must_use]
    pub const fn with_max_idle_duration(mut self, max_idle: Duration) -> Self {
        self.max_idle = Some(max_idle);
        self
    }

    /// Never evicts below this many entries, whatever the reason.
    #[must_use]
    pub const fn with_min_entries(mut self, min_entries: usize) -> Self {
        self.min_entries = min_entries;
        self
    }

    /// Evicts this many entries at once when `max_entries` is reached, so that the next misses find room; 1 if not set.
    /// Fewer if `min_entries` stands against it.
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

    /// The order of eviction.
    pub const fn order(&self) -> EvictionOrder {
        self.order
    }

    /// The limit on entries.
    pub const fn max_entries(&self) -> Option<usize> {
        self.max_entries
    }

    /// The limit on bytes.
    pub const fn max_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    /// The limit on idle time.
    pub const fn max_idle_duration(&self) -> Option<Duration> {
        self.max_idle
    }

    /// The floor that eviction respects.
    pub const fn min_entries(&self) -> usize {
        self.min_entries
    }

    /// How many entries go at once when `max_entries` is reached.
    pub const fn eviction_batch(&self) -> usize {
        self.batch
    }

    /// How many entries may stay when one more is to come in: all that fit, or if none does, a batch less.
    pub(crate) fn entries_before_insertion(&self, len: usize) -> usize {
        match self.max_entries {
            Some(max) if len >= max => max.saturating_sub(self.batch).max(self.min_entries).min(max - 1),
            Some(max) => max - 1,
            None => usize::MAX,
        }
    }

    /// The name of the strategy in events: `none`, `lru`, `fifo`, `idle_timeout` or `hybrid`.
    pub const fn name(&self) -> &'static str {
        let sized = self.max_entries.is_some() || self.max_bytes.is_some();
        match (self.order, sized, self.max_idle) {
            (EvictionOrder::Fifo, ..) => "fifo",
            (EvictionOrder::Lru, true, Some(_)) => "hybrid",
            (EvictionOrder::Lru, true, None) => "lru",
            (EvictionOrder::Lru, false, Some(_)) => "idle_timeout",
            (EvictionOrder::Lru, false, None) => "none",
        }
    }

    /// Refuses limits of zero and a floor above the ceiling.
    pub(crate) fn validate(&self, cache: &str) -> Result<(), CacheError> {
        let fault = if self.max_entries == Some(0) {
            "max_entries is 0, expected at least 1; to keep nothing, do not use a cache".to_owned()
        } else if self.max_bytes == Some(0) {
            "max_bytes is 0, expected at least 1; to keep nothing, do not use a cache".to_owned()
        } else if self.max_idle == Some(Duration::ZERO) {
            "max_idle_duration is 0, expected more than 0; every entry would expire at once".to_owned()
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

    /// The idle limit in nanoseconds; `u64::MAX` where there is none.
    pub(crate) fn max_idle_nanos(&self) -> u64 {
        self.max_idle.map_or(u64::MAX, nanos)
    }
}

impl Default for EvictionPolicy {
    fn default() -> Self {
        Self::none()
    }
}

/// Why entries were evicted, as told in [`CacheEvent::CacheEviction`](crate::events::CacheEvent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EvictionReason {
    /// The cache held more than `max_entries`.
    MaxEntries,
    /// The cache held more than `max_bytes`.
    MaxBytes,
    /// The entries were idle for longer than `max_idle_duration`.
    Idle,
    /// A new entry was by itself larger than `max_bytes` or the registry's budget, and was not kept.
    Oversize,
    /// The registry's byte budget was exceeded.
    Budget,
    /// Someone called `trim`.
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
        ] {
            policy.validate("plans").unwrap();
            assert_eq!(policy.name(), name);
        }
    }
}
