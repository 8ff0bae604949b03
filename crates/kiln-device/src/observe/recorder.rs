//! Where a device puts what it did.

use super::clock::UnixClock;
use super::event::Happening;
use super::statistics::{KernelStatistics, Totals};
use super::stream::{Queue, Stream, WatchId, WatchReport, What};
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

/// What one launch of a kernel costs, as far as its author or its plan knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// Bytes that it reads and writes.
    pub bytes: u64,
    /// Arithmetic operations.
    pub flops: u64,
}

/// Launches of one kernel in a row, as a device tells them.
#[derive(Clone, Debug)]
pub struct KernelRun {
    /// The name of the kernel.
    pub name: Arc<str>,
    /// What one launch costs.
    pub cost: KernelCost,
    /// How often it ran.
    pub launches: u64,
    /// When the first launch began, on the clock of the host, and how long all of them took; `None` where that is not known.
    pub time: Option<(Instant, Duration)>,
}

impl KernelRun {
    /// A dispatch, of which it is not known how long it takes.
    pub fn untimed(dispatch: &Dispatch) -> Self {
        Self { name: dispatch.kernel().name().into(), cost: dispatch.cost(), launches: 1, time: None }
    }

    pub(super) fn into_event(self, submission: u64, unix_ns: impl Fn(Instant) -> u64) -> Happening {
        let Self { name, cost, launches, time } = self;
        Happening::KernelRun {
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

/// What watches a device. A device has one, and tells it what ran while it [is on](Self::is_on). Clones are the same recorder.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Who wants to know; nobody is 0.
    on: AtomicU8,
    device: OnceLock<String>,
    clock: UnixClock,
    profile: Mutex<Profile>,
    queue: Arc<Queue>,
    stream: Mutex<Stream>,
    graph_runs: AtomicU64,
}

/// What was counted, and who wants it counted.
#[derive(Default)]
struct Profile {
    totals: Totals,
    /// The switch of the device.
    is_set: bool,
    /// How many [`Profiling`] there are.
    holders: usize,
}

impl Profile {
    fn is_on(&self) -> bool {
        self.is_set || self.holders > 0
    }
}

/// Counts and times kernels while it lives; see [`Device::profile`](crate::Device::profile). Does not keep the device open.
#[derive(Debug)]
#[must_use = "kernels are counted while it lives"]
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
    /// A recorder that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether somebody watches. Always `false` without the feature `events`, which leaves out what depends on it.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is(PROFILED | WATCHED | TRACED)
    }

    /// Takes what a submission ran, in order.
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
            self.0.queue.push(What::Runs { submission, runs });
        }
    }

    /// For the caches of the device: passes on what they tell while somebody watches.
    pub fn cache_sink(&self) -> impl EventSink + use<> {
        CacheWatch(self.clone())
    }

    #[inline]
    fn is(&self, whom: u8) -> bool {
        cfg!(feature = "events") && self.0.on.load(Ordering::Relaxed) & whom != 0
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> Happening) {
        if self.is(WATCHED) {
            self.0.queue.push(What::Happened(what()));
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is(WATCHED)
    }

    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.is(TRACED)
    }

    /// A moment as events have it.
    pub(crate) fn unix_ns(&self, at: Instant) -> u64 {
        self.0.clock.ns(at)
    }

    pub(crate) fn next_graph_run(&self) -> u64 {
        self.0.graph_runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Says whose recorder it is. The first word holds.
    pub(crate) fn set_device(&self, id: &str) {
        self.0.device.get_or_init(|| id.to_string());
    }

    /// The id of the device; empty where there is none yet.
    pub(crate) fn device(&self) -> &str {
        self.0.device.get().map_or("", String::as_str)
    }

    pub(super) fn watch(&self, watcher: Box<dyn Watcher>, first: Happening) -> Result<WatchId> {
        let mut stream = self.0.stream.lock();
        let id = stream.watch(&self.0.queue, self.device(), self.0.clock, watcher, first)?;
        self.set(WATCHED, true);
        Ok(id)
    }

    /// Waits with nothing locked: whoever it waits for may begin or end a watch.
    pub(super) fn unwatch(&self, id: WatchId) -> Option<WatchReport> {
        let mut stream = self.0.stream.lock();
        let reported = stream.unwatch(&self.0.queue, id)?;
        if !stream.is_watched() {
            self.set(WATCHED, false);
        }
        drop(stream);
        reported.recv().ok()
    }

    /// Ends all watchers, after everything that was told.
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
            profile.totals.clear();
        }
        self.set(PROFILED, profile.is_on());
    }

    pub(super) fn set_tracing(&self, on: bool) {
        self.set(TRACED, on);
    }

    fn set(&self, whom: u8, on: bool) {
        if on {
            self.0.on.fetch_or(whom, Ordering::Relaxed);
        } else {
            self.0.on.fetch_and(!whom, Ordering::Relaxed);
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

struct CacheWatch(Recorder);

impl EventSink for CacheWatch {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        if self.0.is_traced() {
            TracingSink.record(event)?;
        }
        self.0.tell(|| Happening::Cache(event.clone()));
        Ok(())
    }

    fn is_on(&self) -> bool {
        self.0.is(WATCHED | TRACED)
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
