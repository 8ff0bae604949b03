//! Watches the devices that commands open, where the environment asks for it.

use crate::rotating_file::RotatingFile;
use crate::{metrics, settings};
use kiln::observe::{EVENTS_SETTING, EventLines};
use kiln::{Device, Error, ErrorKind, Result};

/// The device, with its events in the file that `KILN_EVENTS` names, and its metrics where `KILN_METRICS` says.
///
/// # Errors
/// `Io` where the file for events cannot be opened; those of [`Device::watch`](kiln::Device) and [`metrics::watch`].
pub(crate) fn watched(device: Device) -> Result<Device> {
    if let Some(path) = settings::variable(EVENTS_SETTING).filter(|path| !path.is_empty()) {
        let file = RotatingFile::open(path.as_ref()).map_err(|error| {
            let message = format!("{EVENTS_SETTING} expected a file for events, found `{path}`: {error}");
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        device.watch(EventLines::new(file))?;
    }
    metrics::watch(&device)?;
    Ok(device)
}
