//! Who does the work of a step: the caller alone, or with the threads of the device.

use crate::Threads;
use kiln_ir::host::Workers;
use kiln_ir::{Result, SimdLevel};

/// Steps that cost less run on the caller's thread: they are over before another one has begun (`cargo bench -p
/// kiln-cpu`). In words that are loaded or stored, and cheap ops on them.
const MIN_PARALLEL_COST: usize = 1 << 18;

/// The threads of a device and the level of its kernels.
pub(crate) struct Pieces<'a> {
    pub(crate) threads: &'a Threads,
    pub(crate) simd: SimdLevel,
}

impl Pieces<'_> {
    /// Calls `task` for every number below `count`, on all threads where `cost` is worth it.
    ///
    /// # Errors
    /// `Internal` where a call panicked on one of several threads; on the caller's own a panic goes on.
    pub(crate) fn run(&self, cost: usize, count: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if cost < MIN_PARALLEL_COST || count == 1 {
            (0..count).for_each(task);
            return Ok(());
        }
        self.threads.run(count, task)
    }
}

impl Workers for Pieces<'_> {
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
