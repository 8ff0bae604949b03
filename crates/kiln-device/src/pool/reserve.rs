//! Allocates from and releases to the driver: the budget, running out of memory, and freed blocks.

use super::block::{Block, SlabSlot};
use super::core::{Core, ResolvedRequest};
use super::counters::Counter;
use super::report::PoolReport;
use super::slab;
use crate::memory::{RawBlock, RawMemory};
use crate::observe::{CleanupReason, EventKind};
use crate::size::Bytes;
use kiln_ir::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The result of releasing free blocks.
///
/// ```
/// use kiln_device::NullDevice;
/// use kiln_device::pool::Defragmented;
///
/// let device = NullDevice::new().into_device()?;
/// drop(device.buffer(4096)?);
/// let released = device.pool().cleanup(true);
/// assert_eq!((released.blocks, released.bytes), (1, 4096));
/// assert_eq!(device.pool().defragment()?, Defragmented::default(), "nothing is left to do");
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Blocks that the pool no longer caches.
    pub blocks: u64,
    /// Bytes released to the driver. Fewer than those of the blocks if live neighbours keep their raw block, more if
    /// free neighbours are released with them.
    pub bytes: u64,
}

impl std::ops::AddAssign for Released {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

/// Why a request got no memory: the error of the driver, or `None` if the budget is exceeded.
pub(crate) struct Refused {
    bytes: u64,
    cause: Option<Error>,
}

impl Refused {
    /// Returns whether memory that becomes free later can serve the request.
    pub(crate) fn is_retryable(&self) -> bool {
        self.cause.as_ref().is_none_or(|cause| cause.kind() == ErrorKind::OutOfMemory)
    }
}

impl<M: RawMemory + ?Sized> Core<M> {
    /// Allocates a raw block of exactly `bytes` from the driver, within the budget. Releases all free blocks if there
    /// is no room.
    pub(crate) fn driver_block(&self, bytes: u64, request: &ResolvedRequest) -> Result<RawBlock, Refused> {
        self.check_fits(bytes, request)?;
        self.make_room(bytes);
        match self.try_driver(bytes, request) {
            Err(refused) if refused.is_retryable() => {
                self.cleanup(CleanupReason::Exhausted, || self.release_free(0));
                self.try_driver(bytes, request)
            }
            result => result,
        }
    }

    /// Allocates a raw block to be divided into slots, or a single slot if no more fits the budget.
    pub(crate) fn slab_block(&self, slot_bytes: u64, request: &ResolvedRequest) -> Result<(RawBlock, u64), Refused> {
        let bytes = slab::slab_bytes(slot_bytes);
        let fits_slab = bytes <= self.properties.max_block_bytes && bytes <= self.budget.limit() / 4;
        if fits_slab {
            self.make_room(bytes);
            if let Ok(raw) = self.try_driver(bytes, request) {
                return Ok((raw, bytes));
            }
        }
        self.driver_block(slot_bytes, request).map(|raw| (raw, slot_bytes))
    }

    fn try_driver(&self, bytes: u64, request: &ResolvedRequest) -> Result<RawBlock, Refused> {
        let reservation = self.budget.reserve(bytes).ok_or(Refused { bytes, cause: None })?;
        // A failure drops the reservation, which returns its bytes to the budget.
        let raw = self.memory.allocate(bytes, request.usage).map_err(|cause| {
            self.counters.add(Counter::DriverFailure);
            Refused { bytes, cause: Some(cause) }
        })?;
        let reserved_bytes = reservation.keep();
        self.counters.add(Counter::DriverAllocation);
        self.update_pressure();
        tracing::trace!(bytes, usage = %request.usage, "pool allocated memory from the driver");
        self.emit(|| EventKind::PoolGrew { bytes, usage: request.usage, reserved_bytes });
        Ok(raw)
    }

    fn check_fits(&self, bytes: u64, request: &ResolvedRequest) -> Result<(), Refused> {
        let limit = self.budget.largest_block();
        if bytes <= limit {
            return Ok(());
        }
        let what = if limit == self.budget.limit() { "the pool's budget" } else { "the device's largest buffer" };
        let message = format!(
            "expected a block of at most {limit} bytes ({what}), found a request of {} bytes that takes {bytes}",
            request.bytes
        );
        Err(Refused { bytes, cause: Some(Error::new(ErrorKind::TooLarge, message)) })
    }

