//! What happens in caches, as events for whoever listens.
//!
//! An event is one line of JSON, `{"type": …, "data": {…}}`. Sinks are attached when a cache or a registry is built:
//! [`JsonlSink`] writes lines to a file or any other writer, [`ChannelSink`] hands events to a receiver, [`TracingSink`] forwards them to `tracing`,
//! and anything else can implement [`EventSink`]. With no sink attached, or none that [is on](EventSink::is_on), nothing is formatted
//! or counted.
//!
//! A sink that fails, a full disk for example, never fails a lookup: the failure is counted
//! ([`Cache::sink_failures`](crate::Cache::sink_failures)) and reported once through `tracing`.

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

/// Operations between two summaries, unless set otherwise.
pub(crate) const DEFAULT_SUMMARY_INTERVAL: u64 = 100;

/// Something that happened in a cache.
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
    /// One lookup.
    ResourceCacheAccess {
        /// The cache's name and the key, `name:key`.
        cache_key: String,
        /// Whether the resource was there. One that another thread was creating counts as there.
        hit: bool,
        /// Bytes of the resource; 0 if there is none, after a failed creation for example.
        bytes: u64,
    },
    /// Where a cache stands; sent every so many operations.
    ResourceCacheSummary {
        /// The cache's name.
        cache: Cow<'static, str>,
        /// Hits since the cache was built.
        hits: u64,
        /// Misses since the cache was built.
        misses: u64,
        /// Hits among all lookups, 0 to 1.
        hit_rate: f64,
        /// Entries now.
        size: usize,
    },
    /// Entries were evicted.
    CacheEviction {
        /// The cache's name.
        cache: Cow<'static, str>,
        /// The name of its policy.
        strategy: Cow<'static, str>,
        /// How many went.
        count: usize,
        /// Why they went.
        reason: EvictionReason,
        /// Entries afterwards.
        size_after: usize,
    },
}

impl CacheEvent {
    /// The event as one line of JSON, without the line break.
    pub fn to_json_line(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }
}

/// A listener for events.
///
/// Called by the thread whose operation caused the event, with no lock of the cache held; it should return quickly. It
/// may use the cache, but every event that it causes comes back to it.
pub trait EventSink: Send + Sync + 'static {
    /// Takes one event. An error is counted and reported once; the operation that caused the event goes on.
    fn record(&self, event: &CacheEvent) -> io::Result<()>;

    /// Whether events are wanted now. Asked in every lookup: while no sink wants any, a hit formats and counts nothing.
    fn is_on(&self) -> bool {
        true
    }
}

/// One sink for several caches or registries.
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
    /// `None` without sinks, so that a cache need only test for that.
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

    /// Whether a sink wants events now.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.sinks.iter().any(|attached| attached.sink.is_on())
    }

    pub(crate) fn emit(&self, event: &CacheEvent) {
        for attached in self.sinks.iter().filter(|attached| attached.sink.is_on()) {
            // A sink is the user's code: its panic is a failure like any other, and must not unwind through a lookup.
            let result = catch_unwind(AssertUnwindSafe(|| attached.sink.record(event)))
                .unwrap_or_else(|_| Err(io::Error::other("the sink panicked")));
            if let Err(error) = result
                && attached.failures.fetch_add(1, Ordering::Relaxed) == 0
            {
                ::tracing::warn!(%error, "an event sink of a cache failed; further failures are only counted");
            }
        }
    }

    /// Events that a sink failed to take.
    pub(crate) fn failures(&self) -> u64 {
        self.sinks.iter().map(|attached| attached.failures.load(Ordering::Relaxed)).sum()
    }
}
