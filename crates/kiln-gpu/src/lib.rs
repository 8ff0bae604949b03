//! The GPU device of Kiln: Metal, Vulkan and DX12 through wgpu.
//!
//! This crate enumerates GPU adapters and implements the runtime's [`DeviceApi`](kiln_device::DeviceApi) on a wgpu
//! device: buffers, host access, kernels, numbered submissions, and the fault of a lost device. It knows nothing of
//! tensors and contains no pool policy: the pool of `kiln-device` decides when blocks are allocated and freed.
//!
//! The types to know are [`GpuOptions`] (how to open a GPU), [`HostAccess`] (mapped memory or staging buffers) and
//! [`GpuDevice`] (the device below a [`Device`](kiln_device::Device), for code that uses wgpu directly).
//!
//! ```
//! # fn main() -> Result<(), kiln_ir::Error> {
//! use kiln_gpu::GpuOptions;
//!
//! // Without a GPU driver the list is empty; the error of `probe` says what to install.
//! if let Some(info) = kiln_gpu::list().first() {
//!     let device = kiln_gpu::open(0, GpuOptions::new())?;
//!     assert_eq!(device.info().fingerprint, info.fingerprint);
//!     let buffer = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//!     assert_eq!(buffer.read()?, [1.0, 2.0, 3.0]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//!
//! A GPU that works in system memory (integrated GPUs, software drivers) has as much memory as the system or the
//! container of the process. For other GPUs the driver reports the size: the largest device-local heap on Vulkan, the
//! dedicated memory on DX12; Metal does not report it. By default a pool may reserve half of the memory if it is shared
//! with the host, four fifths of dedicated memory, and 1 GiB if the size is unknown.
//!
//! # Module map
//!
//! In the order of data flow: `adapter` enumerates adapters, `options` and `capacity` decide how they are used, `info`
//! describes them, `device` opens one. `block` creates buffers, `map` gives the host access to them. `arguments`,
//! `translate` and `contraction` turn programs into code, `kernel` creates pipelines and bind groups, `values` uploads
//! small values of dispatches, `encode` encodes command lists, `timestamps` measures device time, `sentinel` verifies
//! that a submission ran, `timeline` numbers submissions and waits for them, `poller` wakes futures, `fault` stores the
//! error of a lost device, `scope` converts wgpu's error scopes into results.

mod adapter;
mod arguments;
mod block;
mod capacity;
mod contraction;
mod device;
mod encode;
mod fault;
mod info;
mod kernel;
mod map;
mod options;
mod poller;
mod scope;
mod sentinel;
mod timeline;
mod timestamps;
mod translate;
mod values;

pub use adapter::{list, probe};
pub use device::{GpuDevice, open};
pub use kiln_device::HostAccess;
pub use options::GpuOptions;
