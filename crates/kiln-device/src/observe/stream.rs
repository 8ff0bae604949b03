//! Delivers events from the threads that cause them to watchers.
//!
//! A thread pushes small records onto a bounded queue. One thread, which exists while there are watchers, turns them
//! into events. No lock is held while waiting for that thread: watchers are user code and may add and remove watchers.

use super::clock::UnixClock;
use super::event::{Event, EventKind};
use super::recorder::KernelRun;
use super::watcher::Watcher;
use kiln_ir::{Result, error};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The maximum number of queued events. A single submission with more of them is still accepted if the queue is empty.
const MAX_QUEUED: usize = 1 << 16;
/// The maximum time before an event is delivered. Waking the thread for each event would cost more than delivering it.
const INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of events between two flushes of a watcher. A line of an event has 100 to 300 bytes.
const MAX_UNFLUSHED: u64 = 256;

/// Identifies a watcher of a device, to remove it.
///
/// Returned by [`Device::watch`](crate::Device::watch); see the [module](crate::observe) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(u64);

/// The delivery report of a watcher.
///
/// Returned by [`Device::unwatch`](crate::Device::unwatch); see [`EventLines`](crate::observe::EventLines) for an
/// example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Events recorded and flushed, including the end of the watch.
    pub delivered: u64,
    /// Events dropped because the queue was full.
    pub dropped: u64,
    /// Events that the watcher failed to record or flush.
    pub lost: u64,
}

/// A queued record.
pub(super) enum QueuedRecord {
    Runs {
        submission: u64,
        runs: Vec<KernelRun>,
    },
    Event(EventKind),
    /// This many events were dropped.
    Dropped(u64),
    Watch {
        id: WatchId,
        watcher: GuardedWatcher,
        first: EventKind,
    },
    Unwatch {
        id: WatchId,
        report: Sender<WatchReport>,
    },
}

impl QueuedRecord {
    /// Returns the number of events that the record becomes.
    fn events(&self) -> usize {
        match self {
            Self::Runs { runs, .. } => runs.len(),
            Self::Event(_) => 1,
            // Control records are never dropped.
            Self::Dropped(_) | Self::Watch { .. } | Self::Unwatch { .. } => 0,
        }
    }
}

/// The watchers, and the thread that delivers to them.
#[derive(Default)]
pub(super) struct Stream {
    thread: Option<ThreadId>,
    watchers: Vec<WatchId>,
    ids: u64,
}

/// The records that the delivery thread has not taken yet.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    records: Vec<(Instant, QueuedRecord)>,
    /// The number of events in `records`.
    events: usize,
    /// Events dropped since the last record.
    dropped: u64,
    /// Whether one of the records must be delivered at once, because a caller may wait for it.
    is_urgent: bool,
    /// Whether the delivery thread is running.
    is_running: bool,
}

impl State {
    /// Appends a record of the events dropped before this position.
    fn record_dropped(&mut self, now: Instant) {
        if self.dropped > 0 {
            let dropped = std::mem::take(&mut self.dropped);
            self.records.push((now, QueuedRecord::Dropped(dropped)));
        }
    }
}

impl Queue {
    /// Queues a record. Drops it if the queue is full or there is no delivery thread.
    pub(super) fn push(&self, record: QueuedRecord) {
        // Before the lock, so that the time of an event does not include waiting for other threads.
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.is_running {
            self.add(&mut state, now, record);
        }
    }

    /// Queues a record, and returns true if the delivery thread must be started.
    fn push_first(&self, record: QueuedRecord) -> bool {
        let mut state = self.state.lock();
        self.add(&mut state, Instant::now(), record);
        !std::mem::replace(&mut state.is_running, true)
    }

    fn add(&self, state: &mut State, now: Instant, record: QueuedRecord) {
        let events = record.events();
        if state.events > 0 && state.events + events > MAX_QUEUED && events > 0 {
            state.dropped += events as u64;
            return;
        }
        state.record_dropped(now);
        state.records.push((now, record));
        // Wakes the thread early at half capacity, so that fewer events are dropped in a burst.
        let was_low = state.events < MAX_QUEUED / 2;
        state.events += events;
        // Control records are delivered at once, because a caller may wait for them.
        state.is_urgent |= events == 0;
        if events == 0 || (was_low && state.events >= MAX_QUEUED / 2) {
            self.filled.notify_one();
        }
    }

