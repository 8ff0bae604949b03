//! Settings of devices in the environment: options of the CPU device, events and metrics.

use crate::kernel_dir::KernelDir;
use crate::metrics;
use crate::rotating_file::RotatingFile;
use kiln::cache::KernelCacheOptions;
use kiln::device::CpuOptions;
use kiln::observe::{EVENTS_SETTING, EventLines};
use kiln::{Device, Error, ErrorKind, Result};

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

/// The device, with its events in the file that `KILN_EVENTS` names, and its metrics where `KILN_METRICS` says.
///
/// # Errors
/// `Io` where the file for events cannot be opened; those of [`Device::watch`](kiln::Device) and [`metrics::watch`].
pub(crate) fn watched(device: Device) -> Result<Device> {
    if let Some(path) = variable(EVENTS_SETTING).filter(|path| !path.is_empty()) {
        let file = RotatingFile::open(path.as_ref()).map_err(|error| {
            let message = format!("{EVENTS_SETTING} expected a file for events, found `{path}`: {error}");
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        device.watch(EventLines::new(file))?;
    }
    metrics::watch(&device)?;
    Ok(device)
}

/// A variable; what is no text in it is shown by a sign for that, and is no value of any setting.
pub(crate) fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}
