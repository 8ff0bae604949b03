//! What the kernel cache says about itself.

use kiln_resource_cache::store::StoreStatistics;
use serde::Serialize;
use std::time::Duration;

/// Counters and times of a device's kernel cache. Each request is one of memory hit, disk hit, compile and failure.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KernelCacheStatistics {
    /// Requests that the memory tier served, those that waited for another thread's compile included.
    pub memory_hits: u64,
    /// Requests that translated code from disk served.
    pub disk_hits: u64,
    /// Requests that compiled the source.
    pub compiles: u64,
    /// Requests that failed: a fault in the source, a refusal of the driver.
    pub failures: u64,
    /// Entries on disk whose bytes were whole but whose content no device would take. They are deleted.
    pub disk_entries_unusable: u64,
    /// Mean time of a memory hit, from a sample.
    pub mean_memory_hit: Option<Duration>,
    /// Mean time of a disk hit: reading, checking, handing to the driver.
    pub mean_disk_hit: Option<Duration>,
    /// Mean time of a compile, with handing to the driver and storing on disk.
    pub mean_compile: Option<Duration>,
    /// Kernels in memory.
    pub entries: usize,
    /// Bytes of their translated code, of the driver's own form of it where the driver gives that, and of source and reflection.
    pub bytes: u64,
    /// Kernels that a limit removed from memory.
    pub evictions: u64,
    /// The disk tier.
    pub disk: DiskTierState,
}

/// Whether there is a disk tier, and what it says.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
#[non_exhaustive]
pub enum DiskTierState {
    /// No directory was given.
    None,
    /// A directory was given, and nothing was asked of it yet.
    Unopened,
    /// It works.
    Open {
        /// What it says.
        statistics: StoreStatistics,
    },
    /// It cannot be used; everything works without it.
    Off {
        /// Why.
        reason: String,
    },
}

impl KernelCacheStatistics {
    /// The share of requests that were hits of either tier, 0 to 1; `None` before the first.
    pub fn hit_rate(&self) -> Option<f64> {
        let hits = self.memory_hits + self.disk_hits;
        let all = hits + self.compiles + self.failures;
        (all > 0).then(|| hits as f64 / all as f64)
    }
}
