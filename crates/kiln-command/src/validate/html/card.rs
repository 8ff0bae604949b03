//! The score card: a table of claims for each device.

use super::figure::devices;
use super::number::{NONE, digits, percent, seconds, unbroken};
use super::status::{badge, class};
use super::svg::px;
use crate::terminal::count;
use kiln_validate::Report;
use kiln_validate::report::{Check, Outcome, Summary};
use maud::{Markup, html};

pub(super) fn card(report: &Report) -> Markup {
    html! {
        section id="claims" {
            h2 { "Claims" }
            p.lead {
                "A ratio says how many times as good Kiln is as what it is compared with, or which share of a limit it reaches. The bar is the \
                 ratio with its interval of 95 % confidence, between a quarter of the target and sixteen times it, in logarithms; the upright \
                 line is the target. An arrow means that the ratio lies beyond."
            }
            @for device in devices(&report.claims, |claim| claim.device.as_str()) { (group(report, device)) }
        }
    }
}

pub(super) fn anchor(device: &str, claim: &str) -> String {
    format!("{device}-{claim}")
}

fn group(report: &Report, device: &str) -> Markup {
    let claims: Vec<Outcome> = report.claims.iter().filter(|claim| claim.device == device).cloned().collect();
    let summary = Summary::of(&claims);
    let known = report.machine.devices.iter().find(|known| known.id == device);
    html! {
        div.card.claims {
            h3 {
                (device)
                @if let Some(known) = known { " " span.device { (known.name) } }
            }
            p.counts {
                (summary.shown) " of " (count(claims.len() as u64, "claim")) " shown, " (summary.failed) " failed, " (summary.not_shown) " not shown"
                @if known.is_some_and(|known| known.is_software) { ". This is a software GPU, which runs on the processor." }
            }
            table.claims {
                thead { tr { @for column in COLUMNS { th scope="col" { (column) } } } }
                tbody { @for claim in &claims { (row(claim)) } }
            }
        }
    }
}

const COLUMNS: [&str; 5] = ["Status", "Claim", "Ratio", "Measured", "Compared with"];

fn row(claim: &Outcome) -> Markup {
    let [status, _, ratio, measured, comparison] = COLUMNS;
    html! {
        tr id=(anchor(&claim.device, &claim.id)) {
            td data-label=(status) { (badge(claim.status)) }
            th scope="row" {
                span.sentence { (claim.title) }
                code { (claim.id) }
                @if !claim.reason.is_empty() { p.reason.(class(claim.status)) { (claim.reason) } }
                @if !claim.checks.is_empty() { (checks(&claim.checks)) }
            }
            td.ratio data-label=(ratio) {
                span.number { (claim.ratio.map_or_else(|| NONE.to_string(), digits)) }
                span.small { "at least " (digits(claim.target)) }
                (range(claim))
            }
            td data-label=(measured) { (self::measured(claim)) }
            td data-label=(comparison) { (claim.comparison) }
        }
    }
}

fn measured(claim: &Outcome) -> Markup {
    html! {
        @match claim.value {
            Some(value) => span.value { (digits(value)) " " (claim.unit) },
            None => span.value { (NONE) },
        }
        @if let Some(median) = claim.median {
            span.small {
                (seconds(median)) " per run"
                @if let Some(spread) = claim.spread { ", ±" (percent(spread / 2.0)) }
                ", " (unbroken(&count(claim.samples as u64, "sample")))
            }
        }
    }
}

fn checks(checks: &[Check]) -> Markup {
    let broken = checks.iter().filter(|check| !check.passed).count();
    let text = match (checks.len(), broken) {
        (1, 0) => "1 check passed".to_string(),
        (all, 0) => format!("{all} checks passed"),
        (all, broken) => format!("{broken} of {} failed", count(all as u64, "check")),
    };
    html! {
        details {
            summary.failed[broken > 0] { (text) }
            ul.checks {
                @for check in checks {
                    li.broken[!check.passed] { b { (if check.passed { "✓ " } else { "✗ " }) (check.name) } " " (check.detail) }
                }
            }
        }
    }
}

/// Ends of the range, as multiples of the target, and its size in pixels.
const MIN_SHARE: f64 = 0.25;
const MAX_SHARE: f64 = 16.0;
const LENGTH: f64 = 150.0;
const HEIGHT: f64 = 18.0;

/// Draws the ratio on a scale from a quarter to sixteen times the target.
fn range(claim: &Outcome) -> Markup {
    let Some(ratio) = claim.ratio.filter(|ratio| ratio.is_finite() && claim.target > 0.0) else { return html! {} };
    let at = |value: f64| {
        let share = (value / claim.target / MIN_SHARE).ln() / (MAX_SHARE / MIN_SHARE).ln();
        // A margin, so that a mark at an end is not cut off.
        4.0 + share.clamp(0.0, 1.0) * (LENGTH - 8.0)
    };
    let [low, high] = claim.interval.filter(|ends| ends.iter().all(|end| end.is_finite())).unwrap_or([ratio; 2]);
    let label =
        format!("{}, interval {} to {}, target {}", digits(ratio), digits(low), digits(high), digits(claim.target));
    let middle = HEIGHT / 2.0;
    let share = ratio / claim.target;
    html! {
        svg.range.(class(claim.status)) viewBox={ "0 0 " (LENGTH) " " (HEIGHT) } width=(LENGTH) height=(HEIGHT) role="img" aria-label=(label) {
            line.track x1="0" x2=(LENGTH) y1=(middle) y2=(middle) {}
            line.target x1=(px(at(claim.target))) x2=(px(at(claim.target))) y1="1" y2=(HEIGHT - 1.0) {}
            rect.interval x=(px(at(low))) y=(middle - 3.0) width=(px((at(high) - at(low)).max(1.0))) height="6" rx="2" {}
            @if share > MAX_SHARE {
                path.point d={ "M" (LENGTH - 9.0) " 3 L" (LENGTH) " " (middle) " L" (LENGTH - 9.0) " 15Z" } {}
            } @else if share < MIN_SHARE {
                path.point d={ "M9 3 L0 " (middle) " L9 15Z" } {}
            } @else {
                circle.point cx=(px(at(ratio))) cy=(middle) r="4" {}
            }
        }
    }
}
