//! Kernels on the roofline plot.

use super::figure::{Figure, Panel, Table, devices};
use super::number::{digits, rate, rate_tick, tick};
use super::svg::{Axis, Frame, WIDTH, px};
use kiln_validate::Report;
use kiln_validate::report::{DeviceRoofline, Outcome, RooflinePoint, Status};
use maud::{Markup, html};

pub(super) fn figure(report: &Report) -> Figure {
    let points: Vec<&RooflinePoint> = report.plots.roofline.iter().filter(|point| is_drawable(point)).collect();
    let panel = |device: &str| {
        let roof = report.limits.devices.iter().find(|roof| roof.device == device && has_roof(roof))?;
        let own: Vec<&RooflinePoint> = points.iter().copied().filter(|point| point.device == device).collect();
        Some(Panel { title: device.to_string(), drawing: draw(roof, &own, &report.claims) })
    };
    Figure {
        id: "roofline",
        title: "Roofline",
        caption: "Left of the ridge point a kernel is bound by memory bandwidth, right of it by peak FLOP/s. A dotted line connects each kernel with its \
                  own limit, which accounts for caches: shorter is better."
            .to_string(),
        legend: vec![
            ("roof", "measured roofline".to_string()),
            ("dot", "kernel".to_string()),
            ("open", "kernel whose claim failed or is not shown".to_string()),
            ("limit", "limit of a kernel".to_string()),
        ],
        panels: devices(&points, |point| point.device.as_str()).into_iter().filter_map(panel).collect(),
        table: Table {
            columns: &["device", "claim", "FLOP/byte", "GFLOP/s", "limit, GFLOP/s"],
            rows: report.plots.roofline.iter().map(row).collect(),
        },
        claims: &["elementwise", "reduction", "activation", "matmul"],
        device: None,
    }
}

fn row(point: &RooflinePoint) -> Vec<String> {
    let RooflinePoint { id, device, flops_per_byte, flops_per_s, limit_flops_per_s } = point;
    let giga = |rate: f64| digits(rate / 1e9);
    vec![device.clone(), id.clone(), digits(*flops_per_byte), giga(*flops_per_s), giga(*limit_flops_per_s)]
}

/// Returns whether a point is positive and finite, as logarithmic axes require.
fn is_drawable(point: &RooflinePoint) -> bool {
    [point.flops_per_byte, point.flops_per_s].iter().all(|number| number.is_finite() && *number > 0.0)
}

fn has_roof(roof: &DeviceRoofline) -> bool {
    [roof.peak_flops_per_s, roof.copy_bytes_per_s].iter().all(|number| number.is_finite() && *number > 0.0)
}

fn is_shown(point: &RooflinePoint, claims: &[Outcome]) -> bool {
    let of_point = |claim: &&Outcome| claim.id == point.id && claim.device == point.device;
    claims.iter().find(of_point).is_some_and(|claim| claim.status == Status::Shown)
}

fn draw(roof: &DeviceRoofline, points: &[&RooflinePoint], claims: &[Outcome]) -> Markup {
    let (peak, copy) = (roof.peak_flops_per_s, roof.copy_bytes_per_s);
    let ridge = peak / copy;
    let least = |of: fn(&RooflinePoint) -> f64, start: f64| points.iter().map(|point| of(point)).fold(start, f64::min);
    let most = |of: fn(&RooflinePoint) -> f64, start: f64| points.iter().map(|point| of(point)).fold(start, f64::max);
    let x = Axis::log(
        "arithmetic intensity, FLOP/byte",
        least(|p| p.flops_per_byte, ridge / 4.0),
        most(|p| p.flops_per_byte, ridge * 4.0),
        tick,
    );
    let lowest = least(|p| p.flops_per_s, copy * x.from);
    let y = Axis::log("FLOP/s", lowest, most(|p| p.flops_per_s, peak * 1.3), rate_tick);
    let frame = Frame { x, y };
    let (left, right) = (frame.x.from, frame.x.to);
    let roof_line = frame.line([(left, copy * left), (ridge, peak), (right, peak)].into_iter());
    let named: Vec<String> =
        points.iter().map(|point| format!("{} at {}FLOP/s", point.id, rate(point.flops_per_s))).collect();
    let label = format!(
        "Roofline of {}: bandwidth {}B/s, peak {}FLOP/s; {}",
        roof.device,
        rate(copy),
        rate(peak),
        named.join(", ")
    );
    let body = html! {
        path.roof d=(roof_line) {}
        (slope(&frame, copy, ridge))
        text.note.end x=(px(frame.x(right))) y=(px(frame.y(peak) - 6.0)) { "peak " (rate(peak)) "FLOP/s" }
        @for point in points { (mark(&frame, point, is_shown(point, claims))) }
        (labels(&frame, points))
    };
    frame.draw(&label, &body)
}

