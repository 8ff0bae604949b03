//! The way of events from the threads that cause them to those who watch.
//!
//! A thread pushes small records onto a bounded queue. One thread, which lives while somebody watches, makes events of
//! them. Nobody waits for it with a lock: watchers are the user's code, and may begin and end watches.

use super::clock::UnixClock;
use super::event::{Event, Happening};
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

/// The most events that wait. A submission of more of them alone still passes.
const MAX_QUEUED: usize = 1 << 16;
/// How long an event waits at most before it is handed on. Waking the thread for each would cost more than telling it.
const INTERVAL: Duration = Duration::from_millis(10);
/// The most events that a watcher takes before it is flushed: as lines, some ten kilobytes.
const MAX_UNFLUSHED: u64 = 256;

/// Names a watcher of a device, to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(u64);

/// What a watcher was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchReport {
    /// Events that it took and flushed, the end of the watch included.
    pub told: u64,
    /// Events that found no room and were dropped before it saw them.
    pub dropped: u64,
    /// Events that it failed to take, or took and failed to flush.
    pub lost: u64,
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
        watcher: Guarded,
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

/// Who watches, and the thread that tells them.
#[derive(Default)]
pub(super) struct Stream {
    thread: Option<ThreadId>,
    watchers: Vec<WatchId>,
    ids: u64,
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
    /// Whether somebody waits for what is among the records.
    is_urgent: bool,
    /// Whether there is a thread that takes the records.
    is_running: bool,
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
    /// Queues a record; drops it where there is no room, or nobody to take it.
    pub(super) fn push(&self, what: What) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.is_running {
            self.add(&mut state, now, what);
        }
    }

    /// Queues a record for a thread that runs, or must be started now: then it is `true`.
    fn push_first(&self, what: What) -> bool {
        let mut state = self.state.lock();
        self.add(&mut state, Instant::now(), what);
        !std::mem::replace(&mut state.is_running, true)
    }

    fn add(&self, state: &mut State, now: Instant, what: What) {
        let events = what.events();
        if state.events > 0 && state.events + events > MAX_QUEUED && events > 0 {
            state.dropped += events as u64;
            return;
        }
        state.note_dropped(now);
        state.records.push((now, what));
        let was_low = state.events < MAX_QUEUED / 2;
        state.events += events;
        state.is_urgent |= events == 0;
        if events == 0 || (was_low && state.events >= MAX_QUEUED / 2) {
            self.filled.notify_one();
        }
    }

    /// Exchanges the records for none, after a while.
    fn swap(&self, records: &mut Vec<(Instant, What)>) {
        let mut state = self.state.lock();
        if !state.is_urgent && state.events < MAX_QUEUED / 2 {
            self.filled.wait_for(&mut state, INTERVAL);
        }
        state.note_dropped(Instant::now());
        std::mem::swap(&mut state.records, records);
        (state.events, state.is_urgent) = (0, false);
    }

    /// Ends the thread that has no watcher, unless there is one for it among the records; the others are for nobody.
    fn end(&self) -> bool {
        let mut state = self.state.lock();
        if state.records.iter().any(|(_, what)| matches!(what, What::Watch { .. })) {
            return false;
        }
        *state = State::default();
        true
    }

    /// Forgets everything, so that nobody waits for a thread that is not there.
    fn abandon(&self) {
        let left = std::mem::take(&mut *self.state.lock());
        // Not while it is locked: watchers may be among it.
        drop(left);
    }
}

impl Stream {
    pub(super) fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    pub(super) fn last(&self) -> Option<WatchId> {
        self.watchers.last().copied()
    }

    /// Adds a watcher, which sees everything that is told from here on.
    pub(super) fn watch(
        &mut self,
        queue: &Arc<Queue>,
        device: &str,
        clock: UnixClock,
        watcher: Box<dyn Watcher>,
        first: Happening,
    ) -> Result<WatchId> {
        let id = WatchId(self.ids);
        if queue.push_first(What::Watch { id, watcher: Guarded(Some(watcher)), first }) {
            let writer = Writer { queue: Arc::clone(queue), clock, device: device.to_string(), taken: Vec::new() };
            let spawned = std::thread::Builder::new().name("kiln-events".into()).spawn(move || writer.run());
            let started = spawned.map_err(|error| {
                queue.abandon();
                error!(Io, "expected a thread that writes events, found none: {error}").with_source(error)
            })?;
            self.thread = Some(started.thread().id());
        }
        self.ids += 1;
        self.watchers.push(id);
        Ok(id)
    }

