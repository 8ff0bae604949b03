//! Statistics of a pool, as a consistent snapshot.

use super::core::Core;
use super::counters::{Counter, Counters};
use super::shard::{Counts, Times};
use crate::memory::{RawMemory, Usage};
use serde::Serialize;

/// A snapshot of the numbers of a pool. `reserved = in use + cached + unused slots`.
///
/// ```
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// drop(device.buffer(4096)?);
/// let statistics = device.buffer_pool_stats();
/// assert_eq!((statistics.bytes_reserved, statistics.bytes_cached), (4096, 4096));
/// assert_eq!((statistics.classes[0].class_bytes, statistics.classes[0].allocation_count), (4096, 1));
/// assert!(statistics.recent.allocation_count <= statistics.allocation_count);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolStatistics {
    /// Served requests.
    pub allocation_count: u64,
    /// The part of these served by a block that was allocated before.
    pub reuse_count: u64,
    /// The part of these served by an unused slot of a raw block that the pool already had.
    pub carved_count: u64,
    /// The part of these that reached the driver.
    pub driver_request_count: u64,
    /// The share of requests served by a block that was allocated before, from 0 to 1.
    pub hit_rate: f64,
    /// The share of requests that did not reach the driver, in percent.
    pub allocation_reduction_percent: f64,
    /// Live buffers.
    pub live_buffers: u64,
    /// Bytes of the blocks in use, including padding.
    pub bytes_in_use: u64,
    /// Bytes of free blocks.
    pub bytes_cached: u64,
    /// The part of these that submitted work may still use.
    pub bytes_pending: u64,
    /// Bytes in unused slots of divided raw blocks.
    pub bytes_unused_slots: u64,
    /// Bytes that the pool holds from the driver.
    pub bytes_reserved: u64,
    /// The peak of bytes in use. With several threads it may miss up to 256 KiB for each.
    pub peak_bytes: u64,
    /// The peak of bytes that the pool held from the driver.
    pub peak_reserved_bytes: u64,
    /// Bytes in use beyond the requested ones, because blocks come in classes.
    pub padding_bytes: u64,
    /// How fragmented the free bytes are: 0 if they are one piece, near 100 if they are many small ones.
    pub fragmentation_percent: f64,
    /// The maximum bytes that the pool may hold from the driver.
    pub budget_bytes: u64,
    /// The reserved share of the budget, from 0 to 1.
    pub pressure: f64,
    /// Blocks allocated from the driver, including raw blocks to be divided.
    pub driver_allocation_count: u64,
    /// Blocks released to the driver.
    pub driver_release_count: u64,
    /// Allocations that the driver refused.
    pub driver_failure_count: u64,
    /// The driver's own count of bytes for this device, if it has one.
    pub driver_bytes: Option<u64>,
    /// Requests that failed for lack of memory.
    pub out_of_memory_count: u64,
    /// Automatic cleanups because of pressure.
    pub pressure_cleanup_count: u64,
    /// Violations found by the debug mode.
    pub violation_count: u64,
    /// Mean time of a request served by a free block of the own thread, from one sample in 64.
    pub mean_hit_nanos: f64,
    /// Mean time of a request that no free block served, from one sample in 64.
    pub mean_miss_nanos: f64,
    /// The activity since the last maintenance.
    pub recent: RecentActivity,
    /// The name of the allocation strategy.
    pub strategy: String,
    /// The classes that were ever used, by usage and size; direct blocks last, with the size of the largest class.
    pub classes: Vec<ClassStatistics>,
}

/// The activity since the last maintenance.
///
/// See [`PoolStatistics`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecentActivity {
    /// Served requests.
    pub allocation_count: u64,
    /// The part of these that reached the driver.
    pub driver_request_count: u64,
    /// Blocks released to the driver.
    pub driver_release_count: u64,
}

/// The statistics of one class and usage.
///
/// See [`PoolStatistics`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassStatistics {
    /// The size of its blocks; for direct blocks the size of the largest class, which they exceed.
    pub class_bytes: u64,
    /// Whether these are the blocks larger than all classes.
    pub direct: bool,
    /// The usage of the blocks.
    pub usage: Usage,
    /// Served requests.
    pub allocation_count: u64,
    /// The part of these served by a block that was allocated before.
    pub reuse_count: u64,
    /// The part of these that reached the driver.
    pub driver_request_count: u64,
    /// The share of requests served by a block that was allocated before, from 0 to 1.
    pub hit_rate: f64,
    /// From 0 to 100: the share of requests that did not reach the driver, times the share of bytes in use that were
    /// requested.
    pub efficiency_score: f64,
    /// Blocks in use.
    pub live_blocks: u64,
    /// Their bytes.
    pub bytes_in_use: u64,
    /// Bytes in use beyond the requested ones.
    pub padding_bytes: u64,
    /// Free blocks, without those that submitted work may still use.
    pub cached_blocks: u64,
    /// The maximum number of free blocks of the class.
    pub cached_limit: u64,
    /// Blocks released from the class.
    pub released_count: u64,
}

