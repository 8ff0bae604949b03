//! The thread pool that runs kernels: parallel loops over numbered parts.
//!
//! rayon is not used, for two guarantees: a caller never runs another caller's work while it waits, so a kernel may
//! hold a lock; and the threads belong to one device and end with it.

mod cores;
mod job;

use crate::sync::{AtomicUsize, Builder, Condvar, JoinHandle, Mutex, Ordering, spin_until};
use cores::Cores;
use job::Job;
#[cfg(not(loom))]
pub(crate) use job::panic_text;
use kiln_ir::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Stack size of a worker: four times what a kernel may use.
const STACK_BYTES: usize = 2 << 20;

/// A thread pool for parallel loops. The caller of a loop participates, so `n` threads are `n - 1` workers.
///
/// Workers start with the first loop that needs them. After a loop they spin for some hundreds of microseconds, then
/// park. On Linux they are woken on a different core from the caller's. They are joined when the pool is dropped.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let threads = kiln_cpu::Threads::new(2)?;
/// let sum = AtomicUsize::new(0);
/// threads.run(100, &|part| {
///     sum.fetch_add(part, Ordering::Relaxed);
/// })?;
/// assert_eq!(sum.into_inner(), 4950);
/// # Ok(())
/// # }
/// ```
pub struct Threads {
    count: usize,
    shared: Arc<Shared>,
}

/// State shared by callers and workers.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes parked workers; used with `state`.
    wake: Condvar,
    /// Changes when there is a reason to inspect `state`: a hint for workers that spin without the lock.
    signal: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Loops that may have parts left, oldest first.
    jobs: VecDeque<Arc<Job>>,
    /// Workers that wait on `wake`.
    sleeping: usize,
    /// Spinning workers, which will check once more before they park.
    looking: usize,
    is_closing: bool,
    cores: Cores,
    /// Empty until the first loop.
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Creates a pool of `count` threads, including the caller of a loop.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if `count` is zero.
    pub fn new(count: usize) -> Result<Self> {
        if count == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected at least one thread, found 0"));
        }
        Ok(Self { count, shared: Arc::new(Shared::default()) })
    }

    /// Returns the maximum number of threads in a loop.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `task` once for every index below `parts`, on all threads, and returns when all calls have returned.
    ///
    /// Loops of several callers run concurrently. A nested loop runs sequentially on the current thread, because the
    /// outer loop already occupies the threads. If the system fails to start a worker, the others do its share.
    ///
    /// # Errors
    /// Returns `Internal` if a call panicked: the panic is caught, parts that have not begun are skipped, and the
    /// pool remains usable.
    pub fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if parts < 2 || self.count == 1 || job::is_inside_part() {
            return job::run_inline(parts, task);
        }
        // SAFETY: `task` outlives this call, and `finish` returns only when no call of it is running or can begin.
        // Nothing in between unwinds: `announce` and `work` do not panic, and `work` catches the panics of `task`.
        let job = Arc::new(unsafe { Job::new(parts, task) });
        self.announce(&job);
        job.work();
        job.finish()
    }

    /// Divides `data` into chunks of `chunk_len` elements, the last one shorter, and calls `task` once for each, with
    /// its index, like [`run`](Self::run).
    ///
    /// # Errors
    /// Returns `InvalidArgument` if `chunk_len` is zero; `Internal` as [`run`](Self::run).
    pub fn run_chunks<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        task: &(dyn Fn(usize, &mut [T]) + Sync),
    ) -> Result<()> {
        if chunk_len == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected chunks of at least one element, found 0"));
        }
        let (len, start) = (data.len(), SharedPtr(data.as_mut_ptr()));
        self.run(len.div_ceil(chunk_len), &|chunk| {
            let offset = chunk * chunk_len;
            let chunk_len = chunk_len.min(len - offset);
            // SAFETY: `run` calls this once for each index below the number of chunks, so every range is within
            // `data`, which is borrowed until `run` returns, and the ranges are disjoint.
            let elements = unsafe { std::slice::from_raw_parts_mut(start.at(offset), chunk_len) };
            task(chunk, elements);
        })
    }

    /// Queues a job, and wakes as many workers as it can use.
    fn announce(&self, job: &Arc<Job>) {
        let wake = {
            let mut state = self.shared.state.lock();
            if state.workers.is_empty() {
                state.workers = start(self.count - 1, &self.shared);
            }
            // So that `is_empty` below ignores jobs that need no more workers.
            state.jobs.retain(|job| !job.is_taken());
            // A spinning worker is sure to serve only the first job; a second one must wake workers of its own.
            let looking = if state.jobs.is_empty() { state.looking } else { 0 };
            state.jobs.push_back(Arc::clone(job));
            // Relaxed: only a hint. A worker that sees the change reads `state` again, under the lock.
            self.shared.signal.fetch_add(1, Ordering::Relaxed);
            let wanted = job.parts().min(self.count) - 1;
            let wake = wanted.saturating_sub(looking).min(state.sleeping);
            if wake > 0 {
                state.cores.avoid_own();
            }
            wake
        };
        // After the lock is released, so that a woken worker does not block on it at once.
        for _ in 0..wake {
            self.shared.wake.notify_one();
        }
    }
}

