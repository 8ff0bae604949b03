//! The way of events from the threads that cause them to those who watch.
//!
//! A thread that tells something pushes a small record onto a bounded queue. One thread, which lives while somebody watches, makes events
//! of the records and hands them on.

use super::clock::UnixClock;
use super::event::{Event, Happening};
use super::recorder::KernelRun;
use super::watcher::Watcher;
use kiln_ir::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most events that wait. A submission of more of them alone still passes.
const MAX_QUEUED: usize = 1 << 16;
/// How long an event waits at most before it is handed on. Waking the thread for each would cost more than telling it.
const INTERVAL: Duration = Duration::from_millis(10);

/// Names a watcher of a device, to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(u64);

/// What a watcher was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Events that it took, the end of the watch included.
    pub told: u64,
    /// Events that found no room and were dropped before it saw them.
    pub dropped: u64,
    /// How often it failed to take an event, or to flush those that it took.
    pub failed: u64,
}

/// What a thread tells, as it is queued.
pub(super) enum What {
    Runs {
        submission: u64,
        runs: Vec<KernelRun>,
    },
    Happened(Happening),
    /// So many events found no room.
    Dropped(u64),
    Watch {
        id: WatchId,
        watcher: Box<dyn Watcher>,
        first: Happening,
    },
    Unwatch {
        id: WatchId,
        report: Sender<WatchReport>,
    },
}

impl What {
    /// How many events it becomes.
    fn events(&self) -> usize {
        match self {
            Self::Runs { runs, .. } => runs.len(),
            Self::Happened(_) => 1,
            // Never dropped.
            Self::Dropped(_) | Self::Watch { .. } | Self::Unwatch { .. } => 0,
        }
    }
}

/// The queue, and the thread behind it.
pub(super) struct Stream {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    watchers: Vec<WatchId>,
    next: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    records: Vec<(Instant, What)>,
    /// Events among the records.
    events: usize,
    /// Events that were dropped since the last record.
    dropped: u64,
    is_over: bool,
}

impl State {
    /// Says at this place of the queue what was dropped before it.
    fn note_dropped(&mut self, now: Instant) {
        if self.dropped > 0 {
            let dropped = std::mem::take(&mut self.dropped);
            self.records.push((now, What::Dropped(dropped)));
        }
    }
}

impl Queue {
    /// Queues a record; drops it where there is no room.
    pub(super) fn push(&self, what: What) {
        let (now, events) = (Instant::now(), what.events());
        let mut state = self.state.lock();
        if state.events > 0 && state.events + events > MAX_QUEUED && events > 0 {
            state.dropped += events as u64;
            return;
        }
        state.note_dropped(now);
        state.records.push((now, what));
        let was_low = state.events < MAX_QUEUED / 2;
        state.events += events;
        if events == 0 || (was_low && state.events >= MAX_QUEUED / 2) {
            self.filled.notify_one();
        }
    }

    /// Exchanges the records for none, after a while. `false` where there will be no more.
    fn swap(&self, records: &mut Vec<(Instant, What)>) -> bool {
        let mut state = self.state.lock();
        if !state.is_over && state.events < MAX_QUEUED / 2 {
            self.filled.wait_for(&mut state, INTERVAL);
        }
        state.note_dropped(Instant::now());
        std::mem::swap(&mut state.records, records);
        state.events = 0;
        !state.is_over
    }
}