    /// Takes all records, after waiting up to `INTERVAL` for them.
    fn swap(&self, records: &mut Vec<(Instant, QueuedRecord)>) {
        let mut state = self.state.lock();
        if !state.is_urgent && state.events < MAX_QUEUED / 2 {
            // Not in a loop: a spurious wake-up only delivers earlier.
            self.filled.wait_for(&mut state, INTERVAL);
        }
        state.record_dropped(Instant::now());
        std::mem::swap(&mut state.records, records);
        (state.events, state.is_urgent) = (0, false);
    }

    /// Stops the thread if no watcher is queued, and discards the remaining records. Returns whether it stopped.
    fn end(&self) -> bool {
        let mut state = self.state.lock();
        // `push_first` found this thread running and started no other, so it must deliver to the new watcher.
        if state.records.iter().any(|(_, record)| matches!(record, QueuedRecord::Watch { .. })) {
            return false;
        }
        *state = State::default();
        true
    }

    /// Discards everything, so that no caller waits for a thread that does not run.
    fn discard(&self) {
        let left = std::mem::take(&mut *self.state.lock());
        // Dropped without the lock, because the records may contain watchers, whose drop is user code.
        drop(left);
    }
}

impl Stream {
    pub(super) fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Returns the watcher that was added last.
    pub(super) fn last(&self) -> Option<WatchId> {
        self.watchers.last().copied()
    }

    /// Adds a watcher, which receives all events from now on.
    pub(super) fn watch(
        &mut self,
        queue: &Arc<Queue>,
        device: &str,
        clock: UnixClock,
        watcher: Box<dyn Watcher>,
        first: EventKind,
    ) -> Result<WatchId> {
        let id = WatchId(self.ids);
        if queue.push_first(QueuedRecord::Watch { id, watcher: GuardedWatcher(Some(watcher)), first }) {
            let writer = Writer { queue: Arc::clone(queue), clock, device: device.to_string(), active: Vec::new() };
            let spawned = std::thread::Builder::new().name("kiln-events".into()).spawn(move || writer.run());
            let started = spawned.map_err(|error| {
                // Otherwise the queue would count as running, and later watchers would wait forever.
                queue.discard();
                error!(Io, "expected a thread that writes events, found none: {error}").with_source(error)
            })?;
            self.thread = Some(started.thread().id());
        }
        self.ids += 1;
        self.watchers.push(id);
        Ok(id)
    }

    /// Removes a watcher after all events so far, then sends its report. Returns `None` if there is no such watcher.
    /// Removing the last one stops the thread.
    pub(super) fn unwatch(&mut self, queue: &Queue, id: WatchId) -> Option<Receiver<WatchReport>> {
        let place = self.watchers.iter().position(|&known| known == id)?;
        self.watchers.remove(place);
        let (report, reported) = mpsc::channel();
        // A watcher may remove a watcher, or drop the last handle of the device: the delivery thread must not wait for
        // itself. It gets an empty report here; the real one below is never received.
        if self.thread == Some(std::thread::current().id()) {
            let _ = report.send(WatchReport::default());
        }
        queue.push(QueuedRecord::Unwatch { id, report });
        Some(reported)
    }
}

/// The thread that delivers events to watchers.
struct Writer {
    queue: Arc<Queue>,
    clock: UnixClock,
    device: String,
    active: Vec<ActiveWatcher>,
}

/// A watcher and its delivery state.
struct ActiveWatcher {
    id: WatchId,
    watcher: GuardedWatcher,
    /// Events recorded since the last flush.
    unflushed: u64,
    report: WatchReport,
    has_failed: bool,
}

