//! The border to the driver: the budget, what happens when memory runs out, and how blocks go back.

use super::block::{Block, SlabSlot};
use super::core::{Core, Want};
use super::slab;
use crate::memory::{RawBlock, RawMemory};
use crate::observe::{CleanupReason, Happening};
use crate::size::Bytes;
use kiln_ir::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What went back from free lists, and what of it reached the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Free blocks that the pool no longer keeps.
    pub blocks: u64,
    /// Bytes that went back to the driver. Less than the blocks had where live neighbours hold their raw block, more
    /// where an already free neighbour went with them.
    pub bytes: u64,
}

impl std::ops::AddAssign for Released {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

/// Why a request got no memory: the driver's reason, or `None` where the budget is in the way.
pub(crate) struct Refused {
    bytes: u64,
    cause: Option<Error>,
}

impl Refused {
    /// Whether memory that comes back later can serve the request.
    pub(crate) fn may_help_to_wait(&self) -> bool {
        self.cause.as_ref().is_none_or(|cause| cause.kind() == ErrorKind::OutOfMemory)
    }
}

/// Bytes that left the budget for a request; they return to it unless the request is served.
struct Reservation<'a, M: RawMemory + ?Sized> {
    core: &'a Core<M>,
    bytes: u64,
}

impl<M: RawMemory + ?Sized> Drop for Reservation<'_, M> {
    fn drop(&mut self) {
        self.core.reserved.fetch_sub(self.bytes, Relaxed);
        self.core.driver.failures.fetch_add(1, Relaxed);
    }
}

/// The share of the pressure at which it began where it ends.
const PRESSURE_END: f64 = 0.8;
/// So many free bytes are never worth displacing.
const ALWAYS_ALLOWED_FREE: u64 = 8 << 20;

impl<M: RawMemory + ?Sized> Core<M> {
    /// Takes a raw block of exactly `bytes` from the driver, within the budget; gives back everything that is free, and
    /// tries again, where there is no room.
    pub(crate) fn driver_block(&self, bytes: u64, want: &Want) -> Result<RawBlock, Refused> {
        self.check_fits(bytes, want)?;
        self.make_room(bytes);
        match self.try_driver(bytes, want) {
            Err(refused) if refused.may_help_to_wait() => {
                self.told_cleanup(CleanupReason::Exhausted, || self.release_free(0));
                self.try_driver(bytes, want)
            }
            result => result,
        }
    }

    /// A raw block to be divided into slots; a single slot where no more fits the budget.
    pub(crate) fn slab_block(&self, slot_bytes: u64, want: &Want) -> Result<(RawBlock, u64), Refused> {
        let bytes = slab::slab_bytes(slot_bytes);
        let roomy = bytes <= self.properties.max_block_bytes && bytes <= self.budget.load(Relaxed) / 4;
        if roomy {
            self.make_room(bytes);
            if let Ok(raw) = self.try_driver(bytes, want) {
                return Ok((raw, bytes));
            }
        }
        self.driver_block(slot_bytes, want).map(|raw| (raw, slot_bytes))
    }

    fn try_driver(&self, bytes: u64, want: &Want) -> Result<RawBlock, Refused> {
        let budget = self.budget.load(Relaxed);
        let taken = self.reserved.fetch_update(Relaxed, Relaxed, |reserved| {
            reserved.checked_add(bytes).filter(|reserved| *reserved <= budget)
        });
        let Ok(before) = taken else { return Err(Refused { bytes, cause: None }) };
        let reservation = Reservation { core: self, bytes };
        let raw = self.memory.allocate(bytes, want.usage).map_err(|cause| Refused { bytes, cause: Some(cause) })?;
        std::mem::forget(reservation);
        self.peak_reserved.fetch_max(before + bytes, Relaxed);
        self.driver.allocations.fetch_add(1, Relaxed);
        self.update_pressure();
        tracing::trace!(bytes, usage = want.usage.name(), "pool took memory from the driver");
        self.tell(|| Happening::PoolTook { bytes, usage: want.usage, reserved_bytes: before + bytes });
        Ok(raw)
    }

    fn check_fits(&self, bytes: u64, want: &Want) -> Result<(), Refused> {
        let budget = self.budget.load(Relaxed);
        let (limit, what) = if budget <= self.properties.max_block_bytes {
            (budget, "the pool's budget")
        } else {
            (self.properties.max_block_bytes, "the device's largest buffer")
        };
        if bytes <= limit {
            return Ok(());
        }
        let message = format!(
            "expected a block of at most {limit} bytes ({what}), found a request of {} bytes that takes {bytes}",
            want.bytes
        );
        Err(Refused { bytes, cause: Some(Error::new(ErrorKind::TooLarge, message)) })
    }

