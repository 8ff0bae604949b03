//! Compiles a kernel, then opens the device again as a second process would: the kernel is loaded from disk.
//!
//! `cargo run --release -p kiln --example warm_start` prints, with other times:
//!
//! ```text
//! kernel `sigmoid.wgsl` (…) misses because nothing is on disk
//! cold: Compiled in … ms
//! kernel `sigmoid.wgsl` (…) is on disk
//! warm: Disk in … ms
//! ```
//!
//! By default a device keeps its kernels in the cache directory of the user, which `kiln doctor` shows.
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::Device;
use kiln::cache::{DiskTier, KernelCacheOptions};
use kiln::kernel::KernelSource;
use std::path::Path;
use std::time::Instant;

const SIGMOID: &str = "
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = 1.0 / (1.0 + exp(-y[id.x])); }
}";

/// Opens a device with this cache directory, and times the first request for a kernel.
fn start(name: &str, directory: &Path) -> kiln::Result<()> {
    let kernels = KernelCacheOptions::new().disk(DiskTier::new(directory));
    let device = Device::by_name_with("cpu", kernels)?;
    let source = KernelSource::wgsl(SIGMOID).named("sigmoid.wgsl");
    println!("{}", device.explain_kernel(&source)?);

    let begin = Instant::now();
    let kernel = device.kernel(&source)?;
    println!("{name}: {:?} in {:.3} ms", kernel.origin(), begin.elapsed().as_secs_f64() * 1e3);

    let mut y = device.buffer_from(&[0.0f32; 100])?;
    kernel.launch().bind("y", &mut y).over(100)?;
    assert_eq!(y.read()?, [0.5; 100]);
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    start("cold", directory.path())?;
    start("warm", directory.path())?;
    Ok(())
}
