//! Blocks, and the handles through which the pool lends them.

use super::core::Core;
use crate::memory::{RawBlock, RawMemory, Region, RegionMut, Usage};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// One piece of memory that the pool lends, whole, again and again.
///
/// It holds its pool permanently, so that lending and returning touch no shared reference count. The circle through the
/// free lists is cut when the pool's last handle goes.
pub(crate) struct Block<M: RawMemory + ?Sized> {
    pub(crate) core: Arc<Core<M>>,
    pub(crate) usage: Usage,
    /// Index of the class; `ClassTable::direct` for a block above the classes.
    pub(crate) class: u16,
    pub(crate) bytes: u64,
    /// Where the block is. Whoever touches the bytes holds this lock, whoever moves the block holds it for writing.
    pub(crate) location: RwLock<BlockLocation>,
    /// Handles that users hold; zero while the block is free. Of 64 bits: nobody forgets so many of them that it begins anew.
    handles: AtomicU64,
    pub(crate) requested: AtomicU64,
    pub(crate) label: AtomicU32,
    /// The newest submission that touches the block; zero where none does.
    pub(crate) last_use: AtomicU64,
    /// Submissions that are being made with the block; it has no number yet, and must not move.
    pins: AtomicU32,
    /// Held by writers of parts of words, who write the neighbours' bytes back.
    pub(crate) word_edges: Mutex<()>,
    /// Whether the debug mode poisoned the block when it was freed.
    pub(crate) poisoned: AtomicBool,
}

/// Where a block is: a whole raw block, or a slot of a divided one.
pub(crate) struct BlockLocation {
    pub(crate) raw: Arc<RawBlock>,
    pub(crate) offset: u64,
    pub(crate) slot: Option<SlabSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabSlot {
    pub(crate) slab: u32,
    pub(crate) slot: u32,
}

impl<M: RawMemory + ?Sized> Block<M> {
    pub(crate) fn new(core: Arc<Core<M>>, usage: Usage, class: u16, bytes: u64, location: BlockLocation) -> Self {
        Self {
            core,
            usage,
            class,
            bytes,
            location: RwLock::new(location),
            handles: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            label: AtomicU32::new(0),
            last_use: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            word_edges: Mutex::new(()),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Whether submitted work may still touch the block.
    pub(crate) fn is_busy(&self, completed: u64) -> bool {
        self.last_use.load(Ordering::Acquire) > completed
    }

    /// Whether the block must stay where it is. Ask under its lock: a submission pins before it looks where the block is.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    pub(crate) fn lend(self: Arc<Self>, requested: u64, label: u32) -> Allocation<M> {
        self.requested.store(requested, Ordering::Relaxed);
        self.label.store(label, Ordering::Relaxed);
        self.last_use.store(0, Ordering::Relaxed);
        self.handles.store(1, Ordering::Relaxed);
        Allocation { block: Some(self) }
    }
}

/// A shared handle to memory that the pool lent. The block returns to the pool when the last clone goes.
pub struct Allocation<M: RawMemory + ?Sized> {
    /// `None` only while it is dropped.
    block: Option<Arc<Block<M>>>,
}

impl<M: RawMemory + ?Sized> Allocation<M> {
    pub(crate) fn block(&self) -> &Arc<Block<M>> {
        self.block.as_ref().expect("an allocation holds its block until it is dropped")
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.block().requested.load(Ordering::Relaxed)
    }

    /// The bytes that the block really has.
    pub fn block_bytes(&self) -> u64 {
        self.block().bytes
    }

    /// What the memory is for.
    pub fn usage(&self) -> Usage {
        self.block().usage
    }

    /// The memory that the block is of.
    pub fn memory(&self) -> &M {
        &self.block().core.memory
    }

    /// Shared access to a range of the bytes: others may read them meanwhile, nobody writes or moves them.
    ///
    /// Blocks while someone holds exclusive access; a thread that holds it itself waits for ever.
    ///
    /// # Panics
    /// Where the range is outside the block.
    pub fn access(&self, range: Range<u64>) -> Access<'_> {
        check_range(&range, self.block().bytes);
        Access { location: self.block().location.read(), range }
    }

