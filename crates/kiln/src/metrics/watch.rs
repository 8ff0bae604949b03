//! The devices whose metrics are collected.

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

/// Devices whose metrics are collected. Clones are the same watch.
///
/// It owns none of them: a device goes when the program drops it, at most a snapshot later. Its last numbers stay, with
/// `kiln_device_open` 0, until a device with the same id is added. While the watch lives, the kernels of its devices are
/// [counted and timed](Device::profile).
#[derive(Clone, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    devices: Mutex<Vec<WatchedDevice>>,
}

/// A device under its label, which no other has.
struct WatchedDevice {
    id: String,
    label: String,
    state: State,
    kernels: KernelLabels,
}

enum State {
    /// The device, whose kernels are timed.
    Open { device: WeakDevice, _profiling: Profiling },
    /// What it told when it went.
    Closed(Vec<Metric>),
}

impl Watch {
    /// A watch of no device.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a device, under its id as label; where there is one with the same id, under `cpu#2` and so on. One that is there
    /// already is not added again.
    pub fn add(&self, device: &Device) {
        let mut devices = self.0.devices.lock();
        let is_same = |watched: &WatchedDevice| matches!(&watched.state, State::Open { device: known, .. } if known.is_of(device));
        if devices.iter().any(is_same) {
            return;
        }
        let id = &device.info().id;
        let of_id = devices.iter().filter(|watched| watched.id == *id).count();
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
        device.last_words().add(self, number);
    }

    /// The metrics of all devices now, in the order in which they were added.
    pub fn snapshot(&self) -> Vec<Metric> {
        let own = [("version", env!("CARGO_PKG_VERSION")), ("pid", &std::process::id().to_string())];
        let mut all = vec![Metric::gauge("kiln_info", "Version and process; always 1.").sample(&own, 1.0)];
        let mut devices = self.0.devices.lock();
        // All of them before any is asked, and dropped when nothing is locked any more: metrics of one device may drop what it caches, and
        // with it the last handle of another, which then locks this list.
        let held: Vec<Option<Device>> = devices.iter().map(WatchedDevice::open).collect();
        for (watched, device) in devices.iter_mut().zip(&held) {
            match (&watched.state, device) {
                (State::Closed(last), _) => join(&mut all, last.clone()),
                (State::Open { .. }, Some(device)) => join(&mut all, watched.tell(device.runtime(), 1.0)),
                (State::Open { .. }, None) => {}
            }
        }
        drop(devices);
        all
    }

    /// The metrics of all devices now, in the Prometheus text format.
    pub fn to_prometheus(&self) -> String {
        to_prometheus(&self.snapshot())
    }

    /// The metrics of all devices now, as JSON. `kiln top` asks for it at `/metrics.json`; [`to_json`] describes the form.
    pub fn to_json(&self) -> String {
        to_json(&self.snapshot())
    }

    /// Replaces a file with the metrics of all devices now: JSON where its name ends in `.json`, for `kiln top file:PATH`, and Prometheus
    /// text otherwise. A reader finds the old file or the new one, never a part.
    ///
    /// # Errors
    /// `InvalidArgument` where something other than a file is at the path; `Io` where the file cannot be written.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        // A rename would replace a device or a pipe by a file.
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

    /// Gives the metrics of all devices now to the recorder of the `metrics` facade, where the program has one. Sums of seconds
    /// are gauges there, because its counters are whole numbers.
    pub fn publish(&self) {
        publish(&self.snapshot());
    }
}

impl WatchedDevice {
    /// The device, where it is open.
    fn open(&self) -> Option<Device> {
        match &self.state {
            State::Open { device, .. } => device.upgrade(),
            State::Closed(_) => None,
        }
    }

    /// The metrics of its device, which is open or about to go.
    fn tell(&mut self, device: &kiln_device::Device, open: f64) -> Vec<Metric> {
        let help = "1 while the device is open, 0 where its last numbers are told.";
        let mut told = vec![Metric::gauge("kiln_device_open", help).sample(&[], open)];
        join(&mut told, device_metrics(device));
        join(&mut told, device.buffer_pool_stats().metrics());
        join(&mut told, cache_metrics(device));
        join(&mut told, self.kernels.metrics(&device.kernel_statistics()));
        label(&mut told, "device", &self.label);
        told
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.0.devices.lock();
        f.debug_tuple("Watch").field(&devices.iter().map(|watched| watched.label.as_str()).collect::<Vec<_>>()).finish()
    }
}

/// The watches that a device tells its last numbers when it goes.
#[derive(Default)]
pub(crate) struct LastWords(Mutex<Vec<(Weak<Shared>, usize)>>);

impl LastWords {
    fn add(&self, watch: &Watch, number: usize) {
        let mut watches = self.0.lock();
        watches.retain(|(watch, _)| watch.strong_count() > 0);
        watches.push((Arc::downgrade(&watch.0), number));
    }

    /// Tells them.
    pub(crate) fn say(&mut self, device: &kiln_device::Device) {
        for (watch, number) in self.0.get_mut().drain(..) {
            let Some(watch) = watch.upgrade() else { continue };
            let mut devices = watch.devices.lock();
            let Some(watched) = devices.get_mut(number) else { continue };
            let told = watched.tell(device, 0.0);
            watched.state = State::Closed(told);
        }
    }
}
