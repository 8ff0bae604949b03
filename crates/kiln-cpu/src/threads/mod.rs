//! The threads that run kernels: a parallel loop over numbered parts.
//!
//! rayon is not used here because of two promises: a caller never runs somebody else's work while it waits for its own,
//! so a kernel may hold a lock; and the threads belong to one device and end with it.

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

/// The stack of a worker: four times what a kernel may have of it.
const STACK_BYTES: usize = 2 << 20;

/// A set of threads for parallel loops. The caller of a loop takes part in it, so `n` threads are `n - 1` workers.
///
/// Workers start at the first loop that has a use for them. After a loop they look for the next one for some hundreds of
/// microseconds, then sleep. On Linux they are woken on another core than the caller's. They end, and are joined, when the value is dropped.
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

/// What the callers and the workers share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Where idle workers sleep, with `state`.
    wake: Condvar,
    /// Changes when there is a reason to look at `state`: a hint for workers that look for work without the lock.
    signal: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Loops that may have parts left, oldest first.
    jobs: VecDeque<Arc<Job>>,
    /// Workers that wait at `wake`.
    sleeping: usize,
    /// Workers that found nothing, and will look here once more before they sleep.
    looking: usize,
    is_closing: bool,
    cores: Cores,
    /// Empty until the first loop.
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    /// A set of `count` threads, the caller of a loop included.
    ///
    /// # Errors
    /// `InvalidArgument` where `count` is zero.
    pub fn new(count: usize) -> Result<Self> {
        if count == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected at least one thread, found 0"));
        }
        Ok(Self { count, shared: Arc::new(Shared::default()) })
    }

    /// How many threads take part in a loop at most.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `task` once for every number below `parts`, on all threads, and returns when all calls have ended.
    ///
    /// Loops of several callers run side by side. A loop inside of a part runs on the thread that it is on, in order:
    /// the outer one already occupies the threads. Where the system refuses to start a worker, the others do its share.
    ///
    /// # Errors
    /// `Internal` where a call panicked: the panic ends there, parts that had not begun are left out, and the threads
    /// remain usable.
    pub fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if parts < 2 || self.count == 1 || job::is_inside_part() {
            return job::run_inline(parts, task);
        }
        // SAFETY: `task` outlives this call, and `finish` returns only when no call of it runs or can begin. Nothing
        // between here and there unwinds: `announce` and `work` do not panic, and `work` catches the panics of `task`.
        let job = Arc::new(unsafe { Job::new(parts, task) });
        self.announce(&job);
        job.work();
        job.finish()
    }

    /// Divides `data` into chunks of `chunk_len` elements, the last one shorter, and calls `task` once for each, with its
    /// number, as [`run`](Self::run) does.
    ///
    /// # Errors
    /// `InvalidArgument` where `chunk_len` is zero; `Internal` as [`run`](Self::run).
    pub fn run_chunks<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        task: &(dyn Fn(usize, &mut [T]) + Sync),
    ) -> Result<()> {
        if chunk_len == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected chunks of at least one element, found 0"));
        }
        let (len, start) = (data.len(), Start(data.as_mut_ptr()));
        self.run(len.div_ceil(chunk_len), &|chunk| {
            let offset = chunk * chunk_len;
            let chunk_len = chunk_len.min(len - offset);
            // SAFETY: `run` calls this once for each number below the count of chunks, so every range is inside of
            // `data`, which is borrowed until `run` has returned, and no other call has a part of it.
            let elements = unsafe { std::slice::from_raw_parts_mut(start.at(offset), chunk_len) };
            task(chunk, elements);
        })
    }

    /// Puts a job where workers find it, and wakes as many as it can use.
    fn announce(&self, job: &Arc<Job>) {
        let wake = {
            let mut state = self.shared.state.lock();
            if state.workers.is_empty() {
                state.workers = start(self.count - 1, &self.shared);
            }
            state.jobs.retain(|job| !job.is_taken());
            // A worker that is looking serves the first job for sure; a second one wakes workers of its own.
            let looking = if state.jobs.is_empty() { state.looking } else { 0 };
            state.jobs.push_back(Arc::clone(job));
            self.shared.signal.fetch_add(1, Ordering::Relaxed);
            let wanted = job.parts().min(self.count) - 1;
            let wake = wanted.saturating_sub(looking).min(state.sleeping);
            if wake > 0 {
                state.cores.avoid_own();
            }
            wake
        };
        for _ in 0..wake {
            self.shared.wake.notify_one();
        }
    }
}

/// Where the elements of a divided slice begin.
pub(crate) struct Start<T>(pub(crate) *mut T);

// SAFETY: the threads that share it reach different elements, each of which is sent to one of them.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// The element at `offset`.
    ///
    /// # Safety
    /// There must be one, or it must be the end.
    pub(crate) unsafe fn at(&self, offset: usize) -> *mut T {
        // SAFETY: as the caller vouches.
        unsafe { self.0.add(offset) }
    }
}

fn start(workers: usize, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let start_one = |index| {
        let shared = Arc::clone(shared);
        // What kernels may have of a stack does not depend on the environment.
        let builder = Builder::new().name(format!("kiln-cpu-{index}")).stack_size(STACK_BYTES);
        builder.spawn(move || shared.serve())
    };
    (1..=workers).map_while(|index| start_one(index).ok()).collect()
}

impl Shared {
    /// The life of a worker.
    fn serve(&self) {
        self.state.lock().cores.enter();
        while let Some(job) = self.next_job() {
            job.work();
        }
    }

    /// Blocks until there is a job with parts left; `None` when the threads end.
    fn next_job(&self) -> Option<Arc<Job>> {
        loop {
            let seen = {
                let mut state = self.state.lock();
                match state.next() {
                    Next::Work(job) => return Some(job),
                    Next::End => return None,
                    Next::Nothing => state.looking += 1,
                }
                self.signal.load(Ordering::Relaxed)
            };
            let has_news = spin_until(|| self.signal.load(Ordering::Relaxed) != seen);
            let mut state = self.state.lock();
            state.looking -= 1;
            match state.next() {
                Next::Work(job) => return Some(job),
                Next::End => return None,
                // The others were faster. More of such small jobs are likely, so look on.
                Next::Nothing if has_news => {}
                Next::Nothing => {
                    state.sleeping += 1;
                    self.wake.wait(&mut state);
                    state.sleeping -= 1;
                }
            }
        }
    }
}

/// What a worker finds when it looks for work.
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
            self.shared.signal.fetch_add(1, Ordering::Relaxed);
            std::mem::take(&mut state.workers)
        };
        self.shared.wake.notify_all();
        for worker in workers {
            // A worker catches the panics of tasks; one of its own is a bug that its panic message already told.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count).finish_non_exhaustive()
    }
}
