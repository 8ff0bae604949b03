//! What the environment says about the CPU device.

use crate::kernel_dir::KernelDir;
use crate::watch::watched;
use kiln::{CpuOptions, Device, KernelCacheOptions, Result};

/// The settings of the CPU device, with compiled kernels kept where `kiln cache` looks for them.
///
/// # Errors
/// `InvalidArgument` where a variable has a value that it cannot have.
pub(crate) fn cpu_options() -> Result<CpuOptions> {
    let kernels = KernelDir::of_environment();
    let kernels = kernels.map_or_else(|_| KernelCacheOptions::new().without_disk(), |dir| dir.options());
    Ok(CpuOptions::from_settings(variable)?.kernels(kernels))
}

/// The CPU device with these settings, watched where the environment asks for it.
///
/// # Errors
/// As [`cpu_options`], and those of opening.
pub(crate) fn open_cpu() -> Result<Device> {
    open_cpu_with(cpu_options()?)
}

/// The CPU device with other settings, watched as that of [`open_cpu`].
///
/// # Errors
/// Those of opening.
pub(crate) fn open_cpu_with(options: CpuOptions) -> Result<Device> {
    watched(Device::cpu_with(options)?)
}

/// A variable; what is no text in it is shown by a sign for that, and is no value of any setting.
pub(crate) fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}
