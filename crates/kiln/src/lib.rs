//! Tensors on GPUs and CPUs: lazy fused ops, autograd, layers and optimizers, WGSL kernels, pooled memory.
//!
//! Start with [`prelude`]. The crate root exports the names that most programs use:
//!
//! - [`Tensor`]: an n-dimensional array on a device. Ops are recorded, fused and planned, and run when elements are
//!   read; [`Status`] is the state of a tensor;
//! - [`Device`]: a GPU or the CPU, with its memory pool and caches; [`DeviceInfo`] and [`DeviceKind`] describe it;
//! - [`DType`], [`Element`], [`f16`](struct@f16) and [`bf16`]: element types; [`Shape`]: the length of each axis;
//! - [`Slice`], [`Ellipsis`] and [`NewAxis`]: index items other than numbers and ranges, for [`Tensor::i`];
//! - [`grad`], [`value_and_grad`], [`no_grad`] and [`checkpoint`]: gradients; [`Tensor::backward`] computes the
//!   gradients of parameters;
//! - [`Result`], [`Error`] and [`ErrorKind`].
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
//! # Modules
//!
//! | for | module |
//! | --- | --- |
//! | models | [`nn`]: layers, losses, checkpoints; [`optim`]: optimizers and schedules; [`autograd`]: backward options and gradient checks |
//! | tensor methods | [`arguments`]: argument types; [`function`]: calls by name |
//! | devices | [`device`]: settings, limits, the default device; [`cache`]: caches in memory and on disk |
//! | memory | [`buffer`]: device memory; [`pool`]: the allocator of buffers |
//! | kernels | [`kernel`]: WGSL kernels and tensor ops built from them; [`graph`]: command lists and graphs; [`kernels`]: the hand-written kernels of tensor methods |
//! | observation | [`observe`]: events, kernel statistics, plans; `metrics`: metrics for Prometheus and JSON |
//! | internals | [`ir`]: the op table, op graphs and plans |
//!
//! Each name is exported once, and again only by [`prelude`]; [`ir`] re-exports the modules of `kiln-ir`. The crate
//! prints nothing and reads nothing from the environment except the home directory ([`cache::cache_dir`]). The only
//! state outside a device is the [`no_grad`] flag of each thread and the number of devices opened, which is used for
//! their names in messages.
//!
//! # Features
//!
//! All features are on by default.
//!
//! - `events`: devices count, time and report their work ([`observe`], `metrics`). Without listeners this costs a few
//!   loads per submission.
//! - `gpu`: the wgpu device. Without it, only the CPU device exists and wgpu is not built.
//! - `wgsl`: WGSL kernels on the CPU device, and the sanitizer. Without it, WGSL needs a GPU, and Cranelift, which
//!   takes minutes to compile, is not built.

#![deny(unsafe_code)]

/// The examples of the project's README, compiled with the documentation tests.
#[cfg(all(doctest, feature = "wgsl"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

/// The examples of the user guide, compiled with the documentation tests. Packages do not contain the guide, and do
/// not need it: the paths are read by `cargo test --doc` only.
#[cfg(all(doctest, feature = "events", feature = "wgsl"))]
mod guide {
    #[doc = include_str!("../../../docs/guide/README.md")]
    struct Index;
    #[doc = include_str!("../../../docs/guide/01-tensors-and-fusion.md")]
    struct TensorsAndFusion;
    #[doc = include_str!("../../../docs/guide/02-devices-and-memory.md")]
    struct DevicesAndMemory;
    #[doc = include_str!("../../../docs/guide/03-kernels-and-the-sanitizer.md")]
    struct KernelsAndTheSanitizer;
    #[doc = include_str!("../../../docs/guide/04-caches.md")]
    struct Caches;
    #[doc = include_str!("../../../docs/guide/05-training.md")]
    struct Training;
    #[doc = include_str!("../../../docs/guide/06-profiling-and-metrics.md")]
    struct ProfilingAndMetrics;
    #[doc = include_str!("../../../docs/guide/07-validating-claims.md")]
    struct ValidatingClaims;
    #[doc = include_str!("../../../docs/guide/08-command-line.md")]
    struct CommandLine;
}

pub mod arguments;
pub mod autograd;
pub mod buffer;
pub mod cache;
pub mod device;
pub mod function;
pub mod graph;
pub mod ir;
pub mod kernel;
#[cfg(feature = "events")]
pub mod metrics;
pub mod nn;
pub mod observe;
pub mod optim;
pub mod pool;
pub mod prelude;
mod tensor;

/// Hand-written kernels of tensor methods, such as matrix multiplication, attention and sorting. [`Tensor::kernel`]
/// runs them, and any other [`KernelOp`](kernel::KernelOp).
pub use kiln_kernels as kernels;

pub use device::handle::Device;
pub use half::{bf16, f16};
pub use kiln_device::{DeviceInfo, DeviceKind};
pub use kiln_ir::{DType, Element, Error, ErrorKind, Result, Shape};
pub use tensor::{Ellipsis, NewAxis, Slice, Status, Tensor, checkpoint, grad, no_grad, value_and_grad};
