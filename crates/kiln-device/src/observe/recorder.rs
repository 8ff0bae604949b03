//! The recorder, to which a device reports what it does.

use super::clock::UnixClock;
use super::event::EventKind;
use super::statistics::{KernelStatistics, Totals};
use super::stream::{Queue, QueuedRecord, Stream, WatchId, WatchReport};
use super::watcher::Watcher;
use crate::command::Dispatch;
use kiln_ir::Result;
use kiln_resource_cache::events::{CacheEvent, EventSink, TracingSink};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The cost of one launch of a kernel, as far as it is known.
///
/// See [`Profiling`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// Bytes read and written.
    pub bytes: u64,
    /// Arithmetic operations.
    pub flops: u64,
}

/// Consecutive launches of one kernel.
///
/// See [`Recorder`] for an example.
#[derive(Clone, Debug)]
pub struct KernelRun {
    /// The name of the kernel.
    pub name: Arc<str>,
    /// The cost of one launch.
    pub cost: KernelCost,
    /// The number of launches.
    pub launches: u64,
    /// When the first launch began on the host's clock, and the duration of all launches; `None` if unknown.
    pub time: Option<(Instant, Duration)>,
}

impl KernelRun {
    /// Creates a run for a dispatch of unknown duration.
    pub fn untimed(dispatch: &Dispatch) -> Self {
        Self { name: dispatch.kernel().name().into(), cost: dispatch.cost(), launches: 1, time: None }
    }

    pub(super) fn into_event(self, submission: u64, unix_ns: impl Fn(Instant) -> u64) -> EventKind {
        let Self { name, cost, launches, time } = self;
        EventKind::KernelRun {
            kernel: name.to_string(),
            submission,
            launches,
            bytes: cost.bytes.saturating_mul(launches),
            flops: cost.flops.saturating_mul(launches),
            start_ns: time.map(|(start, _)| unix_ns(start)),
            duration_ns: time.map(|(_, took)| nanos(took)),
        }
    }
}

/// Records the activity of a device while it [is on](Self::is_on). A device has one recorder; clones refer to the same
/// one.
///
/// ```
/// use kiln_device::{KernelCost, KernelRun, Recorder};
///
/// let recorder = Recorder::new();
/// assert!(!recorder.is_on(), "nothing observes the device");
/// if recorder.is_on() {
///     let cost = KernelCost { bytes: 8, flops: 1 };
///     recorder.record(1, vec![KernelRun { name: "add".into(), cost, launches: 1, time: None }]);
/// }
/// ```
#[derive(Clone, Default)]
pub struct Recorder(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Bit set of [`PROFILED`], [`WATCHED`] and [`TRACED`].
    on: AtomicU8,
    device: OnceLock<String>,
    clock: UnixClock,
    profile: Mutex<Profile>,
    queue: Arc<Queue>,
    stream: Mutex<Stream>,
    graph_runs: AtomicU64,
}

/// The statistics, and the reasons why they are collected.
#[derive(Default)]
struct Profile {
    totals: Totals,
    /// Whether profiling was turned on by `set_profiling`.
    is_set: bool,
    /// The number of [`Profiling`] values.
    holders: usize,
}

impl Profile {
    fn is_on(&self) -> bool {
        self.is_set || self.holders > 0
    }
}

/// Keeps profiling on while it exists; see [`Device::profile`](crate::Device::profile). Does not keep the device open.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// # if !cfg!(feature = "events") {
/// #     return Ok(()); // Events are compiled out.
/// # }
/// use kiln_device::{KernelCost, KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let kernel = device.kernel(KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}"))?;
/// let profiling = device.profile();
/// kernel.launch().cost(KernelCost { bytes: 0, flops: 10 }).over(1)?;
/// drop(profiling);
/// let statistics = device.kernel_statistics();
/// assert_eq!((statistics[0].launches, statistics[0].flops), (1, 10));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "kernels are counted until it is dropped"]
pub struct Profiling(Option<Recorder>);

impl Profiling {
    pub(super) fn new(recorder: Option<Recorder>) -> Self {
        if let Some(recorder) = &recorder {
            recorder.change_profile(|profile| profile.holders += 1);
        }
        Self(recorder)
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        if let Some(recorder) = &self.0 {
            recorder.change_profile(|profile| profile.holders -= 1);
        }
    }
}

const PROFILED: u8 = 1;
const WATCHED: u8 = 2;
const TRACED: u8 = 4;

