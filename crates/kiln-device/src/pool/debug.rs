//! The debug mode: freed memory is poisoned, every buffer ends in a canary, and both are checked.
//!
//! A poisoned byte that changed was written after the buffer was freed; a changed canary was written beyond its end.

use super::block::Block;
use crate::memory::{RawMemory, Region, RegionMut};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that every request grows by in debug mode.
pub(crate) const CANARY_BYTES: u64 = 64;
const CANARY: u8 = 0xC5;
const POISON: u8 = 0xDB;

/// Memory that was written by someone who must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What happened.
    pub kind: ViolationKind,
    /// Who held the buffer last.
    pub label: String,
    /// The size of the buffer.
    pub bytes: u64,
    /// The first wrong byte, counted from the start of the buffer.
    pub offset: u64,
    /// What was found there.
    pub found: u8,
}

/// The kinds of [`Violation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// A buffer was written after its last handle was dropped.
    WriteAfterFree,
    /// A buffer was written behind its last byte.
    WriteBeyondEnd,
    /// The device could not be asked, so the buffer is unchecked.
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

/// Marks the bytes behind the request.
pub(crate) fn place_canary<M: RawMemory + ?Sized>(block: &Block<M>, requested: u64) {
    fill(block, canary_start(block, requested)..block.bytes, CANARY);
}

/// Devices copy whole words, so a write may touch the rest of the last one.
fn canary_start<M: RawMemory + ?Sized>(block: &Block<M>, requested: u64) -> u64 {
    requested.next_multiple_of(block.core.properties.copy_alignment)
}

/// Checks the bytes behind the request, once the work that touches the block is done.
pub(crate) fn check_canary<M: RawMemory + ?Sized>(block: &Block<M>) {
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

/// Checks that a free block is still as it was left.
pub(crate) fn check_poison<M: RawMemory + ?Sized>(block: &Block<M>) {
    if block.poisoned.swap(false, Relaxed) {
        check(block, 0..block.bytes, POISON, ViolationKind::WriteAfterFree);
    }
}

fn fill<M: RawMemory + ?Sized>(block: &Block<M>, range: Range<u64>, byte: u8) {
    let location = block.location.write();
    let region = RegionMut::new(&location.raw, location.offset + range.start, range.end - range.start);
    if block.core.memory.map_mut(region, &mut |bytes| bytes.fill(byte)).is_err() {
        note(block, ViolationKind::Unchecked, 0, 0);
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
        (Err(_), _) => note(block, ViolationKind::Unchecked, 0, 0),
        (Ok(()), Some((at, found))) => note(block, kind, range.start + at, found),
        (Ok(()), None) => {}
    }
}

fn note<M: RawMemory + ?Sized>(block: &Block<M>, kind: ViolationKind, offset: u64, found: u8) {
    let label = block.core.labels.name(block.label.load(Relaxed));
    let violation = Violation { kind, label, bytes: block.requested.load(Relaxed), offset, found };
    tracing::error!(%violation, "pool debug check");
    block.core.counters.add_violation(violation);
}
