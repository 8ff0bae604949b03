//! Kiln's GPU device beside burn on wgpu, each on its default adapter.
//!
//! `cargo run --release --manifest-path bench/gpu/Cargo.toml` measures the workloads of `kiln-bench` that suit a GPU. burn runs in a process of
//! its own, because some of its kernels crash in some drivers; it waits there for its turns. Launches are counted for both: Kiln's by its
//! device, burn's from the log that cubecl writes of each launch.
//!
//! Kiln takes the first GPU of `kiln doctor`, burn its default one. Each line also shows which part of the CPU device's speed the GPU
//! device reaches: where burn has no opponent to offer, there is only that.

mod child;
mod line;

use clap::Parser;
use kiln::Device;
use kiln_bench::{SamplingConfig, Fault, ElementType, Workload, find};
use line::Line;
use std::path::PathBuf;
use std::time::Duration;

/// Kiln's GPU device beside burn on wgpu: the same workloads on the same numbers, taking turns in random order, every output checked.
#[derive(Debug, Parser)]
struct Options {
    /// Only workloads whose names begin with one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds for each line
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Writes all numbers to this file
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
    let sampling = SamplingConfig { budget: Duration::from_secs_f64(options.seconds), max_samples: 50, ..SamplingConfig::new() };
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
