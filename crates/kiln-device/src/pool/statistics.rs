//! The numbers of a pool, all taken at one moment.

use super::core::Core;
use super::counters::{Counted, Counters};
use super::shard::{Counts, Times};
use crate::memory::{RawMemory, Usage};
use serde::Serialize;

/// The numbers of a pool at one moment. `reserved = in use + cached + unused slots`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolStatistics {
    /// Requests that were served.
    pub allocation_count: u64,
    /// Of these, requests served by a block that was lent before.
    pub reuse_count: u64,
    /// Of these, requests served by an unused slot of a raw block that the pool already had.
    pub carved_count: u64,
    /// Of these, requests that reached the driver.
    pub driver_request_count: u64,
    /// Share of requests served by a block that was lent before, from 0 to 1.
    pub hit_rate: f64,
    /// Share of requests that did not reach the driver, in percent.
    pub allocation_reduction_percent: f64,
    /// Buffers that are held now.
    pub live_buffers: u64,
    /// Bytes of the blocks that are held now, padding included.
    pub bytes_in_use: u64,
    /// Bytes of free blocks that wait for the next request.
    pub bytes_cached: u64,
    /// Of these, bytes that submitted work may still touch.
    pub bytes_pending: u64,
    /// Bytes in unused slots of divided raw blocks.
    pub bytes_unused_slots: u64,
    /// Bytes that the pool holds from the driver.
    pub bytes_reserved: u64,
    /// The most bytes in use at once; with several threads it can miss up to 256 KiB for each.
    pub peak_bytes: u64,
    /// The most bytes that the pool held from the driver at once.
    pub peak_reserved_bytes: u64,
    /// Bytes in use that nobody asked for, because blocks come in classes.
    pub padding_bytes: u64,
    /// How scattered the free bytes are: 0 where they are one piece, near 100 where they are many small ones.
    pub fragmentation_percent: f64,
    /// The most bytes that the pool may hold from the driver.
    pub budget_bytes: u64,
    /// Share of the budget that is reserved, from 0 to 1.
    pub pressure: f64,
    /// Blocks taken from the driver, raw blocks to be divided included.
    pub driver_allocation_count: u64,
    /// Blocks given back to the driver.
    pub driver_release_count: u64,
    /// Times that the driver refused.
    pub driver_failure_count: u64,
    /// What the driver itself counts for this device, where it does.
    pub driver_bytes: Option<u64>,
    /// Requests that failed for lack of memory.
    pub out_of_memory_count: u64,
    /// Cleanups that the pool did by itself because of pressure.
    pub pressure_cleanup_count: u64,
    /// Findings of the debug mode.
    pub violation_count: u64,
    /// Mean time of a request that a free block of the own thread served, from one sample in 64.
    pub mean_hit_nanos: f64,
    /// Mean time of a request that no free block served, from one sample in 64.
    pub mean_miss_nanos: f64,
    /// What happened since the last maintenance.
    pub recent: RecentActivity,
    /// The name of the strategy.
    pub strategy: String,
    /// Each class that was ever used, by usage and size; direct blocks last with the largest class size.
    pub classes: Vec<ClassStatistics>,
}

/// What happened since the last maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecentActivity {
    /// Requests that were served.
    pub allocation_count: u64,
    /// Of these, requests that reached the driver.
    pub driver_request_count: u64,
    /// Blocks given back to the driver.
    pub driver_release_count: u64,
}

/// The numbers of one class and usage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassStatistics {
    /// The size of its blocks; for direct blocks the size of the largest class, which they exceed.
    pub class_bytes: u64,
    /// Whether these are the blocks above all classes.
    pub direct: bool,
    /// What the blocks are for.
    pub usage: Usage,
    /// Requests that were served.
    pub allocation_count: u64,
    /// Of these, requests served by a block that was lent before.
    pub reuse_count: u64,
    /// Of these, requests that reached the driver.
    pub driver_request_count: u64,
    /// Share of requests served by a block that was lent before, from 0 to 1.
    pub hit_rate: f64,
    /// From 0 to 100: the share of requests kept from the driver, times the share of lent bytes that were asked for.
    pub efficiency_score: f64,
    /// Blocks that are held now.
    pub live_blocks: u64,
    /// Their bytes.
    pub bytes_in_use: u64,
    /// Bytes in use that nobody asked for.
    pub padding_bytes: u64,
    /// Free blocks that wait for the next request, without those that submitted work may still touch.
    pub cached_blocks: u64,
    /// How many free blocks the class may keep now.
    pub cached_limit: u64,
    /// Blocks that left the class.
    pub released_count: u64,
}

/// Sums over shards of one class.
#[derive(Clone, Copy, Default)]
struct ClassSum {
    counts: Counts,
    cached: u64,
}

