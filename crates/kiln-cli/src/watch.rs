//! Watches the devices that commands open, where the environment asks for it.

use crate::settings;
use kiln::observe::watch_from_settings;
use kiln::{Device, Result};

/// The device, watched into the file that `KILN_EVENTS` names, where it names one.
///
/// # Errors
/// As [`watch_from_settings`].
pub(crate) fn watched(device: Device) -> Result<Device> {
    watch_from_settings(&device, settings::variable)?;
    Ok(device)
}
