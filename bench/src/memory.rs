//! Peak resident bytes of each arm, each in a separate process.

use crate::arms::{LIBRARIES, Task, library};
use crate::options::{Options, parse_dtype};
use kiln_bench::{ElementType, Fault, find};
use serde::Serialize;
use std::fs;
use std::process::Command;

/// Number of runs, after which pools and caches are filled.
const RUNS: usize = 5;

/// The memory use of a workload in one dtype.
#[derive(Serialize)]
pub(crate) struct Footprint {
    workload: &'static str,
    dtype: ElementType,
    /// Bytes of the inputs and the output.
    needed_bytes: f64,
    /// Bytes of each arm above those at process start; `None` if it does not support the workload.
    arms: Vec<(&'static str, Option<u64>)>,
    /// Kiln's bytes divided by those of the best peer.
    ratio: Option<f64>,
}

/// Measures every line.
pub(crate) fn footprints(options: &Options) -> Result<Vec<Footprint>, Fault> {
    let mut lines = Vec::new();
    let names: Vec<_> = LIBRARIES.iter().map(|library| library.name).filter(|name| options.wants_arm(name)).collect();
    let heads: Vec<String> = names.iter().map(|name| format!("{name:>10}")).collect();
    println!("{:<26} {:>4} {:>9} {} {:>6}", "peak resident MB", "", "needed", heads.join(" "), "ratio");
    for workload in options.workloads() {
        for dtype in options.dtypes() {
            let peak = |name: &&'static str| Ok((*name, peak_in_child(name, workload.id, dtype, options.threads)?));
            let arms = names.iter().map(peak).collect::<Result<Vec<_>, Fault>>()?;
            let bytes_of = |name: &str| arms.iter().find(|arm| arm.0 == name).and_then(|arm| arm.1);
            let best = names.iter().filter(|name| **name != "kiln").filter_map(|name| bytes_of(name)).min();
            let ratio = bytes_of("kiln").zip(best).map(|(kiln, best)| kiln as f64 / best.max(1) as f64);
            let needed_bytes = workload.op.bytes_read(dtype) + workload.op.bytes_written(dtype);
            let mega = |bytes: Option<u64>| bytes.map_or("-".to_string(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
            let cells: Vec<String> = arms.iter().map(|arm| format!("{:>10}", mega(arm.1))).collect();
            let shown = ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
            println!("{:<26} {dtype:>4} {:>9.1} {} {shown:>6}", workload.id, needed_bytes / 1e6, cells.join(" "));
            lines.push(Footprint { workload: workload.id, dtype, needed_bytes, arms, ratio });
        }
    }
    Ok(lines)
}

/// Measures the workload with one library in a child process; `None` if the library does not support it.
fn peak_in_child(arm: &str, workload: &str, dtype: ElementType, threads: usize) -> Result<Option<u64>, Fault> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--threads", &threads.to_string(), "--memory-of", arm, workload, dtype.name()]);
    let output = command.output()?;
    if !output.status.success() {
        return Ok(None);
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse().ok())
}

/// In the child: runs the workload several times, and prints the peak resident bytes above those at its start.
pub(crate) fn print_own_peak(names: &[String], threads: usize) -> Result<(), Fault> {
    let [arm, workload, dtype] = names else {
        return Err("expected the names of an arm, a workload and a dtype".into());
    };
    let empty = status_bytes("VmRSS")?;
    let library = library(arm).ok_or_else(|| format!("expected the name of an arm, found {arm}"))?;
    let workload = find(workload).ok_or_else(|| format!("expected the name of a workload, found {workload}"))?;
    let dtype = parse_dtype(dtype)?;
    let data = workload.op.data(dtype);
    let task = Task { op: workload.op, dtype, data: &data, threads };
    let prepared = (library.prepare)(&task).map_err(|reason| format!("{reason:?}"))?;
    drop(data);
    // Excludes the peak of generating the inputs.
    fs::write("/proc/self/clear_refs", "5")?;
    for _ in 0..RUNS {
        prepared.run()?;
    }
    println!("{}", status_bytes("VmHWM")?.saturating_sub(empty));
    Ok(())
}

/// Returns a field of `/proc/self/status` in bytes.
fn status_bytes(name: &str) -> Result<u64, Fault> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| format!("expected {name} in /proc/self/status, found none"))? * 1024)
}
