//! How a block returns: to the thread's free list, to those that work still touches, or to the driver.

use super::block::Block;
use super::core::Core;
use super::debug;
use super::shard::{InUse, Shard};
use crate::memory::{RawMemory, Usage};
use crate::observe::Happening;
use kiln_ir::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl<M: RawMemory + ?Sized> Core<M> {
    /// Takes a block back when its last handle went.
    pub(crate) fn give_back(block: Arc<Block<M>>) {
        let core = &block.core;
        if core.debug_checks {
            debug::check_canary(&block);
            debug::poison(&block);
        }
        let shared = Arc::clone(core.own_shared_shard());
        let mut shard = shared.0.lock();
        let published = shard.count_returned(&block, block.requested.load(Relaxed), block.label.load(Relaxed));
        if let Some(in_use) = published {
            core.publish(&in_use);
        }
        if core.pending.is_busy(&block) && !core.closed.load(Relaxed) {
            let core = Arc::clone(core);
            let is_full = core.pending.push(block);
            core.recent_peak.fetch_max(core.occupied() as i64, Relaxed);
            drop(shard);
            if is_full {
                core.settle();
            }
        } else if let Err(block) = Self::keep(&mut shard, block) {
            drop(shard);
            Self::keep_or_release(block);
        }
    }

    /// Puts free blocks whose submissions are done where requests find them.
    pub(crate) fn settle(&self) {
        let done = self.pending.take_done(&*self.memory);
        let count = done.len();
        for block in done {
            let kept = Self::keep(&mut self.own_shard(), block);
            if let Err(block) = kept {
                Self::keep_or_release(block);
            }
        }
        self.pending.note_settled(count);
    }

    /// Puts a block that no work touches into the shard's free list; gives it back where it may not be kept.
    pub(crate) fn keep(shard: &mut Shard<M>, block: Arc<Block<M>>) -> Result<(), Arc<Block<M>>> {
        let core = &block.core;
        // Under the lock of the shard, so that closing the pool misses no block.
        if !core.may_keep(block.class) {
            return Err(block);
        }
        let list = shard.list(block.usage, block.class);
        if core.is_pressured() && !core.may_keep_under_pressure(list.len()) {
            return Err(block);
        }
        if list.len() >= list.permits {
            if !core.take_permit(block.usage, block.class) {
                return Err(block);
            }
            list.permits += 1;
        }
        list.ready.push(block);
        Ok(())
    }

    /// Whether free blocks of the class are kept at all.
    pub(crate) fn may_keep(&self, class: u16) -> bool {
        !self.closed.load(Relaxed) && self.pooling.load(Relaxed) && !self.is_direct(class)
    }

    fn take_permit(&self, usage: Usage, class: u16) -> bool {
        let group = self.group(usage, class);
        let limit = group.limit.load(Relaxed);
        group.permits.fetch_update(Relaxed, Relaxed, |permits| (permits < limit).then_some(permits + 1)).is_ok()
    }

    /// Tries again with permits that other shards do not use; releases the block where there is none.
    fn keep_or_release(mut block: Arc<Block<M>>) {
        let core = Arc::clone(&block.core);
        let has_room = !core.is_pressured() || core.may_keep_under_pressure(u32::MAX);
        if core.may_keep(block.class) && has_room {
            core.return_unused_permits(block.usage, block.class);
            match Self::keep(&mut core.own_shard(), block) {
                Ok(()) => return,
                Err(refused) => block = refused,
            }
            core.group(block.usage, block.class).overflowed.fetch_add(1, Relaxed);
        }
        core.release([block]);
    }

    pub(crate) fn return_unused_permits(&self, usage: Usage, class: u16) {
        for mut shard in self.each_shard() {
            if let Some(list) = shard.existing_list(usage, class) {
                let unused = list.permits - list.len();
                list.permits -= unused;
                self.group(usage, class).permits.fetch_sub(unused, Relaxed);
            }
        }
    }

    pub(crate) fn publish(&self, in_use: &InUse) {
        let before = self.in_use.fetch_add(in_use.delta, Relaxed);
        let peak = before + in_use.high;
        self.peak_in_use.fetch_max(peak, Relaxed);
        self.recent_peak.fetch_max(peak, Relaxed);
    }

    /// Bytes in use as published: right to a quarter of a mebibyte per shard.
    pub(crate) fn published_in_use(&self) -> i64 {
        self.in_use.load(Relaxed)
    }

    /// Bytes that are in use or that submitted work may still touch.
    pub(crate) fn occupied(&self) -> u64 {
        self.published_in_use().max(0) as u64 + self.pending.bytes()
    }

    pub(crate) fn is_pressured(&self) -> bool {
        self.pressured.load(Relaxed)
    }

    pub(crate) fn set_pressured(&self, pressured: bool) {
        // Read on every return of a block: written only when it changes.
        if self.pressured.load(Relaxed) != pressured {
            self.pressured.store(pressured, Relaxed);
            self.tell(|| Happening::PoolPressure {
                begins: pressured,
                reserved_bytes: self.reserved.load(Relaxed),
                budget_bytes: self.budget.load(Relaxed),
            });
        }
    }

    /// From now on nothing is kept.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        // Work that still runs does not matter: the driver keeps what it touches, and no slot is lent any more.
        let mut blocks: Vec<_> = self
            .each_shard()
            .flat_map(|mut shard| {
                shard.lists().flat_map(|(_, _, list)| std::mem::take(&mut list.ready)).collect::<Vec<_>>()
            })
            .collect();
        blocks.extend(self.pending.take_all());
        self.release(blocks);
    }
}
