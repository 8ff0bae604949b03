//! Which cores workers are woken on: another one than the caller's.
//!
//! Where cores are few, the scheduler of Linux was seen to put a worker behind its caller, for milliseconds: as long as many kernels together
//! (`docs/performance.md`). It is thought not to look for an idle core if all were busy a moment ago, and to balance at the next tick.

#[cfg(all(target_os = "linux", not(loom)))]
pub(super) use linux::Cores;
#[cfg(any(not(target_os = "linux"), loom))]
pub(super) use other::Cores;

#[cfg(all(target_os = "linux", not(loom)))]
mod linux {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// The workers that have begun, and the core that they are kept off.
    #[derive(Default)]
    pub(crate) struct Cores {
        workers: Vec<Pid>,
        avoided: Option<usize>,
    }

    impl Cores {
        /// Notes the calling thread as a worker.
        pub(crate) fn enter(&mut self) {
            self.workers.push(gettid());
            self.avoided = None;
        }

        /// Keeps the workers off the core that the caller runs on, unless they are already. A worker may run wherever else its caller may; a
        /// system that refuses changes nothing but the time that it takes.
        pub(crate) fn avoid_own(&mut self) {
            let own = sched_getcpu();
            if self.avoided == Some(own) {
                return;
            }
            self.avoided = Some(own);
            let Ok(mut allowed) = sched_getaffinity(None) else { return };
            allowed.unset(own);
            if allowed == CpuSet::new() {
                return;
            }
            for worker in &self.workers {
                let _ = sched_setaffinity(Some(*worker), &allowed);
            }
        }
    }
}

#[cfg(any(not(target_os = "linux"), loom))]
mod other {
    /// Schedulers of other systems are left alone.
    #[derive(Default)]
    pub(crate) struct Cores;

    impl Cores {
        #[expect(clippy::unused_self, reason = "as on Linux")]
        pub(crate) fn enter(&mut self) {}

        #[expect(clippy::unused_self, reason = "as on Linux")]
        pub(crate) fn avoid_own(&mut self) {}
    }
}
