//! The submission queue: submissions are numbered in queue order and awaited by number.

use crate::fault::{Fault, one_line};
use crate::scope::check;
use crate::sentinel::{Sentinel, Sentinels};
use crate::timestamps::{ProfiledLaunches, Timestamps};
use kiln_ir::{Error, ErrorKind, Result, bail};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The queue of a device and its submissions in flight.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) fault: Arc<Fault>,
    pub(crate) sentinels: Arc<Sentinels>,
    pub(crate) timestamps: Arc<Timestamps>,
    next_block: AtomicU64,
    /// Number of the newest submission; written while `in_flight` is locked.
    submitted: AtomicU64,
    /// Completed submissions. Shared with wgpu's callbacks.
    progress: Arc<CompletionCounter>,
    /// wgpu's indices of submissions that may be in flight: oldest first, without gaps, up to `submitted`.
    in_flight: Mutex<VecDeque<wgpu::SubmissionIndex>>,
}

/// Counts completed submissions in order. Callbacks run in any order if several threads poll.
#[derive(Debug, Default)]
struct CompletionCounter {
    completed: AtomicU64,
    /// Submissions that completed while an earlier one is not known to be complete.
    out_of_order: Mutex<BTreeSet<u64>>,
}

impl CompletionCounter {
    fn completed(&self) -> u64 {
        // Acquire pairs with the release in `done`: a thread that sees a submission as completed also sees what its
        // callbacks did.
        self.completed.load(Ordering::Acquire)
    }

    fn done(&self, number: u64) {
        let mut out_of_order = self.out_of_order.lock();
        out_of_order.insert(number);
        let mut completed = self.completed();
        while out_of_order.remove(&(completed + 1)) {
            completed += 1;
        }
        // Stored under the lock, so that the counter never goes backwards.
        self.completed.store(completed, Ordering::Release);
    }
}

/// Reports the end of a submission from a wgpu callback.
///
/// If it is dropped without a report, as after a panic in another callback, the device is lost, because the outcome of
/// the submission would stay unknown.
#[derive(Debug)]
pub(crate) struct Completion {
    progress: Arc<CompletionCounter>,
    pub(crate) fault: Arc<Fault>,
    pub(crate) number: u64,
}

impl Completion {
    pub(crate) fn done(self) {
        self.progress.done(self.number);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // Runs after `done` too, which consumes `self`; the number is counted by then.
        // Checked under the lock, because `done` moves a number from the set to the counter.
        let out_of_order = self.progress.out_of_order.lock();
        if self.progress.completed() < self.number && !out_of_order.contains(&self.number) {
            self.fault.set_lost(&format!("submission {} never reported its completion", self.number));
        }
    }
}

/// Encoded commands with their sentinel.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) commands: wgpu::CommandBuffer,
    pub(crate) sentinel: Sentinel,
    /// The launches in it, while profiling is on.
    pub(crate) profiled: Option<ProfiledLaunches>,
}

impl Timeline {
    pub(crate) fn new(device: wgpu::Device, queue: wgpu::Queue, fault: Arc<Fault>) -> Self {
        let (submitted, progress, sentinels) = (AtomicU64::new(0), Arc::default(), Arc::default());
        let (next_block, timestamps) = (AtomicU64::new(0), Arc::new(Timestamps::new(&device, &queue)));
        Self {
            device,
            queue,
            fault,
            sentinels,
            timestamps,
            next_block,
            submitted,
            progress,
            in_flight: Mutex::default(),
        }
    }

    /// Returns a block id that was never used on this device.
    pub(crate) fn next_block_id(&self) -> u64 {
        self.next_block.fetch_add(1, Ordering::Relaxed)
    }

    /// Submits commands and returns the number of the submission. `None` is an empty submission, which has a number
    /// too.
    pub(crate) fn enqueue(&self, submission: Option<Submission>) -> Result<u64> {
        self.fault.check()?;
        // An empty submission has nothing to verify or time.
        let (commands, tracking) = submission.map(|s| (s.commands, (s.sentinel, s.profiled))).unzip();
        let submitted = Instant::now();
        // The lock makes the order of numbers that of the queue. Callbacks that wgpu runs during `submit` must not take
        // it.
        // Lock order: blocks (in `encode::run` and `Mapping::new`), then this lock, then wgpu's own locks.
        let mut in_flight = self.in_flight.lock();
        let index = check(&self.device, "run a submission", || self.queue.submit(commands))?;
        // Relaxed suffices: `in_flight` is locked, and `submitted` is only written under that lock.
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        let completion = Completion { progress: Arc::clone(&self.progress), fault: Arc::clone(&self.fault), number };
        match tracking {
            Some((sentinel, profiled)) => {
                // Before the sentinel, so that a thread that has waited for the submission finds its launches recorded.
                if let Some(profiled) = profiled {
                    self.timestamps.deliver(profiled, submitted, number);
                }
                sentinel.verify(self, completion);
            }
            None => self.queue.on_submitted_work_done(move || completion.done()),
        }
        in_flight.push_back(index);
        // Release pairs with the acquire in `completed`.
        self.submitted.store(number, Ordering::Release);
        // Drops the indices of completed submissions, so that the list does not grow.
        let pending = number - self.progress.completed().min(number);
        let done = in_flight.len().saturating_sub(usize::try_from(pending).unwrap_or(usize::MAX));
        in_flight.drain(..done);
        // Released before polling, which runs callbacks: one that needs the lock would deadlock.
        drop(in_flight);
        // wgpu reports a device loss only when polled. A device that its user destroyed while it was busy reports the
        // loss only after that work; submissions in between return the loss when they are awaited.
        self.poll(wgpu::PollType::Poll)?;
        Ok(number)
    }

