//! Kernel load time from each cache tier.

use super::bars::{Bar, ROW, bars};
use super::figure::{Figure, Panel, Table, devices};
use super::number::{seconds, seconds_tick};
use super::svg::{Axis, WIDTH, drawing, x_axis};
use kiln_validate::Report;
use kiln_validate::report::Tier;
use maud::{Markup, html};

pub(super) fn figure(report: &Report) -> Figure {
    let tiers: Vec<&Tier> =
        report.plots.tiers.iter().filter(|tier| tier.seconds.is_finite() && tier.seconds > 0.0).collect();
    let panel = |device: &str| {
        let mut own: Vec<&Tier> = tiers.iter().copied().filter(|tier| tier.device == device).collect();
        own.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Panel { title: device.to_string(), drawing: draw(device, &own) }
    };
    Figure {
        id: "tiers",
        title: "Kernel cache tiers",
        caption: "Median time until a kernel can be launched, on a logarithmic axis.".to_string(),
        legend: Vec::new(),
        panels: devices(&tiers, |tier| tier.device.as_str()).into_iter().map(panel).collect(),
        table: Table {
            columns: &["device", "tier", "median, µs"], rows: report.plots.tiers.iter().map(row).collect()
        },
        claims: &["kernel-hit", "kernel-disk-hit"],
        device: None,
    }
}

fn row(tier: &Tier) -> Vec<String> {
    vec![tier.device.clone(), tier.tier.clone(), super::number::digits(tier.seconds * 1e6)]
}

fn draw(device: &str, tiers: &[&Tier]) -> Markup {
    let times = || tiers.iter().map(|tier| tier.seconds);
    // Starts at a power of ten below the shortest, so that its bar is visible too.
    let least = 10f64.powf(times().fold(f64::INFINITY, f64::min).log10().floor());
    let most = times().fold(0.0, f64::max) * 1.5;
    let axis = Axis::log("time to load a kernel", least, most, seconds_tick).within(least * (1.0 - 1e-9), most);
    let bar = |tier: &&Tier| Bar {
        name: tier.tier.clone(),
        value: seconds(tier.seconds),
        share: axis.share(tier.seconds),
        look: if tier.tier == "compiled" { "plain" } else { "accent" },
    };
    let rows: Vec<Bar> = tiers.iter().map(bar).collect();
    let named: Vec<String> = tiers.iter().map(|tier| format!("{} {}", tier.tier, seconds(tier.seconds))).collect();
    let bottom = rows.len() as f64 * ROW + 4.0;
    let label = format!("Time to load a kernel on {device}: {}", named.join(", "));
    drawing(bottom + 42.0, &label, &html! { (x_axis(&axis, [0.0, WIDTH], [0.0, bottom])) (bars(0.0, &rows)) })
}
