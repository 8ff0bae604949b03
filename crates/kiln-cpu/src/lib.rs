//! The native CPU device of Kiln.
//!
//! Owns the CPU as a [device](CpuDevice): memory that is returned to the system when freed, the [threads](Threads)
//! that run kernels, and plans compiled for its SIMD level. Out of scope: tensors, planning, and pooling, which
//! belongs to `kiln-device`.
//!
//! The types to know are [`CpuOptions`] for [`open`], and [`Threads`] for parallel loops.
//!
//! ```
//! # fn main() -> Result<(), kiln_ir::Error> {
//! use kiln_cpu::CpuOptions;
//!
//! let device = kiln_cpu::open(CpuOptions::new())?;
//! let buffer = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//! assert_eq!(buffer.read()?, [1.0, 2.0, 3.0]);
//! assert_eq!(device.info().id, "cpu");
//! # Ok(())
//! # }
//! ```

// Only the thread pool is built for the model checker.
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod identity;
#[cfg(not(loom))]
#[cfg_attr(not(feature = "wgsl"), path = "no_kernel.rs")]
mod kernel;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod native;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod options;
#[cfg(all(not(loom), feature = "wgsl"))]
mod sanitizer;
#[cfg(not(loom))]
mod simd;
mod sync;
mod threads;

pub use kiln_ir::SimdLevel;
pub use threads::Threads;
#[cfg(not(loom))]
pub use {
    device::CpuDevice,
    identity::NATIVE_DRIVER,
    kiln_device::HostAccess,
    open::{info, open, simd_level},
    options::CpuOptions,
};
#[cfg(all(not(loom), feature = "wgsl"))]
pub use {
    kiln_jit::{Finding, FindingKind, Invocation},
    open::take_findings,
};
