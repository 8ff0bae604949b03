//! What a device could do, beside what its kernels did.

use super::report::{DeviceProfile, KernelLine, LimitShare};
use crate::terminal;
use kiln::Device;
use kiln_bench::limits::Pattern;
use kiln_bench::{Fault, Limits};
use kiln_validate::limits::DeviceLimits;

/// Puts the share of the limit to each kernel that was timed. Where the device cannot be measured, that is told and left out.
pub(super) fn compare(device: &mut DeviceProfile) {
    if device.kernels.iter().all(|line| line.kernel.total_ns == 0) {
        return;
    }
    match measure(device) {
        Ok(mut limits) => device.kernels.iter_mut().for_each(|line| line.limit = share(line, &mut limits)),
        Err(fault) => terminal::warn(&format!("no limits of device `{}`: {fault}", device.summary.device)),
    }
}

fn measure(device: &DeviceProfile) -> Result<DeviceLimits, Fault> {
    if let Some(threads) = device.summary.threads {
        return Ok(DeviceLimits::Processor(Limits::measure(threads as usize)));
    }
    // `gpu:0 #2` is another handle of the same one.
    let id = device.summary.device.split(' ').next().unwrap_or_default();
    DeviceLimits::measure(&Device::by_name(id)?)
}

/// The least time that the device would need for the bytes or for the arithmetic of the launches that were timed, whichever is more, over
/// the time that they took.
fn share(line: &KernelLine, limits: &mut DeviceLimits) -> Option<LimitShare> {
    let kernel = &line.kernel;
    if kernel.total_ns == 0 {
        return None;
    }
    let (bytes, flops, seconds) = (kernel.timed_bytes as f64, kernel.timed_flops as f64, kernel.total_ns as f64 / 1e9);
    let bytes_per_s = match limits {
        // What a launch touches may be in a cache.
        DeviceLimits::Processor(limits) => limits.bandwidth(Pattern::Copy, bytes / kernel.timed.max(1) as f64),
        DeviceLimits::Gpu { .. } => limits.copy_bytes_per_s(),
    };
    let (memory, compute) = (bytes / bytes_per_s, flops / limits.peak_flops());
    let (of, least) = if memory >= compute { ("copy", memory) } else { ("fma", compute) };
    Some(LimitShare { of, share: least / seconds })
}
