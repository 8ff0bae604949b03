//! Benchmarks Kiln against other Rust tensor libraries.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml` measures the workloads of `kiln-bench` with Kiln, candle, burn, gemm and rten in one
//! process: on the same inputs, with every output checked and the arms interleaved in random order. `-- --help` lists the other modes.
//!
//! In the order of use: `options` the command line · `arms` a file for each library · `line` and `table` the comparison · `growth`, `memory`,
//! `start` the other measurements · `report` and `plot` the output files.

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
use kiln_bench::{ElementType, Fault, Limits};
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
    report.write(&options.out.join(format!("{}.json", name(&options))))?;
    plot::write(&report, &options.out)?;
    println!("\nresults and plots: {}", options.out.display());
    Ok(())
}

/// Returns the name of the measurement, used for files.
fn name(options: &Options) -> &'static str {
    match options {
        Options { memory: true, .. } => "memory",
        Options { start: true, .. } => "start",
        Options { growth: true, .. } => "growth",
        Options { scaling: true, .. } => "scaling",
        _ => "table",
    }
}

/// Sets the number of threads of all libraries, which read it on first use.
fn set_threads(threads: usize) {
    for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS", "RTEN_NUM_THREADS"] {
        // SAFETY: called first in `main`, while the process has one thread.
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
