//! Reports of a registry: memory usage, trims and warm-ups.

use crate::error::CacheError;
use std::any::Any;
use std::fmt;

/// The memory usage of a registry; see [`CacheRegistry::report`](crate::CacheRegistry::report).
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RegistryReport {
    /// The byte budget, if one is set.
    pub byte_budget: Option<u64>,
    /// Bytes of all caches and slots.
    pub bytes: u64,
    /// The caches, largest first.
    pub caches: Vec<CacheUsage>,
    /// The slots, largest first.
    pub slots: Vec<SlotUsage>,
    /// The reserves, in the order in which they were added. Their bytes are not included in `bytes`.
    pub reserves: Vec<ReserveUsage>,
    /// The number of events that a sink failed to record.
    pub sink_failures: u64,
}

/// One cache in a [`RegistryReport`].
///
/// See the [crate documentation](crate) for an example that prints a report.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct CacheUsage {
    /// The `CACHE_NAME`.
    pub cache: &'static str,
    /// Bytes of the entries.
    pub bytes: u64,
    /// The number of entries.
    pub entries: usize,
}

/// One slot in a [`RegistryReport`].
///
/// See [`CacheRegistry::slot_mut`](crate::CacheRegistry::slot_mut) for an example of a slot.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SlotUsage {
    /// The type of the slot.
    pub slot: &'static str,
    /// Bytes at the end of its last use.
    pub bytes: u64,
}

/// One reserve in a [`RegistryReport`].
///
/// See [`CacheReserve`](crate::CacheReserve) for an example.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ReserveUsage {
    /// The name of the reserve.
    pub reserve: &'static str,
    /// Bytes that it can release now.
    pub bytes: u64,
}

/// Formats the report as a table.
impl fmt::Display for RegistryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.byte_budget {
            Some(budget) => writeln!(f, "{} of {budget} bytes", self.bytes)?,
            None => writeln!(f, "{} bytes, no budget", self.bytes)?,
        }
        for cache in &self.caches {
            writeln!(f, "{:>14}  cache {} ({} entries)", cache.bytes, cache.cache, cache.entries)?;
        }
        for slot in &self.slots {
            writeln!(f, "{:>14}  slot {}", slot.bytes, slot.slot)?;
        }
        for reserve in &self.reserves {
            writeln!(f, "{:>14}  reserve {}", reserve.bytes, reserve.reserve)?;
        }
        if self.sink_failures > 0 {
            writeln!(f, "{} events lost by failing sinks", self.sink_failures)?;
        }
        Ok(())
    }
}

/// The result of [`CacheRegistry::trim`](crate::CacheRegistry::trim).
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TrimReport {
    /// The requested bytes.
    pub target_bytes: u64,
    /// Bytes of all caches, slots and reserves before the trim.
    pub bytes_before: u64,
    /// Bytes after the trim. Above the target only because of `min_entries`, slots in use or a reserve.
    pub bytes_after: u64,
    /// Evicted entries, including stale ones.
    pub entries_evicted: usize,
    /// Cleared slots.
    pub slots_cleared: usize,
    /// Slots that were in use. Each is cleared when its user releases it.
    pub slots_deferred: usize,
}

impl TrimReport {
    /// Returns the bytes that the trim released.
    pub fn bytes_freed(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }

    /// Returns whether the target was reached.
    pub fn reached_target(&self) -> bool {
        self.bytes_after <= self.target_bytes
    }
}

/// Formats the report as one line for logs.
impl fmt::Display for TrimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "trimmed {} to {} bytes (target {}): {} entries evicted, {} slots cleared, {} deferred",
            self.bytes_before,
            self.bytes_after,
            self.target_bytes,
            self.entries_evicted,
            self.slots_cleared,
            self.slots_deferred
        )
    }
}

/// The result of [`CacheRegistry::warm`](crate::CacheRegistry::warm).
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WarmReport {
    /// Resources that were created.
    pub created: usize,
    /// Resources that were already cached.
    pub already_cached: usize,
    /// Resources whose creation failed.
    pub failed: Vec<WarmFailure>,
}

/// A failed creation of a warm-up.
///
/// See the [crate documentation](crate) for an example of a warm-up.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WarmFailure {
    /// Position in the list of parameters.
    pub index: usize,
    /// The key in its `Debug` form.
    pub key: String,
    /// The message of a `CacheError`; `None` for other error types, which need not be printable.
    pub cache_error: Option<String>,
}

impl WarmFailure {
    pub(super) fn new<E: Any>(index: usize, key: &dyn fmt::Debug, error: &E) -> Self {
        let error: &dyn Any = error;
        let cache_error = error.downcast_ref::<CacheError>().map(ToString::to_string);
        Self { index, key: format!("{key:?}"), cache_error }
    }
}

/// Formats the report as one line for logs.
impl fmt::Display for WarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} created, {} already cached, {} failed", self.created, self.already_cached, self.failed.len())
    }
}
