//! Schedules the release of idle memory, and runs the thread that does it.

use super::core::Core;
use crate::memory::RawMemory;
use kiln_resource_cache::Clock;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Decides when maintenance is due; starts, wakes and stops the thread.
pub(crate) struct Maintenance {
    origin: Instant,
    /// A pool with its own clock has no thread.
    clock: Option<Arc<dyn Clock>>,
    /// When the last maintenance began.
    last: Mutex<Duration>,
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
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            origin: Instant::now(),
            last: Mutex::new(clock.as_ref().map_or(Duration::ZERO, Clock::now)),
            clock,
            started: AtomicBool::new(false),
            thread: Mutex::new(None),
            signal: Arc::default(),
        }
    }

    fn now(&self) -> Duration {
        self.clock.as_ref().map_or_else(|| self.origin.elapsed(), Clock::now)
    }

    /// Returns the time until the next maintenance: at least 1 ms, so that the thread never spins.
    pub(crate) fn until_due(&self, interval: Duration) -> Duration {
        let due = self.last.lock().saturating_add(interval);
        due.saturating_sub(self.now()).max(Duration::from_millis(1))
    }

    /// Returns whether the caller must perform the maintenance: the interval has passed, and no other thread has
    /// started it.
    pub(crate) fn try_begin(&self, interval: Duration) -> bool {
        let now = self.now();
        // Another thread is deciding right now, so this one need not wait.
        let Some(mut last) = self.last.try_lock() else { return false };
        let due = now.saturating_sub(*last) >= interval;
        if due {
            *last = now;
        }
        due
    }

    /// Starts the thread unless it runs or a clock is set. Without the thread, maintenance runs when a request reaches
    /// the driver.
    pub(crate) fn start<M: RawMemory + ?Sized>(&self, core: &Arc<Core<M>>) {
        // Only a fast path: the swap under the lock decides.
        if self.clock.is_some() || self.started.load(Relaxed) {
            return;
        }
        // With the lock that `stop` takes, so that every started thread is joined.
        let mut running = self.thread.lock();
        if self.started.swap(true, Relaxed) {
            return;
        }
        // The thread holds the core and not a `Pool`, so that dropping the last handle still closes the pool.
        let (core, signal) = (Arc::clone(core), Arc::clone(&self.signal));
        let spawned = std::thread::Builder::new().name("kiln-pool".into()).spawn(move || signal.run(&core));
        match spawned {
            Ok(thread) => *running = Some(thread),
            Err(error) => tracing::warn!(%error, "pool cannot start its maintenance thread"),
        }
    }

    /// Makes the thread read the interval again.
    pub(crate) fn wake(&self) {
        // With the lock held, so that the thread is either waiting or has not read the interval yet.
        let _stop = self.signal.stop.lock();
        self.signal.changed.notify_all();
    }

    /// Stops the thread and waits for it.
    pub(crate) fn stop(&self) {
        *self.signal.stop.lock() = true;
        self.signal.changed.notify_all();
        let thread = {
            let mut running = self.thread.lock();
            // Prevents a later start.
            self.started.store(true, Relaxed);
            running.take()
        };
        // A strategy may hold the last handle of its pool and drop it on this thread, which then ends without a join.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // The panic hook already reported a panic of the thread, and the pool is being closed.
            let _ = thread.join();
        }
    }
}

impl Signal {
    fn run<M: RawMemory + ?Sized>(&self, core: &Core<M>) {
        let mut stop = self.stop.lock();
        while !*stop {
            self.changed.wait_for(&mut stop, core.maintenance.until_due(core.settings.get().maintenance_interval));
            if *stop {
                return;
            }
            // Unlocked, so that closing the pool can set the flag during a sweep.
            parking_lot::MutexGuard::unlocked(&mut stop, || {
                core.maintain_if_due();
                // Lets the memory clean up after freed blocks.
                core.memory.tidy();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_resource_cache::MockClock;

    #[test]
    fn maintenance_is_due_once_in_an_interval() {
        let clock = MockClock::new();
        clock.advance(Duration::from_secs(7));
        let maintenance = Maintenance::new(Some(Arc::new(clock.clone())));
        let interval = Duration::from_secs(60);
        assert!(!maintenance.try_begin(interval));
        assert_eq!(maintenance.until_due(interval), interval);
        clock.advance(Duration::from_secs(59));
        assert!(!maintenance.try_begin(interval));
        assert_eq!(maintenance.until_due(interval), Duration::from_secs(1));
        clock.advance(Duration::from_secs(1));
        assert_eq!(maintenance.until_due(interval), Duration::from_millis(1), "a waiting thread sleeps");
        assert_eq!([(); 2].map(|()| maintenance.try_begin(interval)), [true, false]);
        assert_eq!(maintenance.until_due(interval), interval);
    }
}
