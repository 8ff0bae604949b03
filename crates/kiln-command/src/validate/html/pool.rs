//! Pool usage while sizes change, and afterwards.

use super::figure::{Figure, Panel, Table, devices};
use super::number::{bytes, bytes_unit};
use super::svg::{Axis, Frame, px};
use kiln_validate::Report;
use kiln_validate::report::PoolPoint;
use maud::{Markup, html};

pub(super) fn figure(report: &Report) -> Figure {
    let points = &report.plots.pool;
    let panel = |device: &str| {
        let own: Vec<&PoolPoint> = points.iter().filter(|point| point.device == device).collect();
        Panel { title: device.to_string(), drawing: draw(device, &own) }
    };
    Figure {
        id: "pool",
        title: "Buffer pool over time",
        caption: "A workload whose sizes change at each step. Reserved memory stops growing once the pool has seen all sizes. The cleanup at the end \
                  releases everything that is not in use."
            .to_string(),
        legend: vec![("reserved", "reserved from the driver".to_string()), ("used", "in use".to_string())],
        panels: devices(points, |point| point.device.as_str()).into_iter().map(panel).collect(),
        table: Table {
            columns: &["device", "step", "in use, bytes", "reserved, bytes"],
            rows: points.iter().map(row).collect(),
        },
        claims: &["memory-plateau"],
        device: None,
    }
}

fn row(point: &PoolPoint) -> Vec<String> {
    let PoolPoint { device, step, in_use_bytes, reserved_bytes } = point;
    vec![device.clone(), step.to_string(), in_use_bytes.to_string(), reserved_bytes.to_string()]
}

type Held = fn(&PoolPoint) -> u64;

/// Draws the usage. The last point is after the cleanup.
fn draw(device: &str, points: &[&PoolPoint]) -> Markup {
    let most = points.iter().map(|point| point.in_use_bytes.max(point.reserved_bytes)).max().unwrap_or(0);
    let (unit, name) = bytes_unit(most);
    let steps = || points.iter().map(|point| point.step as f64);
    let (first, last) = (steps().fold(f64::INFINITY, f64::min), steps().fold(0.0, f64::max));
    let frame =
        // Some room above for the note about the cleanup.
        Frame { x: Axis::linear("step", first, last).within(first, last), y: Axis::linear(name, 0.0, most as f64 / unit * 1.12) };
    let line = |held: Held| frame.line(stairs(points, held, unit).into_iter());
    let area = |held: Held| format!("{}V{:.1}H{:.1}Z", line(held), frame.y(0.0), frame.x(first));
    let (used, reserved): (Held, Held) = (|point| point.in_use_bytes, |point| point.reserved_bytes);
    let end = points.last().map_or((0, 0), |point| (point.reserved_bytes, point.in_use_bytes));
    let label = format!(
        "Pool of {device} over {} steps: peak {} reserved, {} after the cleanup, {} of them in use",
        points.len().saturating_sub(1),
        bytes(points.iter().map(|point| point.reserved_bytes).max().unwrap_or(0)),
        bytes(end.0),
        bytes(end.1),
    );
    let body = html! {
        path.reserved.area d=(area(reserved)) {}
        path.used.area d=(area(used)) {}
        path.reserved d=(line(reserved)) {}
        path.used d=(line(used)) {}
        @if points.len() > 1 {
            @let x = px(frame.x(last));
            line.moment x1=(x) x2=(x) y1=(px(frame.y(frame.y.to))) y2=(px(frame.y(0.0))) {}
            circle.end cx=(x) cy=(px(frame.y(end.0 as f64 / unit))) r="3.5" {}
            text.note.end x=(px(frame.x(last) - 6.0)) y=(px(frame.y(frame.y.to) + 4.0)) dy="0.5em" { "cleanup: " (bytes(end.0)) " left" }
        }
    };
    frame.draw(&label, &body)
}

/// Returns the corners of a step function: usage is constant until the next step.
fn stairs(points: &[&PoolPoint], held: Held, unit: f64) -> Vec<(f64, f64)> {
    let at = |point: &PoolPoint| held(point) as f64 / unit;
    let corners = points.windows(2).map(|pair| (pair[1].step as f64, at(pair[0])));
    let points = points.iter().map(|point| (point.step as f64, at(point)));
    let mut corners = corners.collect::<Vec<_>>().into_iter();
    points.flat_map(|point| [Some(point), corners.next()]).flatten().collect()
}