/// Labels the memory slope at its upper end, because cached kernels may lie above the lower end.
fn slope(frame: &Frame, copy: f64, ridge: f64) -> Markup {
    let at = ridge * 0.6;
    html! {
        text.note.end x=(px(frame.x(at) - 8.0)) y=(px(frame.y(copy * at))) dy="0.32em" { "copy " (rate(copy)) "B/s" }
    }
}

fn mark(frame: &Frame, point: &RooflinePoint, is_shown: bool) -> Markup {
    let (x, y) = (frame.x(point.flops_per_byte), frame.y(point.flops_per_s));
    let limit = point.limit_flops_per_s;
    html! {
        @if limit.is_finite() && limit > 0.0 {
            @let top = px(frame.y(limit));
            line.stem x1=(px(x)) x2=(px(x)) y1=(px(y)) y2=(top) {}
            line.limit x1=(px(x - 6.0)) x2=(px(x + 6.0)) y1=(top) y2=(top) {}
        }
        circle.dot.open[!is_shown] cx=(px(x)) cy=(px(y)) r="4" {}
    }
}

/// A rectangle: left, right, top, bottom.
type Rect = [f64; 4];

/// Labels each kernel on the first free side of its dot.
fn labels(frame: &Frame, points: &[&RooflinePoint]) -> Markup {
    // Greedy placement: each label takes the first of three positions that covers neither a point nor an earlier
    // label.
    let mut taken: Vec<Rect> = points
        .iter()
        .map(|point| (frame.x(point.flops_per_byte), frame.y(point.flops_per_s)))
        .map(|(x, y)| [x - 5.0, x + 5.0, y - 5.0, y + 5.0])
        .collect();
    let mut choose = |point: &&RooflinePoint| {
        let (x, y) = (frame.x(point.flops_per_byte), frame.y(point.flops_per_s));
        // The width of letters on a phone, where they are larger.
        let width = point.id.chars().count() as f64 * 7.0;
        let right = (x + 8.0, "start", [x + 8.0, x + 8.0 + width, y - 7.0, y + 7.0]);
        let left = (x - 8.0, "end", [x - 8.0 - width, x - 8.0, y - 7.0, y + 7.0]);
        let below = (x, "middle", [x - width / 2.0, x + width / 2.0, y + 7.0, y + 21.0]);
        let is_free = |rect: &Rect| {
            let apart =
                |other: &Rect| rect[1] <= other[0] || other[1] <= rect[0] || rect[3] <= other[2] || other[3] <= rect[2];
            rect[0] >= frame.x(frame.x.from) && rect[1] <= WIDTH && taken.iter().all(apart)
        };
        let chosen = [right, left, below].into_iter().find(|(.., rect)| is_free(rect)).unwrap_or(below);
        taken.push(chosen.2);
        chosen
    };
    html! {
        @for point in points {
            @let (x, side, [_, _, top, bottom]) = choose(point);
            text.name.(side) x=(px(x)) y=(px((top + bottom) / 2.0)) dy="0.32em" { (point.id) }
        }
    }
}
