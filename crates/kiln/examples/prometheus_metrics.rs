//! Collects the metrics of a device in the Prometheus text format. The program decides how to serve them.
//!
//! `cargo run --release -p kiln --example prometheus_metrics` prints the lines of kernels and allocations:
//!
//! ```text
//! kiln_pool_requests_total{device="cpu",source="reused"} 9
//! …
//! kiln_kernel_launches_total{device="cpu",kernel="matmul_gelu"} 10
//! …
//! ```
//!
//! `watch.write_file("metrics.json")` writes a file that `kiln top file:metrics.json` shows live.
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::metrics::Watch;
use kiln::{DType, Device, Tensor};

pub(crate) fn main() -> kiln::Result<()> {
    let device = Device::cpu()?;
    let watch = Watch::new(); // starts no thread and opens no port
    watch.add(&device);

    let x = Tensor::randn((128, 128), DType::F32, &device)?;
    for _ in 0..10 {
        x.matmul(&x)?.gelu()?.eval()?;
    }

    // A server answers `GET /metrics` with this text, which has about 100 lines.
    let text = watch.to_prometheus();
    let is_shown =
        |line: &&str| ["kiln_kernel_launches", "kiln_pool_requests"].iter().any(|name| line.starts_with(name));
    text.lines().filter(is_shown).for_each(|line| println!("{line}"));
    Ok(())
}
