//! Giving free memory back: on demand, under pressure, when idle, and by moving live blocks together.

use super::block::Block;
use super::config::PoolConfig;
use super::core::Core;
use super::reserve::Released;
use super::shard::{Counts, FreeList};
use super::slab::Moves;
use crate::memory::{RawMemory, Region, RegionMut, Usage};
use crate::observe::CleanupReason;
use kiln_ir::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What [`Pool::defragment`](super::Pool::defragment) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Live blocks that were moved together.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes that went back to the driver: free blocks, and raw blocks that the moves emptied.
    pub released_bytes: u64,
}

impl<M: RawMemory + ?Sized> Core<M> {
    /// Releases free blocks whose work is done until each class keeps at most `keep` of them.
    pub(crate) fn release_free(&self, keep: u32) -> Released {
        self.settle();
        let mut kept = vec![0; self.group_count()];
        let mut released = Released::default();
        for mut shard in self.each_shard() {
            let mut blocks = Vec::new();
            for (usage, class, list) in shard.lists() {
                let kept = &mut kept[self.group_index(usage, class)];
                let keep_here = (keep - *kept).min(list.ready.len() as u32);
                *kept += keep_here;
                blocks.extend(self.remove_coldest(usage, class, list.ready.len() - keep_here as usize, list));
            }
            drop(shard);
            released += self.release(blocks);
        }
        released
    }

    /// Releases at least `bytes` bytes of free blocks whose work is done, or all of them.
    pub(crate) fn release_bytes(&self, bytes: u64) -> Released {
        self.settle();
        self.displace(bytes)
    }

    /// Releases `bytes` bytes of free blocks, those of the classes that served nobody for the longest time first.
    pub(crate) fn displace(&self, bytes: u64) -> Released {
        let mut released = Released::default();
        let mut candidates: Vec<(u64, usize, Usage, u16)> = Vec::new();
        for (index, mut shard) in self.each_shard().enumerate() {
            candidates.extend(shard.lists().filter_map(|(usage, class, list)| {
                (!list.ready.is_empty()).then_some((list.last_served, index, usage, class))
            }));
        }
        candidates.sort_unstable();
        let mut displaced = 0;
        for (_, index, usage, class) in candidates {
            if displaced >= bytes {
                break;
            }
            let block_bytes = self.classes.bytes(usize::from(class));
            let wanted = usize::try_from((bytes - displaced).div_ceil(block_bytes)).unwrap_or(usize::MAX);
            let mut shard = self.shard(index);
            let Some(list) = shard.existing_list(usage, class) else { continue };
            let blocks = self.remove_coldest(usage, class, wanted, list);
            drop(shard);
            displaced += blocks.len() as u64 * block_bytes;
            self.group(usage, class).displaced.fetch_add(blocks.len() as u32, Relaxed);
            released += self.release(blocks);
        }
        released
    }

    /// Releases everything free, after the work that still touches it. Where that work never ends because the device is
    /// lost, nothing touches the memory any more, and it goes too.
    pub(crate) fn clear(&self) -> Result<Released> {
        let waited = self.pending.last_submission().map_or(Ok(()), |last| self.memory.wait(last));
        let mut released = Released::default();
        if waited.is_err() {
            released += self.release(self.pending.take_all());
        }
        released += self.told_cleanup(CleanupReason::Asked, || self.release_free(0));
        waited.map(|()| released)
    }

    /// The time until the next maintenance is due.
    pub(crate) fn until_maintenance(&self) -> Duration {
        let due = self.last_maintenance.lock().saturating_add(self.config.read().maintenance_interval);
        due.saturating_sub(self.now()).max(Duration::from_millis(1))
    }

    /// Maintenance, where the interval has passed since the last one; `None` where it has not.
    pub(crate) fn maintain_if_due(&self) -> Option<Released> {
        let interval = self.config.read().maintenance_interval;
        let now = self.now();
        {
            // Whoever comes first does it; nobody waits.
            let mut last = self.last_maintenance.try_lock()?;
            if now.saturating_sub(*last) < interval {
                return None;
            }
            *last = now;
        }
        Some(self.told_cleanup(CleanupReason::Idle, || self.sweep_idle()))
    }

