//! The devices that a test opens.

use kiln::{CpuOptions, Device};

/// A CPU device, and the first GPU where there is one, opened for the caller alone.
pub(crate) fn open() -> Vec<Device> {
    let mut devices = vec![Device::cpu_with(CpuOptions::new().threads(2)).unwrap()];
    devices.extend(gpu());
    devices
}

#[cfg(feature = "gpu")]
fn gpu() -> Option<Device> {
    use kiln::{GpuOptions, KernelCacheOptions};

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
