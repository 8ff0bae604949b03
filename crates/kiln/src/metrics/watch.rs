//! A set of devices whose metrics are collected.

use super::Metric;
use super::publish::publish;
use crate::device::handle::WeakDevice;
use crate::{Device, Error, ErrorKind, Result};
use kiln_device::Profiling;
use kiln_device::metrics::{KernelLabels, cache_metrics, device_metrics, join, label, to_json, to_prometheus};
use kiln_resource_cache::new_file::NewFile;
use parking_lot::Mutex;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Weak};

/// A set of devices whose metrics are collected. Clones share the same set.
///
/// It holds weak references: a device closes when the program drops it, at most one snapshot later. Its last metrics
/// stay, with `kiln_device_open` 0, until a device with the same id is added. While the watch lives, the kernels of
/// its devices are [counted and timed](Device::profile).
///
/// See [`metrics`](super) for an example.
#[derive(Clone, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    devices: Mutex<Vec<WatchedDevice>>,
}

/// A device with its unique label.
struct WatchedDevice {
    id: String,
    label: String,
    state: State,
    kernels: KernelLabels,
}

enum State {
    /// An open device, with profiling on.
    Open { device: WeakDevice, _profiling: Profiling },
    /// The last metrics of a closed device.
    Closed(Vec<Metric>),
}

impl Watch {
    /// Creates a watch without devices.
    ///
    /// See [`metrics`](super) for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device, labelled with its id, or `cpu#2` and so on if that label is taken. A device that is already in
    /// the set is not added again.
    ///
    /// See [`metrics`](super) for an example.
    pub fn add(&self, device: &Device) {
        // Lock order: this list, then the list in `FinalMetrics`. `FinalMetrics::send` has exclusive access to its
        // own list and locks only this one.
        let mut devices = self.0.devices.lock();
        let is_same = |watched: &WatchedDevice| matches!(&watched.state, State::Open { device: known, .. } if known.is_of(device));
        if devices.iter().any(is_same) {
            return;
        }
        let id = &device.info().id;
        let of_id = devices.iter().filter(|watched| watched.id == *id).count();
        // A reopened device continues the series of a closed one with the same id. Entries are never removed, so the
        // numbers that devices hold stay valid.
        let free = devices.iter().position(|watched| watched.id == *id && matches!(watched.state, State::Closed(_)));
        let label = match free {
            Some(number) => devices[number].label.clone(),
            None if of_id == 0 => id.clone(),
            None => format!("{id}#{}", of_id + 1),
        };
        let state = State::Open { device: device.downgrade(), _profiling: device.profile() };
        let watched = WatchedDevice { id: id.clone(), label, state, kernels: KernelLabels::default() };
        let number = free.unwrap_or(devices.len());
        match free {
            Some(number) => devices[number] = watched,
            None => devices.push(watched),
        }
        device.final_metrics().add(self, number);
    }

