//! The head of the report: the number of claims shown, the device and the date.

use super::number::{digits, moment, percent, seconds};
use super::status::{class, shape};
use crate::terminal::count;
use kiln_validate::Report;
use kiln_validate::baseline::Regression;
use kiln_validate::report::{Machine, Status, ValidatedDevice};
use maud::{Markup, html};

pub(super) fn head(report: &Report, regressions: &[Regression], is_debug: bool) -> Markup {
    let summary = report.summary;
    let counts =
        [(Status::Shown, summary.shown), (Status::Failed, summary.failed), (Status::NotShown, summary.not_shown)];
    let all: usize = counts.iter().map(|(_, number)| number).sum();
    html! {
        header {
            p.overline { "Kiln " (report.version) " · validation" @if report.quick { " · quick" } }
            h1 { (summary.shown) " of " (count(all as u64, "claim")) " shown" }
            div.tally aria-hidden="true" {
                @for (status, number) in counts {
                    @if number > 0 { span.(class(status)) style={ "flex-grow:" (number) } {} }
                }
            }
            ul.counts {
                @for (status, number) in counts { li.(class(status)) { (shape(status)) b { (number) } " " (status.name()) } }
            }
            @if is_debug { p.warning { "This is a debug build: the times are not representative." } }
            @if !regressions.is_empty() { (worse(regressions)) }
            (facts(report))
        }
    }
}

fn worse(regressions: &[Regression]) -> Markup {
    html! {
        section.warning {
            h2 { "Regressions against the baseline" }
            ul {
                @for found in regressions { li { b { (found.id) " on " (found.device) } ": " (found.reason) } }
            }
        }
    }
}

fn facts(report: &Report) -> Markup {
    let Machine { system, architecture, processor, threads, simd, devices, noise } = &report.machine;
    let processor = processor.as_deref().unwrap_or("unknown processor");
    let facts = [
        ("Machine", html! { (processor) ", " (count(*threads as u64, "thread")) ", " (simd) }),
        ("System", html! { (system) " " (architecture) }),
        ("Devices", html! { @for known in devices { span.device { (device(known)) } } }),
        (
            "Noise",
            html! { (noise.verdict) ": interquartile range " (percent(noise.spread)) " of the median, slowest run " (digits(noise.worst)) " times the median" },
        ),
        ("Started", html! { (moment(report.began_unix_s)) " UTC, took " (seconds(report.took_s)) }),
    ];
    html! { dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } } }
}

fn device(known: &ValidatedDevice) -> String {
    let driver = known.driver.as_deref().map_or_else(String::new, |driver| format!(", {driver}"));
    let software = if known.is_software { ", a software GPU" } else { "" };
    format!("{}: {}{driver}{software}", known.id, known.name)
}
