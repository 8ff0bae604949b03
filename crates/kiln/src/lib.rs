//! Kiln, as a program uses it: tensors, devices, pooled buffers, kernels, graphs.
//!
//! The crate owns [`Tensor`], how a device is found ([`Device`]) and which one is the default ([`Choice`]). What a device can do comes
//! from `kiln-device`, the devices themselves from `kiln-cpu` and `kiln-gpu`, ops and plans from `kiln-ir` and `kiln-kernels`; what a
//! program needs of them is here under one name. It reads no environment but where the home directory is, for [`cache_dir`], prints nothing
//! and keeps no state outside of a device, but for whether a thread is inside of [`no_grad`].
//!
//! The types to know:
//!
//! - [`Tensor`]: elements on a device; ops on them are recorded, fused, planned once and run when elements are read;
//! - [`nn::Module`] and [`optim::Optimizer`]: layers, and how their parameters follow gradients ([`Tensor::backward`]);
//! - [`Device`]: something that owns memory and runs commands, with its pool;
//! - [`Buffer`] and [`TypedBuffer`]: memory of a device, back in the pool when dropped;
//! - [`Pool`]: who holds what, and how well memory is reused;
//! - [`KernelSource`] and [`Kernel`]: WGSL of one's own, compiled once and cached in memory and on disk;
//! - [`Graph`]: launches, copies and host callbacks, in the order that their buffers ask for.
//!
//! ```
//! use kiln::{DType, Device, Tensor};
//!
//! # fn main() -> kiln::Result<()> {
//! let device = Device::best()?; // a GPU where there is one, otherwise the CPU device
//! let a = Tensor::randn((64, 64), DType::F16, &device)?;
//! let b = a.mul(&a)?.add_scalar(1.0)?.relu()?.sum(1)?;
//! println!("{}", b.explain()?); // which kernels run, and what fused
//! let sums: Vec<f32> = b.to_vec()?; // runs here
//! assert!(sums.iter().all(|sum| *sum >= 64.0));
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! `events` (on by default): what devices do is counted, timed and told to whoever watches ([`observe`], `metrics`). It costs a few
//! loads for each submission while nobody does.
//!
//! `gpu` (on by default): the wgpu device. Without it there is only the CPU device, and nothing of wgpu is built.
//!
//! `wgsl` (on by default): kernels in WGSL on the CPU device, and the sanitizer that watches them. Without it they need a GPU, and
//! nothing of Cranelift is built, which takes minutes.

#![deny(unsafe_code)]

/// The examples of the project's README, compiled with the documentation tests.
#[cfg(all(doctest, feature = "wgsl"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

mod cache_dir;
mod choice;
mod device;
pub mod function;
mod gpus;
#[cfg(feature = "events")]
pub mod metrics;
pub mod nn;
pub mod observe;
pub mod optim;
mod tensor;

pub use cache_dir::{cache_dir, kernel_cache_dir};
pub use choice::{Choice, Rejection};
pub use device::Device;
pub use half::{bf16, f16};
pub use kiln_cpu::{CpuOptions, NATIVE_DRIVER, SimdLevel};
#[cfg(feature = "wgsl")]
pub use kiln_cpu::{Finding, FindingKind, Invocation};
pub use kiln_device::{
    Argument, Binding, BindingKind, BindingName, Buffer, BufferOptions, BufferUse, Bytes, Captured, Change, Command,
    CommandList, DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, DiskTier, DiskTierState, Extent, Feature, Graph,
    GraphPlan, Grid, HostAccess, Kernel, KernelCacheOptions, KernelCacheStatistics, KernelCost, KernelExplanation,
    KernelFlag, KernelHash, KernelKey, KernelOptions, KernelSource, KernelStatistics, KernelWarmFailure,
    KernelWarmReport, Launch, Member, Numbers, Optimisation, Origin, Outcome, PendingRead, Pool, PoolConfig,
    PoolOptions, PoolStatistics, Preload, PreparedKernel, Reflection, RunReport, Scalar, Tail, TypedBuffer, Usage,
    Value, graph, pool, store,
};
#[cfg(feature = "gpu")]
pub use kiln_gpu::GpuOptions;
/// What ops and kernels of one's own are made of, and plans.
pub use kiln_ir as ir;
pub use kiln_ir::graph::TensorType;
pub use kiln_ir::{DType, Element, Error, ErrorKind, KernelOp, Layout, Result, Shape, op};
/// Hand-written kernels. Methods of [`Tensor`] use them; [`Tensor::kernel`] takes them and others.
pub use kiln_kernels as kernels;
/// Caches, policies, slots and the registry that [`Device::caches`](kiln_device::Device::caches) gives.
pub use kiln_resource_cache as cache;
pub use kiln_resource_cache::CacheMetrics;
pub use tensor::{
    Activation, AttentionOptions, Axes, Axis, BackwardOptions, Dim, Dims, Ellipsis, GradientCheck, GradientReport,
    Index, IndexItem, IntoPair, Literal, NewAxis, Operand, PoolWindow, Slice, Status, Tensor, TensorExplanation,
    VerifyReport, WgslOp, check_gradients, checkpoint, grad, no_grad, value_and_grad,
};
