//! The memory pool of a device: settings, statistics, reports and allocation strategies.
//!
//! [`Device::pool`](crate::Device::pool) returns the [`Pool`] that allocates all [buffers](crate::buffer) of a
//! device. A [`PoolConfig`] limits it and can be changed while the pool is in use.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! let device = kiln::Device::cpu()?;
//! drop(device.buffer(1 << 20)?);
//! let statistics = device.pool().statistics();
//! assert_eq!((statistics.live_buffers, statistics.bytes_cached > 0), (0, true));
//! println!("{}", device.pool().report());
//! # Ok(())
//! # }
//! ```

pub use kiln_device::pool::{
    Access, AccessMut, Allocation, AllocationStrategy, ClassDemand, ClassStatistics, Defragmented, FineClasses, Health,
    Holder, Pool, PoolConfig, PoolOptions, PoolReport, PoolStatistics, PowersOfTwo, RecentActivity, Released,
    Violation, ViolationKind, dashboard,
};
