//! A device that counts driver allocations independently of the pool.

use kiln_device::memory::{MemoryProperties, RawBlock, Region, RegionMut};
use kiln_device::{Command, Device, DeviceApi, DeviceInfo, PoolOptions, RawMemory, Usage};
use kiln_ir::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// Forwards everything to another device and counts the allocations.
pub(crate) struct Counted {
    inner: Arc<dyn DeviceApi>,
    allocations: AtomicU64,
}

impl Counted {
    /// Wraps a device, with a new pool on top of the counter.
    pub(crate) fn open(device: &Device) -> (Arc<Self>, Device) {
        let counted = Arc::new(Self { inner: Arc::clone(device.api()), allocations: AtomicU64::new(0) });
        let api: Arc<dyn DeviceApi> = counted.clone();
        (counted, Device::new(api, PoolOptions::new()).unwrap())
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }
}

impl RawMemory for Counted {
    fn properties(&self) -> MemoryProperties {
        self.inner.properties()
    }

    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.inner.allocate(bytes, usage)
    }

    fn completed(&self) -> u64 {
        self.inner.completed()
    }

    fn wait(&self, submission: u64) -> Result<()> {
        self.inner.wait(submission)
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.map(region, read)
    }

    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.inner.map_mut(region, write)
    }

    fn driver_bytes(&self) -> Option<u64> {
        self.inner.driver_bytes()
    }
}

impl DeviceApi for Counted {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, commands: &[Command]) -> Result<u64> {
        self.inner.submit(commands)
    }

    fn notify(&self, submission: u64, waker: Waker) {
        self.inner.notify(submission, waker);
    }

    fn fault(&self) -> Option<Error> {
        self.inner.fault()
    }
}
