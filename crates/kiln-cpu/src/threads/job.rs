//! One parallel loop: its parts, who takes them, when they are done.

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, spin_until};
use kiln_ir::{Error, ErrorKind, Result};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(loom))]
thread_local! {
    /// Whether this thread runs a part of some loop.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
loom::thread_local! {
    static INSIDE: Cell<bool> = Cell::new(false);
}

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// A loop over `0..parts`. Shared by the caller and the workers; a worker may hold it after the loop has ended, and then
/// finds no part left to take.
pub(super) struct Job {
    /// Valid while `pending` is not zero: borrowed from the caller, who waits for that.
    task: *const Task<'static>,
    parts: usize,
    /// The next part to take; at `parts` or beyond, all are taken.
    next: AtomicUsize,
    /// Parts whose call has not ended.
    pending: AtomicUsize,
    has_failed: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    /// Where the caller sleeps, with `failures`.
    done: Condvar,
}

/// A panic of one part. The payload is kept for the caller to drop: its destructor may panic too, which would end a
/// worker.
struct Failure {
    message: String,
    _payload: Box<dyn Any + Send>,
}

// SAFETY: the only field that is not `Send` is `task`, a pointer to a `Sync` value: any thread may call it.
unsafe impl Send for Job {}
// SAFETY: as above; everything else in a job is shared by atomics and locks.
unsafe impl Sync for Job {}

impl Job {
    /// A job over `parts` parts, at least one.
    ///
    /// # Safety
    /// `task` must stay valid until [`finish`](Self::finish) returned.
    pub(super) unsafe fn new(parts: usize, task: &Task<'_>) -> Self {
        let task = std::ptr::from_ref(task);
        // SAFETY: both are pointers with the same metadata; only the lifetime differs, which the caller vouches for.
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

    /// Whether no part is left to take; some may still run.
    pub(super) fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.parts
    }

    /// Takes and runs parts until none is left. Does not unwind.
    pub(super) fn work(&self) {
        let _inside = Inside::enter();
        loop {
            // Relaxed: a part is only a number. What `task` refers to became visible with the job, through the lock.
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return;
            }
            if !self.has_failed.load(Ordering::Relaxed) {
                // SAFETY: this part is not done, so `pending` is not zero and the caller still lends the task.
                let task = unsafe { &*self.task };
                if let Err(failure) = call(task, part, self.parts) {
                    self.has_failed.store(true, Ordering::Relaxed);
                    self.failures.lock().push(failure);
                }
            }
            // AcqRel: what all parts wrote is visible to whoever sees the last one done.
            if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                // With the lock in between, a caller that saw a part pending is asleep by now and hears the call.
                drop(self.failures.lock());
                self.done.notify_one();
            }
        }
    }

    /// Blocks until the calls of all parts have ended, and tells the first panic among them.
    pub(super) fn finish(&self) -> Result<()> {
        let is_done = || self.pending.load(Ordering::Acquire) == 0;
        if !spin_until(is_done) {
            let mut failures = self.failures.lock();
            while !is_done() {
                self.done.wait(&mut failures);
            }
        }
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let failures = std::mem::take(&mut *self.failures.lock());
        failures.first().map_or(Ok(()), |failure| Err(failure.to_error()))
    }
}

/// Runs all parts on this thread, in order, up to the first that panics.
pub(super) fn run_inline(parts: usize, task: &Task<'_>) -> Result<()> {
    let _inside = Inside::enter();
    (0..parts).try_for_each(|part| call(task, part, parts).map_err(|failure| failure.to_error()))
}

fn call(task: &Task<'_>, part: usize, parts: usize) -> Result<(), Failure> {
    // What the panicking call leaves half done is the task's; the caller learns of it.
    catch_unwind(AssertUnwindSafe(|| task(part))).map_err(|payload| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let message = format!("part {part} of {parts} panicked on thread `{thread}`: {}", panic_text(&*payload));
        Failure { message, _payload: payload }
    })
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref().map(String::as_str)).unwrap_or("a value that is not text")
}

impl Failure {
    fn to_error(&self) -> Error {
        Error::new(ErrorKind::Internal, self.message.as_str())
    }
}

/// Whether the calling thread is inside of a part.
pub(super) fn is_inside_part() -> bool {
    INSIDE.with(Cell::get)
}

/// Marks the thread as inside of a part while it lives.
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