    /// Returns the current metrics of all devices, in the order in which they were added.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let watch = kiln::metrics::Watch::new();
    /// watch.add(&device);
    /// assert!(watch.snapshot().iter().any(|metric| metric.name == "kiln_device_open"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Vec<Metric> {
        let own = [("version", env!("CARGO_PKG_VERSION")), ("pid", &std::process::id().to_string())];
        let mut all = vec![Metric::gauge("kiln_info", "Version and process id; always 1.").sample(&own, 1.0)];
        let mut devices = self.0.devices.lock();
        // Lock order: upgrade all handles before reading any metrics, and drop them after the lock is released.
        // Reading the metrics of one device may evict cache entries that hold the last handle of another device,
        // whose drop locks this list.
        let held: Vec<Option<Device>> = devices.iter().map(WatchedDevice::open).collect();
        for (watched, device) in devices.iter_mut().zip(&held) {
            match (&watched.state, device) {
                (State::Closed(last), _) => join(&mut all, last.clone()),
                (State::Open { .. }, Some(device)) => join(&mut all, watched.metrics(device.runtime(), 1.0)),
                // The last handle is being dropped: that thread stores the final metrics once it gets the lock.
                (State::Open { .. }, None) => {}
            }
        }
        drop(devices);
        all
    }

    /// Returns the current metrics of all devices in the Prometheus text format.
    ///
    /// See [`metrics`](super) for an example.
    pub fn to_prometheus(&self) -> String {
        to_prometheus(&self.snapshot())
    }

    /// Returns the current metrics of all devices as JSON. `kiln top` reads it from `/metrics.json`; [`to_json`]
    /// describes the format.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let watch = kiln::metrics::Watch::new();
    /// watch.add(&device);
    /// assert!(watch.to_json().contains("kiln_device_open"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_json(&self) -> String {
        to_json(&self.snapshot())
    }

    /// Replaces a file with the current metrics of all devices: JSON if its name ends in `.json`, for
    /// `kiln top file:PATH`, and Prometheus text otherwise. The replacement is atomic: a reader sees either the old
    /// file or the new one.
    ///
    /// See [`metrics`](super) for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the path is not a regular file, and `Io` if the file cannot be written.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        // The rename below would replace a device node or a pipe with a regular file.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            let message = format!("metrics expected a file or nothing at {}, found something else", path.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let text = if is_json { self.to_json() } else { self.to_prometheus() };
        let write = || {
            let mut file = NewFile::create(path)?;
            file.write_all(text.as_bytes())?;
            file.commit()
        };
        write().map_err(|error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot write metrics to {}: {error}", path.display())).with_source(error)
        })
    }

    /// Sends the current metrics of all devices to the recorder of the `metrics` facade, if the program installed
    /// one. Sums of seconds are gauges there, because the facade's counters are integers.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let watch = kiln::metrics::Watch::new();
    /// watch.add(&device);
    /// watch.publish(); // call it periodically, for example every ten seconds
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish(&self) {
        publish(&self.snapshot());
    }
}

impl WatchedDevice {
    /// Returns the device if it is open.
    fn open(&self) -> Option<Device> {
        match &self.state {
            State::Open { device, .. } => device.upgrade(),
            State::Closed(_) => None,
        }
    }

    /// Collects the metrics of the device, which is open or closing.
    fn metrics(&mut self, device: &kiln_device::Device, open: f64) -> Vec<Metric> {
        let help = "1 while the device is open, 0 in its final metrics.";
        let mut metrics = vec![Metric::gauge("kiln_device_open", help).sample(&[], open)];
        join(&mut metrics, device_metrics(device));
        join(&mut metrics, device.buffer_pool_stats().metrics());
        join(&mut metrics, cache_metrics(device));
        join(&mut metrics, self.kernels.metrics(&device.kernel_statistics()));
        label(&mut metrics, "device", &self.label);
        metrics
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.0.devices.lock();
        f.debug_tuple("Watch").field(&devices.iter().map(|watched| watched.label.as_str()).collect::<Vec<_>>()).finish()
    }
}

/// The watches that receive the last metrics of a device when it closes.
#[derive(Default)]
pub(crate) struct FinalMetrics(Mutex<Vec<(Weak<Shared>, usize)>>);

impl FinalMetrics {
    fn add(&self, watch: &Watch, number: usize) {
        let mut watches = self.0.lock();
        watches.retain(|(watch, _)| watch.strong_count() > 0);
        watches.push((Arc::downgrade(&watch.0), number));
    }

    /// Sends the last metrics to them.
    pub(crate) fn send(&mut self, device: &kiln_device::Device) {
        for (watch, number) in self.0.get_mut().drain(..) {
            let Some(watch) = watch.upgrade() else { continue };
            let mut devices = watch.devices.lock();
            let Some(watched) = devices.get_mut(number) else { continue };
            let metrics = watched.metrics(device, 0.0);
            watched.state = State::Closed(metrics);
        }
    }
}