impl Stream {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, thread: None, watchers: Vec::new(), next: 1 }
    }

    pub(super) fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Adds a watcher, which sees everything that is told from here on.
    pub(super) fn watch(
        &mut self,
        device: &str,
        clock: UnixClock,
        watcher: Box<dyn Watcher>,
        first: Happening,
    ) -> Result<WatchId> {
        if self.thread.is_none() {
            *self.queue.state.lock() = State::default();
            let writer =
                Writer { queue: Arc::clone(&self.queue), clock, device: device.to_string(), taken: Vec::new() };
            let spawned = std::thread::Builder::new().name("kiln-events".into()).spawn(move || writer.run());
            self.thread = Some(spawned.map_err(|error| {
                Error::new(ErrorKind::Io, format!("expected a thread that writes events, found none: {error}"))
                    .with_source(error)
            })?);
        }
        let id = WatchId(self.next);
        self.next += 1;
        self.watchers.push(id);
        self.queue.push(What::Watch { id, watcher, first });
        Ok(id)
    }

    /// Ends a watcher after everything that was told so far; `None` where there is no such. The thread ends with the last one.
    pub(super) fn unwatch(&mut self, id: WatchId) -> Option<WatchReport> {
        let place = self.watchers.iter().position(|&known| known == id)?;
        self.watchers.remove(place);
        // A watcher may hold the last handle of the device, and drop it on the thread itself, which then ends right after.
        let is_own = self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id());
        let (report, reported) = mpsc::channel();
        self.queue.push(What::Unwatch { id, report });
        if self.watchers.is_empty() {
            self.queue.state.lock().is_over = true;
            self.queue.filled.notify_one();
            if let Some(thread) = self.thread.take().filter(|_| !is_own) {
                // Watchers that panic are caught; anything else was reported by the thread itself.
                let _ = thread.join();
            }
        }
        if is_own { Some(WatchReport::default()) } else { reported.recv().ok() }
    }

    /// Ends all watchers.
    pub(super) fn end(&mut self) {
        while let Some(&id) = self.watchers.last() {
            self.unwatch(id);
        }
    }
}

/// The thread that hands events to watchers.
struct Writer {
    queue: Arc<Queue>,
    clock: UnixClock,
    device: String,
    taken: Vec<Taking>,
}

/// A watcher with what it took.
struct Taking {
    id: WatchId,
    watcher: Box<dyn Watcher>,
    report: WatchReport,
}

impl Writer {
    fn run(mut self) {
        let mut records = Vec::new();
        loop {
            let goes_on = self.queue.swap(&mut records);
            for (at, what) in records.drain(..) {
                self.hand_on(at, what);
            }
            self.taken.iter_mut().for_each(Taking::flush);
            if !goes_on {
                return;
            }
        }
    }

    fn hand_on(&mut self, at: Instant, what: What) {
        match what {
            What::Happened(what) => self.tell(at, what),
            What::Dropped(count) => {
                self.taken.iter_mut().for_each(|taking| taking.report.dropped += count);
                self.tell(at, Happening::EventsDropped { count });
            }
            What::Runs { submission, runs } => {
                for run in runs {
                    let what = run.into_event(submission, |at| self.clock.ns(at));
                    self.tell(at, what);
                }
            }
            What::Watch { id, watcher, first } => {
                let mut taking = Taking { id, watcher, report: WatchReport::default() };
                taking.take(&self.event(at, first));
                self.taken.push(taking);
            }
            What::Unwatch { id, report } => {
                let Some(place) = self.taken.iter().position(|taking| taking.id == id) else { return };
                let mut taking = self.taken.remove(place);
                let WatchReport { told, dropped, .. } = taking.report;
                taking.take(&self.event(at, Happening::WatchEnded { told, dropped }));
                taking.flush();
                // Nobody may wait for it.
                let _ = report.send(taking.report);
            }
        }
    }

    fn tell(&mut self, at: Instant, what: Happening) {
        let event = self.event(at, what);
        self.taken.iter_mut().for_each(|taking| taking.take(&event));
    }

    fn event(&self, at: Instant, what: Happening) -> Event {
        Event { device: self.device.clone(), at_ns: self.clock.ns(at), what }
    }
}

impl Taking {
    fn take(&mut self, event: &Event) {
        match guard(|| self.watcher.take(event)) {
            Ok(()) => self.report.told += 1,
            Err(error) => self.fail(&error),
        }
    }

    fn flush(&mut self) {
        if let Err(error) = guard(|| self.watcher.flush()) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.report.failed += 1;
        if self.report.failed == 1 {
            tracing::warn!(%error, "a watcher of a device failed; further failures are only counted");
        }
    }
}

/// A watcher is the user's code: its panic is a failure like any other, and must not end the stream.
fn guard(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(io::Error::other("the watcher panicked")))
}
