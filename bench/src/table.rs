//! The table on the terminal.

use crate::line::{Line, Outcome};
use kiln_bench::Limits;

const PEERS: [&str; 4] = ["candle", "burn", "gemm", "rten"];

/// Prints the limits of the machine and the column headings.
pub(crate) fn print_head(limits: &mut Limits, single: &Limits) {
    let giga = 1e-9;
    println!(
        "FMA peak f32: {:.0} GFLOP/s on {} threads, {:.0} on one",
        limits.peak_flops() * giga,
        limits.threads(),
        single.peak_flops() * giga
    );
    for (name, bytes) in [("12 MB", 12e6), ("512 MB", 512e6)] {
        let found = kiln_bench::limits::Pattern::ALL
            .map(|pattern| format!("{} {:.0}", pattern.name(), limits.bandwidth(pattern, bytes) * giga));
        println!("GB/s over {name}: {}", found.join(", "));
    }
    println!(
        "\n{:<26} {:>4} {:>10} {:>10} {:>6} | {} | {:>6} {:>6} {:>6} {:>6}",
        "workload (ms; adds: per op)",
        "",
        "kiln",
        "min",
        "spread",
        PEERS.map(|peer| format!("{peer:>10}")).join(" "),
        "ratio",
        "by min",
        "roof",
        "target"
    );
}

pub(crate) fn print(line: &Line) {
    let per_op = 1e3 / line.ops_per_run as f64;
    let Some(kiln) = line.timing("kiln") else {
        return print_reasons(line);
    };
    let peer = |name: &str| {
        let time = line.timing(name).map(|timing| milliseconds(timing.median * per_op)).unwrap_or_default();
        time + mark(line, name)
    };
    let ratio = line.ratio(|timing| timing.median).map(|(_, ratio)| ratio);
    let by_minimum = line.ratio(|timing| timing.minimum).map(|(_, ratio)| ratio);
    let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.2}"));
    let reached = ratio.map_or("", |ratio| if ratio >= line.target { " yes" } else { " no" });
    println!(
        "{:<26} {:>4} {:>10} {:>10} {:>5.0}% | {} | {:>6} {:>6} {:>6} {:>6.1}{reached}",
        line.workload,
        line.dtype,
        milliseconds(kiln.median * per_op),
        milliseconds(kiln.minimum * per_op),
        kiln.spread * 100.0,
        PEERS.map(|name| format!("{:>10}", peer(name))).join(" "),
        number(ratio),
        number(by_minimum),
        line.share().map_or("-".to_string(), |share| format!("{:.0}%", share * 100.0)),
        line.target,
    );
    print_reasons(line);
}

/// Formats a time with four digits.
fn milliseconds(value: f64) -> String {
    let digits = (3 - value.log10().floor() as i32).clamp(0, 7) as usize;
    format!("{value:.digits$}")
}

fn mark(line: &Line, name: &str) -> &'static str {
    match line.arms.iter().find(|arm| arm.name == name).map(|arm| &arm.outcome) {
        Some(Outcome::Timed { is_rough: false, .. }) => "",
        Some(Outcome::Timed { is_rough: true, .. }) => "~",
        Some(Outcome::Wrong { .. }) => "wrong",
        Some(Outcome::Failed { .. }) => "failed",
        _ => "-",
    }
}

/// Prints the reasons of wrong outputs and failures.
fn print_reasons(line: &Line) {
    for arm in &line.arms {
        match &arm.outcome {
            Outcome::Wrong { reason } => println!("    {} {} {}: wrong: {reason}", arm.name, line.workload, line.dtype),
            Outcome::Failed { reason } => {
                println!("    {} {} {}: failed: {reason}", arm.name, line.workload, line.dtype)
            }
            Outcome::Timed { .. } | Outcome::Skipped { .. } => {}
        }
    }
}
