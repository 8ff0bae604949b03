//! Opening the CPU device, and queries of an open one.

use crate::device::CpuDevice;
use crate::kernel::Kernels;
use crate::{CpuOptions, SimdLevel, identity};
use kiln_device::{Device, DeviceInfo};
use kiln_ir::Result;
use std::any::Any;
use std::sync::Arc;

/// Opens the CPU device. Each call creates a separate device with its own threads and its own pool.
///
/// See the [crate documentation](crate) for an example.
///
/// # Errors
/// Returns `InvalidArgument` if the options request zero threads, or if the pool's settings contradict each other;
/// `Unsupported` if they request a SIMD level that the processor lacks.
pub fn open(options: CpuOptions) -> Result<Device> {
    let device = CpuDevice::new(&options)?;
    let (pool, kernels) = options.into_parts();
    Device::with_kernels(Arc::new(device), pool, kernels)
}

/// Returns the SIMD level of a device's kernels; `None` if it is not a device of this crate.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_cpu::{CpuOptions, SimdLevel};
///
/// let device = kiln_cpu::open(CpuOptions::new().simd(SimdLevel::Scalar))?;
/// assert_eq!(kiln_cpu::simd_level(&device), Some(SimdLevel::Scalar));
/// # Ok(())
/// # }
/// ```
pub fn simd_level(device: &Device) -> Option<SimdLevel> {
    cpu_device(device).map(CpuDevice::simd)
}

/// Takes the findings of a [sanitized](CpuOptions::sanitized) device since the last call; empty for any other device.
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

/// Returns the info of the device that [`open`] would create with default options, without opening it.
///
/// See [`CpuDevice`] for an example.
pub fn info() -> DeviceInfo {
    let (simd, usage) = (SimdLevel::detect(), CpuOptions::new().default_usage());
    identity::describe(kiln_device::cores(), simd, usage, &Kernels::new(simd, false))
}
