//! What a device does, for whoever watches: how often each kernel ran, how long, and on how many bytes.
//!
//! A device has one [`Recorder`]. While nobody watches, a submission costs one relaxed load of it.

mod recorder;
mod statistics;

pub use recorder::{KernelCost, KernelRun, Recorder};
pub use statistics::KernelStatistics;

use crate::device::Device;

impl Device {
    /// Begins or ends counting and timing kernels. What was counted stays when it ends, and is forgotten when it begins anew.
    ///
    /// On the CPU every kernel is timed; on a GPU those that the device has [timestamps](crate::Feature::Timestamps) for,
    /// which makes each dispatch a pass of its own. Small kernels in a row that do the same are timed together.
    ///
    /// Without the feature `events` of the crate nothing is ever counted.
    pub fn set_profiling(&self, on: bool) {
        if let Some(recorder) = self.api().recorder() {
            recorder.set_profiling(on);
        }
    }

    /// What each kernel did since profiling began, the longest first; empty where profiling never was on. What a GPU has not
    /// ended yet is not in it: [`synchronize`](Self::synchronize) first.
    pub fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        // Lets a GPU tell what it has ended.
        self.api().completed();
        self.api().recorder().map_or_else(Vec::new, Recorder::kernel_statistics)
    }
}
