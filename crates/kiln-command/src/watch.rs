//! Watches the devices that commands open, where the environment asks for it.

use crate::{metrics, settings};
use kiln::observe::watch_from_settings;
use kiln::{Device, Result};

/// The device, watched into the file that `KILN_EVENTS` names, with its numbers where `KILN_METRICS` says.
///
/// # Errors
/// As [`watch_from_settings`] and [`metrics::watch`].
pub(crate) fn watched(device: Device) -> Result<Device> {
    watch_from_settings(&device, settings::variable)?;
    metrics::watch(&device)?;
    Ok(device)
}
