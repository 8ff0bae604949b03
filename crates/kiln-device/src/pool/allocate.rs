//! Serves requests.
//!
//! In this order: the thread's free list, completed submissions, other threads' free lists, a slot of a slab, the
//! driver.

use super::block::{Allocation, Block, BlockLocation};
use super::core::{Core, ResolvedRequest};
use super::debug;
use super::occupancy::Unpublished;
use super::request::BufferOptions;
use super::reserve::Refused;
use super::shard::Source;
use super::slab;
use super::strategy::ClassDemand;
use crate::memory::{RawBlock, RawMemory, Usage};
use crate::observe::nanos;
use kiln_ir::Result;
use std::sync::Arc;
use std::time::Instant;

const DIRECT_ALIGNMENT: u64 = 4096;

impl<M: RawMemory + ?Sized> Core<M> {
    pub(crate) fn allocate(self: &Arc<Self>, options: &BufferOptions<'_>) -> Result<Allocation<M>> {
        let (class, guarded) = self.class_of(options.bytes);
        let request = ResolvedRequest {
            bytes: options.bytes,
            usage: options.usage.unwrap_or(self.properties.default_usage),
            class,
            label: self.labels.id(options.label),
        };
        let mut shard = self.shards.own();
        let started = shard.is_sampled().then(Instant::now);
        let misses = self.demand.misses();
        if !self.classes.is_direct(class)
            && let Some((block, published)) = shard.take_ready(&request, misses)
        {
            if let Some(started) = started {
                shard.times.hit_nanos += nanos(started.elapsed());
                shard.times.hits += 1;
            }
            drop(shard);
            return Ok(self.finish_allocation(block, &request, published));
        }
        drop(shard);
        // With this shard unlocked, because the slow path locks other shards.
        let (block, source) = self.find_or_create(&request, guarded)?;
        let mut shard = self.shards.own();
        let published = shard.count_allocated(&block, &request, source);
        if let (Some(started), false) = (started, source == Source::Reused) {
            shard.times.miss_nanos += nanos(started.elapsed());
            shard.times.misses += 1;
        }
        drop(shard);
        Ok(self.finish_allocation(block, &request, published))
    }

    /// Returns the class of a request, and its bytes including the canary of the debug mode.
    ///
    /// A request whose class would exceed the budget, while the request itself fits, is allocated directly.
    pub(crate) fn class_of(&self, bytes: u64) -> (u16, u64) {
        let guarded = if self.settings.debug_checks() { bytes.saturating_add(debug::CANARY_BYTES) } else { bytes };
        let largest = self.budget.largest_block();
        let fits = |class: &u16| self.classes.bytes(*class) <= largest || guarded > largest;
        (self.classes.find(guarded).filter(fits).unwrap_or(self.classes.direct()), guarded)
    }

    fn finish_allocation(
        &self,
        block: Arc<Block<M>>,
        request: &ResolvedRequest,
        published: Option<Unpublished>,
    ) -> Allocation<M> {
        if let Some(change) = published {
            self.occupancy.publish(&change);
        }
        if self.settings.debug_checks() {
            debug::check_poison(&block);
            debug::place_canary(&block, request.bytes);
        }
        block.into_allocation(request.bytes, request.label)
    }

    /// Finds or creates a block after the thread's own free list was empty.
    fn find_or_create(
        self: &Arc<Self>,
        request: &ResolvedRequest,
        guarded_bytes: u64,
    ) -> Result<(Arc<Block<M>>, Source)> {
        self.collect_completed();
        if let Some(block) = self.find_reusable(request) {
            return Ok((block, Source::Reused));
        }
        self.record_miss(request);
        self.maintain_if_due();
        // Only pools that hold driver memory need the thread.
        self.maintenance.start(self);
        let reuse = || self.find_reusable(request).map(|block| (block, Source::Reused));
        self.create_or_wait(request, guarded_bytes, reuse)
    }

    /// Creates a block. If there is no room, waits for submitted work that still uses free blocks, because a block that
    /// becomes free a little later is as good as a new one. `reuse` may find one of them.
    pub(crate) fn create_or_wait(
        self: &Arc<Self>,
        request: &ResolvedRequest,
        guarded_bytes: u64,
        reuse: impl Fn() -> Option<(Arc<Block<M>>, Source)>,
    ) -> Result<(Arc<Block<M>>, Source)> {
        // Only waits for blocks that are pending now. Later ones would keep the loop running as long as other threads
        // submit work.
        let target = self.pending.pushed();
        loop {
            // Read before the attempt: blocks that are collected during it justify another attempt.
            let collected = self.pending.collected();
            match self.create_block(request, guarded_bytes) {
                Ok(made) => return Ok(made),
                Err(refused) if refused.is_retryable() && collected < target => self.wait_for_pending()?,
                Err(refused) => return Err(self.explain(request, refused)),
            }
            self.collect_completed();
            if let Some(found) = reuse() {
                return Ok(found);
            }
        }
    }

    fn find_reusable(&self, request: &ResolvedRequest) -> Option<Arc<Block<M>>> {
        if self.classes.is_direct(request.class) || !self.settings.keeps_blocks() {
            return None;
        }
        let largest = self.classes.strategy().largest_fit_bytes(self.classes.bytes(request.class));
        let larger =
            (request.class + 1..self.classes.direct()).take_while(|&class| self.classes.bytes(class) <= largest);
        std::iter::once(request.class).chain(larger).find_map(|class| self.find_free(request.usage, class))
    }

