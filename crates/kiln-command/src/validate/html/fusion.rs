//! A chain of ops with and without fusion.

use super::bars::{Bar, ROW, bars};
use super::figure::{Figure, Panel, Table, devices};
use super::number::{bytes, digits, seconds};
use super::svg::{drawing, px};
use crate::terminal::count;
use kiln_validate::Report;
use kiln_validate::report::Fusion;
use maud::{Markup, html};

pub(super) fn figure(report: &Report) -> Figure {
    let forms = &report.plots.fusion;
    let panel = |device: &str| {
        let own: Vec<&Fusion> = forms.iter().filter(|form| form.device == device).collect();
        Panel { title: device.to_string(), drawing: draw(device, &own) }
    };
    Figure {
        id: "fusion",
        title: "Fusion",
        caption: "A chain of eight elementwise ops, unfused (one kernel per op) and as one fused kernel. Within each group, bars are relative to the \
                  longest."
            .to_string(),
        legend: Vec::new(),
        panels: devices(forms, |form| form.device.as_str()).into_iter().map(panel).collect(),
        table: Table {
            columns: &["device", "form", "launches", "bytes moved", "median, µs"],
            rows: forms.iter().map(row).collect(),
        },
        claims: &["fusion-launches", "fusion-bytes", "fusion-time"],
        device: None,
    }
}

fn row(form: &Fusion) -> Vec<String> {
    let Fusion { device, form, launches, bytes, seconds } = form;
    vec![device.clone(), form.clone(), launches.to_string(), bytes.to_string(), digits(seconds * 1e6)]
}

/// A metric: its name, value and formatted value.
type Measure = (&'static str, fn(&Fusion) -> f64, fn(&Fusion) -> String);

const MEASURES: [Measure; 3] = [
    ("Launches", |form| form.launches as f64, |form| count(form.launches, "kernel")),
    ("Bytes moved", |form| form.bytes as f64, |form| bytes(form.bytes)),
    ("Time", |form| form.seconds, |form| seconds(form.seconds)),
];

/// Height of the name of a group.
const HEAD: f64 = 22.0;

fn draw(device: &str, forms: &[&Fusion]) -> Markup {
    let group = HEAD + forms.len() as f64 * ROW + 8.0;
    let rows = |(_, number, text): &Measure| -> Vec<Bar> {
        let most = forms.iter().map(|form| number(form)).fold(0.0, f64::max);
        let share = |number: f64| if number.is_finite() && most > 0.0 { number / most } else { 0.0 };
        let bar = |form: &&Fusion| Bar {
            name: form.form.clone(),
            value: text(form),
            share: share(number(form)),
            look: if form.form == "fused" { "accent" } else { "plain" },
        };
        forms.iter().rev().map(bar).collect()
    };
    let summary = |form: &&Fusion| {
        let numbers = MEASURES.map(|(_, _, text)| text(form)).join(", ");
        format!("{}: {numbers}", form.form)
    };
    let label = format!("Chain of eight ops on {device}. {}", forms.iter().map(summary).collect::<Vec<_>>().join("; "));
    let body = html! {
        @for (index, measure) in MEASURES.iter().enumerate() {
            @let top = index as f64 * group;
            text.title x="0" y=(px(top + 12.0)) { (measure.0) }
            (bars(top + HEAD, &rows(measure)))
        }
    };
    drawing(MEASURES.len() as f64 * group, &label, &body)
}
