//! Device settings from the environment: options of the CPU device, events and metrics.

use crate::kernel_dir::KernelDir;
use crate::metrics;
use crate::rotating_file::RotatingFile;
use kiln::cache::KernelCacheOptions;
use kiln::device::CpuOptions;
use kiln::observe::{EVENTS_SETTING, EventLines};
use kiln::{Device, Error, ErrorKind, Result};

/// Returns the settings of the CPU device, with compiled kernels stored where `kiln cache` looks for them.
///
/// # Errors
/// Returns `InvalidArgument` if a variable has an invalid value.
pub(crate) fn cpu_options() -> Result<CpuOptions> {
    let kernels = KernelDir::of_environment();
    let kernels = kernels.map_or_else(|_| KernelCacheOptions::new().without_disk(), |dir| dir.options());
    Ok(CpuOptions::from_settings(variable)?.kernels(kernels))
}

/// Opens the CPU device with the settings of the environment, with events and metrics if enabled there.
///
/// # Errors
/// As [`cpu_options`], or the error of opening the device.
pub(crate) fn open_cpu() -> Result<Device> {
    open_cpu_with(cpu_options()?)
}

/// Like [`open_cpu`], with other options.
///
/// # Errors
/// Returns the error of opening the device.
pub(crate) fn open_cpu_with(options: CpuOptions) -> Result<Device> {
    watched(Device::cpu_with(options)?)
}

/// Sends the events of a device to the file that `KILN_EVENTS` names, and exports its metrics as `KILN_METRICS` says.
///
/// # Errors
/// Returns `Io` if the event file cannot be opened, or the errors of [`Device::watch`](kiln::Device) and [`metrics::watch`].
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

/// Returns a variable. Invalid UTF-8 becomes a replacement character, which no setting accepts.
pub(crate) fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}
