//! How the kernel cache of a device is made.

use kiln_resource_cache::Clock;
use kiln_resource_cache::store::StoreOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How the kernel cache of a device is made: a memory tier, always, and a disk tier, where a directory is given.
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
    /// Nothing was said.
    Unsaid,
    Off,
    At(DiskTier),
}

impl KernelCacheOptions {
    /// 1000 kernels in memory, none unused for two hours, evicted 16 at a time; nothing on disk.
    pub fn new() -> Self {
        Self {
            max_entries: 1000,
            max_idle: Duration::from_secs(2 * 60 * 60),
            eviction_batch: 16,
            disk: Disk::Unsaid,
            clock: None,
        }
    }

    /// The most kernels in memory. Kernels that someone holds stay usable beyond it.
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// How long a kernel stays in memory unused.
    pub fn max_idle(mut self, max_idle: Duration) -> Self {
        self.max_idle = max_idle;
        self
    }

    /// How many kernels go at once when the limit is reached.
    pub fn eviction_batch(mut self, kernels: usize) -> Self {
        self.eviction_batch = kernels;
        self
    }

    /// Keeps translated kernels in a directory between runs.
    pub fn disk(mut self, disk: DiskTier) -> Self {
        self.disk = Disk::At(disk);
        self
    }

    /// Sets the clock of the memory tier, and with it that of all caches of the device.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Keeps nothing on disk.
    pub fn without_disk(mut self) -> Self {
        self.disk = Disk::Off;
        self
    }

    /// Keeps translated kernels in this directory, unless these options say where, or that nothing is kept.
    pub fn or_disk(self, disk: impl FnOnce() -> Option<DiskTier>) -> Self {
        let is_unsaid = matches!(self.disk, Disk::Unsaid);
        match is_unsaid.then(disk).flatten() {
            Some(disk) => self.disk(disk),
            None => self,
        }
    }

    pub(super) fn into_disk(self) -> Option<DiskTier> {
        match self.disk {
            Disk::At(disk) => Some(disk),
            Disk::Unsaid | Disk::Off => None,
        }
    }
}

impl Default for KernelCacheOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Where kernels are kept between runs, and how many.
#[derive(Clone, Debug)]
#[must_use]
pub struct DiskTier {
    pub(super) directory: PathBuf,
    pub(super) store: StoreOptions,
}

impl DiskTier {
    /// A directory, which only its owner may be able to write. It is made when it is first needed.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), store: StoreOptions::new() }
    }

    /// The bounds of the store.
    pub fn store(mut self, store: StoreOptions) -> Self {
        self.store = store;
        self
    }
}
