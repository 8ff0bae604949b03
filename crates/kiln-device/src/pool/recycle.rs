//! Returns blocks: to the thread's free list, to the pending blocks, or to the driver.

use super::block::Block;
use super::core::Core;
use super::debug;
use super::shard::Shard;
use crate::memory::{RawMemory, Usage};
use kiln_ir::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl<M: RawMemory + ?Sized> Core<M> {
    /// Takes a block back after its last handle was dropped.
    pub(crate) fn recycle(block: Arc<Block<M>>) {
        let core = &block.core;
        // Before the block is visible to other threads.
        if core.settings.debug_checks() {
            debug::check_canary(&block);
            debug::poison(&block);
        }
        // Keeps the shard alive without borrowing the block, which is moved below.
        let shared = Arc::clone(core.shards.own_shared());
        let mut shard = shared.0.lock();
        let published = shard.count_returned(&block, block.requested.load(Relaxed), block.label.load(Relaxed));
        if let Some(change) = published {
            core.occupancy.publish(&change);
        }
        // Checked with the shard locked. `close` sets the flag, locks every shard, then takes the pending blocks, so
        // that it misses none.
        if core.pending.is_busy(&block) && !core.settings.is_closed() {
            let core = Arc::clone(core);
            let is_full = core.pending.push(block);
            core.occupancy.record_peak(core.occupied());
            drop(shard);
            if is_full {
                core.collect_completed();
            }
        } else if let Err(block) = Self::keep(&mut shard, block) {
            drop(shard);
            Self::keep_or_release(block);
        }
    }

    /// Moves pending blocks whose submissions are done to the free lists.
    pub(crate) fn collect_completed(&self) {
        let done = self.pending.take_done(&*self.memory);
        let count = done.len();
        for block in done {
            let kept = Self::keep(&mut self.shards.own(), block);
            if let Err(block) = kept {
                Self::keep_or_release(block);
            }
        }
        // After the blocks are in the free lists: `create_or_wait` gives up when all blocks are collected, and must be
        // able to find them by then.
        self.pending.count_collected(count);
    }

    /// Adds an unused block to the shard's free list. Returns it as an error if it may not be cached.
    pub(crate) fn keep(shard: &mut Shard<M>, block: Arc<Block<M>>) -> Result<(), Arc<Block<M>>> {
        let core = &block.core;
        // With the shard locked, so that closing the pool does not miss a block.
        if !core.may_keep(block.class) {
            return Err(block);
        }
        let list = shard.list(block.usage, block.class);
        if core.budget.is_pressured() && !core.may_keep_under_pressure(list.len()) {
            return Err(block);
        }
        // The shard keeps the permit of a block that it gives out, so that most returns do not touch the shared count.
        if list.len() >= list.permits {
            if !core.demand.take_permit(core.classes.group(block.usage, block.class)) {
                return Err(block);
            }
            list.permits += 1;
        }
        list.ready.push(block);
        Ok(())
    }

    /// Returns whether free blocks of the class are cached.
    pub(crate) fn may_keep(&self, class: u16) -> bool {
        self.settings.keeps_blocks() && !self.classes.is_direct(class)
    }

    /// Tries again with permits that other shards do not use, and releases the block if there are none.
    fn keep_or_release(mut block: Arc<Block<M>>) {
        let core = Arc::clone(&block.core);
        // With `u32::MAX` only the free bytes count; `keep` has already tried the minimum of the class.
        let has_room = !core.budget.is_pressured() || core.may_keep_under_pressure(u32::MAX);
        if core.may_keep(block.class) && has_room {
            core.return_unused_permits(block.usage, block.class);
            match Self::keep(&mut core.shards.own(), block) {
                Ok(()) => return,
                Err(refused) => block = refused,
            }
            // Only here: a block that is refused because of pressure says nothing about the limit of its class.
            core.demand.record_overflow(core.classes.group(block.usage, block.class));
        }
        core.release([block]);
    }

    pub(crate) fn return_unused_permits(&self, usage: Usage, class: u16) {
        for mut shard in self.shards.each() {
            if let Some(list) = shard.existing_list(usage, class) {
                // A shard keeps permits of blocks that it gave out, expecting them back.
                let unused = list.permits - list.len();
                list.permits -= unused;
                self.demand.return_permits(self.classes.group(usage, class), unused);
            }
        }
    }

    /// Stops caching and releases all free blocks.
    pub(crate) fn close(&self) {
        self.settings.close();
        // Running work does not matter: the driver keeps the memory that it uses alive, and no slot is allocated again.
        let mut blocks: Vec<_> = self
            .shards
            .each()
            .flat_map(|mut shard| {
                shard.lists().flat_map(|(_, _, list)| std::mem::take(&mut list.ready)).collect::<Vec<_>>()
            })
            .collect();
        blocks.extend(self.pending.take_all());
        self.release(blocks);
    }
}
