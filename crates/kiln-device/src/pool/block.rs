//! Blocks, and the handles through which the pool allocates them.

use super::core::Core;
use crate::memory::{RawBlock, RawMemory, Region, RegionMut, Usage};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// A block of memory that the pool allocates and reuses as a whole.
///
/// It holds its pool permanently, so that allocation and return touch no shared reference count. The reference cycle
/// through the free lists is broken when the pool's last handle is dropped.
pub(crate) struct Block<M: RawMemory + ?Sized> {
    pub(crate) core: Arc<Core<M>>,
    pub(crate) usage: Usage,
    /// Index of the class; `ClassTable::direct` for a block larger than all classes.
    pub(crate) class: u16,
    pub(crate) bytes: u64,
    /// The location of the block. Locked for reading or writing while the bytes are accessed, and for writing while the
    /// block is moved.
    pub(crate) location: RwLock<BlockLocation>,
    /// The number of handles; zero while the block is free. 64 bits, so that leaked handles cannot overflow it.
    handles: AtomicU64,
    pub(crate) requested: AtomicU64,
    pub(crate) label: AtomicU32,
    /// The newest submission that uses the block; zero if there is none.
    pub(crate) last_use: AtomicU64,
    /// Submissions in progress that use the block and have no number yet. While there are any, the block must not be
    /// moved.
    pins: AtomicU32,
    /// Locked while a part of a word is written, which also rewrites neighbouring bytes.
    pub(crate) partial_word_lock: Mutex<()>,
    /// Whether the debug mode poisoned the block when it was freed.
    pub(crate) poisoned: AtomicBool,
}

/// The location of a block: a whole raw block, or a slot of a divided one.
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
            partial_word_lock: Mutex::new(()),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Returns whether submitted work may still use the block.
    pub(crate) fn is_busy(&self, completed: u64) -> bool {
        self.last_use.load(Ordering::Acquire) > completed
    }

    /// Returns whether the block must not be moved. Call it with the location locked: a submission pins the block
    /// before it reads the location.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    /// Creates the first handle of a free block.
    pub(crate) fn into_allocation(self: Arc<Self>, requested: u64, label: u32) -> Allocation<M> {
        // Relaxed: the lock of the free list orders these stores after the accesses of the previous holder.
        self.requested.store(requested, Ordering::Relaxed);
        self.label.store(label, Ordering::Relaxed);
        self.last_use.store(0, Ordering::Relaxed);
        self.handles.store(1, Ordering::Relaxed);
        Allocation { block: Some(self) }
    }
}

/// A shared handle to memory of the pool. The block returns to the pool when the last clone is dropped.
///
/// ```
/// use kiln_device::{NullDevice, RawMemory};
///
/// let device = NullDevice::new().into_device()?;
/// let allocation = device.pool().allocate(64)?;
/// let mut access = allocation.access_mut(0..16);
/// allocation.memory().map_mut(access.region_mut(), &mut |bytes| bytes.fill(7))?;
/// drop(access);
/// let access = allocation.access(0..16);
/// allocation.memory().map(access.region(), &mut |bytes| assert_eq!(bytes, [7u8; 16]))?;
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub struct Allocation<M: RawMemory + ?Sized> {
    /// `None` only during drop.
    block: Option<Arc<Block<M>>>,
}

impl<M: RawMemory + ?Sized> Allocation<M> {
    pub(crate) fn block(&self) -> &Arc<Block<M>> {
        self.block.as_ref().expect("an allocation holds its block until it is dropped")
    }

    /// Returns the requested bytes.
    pub fn bytes(&self) -> u64 {
        self.block().requested.load(Ordering::Relaxed)
    }

