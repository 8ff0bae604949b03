//! Benchmarks Kiln's GPU device against burn on wgpu, each on its default adapter.
//!
//! `cargo run --release --manifest-path bench/gpu/Cargo.toml` measures the workloads of `kiln-bench` that suit a GPU. burn runs in a
//! separate process, because some of its kernels crash in some drivers. Launches are counted for both: Kiln's by its device, burn's from the
//! launch log of cubecl.
//!
//! Kiln uses the first GPU of `kiln doctor`, burn its default one. Each line also shows the speed of the GPU device relative to the CPU
//! device, for workloads that burn does not support.

mod child;
mod line;

use clap::Parser;
use kiln::Device;
use kiln_bench::{ElementType, Fault, SamplingConfig, Workload, find};
use line::Line;
use std::path::PathBuf;
use std::time::Duration;

/// Benchmarks Kiln's GPU device against burn on wgpu: the same workloads on the same inputs, interleaved in random order, every output checked.
#[derive(Debug, Parser)]
struct Options {
    /// Only workloads whose names start with one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds per line
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// In the child: the workload and the dtype
    #[arg(long, hide = true, num_args = 2)]
    burn: Vec<String>,
    /// In the child: counts launches instead, from the log in this file
    #[arg(long, hide = true)]
    launches: Option<PathBuf>,
}

/// The workloads of the table that are measured here.
const WORKLOADS: [&str; 13] = [
    "add-1m",
    "mul-add-relu-1m",
    "chain8-1m",
    "gelu-1m",
    "sum-1m",
    "row-sums-4096x1024",
    "softmax-1024",
    "layer-norm-1024",
    "matmul-256",
    "matmul-512",
    "attention-512",
    "tiny-chain",
    "tiny-independent",
];

fn main() -> Result<(), Fault> {
    let options = Options::parse();
    if let [workload, dtype] = &options.burn[..] {
        return child::serve(workload, dtype, options.launches.as_deref());
    }
    let gpu = Device::gpu(0)?;
    let cpu = Device::cpu()?;
    let sampling =
        SamplingConfig { budget: Duration::from_secs_f64(options.seconds), max_samples: 50, ..SamplingConfig::new() };
    println!("{}", gpu.info().name);
    line::print_head();
    let mut lines = Vec::new();
    for workload in WORKLOADS.iter().filter_map(|id| find(id)).filter(|workload| is_wanted(&options, workload)) {
        for dtype in ElementType::ALL {
            let line = Line::measure(workload, dtype, &gpu, &cpu, &sampling)?;
            line.print();
            lines.push(line);
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&lines)? + "\n")?;
    }
    Ok(())
}

fn is_wanted(options: &Options, workload: &Workload) -> bool {
    options.only.is_empty() || options.only.iter().any(|only| workload.id.starts_with(only.as_str()))
}
