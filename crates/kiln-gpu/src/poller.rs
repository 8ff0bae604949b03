//! The thread that waits for submissions on behalf of futures.

use crate::timeline::Timeline;
use kiln_ir::Result;
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::{self, JoinHandle};

/// A source of completed submissions: a [`Timeline`], or a fake in the tests.
pub(crate) trait Progress: Send + Sync + 'static {
    /// Blocks until `submission` is done or can no longer complete.
    fn wait(&self, submission: u64) -> Result<()>;

    /// Returns the newest submission that is known to be done.
    fn completed(&self) -> u64;

    /// Returns whether the device is lost, so that no submission completes any more.
    fn is_lost(&self) -> bool;
}

impl Progress for Timeline {
    fn wait(&self, submission: u64) -> Result<()> {
        self.wait(submission)
    }

    fn completed(&self) -> u64 {
        self.completed()
    }

    fn is_lost(&self) -> bool {
        self.fault.get().is_some()
    }
}

/// Wakes wakers when their submission is done.
///
/// The thread starts with the first waker that has to wait, and sleeps while there is none. Dropping the poller joins
/// the thread, after the submission that it waits for; wgpu's queue waits on drop as well.
#[derive(Debug)]
pub(crate) struct Poller<P: Progress = Timeline> {
    shared: Arc<Shared<P>>,
}

#[derive(Debug)]
struct Shared<P> {
    timeline: Arc<P>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<(u64, Waker)>,
    stop: bool,
    thread: Option<JoinHandle<()>>,
}

impl<P: Progress> Poller<P> {
    pub(crate) fn new(timeline: Arc<P>) -> Self {
        Self { shared: Arc::new(Shared { timeline, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Wakes `waker` once `submission` is done or can no longer complete.
    pub(crate) fn notify(&self, submission: u64, waker: Waker) {
        // Without the lock: a submission that completes right after is found by the thread.
        if self.shared.timeline.is_lost() || self.shared.timeline.completed() >= submission {
            return waker.wake();
        }
        // Held until the push: only one thread is started, and it cannot miss the waker between its check and its
        // sleep.
        let mut state = self.shared.state.lock();
        if state.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            match thread::Builder::new().name("kiln-gpu-poller".to_string()).spawn(move || shared.run()) {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    // No thread is available, so the caller's thread waits. An error wakes too; the woken task finds
                    // it.
                    drop(state);
                    tracing::warn!(%error, "cannot start a thread that waits for submissions; waiting on the calling thread");
                    let _ = self.shared.timeline.wait(submission);
                    return waker.wake();
                }
            }
        }
        state.waiting.push((submission, waker));
        self.shared.changed.notify_one();
    }
}

impl<P: Progress> Drop for Poller<P> {
    fn drop(&mut self) {
        // The lock is released before the join: the thread needs it to see `stop`.
        let thread = {
            let mut state = self.shared.state.lock();
            state.stop = true;
            self.shared.changed.notify_one();
            state.thread.take()
        };
        // A waker may drop the last handle of the device on the poller's own thread, which then ends without a join.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that waits for submissions panicked");
        }
        // The thread no longer waits for these submissions; the woken tasks query the device themselves.
        let waiting = self.shared.state.lock().waiting.drain(..).collect();
        // After the lock is released: a waker may run code of the caller.
        wake(waiting);
    }
}

impl<P: Progress> Shared<P> {
    fn run(&self) {
        while let Some(next) = self.next_submission() {
            // After a panic of foreign code the submission is still pending, so wait for it again.
            let Some(waited) = catch_panic(|| self.timeline.wait(next)) else { continue };
            let done = match waited {
                Ok(()) => self.timeline.completed().max(next),
                // The device is lost, or the number was never submitted: neither completes later.
                Err(_) if self.timeline.is_lost() => u64::MAX,
                Err(_) => next,
            };
            let due = self.state.lock().waiting.extract_if(.., |(submission, _)| *submission <= done).collect();
            wake(due);
        }
    }

    /// Returns the oldest submission that a waker waits for. Sleeps until there is one; returns `None` on shutdown.
    fn next_submission(&self) -> Option<u64> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            // Submissions complete in order: waiting for a later one would delay the wakers of this one.
            if let Some(next) = state.waiting.iter().map(|(submission, _)| *submission).min() {
                return Some(next);
            }
            self.changed.wait(&mut state);
        }
    }
}

/// Wakes wakers. Called without the lock held, because a waker may run any code, including `notify`.
fn wake(wakers: Vec<(u64, Waker)>) {
    for (_, waker) in wakers {
        catch_panic(|| waker.wake());
    }
}

