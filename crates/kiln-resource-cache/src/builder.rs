//! [`Builder`]: the settings that caches and registries have in common (clock, sinks, summary interval).

use crate::clock::{Clock, TimeSource};
use crate::error::{CacheError, CacheErrorKind};
use crate::events::{DEFAULT_SUMMARY_INTERVAL, EventHub, EventSink};
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Builds a [`Cache`](crate::Cache) or a [`CacheRegistry`](crate::CacheRegistry); see
/// [`CacheBuilder`](crate::CacheBuilder) and [`CacheRegistryBuilder`](crate::CacheRegistryBuilder).
///
/// See [`Cache`](crate::Cache) for an example.
#[must_use]
pub struct Builder<S> {
    /// The settings that are specific to caches or registries.
    pub(crate) settings: S,
    clock: Option<Arc<dyn Clock>>,
    sinks: Vec<Box<dyn EventSink>>,
    summary_interval: Option<u64>,
}

impl<S> Builder<S> {
    pub(crate) fn new(settings: S) -> Self {
        Self { settings, clock: None, sinks: Vec::new(), summary_interval: None }
    }

    /// Sets the clock. Default: the system's monotonic clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Adds an event sink.
    pub fn sink(mut self, sink: impl EventSink) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Sets the number of operations on a cache between two summary events. Default: 100.
    pub fn summary_interval(mut self, operations: u64) -> Self {
        self.summary_interval = Some(operations);
        self
    }

    /// Returns the specific settings, the clock and the event sinks.
    pub(crate) fn split(self) -> Result<(S, TimeSource, Option<Arc<EventHub>>), CacheError> {
        let time = self.clock.map_or_else(TimeSource::system, TimeSource::Custom);
        let hub = EventHub::new(self.sinks, self.summary_interval.unwrap_or(DEFAULT_SUMMARY_INTERVAL))?;
        Ok((self.settings, time, hub.map(Arc::new)))
    }

    /// Returns the specific settings of a cache that uses the clock and sinks of its registry.
    pub(crate) fn into_member_settings(self, cache: &str) -> Result<S, CacheError> {
        if self.clock.is_some() || !self.sinks.is_empty() || self.summary_interval.is_some() {
            return Err(CacheError::new(
                CacheErrorKind::InvalidArgument,
                format!(
                    "cache `{cache}`: expected the clock, sinks and summary interval of its registry, found some set on the cache"
                ),
            ));
        }
        Ok(self.settings)
    }
}

impl<S: Debug> Debug for Builder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
