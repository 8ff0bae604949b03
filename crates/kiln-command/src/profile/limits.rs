//! Compares kernels with the roofline of their device.

use super::report::{DeviceProfile, KernelLine, LimitShare};
use crate::terminal;
use kiln::Device;
use kiln_bench::limits::Pattern;
use kiln_bench::{Fault, Limits};
use kiln_validate::limits::DeviceLimits;

/// Sets the fraction of the limit of each timed kernel. If the device cannot be measured, prints a message and leaves it out.
pub(super) fn compare(device: &mut DeviceProfile) {
    if device.kernels.iter().all(|line| line.kernel.total_ns == 0) {
        return;
    }
    match measure(device) {
        Ok(mut limits) => device.kernels.iter_mut().for_each(|line| line.limit = share(line, &mut limits)),
        Err(fault) => {
            terminal::warn(&format!("cannot measure the limits of device `{}`: {fault}", device.summary.device));
        }
    }
}

fn measure(device: &DeviceProfile) -> Result<DeviceLimits, Fault> {
    if let Some(threads) = device.summary.threads {
        return Ok(DeviceLimits::Processor(Limits::measure(threads as usize)));
    }
    // `gpu:0 #2` is another handle of the same device.
    let id = device.summary.device.split(' ').next().unwrap_or_default();
    DeviceLimits::measure(&Device::by_name(id)?)
}

/// Computes the roofline time of the timed launches, for their bytes or their arithmetic, whichever is longer, divided by the measured
/// time.
fn share(line: &KernelLine, limits: &mut DeviceLimits) -> Option<LimitShare> {
    let kernel = &line.kernel;
    if kernel.total_ns == 0 {
        return None;
    }
    let (bytes, flops, seconds) = (kernel.timed_bytes as f64, kernel.timed_flops as f64, kernel.total_ns as f64 / 1e9);
    let bytes_per_s = match limits {
        // The data of one launch may fit in a cache.
        DeviceLimits::Processor(limits) => limits.bandwidth(Pattern::Copy, bytes / kernel.timed.max(1) as f64),
        DeviceLimits::Gpu { .. } => limits.copy_bytes_per_s(),
    };
    // Roofline: the kernel cannot be faster than the slower of its data movement and its arithmetic.
    let (memory, compute) = (bytes / bytes_per_s, flops / limits.peak_flops());
    let (of, roofline) = if memory >= compute { ("copy", memory) } else { ("fma", compute) };
    Some(LimitShare { of, share: roofline / seconds })
}
