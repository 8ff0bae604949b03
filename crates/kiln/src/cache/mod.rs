//! Caches: the registry of a device, the kernel cache in memory and on disk, and user-defined caches.
//!
//! [`Device::caches`](crate::Device::caches) returns the [`CacheRegistry`] of a device: plans, kernels and the caches
//! that you register share one byte budget. [`KernelCacheOptions`] configures the kernel cache of a device; compiled
//! kernels are stored in a [`store::DiskStore`], by default in [`kernel_cache_dir`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = kiln::Device::cpu()?;
//! device.caches().set_byte_budget(64 << 20)?;
//! for (name, metrics) in device.caches().metrics_by_name() {
//!     println!("{name}: {metrics}");
//! }
//! # Ok(())
//! # }
//! ```

mod dir;

pub use dir::{cache_dir, kernel_cache_dir};
pub use kiln_device::{
    Change, DiskTier, DiskTierState, KernelCacheOptions, KernelCacheStatistics, KernelExplanation, KernelWarmFailure,
    KernelWarmReport, Outcome, Preload,
};
pub use kiln_resource_cache::*;

pub(crate) use dir::default_disk;
