//! Building a registry: device, clock, sinks, byte budget.

use super::CacheRegistry;
use crate::clock::{Clock, TimeSource};
use crate::error::{CacheError, CacheErrorKind};
use crate::events::{DEFAULT_SUMMARY_INTERVAL, EventHub, EventSink};
use std::sync::Arc;

/// Settings of a [`CacheRegistry`] to be; made by [`CacheRegistry::builder`].
pub struct CacheRegistryBuilder<D> {
    device: Option<D>,
    time: TimeSource,
    sinks: Vec<Box<dyn EventSink>>,
    summary_interval: u64,
    byte_budget: Option<u64>,
}

impl<D> std::fmt::Debug for CacheRegistryBuilder<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheRegistryBuilder").field("byte_budget", &self.byte_budget).finish_non_exhaustive()
    }
}

impl<D: Send + Sync + 'static> CacheRegistryBuilder<D> {
    pub(super) fn new() -> Self {
        Self {
            device: None,
            time: TimeSource::system(),
            sinks: Vec::new(),
            summary_interval: DEFAULT_SUMMARY_INTERVAL,
            byte_budget: None,
        }
    }

    /// The device that creations get when the caller passes none.
    #[must_use]
    pub fn device(mut self, device: D) -> Self {
        self.device = Some(device);
        self
    }

    /// Where the time comes from; the system's monotonic clock unless set.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.time = TimeSource::Custom(Arc::new(clock));
        self
    }

    /// Adds a listener for the events of all caches.
    #[must_use]
    pub fn sink(mut self, sink: impl EventSink) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// A summary event of a cache every so many operations on it; 100 unless set.
    #[must_use]
    pub fn summary_interval(mut self, operations: u64) -> Self {
        self.summary_interval = operations;
        self
    }

    /// Keeps all caches and slots together under this many bytes.
    ///
    /// When a new entry or a growing slot exceeds it, the least recently used entries of all caches go, whatever the
    /// policies of their caches, down to their floors (`min_entries`). Slots count, but only [`CacheRegistry::trim`]
    /// clears them: they hold state that nobody can create again.
    #[must_use]
    pub fn byte_budget(mut self, bytes: u64) -> Self {
        self.byte_budget = Some(bytes);
        self
    }

    /// The registry, or what is wrong with its settings.
    pub fn build(self) -> Result<CacheRegistry<D>, CacheError> {
        if self.byte_budget == Some(0) {
            return Err(CacheError::new(
                CacheErrorKind::InvalidArgument,
                "byte_budget is 0, expected at least 1; to keep nothing, do not use a cache",
            ));
        }
        let hub = EventHub::new(self.sinks, self.summary_interval)?.map(Arc::new);
        Ok(CacheRegistry::assemble(self.device, self.time, hub, self.byte_budget))
    }
}
