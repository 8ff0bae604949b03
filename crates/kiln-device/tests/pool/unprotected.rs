//! Memory whose bytes can be written from outside of the pool, like a device that writes too late or to the wrong
//! place.

use kiln_device::memory::{MemoryProperties, RawBlock, RawMemory, Region, RegionMut, Usage};
use kiln_device::pool::Allocation;
use kiln_ir::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Byte vectors without any protection.
#[derive(Default)]
pub(crate) struct UnprotectedMemory {
    failure: Mutex<Option<Error>>,
    refused: AtomicU64,
    maps_fail: AtomicBool,
}

type Bytes = Arc<Mutex<Vec<u8>>>;

/// Access to the bytes of a block that outlives the allocation.
pub(crate) struct RawAccess {
    bytes: Bytes,
    offset: usize,
}

impl UnprotectedMemory {
    /// Makes every later allocation fail.
    pub(crate) fn fail_with(&self, error: Error) {
        *self.failure.lock().unwrap() = Some(error);
    }

    /// Returns the number of failed allocations.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Makes maps fail or succeed.
    pub(crate) fn set_maps_fail(&self, fail: bool) {
        self.maps_fail.store(fail, Ordering::Relaxed);
    }

    fn reach(&self, region: Region<'_>, reach: impl FnOnce(&mut [u8])) -> Result<()> {
        if self.maps_fail.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Internal, "the map failed"));
        }
        let start = region.offset() as usize;
        let mut bytes = bytes_of(region.raw()).lock().unwrap();
        reach(&mut bytes[start..start + region.bytes() as usize]);
        Ok(())
    }
}

impl RawAccess {
    /// Keeps access to the bytes of an allocation.
    pub(crate) fn to(allocation: &Allocation<UnprotectedMemory>) -> Self {
        let (raw, offset) = allocation.access(0..0).raw();
        Self { bytes: Arc::clone(bytes_of(&raw)), offset: offset as usize }
    }

    /// Writes to a range, relative to the start of the allocation.
    pub(crate) fn write(&self, range: Range<usize>, byte: u8) {
        let range = self.offset + range.start..self.offset + range.end;
        self.bytes.lock().unwrap()[range].fill(byte);
    }
}

impl RawMemory for UnprotectedMemory {
    fn properties(&self) -> MemoryProperties {
        MemoryProperties {
            default_usage: Usage::Shared,
            default_budget_bytes: 64 << 20,
            max_block_bytes: 64 << 20,
            copy_alignment: 4,
            divisible: true,
        }
    }

    fn allocate(&self, bytes: u64, _: Usage) -> Result<RawBlock> {
        if let Some(error) = &*self.failure.lock().unwrap() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(error.clone());
        }
        Ok(RawBlock::new(Bytes::new(Mutex::new(vec![0; bytes as usize]))))
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.reach(region, |bytes| read(bytes))
    }

    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.reach(region.as_region(), write)
    }
}

fn bytes_of(raw: &RawBlock) -> &Bytes {
    raw.downcast_ref().expect("a block of this memory")
}
