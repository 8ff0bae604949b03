//! Releases free memory: on request, under pressure, when idle, and by compacting live blocks.

use super::block::Block;
use super::config::PoolConfig;
use super::core::Core;
use super::reserve::Released;
use super::shard::{Counts, FreeList};
use super::slab::Moves;
use super::statistics::RecentActivity;
use crate::memory::{RawMemory, Region, RegionMut, Usage};
use crate::observe::CleanupReason;
use kiln_ir::Result;
use std::sync::Arc;

/// The result of [`Pool::defragment`](super::Pool::defragment).
///
/// See [`Released`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Live blocks that were moved.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes released to the driver: free blocks, and raw blocks emptied by the moves.
    pub released_bytes: u64,
}

impl<M: RawMemory + ?Sized> Core<M> {
    /// Releases free blocks until each class caches at most `keep` of them.
    pub(crate) fn release_free(&self, keep: u32) -> Released {
        self.collect_completed();
        let mut kept = vec![0; self.classes.group_count()];
        let mut released = Released::default();
        for mut shard in self.shards.each() {
            let mut blocks = Vec::new();
            for (usage, class, list) in shard.lists() {
                let kept = &mut kept[self.classes.group(usage, class)];
                // Cannot underflow: a list adds at most `keep - kept`.
                let keep_here = (keep - *kept).min(list.ready.len() as u32);
                *kept += keep_here;
                blocks.extend(self.remove_coldest(usage, class, list.ready.len() - keep_here as usize, list));
            }
            drop(shard);
            // With the shard unlocked, because freeing memory may call the driver.
            released += self.release(blocks);
        }
        released
    }

    /// Releases at least `bytes` bytes of free blocks, or all of them.
    pub(crate) fn release_bytes(&self, bytes: u64) -> Released {
        self.collect_completed();
        self.release_coldest(bytes, |_, _| {})
    }

    /// Releases `bytes` bytes of free blocks to make room for others. A class that needs them again soon gets more
    /// headroom.
    pub(crate) fn displace(&self, bytes: u64) {
        self.release_coldest(bytes, |group, blocks| self.demand.record_displaced(group, blocks));
    }

    /// Releases `bytes` bytes of free blocks, starting with the classes that served no request for the longest time.
    fn release_coldest(&self, bytes: u64, note: impl Fn(usize, u32)) -> Released {
        let mut released = Released::default();
        let mut candidates: Vec<(u64, usize, Usage, u16)> = Vec::new();
        for (index, mut shard) in self.shards.each().enumerate() {
            candidates.extend(shard.lists().filter_map(|(usage, class, list)| {
                (!list.ready.is_empty()).then_some((list.last_served, index, usage, class))
            }));
        }
        // The number of misses at the last use is the age of a list.
        candidates.sort_unstable();
        let mut displaced = 0;
        for (_, index, usage, class) in candidates {
            if displaced >= bytes {
                break;
            }
            let block_bytes = self.classes.bytes(class);
            let wanted = usize::try_from((bytes - displaced).div_ceil(block_bytes)).unwrap_or(usize::MAX);
            let mut shard = self.shards.lock(index);
            let Some(list) = shard.existing_list(usage, class) else { continue };
            let blocks = self.remove_coldest(usage, class, wanted, list);
            drop(shard);
            displaced += blocks.len() as u64 * block_bytes;
            note(self.classes.group(usage, class), blocks.len() as u32);
            released += self.release(blocks);
        }
        released
    }

    /// Releases all free memory, after the work that still uses it. If that work cannot complete because the device is
    /// lost, nothing uses the memory any more, and it is released as well.
    pub(crate) fn clear(&self) -> Result<Released> {
        let waited = self.pending.last_submission().map_or(Ok(()), |last| self.memory.wait(last));
        let mut released = Released::default();
        if waited.is_err() {
            released += self.release(self.pending.take_all());
        }
        released += self.cleanup(CleanupReason::Requested, || self.release_free(0));
        waited.map(|()| released)
    }

    /// Performs maintenance if the interval has passed since the last one, otherwise returns `None`.
    pub(crate) fn maintain_if_due(&self) -> Option<Released> {
        let is_due = self.maintenance.try_begin(self.settings.get().maintenance_interval);
        is_due.then(|| self.cleanup(CleanupReason::Idle, || self.sweep_idle()))
    }