    /// Returns the size of the block in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.block().bytes
    }

    /// Returns the usage of the memory.
    pub fn usage(&self) -> Usage {
        self.block().usage
    }

    /// Returns the memory that the block belongs to.
    pub fn memory(&self) -> &M {
        &self.block().core.memory
    }

    /// Locks a range of bytes for shared access: other threads may read them, but not write or move them.
    ///
    /// Blocks while someone holds exclusive access. If this thread holds it, the call deadlocks.
    ///
    /// # Panics
    /// Panics if the range is outside the block.
    pub fn access(&self, range: Range<u64>) -> Access<'_> {
        check_range(&range, self.block().bytes);
        Access { location: self.block().location.read(), range }
    }

    /// Locks a range of bytes for exclusive access. Waits as [`access`](Self::access) does.
    ///
    /// # Panics
    /// Panics if the range is outside the block.
    pub fn access_mut(&self, range: Range<u64>) -> AccessMut<'_> {
        check_range(&range, self.block().bytes);
        AccessMut { location: self.block().location.write(), range }
    }

    /// Keeps the block from being moved until [`unpin`](Self::unpin).
    pub(crate) fn pin(&self) {
        self.block().pins.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unpin(&self) {
        // Pairs with the acquire in `is_pinned`: a thread that finds no pin also sees the `mark_used` before it.
        self.block().pins.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records that `submission` uses the block, so that it is not reused before that submission is done.
    /// [`Device`](crate::Device) does this itself; it is for code that submits work on its own memory.
    pub fn mark_used(&self, submission: u64) {
        // The maximum, because threads may mark their submissions in any order.
        self.block().last_use.fetch_max(submission, Ordering::AcqRel);
    }

    /// Returns the newest submission that uses the block, or zero if there is none.
    pub fn last_use(&self) -> u64 {
        self.block().last_use.load(Ordering::Acquire)
    }

    /// Returns whether both are handles to the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.block(), other.block())
    }

    /// Returns the position in the lock order. Code that locks several allocations locks them in this order.
    pub(crate) fn lock_rank(&self) -> *const () {
        // The address is stable while a handle exists, and orders all blocks of all pools.
        Arc::as_ptr(self.block()).cast()
    }
}

fn check_range(range: &Range<u64>, bytes: u64) {
    assert!(range.start <= range.end && range.end <= bytes, "access to {range:?} of a block of {bytes} bytes");
}

impl<M: RawMemory + ?Sized> Clone for Allocation<M> {
    fn clone(&self) -> Self {
        let block = self.block();
        // Relaxed, as for any reference count: the existing handle keeps the block alive.
        block.handles.fetch_add(1, Ordering::Relaxed);
        Self { block: Some(Arc::clone(block)) }
    }
}

impl<M: RawMemory + ?Sized> Drop for Allocation<M> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        if block.handles.fetch_sub(1, Ordering::Release) == 1 {
            // Pairs with the release above: accesses through all other handles happen before the block is reused.
            fence(Ordering::Acquire);
            Core::recycle(block);
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

/// Shared access to bytes of an allocation.
///
/// Returned by [`Allocation::access`]; see [`Allocation`] for an example.
pub struct Access<'a> {
    location: RwLockReadGuard<'a, BlockLocation>,
    range: Range<u64>,
}

impl Access<'_> {
    /// Returns the region for the memory interface.
    pub fn region(&self) -> Region<'_> {
        Region::new(&self.location.raw, self.location.offset + self.range.start, self.range.end - self.range.start)
    }

    /// Returns the region of another range, relative to the block.
    pub(crate) fn region_at(&self, range: &Range<u64>) -> Region<'_> {
        debug_assert!(self.range.start <= range.start && range.end <= self.range.end, "the access covers the range");
        Region::new(&self.location.raw, self.location.offset + range.start, range.end - range.start)
    }

    /// Returns the raw block and the offset in it. They may outlive this access, because submitted work needs them
    /// until it is done.
    pub fn raw(&self) -> (Arc<RawBlock>, u64) {
        (Arc::clone(&self.location.raw), self.location.offset + self.range.start)
    }
}

/// Exclusive access to bytes of an allocation.
///
/// Returned by [`Allocation::access_mut`]; see [`Allocation`] for an example.
pub struct AccessMut<'a> {
    location: RwLockWriteGuard<'a, BlockLocation>,
    range: Range<u64>,
}

impl AccessMut<'_> {
    /// Returns the region for the memory interface. It borrows the access, so that there is only one at a time.
    pub fn region_mut(&mut self) -> RegionMut<'_> {
        RegionMut::new(&self.location.raw, self.location.offset + self.range.start, self.range.end - self.range.start)
    }

    /// Returns the region of another range, relative to the block.
    pub(crate) fn region_mut_at(&mut self, range: &Range<u64>) -> RegionMut<'_> {
        debug_assert!(self.range.start <= range.start && range.end <= self.range.end, "the access covers the range");
        RegionMut::new(&self.location.raw, self.location.offset + range.start, range.end - range.start)
    }
}
