//! Observation of devices: events as lines of JSON, kernel statistics, a timeline for Perfetto; and the plans and
//! verification of tensors.
//!
//! [`Device::watch`] sends events to a [`Watcher`]. [`TensorExplanation`] is returned by [`Tensor::explain`](crate::Tensor::explain), and
//! [`VerifyReport`] by [`Tensor::eval_checked`](crate::Tensor::eval_checked).
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! # if !cfg!(feature = "events") {
//! #     return Ok(()); // There is nothing to watch.
//! # }
//! use kiln::observe::{EventChannel, EventKind, summarise, timeline};
//! use kiln::{DType, Device, Tensor};
//!
//! let device = Device::cpu()?;
//! let (channel, events) = EventChannel::new(10_000);
//! let watch = device.watch(channel)?;
//! Tensor::ones(1000, DType::F32, &device)?.add_scalar(1.0)?.eval()?;
//! device.unwatch(watch);
//!
//! let events: Vec<_> = events.iter().collect();
//! assert!(events.iter().any(|event| matches!(event.kind, EventKind::KernelRun { duration_ns: Some(_), .. })));
//! let summary = &summarise(&events)[0];
//! assert_eq!(summary.kernels_ns + summary.unattributed_ns, summary.window_ns);
//! let for_perfetto = timeline(&events);
//! # let _ = for_perfetto;
//! # Ok(())
//! # }
//! ```

pub use crate::tensor::{TensorExplanation, VerifyReport};
pub use kiln_device::observe::*;

use crate::{Device, Error, ErrorKind, Result};

/// Name of the setting that holds the path of the event file.
///
/// See [`watch_from_settings`] for an example.
pub const EVENTS_SETTING: &str = "KILN_EVENTS";

/// Writes the events of a device to the file named by the setting [`EVENTS_SETTING`]. If another device already has
/// the file, a number is added to its name ([`claim_event_file`]). Returns `None` if the setting is missing or empty.
/// The file is not rotated. `kiln profile` shows the devices for which a program calls this function.
///
/// The library does not read the environment. A program that is configured by environment variables passes
/// them on:
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// let device = kiln::Device::cpu()?;
/// kiln::observe::watch_from_settings(&device, |name| std::env::var(name).ok())?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Io` if the file cannot be opened, and the errors of [`Device::watch`].
pub fn watch_from_settings(device: &Device, setting: impl Fn(&str) -> Option<String>) -> Result<Option<WatchId>> {
    let Some(path) = setting(EVENTS_SETTING).filter(|path| !path.is_empty()) else { return Ok(None) };
    let (file, _) = claim_event_file(path.as_ref()).map_err(|error| {
        let message = format!("{EVENTS_SETTING} expected a file for events, found `{path}`: {error}");
        Error::new(ErrorKind::Io, message).with_source(error)
    })?;
    device.watch(EventLines::new(file)).map(Some)
}
