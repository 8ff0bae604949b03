//! Distributes the work of a step: on the caller's thread alone, or on the device's threads.

use crate::Threads;
use kiln_ir::host::Workers;
use kiln_ir::{Result, SimdLevel};

/// Steps that cost less run on the caller's thread: they end before another thread has started
/// (`cargo bench -p kiln-cpu`). The unit is a word loaded or stored, or a cheap op on it.
const MIN_PARALLEL_COST: usize = 1 << 18;

/// The threads and the SIMD level of a device.
pub(crate) struct PlanWorkers<'a> {
    pub(crate) threads: &'a Threads,
    pub(crate) simd: SimdLevel,
}

impl PlanWorkers<'_> {
    /// Calls `task` for every index below `count`, on all threads if `cost` is high enough.
    ///
    /// # Errors
    /// Returns `Internal` if a call panicked in a parallel run; in a sequential run the panic propagates.
    pub(crate) fn run(&self, cost: usize, count: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if cost < MIN_PARALLEL_COST || count == 1 {
            (0..count).for_each(task);
            return Ok(());
        }
        self.threads.run(count, task)
    }
}

/// For hand-written kernels, which decide themselves whether a loop is worth several threads: `run` always uses the
/// pool.
impl Workers for PlanWorkers<'_> {
    fn count(&self) -> usize {
        self.threads.count()
    }

    fn simd(&self) -> SimdLevel {
        self.simd
    }

    fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        self.threads.run(parts, task)
    }
}
