//! Pending blocks: free blocks that submitted work may still use. They do not count towards limits until the work is
//! done.

use super::block::Block;
use crate::memory::RawMemory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The pending blocks of a pool.
pub(crate) struct Pending<M: RawMemory + ?Sized> {
    /// In the order in which they were freed, which is roughly that of their submissions.
    blocks: Mutex<VecDeque<Arc<Block<M>>>>,
    /// The number of blocks, to skip the lock if there are none.
    count: AtomicU64,
    /// Their bytes.
    bytes: AtomicU64,
    /// The number of blocks ever added, and how many of them are ready for reuse or released.
    pushed: AtomicU64,
    collected: AtomicU64,
    /// The newest submission that is known to be done.
    completed: AtomicU64,
}

/// The driver is polled for progress once for this many blocks.
const POLL_EVERY: usize = 32;

impl<M: RawMemory + ?Sized> Pending<M> {
    pub(crate) fn new() -> Self {
        Self {
            blocks: Mutex::new(VecDeque::new()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            collected: AtomicU64::new(0),
            completed: AtomicU64::new(0),
        }
    }

    /// Returns whether submitted work may still use a block, without polling the driver.
    pub(crate) fn is_busy(&self, block: &Block<M>) -> bool {
        // An old value is safe: a block whose work is already done becomes pending and is collected later.
        block.is_busy(self.completed.load(Relaxed))
    }

    /// Adds a busy block. Returns whether it is time to check which blocks are done.
    pub(crate) fn push(&self, block: Arc<Block<M>>) -> bool {
        let mut blocks = self.blocks.lock();
        self.bytes.fetch_add(block.bytes, Relaxed);
        self.pushed.fetch_add(1, Relaxed);
        blocks.push_back(block);
        self.count.store(blocks.len() as u64, Relaxed);
        blocks.len().is_multiple_of(POLL_EVERY)
    }

    /// Takes the blocks at the front whose work is done. A block after a busy one waits for it as well, because
    /// checking all blocks on every request would cost more than it gains.
    pub(crate) fn take_done(&self, memory: &M) -> Vec<Arc<Block<M>>> {
        if self.count.load(Relaxed) == 0 {
            return Vec::new();
        }
        // Before the lock is taken, because a GPU is polled here.
        let completed = memory.completed();
        self.completed.fetch_max(completed, Relaxed);
        let mut blocks = self.blocks.lock();
        let count = blocks.iter().take_while(|block| !block.is_busy(completed)).count();
        let done: Vec<Arc<Block<M>>> = blocks.drain(..count).collect();
        self.bytes.fetch_sub(done.iter().map(|block| block.bytes).sum(), Relaxed);
        self.count.store(blocks.len() as u64, Relaxed);
        if blocks.is_empty() {
            // A burst may have grown the queue far beyond its usual size.
            blocks.shrink_to_fit();
        }
        done
    }

    /// Takes all blocks, whatever uses them.
    pub(crate) fn take_all(&self) -> Vec<Arc<Block<M>>> {
        let mut blocks = self.blocks.lock();
        self.count.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.collected.fetch_add(blocks.len() as u64, Relaxed);
        std::mem::take(&mut *blocks).into()
    }

    /// Returns the submission after which [`take_done`](Self::take_done) finds at least one block.
    pub(crate) fn next_submission(&self) -> Option<u64> {
        self.blocks.lock().front().map(|block| block.last_use.load(Relaxed))
    }

    /// Returns the submission after which all blocks are done.
    pub(crate) fn last_submission(&self) -> Option<u64> {
        self.blocks.lock().iter().map(|block| block.last_use.load(Relaxed)).max()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.pushed.load(Relaxed)
    }

    /// Returns how many of the added blocks are ready for reuse or released. They leave in the order of addition.
    pub(crate) fn collected(&self) -> u64 {
        self.collected.load(Relaxed)
    }

    /// Counts blocks of [`take_done`](Self::take_done) as ready for reuse.
    pub(crate) fn count_collected(&self, count: usize) {
        self.collected.fetch_add(count as u64, Relaxed);
    }
}
