//! Submissions: numbered in the order of the queue, awaited by number.

use crate::fault::{Fault, one_line};
use crate::scope::check;
use crate::sentinel::{Sentinel, Sentinels};
use crate::stamps::{Stamps, Watched};
use kiln_ir::{Error, ErrorKind, Result, bail};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The queue of a device with everything that is in flight on it.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) fault: Arc<Fault>,
    pub(crate) sentinels: Arc<Sentinels>,
    pub(crate) stamps: Arc<Stamps>,
    next_block: AtomicU64,
    /// Number of the newest submission; written under the lock of `in_flight`.
    submitted: AtomicU64,
    /// What is known to be done. Behind an `Arc` for wgpu's callbacks.
    progress: Arc<Progress>,
    /// wgpu's indices of submissions that may be in flight: oldest first, without gaps, up to `submitted`.
    in_flight: Mutex<VecDeque<wgpu::SubmissionIndex>>,
}

/// Which submissions are known to be done: all up to a number. Callbacks come in any order where several threads poll.
#[derive(Debug, Default)]
struct Progress {
    completed: AtomicU64,
    /// Those that are done while one before them is not known to be.
    early: Mutex<BTreeSet<u64>>,
}

impl Progress {
    fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    fn done(&self, number: u64) {
        let mut early = self.early.lock();
        early.insert(number);
        let mut completed = self.completed();
        while early.remove(&(completed + 1)) {
            completed += 1;
        }
        self.completed.store(completed, Ordering::Release);
    }
}

/// What a callback of wgpu tells when a submission is over. Dropped untold, as by a panic in another callback, it ends the
/// device: nobody would ever learn whether the submission ran.
#[derive(Debug)]
pub(crate) struct Completion {
    progress: Arc<Progress>,
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
        // Under the lock, because a number moves from one to the other.
        let early = self.progress.early.lock();
        if self.progress.completed() < self.number && !early.contains(&self.number) {
            self.fault.lose(&format!("the end of submission {} was never told", self.number));
        }
    }
}

/// Encoded commands, with the proof that they ran.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) commands: wgpu::CommandBuffer,
    pub(crate) sentinel: Sentinel,
    /// The dispatches in it, while somebody watches.
    pub(crate) watched: Option<Watched>,
}

impl Timeline {
    pub(crate) fn new(device: wgpu::Device, queue: wgpu::Queue, fault: Arc<Fault>) -> Self {
        let (submitted, progress, sentinels) = (AtomicU64::new(0), Arc::default(), Arc::default());
        let (next_block, stamps) = (AtomicU64::new(0), Arc::new(Stamps::new(&device, &queue)));
        Self { device, queue, fault, sentinels, stamps, next_block, submitted, progress, in_flight: Mutex::default() }
    }