/// Runs foreign code: a waker, or a callback of a wgpu user. A panic is logged, so that the other wakers still run.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work));
    if result.is_err() {
        tracing::error!("a waker or callback panicked on the thread that waits for submissions");
    }
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Error, ErrorKind};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::task::Wake;
    use std::time::{Duration, Instant};

    /// A timeline whose submissions end when the test says so.
    #[derive(Debug, Default)]
    struct FakeTimeline {
        done: AtomicU64,
        waits: AtomicU32,
    }

    const LOST: u64 = u64::MAX;

    impl Progress for FakeTimeline {
        fn wait(&self, submission: u64) -> Result<()> {
            self.waits.fetch_add(1, Ordering::SeqCst);
            while self.completed() < submission {
                thread::sleep(Duration::from_millis(1));
            }
            if self.is_lost() { Err(Error::new(ErrorKind::DeviceLost, "planted")) } else { Ok(()) }
        }

        fn completed(&self) -> u64 {
            self.done.load(Ordering::SeqCst)
        }

        fn is_lost(&self) -> bool {
            self.completed() == LOST
        }
    }

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn eventually(what: &str, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns a poller whose thread waits for three submissions, with a waker for each.
    fn waiting() -> (Arc<FakeTimeline>, Poller<FakeTimeline>, [Arc<Count>; 3]) {
        let timeline = Arc::<FakeTimeline>::default();
        let poller = Poller::new(Arc::clone(&timeline));
        let counts: [Arc<Count>; 3] = Default::default();
        for (submission, count) in (1..).zip(&counts) {
            poller.notify(submission, Waker::from(Arc::clone(count)));
        }
        eventually("the thread waits", || timeline.waits.load(Ordering::SeqCst) > 0);
        (timeline, poller, counts)
    }

    fn woken(counts: &[Arc<Count>; 3]) -> [u32; 3] {
        counts.each_ref().map(|count| count.0.load(Ordering::SeqCst))
    }

    #[test]
    fn wakers_are_woken_in_submission_order() {
        let (timeline, poller, counts) = waiting();
        assert_eq!(woken(&counts), [0, 0, 0]);
        timeline.done.store(1, Ordering::SeqCst);
        eventually("the first is woken", || woken(&counts) == [1, 0, 0]);
        timeline.done.store(3, Ordering::SeqCst);
        eventually("the others are woken", || woken(&counts) == [1, 1, 1]);
        poller.notify(3, Waker::from(Arc::clone(&counts[0])));
        assert_eq!(woken(&counts), [2, 1, 1], "at once where the submission is done");
    }

    #[test]
    fn device_loss_wakes_all_wakers() {
        let (timeline, poller, counts) = waiting();
        timeline.done.store(LOST, Ordering::SeqCst);
        eventually("all are woken", || woken(&counts) == [1, 1, 1]);
        poller.notify(4, Waker::from(Arc::clone(&counts[0])));
        assert_eq!(woken(&counts), [2, 1, 1], "at once where the device is lost");
    }

    /// The thread ends after the submission that it waits for, and wakers of later submissions are woken as well.
    #[test]
    fn drop_wakes_remaining_wakers() {
        let (timeline, poller, counts) = waiting();
        let shared = Arc::clone(&poller.shared);
        let dropped = thread::spawn(move || drop(poller));
        eventually("the drop begins", || shared.state.lock().stop);
        drop(shared);
        assert!(!dropped.is_finished(), "the thread is joined");
        timeline.done.store(1, Ordering::SeqCst);
        dropped.join().unwrap();
        assert_eq!(woken(&counts), [1, 1, 1]);
        assert_eq!(Arc::strong_count(&timeline), 1, "the thread is gone");
    }

    /// The last handle of a device may be dropped by a waker, on the thread that the drop would join.
    #[test]
    fn a_waker_may_drop_the_poller() {
        struct Dropping(Mutex<Option<Poller<FakeTimeline>>>);
        impl Wake for Dropping {
            fn wake(self: Arc<Self>) {
                drop(self.0.lock().take());
            }
        }
        let timeline = Arc::<FakeTimeline>::default();
        let holder = Arc::new(Dropping(Mutex::new(Some(Poller::new(Arc::clone(&timeline))))));
        let waker = Waker::from(Arc::clone(&holder));
        if let Some(poller) = &*holder.0.lock() {
            poller.notify(1, waker);
        }
        timeline.done.store(1, Ordering::SeqCst);
        eventually("the thread is gone", || Arc::strong_count(&timeline) == 1);
        assert!(holder.0.lock().is_none());
    }
}
