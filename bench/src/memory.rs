//! Peak resident bytes of each arm, in a process of its own.

use crate::arms::{LIBRARIES, Task, library};
use crate::options::{Options, parse_number};
use kiln_bench::{Fault, Number, find};
use serde::Serialize;
use std::fs;
use std::process::Command;

/// Runs after which memory that is kept for reuse is there.
const RUNS: usize = 5;

/// A work in one dtype.
#[derive(Serialize)]
pub(crate) struct Footprint {
    work: &'static str,
    dtype: Number,
    /// Bytes of the inputs and the output.
    needed_bytes: f64,
    /// What each arm took beyond an empty process; none where it cannot do the work.
    arms: Vec<(&'static str, Option<u64>)>,
    /// Kiln's bytes over those of the best peer.
    ratio: Option<f64>,
}

/// Measures every line.
pub(crate) fn footprints(options: &Options) -> Result<Vec<Footprint>, Fault> {
    let mut lines = Vec::new();
    let names: Vec<_> = LIBRARIES.iter().map(|library| library.name).filter(|name| options.wants_arm(name)).collect();
    let heads: Vec<String> = names.iter().map(|name| format!("{name:>10}")).collect();
    println!("{:<26} {:>4} {:>9} {} {:>6}", "peak resident MB", "", "needed", heads.join(" "), "ratio");
    for work in options.works() {
        for number in options.numbers() {
            let peak = |name: &&'static str| Ok((*name, peak_in_child(name, work.id, number, options.threads)?));
            let arms = names.iter().map(peak).collect::<Result<Vec<_>, Fault>>()?;
            let bytes_of = |name: &str| arms.iter().find(|arm| arm.0 == name).and_then(|arm| arm.1);
            let best = names.iter().filter(|name| **name != "kiln").filter_map(|name| bytes_of(name)).min();
            let ratio = bytes_of("kiln").zip(best).map(|(ours, best)| ours as f64 / best.max(1) as f64);
            let needed_bytes = work.op.bytes_read(number) + work.op.bytes_written(number);
            let mega = |bytes: Option<u64>| bytes.map_or("-".to_string(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
            let cells: Vec<String> = arms.iter().map(|arm| format!("{:>10}", mega(arm.1))).collect();
            let shown = ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
            println!("{:<26} {number:>4} {:>9.1} {} {shown:>6}", work.id, needed_bytes / 1e6, cells.join(" "));
            lines.push(Footprint { work: work.id, dtype: number, needed_bytes, arms, ratio });
        }
    }
    Ok(lines)
}

/// What a process takes that does the work with one library, or none where the library cannot do it.
fn peak_in_child(arm: &str, work: &str, number: Number, threads: usize) -> Result<Option<u64>, Fault> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--threads", &threads.to_string(), "--memory-of", arm, work, number.name()]);
    let output = command.output()?;
    if !output.status.success() {
        return Ok(None);
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse().ok())
}

/// In the child: does the work some times, and prints the peak of its resident bytes beyond those at its start.
pub(crate) fn print_own_peak(names: &[String], threads: usize) -> Result<(), Fault> {
    let [arm, work, number] = names else {
        return Err("expected the names of an arm, a work and a dtype".into());
    };
    let empty = status_bytes("VmRSS")?;
    let library = library(arm).ok_or_else(|| format!("expected the name of an arm, found {arm}"))?;
    let work = find(work).ok_or_else(|| format!("expected the name of a work, found {work}"))?;
    let number = parse_number(number)?;
    let data = work.op.data(number);
    let task = Task { op: work.op, number, data: &data, threads };
    let ready = (library.prepare)(&task).map_err(|reason| format!("{reason:?}"))?;
    drop(data);
    // The peak so far is that of making the inputs.
    fs::write("/proc/self/clear_refs", "5")?;
    for _ in 0..RUNS {
        ready.run()?;
    }
    println!("{}", status_bytes("VmHWM")?.saturating_sub(empty));
    Ok(())
}

/// A line of the system's report on this process.
fn status_bytes(name: &str) -> Result<u64, Fault> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| format!("expected {name} in /proc/self/status, found none"))? * 1024)
}
