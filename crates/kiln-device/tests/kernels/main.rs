//! Kernels on the null device: keys, the two tiers, launches, faults. Results are tested on real devices.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod explain;
mod faults;
mod keys;
mod launches;
mod regressions;
mod tiers;
mod warm;

use kiln_device::{Device, DiskTier, KernelCacheOptions, KernelSource, NullDevice, Record};
use std::path::Path;

/// `y = alpha * x`.
pub(crate) const SCALE: &str = "
    override ALPHA: f32 = 1.0;
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @group(0) @binding(2) var<uniform> n: u32;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < n) { y[id.x] = ALPHA * x[id.x]; }
    }";

pub(crate) fn scale() -> KernelSource {
    KernelSource::wgsl(SCALE).named("scale.wgsl")
}

/// Returns a distinct kernel for each number.
pub(crate) fn numbered(number: usize) -> KernelSource {
    KernelSource::wgsl(format!("@compute @workgroup_size(1) fn main() {{ let x = {number}u; }}"))
        .named(format!("number {number}"))
}

pub(crate) fn on_disk(null: &NullDevice, directory: &Path) -> Device {
    let kernels = KernelCacheOptions::new().disk(DiskTier::new(directory.join("kernels")));
    null.clone().into_device_with_kernels(kernels).unwrap()
}

pub(crate) fn translations(null: &NullDevice) -> usize {
    null.records().iter().filter(|record| matches!(record, Record::Translate { .. })).count()
}
