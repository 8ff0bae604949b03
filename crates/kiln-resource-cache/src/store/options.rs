//! The settings of a store.

use super::error::{StoreError, StoreErrorKind};
use crate::clock::Clock;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The limits of a [`DiskStore`](super::DiskStore).
///
/// ```
/// use kiln_resource_cache::store::StoreOptions;
///
/// let options = StoreOptions::new().with_max_bytes(64 << 20);
/// assert_eq!((options.max_bytes(), options.max_entries()), (64 << 20, 20_000));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct StoreOptions {
    max_bytes: u64,
    max_entries: u64,
    clock: Option<Arc<dyn Clock>>,
}

impl StoreOptions {
    /// At most 512 MiB and 20,000 entries.
    pub fn new() -> Self {
        Self { max_bytes: 512 << 20, max_entries: 20_000, clock: None }
    }

    /// Keeps entry files of at most this many bytes together. Lengths count; a file system may use more for each.
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Keeps at most this many entries.
    pub fn with_max_entries(mut self, max_entries: u64) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// Reads the time from this clock, whose origin is the Unix epoch; the system's clock otherwise.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The limit on bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The limit on entries.
    pub fn max_entries(&self) -> u64 {
        self.max_entries
    }

    /// Time since the Unix epoch.
    pub(super) fn now(&self) -> Duration {
        match &self.clock {
            Some(clock) => clock.now(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), StoreError> {
        for (name, value) in [("max_bytes", self.max_bytes), ("max_entries", self.max_entries)] {
            if value == 0 {
                let message = format!("store options: {name} is 0, expected at least 1");
                return Err(StoreError::new(StoreErrorKind::InvalidArgument, message));
            }
        }
        Ok(())
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}
