//! The devices whose metrics are told.

use super::Metric;
use super::publish::publish;
use crate::Device;
use crate::device::WeakDevice;
use kiln_device::Profiling;
use kiln_device::metrics::{KernelLabels, cache_metrics, device_metrics, join, label, to_prometheus};
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, Weak};

/// Devices whose metrics are told. Clones are the same watch.
///
/// It owns none of them: a device goes when the program drops it, at most a snapshot later. Its last numbers stay, with
/// `kiln_device_open` 0, until a device with the same id is added. While the watch lives, the kernels of its devices are
/// [counted and timed](kiln_device::Device::profile).
#[derive(Clone, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    places: Mutex<Vec<Place>>,
}

/// A device under its label, which no other has.
struct Place {
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
        let mut places = self.0.places.lock();
        let is_there = |place: &Place| matches!(&place.state, State::Open { device: known, .. } if known.is_of(device));
        if places.iter().any(is_there) {
            return;
        }
        let id = &device.info().id;
        let of_id = places.iter().filter(|place| place.id == *id).count();
        let free = places.iter_mut().position(|place| place.id == *id && matches!(place.state, State::Closed(_)));
        let label = match free {
            Some(number) => places[number].label.clone(),
            None if of_id == 0 => id.clone(),
            None => format!("{id}#{}", of_id + 1),
        };
        let state = State::Open { device: device.downgrade(), _profiling: device.profile() };
        let place = Place { id: id.clone(), label, state, kernels: KernelLabels::default() };
        let number = free.unwrap_or(places.len());
        match free {
            Some(number) => places[number] = place,
            None => places.push(place),
        }
        device.last_words().add(self, number);
    }

    /// The metrics of all devices now, in the order in which they were added.
    pub fn snapshot(&self) -> Vec<Metric> {
        let own = [("version", env!("CARGO_PKG_VERSION")), ("pid", &std::process::id().to_string())];
        let mut all = vec![Metric::gauge("kiln_info", "Version and process; always 1.").sample(&own, 1.0)];
        // Dropped when nothing is locked any more: the last handle of a device may be among them.
        let mut held = Vec::new();
        for place in &mut *self.0.places.lock() {
            let told = match &place.state {
                State::Closed(last) => last.clone(),
                State::Open { device, .. } => {
                    let Some(device) = device.upgrade() else { continue };
                    let told = place.tell(&device, 1.0);
                    held.push(device);
                    told
                }
            };
            join(&mut all, told);
        }
        all
    }

    /// The metrics of all devices now, in the Prometheus text format.
    pub fn to_prometheus(&self) -> String {
        to_prometheus(&self.snapshot())
    }

    /// Gives the metrics of all devices now to the recorder of the `metrics` facade, where the program has one. Sums of seconds
    /// are gauges there, because its counters are whole numbers.
    pub fn publish(&self) {
        publish(&self.snapshot());
    }
}

impl Place {
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
        let places = self.0.places.lock();
        f.debug_tuple("Watch").field(&places.iter().map(|place| place.label.as_str()).collect::<Vec<_>>()).finish()
    }
}

/// The watches that a device tells its last numbers when it goes.
#[derive(Default)]
pub(crate) struct LastWords(Mutex<Vec<(Weak<Shared>, usize)>>);

impl LastWords {
    fn add(&self, watch: &Watch, place: usize) {
        let mut watches = self.0.lock();
        watches.retain(|(watch, _)| watch.strong_count() > 0);
        watches.push((Arc::downgrade(&watch.0), place));
    }

    /// Tells them.
    pub(crate) fn say(&mut self, device: &kiln_device::Device) {
        for (watch, number) in self.0.get_mut().drain(..) {
            let Some(watch) = watch.upgrade() else { continue };
            let mut places = watch.places.lock();
            let Some(place) = places.get_mut(number) else { continue };
            let told = place.tell(device, 0.0);
            place.state = State::Closed(told);
        }
    }
}
