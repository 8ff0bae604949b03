//! Devices, pooled buffers, kernels, command lists and graphs.
//!
//! This crate contains what all devices have in common: the trait that devices implement ([`DeviceApi`]), buffers and
//! the memory [`pool`], kernels with their cache, command lists and [`graph`]s. It knows no ops. Its only device is the
//! [`NullDevice`] for tests; the `kiln-cpu` and `kiln-gpu` crates implement devices, and the `kiln` crate selects one.
//!
//! The types to know are [`Device`], [`Buffer`] (and [`TypedBuffer`]), [`Kernel`] and [`Graph`].
//!
//! ```
//! # fn main() -> Result<(), kiln_ir::Error> {
//! use kiln_device::NullDevice;
//!
//! let device = NullDevice::new().into_device()?;
//! let numbers = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//! let copy = device.buffer_of::<f32>(3)?;
//! numbers.copy_to(&copy)?;
//! assert_eq!(copy.read()?, [1.0, 2.0, 3.0]);
//!
//! drop(copy); // returns to the pool
//! assert_eq!(device.buffer_pool_stats().live_buffers, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Module map
//!
//! [`memory`] defines the memory interface of a device, [`device`](Device) the device itself. [`pool`] allocates
//! blocks, `buffer/` transfers bytes between host and device. `kernel/` compiles, caches and launches WGSL kernels,
//! `plan/` runs tensor plans as kernels. `command`, `capture` and `rebinding` are command lists and their replay,
//! `graph/` runs command lists in dependency order. [`observe`] emits events and statistics, [`metrics`] exports all
//! numbers as data. `host` queries cores and memory, `info` describes a device, `null` is the device for tests.

#![forbid(unsafe_code)]

mod buffer;
mod capture;
mod command;
mod device;
pub mod graph;
mod host;
mod info;
mod kernel;
pub mod memory;
pub mod metrics;
mod null;
pub mod observe;
mod plan;
pub mod pool;
mod rebinding;

pub use buffer::{Buffer, BufferSet, LockedBuffers, PendingRead, TypedBuffer, access_pair};
pub use capture::Captured;
pub use command::{BoundBuffer, BoundValue, BufferUse, Command, CommandList, Dispatch};
pub use device::{Device, DeviceApi, Loaded};
pub use graph::{Graph, GraphPlan, RunReport};
pub use host::{cores, memory_bytes};
pub use info::{DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, Feature, fingerprint};
pub use kernel::{
    Argument, Artifact, Binding, BindingKind, BindingName, Change, Code, DiskTier, DiskTierState, Extent, Grid,
    GridPart, Kernel, KernelCacheOptions, KernelCacheStatistics, KernelExplanation, KernelFlag, KernelHash, KernelKey,
    KernelModule, KernelOptions, KernelSource, KernelWarmFailure, KernelWarmReport, Launch, LoadedKernel, Member,
    Optimisation, Origin, Outcome, Preload, PreparedKernel, RawKernel, Reflection, RuntimeChecks, Scalar, Tail, Value,
    ValueLayout,
};
pub use kiln_resource_cache::store;
pub use memory::{HostAccess, RawMemory, Usage};
pub use null::{NullArguments, NullDevice, Record};
pub use observe::{KernelCost, KernelRun, KernelStatistics, Profiling, Recorder};
pub use plan::{CompiledPlan, PlanRun, WgslPlan, WgslStep};
pub use pool::{BufferOptions, Pool, PoolConfig, PoolOptions, PoolStatistics};
pub use size::Bytes;

use kiln_ir::size;
