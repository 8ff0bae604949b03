//! Runs a WGSL kernel that lacks a barrier on a sanitized device, which reports the data race with its line.
//!
//! `cargo run --release -p kiln --example sanitizer_finds_a_race` prints:
//!
//! ```text
//! sum.wgsl: 1 finding
//! sum.wgsl:9:26: race: invocation (1, 0, 0) … writes `partial[1]`, which invocation (0, 0, 0) … read in line 9…
//! ```
//!
//! `kiln check FILE.wgsl` does the same for a file.
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::Device;
use kiln::kernel::KernelSource;

/// Sums 64 elements in a tree. Each round reads elements that other invocations wrote in the round before.
const SUM: &str = "\
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> partial: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) {
    partial[i] = x[i];
    workgroupBarrier();
    for (var width = 32u; width > 0u; width /= 2u) {
        if (i < width) { partial[i] += partial[i + width]; } // no barrier after this line
    }
    if (i == 0u) { y[0] = partial[0]; }
}";

pub(crate) fn main() -> kiln::Result<()> {
    // Runs kernels on the CPU, one invocation at a time, and records every access. Slow: for debugging.
    let device = Device::sanitized()?;
    let kernel = device.kernel(KernelSource::wgsl(SUM).named("sum.wgsl"))?;
    let x = device.buffer_from(&[1.0f32; 64])?;
    let mut y = device.buffer_from(&[0.0f32])?;
    kernel.launch().bind("x", &x).bind("y", &mut y).over(64)?;

    let findings = device.take_findings();
    println!("sum.wgsl: {} finding", findings.len());
    for finding in &findings {
        println!("{finding}");
    }
    Ok(())
}
