//! The entries of the store, as kernels.

use crate::Fallible;
use crate::kernel_dir::KernelDir;
use crate::terminal::plain;
use kiln::cache::store::EntryInfo;
use kiln::kernel::KernelKey;
use kiln::{Device, DeviceInfo};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// A stored kernel. Unknown fields of a foreign entry are `None`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct StoredKernel {
    pub(super) name: Option<String>,
    /// `None` also if the source has only one entry point and it was not named.
    pub(super) entry: Option<String>,
    pub(super) device: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) driver_version: Option<String>,
    /// Whether it is the variant for grids above the device's limit.
    pub(super) wide_grid: bool,
    pub(super) hash: Option<String>,
    pub(super) state: State,
    pub(super) bytes: u64,
    pub(super) uses: u64,
    /// Seconds since the Unix epoch.
    pub(super) written: u64,
    /// Seconds since the Unix epoch.
    pub(super) last_used: u64,
}

/// Whether a stored kernel is usable on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A device of this machine would load it.
    Current,
    /// Its device is present, but the driver or Kiln has changed.
    Stale,
    /// Its device is not on this machine.
    Elsewhere,
    /// Its key is not of this version of Kiln.
    Foreign,
}

impl State {
    pub(super) const ALL: [Self; 4] = [Self::Current, Self::Stale, Self::Elsewhere, Self::Foreign];

    /// Returns the state of a key on a machine with these devices.
    pub(super) fn of(key: Option<&KernelKey>, devices: &[DeviceInfo]) -> Self {
        let Some(key) = key else { return Self::Foreign };
        let device = field(key, "device");
        match () {
            // First, because two devices may have the same name and only one of them the driver of the key.
            () if devices.iter().any(|info| key.is_for(info)) => Self::Current,
            () if devices.iter().any(|info| info.name == device) => Self::Stale,
            () => Self::Elsewhere,
        }
    }
}

impl StoredKernel {
    fn new(info: &EntryInfo, devices: &[DeviceInfo]) -> Self {
        let key = KernelKey::decode(&info.key).ok();
        let text = |name: &str| key.as_ref().map(|key| field(key, name));
        Self {
            name: text("name"),
            entry: text("entry").filter(|entry| !entry.is_empty()),
            device: text("device"),
            driver: text("driver"),
            driver_version: text("driver_version"),
            wide_grid: text("wide_grid").as_deref() == Some("true"),
            hash: key.as_ref().map(|key| key.hash().to_string()),
            state: State::of(key.as_ref(), devices),
            bytes: info.file_bytes,
            uses: info.uses,
            written: seconds(info.written),
            last_used: seconds(info.last_used),
        }
    }
}

/// Returns the stored kernels, sorted by name, entry point and device.
pub(super) fn gather(dir: &KernelDir) -> Fallible<Vec<StoredKernel>> {
    let Some(store) = dir.open_existing()? else { return Ok(Vec::new()) };
    let entries = store.entries()?;
    // Listing devices queries the drivers, which is slow.
    let devices = if entries.is_empty() { Vec::new() } else { Device::list() };
    let mut kernels: Vec<_> = entries.iter().map(|entry| StoredKernel::new(entry, &devices)).collect();
    kernels.sort();
    Ok(kernels)
}

/// Formats an optional value for a report.
pub(super) fn text(field: &Option<String>) -> String {
    field.as_deref().map_or_else(|| "-".to_string(), plain)
}

/// Returns a field of a key, as text.
pub(super) fn field(key: &KernelKey, name: &str) -> String {
    key.fields().into_iter().find(|(field, _)| *field == name).map_or_else(String::new, |(_, value)| value)
}

/// Converts to seconds since the Unix epoch.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
