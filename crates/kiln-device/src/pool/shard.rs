//! One thread's share of a pool: free lists and counters behind a lock that is almost always free.
//!
//! Threads use shards of their own, so those that use one class share no cache line. The limit of a class holds over all
//! shards: a shard caches a block only with a permit, and keeps its permits while its blocks come and go.

use super::block::Block;
use super::core::Want;
use super::occupancy::Unpublished;
use crate::memory::{RawMemory, Usage};
use std::sync::Arc;

/// One lookup in this many is timed.
const SAMPLE_EVERY: u64 = 64;

pub(crate) struct Shard<M: RawMemory + ?Sized> {
    classes: u16,
    /// For each usage, made when it is first used: one list per class, and one for direct blocks.
    lists: [Box<[FreeList<M>]>; Usage::ALL.len()],
    pub(crate) labels: Vec<LabelCount>,
    pub(crate) in_use: Unpublished,
    pub(crate) times: Times,
    /// How far the bytes in use may stray from what was published, so that the common case stays local.
    pub(crate) publish_bytes: i64,
    operations: u64,
}

/// Free blocks of one class and usage in one shard, with what happened to them.
pub(crate) struct FreeList<M: RawMemory + ?Sized> {
    /// The last returned is the first to go.
    pub(crate) ready: Vec<Arc<Block<M>>>,
    /// Blocks that this shard may keep in this list.
    pub(crate) permits: u32,
    /// The fewest free blocks since the last maintenance: as many were not needed.
    pub(crate) low_water: u32,
    /// Whether anyone asked for this class since the last maintenance.
    pub(crate) touched: bool,
    /// Count of the pool's misses when this list last served someone.
    pub(crate) last_served: u64,
    pub(crate) counts: Counts,
}

/// What happened in one list. Lent and returned are counted where they happen, so one shard's difference can be negative.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) reused: u64,
    pub(crate) carved: u64,
    pub(crate) driver: u64,
    pub(crate) lent_blocks: i64,
    pub(crate) lent_bytes: i64,
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
    /// A block that was lent before.
    Reused,
    /// A slot of a raw block that the pool already had.
    Carved,
    /// The driver.
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
            publish_bytes: 0,
            operations: 0,
        }
    }

    #[inline]
    pub(crate) fn list(&mut self, usage: Usage, class: u16) -> &mut FreeList<M> {
        if self.lists[usage as usize].is_empty() {
            self.make_lists(usage);
        }
        &mut self.lists[usage as usize][usize::from(class)]
    }

    #[cold]
    fn make_lists(&mut self, usage: Usage) {
        self.lists[usage as usize] = (0..=self.classes).map(|_| FreeList::new()).collect();
    }

    /// The list, unless nothing of its usage ever happened here.
    pub(crate) fn existing_list(&mut self, usage: Usage, class: u16) -> Option<&mut FreeList<M>> {
        self.lists[usage as usize].get_mut(usize::from(class))
    }

    /// Every list that exists, with its usage and class.
    pub(crate) fn lists(&mut self) -> impl Iterator<Item = (Usage, u16, &mut FreeList<M>)> {
        Usage::ALL.into_iter().zip(&mut self.lists).flat_map(|(usage, lists)| {
            lists.iter_mut().enumerate().map(move |(class, list)| (usage, class as u16, list))
        })
    }

    /// Whether this lookup is one of those that are timed.
    #[inline]
    pub(crate) fn is_sampled(&mut self) -> bool {
        self.operations += 1;
        self.operations % SAMPLE_EVERY == 1
    }

    /// Takes the block of the class that was returned last, and counts it as lent. The warm path: one list, looked up once.
    #[inline]
    pub(crate) fn lend_ready(&mut self, want: &Want, misses: u64) -> Option<(Arc<Block<M>>, Option<Unpublished>)> {
        let list = self.list(want.usage, want.class);
        let block = list.take(misses)?;
        list.counts.reused += 1;
        let bytes = list.counts.count_use(&block, want.bytes, 1);
        Some((block, self.count_bytes(want.label, bytes, 1)))
    }

    /// Counts a block as lent. Returns bytes to publish, where it is time to.
    pub(crate) fn count_lent(&mut self, block: &Block<M>, want: &Want, source: Source) -> Option<Unpublished> {
        let counts = &mut self.list(block.usage, block.class).counts;
        match source {
            Source::Reused => counts.reused += 1,
            Source::Carved => counts.carved += 1,
            Source::Driver => counts.driver += 1,
        }
        let bytes = counts.count_use(block, want.bytes, 1);
        self.count_bytes(want.label, bytes, 1)
    }

    /// Counts a block as returned. Returns bytes to publish, where it is time to.
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
    /// Counts a block as lent or, with a sign of -1, as returned. Returns its bytes with the sign.
    #[inline]
    fn count_use<M: RawMemory + ?Sized>(&mut self, block: &Block<M>, requested: u64, sign: i64) -> i64 {
        let bytes = block.bytes as i64 * sign;
        self.lent_blocks += sign;
        self.lent_bytes += bytes;
        self.requested_bytes += requested as i64 * sign;
        bytes
    }

    pub(crate) fn requests(&self) -> u64 {
        self.reused + self.carved + self.driver
    }
}

impl<M: RawMemory + ?Sized> FreeList<M> {
    fn new() -> Self {
        Self { ready: Vec::new(), permits: 0, low_water: 0, touched: false, last_served: 0, counts: Counts::default() }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.ready.len() as u32
    }

    /// Takes the block that was returned last: its bytes are the warmest.
    #[inline]
    pub(crate) fn take(&mut self, misses: u64) -> Option<Arc<Block<M>>> {
        self.touched = true;
        self.last_served = misses;
        let block = self.ready.pop();
        self.low_water = self.low_water.min(self.len());
        block
    }

    /// Removes up to `count` ready blocks, the coldest first, with their permits.
    pub(crate) fn remove_coldest(&mut self, count: usize) -> Vec<Arc<Block<M>>> {
        let count = count.min(self.ready.len());
        self.permits -= count as u32;
        let blocks = self.ready.drain(..count).collect();
        self.low_water = self.low_water.min(self.len());
        blocks
    }
}
