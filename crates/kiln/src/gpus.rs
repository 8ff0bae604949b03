//! The GPUs of this machine, or why this build has none.

use kiln_ir::Result;
use kiln_runtime::DeviceInfo;

#[cfg(feature = "gpu")]
pub(crate) fn probe() -> Result<Vec<DeviceInfo>> {
    kiln_gpu::probe()
}

#[cfg(feature = "gpu")]
pub(crate) fn open(index: usize) -> Result<kiln_runtime::Device> {
    kiln_gpu::open(index, kiln_gpu::GpuOptions::new())
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn probe() -> Result<Vec<DeviceInfo>> {
    Err(unsupported())
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn open(_index: usize) -> Result<kiln_runtime::Device> {
    Err(unsupported())
}

#[cfg(not(feature = "gpu"))]
fn unsupported() -> kiln_ir::Error {
    let message = "expected a build with the feature `gpu` of the crate `kiln`, found one without it";
    kiln_ir::Error::new(kiln_ir::ErrorKind::Unsupported, message)
}
