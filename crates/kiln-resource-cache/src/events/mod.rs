//! Events of caches, and the sinks that receive them.
//!
//! An event is one line of JSON, `{"type": …, "data": {…}}`. Sinks are attached when a cache or a registry is built:
//! [`JsonlSink`] writes lines to a file or another writer, [`ChannelSink`] sends events to a receiver, [`TracingSink`]
//! forwards them to `tracing`, and other types can implement [`EventSink`]. If no sink is attached, or none [is
//! on](EventSink::is_on), nothing is formatted or counted.
//!
//! A failing sink, on a full disk for example, never fails a lookup: the failure is counted
//! ([`Cache::sink_failures`](crate::Cache::sink_failures)), and the first one is logged through `tracing`.

mod channel;
mod jsonl;
mod tracing;

pub use self::tracing::TracingSink;
pub use channel::ChannelSink;
pub use jsonl::{JsonlSink, LineOutput};

use crate::error::{CacheError, CacheErrorKind};
use crate::policy::EvictionReason;
use crate::sync::{AtomicU64, Ordering};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The default number of operations between two summaries.
pub(crate) const DEFAULT_SUMMARY_INTERVAL: u64 = 100;

/// An event of a cache.
///
/// ```
/// use kiln_resource_cache::events::CacheEvent;
///
/// let event = CacheEvent::ResourceCacheAccess { cache_key: "plans:7".into(), hit: true, bytes: 64 };
/// assert_eq!(
///     event.to_json_line()?,
///     r#"{"type":"ResourceCacheAccess","data":{"cache_key":"plans:7","hit":true,"bytes":64}}"#
/// );
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
#[non_exhaustive]
pub enum CacheEvent {
    /// A lookup.
    ResourceCacheAccess {
        /// The name of the cache and the key, as `name:key`.
        cache_key: String,
        /// Whether the resource was cached. A resource that another thread was creating counts as cached.
        hit: bool,
        /// Bytes of the resource; 0 if there is none, as after a failed creation.
        bytes: u64,
    },
    /// The state of a cache, emitted at every summary interval.
    ResourceCacheSummary {
        /// The name of the cache.
        cache: Cow<'static, str>,
        /// Hits since the cache was built.
        hits: u64,
        /// Misses since the cache was built.
        misses: u64,
        /// The share of hits among all lookups, 0 to 1.
        hit_rate: f64,
        /// The number of entries.
        size: usize,
    },
    /// Entries were evicted.
    CacheEviction {
        /// The name of the cache.
        cache: Cow<'static, str>,
        /// The name of the policy.
        strategy: Cow<'static, str>,
        /// The number of evicted entries.
        count: usize,
        /// The reason of the eviction.
        reason: EvictionReason,
        /// The number of entries after the eviction.
        size_after: usize,
    },
}

impl CacheEvent {
    /// Formats the event as one line of JSON, without the line break.
    pub fn to_json_line(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }
}

/// Receives events.
///
/// Called on the thread whose operation caused the event, with no lock of the cache held; it should return quickly. It
/// may use the cache, but receives the events that this causes as well.
///
/// See [`ChannelSink`], which implements it, for an example.
pub trait EventSink: Send + Sync + 'static {
    /// Records an event. An error is counted, and the first one is logged; the operation that caused the event
    /// continues.
    fn record(&self, event: &CacheEvent) -> io::Result<()>;

    /// Returns whether events are wanted. Called on every lookup: while no sink is on, a hit formats and counts
    /// nothing.
    fn is_on(&self) -> bool {
        true
    }
}

/// Shares one sink between several caches or registries.
impl<S: EventSink + ?Sized> EventSink for Arc<S> {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        (**self).record(event)
    }

    fn is_on(&self) -> bool {
        (**self).is_on()
    }
}

pub(crate) struct EventHub {
    sinks: Vec<AttachedSink>,
    summary_interval: u64,
}

struct AttachedSink {
    sink: Box<dyn EventSink>,
    failures: AtomicU64,
}

impl EventHub {
    /// Creates a hub, or returns `None` if there are no sinks, so that a cache only needs to test for that.
    pub(crate) fn new(sinks: Vec<Box<dyn EventSink>>, summary_interval: u64) -> Result<Option<Self>, CacheError> {
        if summary_interval == 0 {
            return Err(CacheError::new(
                CacheErrorKind::InvalidArgument,
                "summary_interval is 0, expected at least 1 operation between two summaries",
            ));
        }
        let attach = |sink| AttachedSink { sink, failures: AtomicU64::new(0) };
        let sinks: Vec<_> = sinks.into_iter().map(attach).collect();
        Ok((!sinks.is_empty()).then_some(Self { sinks, summary_interval }))
    }

    pub(crate) fn summary_interval(&self) -> u64 {
        self.summary_interval
    }

    /// Returns whether a sink is on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.sinks.iter().any(|attached| attached.sink.is_on())
    }

    pub(crate) fn emit(&self, event: &CacheEvent) {
        for attached in self.sinks.iter().filter(|attached| attached.sink.is_on()) {
            // A sink is user code: a panic counts as a failure, and must not unwind through a lookup.
            let result = catch_unwind(AssertUnwindSafe(|| attached.sink.record(event)))
                .unwrap_or_else(|_| Err(io::Error::other("the sink panicked")));
            if let Err(error) = result
                // Only the first failure is logged; a full disk would otherwise flood the log.
                && attached.failures.fetch_add(1, Ordering::Relaxed) == 0
            {
                ::tracing::warn!(%error, "an event sink of a cache failed; further failures are only counted");
            }
        }
    }

    /// Returns the number of events that a sink failed to record.
    pub(crate) fn failures(&self) -> u64 {
        self.sinks.iter().map(|attached| attached.failures.load(Ordering::Relaxed)).sum()
    }
}
