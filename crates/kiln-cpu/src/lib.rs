//! The native CPU device of Kiln.
//!
//! Owns the CPU as a [device](CpuDevice): memory that goes back to the system when it is freed, the [threads](Threads) that run
//! kernels, and [plans](NativeProgram) made ready for its vector instructions. Refuses tensors, planning, and pooling, which is
//! `kiln-runtime`'s.
//!
//! Types to know: [`CpuOptions`] for [`open`], [`NativeProgram`] from [`program`], [`Threads`] for parallel loops.
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
mod kernel;
mod map;
mod native;
mod options;
mod simd;
mod sync;
mod threads;

pub use device::CpuDevice;
pub use kiln_ir::SimdLevel;
pub use kiln_jit::{Finding, FindingKind, Invocation};
pub use kiln_runtime::HostAccess;
pub use native::NativeProgram;
pub use options::CpuOptions;
pub use threads::Threads;

use kiln_ir::plan::Plan;
use kiln_ir::{Error, ErrorKind, Result};
use kiln_runtime::{Device, DeviceInfo};
use std::any::Any;
use std::sync::Arc;

/// Opens the CPU device. Each call makes one of its own, with its own threads and its own pool.
///
/// # Errors
/// `InvalidArgument` where the options ask for no thread, or where the pool's settings contradict each other;
/// `Unsupported` where they ask for vector instructions that the processor lacks.
pub fn open(options: CpuOptions) -> Result<Device> {
    let device = CpuDevice::new(&options)?;
    let (pool, kernels) = options.into_parts();
    Device::with_kernels(Arc::new(device), pool, kernels)
}

/// Makes a plan ready to run on a CPU device.
///
/// # Errors
/// `Unsupported` where the device is not one of this crate; `Internal` where the plan is not well formed.
pub fn program(device: &Device, plan: &Arc<Plan>) -> Result<Arc<NativeProgram>> {
    let Some(level) = simd_level(device) else {
        let message = format!("native programs expected a CPU device, found `{}`", device.info().id);
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    NativeProgram::new(plan, level).map(Arc::new)
}

/// The vector instructions that the kernels of a device use; `None` where it is not one of this crate.
pub fn simd_level(device: &Device) -> Option<SimdLevel> {
    cpu_device(device).map(CpuDevice::simd)
}

/// Whether a device runs plans natively: one of this crate does, unless its [options](CpuOptions::plans_as_wgsl) say otherwise.
pub fn runs_plans(device: &Device) -> bool {
    cpu_device(device).is_some_and(CpuDevice::runs_plans)
}

/// Takes what a [sanitized](CpuOptions::sanitized) device found since the last time; nothing of any other.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_cpu::{CpuOptions, FindingKind};
/// use kiln_runtime::KernelSource;
///
/// let device = kiln_cpu::open(CpuOptions::new().sanitized(true))?;
/// let kernel = device.kernel(KernelSource::wgsl(
///     "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
///     @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x + 1u] = 0.0; }",
/// ))?;
/// let mut y = device.buffer_of::<f32>(4)?;
/// kernel.launch().bind("y", &mut y).over(4)?;
/// let findings = kiln_cpu::take_findings(&device);
/// assert_eq!((findings.len(), findings[0].kind, findings[0].line), (1, FindingKind::OutOfBounds, 2));
/// # Ok(())
/// # }
/// ```
pub fn take_findings(device: &Device) -> Vec<Finding> {
    cpu_device(device).map(CpuDevice::take_findings).unwrap_or_default()
}

fn cpu_device(device: &Device) -> Option<&CpuDevice> {
    let api: &dyn Any = &**device.api();
    api.downcast_ref()
}

/// What [`open`] would give with default options, without opening anything.
pub fn info() -> DeviceInfo {
    let compiler = kiln_jit::Compiler::new().ok();
    let (simd, usage) = (SimdLevel::detect(), CpuOptions::new().default_usage());
    identity::describe(kiln_runtime::cores(), simd, usage, compiler.as_ref(), identity::mode(simd, false))
}
