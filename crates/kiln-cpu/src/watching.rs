//! Kernels that run under the sanitizer: what is known about the launch that is under way, and what was found.

use crate::kernel::CpuKernel;
use crate::sync::Mutex;
use kiln_device::{Dispatch, GridPart, LoadedKernel};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_jit::{Finding, LaunchArgs, LaunchInfo, Outcome, Sanitizer};
use std::sync::Arc;

/// Bytes of buffers that a watched dispatch may write: to know who touched them takes eighteen times as many.
const MAX_WATCHED_BYTES: u64 = 128 << 20;

/// The sanitizer of a device.
#[derive(Debug, Default)]
pub(crate) struct Watching(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    findings: Vec<Finding>,
    /// The launch of which a part ran last, while there are more. Its parts follow one another; where other work comes in between, what
    /// was known is lost, and with it a race.
    launch: Option<Launch>,
}

#[derive(Debug)]
struct Launch {
    kernel: Arc<LoadedKernel>,
    total: [u32; 3],
    /// Where its buffers are.
    places: Vec<usize>,
    sanitizer: Sanitizer,
}

impl Watching {
    /// Runs a dispatch: a launch of its own, or the next part of one.
    ///
    /// # Safety
    /// As [`kiln_jit::ExecutableKernel::run`].
    pub(crate) unsafe fn run(&self, dispatch: &Dispatch, kernel: &CpuKernel, args: &LaunchArgs<'_>) -> Result<Outcome> {
        check(dispatch)?;
        let GridPart { first, workgroups, total } = dispatch.part();
        // The values are not memory that anybody writes, and each part has its own.
        let places: Vec<usize> =
            args.bindings[..dispatch.buffers().len()].iter().map(|bound| bound.data as usize).collect();
        let mut state = self.0.lock();
        let is_under_way = |launch: &Launch| {
            let is_same = Arc::ptr_eq(&launch.kernel, dispatch.kernel()) && launch.total == total;
            first != [0; 3] && is_same && launch.places == places
        };
        let mut launch = state.launch.take().filter(is_under_way).unwrap_or_else(|| {
            let info = LaunchInfo {
                kernel: dispatch.kernel().name().to_string(),
                workgroup_size: dispatch.kernel().reflection().workgroup_size,
                workgroups: total,
                zero_workgroup: kernel.zero_workgroup,
            };
            Launch { kernel: Arc::clone(dispatch.kernel()), total, places, sanitizer: kernel.code.sanitizer(info) }
        });
        // SAFETY: the caller's promise.
        let outcome = unsafe { kernel.code.run_sanitized(args, first, &mut launch.sanitizer) };
        launch.sanitizer.take_findings().into_iter().for_each(|finding| Finding::add(&mut state.findings, finding));
        let is_last = (0..3).all(|axis| first[axis] + workgroups[axis] == total[axis]);
        state.launch = Some(launch).filter(|_| !is_last);
        Ok(outcome)
    }

    /// Takes what was found since the last time.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        std::mem::take(&mut self.0.lock().findings)
    }
}

/// Whether there is memory to watch what a dispatch writes.
fn check(dispatch: &Dispatch) -> Result<()> {
    let written = dispatch.buffers().iter().filter(|bound| bound.access.is_write());
    let bytes: u64 = written.map(|bound| bound.buffer.bytes()).sum();
    if bytes > MAX_WATCHED_BYTES {
        let message = format!(
            "sanitizer expected a kernel that writes buffers of at most {MAX_WATCHED_BYTES} bytes, found {bytes}"
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}
