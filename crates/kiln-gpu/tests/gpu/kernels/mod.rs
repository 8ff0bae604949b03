//! User kernels: compiled, checked and launched, as SPIR-V, as WGSL, and on the CPU device.

mod agree;
mod arguments;
mod grids;
mod options;
mod order;
mod regressions;
mod tiers;

use crate::support;
use kiln_device::{Device, Feature, KernelSource};
use kiln_gpu::GpuOptions;

/// `y = alpha * x + y`, with an explicit length.
pub(super) const SAXPY: &str = "
    override ALPHA: f32 = 1.0;
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(3) var<storage, read_write> y: array<f32>;
    @group(1) @binding(0) var<uniform> n: u32;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < n) { y[id.x] = ALPHA * x[id.x] + y[id.x]; }
    }";

pub(super) fn saxpy() -> KernelSource {
    KernelSource::wgsl(SAXPY).named("saxpy.wgsl").entry("main").constant("ALPHA", 2.0)
}

/// Returns a device that accepts SPIR-V, one that gets WGSL, and the CPU devices.
pub(super) fn targets() -> Vec<Device> {
    gpu_targets().into_iter().chain(support::cpus()).collect()
}

/// The GPU devices of [`targets`].
pub(super) fn gpu_targets() -> Vec<Device> {
    let Some(spirv) = support::in_place() else { return Vec::new() };
    let wgsl = kiln_gpu::open(0, GpuOptions::new().without(Feature::PassthroughShaders)).unwrap();
    assert_ne!(spirv.info().compiler, wgsl.info().compiler, "this adapter has both ways");
    vec![spirv, wgsl]
}

/// Returns values that stay exact in `f32` after a few operations.
pub(super) fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|index| (index % 1000) as f32 * 0.5 - 100.0).collect()
}
