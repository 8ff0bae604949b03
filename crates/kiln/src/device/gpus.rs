//! Lists and opens the GPUs of this machine, or explains why this build has none.

use kiln_device::{DeviceInfo, KernelCacheOptions};
use kiln_ir::Result;

#[cfg(feature = "gpu")]
pub(crate) fn probe() -> Result<Vec<DeviceInfo>> {
    kiln_gpu::probe()
}

#[cfg(feature = "gpu")]
pub(crate) fn open(index: usize, kernels: KernelCacheOptions) -> Result<kiln_device::Device> {
    let kernels = kernels.or_disk(crate::cache::default_disk);
    kiln_gpu::open(index, kiln_gpu::GpuOptions::new().kernels(kernels))
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn probe() -> Result<Vec<DeviceInfo>> {
    Err(unsupported())
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn open(_index: usize, _kernels: KernelCacheOptions) -> Result<kiln_device::Device> {
    Err(unsupported())
}

#[cfg(not(feature = "gpu"))]
fn unsupported() -> kiln_ir::Error {
    let message = "expected a build with the feature `gpu` of the crate `kiln`, found one without it";
    kiln_ir::Error::new(kiln_ir::ErrorKind::Unsupported, message)
}
