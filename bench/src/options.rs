//! The command line.

use clap::Parser;
use kiln_bench::{ElementType, SamplingConfig, Workload, workloads};
use std::path::PathBuf;
use std::time::Duration;

/// Benchmarks Kiln against candle, burn, gemm and rten on the CPU: the same workloads on the same inputs, arms interleaved in random order,
/// every output checked.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Only workloads whose names start with one of these
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only this dtype: f32 or f16
    #[arg(long, value_parser = parse_dtype)]
    pub(crate) dtype: Option<ElementType>,
    /// Only these arms; kiln always runs
    #[arg(long, value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    /// Number of threads of every arm
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// Seconds per line of the table
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Take few samples: a smoke test
    #[arg(long)]
    pub(crate) quick: bool,
    /// Directory for results as JSON and plots as SVG
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers"))]
    pub(crate) out: PathBuf,
    /// List the workloads and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// Instead of the table: time per element from 64 K to 64 M elements
    #[arg(long)]
    pub(crate) growth: bool,
    /// Instead of the table: speedup on several threads
    #[arg(long)]
    pub(crate) scaling: bool,
    /// Instead of the table: run time of a process that prints one result
    #[arg(long)]
    pub(crate) start: bool,
    /// Instead of the table: peak resident bytes of each arm, in separate processes
    #[arg(long)]
    pub(crate) memory: bool,
    /// For the child processes of `--memory`: `ARM WORKLOAD DTYPE`
    #[arg(long, hide = true, num_args = 3, value_names = ["ARM", "WORKLOAD", "DTYPE"])]
    pub(crate) memory_of: Vec<String>,
}

impl Options {
    /// Returns the selected workloads.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &'static Workload> + '_ {
        let is_wanted =
            |workload: &&Workload| self.only.is_empty() || self.only.iter().any(|only| workload.id.starts_with(only));
        workloads().iter().filter(is_wanted)
    }

    /// Returns the selected dtypes.
    pub(crate) fn dtypes(&self) -> impl Iterator<Item = ElementType> + '_ {
        ElementType::ALL.into_iter().filter(|dtype| self.dtype.is_none_or(|wanted| wanted == *dtype))
    }

    /// Returns whether an arm is selected.
    pub(crate) fn wants_arm(&self, name: &str) -> bool {
        name == "kiln" || self.arms.is_empty() || self.arms.iter().any(|arm| arm == name)
    }

    pub(crate) fn sampling(&self) -> SamplingConfig {
        if self.quick {
            return SamplingConfig::quick();
        }
        SamplingConfig { budget: Duration::from_secs_f64(self.seconds), ..SamplingConfig::new() }
    }
}

pub(crate) fn parse_dtype(name: &str) -> Result<ElementType, String> {
    let dtype = ElementType::ALL.into_iter().find(|dtype| dtype.name() == name);
    dtype.ok_or_else(|| format!("expected f32 or f16, found {name}"))
}
