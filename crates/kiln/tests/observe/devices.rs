//! The devices that a test opens.

use kiln::Device;
use kiln::cache::KernelCacheOptions;
use kiln::device::CpuOptions;

/// Opens a CPU device, and the first GPU if there is one, for the caller only.
pub(crate) fn open() -> Vec<Device> {
    let options = CpuOptions::new().threads(2).kernels(KernelCacheOptions::new().without_disk());
    let mut devices = vec![Device::cpu_with(options).unwrap()];
    devices.extend(gpu());
    devices
}

#[cfg(feature = "gpu")]
fn gpu() -> Option<Device> {
    use kiln::device::GpuOptions;

    if Device::list().len() < 2 {
        assert!(std::env::var_os("CI").is_none(), "no GPU although `CI` is set");
        println!("skipped on the GPU: there is none");
        return None;
    }
    let options = GpuOptions::new().kernels(KernelCacheOptions::new().without_disk());
    Some(Device::gpu_with(0, options).unwrap())
}

#[cfg(not(feature = "gpu"))]
fn gpu() -> Option<Device> {
    None
}
