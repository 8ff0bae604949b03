//! The GPU device of Kiln: Metal, Vulkan and DX12 through wgpu.
//!
//! This crate owns the adapters of a machine, their order and identity, and everything between the runtime's
//! [`DeviceApi`](kiln_device::DeviceApi) and a wgpu device: buffers, host access, kernels, submissions by number, the fault
//! of a lost device. It refuses tensor ideas and pool policy: blocks come and go as the pool of `kiln-device` says.
//!
//! The types to know: [`GpuOptions`] (how a GPU is opened), [`HostAccess`] (in place or through staging), [`GpuDevice`]
//! (what is behind the [`Device`](kiln_device::Device), for code that uses wgpu itself).
//!
//! ```
//! # fn main() -> Result<(), kiln_ir::Error> {
//! use kiln_gpu::GpuOptions;
//!
//! // Nothing to open on a machine without a GPU driver; `probe` says what to install.
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
//! A GPU that works in the system's memory (integrated GPUs, software drivers) has as much as the system, or as the
//! container that the process is in. Any other has what its driver says: the largest device-local heap on Vulkan, the
//! dedicated memory on DX12; Metal does not say. A pool may reserve half of memory that is shared with the host, four
//! fifths of memory of the device alone, and 1 GiB where nobody says how much there is, unless its settings differ.
//!
//! # Module map
//!
//! In the order of the flow: `adapter` finds adapters, `options` and `capacity` say how they are used, `info` describes
//! them, `device` opens one. Below it `block` creates buffers, `map` lets the host reach them. `translate` and `precise`
//! turn programs into code, `kernel` makes pipelines of it and binds buffers, `values` brings small values to dispatches,
//! `encode` encodes command lists, `stamps` times them, `sentinel` proves that they ran, `timeline` numbers and awaits submissions, `poller`
//! wakes futures, `fault` keeps what ended the device, `scope` turns wgpu's error scopes into results.

mod adapter;
mod arguments;
mod block;
mod capacity;
mod device;
mod encode;
mod fault;
mod info;
mod kernel;
mod map;
mod options;
mod poller;
mod precise;
mod scope;
mod sentinel;
mod stamps;
mod timeline;
mod translate;
mod values;

pub use adapter::{list, probe};
pub use device::{GpuDevice, open};
pub use kiln_device::HostAccess;
pub use options::GpuOptions;
