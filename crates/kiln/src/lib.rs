//! Kiln, as a program uses it: devices, pooled buffers, kernels, graphs. Tensors come later.
//!
//! The crate owns how a device is found ([`Device`]) and which one is the default ([`Choice`]). What a device can do
//! comes from `kiln-runtime`, the devices themselves from `kiln-cpu` and `kiln-gpu`; what a program needs of them is
//! here under one name. It reads no environment but where the home directory is,
//! for [`cache_dir`], prints nothing and keeps no state of its own.
//!
//! The types to know:
//!
//! - [`Device`]: something that owns memory and runs commands, with its pool;
//! - [`Buffer`] and [`TypedBuffer`]: memory of a device, back in the pool when dropped;
//! - [`Pool`]: who holds what, and how well memory is reused;
//! - [`KernelSource`] and [`Kernel`]: WGSL of one's own, compiled once and cached in memory and on disk;
//! - [`Graph`]: launches, copies and host callbacks, in the order that their buffers ask for.
//!
//! ```
//! use kiln::{CommandList, Device};
//!
//! # fn main() -> kiln::Result<()> {
//! let device = Device::best()?; // a GPU where there is one, otherwise the CPU device
//! println!("{}: {}", device.info().id, device.info().name);
//!
//! let input = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//! let output = device.buffer_of::<f32>(3)?;
//! let mut commands = CommandList::new();
//! commands.copy(input.as_bytes(), output.as_bytes())?;
//! device.submit(commands)?; // does not wait; the read does
//! assert_eq!(output.read()?, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! `gpu` (on by default): the wgpu device. Without it there is only the CPU device, and nothing of wgpu is built.

#![forbid(unsafe_code)]

/// The examples of the project's README, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

mod cache_dir;
mod choice;
mod device;
mod gpus;

pub use cache_dir::{cache_dir, kernel_cache_dir};
pub use choice::{Choice, Rejection};
pub use device::Device;
pub use kiln_cpu::{CpuOptions, SimdLevel};
#[cfg(feature = "gpu")]
pub use kiln_gpu::GpuOptions;
pub use kiln_ir::{Error, ErrorKind, Result};
pub use kiln_runtime::{
    Argument, Binding, BindingKind, BindingName, Buffer, BufferOptions, BufferUse, Bytes, Captured, Change, Command,
    CommandList, DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, DiskTier, DiskTierState, Explanation, Extent,
    Feature, Graph, GraphPlan, Grid, HostAccess, Kernel, KernelCacheOptions, KernelCacheStatistics, KernelFlag,
    KernelHash, KernelKey, KernelOptions, KernelSource, KernelWarmFailure, KernelWarmReport, Launch, Optimisation,
    Origin, Outcome, PendingRead, Pool, PoolConfig, PoolOptions, PoolStatistics, Preload, PreparedKernel, Reflection,
    RunReport, Scalar, TypedBuffer, Usage, Value, graph, pool, store,
};