impl PoolStatistics {
    /// The numbers as one JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(crate) fn of<M: RawMemory + ?Sized>(core: &Core<M>) -> Self {
        let mut sums = vec![ClassSum::default(); core.classes.group_count()];
        let mut times = Times::default();
        // Before the counts: a maintenance in between must not lie in their future.
        let at_maintenance = core.counters.at_maintenance();
        core.settle();
        let (peak, reserved, unused_slots, largest_run);
        let pending;
        {
            let mut shards = core.shards.lock_all();
            for shard in &mut shards {
                for (usage, class, list) in shard.lists() {
                    let sum = &mut sums[core.classes.group(usage, class)];
                    sum.counts += list.counts;
                    sum.cached += u64::from(list.len());
                }
                times += shard.times;
            }
            peak = core.occupancy.peak(shards.iter().map(|shard| &shard.in_use));
            pending = core.pending.bytes();
            let slabs = core.slabs.lock();
            (unused_slots, largest_run) = (slabs.free_bytes, slabs.largest_free_run_bytes());
            reserved = core.budget.reserved();
        }
        let mut total = Counts::default();
        sums.iter().for_each(|sum| total += sum.counts);
        let cached =
            || core.classes.groups().zip(&sums).map(|((_, class), sum)| (sum.cached, core.classes.bytes(class)));
        let ready: u64 = cached().map(|(blocks, bytes)| blocks * bytes).sum();
        let largest_cached = cached().filter(|(blocks, _)| *blocks > 0).map(|(_, bytes)| bytes).max().unwrap_or(0);
        let free = ready + unused_slots;
        Self {
            allocation_count: total.requests(),
            reuse_count: total.reused,
            carved_count: total.carved,
            driver_request_count: total.driver,
            hit_rate: share(total.reused, total.requests()),
            allocation_reduction_percent: 100.0 * share(total.requests() - total.driver, total.requests()),
            live_buffers: total.lent_blocks as u64,
            bytes_in_use: total.lent_bytes as u64,
            bytes_cached: ready + pending,
            bytes_pending: pending,
            bytes_unused_slots: unused_slots,
            bytes_reserved: reserved,
            peak_bytes: peak,
            peak_reserved_bytes: core.budget.peak_reserved(),
            padding_bytes: (total.lent_bytes - total.requested_bytes) as u64,
            fragmentation_percent: 100.0
                * (1.0 - share(largest_cached.max(largest_run), free))
                * f64::from(u8::from(free > 0)),
            budget_bytes: core.budget.limit(),
            pressure: core.budget.pressure(),
            driver_allocation_count: core.counters.get(Counted::DriverAllocation),
            driver_release_count: core.counters.get(Counted::DriverRelease),
            driver_failure_count: core.counters.get(Counted::DriverFailure),
            driver_bytes: core.memory.driver_bytes(),
            out_of_memory_count: core.counters.get(Counted::OutOfMemory),
            pressure_cleanup_count: core.counters.get(Counted::PressureCleanup),
            violation_count: core.counters.get(Counted::Violation),
            mean_hit_nanos: share(times.hit_nanos, times.hits),
            mean_miss_nanos: share(times.miss_nanos, times.misses),
            recent: RecentActivity::of(&total, &core.counters).since(at_maintenance),
            strategy: core.classes.strategy().name().to_owned(),
            classes: core
                .classes
                .groups()
                .zip(&sums)
                .filter_map(|(group, sum)| ClassStatistics::of(core, group, sum))
                .collect(),
        }
    }
}

impl ClassStatistics {
    /// The numbers of a class and usage; `None` where it was never used.
    fn of<M: RawMemory + ?Sized>(core: &Core<M>, (usage, class): (Usage, u16), sum: &ClassSum) -> Option<Self> {
        let counts = &sum.counts;
        if counts.requests() == 0 && counts.lent_blocks == 0 && sum.cached == 0 {
            return None;
        }
        let (group, is_direct) = (core.classes.group(usage, class), core.classes.is_direct(class));
        let wanted = share(counts.requested_bytes.max(0) as u64, counts.lent_bytes.max(0) as u64);
        let useful = if counts.lent_bytes > 0 { wanted } else { 1.0 };
        Some(Self {
            class_bytes: core.classes.bytes(class),
            direct: is_direct,
            usage,
            allocation_count: counts.requests(),
            reuse_count: counts.reused,
            driver_request_count: counts.driver,
            hit_rate: share(counts.reused, counts.requests()),
            efficiency_score: 100.0 * share(counts.requests() - counts.driver, counts.requests()) * useful,
            live_blocks: counts.lent_blocks as u64,
            bytes_in_use: counts.lent_bytes as u64,
            padding_bytes: (counts.lent_bytes - counts.requested_bytes) as u64,
            cached_blocks: sum.cached,
            cached_limit: if is_direct { 0 } else { u64::from(core.demand.limit(group)) },
            released_count: core.demand.released(group),
        })
    }
}

impl RecentActivity {
    /// All activity so far; its difference to that at the last maintenance is the recent one.
    pub(crate) fn of(total: &Counts, counters: &Counters) -> Self {
        Self {
            allocation_count: total.requests(),
            driver_request_count: total.driver,
            driver_release_count: counters.get(Counted::DriverRelease),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            allocation_count: self.allocation_count - before.allocation_count,
            driver_request_count: self.driver_request_count - before.driver_request_count,
            driver_release_count: self.driver_release_count - before.driver_release_count,
        }
    }
}

macro_rules! add_fields {
    ($($sum:ident: $($field:ident),*;)*) => {$(
        impl std::ops::AddAssign for $sum {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    )*};
}

add_fields! {
    Counts: reused, carved, driver, lent_blocks, lent_bytes, requested_bytes;
    Times: hit_nanos, hits, miss_nanos, misses;
}

/// A part of a whole, zero where there is no whole.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
