//! How the CPU device is opened, and what can be asked of one.

use crate::device::CpuDevice;
use crate::kernel::Kernels;
use crate::{CpuOptions, SimdLevel, identity};
use kiln_device::{Device, DeviceInfo};
use kiln_ir::Result;
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

/// The vector instructions that the kernels of a device use; `None` where it is not one of this crate.
pub fn simd_level(device: &Device) -> Option<SimdLevel> {
    cpu_device(device).map(CpuDevice::simd)
}

/// Takes what a [sanitized](CpuOptions::sanitized) device found since the last time; nothing of any other.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_cpu::{CpuOptions, FindingKind};
/// use kiln_device::KernelSource;
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
#[cfg(feature = "wgsl")]
pub fn take_findings(device: &Device) -> Vec<crate::Finding> {
    cpu_device(device).map(CpuDevice::take_findings).unwrap_or_default()
}

fn cpu_device(device: &Device) -> Option<&CpuDevice> {
    let api: &dyn Any = &**device.api();
    api.downcast_ref()
}

/// What [`open`] would give with default options, without opening anything.
pub fn info() -> DeviceInfo {
    let (simd, usage) = (SimdLevel::detect(), CpuOptions::new().default_usage());
    identity::describe(kiln_device::cores(), simd, usage, &Kernels::new(simd, false))
}