impl Recorder {
    /// Creates a recorder that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether activity is recorded. Always `false` without the feature `events`, so that the compiler removes
    /// the code that depends on it.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is(PROFILED | WATCHED | TRACED)
    }

    /// Records the launches of a submission, in order.
    pub fn record(&self, submission: u64, runs: Vec<KernelRun>) {
        if self.is(PROFILED) {
            let mut profile = self.0.profile.lock();
            runs.iter().for_each(|run| profile.totals.add(run));
        }
        if self.is(TRACED) {
            for KernelRun { name, launches, time, .. } in &runs {
                let duration_ns = time.map(|(_, took)| nanos(took));
                tracing::trace!(target: "kiln", device = self.device(), submission, kernel = &**name, launches, duration_ns, "kernel ran");
            }
        }
        if self.is(WATCHED) && !runs.is_empty() {
            self.0.queue.push(QueuedRecord::Runs { submission, runs });
        }
    }

    /// Returns a sink for the caches of the device, which forwards their events while the device is watched.
    pub fn cache_sink(&self) -> impl EventSink + use<> {
        CacheEventSink(self.clone())
    }

    #[inline]
    // Relaxed: the flags only decide whether events are emitted. A launch at the same time as a change may be missed.
    fn is(&self, flags: u8) -> bool {
        cfg!(feature = "events") && self.0.on.load(Ordering::Relaxed) & flags != 0
    }

    /// Emits an event if the device is watched. The closure runs only then.
    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        if self.is(WATCHED) {
            self.0.queue.push(QueuedRecord::Event(kind()));
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is(WATCHED)
    }

    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.is(TRACED)
    }

    /// Converts a moment to the time of events.
    pub(crate) fn unix_ns(&self, at: Instant) -> u64 {
        self.0.clock.ns(at)
    }

    pub(crate) fn next_graph_run(&self) -> u64 {
        self.0.graph_runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sets the id of the device. Later calls have no effect.
    pub(crate) fn set_device(&self, id: &str) {
        self.0.device.get_or_init(|| id.to_string());
    }

    /// Returns the id of the device, or an empty string if it is not set yet.
    pub(crate) fn device(&self) -> &str {
        self.0.device.get().map_or("", String::as_str)
    }

    pub(super) fn watch(&self, watcher: Box<dyn Watcher>, first: EventKind) -> Result<WatchId> {
        let mut stream = self.0.stream.lock();
        let id = stream.watch(&self.0.queue, self.device(), self.0.clock, watcher, first)?;
        // After the watcher is queued, so that the first event it receives is the beginning of the watch.
        self.set(WATCHED, true);
        Ok(id)
    }

    /// Removes a watcher and waits for its report, with no lock held: the watcher being awaited may add or remove
    /// watchers.
    pub(super) fn unwatch(&self, id: WatchId) -> Option<WatchReport> {
        let mut stream = self.0.stream.lock();
        let reported = stream.unwatch(&self.0.queue, id)?;
        if !stream.is_watched() {
            self.set(WATCHED, false);
        }
        // Unlocked before waiting: the delivery thread runs watchers, which may add or remove watchers.
        drop(stream);
        // An error means that the delivery thread is gone, and with it the report.
        reported.recv().ok()
    }

    /// Removes all watchers, after all their events are delivered.
    pub(super) fn end(&self) {
        let last = || self.0.stream.lock().last();
        while let Some(id) = last() {
            self.unwatch(id);
        }
    }

    pub(super) fn set_profiling(&self, on: bool) {
        self.change_profile(|profile| profile.is_set = on);
    }

    fn change_profile(&self, change: impl FnOnce(&mut Profile)) {
        let mut profile = self.0.profile.lock();
        let was_on = profile.is_on();
        change(&mut profile);
        if profile.is_on() && !was_on {
            // A new profile starts from zero.
            profile.totals.clear();
        }
        self.set(PROFILED, profile.is_on());
    }

    pub(super) fn set_tracing(&self, on: bool) {
        self.set(TRACED, on);
    }

    fn set(&self, flags: u8, on: bool) {
        if on {
            self.0.on.fetch_or(flags, Ordering::Relaxed);
        } else {
            self.0.on.fetch_and(!flags, Ordering::Relaxed);
        }
    }

    pub(super) fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        self.0.profile.lock().totals.statistics()
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("device", &self.device()).field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

struct CacheEventSink(Recorder);

impl EventSink for CacheEventSink {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        if self.0.is_traced() {
            TracingSink.record(event)?;
        }
        self.0.emit(|| EventKind::Cache(event.clone()));
        Ok(())
    }

    fn is_on(&self) -> bool {
        self.0.is(WATCHED | TRACED)
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
