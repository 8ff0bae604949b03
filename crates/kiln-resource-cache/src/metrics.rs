//! Metrics of a cache.

use crate::clock::nanos;
use crate::sync::{AtomicU64, Ordering};
use std::fmt;
use std::time::Duration;

/// A snapshot of the counters and ages of a cache.
///
/// Counters start when the cache is built; `clear` does not reset them. Ages are `None` for an empty cache, means are
/// `None` without samples.
///
/// Returned by [`Cache::metrics`](crate::Cache::metrics); see [`Cache`](crate::Cache) for an example.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct CacheMetrics {
    /// The number of entries.
    pub size: usize,
    /// Bytes of the entries, as reported by the weigher.
    pub bytes: u64,
    /// Lookups that returned a resource without creating it, including those that waited for another thread's creation.
    pub hits: u64,
    /// Lookups without a usable entry: they started a creation, returned `None`, or waited for a creation that failed.
    pub misses: u64,
    /// Entries removed by a limit, a budget or a trim, and values too large to be cached. Excludes `clear`, `remove`
    /// and replacement.
    pub evictions: u64,
    /// Resources that were larger than `max_bytes` or the registry's budget, and were not cached.
    pub oversize: u64,
    /// Misses on entries that were evicted shortly before. A high number means that a limit is too tight for the
    /// workload.
    ///
    /// Each shard remembers about as many evictions as it has entries, by fingerprint, so this is a slightly low
    /// estimate.
    pub refaults: u64,
    /// The last event.
    pub last_event: Option<LastEvent>,
    /// Time since the oldest entry was inserted.
    pub oldest_entry_age: Option<Duration>,
    /// Time since the newest entry was inserted.
    pub newest_entry_age: Option<Duration>,
    /// Time since the least recently used entry was used.
    pub longest_idle_age: Option<Duration>,
    /// Time since the most recently used entry was used.
    pub shortest_idle_age: Option<Duration>,
    /// The highest number of hits of an entry since its insertion, including removed entries.
    pub max_entry_reuse_count: u64,
    /// Mean duration of creations, including failed ones.
    pub mean_create_time: Option<Duration>,
    /// Mean duration of a hit, from a sample.
    pub mean_lookup_time: Option<Duration>,
}

/// The last event of a cache.
///
/// ```
/// use kiln_resource_cache::{Cache, LastEvent};
///
/// let cache: Cache<u32, u32> = Cache::builder("squares").build()?;
/// cache.get_or_insert_with(&3, || 9)?;
/// assert_eq!(cache.metrics().last_event, Some(LastEvent::Insert));
/// # Ok::<(), kiln_resource_cache::CacheError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LastEvent {
    /// A lookup found its entry.
    Hit,
    /// A lookup was served by a creation that another thread was running.
    Joined,
    /// A lookup found no entry.
    Miss,
    /// An entry was inserted.
    Insert,
    /// An entry was evicted.
    Eviction,
    /// An entry was removed by its key.
    Remove,
    /// All entries were removed.
    Clear,
}

impl CacheMetrics {
    /// Returns the share of hits among all lookups, 0 to 1, or `None` before the first lookup.
    pub fn hit_rate(&self) -> Option<f64> {
        let lookups = self.hits + self.misses;
        (lookups > 0).then(|| self.hits as f64 / lookups as f64)
    }
}

/// Formats the metrics as one line for logs.
impl fmt::Display for CacheMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries, {} bytes, {} hits, {} misses", self.size, self.bytes, self.hits, self.misses)?;
        if let Some(rate) = self.hit_rate() {
            write!(f, " ({:.1} % hits)", rate * 100.0)?;
        }
        write!(f, ", {} evictions", self.evictions)?;
        if let Some(mean) = self.mean_create_time {
            write!(f, ", create {mean:.1?}")?;
        }
        if let Some(mean) = self.mean_lookup_time {
            write!(f, ", hit {mean:.1?}")?;
        }
        Ok(())
    }
}

/// A running mean of durations, shared by threads.
///
/// ```
/// use kiln_resource_cache::MeanTime;
/// use std::time::Duration;
///
/// let times = MeanTime::default();
/// assert_eq!(times.mean(), None);
/// times.record(Duration::from_millis(1));
/// times.record(Duration::from_millis(3));
/// assert_eq!((times.count(), times.mean()), (2, Some(Duration::from_millis(2))));
/// ```
#[derive(Debug, Default)]
pub struct MeanTime {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl MeanTime {
    /// Adds a sample.
    pub fn record(&self, time: Duration) {
        // The two counters are not updated together, so a concurrent mean may be off by one sample.
        self.nanos.fetch_add(nanos(time), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the mean; `None` before the first sample.
    pub fn mean(&self) -> Option<Duration> {
        self.nanos.load(Ordering::Relaxed).checked_div(self.count()).map(Duration::from_nanos)
    }
}
