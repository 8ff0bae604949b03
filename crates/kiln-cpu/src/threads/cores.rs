//! Keeps workers off the caller's core when they are woken.
//!
//! With few cores, the Linux scheduler was observed to queue a worker behind its caller for milliseconds: as long as
//! many kernels together (`docs/performance.md`). Presumably it does not look for an idle core if all were busy a
//! moment ago, and rebalances at the next tick.

#[cfg(all(target_os = "linux", not(loom)))]
pub(super) use linux::Cores;
#[cfg(any(not(target_os = "linux"), loom))]
pub(super) use other::Cores;

#[cfg(all(target_os = "linux", not(loom)))]
mod linux {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// The started workers, and the core that they avoid.
    #[derive(Default)]
    pub(crate) struct Cores {
        workers: Vec<Pid>,
        avoided: Option<usize>,
    }

    impl Cores {
        /// Registers the calling thread as a worker.
        pub(crate) fn enter(&mut self) {
            self.workers.push(gettid());
            // The affinity of the new worker is not restricted yet, so the next `avoid_own` must set it again.
            self.avoided = None;
        }

        /// Keeps the workers off the caller's current core, if they are not already. A worker may run on any other
        /// core available to its caller. If the system refuses, only the speed is affected.
        pub(crate) fn avoid_own(&mut self) {
            let own = sched_getcpu();
            if self.avoided == Some(own) {
                return;
            }
            // Set before the calls below, so that a refusal is not retried by every loop.
            self.avoided = Some(own);
            let Ok(mut allowed) = sched_getaffinity(None) else { return };
            allowed.unset(own);
            // The caller may run only on this core, so the workers have no other.
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
    /// No-op: schedulers of other systems are left alone.
    #[derive(Default)]
    pub(crate) struct Cores;

    impl Cores {
        #[expect(clippy::unused_self, reason = "as on Linux")]
        pub(crate) fn enter(&mut self) {}

        #[expect(clippy::unused_self, reason = "as on Linux")]
        pub(crate) fn avoid_own(&mut self) {}
    }
}
