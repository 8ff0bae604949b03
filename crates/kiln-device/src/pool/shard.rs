//! A thread's share of a pool: free lists and counters under a lock that is rarely contended.
//!
//! Threads use different shards, so that those that use the same class share no cache line. The limit of a class holds
//! over all shards: a shard needs a permit to cache a block, and keeps its permits while its blocks come and go.

use super::block::Block;
use super::core::ResolvedRequest;
use super::occupancy::Unpublished;
use crate::memory::{RawMemory, Usage};
use std::sync::Arc;

/// One lookup in this many is timed.
const SAMPLE_EVERY: u64 = 64;

pub(crate) struct Shard<M: RawMemory + ?Sized> {
    classes: u16,
    /// For each usage, created at its first use: one list per class, and one for direct blocks.
    lists: [Box<[FreeList<M>]>; Usage::ALL.len()],
    pub(crate) labels: Vec<LabelCount>,
    pub(crate) in_use: Unpublished,
    pub(crate) times: Times,
    /// The bytes by which the count may differ from the published one, so that most operations stay local.
    pub(crate) publish_bytes: i64,
    operations: u64,
}

/// Free blocks of one class and usage in one shard, with their counters.
pub(crate) struct FreeList<M: RawMemory + ?Sized> {
    /// A stack: the block that was returned last is reused first.
    pub(crate) ready: Vec<Arc<Block<M>>>,
    /// The number of blocks that this shard may cache in this list.
    pub(crate) permits: u32,
    /// The fewest free blocks since the last maintenance; this many were not needed.
    pub(crate) min_free: u32,
    /// Whether the class was requested since the last maintenance.
    pub(crate) touched: bool,
    /// The pool's number of misses when this list last served a request.
    pub(crate) last_served: u64,
    pub(crate) counts: Counts,
}

/// Counters of one list. Allocations and returns are counted in the shard of their thread, so the difference may be
/// negative in one shard.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) reused: u64,
    pub(crate) carved: u64,
    pub(crate) driver: u64,
    pub(crate) live_blocks: i64,
    pub(crate) live_bytes: i64,
    pub(crate) requested_bytes: i64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct LabelCount {
    pub(crate) blocks: i64,
    pub(crate) bytes: i64,
}

/// Sampled durations.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) hit_nanos: u64,
    pub(crate) hits: u64,
    pub(crate) miss_nanos: u64,
    pub(crate) misses: u64,
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// By a block that was allocated before.
    Reused,
    /// By a slot of a raw block that the pool already had.
    Carved,
    /// By the driver.
    Driver,
}

impl<M: RawMemory + ?Sized> Shard<M> {
    pub(crate) fn new(classes: u16) -> Self {
        Self {
            classes,
            lists: std::array::from_fn(|_| Box::default()),
            labels: Vec::new(),
            in_use: Unpublished::default(),
            times: Times::default(),
            // Publishes every change until `apply_config` sets the step.
            publish_bytes: 0,
            operations: 0,
        }
    }

    #[inline]
    pub(crate) fn list(&mut self, usage: Usage, class: u16) -> &mut FreeList<M> {
        if self.lists[usage as usize].is_empty() {
            self.create_lists(usage);
        }
        &mut self.lists[usage as usize][usize::from(class)]
    }

    #[cold]
    fn create_lists(&mut self, usage: Usage) {
        self.lists[usage as usize] = (0..=self.classes).map(|_| FreeList::new()).collect();
    }

    /// Returns the list, or `None` if its usage never occurred in this shard.
    pub(crate) fn existing_list(&mut self, usage: Usage, class: u16) -> Option<&mut FreeList<M>> {
        self.lists[usage as usize].get_mut(usize::from(class))
    }

    /// Returns every list that exists, with its usage and class.
    pub(crate) fn lists(&mut self) -> impl Iterator<Item = (Usage, u16, &mut FreeList<M>)> {
        Usage::ALL.into_iter().zip(&mut self.lists).flat_map(|(usage, lists)| {
            lists.iter_mut().enumerate().map(move |(class, list)| (usage, class as u16, list))
        })
    }