    /// A number that no block of this device has had.
    pub(crate) fn next_block_id(&self) -> u64 {
        self.next_block.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands commands to the queue and returns the number of the submission. None at all is a submission too.
    pub(crate) fn enqueue(&self, submission: Option<Submission>) -> Result<u64> {
        self.fault.check()?;
        let (commands, proof) = submission.map(|s| (s.commands, (s.sentinel, s.watched))).unzip();
        let submitted = Instant::now();
        // The lock makes the order of the numbers that of the queue. Callbacks that wgpu runs meanwhile must not take it.
        let mut in_flight = self.in_flight.lock();
        let index = check(&self.device, "run a submission", || self.queue.submit(commands))?;
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        let completion = Completion { progress: Arc::clone(&self.progress), fault: Arc::clone(&self.fault), number };
        match proof {
            Some((sentinel, watched)) => {
                // Before the sentinel: who has waited for the submission finds its kernels told.
                if let Some(watched) = watched {
                    self.stamps.deliver(watched, submitted, number);
                }
                sentinel.watch(self, completion);
            }
            None => self.queue.on_submitted_work_done(move || completion.done()),
        }
        in_flight.push_back(index);
        self.submitted.store(number, Ordering::Release);
        let pending = number - self.progress.completed().min(number);
        let done = in_flight.len().saturating_sub(usize::try_from(pending).unwrap_or(usize::MAX));
        in_flight.drain(..done);
        // A poll runs callbacks, which may wait for the lock.
        drop(in_flight);
        // wgpu tells a loss only when polled. A device that its user destroyed while it works says so only at the end
        // of that work, so what is submitted in between gets the loss when it is awaited.
        self.poll(wgpu::PollType::Poll)?;
        Ok(number)
    }

    /// The newest submission that is known to be done. Asks the driver only while something is in flight.
    pub(crate) fn completed(&self) -> u64 {
        if self.fault.get().is_some() {
            return u64::MAX;
        }
        let completed = self.progress.completed();
        if completed == self.submitted.load(Ordering::Acquire) {
            return completed;
        }
        // A fault is kept, and told by everything that can return an error.
        let _ = self.poll(wgpu::PollType::Poll);
        self.progress.completed()
    }

    /// Blocks until `submission` is done, or the device is lost: every driver ends its waits then.
    pub(crate) fn wait(&self, submission: u64) -> Result<()> {
        self.fault.check()?;
        if self.progress.completed() >= submission {
            return Ok(());
        }
        let Some(index) = self.index_of(submission)? else { return Ok(()) };
        self.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
        // The callback that checks the sentinel may still be on its way, on another thread that polls.
        while self.progress.completed() < submission {
            self.fault.check()?;
            std::thread::yield_now();
        }
        self.fault.check()
    }

    /// Blocks until the queue is empty, so that a loss that nobody has told yet comes out.
    pub(crate) fn drain(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Runs callbacks that are due.
    ///
    /// Never with a timeout: in wgpu 30.0 a wait that runs out of time panics where another thread polls meanwhile
    /// (gfx-rs/wgpu#9958).
    ///
    /// # Errors
    /// The device's fault, which this may be the first to see.
    pub(crate) fn poll(&self, poll_type: wgpu::PollType) -> Result<()> {
        // A lost device fails every poll anew, with a panic each time.
        self.fault.check()?;
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll_type))) {
            Ok(Ok(_)) => self.fault.check(),
            Ok(Err(error @ wgpu::PollError::WrongSubmissionIndex(..))) => {
                Err(self.fault.lose(&format!("the driver did not take a submission ({error})")))
            }
            Ok(Err(error @ wgpu::PollError::Timeout)) => {
                let message = "expected a wait without a timeout to end with the work, found it timed out";
                Err(Error::new(ErrorKind::Internal, message).with_source(error))
            }
            Err(panic) => match fatal_message(&*panic) {
                Some(message) => Err(self.fault.lose(&message)),
                None => resume_unwind(panic),
            },
        }
    }

    /// What wgpu calls a submission; `None` where it is known to be done.
    fn index_of(&self, submission: u64) -> Result<Option<wgpu::SubmissionIndex>> {
        let in_flight = self.in_flight.lock();
        let submitted = self.submitted.load(Ordering::Relaxed);
        let Some(back) = submitted.checked_sub(submission) else {
            bail!(InvalidArgument, "waiting expected a submission up to {submitted}, found {submission}");
        };
        let from_end = usize::try_from(back).unwrap_or(usize::MAX);
        let position = in_flight.len().checked_sub(1).and_then(|last| last.checked_sub(from_end));
        Ok(position.and_then(|position| in_flight.get(position).cloned()))
    }
}

/// The text of the panic with which wgpu reports that waiting failed in the driver; `None` for any other panic.
fn fatal_message(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied())?;
    text.starts_with("Error in Device::poll").then(|| one_line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callbacks come in any order, on any thread: a submission is done when all before it are, and none is forgotten.
    #[test]
    fn completions_count_in_order_whatever_thread_tells_them() {
        let (progress, fault) = (Arc::<Progress>::default(), Arc::new(Fault::new("toy")));
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
        assert!(error.ends_with("the end of submission 40006 was never told"), "{error}");
    }

    /// wgpu panics where a wait fails in the driver; that must not reach the user, and no other panic may be hidden.
    #[test]
    fn only_the_panic_of_a_failed_wait_is_a_fault() {
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
