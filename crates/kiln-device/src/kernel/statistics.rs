//! Counters of the kernel cache.

use kiln_resource_cache::store::StoreStatistics;
use serde::Serialize;
use std::time::Duration;

/// Counters and times of a device's kernel cache. Each request counts as a memory hit, a disk hit, a compile or a
/// failure.
///
/// ```
/// use kiln_device::{DiskTierState, KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
/// let (_first, _second) = (device.kernel(&source)?, device.kernel(&source)?);
/// let statistics = device.kernel_cache_stats();
/// assert_eq!((statistics.compiles, statistics.memory_hits), (1, 1));
/// assert!(matches!(statistics.disk, DiskTierState::None));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KernelCacheStatistics {
    /// Requests served by the memory tier, including those that waited for another thread's compile.
    pub memory_hits: u64,
    /// Requests served by translated code from disk.
    pub disk_hits: u64,
    /// Requests that compiled the source.
    pub compiles: u64,
    /// Requests that failed because of an error in the source or in the driver.
    pub failures: u64,
    /// Intact entries on disk that the device could not load. They are deleted.
    pub disk_entries_unusable: u64,
    /// Mean time of a memory hit, from a sample.
    pub mean_memory_hit: Option<Duration>,
    /// Mean time of a disk hit: reading, verifying and loading into the driver.
    pub mean_disk_hit: Option<Duration>,
    /// Mean time of a compile, including loading into the driver and storing on disk.
    pub mean_compile: Option<Duration>,
    /// Kernels in memory.
    pub entries: usize,
    /// Bytes of their translated code, of the driver's compiled form if it reports one, and of source and reflection.
    pub bytes: u64,
    /// Kernels evicted from memory by a limit.
    pub evictions: u64,
    /// The disk tier.
    pub disk: DiskTierState,
}

/// The state of the disk tier.
///
/// See [`KernelCacheStatistics`] for an example.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
#[non_exhaustive]
pub enum DiskTierState {
    /// No directory is configured.
    None,
    /// A directory is configured but was not used yet.
    Unopened,
    /// The disk tier is in use.
    Open {
        /// Its counters.
        statistics: StoreStatistics,
    },
    /// The disk tier cannot be used; the cache works without it.
    Off {
        /// The reason.
        reason: String,
    },
}

impl KernelCacheStatistics {
    /// Returns the share of requests that were hits of either tier, 0 to 1, or `None` before the first request.
    pub fn hit_rate(&self) -> Option<f64> {
        let hits = self.memory_hits + self.disk_hits;
        let all = hits + self.compiles + self.failures;
        (all > 0).then(|| hits as f64 / all as f64)
    }
}
