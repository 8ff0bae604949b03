//! WGSL kernels: sources, compilation, launches, tensor ops built from them, and findings of the sanitizer.
//!
//! [`Device::kernel`](crate::Device::kernel) compiles a [`KernelSource`] to a [`Kernel`], or takes it from the
//! [cache](crate::cache). A [`Launch`] binds buffers and values by name. [`WgslOp`] builds a tensor op from WGSL;
//! [`KernelOp`] is the trait of an op with an implementation for each kind of device. [`Finding`]s come from a
//! [sanitized](crate::Device::sanitized) device.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! # if !cfg!(feature = "wgsl") {
//! #     return Ok(()); // The CPU device runs no WGSL.
//! # }
//! use kiln::kernel::KernelSource;
//!
//! let device = kiln::Device::cpu()?;
//! let kernel = device.kernel(KernelSource::wgsl(
//!     "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
//!     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
//!         if id.x < arrayLength(&y) { y[id.x] *= 2.0; }
//!     }",
//! ))?;
//! let mut y = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//! kernel.launch().bind("y", &mut y).over(3)?;
//! assert_eq!(y.read()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```

pub use crate::tensor::WgslOp;
#[cfg(feature = "wgsl")]
pub use kiln_cpu::{Finding, FindingKind, Invocation};
pub use kiln_device::{
    Argument, Binding, BindingKind, BindingName, Extent, Grid, Kernel, KernelFlag, KernelHash, KernelKey,
    KernelOptions, KernelSource, Launch, Member, Optimisation, Origin, PreparedKernel, Reflection, Scalar, Tail, Value,
    ValueLayout,
};
pub use kiln_ir::KernelOp;
