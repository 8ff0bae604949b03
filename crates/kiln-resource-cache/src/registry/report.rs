//! What a registry reports: who holds how much, what a trim did, how a warm-up went.

use crate::error::CacheError;
use std::any::Any;
use std::fmt;

/// Who holds how many bytes in a registry; made by [`CacheRegistry::report`](crate::CacheRegistry::report).
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
    /// The reserves, in the order in which they were added. Their bytes are not among `bytes`.
    pub reserves: Vec<ReserveUsage>,
    /// Events that a sink failed to take.
    pub sink_failures: u64,
}

/// One cache in a [`RegistryReport`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct CacheUsage {
    /// Its `CACHE_NAME`.
    pub cache: &'static str,
    /// Its bytes.
    pub bytes: u64,
    /// Its entries.
    pub entries: usize,
}

/// One slot in a [`RegistryReport`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SlotUsage {
    /// The slot's type.
    pub slot: &'static str,
    /// Its bytes, as of the end of its last use.
    pub bytes: u64,
}

/// One reserve in a [`RegistryReport`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ReserveUsage {
    /// Its name.
    pub reserve: &'static str,
    /// Bytes that it could give back now.
    pub bytes: u64,
}

/// A table for people.
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

/// What [`CacheRegistry::trim`](crate::CacheRegistry::trim) did.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TrimReport {
    /// The bytes asked for.
    pub target_bytes: u64,
    /// Bytes of all caches, slots and reserves before.
    pub bytes_before: u64,
    /// Bytes afterwards. Above the target only if floors (`min_entries`), slots in use or a reserve hold the rest.
    pub bytes_after: u64,
    /// Entries evicted, stale ones included.
    pub entries_evicted: usize,
    /// Slots cleared.
    pub slots_cleared: usize,
    /// Slots that were in use; each is cleared when its user lets go of it.
    pub slots_deferred: usize,
}

impl TrimReport {
    /// Bytes that the trim gave back.
    pub fn bytes_freed(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }

    /// Whether the target was reached.
    pub fn reached_target(&self) -> bool {
        self.bytes_after <= self.target_bytes
    }
}

/// One line for logs.
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

/// How a warm-up went; see [`CacheRegistry::warm`](crate::CacheRegistry::warm).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WarmReport {
    /// Resources that were created.
    pub created: usize,
    /// Resources that were there already.
    pub already_cached: usize,
    /// Resources whose creation failed. The others were warmed all the same.
    pub failed: Vec<WarmFailure>,
}

/// One failed creation of a warm-up.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WarmFailure {
    /// Position in the list of parameters.
    pub index: usize,
    /// The key, as its `Debug` form.
    pub key: String,
    /// What went wrong, where the error is the cache's own; an error type of the kernel need not be printable.
    pub cache_error: Option<String>,
}

impl WarmFailure {
    pub(super) fn new<E: Any>(index: usize, key: &dyn fmt::Debug, error: &E) -> Self {
        let error: &dyn Any = error;
        let cache_error = error.downcast_ref::<CacheError>().map(ToString::to_string);
        Self { index, key: format!("{key:?}"), cache_error }
    }
}

/// One line for logs.
impl fmt::Display for WarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} created, {} already cached, {} failed", self.created, self.already_cached, self.failed.len())
    }
}
