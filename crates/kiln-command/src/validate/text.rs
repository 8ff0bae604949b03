//! The score card for a terminal. Written with colours, which `anstream` removes if unsupported.

use super::Found;
use super::history::Trend;
use crate::terminal::{count, digits, plain, seconds, styled, table_of};
use clap::builder::styling::{AnsiColor, Style};
use kiln_validate::Claim;
use kiln_validate::report::{Machine, MachineLimits, Outcome, Report, Status};

pub(super) fn render(found: &Found<'_>) -> String {
    let report = found.report;
    let mut out = head(report);
    for device in &report.machine.devices {
        let kind = if device.is_software { ", a software GPU: runs on the processor" } else { "" };
        out +=
            &format!("\n{}\n", styled(Style::new().bold(), &format!("{}: {}{kind}", device.id, plain(&device.name))));
        let claims: Vec<&Outcome> = report.claims.iter().filter(|claim| claim.device == device.id).collect();
        out += &card(&claims);
    }
    out += &changed(found.trends);
    for regression in found.regressions {
        let line = format!("regression: {} on {}: {}\n", regression.id, regression.device, plain(&regression.reason));
        out += &styled(style(Status::Failed), &line);
    }
    out += &verdict(report);
    out
}

fn head(report: &Report) -> String {
    let Machine { system, architecture, processor, threads, simd, noise, .. } = &report.machine;
    let MachineLimits {
        peak_flops_per_s, read_bytes_per_s, copy_bytes_per_s, thread_start_s, timer_resolution_s, ..
    } = &report.limits;
    let processor = processor.as_deref().map_or_else(String::new, |name| format!("{}, ", plain(name)));
    let (spread, worst) = (noise.spread * 100.0, noise.worst);
    format!(
        "kiln {} on {system} {architecture}: {processor}{}, {simd}
limits: peak {:.1} GFLOP/s, read {:.1} GB/s, copy {:.1} GB/s, thread start {}, clock resolution {}
noise: {}; interquartile range {spread:.1} % of the median, slowest run {worst:.2} times the median
",
        report.version,
        count(*threads as u64, "thread"),
        peak_flops_per_s / 1e9,
        read_bytes_per_s / 1e9,
        copy_bytes_per_s / 1e9,
        seconds(*thread_start_s),
        seconds(*timer_resolution_s),
        noise.verdict,
    )
}

const HEAD: [&str; 6] = ["claim", "ratio", "target", "value", "spread", "compared with"];

/// Formats a line for each claim, with its reason below it.
fn card(claims: &[&Outcome]) -> String {
    let row = |claim: &&Outcome| {
        vec![
            claim.id.clone(),
            claim.ratio.map_or_else(|| "-".to_string(), digits),
            format!("≥ {}", digits(claim.target)),
            claim.value.map_or_else(|| "-".to_string(), |value| format!("{} {}", digits(value), claim.unit)),
            claim.spread.map_or_else(String::new, |spread| format!("±{:.0} %", spread * 50.0)),
            claim.comparison.clone(),
        ]
    };
    let lines = table_of(&HEAD, claims.iter().map(row));
    let mut lines = lines.lines();
    let head = format!("{:9}  {}", "status", lines.next().unwrap_or_default());
    let mut out = format!("  {}\n", styled(Style::new().dimmed(), &head));
    for (claim, line) in claims.iter().zip(lines) {
        let status = styled(style(claim.status), &format!("{:9}", claim.status.name()));
        out += &format!("  {status}  {line}\n");
        if !claim.reason.is_empty() {
            out += &format!("             {}\n", plain(&claim.reason));
        }
    }
    out
}

fn changed(trends: &[Trend]) -> String {
    let line = |trend: &Trend| {
        let Trend { id, device, before, now, runs } = trend;
        let runs = count(*runs as u64, "earlier run");
        format!("changed: {id} on {device}: {} now, {} in the median of {runs}\n", digits(*now), digits(*before))
    };
    let lines: String = trends.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn verdict(report: &Report) -> String {
    let summary = report.summary;
    let took = seconds(report.took_s);
    let debug = if cfg!(debug_assertions) { "This is a debug build: the times are not representative.\n" } else { "" };
    let of = summary.shown + summary.failed + summary.not_shown;
    format!(
        "\n{} of {} shown, {} failed, {} not shown, in {took}.\n{debug}",
        summary.shown,
        count(of as u64, "claim"),
        summary.failed,
        summary.not_shown
    )
}

pub(super) fn list(claims: &[&Claim]) -> String {
    let target = |target: Option<f64>| {
        target.map_or_else(|| "not applicable".to_string(), |target| format!("at least {}", digits(target)))
    };
    let claim = |claim: &&Claim| {
        let Claim { id, title, measures, comparison, target: targets, in_quick, .. } = *claim;
        let (id, quick) = (styled(Style::new().bold(), id), if *in_quick { "" } else { "; not with --quick" });
        let (cpu, gpu) = (target(targets.cpu), target(targets.gpu));
        format!(
            "{id}\n  {title}\n  measures:      {measures}\n  compared with: {comparison}\n  target:        cpu {cpu}, gpu {gpu}{quick}\n"
        )
    };
    claims.iter().map(claim).collect::<Vec<_>>().join("\n")
}

fn style(status: Status) -> Style {
    match status {
        Status::Shown => AnsiColor::Green.on_default(),
        Status::Failed => AnsiColor::Red.on_default().bold(),
        Status::NotShown => AnsiColor::Yellow.on_default(),
    }
}
