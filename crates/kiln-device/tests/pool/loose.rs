//! Memory whose bytes can be reached from outside of the pool, as work that a device runs late or wrongly reaches them.

use kiln_device::memory::{MemoryProperties, RawBlock, RawMemory, Region, RegionMut, Usage};
use kiln_device::pool::Allocation;
use kiln_ir::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Byte vectors without any protection.
#[derive(Default)]
pub(crate) struct LooseMemory {
    failure: Mutex<Option<Error>>,
    refused: AtomicU64,
    maps_fail: AtomicBool,
}

type Bytes = Arc<Mutex<Vec<u8>>>;

/// A way to the bytes of a block that outlives the allocation.
pub(crate) struct Backdoor {
    bytes: Bytes,
    offset: usize,
}

impl LooseMemory {
    /// Every allocation fails from now on.
    pub(crate) fn fail_with(&self, error: Error) {
        *self.failure.lock().unwrap() = Some(error);
    }

    /// Allocations that failed.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Lets maps fail or not.
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

impl Backdoor {
    /// Keeps a way to the bytes.
    pub(crate) fn to(allocation: &Allocation<LooseMemory>) -> Self {
        let (raw, offset) = allocation.access(0..0).raw();
        Self { bytes: Arc::clone(bytes_of(&raw)), offset: offset as usize }
    }

    /// Writes where nobody expects it, counted from the start of the allocation.
    pub(crate) fn write(&self, range: Range<usize>, byte: u8) {
        let range = self.offset + range.start..self.offset + range.end;
        self.bytes.lock().unwrap()[range].fill(byte);
    }
}

impl RawMemory for LooseMemory {
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
