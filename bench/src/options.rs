//! The command line.

use clap::Parser;
use kiln_bench::{SamplingConfig, ElementType, Workload, workloads};
use std::path::PathBuf;
use std::time::Duration;

/// Kiln's tensors beside candle, burn, gemm and rten on the CPU: the same workloads on the same numbers, arms taking turns in random order,
/// every output checked.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Only workloads whose names begin with one of these
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only this dtype: f32 or f16
    #[arg(long, value_parser = parse_dtype)]
    pub(crate) dtype: Option<ElementType>,
    /// Only these arms; kiln is always there
    #[arg(long, value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    /// Threads of every arm
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// Seconds for each line of the table
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// A few samples for each line: to see that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// The folder for all numbers as JSON and for the plots as SVG
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers"))]
    pub(crate) out: PathBuf,
    /// Lists the workloads and ends
    #[arg(long)]
    pub(crate) list: bool,
    /// Instead of the table: time per element from 64 K to 64 M elements
    #[arg(long)]
    pub(crate) growth: bool,
    /// Instead of the table: one thread against two
    #[arg(long)]
    pub(crate) scaling: bool,
    /// Instead of the table: from the start of a process, past its first printed result, to its end
    #[arg(long)]
    pub(crate) start: bool,
    /// Instead of the table: peak resident bytes of each arm, in a process of its own
    #[arg(long)]
    pub(crate) memory: bool,
    /// Of `--memory`, in the process of one arm: `ARM WORKLOAD DTYPE`
    #[arg(long, hide = true, num_args = 3, value_names = ["ARM", "WORKLOAD", "DTYPE"])]
    pub(crate) memory_of: Vec<String>,
}

impl Options {
    /// The workloads that were asked for.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &'static Workload> + '_ {
        let is_wanted = |workload: &&Workload| self.only.is_empty() || self.only.iter().any(|only| workload.id.starts_with(only));
        workloads().iter().filter(is_wanted)
    }

    /// The dtypes that were asked for.
    pub(crate) fn dtypes(&self) -> impl Iterator<Item = ElementType> + '_ {
        ElementType::ALL.into_iter().filter(|dtype| self.dtype.is_none_or(|wanted| wanted == *dtype))
    }

    /// Whether an arm takes part.
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
