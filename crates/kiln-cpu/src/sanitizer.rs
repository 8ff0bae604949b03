//! Running kernels under the sanitizer: the state of the current launch, and the findings.

use crate::kernel::CpuKernel;
use crate::sync::Mutex;
use kiln_device::{Dispatch, GridPart, LoadedKernel};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_jit::{Finding, LaunchArgs, LaunchInfo, Outcome, Sanitizer};
use std::sync::Arc;

/// Maximum bytes of buffers that a sanitized dispatch may write: tracking their accesses takes eighteen times as
/// many.
const MAX_TRACKED_BYTES: u64 = 128 << 20;

/// The sanitizer of a device.
#[derive(Debug, Default)]
pub(crate) struct KernelSanitizer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    findings: Vec<Finding>,
    /// The launch whose last part has not run yet. Its parts normally follow one another; if other work intervenes,
    /// the state is lost, and races across parts are missed.
    launch: Option<Launch>,
}

#[derive(Debug)]
struct Launch {
    kernel: Arc<LoadedKernel>,
    total: [u32; 3],
    /// Addresses of its buffers.
    addresses: Vec<usize>,
    sanitizer: Sanitizer,
}

impl KernelSanitizer {
    /// Runs a dispatch: a new launch, or the next part of one.
    ///
    /// # Safety
    /// As [`kiln_jit::ExecutableKernel::run`].
    pub(crate) unsafe fn run(&self, dispatch: &Dispatch, kernel: &CpuKernel, args: &LaunchArgs<'_>) -> Result<Outcome> {
        check(dispatch)?;
        let GridPart { first, workgroups, total } = dispatch.part();
        // Only buffers are compared: values are read-only, and each part has its own.
        let addresses: Vec<usize> =
            args.bindings[..dispatch.buffers().len()].iter().map(|bound| bound.data as usize).collect();
        // Taken after the locks of the buffers, and held while the dispatch runs: its launch is taken out of the state,
        // and must be back before another dispatch looks for it.
        let mut state = self.0.lock();
        let is_under_way = |launch: &Launch| {
            let is_same = Arc::ptr_eq(&launch.kernel, dispatch.kernel()) && launch.total == total;
            first != [0; 3] && is_same && launch.addresses == addresses
        };
        let mut launch = state.launch.take().filter(is_under_way).unwrap_or_else(|| {
            let info = LaunchInfo {
                kernel: dispatch.kernel().name().to_string(),
                workgroup_size: dispatch.kernel().reflection().workgroup_size,
                workgroups: total,
                zero_workgroup: kernel.zero_workgroup,
            };
            Launch { kernel: Arc::clone(dispatch.kernel()), total, addresses, sanitizer: kernel.code.sanitizer(info) }
        });
        // SAFETY: the caller upholds the contract.
        let outcome = unsafe { kernel.code.run_sanitized(args, first, &mut launch.sanitizer) };
        launch.sanitizer.take_findings().into_iter().for_each(|finding| Finding::add(&mut state.findings, finding));
        let is_last = (0..3).all(|axis| first[axis] + workgroups[axis] == total[axis]);
        state.launch = Some(launch).filter(|_| !is_last);
        Ok(outcome)
    }

    /// Takes the findings since the last call.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        std::mem::take(&mut self.0.lock().findings)
    }
}

/// Checks that there is enough memory to track what a dispatch writes.
fn check(dispatch: &Dispatch) -> Result<()> {
    let written = dispatch.buffers().iter().filter(|bound| bound.access.is_write());
    let bytes: u64 = written.map(|bound| bound.buffer.bytes()).sum();
    if bytes > MAX_TRACKED_BYTES {
        let message = format!(
            "sanitizer expected a kernel that writes buffers of at most {MAX_TRACKED_BYTES} bytes, found {bytes}"
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}
