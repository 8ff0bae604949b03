//! Free blocks that submitted work may still touch. They take no part in limits until the work is done.

use super::block::Block;
use crate::memory::RawMemory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// All such blocks of a pool.
pub(crate) struct Pending<M: RawMemory + ?Sized> {
    /// In the order in which they were freed, which is about that of their submissions.
    blocks: Mutex<VecDeque<Arc<Block<M>>>>,
    /// How many there are, to pass by without the lock.
    count: AtomicU64,
    /// Their bytes.
    bytes: AtomicU64,
    /// How many were ever kept here, and how many of them went where requests find them.
    pushed: AtomicU64,
    settled: AtomicU64,
    /// The newest submission that is known to be done.
    completed: AtomicU64,
}

/// The driver is asked for progress once for so many blocks.
const SETTLE_EVERY: usize = 32;

impl<M: RawMemory + ?Sized> Pending<M> {
    pub(crate) fn new() -> Self {
        Self {
            blocks: Mutex::new(VecDeque::new()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            completed: AtomicU64::new(0),
        }
    }

    /// Whether submitted work may still touch a block, without asking the driver.
    pub(crate) fn is_busy(&self, block: &Block<M>) -> bool {
        block.is_busy(self.completed.load(Relaxed))
    }

    /// Keeps a busy block. Says whether it is time to look which ones are done.
    pub(crate) fn push(&self, block: Arc<Block<M>>) -> bool {
        let mut blocks = self.blocks.lock();
        self.bytes.fetch_add(block.bytes, Relaxed);
        self.pushed.fetch_add(1, Relaxed);
        blocks.push_back(block);
        self.count.store(blocks.len() as u64, Relaxed);
        blocks.len().is_multiple_of(SETTLE_EVERY)
    }

    /// Takes blocks from the front whose work is done. One behind a busy block waits for that as well: looking at all of
    /// them on every request would cost more than it finds.
    pub(crate) fn take_done(&self, memory: &M) -> Vec<Arc<Block<M>>> {
        if self.count.load(Relaxed) == 0 {
            return Vec::new();
        }
        let completed = memory.completed();
        self.completed.fetch_max(completed, Relaxed);
        let mut blocks = self.blocks.lock();
        let count = blocks.iter().take_while(|block| !block.is_busy(completed)).count();
        let done: Vec<Arc<Block<M>>> = blocks.drain(..count).collect();
        self.bytes.fetch_sub(done.iter().map(|block| block.bytes).sum(), Relaxed);
        self.count.store(blocks.len() as u64, Relaxed);
        if blocks.is_empty() {
            blocks.shrink_to_fit();
        }
        done
    }

    /// Takes all blocks, whatever touches them.
    pub(crate) fn take_all(&self) -> Vec<Arc<Block<M>>> {
        let mut blocks = self.blocks.lock();
        self.count.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.settled.fetch_add(blocks.len() as u64, Relaxed);
        std::mem::take(&mut *blocks).into()
    }

    /// The submission after which [`take_done`](Self::take_done) finds at least one block.
    pub(crate) fn next_submission(&self) -> Option<u64> {
        self.blocks.lock().front().map(|block| block.last_use.load(Relaxed))
    }

    /// The submission after which all blocks are done.
    pub(crate) fn last_submission(&self) -> Option<u64> {
        self.blocks.lock().iter().map(|block| block.last_use.load(Relaxed)).max()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.pushed.load(Relaxed)
    }

    /// How many of them, the first ones, are where requests find them, or gone.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Relaxed)
    }

    /// Notes that blocks of [`take_done`](Self::take_done) are where requests find them.
    pub(crate) fn note_settled(&self, count: usize) {
        self.settled.fetch_add(count as u64, Relaxed);
    }
}
