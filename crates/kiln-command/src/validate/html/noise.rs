//! Timing noise and limits of the machine.

use super::figure::{Figure, Panel, Table};
use super::number::{bytes, digits, fine, percent, rate, seconds};
use super::svg::{Axis, Frame, px};
use kiln_validate::Report;
use kiln_validate::report::Noise;
use maud::{Markup, html};

pub(super) fn figure(report: &Report) -> Figure {
    let noise = &report.machine.noise;
    let panel =
        Panel { title: format!("Timing noise of a fixed computation: {}", noise.verdict), drawing: draw(noise) };
    let runs = noise.runs.iter().enumerate().map(|(index, run)| vec![(index + 1).to_string(), fine(*run)]);
    Figure {
        id: "noise",
        title: "Noise and limits",
        caption: format!(
            "Each dot is one run of the same computation, in order; the line at 1 is the median. The interquartile range is {} of the median, and \
             the slowest run took {} times the median: the machine is {}. Limits were measured in the same run.",
            percent(noise.spread),
            digits(noise.worst),
            noise.verdict
        ),
        legend: Vec::new(),
        panels: vec![panel, limits(report)],
        table: Table { columns: &["run", "time / median"], rows: runs.collect() },
        claims: &[],
        device: None,
    }
}

/// Slower runs are drawn at the edge: a single run of sixty times the median would flatten all others.
const SLOWEST: f64 = 1.5;

fn draw(noise: &Noise) -> Markup {
    let runs = || noise.runs.iter().enumerate().filter(|(_, run)| run.is_finite());
    let (least, most) =
        (runs().map(|(_, run)| *run).fold(1.0, f64::min), runs().map(|(_, run)| *run).fold(1.0, f64::max));
    let frame = Frame {
        x: Axis::linear("run", 0.0, noise.runs.len() as f64).within(0.0, noise.runs.len() as f64),
        y: Axis::linear("time / median", least.min(0.95), most.clamp(1.05, SLOWEST)),
    };
    let middle = px(frame.y(1.0));
    let label = format!(
        "Noise: {} runs of the same computation take {} to {} times their median",
        noise.runs.len(),
        digits(least),
        digits(most)
    );
    let body = html! {
        line.roof x1=(px(frame.x(0.0))) x2=(px(frame.x(frame.x.to))) y1=(middle) y2=(middle) {}
        @for (index, run) in runs() {
            @let (x, y) = (frame.x(index as f64 + 1.0), frame.y(*run));
            @if *run > frame.y.to {
                path.beyond d={ "M" (px(x - 3.5)) " " (px(y + 2.0)) "h7l-3.5-6z" } {}
            } @else {
                circle.run cx=(px(x)) cy=(px(y)) r="1.8" {}
            }
        }
        @if most > frame.y.to {
            text.note.end x=(px(frame.x(frame.x.to))) y=(px(frame.y(frame.y.to) + 10.0)) dy="0.5em" { "triangles: off the scale, up to " (digits(most)) }
        }
    };
    frame.draw(&label, &body)
}

fn limits(report: &Report) -> Panel {
    let limits = &report.limits;
    let mut lines = vec![
        ("Peak FLOP/s".to_string(), format!("{}FLOP/s", rate(limits.peak_flops_per_s))),
        ("Memory read".to_string(), format!("{}B/s", rate(limits.read_bytes_per_s))),
        ("Memory copy".to_string(), format!("{}B/s", rate(limits.copy_bytes_per_s))),
    ];
    for found in &limits.bandwidths {
        let what = format!("{} of {}", found.pattern, bytes(found.footprint_bytes));
        lines.push((what, format!("{}B/s", rate(found.bytes_per_s))));
    }
    for roof in &limits.devices {
        let text = format!("{}FLOP/s, copy {}B/s", rate(roof.peak_flops_per_s), rate(roof.copy_bytes_per_s));
        lines.push((format!("Roofline of {}", roof.device), text));
    }
    lines.push(("Thread start".to_string(), seconds(limits.thread_start_s)));
    lines.push(("Clock resolution".to_string(), seconds(limits.timer_resolution_s)));
    let drawing = html! {
        dl.limits { @for (name, value) in &lines { div { dt { (name) } dd { (value) } } } }
    };
    Panel { title: "Measured limits".to_string(), drawing }
}