    /// Returns whether this lookup is timed.
    #[inline]
    pub(crate) fn is_sampled(&mut self) -> bool {
        self.operations += 1;
        // 1 and not 0, so that the first operation is timed.
        self.operations % SAMPLE_EVERY == 1
    }

    /// Takes the block of the class that was returned last, and counts it. This is the hot path: one list, looked up
    /// once.
    #[inline]
    pub(crate) fn take_ready(
        &mut self,
        request: &ResolvedRequest,
        misses: u64,
    ) -> Option<(Arc<Block<M>>, Option<Unpublished>)> {
        let list = self.list(request.usage, request.class);
        let block = list.take(misses)?;
        list.counts.reused += 1;
        let bytes = list.counts.count_use(&block, request.bytes, 1);
        Some((block, self.count_bytes(request.label, bytes, 1)))
    }

    /// Counts a block as allocated. Returns the bytes to publish, if any.
    pub(crate) fn count_allocated(
        &mut self,
        block: &Block<M>,
        request: &ResolvedRequest,
        source: Source,
    ) -> Option<Unpublished> {
        let counts = &mut self.list(block.usage, block.class).counts;
        match source {
            Source::Reused => counts.reused += 1,
            Source::Carved => counts.carved += 1,
            Source::Driver => counts.driver += 1,
        }
        let bytes = counts.count_use(block, request.bytes, 1);
        self.count_bytes(request.label, bytes, 1)
    }

    /// Counts a block as returned. Returns the bytes to publish, if any.
    #[inline]
    pub(crate) fn count_returned(&mut self, block: &Block<M>, requested: u64, label: u32) -> Option<Unpublished> {
        let bytes = self.list(block.usage, block.class).counts.count_use(block, requested, -1);
        self.count_bytes(label, bytes, -1)
    }

    #[inline]
    fn count_bytes(&mut self, label: u32, bytes: i64, sign: i64) -> Option<Unpublished> {
        let label = label as usize;
        if label >= self.labels.len() {
            self.grow_labels(label + 1);
        }
        self.labels[label].blocks += sign;
        self.labels[label].bytes += bytes;
        self.in_use.add(bytes, self.publish_bytes)
    }

    #[cold]
    fn grow_labels(&mut self, len: usize) {
        self.labels.resize(len, LabelCount::default());
    }
}

impl Counts {
    /// Counts a block as allocated or, with a sign of -1, as returned. Returns its bytes with the sign.
    #[inline]
    fn count_use<M: RawMemory + ?Sized>(&mut self, block: &Block<M>, requested: u64, sign: i64) -> i64 {
        let bytes = block.bytes as i64 * sign;
        self.live_blocks += sign;
        self.live_bytes += bytes;
        self.requested_bytes += requested as i64 * sign;
        bytes
    }

    pub(crate) fn requests(&self) -> u64 {
        self.reused + self.carved + self.driver
    }
}

impl<M: RawMemory + ?Sized> FreeList<M> {
    fn new() -> Self {
        Self { ready: Vec::new(), permits: 0, min_free: 0, touched: false, last_served: 0, counts: Counts::default() }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.ready.len() as u32
    }

    /// Takes the block that was returned last, whose bytes are most likely in the CPU cache.
    #[inline]
    pub(crate) fn take(&mut self, misses: u64) -> Option<Arc<Block<M>>> {
        self.touched = true;
        self.last_served = misses;
        let block = self.ready.pop();
        self.min_free = self.min_free.min(self.len());
        block
    }

    /// Removes up to `count` free blocks, the least recently returned first, with their permits.
    pub(crate) fn remove_coldest(&mut self, count: usize) -> Vec<Arc<Block<M>>> {
        let count = count.min(self.ready.len());
        self.permits -= count as u32;
        let blocks = self.ready.drain(..count).collect();
        self.min_free = self.min_free.min(self.len());
        blocks
    }
}
