//! One parallel loop: its parts, and its completion.

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, spin_until};
use kiln_ir::{Error, ErrorKind, Result};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(loom))]
thread_local! {
    /// Whether this thread is running a part of a loop.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
loom::thread_local! {
    static INSIDE: Cell<bool> = Cell::new(false);
}

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// A loop over `0..parts`, shared by the caller and the workers. A worker may hold it after the loop has ended, and
/// then finds no part left.
pub(super) struct Job {
    /// Valid while `pending` is nonzero: borrowed from the caller, who waits until it is zero.
    task: *const Task<'static>,
    parts: usize,
    /// The next part to take; all are taken if it is at least `parts`.
    next: AtomicUsize,
    /// Parts that have not completed. The task is not called, nor dereferenced, once it is 0.
    pending: AtomicUsize,
    has_failed: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    /// Wakes the caller; used with `failures`.
    done: Condvar,
}

/// A panic of one part. The payload is dropped by the caller, because its destructor may panic too, which would end a
/// worker.
struct Failure {
    message: String,
    _payload: Box<dyn Any + Send>,
}

// SAFETY: only `task` is not `Send`; it points to a `Sync` value, which any thread may call.
unsafe impl Send for Job {}
// SAFETY: as above; all other fields are atomics and locks.
unsafe impl Sync for Job {}

impl Job {
    /// Creates a job of `parts` parts, at least one.
    ///
    /// # Safety
    /// `task` must stay valid until [`finish`](Self::finish) has returned.
    pub(super) unsafe fn new(parts: usize, task: &Task<'_>) -> Self {
        let task = std::ptr::from_ref(task);
        // SAFETY: the pointers have the same metadata; only the lifetime differs, which the caller guarantees.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        Self {
            task,
            parts,
            next: AtomicUsize::new(0),
            pending: AtomicUsize::new(parts),
            has_failed: AtomicBool::new(false),
            failures: Mutex::default(),
            done: Condvar::default(),
        }
    }

    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// Returns whether all parts are taken; some may still be running.
    pub(super) fn is_taken(&self) -> bool {
        // Relaxed: a stale value only makes a worker look for a part that is already taken.
        self.next.load(Ordering::Relaxed) >= self.parts
    }

    /// Takes and runs parts until none is left. Does not unwind.
    pub(super) fn work(&self) {
        let _inside = Inside::enter();
        loop {
            // Relaxed: a part is only an index. The data that `task` refers to was published with the job, by the
            // lock.
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return;
            }
            if !self.has_failed.load(Ordering::Relaxed) {
                // SAFETY: this part is not completed, so `pending` is nonzero and the caller still lends the task.
                let task = unsafe { &*self.task };
                if let Err(failure) = call(task, part, self.parts) {
                    self.has_failed.store(true, Ordering::Relaxed);
                    self.failures.lock().push(failure);
                }
            }
            // AcqRel: the writes of all parts are visible to the thread that observes the last completion.
            if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                // Taking the lock ensures that a caller that saw a pending part is already waiting, and cannot miss
                // the notification.
                drop(self.failures.lock());
                self.done.notify_one();
            }
        }
    }

    /// Blocks until all parts have completed, and returns the first panic as an error.
    pub(super) fn finish(&self) -> Result<()> {
        let is_done = || self.pending.load(Ordering::Acquire) == 0;
        if !spin_until(is_done) {
            let mut failures = self.failures.lock();
            while !is_done() {
                self.done.wait(&mut failures);
            }
        }
        // Relaxed: the acquire load of `pending` above orders it after the failures of all parts.
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failures = std::mem::take(&mut *self.failures.lock());
        failures.first().map_or(Ok(()), |failure| Err(failure.to_error()))
    }
}

/// Runs all parts sequentially on this thread, up to the first panic, which becomes an error as in [`Job::finish`].
pub(super) fn run_inline(parts: usize, task: &Task<'_>) -> Result<()> {
    let _inside = Inside::enter();
    (0..parts).try_for_each(|part| call(task, part, parts).map_err(|failure| failure.to_error()))
}

fn call(task: &Task<'_>, part: usize, parts: usize) -> Result<(), Failure> {
    // State that the panicking call leaves inconsistent belongs to the task; the caller gets an error.
    catch_unwind(AssertUnwindSafe(|| task(part))).map_err(|payload| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let message = format!("part {part} of {parts} panicked on thread `{thread}`: {}", panic_text(&*payload));
        Failure { message, _payload: payload }
    })
}

/// Returns the message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref().map(String::as_str)).unwrap_or("a payload that is not a string")
}

impl Failure {
    fn to_error(&self) -> Error {
        Error::new(ErrorKind::Internal, self.message.as_str())
    }
}

/// Returns whether the calling thread is running a part.
pub(super) fn is_inside_part() -> bool {
    INSIDE.with(Cell::get)
}

/// Marks the thread as running a part while it lives.
struct Inside {
    before: bool,
}

impl Inside {
    fn enter() -> Self {
        Self { before: INSIDE.with(|inside| inside.replace(true)) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.before));
    }
}