    /// Takes a free block of the class from any shard, together with half of that shard's blocks, so that the next
    /// requests of this thread hit.
    fn find_free(&self, usage: Usage, class: u16) -> Option<Arc<Block<M>>> {
        let misses = self.demand.misses();
        for (step, index) in self.shards.indices_from_own().enumerate() {
            // One shard is locked at a time, never two, so that threads that search each other's lists cannot deadlock.
            let mut shard = self.shards.lock(index);
            let Some(list) = shard.existing_list(usage, class) else { continue };
            if step == 0 {
                if let Some(block) = list.take(misses) {
                    return Some(block);
                }
                continue;
            }
            // Half of the blocks, so that two threads do not take single blocks from each other all the time.
            let mut blocks = list.remove_coldest(list.ready.len().div_ceil(2));
            list.last_served = misses;
            drop(shard);
            let Some(block) = blocks.pop() else { continue };
            let mut shard = self.shards.own();
            if !self.may_keep(class) {
                drop(shard);
                // The permits of these blocks left the other list with them, and no list takes them now.
                self.demand.return_permits(self.classes.group(usage, class), blocks.len() as u32 + 1);
                self.release(blocks);
                return Some(block);
            }
            let list = shard.list(usage, class);
            // The permits move with the blocks: `remove_coldest` took them from the other shard. The additional one is
            // for the returned block, which this thread is likely to free.
            list.permits += blocks.len() as u32 + 1;
            list.ready.append(&mut blocks);
            list.touched = true;
            list.last_served = misses;
            return Some(block);
        }
        None
    }

    pub(crate) fn create_block(
        self: &Arc<Self>,
        request: &ResolvedRequest,
        guarded: u64,
    ) -> Result<(Arc<Block<M>>, Source), Refused> {
        if self.classes.is_direct(request.class) {
            let bytes = self.direct_bytes(guarded);
            let raw = self.driver_block(bytes, request)?;
            return Ok((self.whole_block(request, bytes, raw), Source::Driver));
        }
        let bytes = self.classes.bytes(request.class);
        // Not in a closed pool, which frees slots while work may still use them.
        let divide = self.properties.divisible && bytes <= slab::MAX_SLOT_BYTES && self.may_keep(request.class);
        if !divide {
            let raw = self.driver_block(bytes, request)?;
            return Ok((self.whole_block(request, bytes, raw), Source::Driver));
        }
        let group = self.classes.group(request.usage, request.class);
        // The lock is released before the driver is called, which may block.
        let carved = self.slabs.lock().carve(group);
        let (location, source) = match carved {
            Some(location) => (location, Source::Carved),
            None => {
                let (raw, raw_bytes) = self.slab_block(bytes, request)?;
                (self.slabs.lock().add(group, raw, raw_bytes, bytes), Source::Driver)
            }
        };
        let slot = location.slot;
        let block = Arc::new(Block::new(Arc::clone(self), request.usage, request.class, bytes, location));
        if let Some(slot) = slot {
            // Until here the slot refers to no block, so a concurrent defragmentation skips it.
            self.slabs.lock().claim(slot, &block);
        }
        Ok((block, source))
    }

    /// Rounds up to whole pages if they fit the budget, otherwise to the copy alignment.
    fn direct_bytes(&self, guarded: u64) -> u64 {
        let round = |alignment| guarded.max(1).checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let largest = self.budget.largest_block();
        let pages = round(DIRECT_ALIGNMENT);
        if pages <= largest { pages } else { round(self.properties.copy_alignment) }
    }

    fn whole_block(self: &Arc<Self>, request: &ResolvedRequest, bytes: u64, raw: RawBlock) -> Arc<Block<M>> {
        let location = BlockLocation { raw: Arc::new(raw), offset: 0, slot: None };
        Arc::new(Block::new(Arc::clone(self), request.usage, request.class, bytes, location))
    }

    /// Records a miss, and raises limits if the pool recently released what is now requested.
    fn record_miss(&self, request: &ResolvedRequest) {
        let group = self.classes.group(request.usage, request.class);
        self.demand.record_miss(group);
        if self.demand.take_displaced(group) {
            self.occupancy.double_headroom();
        }
        if self.demand.has_overflowed(group) && self.settings.get().adaptive {
            self.follow_demand(request.usage, request.class, 0);
        }
    }

    /// Asks the strategy for the limit of a class, and resets its demand.
    pub(crate) fn follow_demand(&self, usage: Usage, class: u16, idle_blocks: u32) {
        let config = self.settings.get();
        let class_bytes = self.classes.bytes(class);
        let highest_limit = config.highest_limit(class_bytes, self.budget.limit());
        self.demand.decide_limit(self.classes.group(usage, class), |seen| {
            let demand = ClassDemand {
                class_bytes,
                configured_limit: config.max_cached_per_class,
                highest_limit,
                current_limit: seen.current_limit,
                overflowed: u64::from(seen.overflowed),
                missed: u64::from(seen.missed),
                idle_blocks,
            };
            self.classes.strategy().cached_limit(&demand).min(highest_limit)
        });
    }
}