impl Writer {
    fn run(mut self) {
        let mut records = Vec::new();
        loop {
            self.queue.swap(&mut records);
            for (at, record) in records.drain(..) {
                self.deliver(at, record);
            }
            self.active.iter_mut().for_each(ActiveWatcher::flush);
            if self.active.is_empty() && self.queue.end() {
                return;
            }
        }
    }

    fn deliver(&mut self, at: Instant, record: QueuedRecord) {
        match record {
            QueuedRecord::Event(kind) => self.emit(at, kind),
            QueuedRecord::Dropped(count) => {
                self.active.iter_mut().for_each(|watcher| watcher.report.dropped += count);
                self.emit(at, EventKind::EventsDropped { count });
            }
            QueuedRecord::Runs { submission, runs } => {
                for run in runs {
                    let kind = run.into_event(submission, |at| self.clock.ns(at));
                    self.emit(at, kind);
                }
            }
            QueuedRecord::Watch { id, watcher, first } => {
                let report = WatchReport::default();
                let mut watcher = ActiveWatcher { id, watcher, unflushed: 0, report, has_failed: false };
                watcher.take(&self.event(at, first));
                self.active.push(watcher);
            }
            QueuedRecord::Unwatch { id, report } => {
                let Some(place) = self.active.iter().position(|watcher| watcher.id == id) else { return };
                let mut watcher = self.active.remove(place);
                // Flushed first, so that the numbers in `WatchEnded` include the last events.
                watcher.flush();
                let WatchReport { delivered, dropped, lost } = watcher.report;
                watcher.take(&self.event(at, EventKind::WatchEnded { delivered, dropped, lost }));
                watcher.flush();
                let final_report = watcher.report;
                // Before the report is sent, so that the caller finds the watcher's file closed.
                drop(watcher);
                // The caller may not wait for the report.
                let _ = report.send(final_report);
            }
        }
    }

    fn emit(&mut self, at: Instant, kind: EventKind) {
        let event = self.event(at, kind);
        self.active.iter_mut().for_each(|watcher| watcher.take(&event));
    }

    fn event(&self, at: Instant, kind: EventKind) -> Event {
        Event { device: self.device.clone(), at_ns: self.clock.ns(at), kind }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // On a normal exit the queue has already ended, and may belong to a new thread.
        if std::thread::panicking() {
            self.queue.discard();
        }
    }
}

impl ActiveWatcher {
    fn take(&mut self, event: &Event) {
        match self.watcher.call(|watcher| watcher.take(event)) {
            Ok(()) => self.unflushed += 1,
            Err(error) => self.fail(1, &error),
        }
        if self.unflushed >= MAX_UNFLUSHED {
            self.flush();
        }
    }

    /// Flushes the watcher. Recorded events only count as delivered once they are flushed.
    fn flush(&mut self) {
        let taken = std::mem::take(&mut self.unflushed);
        match self.watcher.call(Watcher::flush) {
            Ok(()) => self.report.delivered += taken,
            Err(error) => self.fail(taken, &error),
        }
    }

    fn fail(&mut self, lost: u64, error: &io::Error) {
        self.report.lost += lost;
        if !std::mem::replace(&mut self.has_failed, true) {
            // A `tracing` subscriber is user code as well.
            let _ = catch_panic(|| {
                tracing::warn!(%error, "a watcher of a device failed; further events that it loses are only counted");
                Ok(())
            });
        }
    }
}

/// Guards calls of a watcher, which is user code: a panic counts as a failure and must not end the stream, not even in
/// its drop.
pub(super) struct GuardedWatcher(Option<Box<dyn Watcher>>);

impl GuardedWatcher {
    fn call(&mut self, work: impl FnOnce(&mut dyn Watcher) -> io::Result<()>) -> io::Result<()> {
        self.0.as_deref_mut().map_or(Ok(()), |watcher| catch_panic(|| work(watcher)))
    }
}

impl Drop for GuardedWatcher {
    fn drop(&mut self) {
        let watcher = self.0.take();
        let _ = catch_panic(|| {
            drop(watcher);
            Ok(())
        });
    }
}

fn catch_panic(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // Dropping the panic payload may panic again.
        std::mem::forget(panic);
        Err(io::Error::other("the watcher panicked"))
    })
}
