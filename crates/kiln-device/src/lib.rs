//! Devices, pooled buffers, kernels, command lists and graphs.
//!
//! This crate owns what every device has in common: the trait behind a device ([`DeviceApi`]), buffers and the memory
//! [`pool`], kernels with their cache, command lists and [`graph`]s. It refuses to know any op, and it contains no device but the [`NullDevice`] of the tests: the
//! `kiln-cpu` and `kiln-gpu` crates bring devices, and the `kiln` crate chooses among them.
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
//! drop(copy); // back to the pool
//! assert_eq!(device.buffer_pool_stats().live_buffers, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Where to look: [`memory`] says what a device's memory must offer and [`device`](Device) what a device must;
//! [`pool`] decides which memory serves which request; `buffer/` moves bytes between host and device; `kernel/` turns WGSL
//! into kernels, finds them again and launches them; `plan/` runs the plans of tensors as kernels; `command` and `capture` are
//! what a device is asked to do, `graph/` in which order; [`observe`] tells what it did, and [`metrics`] all its numbers as data.

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
    Numbers, Optimisation, Origin, Outcome, Preload, PreparedKernel, RawKernel, Reflection, RuntimeChecks, Scalar,
    Tail, Value,
};
pub use kiln_resource_cache::store;
pub use memory::{HostAccess, RawMemory, Usage};
pub use null::{NullArguments, NullDevice, Record};
pub use observe::{KernelCost, KernelRun, KernelStatistics, Profiling, Recorder};
pub use plan::{CompiledPlan, PlanRun, WgslPlan, WgslStep};
pub use pool::{BufferOptions, Pool, PoolConfig, PoolOptions, PoolStatistics};
pub use size::Bytes;

use kiln_ir::size;
