//! Options of a device's kernel cache.

use kiln_resource_cache::Clock;
use kiln_resource_cache::store::StoreOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of the kernel cache: a memory tier, and a disk tier if a directory is given.
///
/// ```
/// use kiln_device::{DiskTier, KernelCacheOptions};
/// use std::time::Duration;
///
/// let options = KernelCacheOptions::new()
///     .max_entries(200)
///     .max_idle(Duration::from_secs(600))
///     .disk(DiskTier::new("/var/cache/mine"));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KernelCacheOptions {
    pub(super) max_entries: usize,
    pub(super) max_idle: Duration,
    pub(super) eviction_batch: usize,
    disk: Disk,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

#[derive(Clone, Debug)]
enum Disk {
    /// Not set.
    Unset,
    Off,
    At(DiskTier),
}

impl KernelCacheOptions {
    /// Creates the default options: 1000 kernels in memory, none unused for two hours, evicted 16 at a time; no disk
    /// tier.
    pub fn new() -> Self {
        Self {
            max_entries: 1000,
            max_idle: Duration::from_secs(2 * 60 * 60),
            eviction_batch: 16,
            disk: Disk::Unset,
            clock: None,
        }
    }

    /// Sets the maximum number of kernels in memory. Kernels in use stay usable beyond it.
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// Sets how long an unused kernel stays in memory.
    pub fn max_idle(mut self, max_idle: Duration) -> Self {
        self.max_idle = max_idle;
        self
    }

    /// Sets how many kernels are evicted at once when the limit is reached.
    pub fn eviction_batch(mut self, kernels: usize) -> Self {
        self.eviction_batch = kernels;
        self
    }

    /// Stores translated kernels in a directory between runs.
    pub fn disk(mut self, disk: DiskTier) -> Self {
        self.disk = Disk::At(disk);
        self
    }

    /// Sets the clock of the memory tier, and with it that of all caches of the device.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Disables the disk tier.
    pub fn without_disk(mut self) -> Self {
        self.disk = Disk::Off;
        self
    }

    /// Sets the disk tier, unless these options already set or disable it.
    pub fn or_disk(self, disk: impl FnOnce() -> Option<DiskTier>) -> Self {
        let is_unset = matches!(self.disk, Disk::Unset);
        match is_unset.then(disk).flatten() {
            Some(disk) => self.disk(disk),
            None => self,
        }
    }

    pub(super) fn into_disk(self) -> Option<DiskTier> {
        match self.disk {
            Disk::At(disk) => Some(disk),
            Disk::Unset | Disk::Off => None,
        }
    }
}

impl Default for KernelCacheOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The directory of the disk tier, and its limits.
///
/// Passed to [`KernelCacheOptions::disk`]; see [`KernelCacheOptions`] for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct DiskTier {
    pub(super) directory: PathBuf,
    pub(super) store: StoreOptions,
}

impl DiskTier {
    /// Creates a disk tier in a directory, which only its owner may be able to write. It is created when first needed.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), store: StoreOptions::new() }
    }

    /// Sets the limits of the store.
    pub fn store(mut self, store: StoreOptions) -> Self {
        self.store = store;
        self
    }
}
