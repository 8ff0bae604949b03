//! Kiln's tensors beside those of its peers.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml` measures the workloads of `kiln-bench` with Kiln, candle, burn, gemm and rten in one
//! process: the same numbers, every output checked, arms taking turns in random order. `-- --help` tells what else there is.
//!
//! In the order of use: `options` the command line · `arms` a file for each library · `line` and `table` the comparison · `growth`, `memory`,
//! `start` what else is measured · `report` and `plot` what is written to files.

mod arms;
mod growth;
mod line;
mod memory;
mod options;
mod plot;
mod report;
mod start;
mod table;

use clap::Parser;
use kiln_bench::{Fault, Limits, ElementType};
use line::Line;
use options::Options;
use report::Report;

fn main() -> Result<(), Fault> {
    let options = Options::parse();
    set_threads(options.threads);
    if options.list {
        list(&options);
        return Ok(());
    }
    if !options.memory_of.is_empty() {
        return memory::print_own_peak(&options.memory_of, options.threads);
    }
    let mut report = Report::new(&options);
    report.print_head();
    measure(&options, &mut report)?;
    std::fs::create_dir_all(&options.out)?;
    report.write(&options.out.join(format!("{}.json", what(&options))))?;
    plot::write(&report, &options.out)?;
    println!("\nnumbers and plots: {}", options.out.display());
    Ok(())
}

/// What is measured, as files are named.
fn what(options: &Options) -> &'static str {
    match options {
        Options { memory: true, .. } => "memory",
        Options { start: true, .. } => "start",
        Options { growth: true, .. } => "growth",
        Options { scaling: true, .. } => "scaling",
        _ => "table",
    }
}

/// Tells the thread pools of all libraries how many threads to have. They look when they are first used.
fn set_threads(threads: usize) {
    for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS", "RTEN_NUM_THREADS"] {
        // SAFETY: this is the first thing that the only thread of the process does.
        unsafe { std::env::set_var(name, threads.to_string()) };
    }
}

fn list(options: &Options) {
    for workload in options.workloads() {
        let [f32, f16] = ElementType::ALL.map(|dtype| workload.target(dtype));
        println!("{:<26} {:?}, target {f32} in f32, {f16} in f16", workload.id, workload.op);
    }
}

fn measure(options: &Options, report: &mut Report) -> Result<(), Fault> {
    if options.memory {
        report.memory = memory::footprints(options)?;
        return Ok(());
    }
    if options.start {
        report.start = start::starts(&options.sampling())?;
        return Ok(());
    }
    let (mut limits, single) = (Limits::measure(options.threads), Limits::measure(1));
    if options.growth {
        report.growth = growth::growth(options, &mut limits)?;
    } else if options.scaling {
        report.scaling = growth::scaling(options)?;
    } else {
        table::print_head(&mut limits, &single);
        for workload in options.workloads() {
            for dtype in options.dtypes() {
                let line = Line::measure(workload, dtype, options, &mut limits);
                table::print(&line);
                report.lines.push(line);
            }
        }
    }
    report.set_limits(&limits, &single);
    Ok(())
}