    /// Releases memory that was not needed since the last sweep: all free blocks of unused classes, those of others
    /// down to the configured minimum.
    fn sweep_idle(&self) -> Released {
        self.collect_completed();
        let config = self.settings.get();
        // The first loop determines the demand of each class over all shards, the second releases blocks.
        let mut touched = vec![false; self.classes.group_count()];
        let mut idle = vec![0u32; self.classes.group_count()];
        let mut free = vec![0; self.classes.group_count()];
        // Before blocks are released, which returns their permits.
        let held: Vec<u32> = (0..free.len()).map(|group| self.demand.permits(group)).collect();
        let mut total = Counts::default();
        for mut shard in self.shards.each() {
            for (usage, class, list) in shard.lists() {
                total += list.counts;
                let group = self.classes.group(usage, class);
                touched[group] |= std::mem::take(&mut list.touched);
                idle[group] += list.min_free;
                free[group] += list.len();
            }
        }
        let mut released = Released::default();
        let mut kept_free = free;
        for mut shard in self.shards.each() {
            let mut blocks = Vec::new();
            for (usage, class, list) in shard.lists() {
                let group = self.classes.group(usage, class);
                let spare = if touched[group] {
                    list.min_free.min(kept_free[group].saturating_sub(config.min_kept_per_class))
                } else {
                    list.len()
                };
                let removed = self.remove_coldest(usage, class, spare as usize, list);
                kept_free[group] = kept_free[group].saturating_sub(removed.len() as u32);
                blocks.extend(removed);
                list.min_free = list.len();
                if !touched[group] && list.len() == 0 {
                    list.ready.shrink_to_fit();
                }
            }
            drop(shard);
            released += self.release(blocks);
        }
        for (group, (usage, class)) in self.classes.groups().enumerate() {
            if config.adaptive && !self.classes.is_direct(class) {
                // Blocks that were always free, and those that the limit would have allowed beyond the existing ones.
                let unused = self.demand.limit(group).saturating_sub(held[group]);
                self.follow_demand(usage, class, idle[group].saturating_add(unused));
            }
            self.demand.take_displaced(group);
            self.return_unused_permits(usage, class);
        }
        self.counters.begin_interval(RecentActivity::of(&total, &self.counters));
        self.occupancy.begin_interval(self.occupied());
        released
    }

    /// Removes free blocks from a list, with their permits.
    fn remove_coldest(&self, usage: Usage, class: u16, count: usize, list: &mut FreeList<M>) -> Vec<Arc<Block<M>>> {
        let blocks = list.remove_coldest(count);
        self.demand.return_permits(self.classes.group(usage, class), blocks.len() as u32);
        blocks
    }

    /// Applies new settings to what the pool already holds.
    pub(crate) fn enforce(&self, config: PoolConfig) {
        self.apply_config(&config);
        self.release_free(if config.pooling { config.max_cached_per_class } else { 0 });
        if self.budget.is_over() {
            self.release_free(0);
        } else if self.budget.is_pressured() {
            self.release_free(config.min_kept_per_class);
        }
        // Returns the permits of blocks in use, which were given under the old limit.
        self.classes.groups().for_each(|(usage, class)| self.return_unused_permits(usage, class));
        self.maintenance.wake();
    }

    /// Releases free blocks, then moves live blocks out of sparse slabs, which are released to the driver.
    pub(crate) fn defragment(&self) -> Result<Defragmented> {
        let mut done = Defragmented { released_bytes: self.release_free(0).bytes, ..Defragmented::default() };
        let completed = self.memory.completed();
        let plans = self.slabs.lock().plan_moves();
        for mut plan in plans {
            for block in std::mem::take(&mut plan.blocks) {
                if let Some(released) = self.move_block(&block, &mut plan, completed)? {
                    done.moved_blocks += 1;
                    done.moved_bytes += block.bytes;
                    done.released_bytes += released;
                }
            }
        }
        self.update_pressure();
        Ok(done)
    }

    /// Moves a block as planned, unless it is in use. Returns the bytes released to the driver.
    fn move_block(&self, block: &Arc<Block<M>>, plan: &mut Moves<M>, completed: u64) -> Result<Option<u64>> {
        // A block that is being accessed stays where it is: waiting for its holder could take arbitrarily long.
        let Some(mut location) = block.location.try_write() else { return Ok(None) };
        // With the location locked for writing: a submission that starts now waits for the lock, and sees the new
        // location.
        if block.is_pinned() || block.is_busy(completed) {
            return Ok(None);
        }
        // `release` has taken the slot: the block is being freed.
        let Some(from) = location.slot else { return Ok(None) };
        let Some((target, slot)) = self.slabs.lock().next_target(plan) else { return Ok(None) };
        let old = Region::new(&location.raw, location.offset, block.bytes);
        // The target slot was free, so nothing else accesses it.
        let new = RegionMut::new(&target.raw, target.offset, block.bytes);
        if let Err(error) = self.copy(old, new) {
            // Its reference to the raw block goes first, so that memory is freed before its bytes leave the budget.
            drop(target);
            self.free_slot(slot);
            return Err(error);
        }
        self.slabs.lock().claim(slot, block);
        *location = target;
        drop(location);
        Ok(Some(self.free_slot(from)))
    }

    fn copy(&self, from: Region<'_>, to: RegionMut<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        self.memory.map(from, &mut |from| bytes.extend_from_slice(from))?;
        self.memory.map_mut(to, &mut |to| to.copy_from_slice(&bytes))
    }
}
