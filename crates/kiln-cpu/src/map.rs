//! Raw blocks of the CPU device: anonymous memory maps, which are returned to the system when dropped.

use kiln_device::memory::{RawBlock, Region, RegionMut};
use kiln_ir::{Error, ErrorKind, Result};
use memmap2::{MmapMut, MmapRaw};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A raw block. A map is used because a heap would retain freed memory.
pub(crate) struct Map {
    map: MmapRaw,
    /// Counts freed maps.
    freed: Arc<AtomicU64>,
}

/// Minimum size of a block that requests huge pages. The pool subdivides smaller blocks, which may be used only in
/// part: a huge page becomes resident as a whole when one byte of it is touched.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MIN_HUGE_BYTES: usize = 4 << 20;

impl Map {
    /// Maps `bytes` zeroed bytes; `freed` is incremented when they are unmapped.
    ///
    /// # Errors
    /// Returns `TooLarge` above `max_bytes`; `OutOfMemory` if the system refuses.
    pub(crate) fn new(bytes: u64, max_bytes: u64, freed: &Arc<AtomicU64>) -> Result<Self> {
        let len = usize::try_from(bytes).ok().filter(|_| bytes <= max_bytes).ok_or_else(|| {
            let message = format!("CPU device expected a block of at most {max_bytes} bytes, found {bytes}");
            Error::new(ErrorKind::TooLarge, message)
        })?;
        let map = MmapMut::map_anon(len).map_err(|error| {
            let message = format!("CPU device expected {bytes} bytes from the system, found none: {error}");
            Error::new(ErrorKind::OutOfMemory, message).with_source(error)
        })?;
        // With huge pages, the first touch of a large block takes a fraction of the time (`cargo bench -p kiln-cpu`). A
        // system without them refuses, which affects only speed.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if len >= MIN_HUGE_BYTES {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { map: map.into(), freed: Arc::clone(freed) })
    }

    /// Returns a pointer to `bytes` bytes at `offset`.
    fn at(&self, offset: u64, bytes: u64) -> Result<*mut u8> {
        let len = self.map.len() as u64;
        if offset.checked_add(bytes).is_none_or(|end| end > len) {
            let message = format!("CPU device expected a region within {len} bytes, found {bytes} bytes at {offset}");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        // SAFETY: `offset` is at most the map's length, so the pointer is within the map or one past its end.
        Ok(unsafe { self.map.as_mut_ptr().add(offset as usize) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Unmapping a part of merged maps splits them, and fails if the process has too many: 64 Ki blocks, freed
        // alternately, are enough. The pages would then stay resident. Discarding the pages first never splits.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: the pages become zeros, which is unobservable: the owner that drops the block has exclusive access.
        let _ = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the bytes of a region; the borrow guarantees that they are not written.
pub(crate) fn bytes_of<'r>(region: &'r Region<'_>) -> Result<&'r [u8]> {
    let start = map_of(region.raw())?.at(region.offset(), region.bytes())?;
    // SAFETY: `at` checked that the range is within the map, which lives as long as the region. Maps are zeroed, so
    // every byte is initialised. The region guarantees that the range is not written while it lives.
    Ok(unsafe { std::slice::from_raw_parts(start, region.bytes() as usize) })
}

/// Returns the bytes of a region; the borrow guarantees exclusive access.
pub(crate) fn bytes_of_mut<'r>(region: &'r mut RegionMut<'_>) -> Result<&'r mut [u8]> {
    let start = map_of(region.raw())?.at(region.offset(), region.bytes())?;
    // SAFETY: as in `bytes_of`; the region guarantees exclusive access, and is borrowed exclusively.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, region.bytes() as usize) })
}

fn map_of(raw: &RawBlock) -> Result<&Map> {
    raw.downcast_ref().ok_or_else(|| {
        let message = "CPU device expected a block that it allocated, found one of another memory";
        Error::new(ErrorKind::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_inside_of_the_map_are_found() {
        let map = Map::new(100, u64::MAX, &Arc::default()).unwrap();
        let start = map.at(0, 100).unwrap();
        assert_eq!(start as usize % 4096, 0, "aligned to a page");
        assert_eq!(map.at(100, 0).unwrap() as usize, start as usize + 100);
        for (offset, bytes) in [(0, 101), (1, 100), (101, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(map.at(offset, bytes).unwrap_err().kind(), ErrorKind::Internal, "{bytes} at {offset}");
        }
    }

    /// A request that can never fit has a different error kind from one that does not fit now.
    #[test]
    fn too_large_and_out_of_memory_are_told_apart() {
        let kind = |bytes, max| Map::new(bytes, max, &Arc::default()).err().map(|error| error.kind());
        assert_eq!(kind(4097, 4096), Some(ErrorKind::TooLarge));
        assert_eq!(kind(4096, 4096), None);
        // More than any processor can address, but a valid slice length.
        assert_eq!(kind(1 << 62, u64::MAX), Some(ErrorKind::OutOfMemory));
    }
}
