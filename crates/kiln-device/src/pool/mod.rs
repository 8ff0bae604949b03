//! Pooled device memory: every buffer comes from a pool and returns to it, and idle memory goes back to the system.
//!
//! A request is rounded up to a class (`class`, `strategy`) and served from the thread's own free list where that has a
//! block (`shard`, `lend`), otherwise from other threads (`shards`), from a divided raw block (`slab`) or from the driver
//! (`reserve`). A block returns to its thread's free list (`keep`); no block is lent again before the submissions that
//! touch it are done (`pending`). Free blocks go back to the driver by limits, under pressure, when idle, or when asked
//! (`sweep`, `maintenance`).
//!
//! The parts that decide (`budget`, `occupancy`, `demand`) and count (`counters`) know nothing of each other or of blocks;
//! `core` holds them together. `statistics`, `report` and `dashboard` show the numbers.

mod block;
mod budget;
mod class;
mod config;
mod core;
mod counters;
mod dashboard;
mod debug;
mod demand;
mod keep;
mod labels;
mod lend;
mod maintenance;
mod occupancy;
mod pending;
mod prepare;
mod report;
mod request;
mod reserve;
mod shard;
mod shards;
mod slab;
mod statistics;
mod strategy;
mod sweep;

pub use block::{Access, AccessMut, Allocation};
pub use config::{PoolConfig, PoolOptions};
pub use dashboard::{Health, dashboard};
pub use debug::{Violation, ViolationKind};
pub use report::{Holder, PoolReport};
pub use request::BufferOptions;
pub use reserve::Released;
pub use statistics::{ClassStatistics, PoolStatistics, RecentActivity};
pub use strategy::{AllocationStrategy, ClassDemand, FineClasses, PowersOfTwo};
pub use sweep::Defragmented;

use self::core::Core;
use crate::device::DeviceApi;
use crate::memory::RawMemory;
use crate::observe::CleanupReason;
use kiln_ir::Result;
use kiln_resource_cache::CacheReserve;
use std::fmt;
use std::sync::Arc;

/// The pool of a device, or of any other [`RawMemory`]. Clones are the same pool.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{BufferOptions, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let pool = device.pool();
/// drop(pool.allocate(4096)?);
/// let weights = pool.allocate(BufferOptions::new(4000).label("weights"))?;
/// let statistics = pool.statistics();
/// assert_eq!((statistics.allocation_count, statistics.reuse_count), (2, 1));
/// assert_eq!(pool.report().holders[0].label, "weights");
/// # drop(weights);
/// # Ok(())
/// # }
/// ```
pub struct Pool<M: RawMemory + ?Sized = dyn DeviceApi>(Arc<Owner<M>>);

/// Ends the pool when the last handle goes: blocks that are still lent then go straight back to the driver.
struct Owner<M: RawMemory + ?Sized>(Arc<Core<M>>);

impl<M: RawMemory + ?Sized> Drop for Owner<M> {
    fn drop(&mut self) {
        self.0.maintenance.stop();
        self.0.close();
    }
}

impl<M: RawMemory + ?Sized> Pool<M> {
    /// A pool on `memory`.
    ///
    /// # Errors
    /// `InvalidArgument` where settings contradict each other or the strategy's classes are not usable.
    pub fn new(memory: Arc<M>, options: PoolOptions) -> Result<Self> {
        Ok(Self(Arc::new(Owner(Arc::new(Core::new(memory, options)?)))))
    }

    fn core(&self) -> &Arc<Core<M>> {
        &self.0.0
    }

    /// Lends memory of unspecified contents, which returns when the last clone of the allocation is dropped.
    ///
    /// # Errors
    /// `TooLarge` where the request can never be served, `OutOfMemory` where freeing buffers can help: then everything
    /// that was free has been given back already, and the message says who holds the rest.
    pub fn allocate<'a>(&self, request: impl Into<BufferOptions<'a>>) -> Result<Allocation<M>> {
        self.core().allocate(&request.into())
    }

    /// Makes sure that `count` requests of `bytes` bytes find a free block, and returns how many will. Raises the class's
    /// limit to `count` until the next [`set_config`](Self::set_config) or until the blocks stay idle.
    ///
    /// # Errors
    /// `InvalidArgument` where such requests are not pooled; otherwise as [`allocate`](Self::allocate).
    pub fn pre_allocate<'a>(&self, request: impl Into<BufferOptions<'a>>, count: u32) -> Result<u32> {
        self.core().pre_allocate(&request.into(), count)
    }

    /// Gives free blocks back: down to `min_kept_per_class` each, or all of them where `aggressive`.
    pub fn cleanup(&self, aggressive: bool) -> Released {
        let keep = if aggressive { 0 } else { self.core().settings.get().min_kept_per_class };
        self.core().cleanup(CleanupReason::Asked, || self.core().release_free(keep))
    }

    /// Gives all free blocks back, waiting for submitted work that still touches them.
    ///
    /// # Errors
    /// The device's fault while waiting.
    pub fn clear(&self) -> Result<Released> {
        self.core().clear()
    }

    /// Gives all free blocks back and moves live ones together, so that the raw blocks they leave go back as well and a
    /// large request finds room. Buffers that are in use this moment stay where they are. Memory whose raw blocks are not
    /// divided (a GPU's) has nothing to move.
    ///
    /// # Errors
    /// The device's fault while copying.
    pub fn defragment(&self) -> Result<Defragmented> {
        self.core().defragment()
    }

    /// Does what the maintenance thread does, where its interval has passed: gives back what nobody needed meanwhile.
    /// `None` where it has not passed yet, or where someone else is just doing it.
    pub fn maintain(&self) -> Option<Released> {
        self.core().maintain_if_due()
    }

    /// How much of the budget is reserved, from 0 to 1.
    pub fn memory_pressure(&self) -> f64 {
        self.core().budget.pressure()
    }

    /// The settings.
    pub fn config(&self) -> PoolConfig {
        self.core().settings.get()
    }

    /// Changes the settings. They hold at once: blocks beyond a new limit are given back.
    ///
    /// # Errors
    /// `InvalidArgument` where they contradict each other; then nothing changes.
    pub fn set_config(&self, config: PoolConfig) -> Result<()> {
        config.validate()?;
        self.core().enforce(config);
        Ok(())
    }

    /// The numbers now.
    pub fn statistics(&self) -> PoolStatistics {
        PoolStatistics::of(self.core())
    }

    /// Who holds what now, by label.
    pub fn report(&self) -> PoolReport {
        PoolReport::of(self.core())
    }

    /// Text with bars, health and recommendations.
    pub fn dashboard(&self) -> String {
        dashboard(&self.statistics(), &self.report())
    }

    /// One line for logs.
    pub fn summary_line(&self) -> String {
        self.statistics().summary_line()
    }

    /// What the [debug mode](PoolOptions::debug_checks) found, the first 64.
    pub fn violations(&self) -> Vec<Violation> {
        self.core().counters.violations()
    }
}

/// The free blocks that no submitted work may still touch.
impl<M: RawMemory + ?Sized> CacheReserve for Pool<M> {
    fn bytes(&self) -> u64 {
        let statistics = self.statistics();
        statistics.bytes_cached - statistics.bytes_pending
    }

    fn release(&self, bytes: u64) {
        self.core().cleanup(CleanupReason::Asked, || self.core().release_bytes(bytes));
    }
}

impl<M: RawMemory + ?Sized> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: RawMemory + ?Sized> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.summary_line())
    }
}
