//! Shared drawing code: axes and the plot area.
//!
//! Written by hand because plotting crates fix colours and text sizes when a plot is drawn. Here the style sheet sets both, which
//! knows the width of the plot and whether the page is dark.

use super::number::tick;
use maud::{Markup, html};

/// Width of a plot in its own units, which the browser scales.
pub(super) const WIDTH: f64 = 380.0;
/// Margins of the plot area for ticks and axis titles.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 42.0;
const HEIGHT: f64 = 252.0;

pub(super) struct Axis {
    title: String,
    is_log: bool,
    pub(super) from: f64,
    pub(super) to: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates an axis with round numbers at both ends and some between them.
    pub(super) fn linear(title: impl Into<String>, from: f64, to: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        let rough = (to - from) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        // The smallest round step that divides the range into at most five intervals, before its ends are rounded.
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        // The epsilon keeps a bound that is a multiple of the step, up to rounding, from adding one more step.
        let (first, last) = ((from / step + 1e-9).floor() as i64, (to / step - 1e-9).ceil() as i64);
        let ticks: Vec<(f64, String)> =
            (first..=last).map(|at| at as f64 * step).map(|value| (value, tick(value))).collect();
        Self { title: title.into(), is_log: false, from: first as f64 * step, to: last as f64 * step, ticks }
    }

    /// Creates a logarithmic axis with margins and ticks at powers of ten, or more ticks if there would be only one.
    pub(super) fn log(title: impl Into<String>, from: f64, to: f64, label: impl Fn(f64) -> String) -> Self {
        let (from, to) = (from / 1.6, to.max(from) * 1.6);
        let powers = || from.log10().ceil() as i32..=to.log10().floor() as i32;
        // A range within one decade has at most one power of ten, too few ticks to read a value.
        let steps: &[f64] = if powers().count() < 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = from.log10().floor() as i32..=to.log10().floor() as i32;
        let values = decades.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let every = powers().count().div_ceil(7).max(1);
        let inside = values.filter(|value| (from..=to).contains(value)).step_by(every);
        Self { title: title.into(), is_log: true, from, to, ticks: inside.map(|value| (value, label(value))).collect() }
    }

    /// Replaces the ticks.
    pub(super) fn ticks(mut self, ticks: impl Iterator<Item = (f64, String)>) -> Self {
        self.ticks = ticks.collect();
        self
    }

    /// Sets exact ends, and removes the ticks beyond them.
    pub(super) fn within(mut self, from: f64, to: f64) -> Self {
        if to > from {
            (self.from, self.to) = (from, to);
            self.ticks.retain(|(value, _)| (from..=to).contains(value));
        }
        self
    }

    /// Returns the position of a number on the axis, from 0 to 1, clamped to the ends.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0)
    }
}

pub(super) struct Frame {
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Frame {
    /// Returns the horizontal position of a number.
    pub(super) fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    /// Returns the vertical position of a number.
    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - BOTTOM - TOP)
    }

    /// Returns a polyline through points, as the `d` attribute of a path.
    pub(super) fn line(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let at = |(index, (x, y)): (usize, (f64, f64))| {
            format!("{}{:.1} {:.1}", if index == 0 { "M" } else { "L" }, self.x(x), self.y(y))
        };
        points.enumerate().map(at).collect()
    }

    /// Draws the whole plot. `label` is its accessible name.
    pub(super) fn draw(&self, label: &str, body: &Markup) -> Markup {
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
        let axes = html! {
            @for (value, text) in &self.y.ticks {
                @let y = px(self.y(*value));
                line.grid x1=(left) x2=(right) y1=(y) y2=(y) {}
                text.tick.end x=(left - 6.0) y=(y) dy="0.32em" { (text) }
            }
            text.title x="0" y=(top - 14.0) { (self.y.title) }
            (x_axis(&self.x, [left, right], [top, bottom]))
        };
        drawing(HEIGHT, label, &html! { (axes) (body) })
    }
}

/// Draws a horizontal axis below an area between two heights.
pub(super) fn x_axis(axis: &Axis, [left, right]: [f64; 2], [top, bottom]: [f64; 2]) -> Markup {
    html! {
        @for (value, text) in &axis.ticks {
            @let x = left + axis.share(*value) * (right - left);
            line.grid x1=(px(x)) x2=(px(x)) y1=(top) y2=(bottom) {}
            text.tick.(side(x)) x=(px(x)) y=(bottom + 15.0) { (text) }
        }
        line.base x1=(left) x2=(right) y1=(bottom) y2=(bottom) {}
        text.title.end x=(right) y=(bottom + 34.0) { (axis.title) }
    }
}

/// Returns the text anchor that keeps labels at the ends of an axis inside the plot.
fn side(x: f64) -> &'static str {
    match x {
        x if x < 16.0 => "start",
        x if x > WIDTH - 10.0 => "end",
        _ => "middle",
    }
}

/// Creates a plot of this height in its own units.
pub(super) fn drawing(height: f64, label: &str, body: &Markup) -> Markup {
    html! { svg.plot viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(label) { (body) } }
}

pub(super) fn px(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_few_and_numbers_stay_inside() {
        assert_eq!(labels(&Axis::linear("", 0.0, 97.0)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Axis::linear("", 0.9, 1.3)), ["0.9", "1", "1.1", "1.2", "1.3"]);
        assert_eq!(labels(&Axis::linear("", 0.0, 0.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&Axis::log("", 0.08, 50.0, tick)), ["0.1", "1", "10"]);
        assert_eq!(labels(&Axis::log("", 3.0, 6.0, tick)), ["2", "5"]);
        assert!(labels(&Axis::log("", 1e-9, 1e9, tick)).len() <= 8);
        let axis = Axis::log("", 1.0, 100.0, tick);
        assert!((axis.share(10.0) - 0.5).abs() < 1e-9);
        assert_eq!([axis.share(0.0), axis.share(1e9)], [0.0, 1.0]);
    }
}