    /// Gives back free memory that nobody used lately before new memory is taken, so that the pool does not grow with a
    /// workload whose sizes drift, and cleans up under pressure.
    fn make_room(&self, bytes: u64) {
        let config = *self.config.read();
        let reserved = self.reserved.load(Relaxed).saturating_add(bytes);
        let is_above = reserved as f64 > config.cleanup_pressure * self.budget.load(Relaxed) as f64;
        // When the pressure is crossed, and later when too much lies free: what is in use alone may be above it for long.
        if is_above && (!self.is_pressured() || self.free_bytes() > self.allowed_under_pressure()) {
            self.driver.pressure_cleanups.fetch_add(1, Relaxed);
            self.told_cleanup(CleanupReason::Pressure, || self.release_free(config.min_kept_per_class));
            self.set_pressured(true);
        }
        let headroom = config.headroom * f64::from(1 << self.headroom_doublings.load(Relaxed));
        let peaks = [&self.recent_peak, &self.previous_peak].map(|peak| peak.load(Relaxed));
        let peak = (self.occupied() as i64).max(peaks[0]).max(peaks[1]).max(0) as u64;
        let allowed = ((peak as f64 * (1.0 + headroom)) as u64).saturating_add(ALWAYS_ALLOWED_FREE);
        let held = self.free_bytes().saturating_add(self.occupied());
        if held > allowed {
            self.displace(held - allowed);
        }
    }

    /// Bytes of free blocks, as far as the shards published: what a cleanup can give back. Unused slots are not among
    /// them.
    fn free_bytes(&self) -> u64 {
        let unused = self.slabs.lock().free_bytes;
        self.reserved.load(Relaxed).saturating_sub(self.occupied()).saturating_sub(unused)
    }

    /// Under pressure half of what is not in use may lie free: without any, every request would reach the driver.
    fn allowed_under_pressure(&self) -> u64 {
        self.budget.load(Relaxed).saturating_sub(self.occupied()) / 2
    }

    /// Whether a free block may join `kept` others while the budget is nearly used up.
    pub(crate) fn may_keep_under_pressure(&self, kept: u32) -> bool {
        if self.is_over_budget() {
            return false;
        }
        kept < self.config.read().min_kept_per_class || self.free_bytes() <= self.allowed_under_pressure()
    }

    /// Waits for work that holds a free block back, where there is any.
    pub(crate) fn wait_for_pending(&self) -> Result<()> {
        self.pending.next_submission().map_or(Ok(()), |next| self.memory.wait(next))
    }

    /// Gives blocks that are in no list back to their raw block, and raw blocks that become free to the driver.
    pub(crate) fn release(&self, blocks: impl IntoIterator<Item = Arc<Block<M>>>) -> Released {
        let mut released = Released::default();
        for block in blocks {
            released.blocks += 1;
            self.group(block.usage, block.class).released.fetch_add(1, Relaxed);
            // Taken out of the block, so that a move that has seen the block finds it gone.
            let slot = block.place.write().slot.take();
            let (raw, bytes) = (Arc::clone(&block.place.read().raw), block.bytes);
            // The memory goes before its bytes leave the budget.
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
            tracing::trace!(bytes = released.bytes, blocks = released.blocks, "pool gave memory back to the driver");
        }
        released
    }

    /// Frees a slot of a divided raw block, and the raw block where it was the last one in use. Returns the bytes that
    /// went back to the driver.
    pub(crate) fn free_slot(&self, slot: SlabSlot) -> u64 {
        let emptied = self.slabs.lock().put(slot);
        emptied.map_or(0, |emptied| self.free_raw(emptied.raw, emptied.bytes))
    }

    fn free_raw(&self, raw: Arc<RawBlock>, bytes: u64) -> u64 {
        drop(raw);
        let before = self.reserved.fetch_sub(bytes, Relaxed);
        self.driver.releases.fetch_add(1, Relaxed);
        self.tell(|| Happening::PoolGaveBack { bytes, reserved_bytes: before.saturating_sub(bytes) });
        bytes
    }

    /// How much of the budget is taken, from 0 to 1.
    pub(crate) fn pressure(&self) -> f64 {
        (self.reserved.load(Relaxed) as f64 / self.budget.load(Relaxed).max(1) as f64).min(1.0)
    }

    /// Whether more is reserved than may be: the budget became smaller than what is lent.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.reserved.load(Relaxed) > self.budget.load(Relaxed)
    }

    /// Notes whether the pool is under pressure. It is until the pressure is well below the mark again: otherwise every
    /// cleanup would end it, and the next requests begin it anew.
    pub(crate) fn update_pressure(&self) {
        let mark = self.config.read().cleanup_pressure;
        let end = if self.is_pressured() { mark * PRESSURE_END } else { mark };
        self.set_pressured(self.is_over_budget() || self.pressure() > end);
    }

    /// Why a request failed: what was asked, who holds what, and what could help.
    pub(crate) fn explain(&self, want: &Want, refused: Refused) -> Error {
        let label = self.labels.name(want.label);
        if !refused.may_help_to_wait()
            && let Some(cause) = refused.cause
        {
            return cause.context(format!("buffer `{label}`"));
        }
        self.driver.out_of_memory.fetch_add(1, Relaxed);
        let report = self.report();
        self.tell(|| Happening::PoolOutOfMemory {
            bytes: want.bytes,
            usage: want.usage,
            label: label.to_string(),
            reserved_bytes: self.reserved.load(Relaxed),
            budget_bytes: report.budget_bytes,
        });
        let why = match &refused.cause {
            Some(cause) => format!("the driver refused ({cause})"),
            None => format!("the budget is {}", Bytes(report.budget_bytes)),
        };
        let message = format!(
            "expected {} of {} memory for a request of {}, found no room: {why}; {}",
            Bytes(refused.bytes),
            want.usage,
            Bytes(want.bytes),
            report.one_line(),
        );
        let error = Error::new(ErrorKind::OutOfMemory, message).context(format!("buffer `{label}`"));
        match refused.cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}
