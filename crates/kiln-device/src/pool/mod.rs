//! Pooled device memory. Every buffer is allocated from a pool and returns to it; idle memory is released to the
//! system.
//!
//! A request is rounded up to a size class (`class`, `strategy`). It is served from the thread's own free list if
//! possible (`shard`, `allocate`), otherwise from other threads (`shards`), from a divided raw block (`slab`) or from the
//! driver (`reserve`). A freed block returns to the free list of the thread (`recycle`); it is not reused before the
//! submissions that use it are done (`pending`). Free blocks are released to the driver because of limits, under
//! pressure, when idle, or on request (`sweep`, `maintenance`).
//!
//! The parts that decide (`budget`, `occupancy`, `demand`) and count (`counters`) are independent of each other and of
//! blocks; `core` combines them. `statistics`, `report` and `dashboard` present the numbers.
//!
//! Lock order: the `location` of a block, then shards in index order, then `pending` or `slabs`.

mod allocate;
mod block;
mod budget;
mod class;
mod config;
mod core;
mod counters;
mod dashboard;
mod debug;
mod demand;
mod labels;
mod maintenance;
mod occupancy;
mod pending;
mod preallocate;
mod recycle;
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

/// The memory pool of a device or of another [`RawMemory`]. Clones refer to the same pool.
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

/// Closes the pool when the last handle is dropped. Blocks still in use are then released to the driver on return.
struct Owner<M: RawMemory + ?Sized>(Arc<Core<M>>);

impl<M: RawMemory + ?Sized> Drop for Owner<M> {
    fn drop(&mut self) {
        self.0.maintenance.stop();
        self.0.close();
    }
}

impl<M: RawMemory + ?Sized> Pool<M> {
    /// Creates a pool on `memory`.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if settings contradict each other or the classes of the strategy are invalid.
    pub fn new(memory: Arc<M>, options: PoolOptions) -> Result<Self> {
        Ok(Self(Arc::new(Owner(Arc::new(Core::new(memory, options)?)))))
    }

    fn core(&self) -> &Arc<Core<M>> {
        &self.0.0
    }

    /// Allocates memory with unspecified content. It returns to the pool when the last clone of the allocation is
    /// dropped.
    ///
    /// # Errors
    /// Returns `TooLarge` if the request can never be served; `OutOfMemory` if freeing buffers may help: all free
    /// memory has already been released, and the message lists the holders of the rest.
    pub fn allocate<'a>(&self, request: impl Into<BufferOptions<'a>>) -> Result<Allocation<M>> {
        self.core().allocate(&request.into())
    }

    /// Ensures that `count` requests like this one find a free block, and returns how many will. Raises the limit of
    /// the class to `count` until the next [`set_config`](Self::set_config) or until the blocks stay idle.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if such requests are not pooled; otherwise the same errors as
    /// [`allocate`](Self::allocate).
    pub fn pre_allocate<'a>(&self, request: impl Into<BufferOptions<'a>>, count: u32) -> Result<u32> {
        self.core().pre_allocate(&request.into(), count)
    }

    /// Releases free blocks: down to `min_kept_per_class` of each class, or all of them if `aggressive`.
    pub fn cleanup(&self, aggressive: bool) -> Released {
        let keep = if aggressive { 0 } else { self.core().settings.get().min_kept_per_class };
        self.core().cleanup(CleanupReason::Requested, || self.core().release_free(keep))
    }

    /// Releases all free blocks, after waiting for submitted work that still uses them.
    ///
    /// # Errors
    /// Returns the device's fault if waiting fails.
    pub fn clear(&self) -> Result<Released> {
        self.core().clear()
    }

    /// Releases all free blocks and compacts live ones, so that emptied raw blocks are released as well and a large
    /// request finds room. Buffers that are being accessed are not moved. Memory with undivided raw blocks, such as a
    /// GPU's, has nothing to compact.
    ///
    /// # Errors
    /// Returns the device's fault if copying fails.
    pub fn defragment(&self) -> Result<Defragmented> {
        self.core().defragment()
    }

    /// Performs the work of the maintenance thread if its interval has passed: releases memory that was not needed.
    /// Returns `None` if the interval has not passed or another thread is doing it.
    pub fn maintain(&self) -> Option<Released> {
        self.core().maintain_if_due()
    }

    /// Returns the reserved share of the budget, from 0 to 1.
    pub fn memory_pressure(&self) -> f64 {
        self.core().budget.pressure()
    }

    /// Returns the settings.
    pub fn config(&self) -> PoolConfig {
        self.core().settings.get()
    }

    /// Changes the settings. They take effect at once: blocks beyond a new limit are released.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the settings contradict each other; nothing changes then.
    pub fn set_config(&self, config: PoolConfig) -> Result<()> {
        config.validate()?;
        self.core().enforce(config);
        Ok(())
    }

    /// Returns the current numbers.
    pub fn statistics(&self) -> PoolStatistics {
        PoolStatistics::of(self.core())
    }

    /// Returns the current holders of memory, by label.
    pub fn report(&self) -> PoolReport {
        PoolReport::of(self.core())
    }

    /// Formats the numbers as text, with bars, health and recommendations.
    pub fn dashboard(&self) -> String {
        dashboard(&self.statistics(), &self.report())
    }

    /// Formats the numbers as one line for logs.
    pub fn summary_line(&self) -> String {
        self.statistics().summary_line()
    }

    /// Returns the first 64 violations found by the [debug mode](PoolOptions::debug_checks).
    pub fn violations(&self) -> Vec<Violation> {
        self.core().counters.violations()
    }
}

/// The reserve consists of the free blocks that no submitted work may still use.
impl<M: RawMemory + ?Sized> CacheReserve for Pool<M> {
    fn bytes(&self) -> u64 {
        let statistics = self.statistics();
        // Pending blocks cannot be released before the work that uses them is done.
        statistics.bytes_cached - statistics.bytes_pending
    }

    fn release(&self, bytes: u64) {
        self.core().cleanup(CleanupReason::Requested, || self.core().release_bytes(bytes));
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