/// Sums over the shards for one class.
#[derive(Clone, Copy, Default)]
struct ClassSum {
    counts: Counts,
    cached: u64,
}

impl PoolStatistics {
    /// Returns the numbers as one JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(crate) fn of<M: RawMemory + ?Sized>(core: &Core<M>) -> Self {
        let mut sums = vec![ClassSum::default(); core.classes.group_count()];
        let mut times = Times::default();
        // Read before the counts, so that a concurrent maintenance is not ahead of them.
        let at_maintenance = core.counters.at_maintenance();
        core.collect_completed();
        let (peak, reserved, unused_slots, largest_run);
        let pending;
        {
            // All shards at once, so that a block that moves between threads is counted exactly once.
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
            // Lock order: shards before slabs, as in `keep`.
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
            live_buffers: total.live_blocks as u64,
            bytes_in_use: total.live_bytes as u64,
            bytes_cached: ready + pending,
            bytes_pending: pending,
            bytes_unused_slots: unused_slots,
            bytes_reserved: reserved,
            peak_bytes: peak,
            peak_reserved_bytes: core.budget.peak_reserved(),
            padding_bytes: (total.live_bytes - total.requested_bytes) as u64,
            // The last factor is 0 if nothing is free, where the formula would otherwise give 100 %.
            fragmentation_percent: 100.0
                * (1.0 - share(largest_cached.max(largest_run), free))
                * f64::from(u8::from(free > 0)),
            budget_bytes: core.budget.limit(),
            pressure: core.budget.pressure(),
            driver_allocation_count: core.counters.get(Counter::DriverAllocation),
            driver_release_count: core.counters.get(Counter::DriverRelease),
            driver_failure_count: core.counters.get(Counter::DriverFailure),
            driver_bytes: core.memory.driver_bytes(),
            out_of_memory_count: core.counters.get(Counter::OutOfMemory),
            pressure_cleanup_count: core.counters.get(Counter::PressureCleanup),
            violation_count: core.counters.get(Counter::Violation),
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
    /// Returns the statistics of a class and usage, or `None` if it was never used.
    fn of<M: RawMemory + ?Sized>(core: &Core<M>, (usage, class): (Usage, u16), sum: &ClassSum) -> Option<Self> {
        let counts = &sum.counts;
        if counts.requests() == 0 && counts.live_blocks == 0 && sum.cached == 0 {
            return None;
        }
        let (group, is_direct) = (core.classes.group(usage, class), core.classes.is_direct(class));
        let wanted = share(counts.requested_bytes.max(0) as u64, counts.live_bytes.max(0) as u64);
        // Without live blocks nothing is known about padding, so it does not lower the score.
        let useful = if counts.live_bytes > 0 { wanted } else { 1.0 };
        Some(Self {
            class_bytes: core.classes.bytes(class),
            direct: is_direct,
            usage,
            allocation_count: counts.requests(),
            reuse_count: counts.reused,
            driver_request_count: counts.driver,
            hit_rate: share(counts.reused, counts.requests()),
            efficiency_score: 100.0 * share(counts.requests() - counts.driver, counts.requests()) * useful,
            live_blocks: counts.live_blocks as u64,
            bytes_in_use: counts.live_bytes as u64,
            padding_bytes: (counts.live_bytes - counts.requested_bytes) as u64,
            cached_blocks: sum.cached,
            cached_limit: if is_direct { 0 } else { u64::from(core.demand.limit(group)) },
            released_count: core.demand.released(group),
        })
    }
}

impl RecentActivity {
    /// Returns the total activity. Recent activity is the difference from that at the last maintenance.
    pub(crate) fn of(total: &Counts, counters: &Counters) -> Self {
        Self {
            allocation_count: total.requests(),
            driver_request_count: total.driver,
            driver_release_count: counters.get(Counter::DriverRelease),
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
    Counts: reused, carved, driver, live_blocks, live_bytes, requested_bytes;
    Times: hit_nanos, hits, miss_nanos, misses;
}

/// Returns a part of a whole, or zero if the whole is zero.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