    /// Returns the newest submission that is known to be done. Polls the driver only while something is in flight.
    pub(crate) fn completed(&self) -> u64 {
        if self.fault.get().is_some() {
            // Lets waiters and the pool proceed: nothing runs on a lost device, and the next call returns the fault.
            return u64::MAX;
        }
        let completed = self.progress.completed();
        if completed == self.submitted.load(Ordering::Acquire) {
            return completed;
        }
        // The fault is stored, and returned by the next method that can fail.
        let _ = self.poll(wgpu::PollType::Poll);
        self.progress.completed()
    }

    /// Blocks until `submission` is done or the device is lost; drivers end their waits on a loss.
    pub(crate) fn wait(&self, submission: u64) -> Result<()> {
        self.fault.check()?;
        if self.progress.completed() >= submission {
            return Ok(());
        }
        // Not in the list any more: it completed since the check above.
        let Some(index) = self.index_of(submission)? else { return Ok(()) };
        // Without the lock on `in_flight`: the wait may be long, and other threads must be able to submit.
        self.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
        // Another polling thread may still be running the callback that checks the sentinel.
        while self.progress.completed() < submission {
            self.fault.check()?;
            std::thread::yield_now();
        }
        self.fault.check()
    }

    /// Blocks until the queue is empty, so that a pending device loss is reported.
    pub(crate) fn drain(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Runs the callbacks that are due.
    ///
    /// Never uses a timeout: in wgpu 30.0 a wait that times out panics if another thread polls at the same time
    /// (gfx-rs/wgpu#9958).
    ///
    /// # Errors
    /// Returns the fault of the device, which this poll may be the first to detect.
    pub(crate) fn poll(&self, poll_type: wgpu::PollType) -> Result<()> {
        // wgpu panics on every poll of a lost device.
        self.fault.check()?;
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll_type))) {
            Ok(Ok(_)) => self.fault.check(),
            Ok(Err(error @ wgpu::PollError::WrongSubmissionIndex(..))) => {
                Err(self.fault.set_lost(&format!("the driver did not accept a submission ({error})")))
            }
            Ok(Err(error @ wgpu::PollError::Timeout)) => {
                let message = "expected a wait without a timeout to end with the work, found it timed out";
                Err(Error::new(ErrorKind::Internal, message).with_source(error))
            }
            Err(panic) => match fatal_message(&*panic) {
                Some(message) => Err(self.fault.set_lost(&message)),
                // A panic of a user's callback belongs to the user.
                None => resume_unwind(panic),
            },
        }
    }

    /// Returns wgpu's index of a submission, or `None` if it is known to be done.
    fn index_of(&self, submission: u64) -> Result<Option<wgpu::SubmissionIndex>> {
        let in_flight = self.in_flight.lock();
        let submitted = self.submitted.load(Ordering::Relaxed);
        let Some(back) = submitted.checked_sub(submission) else {
            bail!(InvalidArgument, "waiting expected a submission up to {submitted}, found {submission}");
        };
        // The list has no gaps and ends with `submitted`, so positions count from its end; completed ones are cut off
        // at its front.
        let from_end = usize::try_from(back).unwrap_or(usize::MAX);
        let position = in_flight.len().checked_sub(1).and_then(|last| last.checked_sub(from_end));
        Ok(position.and_then(|position| in_flight.get(position).cloned()))
    }
}

/// Returns the message if a panic is the one by which wgpu reports a failed wait in the driver.
fn fatal_message(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied())?;
    text.starts_with("Error in Device::poll").then(|| one_line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callbacks run in any order and on any thread. A submission counts as done when all earlier ones are, and none is
    /// lost.
    #[test]
    fn completions_count_in_order_across_threads() {
        let (progress, fault) = (Arc::<CompletionCounter>::default(), Arc::new(Fault::new("toy")));
        let completion = |number| Completion { progress: Arc::clone(&progress), fault: Arc::clone(&fault), number };
        for (number, completed) in [(2, 0), (3, 0), (1, 3), (5, 3), (4, 5)] {
            completion(number).done();
            assert_eq!(progress.completed(), completed);
        }
        std::thread::scope(|scope| {
            for odd in 0..2 {
                let numbers = (6..40_006u64).filter(move |number| number % 2 == odd);
                let completion = &completion;
                scope.spawn(move || numbers.for_each(|number| completion(number).done()));
            }
        });
        assert_eq!((progress.completed(), fault.get().map(|error| error.to_string())), (40_005, None));
        drop(completion(40_006));
        let error = fault.get().unwrap().to_string();
        assert!(error.ends_with("submission 40006 never reported its completion"), "{error}");
    }

    /// wgpu panics if a wait fails in the driver. That panic becomes a device fault; any other panic is passed on.
    #[test]
    fn only_a_failed_wait_panic_is_a_fault() {
        let caught = |work: fn()| catch_unwind(work).map_err(|panic| fatal_message(&*panic));
        let lost =
            caught(|| panic!("Error in {}: Validation Error\n\nCaused by:\n  Parent device is lost\n", "Device::poll"));
        assert_eq!(
            lost,
            Err(Some("Error in Device::poll: Validation Error: Caused by: Parent device is lost".to_string()))
        );
        assert_eq!(caught(|| panic!("a callback of the user")), Err(None));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err(None));
    }
}
