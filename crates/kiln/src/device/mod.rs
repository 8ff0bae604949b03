//! Settings, limits and features of devices, and how the default device is chosen.
//!
//! [`Device`](crate::Device), [`DeviceInfo`](crate::DeviceInfo) and [`DeviceKind`](crate::DeviceKind) are in the
//! crate root. This module has the rest: the options of [`Device::cpu_with`](crate::Device::cpu_with) and
//! `Device::gpu_with`, the parts of a `DeviceInfo`, the [`Choice`] that [`Device::choose`](crate::Device::choose)
//! returns, and the [`Runtime`] below a device.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! use kiln::Device;
//! use kiln::device::CpuOptions;
//!
//! let device = Device::cpu_with(CpuOptions::new().threads(2))?;
//! assert_eq!(device.info().limits.threads, Some(2));
//! # Ok(())
//! # }
//! ```

mod choice;
mod gpus;
pub(crate) mod handle;
mod name;
mod open;
mod runtime;

pub use choice::{Choice, Rejection};
pub use kiln_cpu::{CpuOptions, NATIVE_DRIVER, SimdLevel};
/// Memory, kernels and submissions of a device, without tensors. Returned by
/// [`Device::runtime`](crate::Device::runtime).
pub use kiln_device::Device as Runtime;
pub use kiln_device::{DeviceLimits, DeviceMemory, Feature, HostAccess};
#[cfg(feature = "gpu")]
pub use kiln_gpu::GpuOptions;

pub(crate) use handle::mix;
