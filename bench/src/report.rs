//! The results of a run, as JSON.

use crate::arms::LIBRARIES;
use crate::growth::{Scaling, Size};
use crate::line::Line;
use crate::memory::Footprint;
use crate::options::Options;
use crate::start::Start;
use kiln_bench::{Fault, Limits};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// One run of the program.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    threads: usize,
    /// Compiler flags: candle and burn are fastest with `target-cpu=native`.
    rustflags: &'static str,
    versions: BTreeMap<&'static str, &'static str>,
    limits: Measured,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<Line>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) growth: Vec<Size>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) scaling: Vec<Scaling>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) start: Vec<Start>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) memory: Vec<Footprint>,
}

#[derive(Serialize)]
struct Machine {
    processor: String,
    system: &'static str,
    architecture: &'static str,
}

#[derive(Serialize, Default)]
struct Measured {
    peak_flops: f64,
    peak_flops_one_thread: f64,
    bandwidths: Vec<Bandwidth>,
}

#[derive(Serialize)]
struct Bandwidth {
    pattern: kiln_bench::limits::Pattern,
    footprint_bytes: usize,
    bytes_per_second: f64,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            machine: Machine::this(),
            threads: options.threads,
            rustflags: env!("PEERS_RUSTFLAGS"),
            versions: LIBRARIES.iter().map(|library| (library.name, library.version)).collect(),
            limits: Measured::default(),
            lines: Vec::new(),
            growth: Vec::new(),
            scaling: Vec::new(),
            start: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Stores the measured limits, at the end of the run.
    pub(crate) fn set_limits(&mut self, limits: &Limits, single: &Limits) {
        let bandwidths = limits.bandwidths().map(|(pattern, footprint_bytes, bytes_per_second)| Bandwidth {
            pattern,
            footprint_bytes,
            bytes_per_second,
        });
        self.limits = Measured {
            peak_flops: limits.peak_flops(),
            peak_flops_one_thread: single.peak_flops(),
            bandwidths: bandwidths.collect(),
        };
    }

    /// Returns the peak FLOP/s.
    pub(crate) fn peak_flops(&self) -> f64 {
        self.limits.peak_flops
    }

    pub(crate) fn print_head(&self) {
        let flags = if self.rustflags.is_empty() { "none" } else { self.rustflags };
        println!("{}, {} threads; compiler flags: {flags}", self.machine.processor, self.threads);
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Fault> {
        Ok(std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }
}

impl Machine {
    fn this() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let processor = model.map_or("unknown processor", |(_, name)| name.trim()).to_string();
        Self { processor, system: std::env::consts::OS, architecture: std::env::consts::ARCH }
    }
}
