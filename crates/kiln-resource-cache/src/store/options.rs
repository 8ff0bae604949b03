//! The options of a store.

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
    /// Creates the default options: at most 512 MiB and 20,000 entries.
    pub fn new() -> Self {
        Self { max_bytes: 512 << 20, max_entries: 20_000, clock: None }
    }

    /// Sets the maximum total length of the entry files. A file system may use more space for each file.
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Sets the maximum number of entries.
    pub fn with_max_entries(mut self, max_entries: u64) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// Sets the clock, whose origin is the Unix epoch. Default: the system's clock.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Returns the limit on bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Returns the limit on entries.
    pub fn max_entries(&self) -> u64 {
        self.max_entries
    }

    /// Returns the time since the Unix epoch.
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
