//! The native CPU device of Kiln.
//!
//! Owns the CPU as a [device](CpuDevice): memory that goes back to the system when it is freed, the
//! [threads](Threads) that run kernels, and which [vector instructions](SimdLevel) there are. Refuses tensors, ops, and
//! pooling, which is `kiln-runtime`'s.
//!
//! Types to know: [`CpuOptions`] for [`open`], [`Threads`] for parallel loops, [`SimdLevel`] for choosing a kernel.
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

mod device;
mod heap;
mod identity;
mod map;
mod options;
mod simd;
mod sync;
mod threads;

pub use device::CpuDevice;
pub use kiln_ir::SimdLevel;
pub use kiln_runtime::HostAccess;
pub use options::CpuOptions;
pub use threads::Threads;

use kiln_ir::Result;
use kiln_runtime::{Device, DeviceInfo};
use std::sync::Arc;

/// Opens the CPU device. Each call makes one of its own, with its own threads and its own pool.
///
/// # Errors
/// `InvalidArgument` where the options ask for no thread, or where the pool's settings contradict each other.
pub fn open(options: CpuOptions) -> Result<Device> {
    let device = CpuDevice::new(&options)?;
    Device::new(Arc::new(device), options.into_pool())
}

/// What [`open`] would give with default options, without opening anything.
pub fn info() -> DeviceInfo {
    identity::describe(options::available_threads(), CpuOptions::new().default_usage())
}