/// The start of a slice that is divided among threads.
pub(crate) struct SharedPtr<T>(pub(crate) *mut T);

// SAFETY: threads that share it access disjoint elements, each of which is sent to one of them.
unsafe impl<T: Send> Sync for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    /// Returns a pointer to the element at `offset`.
    ///
    /// # Safety
    /// `offset` must be within the slice, or its end.
    pub(crate) unsafe fn at(&self, offset: usize) -> *mut T {
        // SAFETY: the caller upholds the contract.
        unsafe { self.0.add(offset) }
    }
}

fn start(workers: usize, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let start_one = |index| {
        let shared = Arc::clone(shared);
        // Set explicitly, so that the stack available to kernels does not depend on the environment.
        let builder = Builder::new().name(format!("kiln-cpu-{index}")).stack_size(STACK_BYTES);
        builder.spawn(move || shared.serve())
    };
    (1..=workers).map_while(|index| start_one(index).ok()).collect()
}

impl Shared {
    /// The main loop of a worker.
    fn serve(&self) {
        self.state.lock().cores.enter();
        while let Some(job) = self.next_job() {
            job.work();
        }
    }

    /// Blocks until there is a job with parts left; returns `None` when the pool shuts down.
    fn next_job(&self) -> Option<Arc<Job>> {
        loop {
            let seen = {
                let mut state = self.state.lock();
                match state.next() {
                    Next::Work(job) => return Some(job),
                    Next::End => return None,
                    Next::Nothing => state.looking += 1,
                }
                // Read under the lock: a job announced before is seen by `next`, a later one changes the signal.
                self.signal.load(Ordering::Relaxed)
            };
            let has_news = spin_until(|| self.signal.load(Ordering::Relaxed) != seen);
            let mut state = self.state.lock();
            state.looking -= 1;
            match state.next() {
                Next::Work(job) => return Some(job),
                Next::End => return None,
                // Other workers took all parts. More such small jobs are likely, so keep spinning.
                Next::Nothing if has_news => {}
                Next::Nothing => {
                    // The lock is held from `next` to `wait`, so a job that is announced in between is not missed.
                    state.sleeping += 1;
                    self.wake.wait(&mut state);
                    state.sleeping -= 1;
                }
            }
        }
    }
}

/// The result of looking for work.
enum Next {
    Work(Arc<Job>),
    Nothing,
    End,
}

impl State {
    fn next(&mut self) -> Next {
        while let Some(job) = self.jobs.front() {
            if !job.is_taken() {
                return Next::Work(Arc::clone(job));
            }
            self.jobs.pop_front();
        }
        if self.is_closing { Next::End } else { Next::Nothing }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let workers = {
            let mut state = self.shared.state.lock();
            state.is_closing = true;
            // Spinning workers check the state when the signal changes; `notify_all` below reaches only parked ones.
            self.shared.signal.fetch_add(1, Ordering::Relaxed);
            std::mem::take(&mut state.workers)
        };
        self.shared.wake.notify_all();
        for worker in workers {
            // A worker catches the panics of tasks; its own panic is a bug, already reported by the panic message.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count).finish_non_exhaustive()
    }
}
