//! Memory blocks of a GPU: one wgpu buffer each.

use crate::scope::{buffer, check};
use crate::timeline::Timeline;
use kiln_device::Usage;
use kiln_device::memory::RawBlock;
use kiln_ir::{Error, ErrorKind, Result, error};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The content of a [`RawBlock`] of a GPU. Clones refer to the same buffer.
#[derive(Clone, Debug)]
pub(crate) struct Block(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    /// Unique among all blocks of the device, including freed ones, because bind groups are cached by it.
    id: u64,
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) usage: Usage,
    /// The newest submission that uses the buffer.
    last_submission: AtomicU64,
    /// Locked while the buffer is mapped, and while commands that use it are submitted: wgpu refuses to map a buffer
    /// twice, and to submit a mapped one. The value is true while the locking thread has it mapped. Reentrant, so that
    /// [`Block::lock`] can return an error instead of a deadlock.
    host: ReentrantMutex<Cell<bool>>,
}

impl Block {
    /// Creates a buffer of at least `bytes` bytes.
    pub(crate) fn create(timeline: &Timeline, bytes: u64, usage: Usage) -> Result<Self> {
        timeline.fault.check()?;
        // Mapping or copying the last bytes needs whole words.
        let size = bytes.max(1).next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let what = format_args!("allocate {bytes} bytes for {usage}");
        let buffer = check(&timeline.device, what, || buffer(&timeline.device, size, buffer_usages(usage)))?;
        // A lost device returns an invalid buffer without an error. Polling reports the loss.
        timeline.poll(wgpu::PollType::Poll)?;
        let (last_submission, host) = (AtomicU64::new(0), ReentrantMutex::default());
        let id = timeline.next_block_id();
        Ok(Self(Arc::new(Inner { id, buffer, usage, last_submission, host })))
    }

    /// Returns the id of the block, which no other block of the device ever has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the block in a raw block of a GPU.
    pub(crate) fn of(raw: &RawBlock) -> Result<&Self> {
        raw.downcast_ref()
            .ok_or_else(|| error!(InvalidArgument, "expected a block of GPU memory, found one of another device"))
    }

    /// Returns the newest submission that uses the buffer.
    pub(crate) fn last_submission(&self) -> u64 {
        // Acquire pairs with the release in `mark_used`, which runs after the submission.
        self.last_submission.load(Ordering::Acquire)
    }

    /// Records that a submission uses the buffer.
    pub(crate) fn mark_used(&self, submission: u64) {
        self.last_submission.fetch_max(submission, Ordering::AcqRel);
    }

    /// Locks the buffer against mapping and submission by other threads.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if this thread has the buffer mapped, where waiting would be a deadlock.
    pub(crate) fn lock(&self) -> Result<HostLock<'_>> {
        let guard = self.host.lock();
        if guard.get() {
            let message = "expected a buffer that is not mapped, found it mapped by an outer call on the same thread";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(HostLock(guard))
    }

    /// Returns the position of the block in the lock order. Code that locks several blocks locks them in this order.
    pub(crate) fn lock_rank(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

impl Drop for Inner {
    /// Frees the memory, even if a cached bind group still refers to the buffer.
    fn drop(&mut self) {
        self.buffer.destroy();
    }
}

impl Deref for Block {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The guard of [`Block::lock`].
pub(crate) struct HostLock<'a>(ReentrantMutexGuard<'a, Cell<bool>>);

impl HostLock<'_> {
    pub(crate) fn set_mapped(&self, mapped: bool) {
        self.0.set(mapped);
    }
}

fn buffer_usages(usage: Usage) -> wgpu::BufferUsages {
    use wgpu::BufferUsages as B;
    let storage = B::STORAGE | B::COPY_SRC | B::COPY_DST;
    match usage {
        Usage::Shared => storage | B::MAP_READ | B::MAP_WRITE,
        Usage::Upload => B::MAP_WRITE | B::COPY_SRC,
        Usage::Download => B::MAP_READ | B::COPY_DST,
        // Usages that are added later are device-only until they are handled here.
        _ => storage,
    }
}
