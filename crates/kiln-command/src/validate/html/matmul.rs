//! Matmul throughput by size, compared with a library.

use super::figure::{Figure, Panel, Table, devices};
use super::number::digits;
use super::svg::{Axis, Frame, px};
use kiln_validate::Report;
use kiln_validate::report::MatmulPoint;
use maud::{Markup, html};

pub(super) fn figure(report: &Report) -> Figure {
    let points: Vec<&MatmulPoint> = report.plots.matmul.iter().filter(|point| is_drawable(point)).collect();
    let panel = |device: &str| {
        let mut own: Vec<&MatmulPoint> = points.iter().copied().filter(|point| point.device == device).collect();
        own.sort_by_key(|point| point.size);
        Panel { title: device.to_string(), drawing: draw(device, &own) }
    };
    let library = points.first().map_or_else(String::new, |point| point.library.clone());
    Figure {
        id: "products",
        title: "Matmul by size",
        caption: "Square matmuls in f32. Higher is faster. Both libraries were interleaved in the same run."
            .to_string(),
        legend: vec![("kiln", "Kiln".to_string()), ("other", library)],
        panels: devices(&points, |point| point.device.as_str()).into_iter().map(panel).collect(),
        table: Table {
            columns: &["device", "rows and columns", "Kiln, GFLOP/s", "library", "library, GFLOP/s"],
            rows: report.plots.matmul.iter().map(row).collect(),
        },
        claims: &["matmul-256", "matmul-512", "matmul-1024", "matmul-2048"],
        device: Some("cpu"),
    }
}

fn row(point: &MatmulPoint) -> Vec<String> {
    let MatmulPoint { device, size, kiln_flops_per_s, library, library_flops_per_s } = point;
    let giga = |rate: f64| digits(rate / 1e9);
    vec![device.clone(), size.to_string(), giga(*kiln_flops_per_s), library.clone(), giga(*library_flops_per_s)]
}

fn is_drawable(point: &MatmulPoint) -> bool {
    point.size > 0 && [point.kiln_flops_per_s, point.library_flops_per_s].iter().all(|rate| rate.is_finite())
}

fn draw(device: &str, points: &[&MatmulPoint]) -> Markup {
    let sizes = || points.iter().map(|point| point.size as f64);
    let most = points.iter().map(|point| point.kiln_flops_per_s.max(point.library_flops_per_s)).fold(0.0, f64::max);
    let x = Axis::log("rows and columns", sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max), |size| {
        size.to_string()
    });
    let x = x.ticks(points.iter().map(|point| (point.size as f64, point.size.to_string())));
    let frame = Frame { x, y: Axis::linear("GFLOP/s", 0.0, most / 1e9) };
    let kiln = || points.iter().map(|point| (point.size as f64, point.kiln_flops_per_s / 1e9));
    let library = || points.iter().map(|point| (point.size as f64, point.library_flops_per_s / 1e9));
    let at = |point: &&MatmulPoint| {
        let (kiln, library) = (digits(point.kiln_flops_per_s / 1e9), digits(point.library_flops_per_s / 1e9));
        format!("{kiln} compared with {library} of {} at {}", point.library, point.size)
    };
    let label = format!("Matmul on {device} in GFLOP/s: {}", points.iter().map(at).collect::<Vec<_>>().join(", "));
    let body = html! {
        path.other d=(frame.line(library())) {}
        @for (x, y) in library() {
            rect.square x=(px(frame.x(x) - 3.5)) y=(px(frame.y(y) - 3.5)) width="7" height="7" {}
        }
        path.kiln d=(frame.line(kiln())) {}
        @for (x, y) in kiln() { circle.dot cx=(px(frame.x(x))) cy=(px(frame.y(y))) r="4" {} }
    };
    frame.draw(&label, &body)
}
