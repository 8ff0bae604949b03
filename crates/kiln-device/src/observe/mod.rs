//! What a device does, for whoever watches: a stream of events, statistics of kernels, `tracing` spans, a timeline.
//!
//! A device has one [`Recorder`]. While nobody watches, a submission costs a few relaxed loads of it, and a cache hit formats nothing.
//! Events are made and written on a thread of the device that lives while somebody watches.
//!
//! ```
//! # fn main() -> Result<(), kiln_ir::Error> {
//! # if !cfg!(feature = "events") {
//! #     return Ok(()); // There is nothing to watch.
//! # }
//! use kiln_device::NullDevice;
//! use kiln_device::observe::{EventChannel, Happening};
//!
//! let device = NullDevice::new().into_device()?;
//! let (channel, events) = EventChannel::new(1000);
//! let watch = device.watch(channel)?;
//! drop(device.buffer(4096)?);
//! device.unwatch(watch);
//! assert!(events.iter().any(|event| matches!(event.what, Happening::PoolTook { bytes: 4096.., .. })));
//! # Ok(())
//! # }
//! ```

mod clock;
mod event;
mod recorder;
mod span;
mod statistics;
mod stream;
mod summary;
mod timeline;
mod watcher;

pub use event::{CleanupReason, Event, Happening};
pub use recorder::{KernelCost, KernelRun, Profiling, Recorder};
pub use statistics::KernelStatistics;
pub use stream::{WatchId, WatchReport};
pub use summary::{DeviceSummary, KernelSummary, summarise};
pub use timeline::{Timeline, TraceEvent, timeline};
pub use watcher::{EventChannel, EventLines, Watcher, claim_event_file};

pub(crate) use recorder::nanos;
pub(crate) use span::span;

use crate::device::{Device, DeviceApi};
use crate::info::{DeviceKind, Feature};
use kiln_ir::{Error, ErrorKind, Result};
use std::sync::Arc;

impl Device {
    /// Tells a watcher everything that happens on this device from now on: what its caches, its pool, its kernels and graphs do. The
    /// device owns the watcher, and has told it everything when its last handle is gone, for which it waits for what was submitted.
    ///
    /// Kernels are timed as [`profile`](Self::profile) says.
    ///
    /// # Errors
    /// `Unsupported` without the feature `events` of the crate; `Io` where no thread can start.
    pub fn watch(&self, watcher: impl Watcher) -> Result<WatchId> {
        let Some(recorder) = self.api().recorder().filter(|_| cfg!(feature = "events")) else {
            let message = format!(
                "watching expected the feature `events`, found device `{}` of a build without it",
                self.info().id
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let info = self.info();
        let first = Happening::WatchBegan {
            name: info.name.clone(),
            kind: info.kind,
            threads: info.limits.threads,
            is_timed: info.kind == DeviceKind::Cpu || info.features.contains(&Feature::Timestamps),
            reserved_bytes: self.buffer_pool_stats().bytes_reserved,
        };
        recorder.watch(Box::new(watcher), first)
    }

    /// Ends a watch, after everything that was submitted is done and told; `None` where there is no such watch. A watcher that ends a
    /// watch does not wait for it, and learns nothing of what was told.
    pub fn unwatch(&self, watch: WatchId) -> Option<WatchReport> {
        let recorder = self.api().recorder()?;
        settle(self.api());
        recorder.unwatch(watch)
    }

    /// Begins or ends `tracing` spans, target `kiln`: `submission`, `kernel_ready`, `graph_run`, `pool_cleanup`, with events for kernels and
    /// caches in them. Without the feature `events` of the crate there are none.
    pub fn set_tracing(&self, on: bool) {
        if let Some(recorder) = self.api().recorder() {
            recorder.set_tracing(on);
        }
    }

    /// Counts and times kernels while the result lives. The counts stay until profiling begins anew.
    ///
    /// On the CPU every kernel is timed; on a GPU those that the device has [timestamps](crate::Feature::Timestamps) for,
    /// which makes each dispatch a pass of its own. Small kernels in a row that do the same are timed together.
    ///
    /// Without the feature `events` of the crate nothing is ever counted.
    pub fn profile(&self) -> Profiling {
        Profiling::new(self.api().recorder().cloned())
    }

    /// A switch of the device that counts and times kernels as [`profile`](Self::profile) does, for programs with one place that asks.
    pub fn set_profiling(&self, on: bool) {
        if let Some(recorder) = self.api().recorder() {
            recorder.set_profiling(on);
        }
    }

    /// What each kernel did since profiling began, the longest first; empty where profiling never was on. What a GPU has not
    /// ended yet is not in it: [`synchronize`](Self::synchronize) first.
    pub fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        // Lets a GPU tell what it has ended.
        self.api().completed();
        self.api().recorder().map_or_else(Vec::new, Recorder::kernel_statistics)
    }
}

/// Waits for what was submitted, whose kernels are told then. A fault is told by whoever reads next.
fn settle(api: &Arc<dyn DeviceApi>) {
    if let Ok(last) = api.submit(&[]) {
        let _ = api.wait(last);
    }
}

/// Ends the stream of a device, after everything else of it.
pub(crate) struct StreamEnd(pub(crate) Arc<dyn DeviceApi>);

impl Drop for StreamEnd {
    fn drop(&mut self) {
        if let Some(recorder) = self.0.recorder().filter(|recorder| recorder.is_watched()) {
            settle(&self.0);
            recorder.end();
        }
    }
}