    /// Ends a watcher after all events so far, then sends its report; `None` where there is none. The last one ends the thread.
    pub(super) fn unwatch(&mut self, queue: &Queue, id: WatchId) -> Option<Receiver<WatchReport>> {
        let place = self.watchers.iter().position(|&known| known == id)?;
        self.watchers.remove(place);
        let (report, reported) = mpsc::channel();
        // A watcher may end a watch, or drop the last handle of the device: the thread must not wait for itself.
        if self.thread == Some(std::thread::current().id()) {
            let _ = report.send(WatchReport::default());
        }
        queue.push(What::Unwatch { id, report });
        Some(reported)
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
    watcher: Guarded,
    /// Events that it took since it was flushed.
    unflushed: u64,
    report: WatchReport,
    has_failed: bool,
}

impl Writer {
    fn run(mut self) {
        let mut records = Vec::new();
        loop {
            self.queue.swap(&mut records);
            for (at, what) in records.drain(..) {
                self.hand_on(at, what);
            }
            self.taken.iter_mut().for_each(Taking::flush);
            if self.taken.is_empty() && self.queue.end() {
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
                let report = WatchReport::default();
                let mut taking = Taking { id, watcher, unflushed: 0, report, has_failed: false };
                taking.take(&self.event(at, first));
                self.taken.push(taking);
            }
            What::Unwatch { id, report } => {
                let Some(place) = self.taken.iter().position(|taking| taking.id == id) else { return };
                let mut taking = self.taken.remove(place);
                taking.flush();
                let WatchReport { told, dropped, lost } = taking.report;
                taking.take(&self.event(at, Happening::WatchEnded { told, dropped, lost }));
                taking.flush();
                let told = taking.report;
                // Before it is told: then its file is free.
                drop(taking);
                // Nobody may wait for it.
                let _ = report.send(told);
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

impl Drop for Writer {
    fn drop(&mut self) {
        // Otherwise the queue has ended already, and may be that of another thread.
        if std::thread::panicking() {
            self.queue.abandon();
        }
    }
}

impl Taking {
    fn take(&mut self, event: &Event) {
        match self.watcher.call(|watcher| watcher.take(event)) {
            Ok(()) => self.unflushed += 1,
            Err(error) => self.fail(1, &error),
        }
        if self.unflushed >= MAX_UNFLUSHED {
            self.flush();
        }
    }

    /// What was taken is told only where it was flushed.
    fn flush(&mut self) {
        let taken = std::mem::take(&mut self.unflushed);
        match self.watcher.call(Watcher::flush) {
            Ok(()) => self.report.told += taken,
            Err(error) => self.fail(taken, &error),
        }
    }

    fn fail(&mut self, lost: u64, error: &io::Error) {
        self.report.lost += lost;
        if !std::mem::replace(&mut self.has_failed, true) {
            // Whoever listens is the user's code too.
            let _ = guard(|| {
                tracing::warn!(%error, "a watcher of a device failed; further events that it loses are only counted");
                Ok(())
            });
        }
    }
}

/// A watcher is the user's code: its panic is a failure like any other, and must not end the stream, not even when it is dropped.
pub(super) struct Guarded(Option<Box<dyn Watcher>>);

impl Guarded {
    fn call(&mut self, work: impl FnOnce(&mut dyn Watcher) -> io::Result<()>) -> io::Result<()> {
        self.0.as_deref_mut().map_or(Ok(()), |watcher| guard(|| work(watcher)))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let watcher = self.0.take();
        let _ = guard(|| {
            drop(watcher);
            Ok(())
        });
    }
}

fn guard(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        // Dropping what was thrown may panic again.
        std::mem::forget(panic);
        Err(io::Error::other("the watcher panicked"))
    })
}
