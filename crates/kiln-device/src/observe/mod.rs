//! Observes a device: an event stream, kernel statistics, `tracing` spans and a timeline.
//!
//! A device has one [`Recorder`]. While it is not observed, a submission costs a few relaxed loads, and a cache hit
//! formats nothing. Events are formatted and delivered on a thread that exists while the device has watchers.
//!
//! ```
//! # fn main() -> Result<(), kiln_ir::Error> {
//! # if !cfg!(feature = "events") {
//! #     return Ok(()); // Events are compiled out.
//! # }
//! use kiln_device::NullDevice;
//! use kiln_device::observe::{EventChannel, EventKind};
//!
//! let device = NullDevice::new().into_device()?;
//! let (channel, events) = EventChannel::new(1000);
//! let watch = device.watch(channel)?;
//! drop(device.buffer(4096)?);
//! device.unwatch(watch);
//! assert!(events.iter().any(|event| matches!(event.kind, EventKind::PoolGrew { bytes: 4096.., .. })));
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

pub use event::{CleanupReason, Event, EventKind};
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
    /// Delivers all events of this device to a watcher from now on: those of its caches, pool, kernels and graphs.
    ///
    /// The device owns the watcher. When the last handle of the device is dropped, it waits for submitted work and
    /// delivers all remaining events. Kernels are timed as with [`profile`](Self::profile).
    ///
    /// # Errors
    /// Returns `Unsupported` without the feature `events` of the crate; `Io` if no thread can be started.
    pub fn watch(&self, watcher: impl Watcher) -> Result<WatchId> {
        let Some(recorder) = self.api().recorder().filter(|_| cfg!(feature = "events")) else {
            let message = format!(
                "watching expected the feature `events`, found device `{}` of a build without it",
                self.info().id
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let info = self.info();
        let first = EventKind::WatchBegan {
            name: info.name.clone(),
            kind: info.kind,
            threads: info.limits.threads,
            is_timed: info.kind == DeviceKind::Cpu || info.features.contains(&Feature::Timestamps),
            reserved_bytes: self.buffer_pool_stats().bytes_reserved,
        };
        recorder.watch(Box::new(watcher), first)
    }

    /// Removes a watcher, after all submitted work is done and its events are delivered. Returns `None` if there is no
    /// such watcher. If a watcher calls it, the call does not wait, and the report is empty.
    pub fn unwatch(&self, watch: WatchId) -> Option<WatchReport> {
        let recorder = self.api().recorder()?;
        wait_for_submitted(self.api());
        recorder.unwatch(watch)
    }

    /// Turns `tracing` spans with the target `kiln` on or off: `submission`, `kernel_ready`, `graph_run` and
    /// `pool_cleanup`, with events for kernels and caches. Without the feature `events` of the crate, no spans are
    /// opened.
    pub fn set_tracing(&self, on: bool) {
        if let Some(recorder) = self.api().recorder() {
            recorder.set_tracing(on);
        }
    }

    /// Counts and times kernels while the returned value exists. The counts are kept until profiling starts again.
    ///
    /// On the CPU every kernel is timed. On a GPU kernels are timed if the device has
    /// [timestamps](crate::Feature::Timestamps), which puts each dispatch into its own compute pass. Consecutive
    /// launches of the same small kernel are timed together.
    ///
    /// Without the feature `events` of the crate nothing is counted.
    pub fn profile(&self) -> Profiling {
        Profiling::new(self.api().recorder().cloned())
    }

    /// Turns counting and timing of kernels on or off, as [`profile`](Self::profile) does, for programs with a single
    /// switch.
    pub fn set_profiling(&self, on: bool) {
        if let Some(recorder) = self.api().recorder() {
            recorder.set_profiling(on);
        }
    }

    /// Returns the statistics of each kernel since profiling started, longest total time first; empty if profiling was
    /// never on. Work that a GPU has not completed is not included: call [`synchronize`](Self::synchronize) first.
    pub fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        // Polls the GPU, so that completed work is recorded.
        self.api().completed();
        self.api().recorder().map_or_else(Vec::new, Recorder::kernel_statistics)
    }
}

/// Waits for submitted work, so that its kernels are recorded. A fault is returned by the next read.
fn wait_for_submitted(api: &Arc<dyn DeviceApi>) {
    if let Ok(last) = api.submit(&[]) {
        let _ = api.wait(last);
    }
}

/// Ends the event stream of a device when dropped, after all other fields.
pub(crate) struct StreamEnd(pub(crate) Arc<dyn DeviceApi>);

impl Drop for StreamEnd {
    fn drop(&mut self) {
        if let Some(recorder) = self.0.recorder().filter(|recorder| recorder.is_watched()) {
            wait_for_submitted(&self.0);
            recorder.end();
        }
    }
}
