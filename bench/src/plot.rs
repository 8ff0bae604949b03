//! Plots as SVG: ratios of all lines, matmul throughput by size, time per element by size.

use crate::arms::LIBRARIES;
use crate::line::Line;
use crate::report::Report;
use kiln_bench::{ElementType, Fault};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes the plots that the report has data for.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<(), Fault> {
    let ratios: Vec<_> =
        report.lines.iter().filter_map(|line| Some((line, line.ratio(|time| time.median)?.1))).collect();
    if !ratios.is_empty() {
        let height = 60 + 22 * ratios.len() as u32;
        on_page(&folder.join("ratios.svg"), (900, height), |area| draw_ratios(area, &ratios))?;
    }
    for dtype in ElementType::ALL {
        let squares: Vec<_> = report.lines.iter().filter(|line| is_square(line, dtype)).collect();
        if squares.len() > 1 {
            let path = folder.join(format!("matmul-{dtype}.svg"));
            on_page(&path, (800, 500), |area| draw_matmul(area, &squares, report.peak_flops()))?;
        }
        if report.growth.iter().any(|size| size.dtype == dtype) {
            let path = folder.join(format!("growth-{dtype}.svg"));
            on_page(&path, (800, 500), |area| draw_growth(area, report, dtype))?;
        }
    }
    Ok(())
}

fn is_square(line: &Line, dtype: ElementType) -> bool {
    line.dtype == dtype && line.workload.starts_with("matmul-")
}

fn on_page(path: &Path, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    Ok(area.present()?)
}

/// Draws a bar per line: the best peer's time divided by Kiln's, on a logarithmic scale.
fn draw_ratios(area: &Area<'_>, ratios: &[(&Line, f64)]) -> Result<(), Fault> {
    let high = ratios.iter().fold(2.0, |high: f64, (_, ratio)| high.max(*ratio)) * 1.3;
    let low = ratios.iter().fold(0.5, |low: f64, (_, ratio)| low.min(*ratio)) / 1.3;
    let count = ratios.len();
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption("best peer's time / Kiln's time (median); the tick is the target", ("sans-serif", 16))
        .x_label_area_size(24)
        .y_label_area_size(230)
        .build_cartesian_2d((low..high).log_scale(), 0..count)?;
    let name = |position: &usize| {
        let line = count.checked_sub(position + 1).and_then(|line| ratios.get(line));
        line.map_or(String::new(), |(line, _)| format!("{} {}", line.workload, line.dtype))
    };
    chart.configure_mesh().disable_y_mesh().y_labels(count).y_label_formatter(&name).y_label_offset(-10).draw()?;
    for (index, (line, ratio)) in ratios.iter().enumerate() {
        let place = count - 1 - index;
        let colour = if *ratio >= line.target { RGBColor(46, 125, 80) } else { RGBColor(190, 80, 60) };
        let mut bar = Rectangle::new([(1.0, place), (*ratio, place + 1)], colour.filled());
        bar.set_margin(4, 4, 0, 0);
        chart.draw_series([bar])?;
        chart
            .draw_series([PathElement::new([(line.target, place), (line.target, place + 1)], BLACK.stroke_width(2))])?;
    }
    Ok(())
}

/// Draws GFLOP/s by matrix size.
fn draw_matmul(area: &Area<'_>, squares: &[&Line], peak: f64) -> Result<(), Fault> {
    let side = |line: &Line| (line.flops / 2.0).cbrt();
    let sides = side(squares[0])..side(squares[squares.len() - 1]);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(format!("square matmul, {}: GFLOP/s by size", squares[0].dtype), ("sans-serif", 16))
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d((sides.start..sides.end).log_scale().base(2.0), 0.0..peak * 1.1e-9)?;
    chart.configure_mesh().x_label_formatter(&|side| format!("{side:.0}")).draw()?;
    let top = [(sides.start, peak * 1e-9), (sides.end, peak * 1e-9)];
    named(chart.draw_series(LineSeries::new(top, BLACK.stroke_width(1)))?, "FMA peak", BLACK);
    for (index, library) in LIBRARIES.iter().enumerate() {
        let at = |line: &&&Line| Some((side(line), line.flops / line.timing(library.name)?.median * 1e-9));
        let points: Vec<_> = squares.iter().filter_map(|line| at(&line)).collect();
        if !points.is_empty() {
            let colour = colour(index);
            named(chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?, library.name, colour);
        }
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerRight).background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}

/// Draws nanoseconds per element by number of elements, with the roofline as thin lines.
fn draw_growth(area: &Area<'_>, report: &Report, dtype: ElementType) -> Result<(), Fault> {
    let sizes: Vec<_> = report.growth.iter().filter(|size| size.dtype == dtype).collect();
    let ends = |values: Vec<f64>| {
        values.iter().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(*value), high.max(*value)))
    };
    let (fewest, high) = ends(sizes.iter().map(|size| size.elements as f64).collect());
    let (_, slowest) = ends(sizes.iter().map(|size| size.nanoseconds_per_element).collect());
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(format!("{dtype}: ns per element by number of elements (thin lines: roofline)"), ("sans-serif", 16))
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d((fewest..high).log_scale().base(2.0), 0.0..slowest * 1.1)?;
    chart.configure_mesh().x_label_formatter(&|count| format!("{:.0} K", count / 1024.0)).draw()?;
    let mut workloads: Vec<&str> = sizes.iter().map(|size| size.workload).collect();
    workloads.dedup();
    for (index, workload) in workloads.into_iter().enumerate() {
        let of_workload = || sizes.iter().filter(move |size| size.workload == workload);
        let points = of_workload().map(|size| (size.elements as f64, size.nanoseconds_per_element));
        let limit =
            of_workload().filter_map(|size| Some((size.elements as f64, size.roofline_nanoseconds_per_element?)));
        let colour = colour(index);
        named(chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?, workload, colour);
        chart.draw_series(LineSeries::new(limit, colour.mix(0.5)))?;
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}

fn named<'a, 'b>(series: &mut plotters::chart::SeriesAnno<'a, SVGBackend<'b>>, name: &str, colour: RGBColor) {
    series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
}

fn colour(index: usize) -> RGBColor {
    const COLOURS: [RGBColor; 5] = [
        RGBColor(200, 60, 40),
        RGBColor(40, 100, 180),
        RGBColor(60, 140, 80),
        RGBColor(150, 100, 180),
        RGBColor(200, 150, 40),
    ];
    COLOURS[index % COLOURS.len()]
}
