//! Tensors on GPUs and CPUs: lazy fused ops, autograd, layers and optimisers, WGSL kernels, pooled memory.
//!
//! Start with [`prelude`]. The crate root holds what every program uses:
//!
//! - [`Tensor`]: elements on a device. Ops are recorded, fused, planned once, and run when elements are read; [`Status`] says how far a
//!   tensor is;
//! - [`Device`]: a GPU or the CPU, with its memory and its caches; [`DeviceInfo`] and [`DeviceKind`] describe it;
//! - [`DType`], [`Element`], [`f16`](struct@f16) and [`bf16`]: the types of elements; [`Shape`]: lengths along the axes;
//! - [`Slice`], [`Ellipsis`] and [`NewAxis`]: indices beyond numbers and ranges, for [`Tensor::i`];
//! - [`grad`], [`value_and_grad`], [`no_grad`] and [`checkpoint`]: gradients; [`Tensor::backward`] fills those of parameters;
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
//! | models | [`nn`]: layers, losses, checkpoints; [`optim`]: optimisers and schedules; [`autograd`]: options and checks of gradients |
//! | tensor methods | [`arguments`]: what they take; [`function`]: calls by name |
//! | devices | [`device`]: settings, limits, the default device; [`cache`]: caches in memory and on disk |
//! | memory | [`buffer`]: memory of a device; [`pool`]: where it comes from |
//! | kernels | [`kernel`]: WGSL kernels and ops made of them; [`graph`]: command lists and graphs; [`kernels`]: the hand-written kernels of tensor methods |
//! | observation | [`observe`]: events, kernel statistics, plans; `metrics`: numbers for Prometheus and JSON |
//! | internals | [`ir`]: the op table, op graphs and plans |
//!
//! Each name is exported once, and again only by [`prelude`]; [`ir`] has the modules of `kiln-ir` as they are. The crate prints nothing,
//! reads nothing of the environment except the home directory ([`cache::cache_dir`]), and has no state outside a device except whether a
//! thread is inside [`no_grad`] and how many devices were opened, for their names in messages.
//!
//! # Features
//!
//! All are on by default.
//!
//! - `events`: devices count, time and report what they do ([`observe`], `metrics`). This costs a few loads per submission while nothing
//!   listens.
//! - `gpu`: the wgpu device. Without it, only the CPU device exists and wgpu is not built.
//! - `wgsl`: WGSL kernels on the CPU device, and the sanitizer. Without it, WGSL needs a GPU, and Cranelift, which takes minutes to
//!   compile, is not built.

#![deny(unsafe_code)]

/// The examples of the project's README, compiled with the documentation tests.
#[cfg(all(doctest, feature = "wgsl"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

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

/// Hand-written kernels of tensor methods, such as matrix products, attention and sorting. [`Tensor::kernel`] takes them, and those that
/// implement [`KernelOp`](kernel::KernelOp) elsewhere.
pub use kiln_kernels as kernels;

pub use device::handle::Device;
pub use half::{bf16, f16};
pub use kiln_device::{DeviceInfo, DeviceKind};
pub use kiln_ir::{DType, Element, Error, ErrorKind, Result, Shape};
pub use tensor::{Ellipsis, NewAxis, Slice, Status, Tensor, checkpoint, grad, no_grad, value_and_grad};