    /// Makes room before new memory is allocated: cleans up under pressure, and releases free memory that was not used
    /// recently, so that the pool does not grow with a workload whose sizes drift.
    fn make_room(&self, bytes: u64) {
        let config = self.settings.get();
        let is_above = self.budget.would_exceed(config.cleanup_pressure, bytes);
        // When pressure begins, and later if too much memory is free: the bytes in use alone may exceed the threshold
        // for long.
        if is_above && (!self.budget.is_pressured() || self.free_bytes() > self.allowed_under_pressure()) {
            self.counters.add(Counter::PressureCleanup);
            self.cleanup(CleanupReason::Pressure, || self.release_free(config.min_kept_per_class));
            self.emit_pressure(self.budget.set_pressured(true));
        }
        let allowed = self.occupancy.allowed(self.occupied(), config.headroom);
        let held = self.free_bytes().saturating_add(self.occupied());
        if held > allowed {
            self.displace(held - allowed);
        }
    }

    /// Returns the published bytes of free blocks, which a cleanup can release. Excludes unused slots.
    fn free_bytes(&self) -> u64 {
        let unused = self.slabs.lock().free_bytes;
        self.budget.reserved().saturating_sub(self.occupied()).saturating_sub(unused)
    }

    /// Returns the free bytes allowed under pressure: half of what is not in use. Without any, every request would
    /// reach the driver.
    fn allowed_under_pressure(&self) -> u64 {
        self.budget.limit().saturating_sub(self.occupied()) / 2
    }

    /// Returns whether a free block may be cached in addition to `kept` others under pressure.
    pub(crate) fn may_keep_under_pressure(&self, kept: u32) -> bool {
        let is_few = || kept < self.settings.get().min_kept_per_class;
        !self.budget.is_over() && (is_few() || self.free_bytes() <= self.allowed_under_pressure())
    }

    /// Waits for the work that uses the first pending block, if there is one.
    pub(crate) fn wait_for_pending(&self) -> Result<()> {
        self.pending.next_submission().map_or(Ok(()), |next| self.memory.wait(next))
    }

    /// Releases blocks that are in no list to their raw block, and raw blocks that become free to the driver.
    pub(crate) fn release(&self, blocks: impl IntoIterator<Item = Arc<Block<M>>>) -> Released {
        let mut released = Released::default();
        for block in blocks {
            released.blocks += 1;
            self.demand.record_released(self.classes.group(block.usage, block.class));
            // Taken out of the location, so that a concurrent move that already has the block finds no slot.
            let slot = block.location.write().slot.take();
            let (raw, bytes) = (Arc::clone(&block.location.read().raw), block.bytes);
            // The memory is freed before its bytes leave the budget, so that the budget is never exceeded.
            drop(block);
            released.bytes += match slot {
                Some(slot) => {
                    drop(raw);
                    self.free_slot(slot)
                }
                None => self.free_raw(raw, bytes),
            };
        }
        if released.bytes > 0 {
            self.update_pressure();
            tracing::trace!(bytes = released.bytes, blocks = released.blocks, "pool released memory to the driver");
        }
        released
    }

    /// Frees a slot, and its raw block if it was the last one in use. Returns the bytes released to the driver.
    pub(crate) fn free_slot(&self, slot: SlabSlot) -> u64 {
        let emptied = self.slabs.lock().put(slot);
        emptied.map_or(0, |emptied| self.free_raw(emptied.raw, emptied.bytes))
    }

    fn free_raw(&self, raw: Arc<RawBlock>, bytes: u64) -> u64 {
        drop(raw);
        let reserved_bytes = self.budget.release(bytes);
        self.counters.add(Counter::DriverRelease);
        self.emit(|| EventKind::PoolShrank { bytes, reserved_bytes });
        bytes
    }

    /// Creates the error of a failed request: what was requested, who holds the memory, and what could help.
    pub(crate) fn explain(&self, request: &ResolvedRequest, refused: Refused) -> Error {
        let label = self.labels.name(request.label);
        if !refused.is_retryable()
            && let Some(cause) = refused.cause
        {
            return cause.context(format!("buffer `{label}`"));
        }
        self.counters.add(Counter::OutOfMemory);
        let report = PoolReport::of(self);
        self.emit(|| EventKind::PoolOutOfMemory {
            bytes: request.bytes,
            usage: request.usage,
            label: label.to_string(),
            reserved_bytes: self.budget.reserved(),
            budget_bytes: report.budget_bytes,
        });
        let why = match &refused.cause {
            Some(cause) => format!("the driver refused ({cause})"),
            None => format!("the budget is {}", Bytes(report.budget_bytes)),
        };
        let message = format!(
            "expected {} of {} memory for a request of {}, found no room: {why}; {}",
            Bytes(refused.bytes),
            request.usage,
            Bytes(request.bytes),
            report.one_line(),
        );
        let error = Error::new(ErrorKind::OutOfMemory, message).context(format!("buffer `{label}`"));
        match refused.cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}