    /// Releases what nobody needed since the last sweep. A class that nobody asked for gives back everything; one in use
    /// keeps the configured minimum.
    fn sweep_idle(&self) -> Released {
        self.settle();
        let (min_kept, adaptive) = {
            let config = self.config.read();
            (config.min_kept_per_class, config.adaptive)
        };
        let mut touched = vec![false; self.group_count()];
        let mut idle = vec![0u32; self.group_count()];
        let mut free = vec![0; self.group_count()];
        let held: Vec<u32> = self.groups.iter().map(|group| group.permits.load(Relaxed)).collect();
        let mut total = Counts::default();
        for mut shard in self.each_shard() {
            for (usage, class, list) in shard.lists() {
                total += list.counts;
                let group = self.group_index(usage, class);
                touched[group] |= std::mem::take(&mut list.touched);
                idle[group] += list.low_water;
                free[group] += list.len();
            }
        }
        let mut released = Released::default();
        let mut kept_free = free;
        for mut shard in self.each_shard() {
            let mut blocks = Vec::new();
            for (usage, class, list) in shard.lists() {
                let group = self.group_index(usage, class);
                let spare = if touched[group] {
                    list.low_water.min(kept_free[group].saturating_sub(min_kept))
                } else {
                    list.len()
                };
                let removed = self.remove_coldest(usage, class, spare as usize, list);
                kept_free[group] = kept_free[group].saturating_sub(removed.len() as u32);
                blocks.extend(removed);
                list.low_water = list.len();
                if !touched[group] && list.len() == 0 {
                    list.ready.shrink_to_fit();
                }
            }
            drop(shard);
            released += self.release(blocks);
        }
        if adaptive {
            self.each_class(|usage, class| {
                // Blocks that lay idle, and those that the limit would have allowed beyond any that there were.
                let group = self.group(usage, class);
                let unused = group.limit.load(Relaxed).saturating_sub(held[self.group_index(usage, class)]);
                self.follow_demand(usage, class, idle[self.group_index(usage, class)].saturating_add(unused));
            });
        }
        self.each_class(|usage, class| {
            self.group(usage, class).displaced.store(0, Relaxed);
            self.return_unused_permits(usage, class);
        });
        *self.activity_at_maintenance.lock() = self.activity(total);
        // Two intervals, so that a sweep in a quiet moment does not forget what the busy ones need.
        let peak = self.recent_peak.swap(self.occupied() as i64, Relaxed);
        self.previous_peak.store(peak, Relaxed);
        let _ = self.headroom_doublings.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
        released
    }

    /// Removes ready blocks from a list, with their permits.
    fn remove_coldest(&self, usage: Usage, class: u16, count: usize, list: &mut FreeList<M>) -> Vec<Arc<Block<M>>> {
        let blocks = list.remove_coldest(count);
        self.group(usage, class).permits.fetch_sub(blocks.len() as u32, Relaxed);
        blocks
    }

    fn each_class(&self, mut visit: impl FnMut(Usage, u16)) {
        for usage in Usage::ALL {
            for class in 0..self.direct_class() {
                visit(usage, class);
            }
        }
    }

    /// Makes what the pool already holds obey new settings.
    pub(crate) fn enforce(&self, config: PoolConfig) {
        *self.config.write() = config;
        self.apply_config(&config);
        self.release_free(if config.pooling { config.max_cached_per_class } else { 0 });
        if self.is_over_budget() {
            self.release_free(0);
        } else if self.is_pressured() {
            self.release_free(config.min_kept_per_class);
        }
        // Permits of blocks that are lent now were given under the old limit.
        self.each_class(|usage, class| self.return_unused_permits(usage, class));
        self.maintenance.reconsider();
    }

    /// Releases free blocks, then moves live blocks out of sparsely used raw blocks, which go back to the driver.
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

    /// Moves a block as planned, unless someone uses it right now. Returns the bytes that went back to the driver.
    fn move_block(&self, block: &Arc<Block<M>>, plan: &mut Moves<M>, completed: u64) -> Result<Option<u64>> {
        let Some(mut place) = block.place.try_write() else { return Ok(None) };
        if block.is_pinned() || block.is_busy(completed) {
            return Ok(None);
        }
        let Some(from) = place.slot else { return Ok(None) };
        let Some((target, slot)) = self.slabs.lock().next_target(plan) else { return Ok(None) };
        let old = Region::new(&place.raw, place.offset, block.bytes);
        // The target slot was free, so nobody has access to it.
        let new = RegionMut::new(&target.raw, target.offset, block.bytes);
        if let Err(error) = self.copy(old, new) {
            drop(target);
            self.free_slot(slot);
            return Err(error);
        }
        self.slabs.lock().claim(slot, block);
        *place = target;
        drop(place);
        Ok(Some(self.free_slot(from)))
    }

    fn copy(&self, from: Region<'_>, to: RegionMut<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        self.memory.map(from, &mut |from| bytes.extend_from_slice(from))?;
        self.memory.map_mut(to, &mut |to| to.copy_from_slice(&bytes))
    }
}
