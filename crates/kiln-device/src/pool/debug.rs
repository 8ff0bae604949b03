//! The debug mode: freed memory is poisoned, a canary follows every buffer, and both are verified.
//!
//! A changed poison byte was written after the buffer was freed; a changed canary was written beyond its end.

use super::block::Block;
use crate::memory::{RawMemory, Region, RegionMut};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// The bytes that are added to every request in debug mode.
pub(crate) const CANARY_BYTES: u64 = 64;
const CANARY: u8 = 0xC5;
const POISON: u8 = 0xDB;

/// An invalid write, detected by the debug mode.
///
/// ```
/// use kiln_device::pool::ViolationKind;
/// use kiln_device::{NullDevice, PoolOptions, RawMemory};
///
/// let device = NullDevice::new().into_device_with(PoolOptions::new().debug_checks(true))?;
/// let allocation = device.pool().allocate(200)?;
/// let mut beyond = allocation.access_mut(200..204);
/// allocation.memory().map_mut(beyond.region_mut(), &mut |bytes| bytes.fill(0x22))?;
/// drop(beyond);
/// drop(allocation);
/// assert_eq!(device.pool().violations()[0].kind, ViolationKind::WriteBeyondEnd);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind of violation.
    pub kind: ViolationKind,
    /// The label of the last holder.
    pub label: String,
    /// The size of the buffer in bytes.
    pub bytes: u64,
    /// The first wrong byte, relative to the start of the buffer.
    pub offset: u64,
    /// The value found there.
    pub found: u8,
}

/// The kinds of [`Violation`].
///
/// See [`Violation`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// A buffer was written after its last handle was dropped.
    WriteAfterFree,
    /// A buffer was written beyond its last byte.
    WriteBeyondEnd,
    /// The device could not map the memory, so the buffer was not checked.
    Unchecked,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ViolationKind::WriteAfterFree => "written after it was freed",
            ViolationKind::WriteBeyondEnd => "written beyond its end",
            ViolationKind::Unchecked => {
                return write!(f, "buffer `{}` of {} bytes could not be checked", self.label, self.bytes);
            }
        };
        let Self { label, bytes, offset, found, .. } = self;
        write!(f, "buffer `{label}` of {bytes} bytes was {what}: found {found:#04x} at byte {offset}")
    }
}

/// Writes the canary after the requested bytes.
pub(crate) fn place_canary<M: RawMemory + ?Sized>(block: &Block<M>, requested: u64) {
    fill(block, canary_start(block, requested)..block.bytes, CANARY);
}

/// Returns the start of the canary. Devices copy whole words, so a valid write may touch the rest of the last word.
fn canary_start<M: RawMemory + ?Sized>(block: &Block<M>, requested: u64) -> u64 {
    requested.next_multiple_of(block.core.properties.copy_alignment)
}

/// Verifies the canary, after the work that uses the block is done.
pub(crate) fn check_canary<M: RawMemory + ?Sized>(block: &Block<M>) {
    // If the device is lost, `check` reports a block that cannot be read as `Unchecked`.
    let _ = block.core.memory.wait(block.last_use.load(Relaxed));
    check(
        block,
        canary_start(block, block.requested.load(Relaxed))..block.bytes,
        CANARY,
        ViolationKind::WriteBeyondEnd,
    );
}

pub(crate) fn poison<M: RawMemory + ?Sized>(block: &Block<M>) {
    fill(block, 0..block.bytes, POISON);
    block.poisoned.store(true, Relaxed);
}

/// Verifies that a free block was not written.
pub(crate) fn check_poison<M: RawMemory + ?Sized>(block: &Block<M>) {
    if block.poisoned.swap(false, Relaxed) {
        check(block, 0..block.bytes, POISON, ViolationKind::WriteAfterFree);
    }
}

fn fill<M: RawMemory + ?Sized>(block: &Block<M>, range: Range<u64>, byte: u8) {
    let location = block.location.write();
    let region = RegionMut::new(&location.raw, location.offset + range.start, range.end - range.start);
    if block.core.memory.map_mut(region, &mut |bytes| bytes.fill(byte)).is_err() {
        report(block, ViolationKind::Unchecked, 0, 0);
    }
}

fn check<M: RawMemory + ?Sized>(block: &Block<M>, range: Range<u64>, expected: u8, kind: ViolationKind) {
    let location = block.location.read();
    let region = Region::new(&location.raw, location.offset + range.start, range.end - range.start);
    let mut wrong = None;
    let mapped = block.core.memory.map(region, &mut |bytes| {
        wrong = bytes.iter().enumerate().find(|(_, byte)| **byte != expected).map(|(at, byte)| (at as u64, *byte));
    });
    match (mapped, wrong) {
        (Err(_), _) => report(block, ViolationKind::Unchecked, 0, 0),
        (Ok(()), Some((at, found))) => report(block, kind, range.start + at, found),
        (Ok(()), None) => {}
    }
}

fn report<M: RawMemory + ?Sized>(block: &Block<M>, kind: ViolationKind, offset: u64, found: u8) {
    let label = block.core.labels.name(block.label.load(Relaxed));
    let violation = Violation { kind, label, bytes: block.requested.load(Relaxed), offset, found };
    tracing::error!(%violation, "pool debug check");
    block.core.counters.add_violation(violation);
}
