//! The thread that gives idle memory back. It begins with the first memory that a pool takes and ends with the pool.

use super::core::Core;
use crate::memory::RawMemory;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Starts, wakes and ends the thread.
pub(crate) struct Maintenance {
    enabled: bool,
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    signal: Arc<Signal>,
}

#[derive(Default)]
struct Signal {
    stop: Mutex<bool>,
    changed: Condvar,
}

impl Maintenance {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, started: AtomicBool::new(false), thread: Mutex::new(None), signal: Arc::default() }
    }

    /// Starts the thread, unless it runs or the pool has a clock of its own. Without a thread the pool still maintains
    /// itself whenever it asks the driver.
    pub(crate) fn start<M: RawMemory + ?Sized>(&self, core: &Arc<Core<M>>) {
        if !self.enabled || self.started.load(Relaxed) {
            return;
        }
        // Under the lock that `stop` takes: a thread that starts is one that is joined.
        let mut running = self.thread.lock();
        if self.started.swap(true, Relaxed) {
            return;
        }
        let (core, signal) = (Arc::clone(core), Arc::clone(&self.signal));
        let spawned = std::thread::Builder::new().name("kiln-pool".into()).spawn(move || signal.run(&core));
        match spawned {
            Ok(thread) => *running = Some(thread),
            Err(error) => tracing::warn!(%error, "pool cannot start its maintenance thread"),
        }
    }

    /// Lets the thread see a new interval.
    pub(crate) fn reconsider(&self) {
        // Under the lock, so that the thread either waits already or has not read the interval yet.
        let _stop = self.signal.stop.lock();
        self.signal.changed.notify_all();
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        *self.signal.stop.lock() = true;
        self.signal.changed.notify_all();
        let thread = {
            let mut running = self.thread.lock();
            self.started.store(true, Relaxed);
            running.take()
        };
        // A strategy may hold the last handle of its pool, and drop it on the thread itself, which then ends right after.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic there was reported by the thread itself, and the pool is going away.
            let _ = thread.join();
        }
    }
}

impl Signal {
    fn run<M: RawMemory + ?Sized>(&self, core: &Core<M>) {
        let mut stop = self.stop.lock();
        while !*stop {
            self.changed.wait_for(&mut stop, core.until_maintenance());
            if *stop {
                return;
            }
            // Released, so that the end of the pool does not wait for a sweep to take the lock.
            parking_lot::MutexGuard::unlocked(&mut stop, || {
                core.maintain_if_due();
                core.memory.tidy();
            });
        }
    }
}