    /// Exclusive access to a range of the bytes. It waits as [`access`](Self::access) does.
    ///
    /// # Panics
    /// Where the range is outside the block.
    pub fn access_mut(&self, range: Range<u64>) -> AccessMut<'_> {
        check_range(&range, self.block().bytes);
        AccessMut { location: self.block().location.write(), range }
    }

    /// Keeps the block in place until [`unpin`](Self::unpin).
    pub(crate) fn pin(&self) {
        self.block().pins.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unpin(&self) {
        self.block().pins.fetch_sub(1, Ordering::AcqRel);
    }

    /// Says that `submission` touches the block: it is not lent again before that is done. [`Device`](crate::Device)
    /// does it by itself; it is for those who submit to a memory of their own.
    pub fn mark_used(&self, submission: u64) {
        self.block().last_use.fetch_max(submission, Ordering::AcqRel);
    }

    /// The newest submission that touches the block; zero where none does.
    pub fn last_use(&self) -> u64 {
        self.block().last_use.load(Ordering::Acquire)
    }

    /// Whether both are handles to the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.block(), other.block())
    }

    /// A total order over allocations, for taking several locks without a deadlock.
    pub(crate) fn lock_rank(&self) -> *const () {
        Arc::as_ptr(self.block()).cast()
    }
}

fn check_range(range: &Range<u64>, bytes: u64) {
    assert!(range.start <= range.end && range.end <= bytes, "access to {range:?} of a block of {bytes} bytes");
}

impl<M: RawMemory + ?Sized> Clone for Allocation<M> {
    fn clone(&self) -> Self {
        let block = self.block();
        // As for any reference count: a new handle is made from one that keeps the block alive.
        block.handles.fetch_add(1, Ordering::Relaxed);
        Self { block: Some(Arc::clone(block)) }
    }
}

impl<M: RawMemory + ?Sized> Drop for Allocation<M> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if block.handles.fetch_sub(1, Ordering::Release) == 1 {
            // What every other handle did happens before the block is lent again.
            fence(Ordering::Acquire);
            Core::give_back(block);
        }
    }
}

impl<M: RawMemory + ?Sized> fmt::Debug for Allocation<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("bytes", &self.bytes())
            .field("block_bytes", &self.block_bytes())
            .field("usage", &self.usage())
            .finish()
    }
}

/// Shared access to bytes of an allocation, for as long as it lives.
pub struct Access<'a> {
    location: RwLockReadGuard<'a, BlockLocation>,
    range: Range<u64>,
}

impl Access<'_> {
    /// The region, as the memory wants it.
    pub fn region(&self) -> Region<'_> {
        Region::new(&self.location.raw, self.location.offset + self.range.start, self.range.end - self.range.start)
    }

    /// A part of the block, wherever this access begins.
    pub(crate) fn region_at(&self, range: &Range<u64>) -> Region<'_> {
        debug_assert!(self.range.start <= range.start && range.end <= self.range.end, "the access covers the range");
        Region::new(&self.location.raw, self.location.offset + range.start, range.end - range.start)
    }

    /// The raw block and the offset in it, to be kept beyond this access: submitted work needs them until it is done.
    pub fn raw(&self) -> (Arc<RawBlock>, u64) {
        (Arc::clone(&self.location.raw), self.location.offset + self.range.start)
    }
}

/// Exclusive access to bytes of an allocation, for as long as it lives.
pub struct AccessMut<'a> {
    location: RwLockWriteGuard<'a, BlockLocation>,
    range: Range<u64>,
}

impl AccessMut<'_> {
    /// The region, as the memory wants it. It borrows the access, so there is one at a time.
    pub fn region_mut(&mut self) -> RegionMut<'_> {
        RegionMut::new(&self.location.raw, self.location.offset + self.range.start, self.range.end - self.range.start)
    }

    /// A part of the block, wherever this access begins.
    pub(crate) fn region_mut_at(&mut self, range: &Range<u64>) -> RegionMut<'_> {
        debug_assert!(self.range.start <= range.start && range.end <= self.range.end, "the access covers the range");
        RegionMut::new(&self.location.raw, self.location.offset + range.start, range.end - range.start)
    }
}
