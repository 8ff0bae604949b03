//! Line plots as text and as SVG.

use std::fmt::Write as _;
use std::path::Path;

/// Three lines over the same steps.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    /// Steps with their labels.
    pub(crate) x_ticks: Vec<(usize, String)>,
    /// Later lines are drawn over earlier ones.
    pub(crate) series: [Series<'a>; 3],
}

pub(crate) struct Series<'a> {
    pub(crate) name: &'static str,
    /// The character in the text plot.
    pub(crate) mark: char,
    pub(crate) line: &'a [f64],
}

const COLUMNS: usize = 72;
const ROWS: usize = 16;

/// The drawing area and its margins, in pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 72.0;
const TOP: f64 = 48.0;
/// The maximum number of points of a line; more would not be visible.
const POINTS: usize = 640;

/// The colours have enough contrast on white and near-black and can be distinguished by the colour-blind; dashes and
/// the legend distinguish the lines without colour.
const STYLE: &str = "text{font:13px sans-serif;fill:#222}.title{font-size:16px}.bg{fill:#fff}.grid{stroke:#ccc}\
.s{fill:none;stroke-width:2}.s0{stroke:#b5490f;stroke-dasharray:7 4}.s1{stroke:#1668b0}.s2{stroke:#52811c;stroke-dasharray:2 3}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.bg{fill:#16181c}.grid{stroke:#444}.s0{stroke:#f08a4b}.s1{stroke:#5fb0f5}\
.s2{stroke:#9cd05f}}";

impl Plot<'_> {
    /// Renders the plot for a terminal.
    pub(crate) fn text(&self) -> String {
        let top = self.top();
        let mut grid = vec![' '; COLUMNS * ROWS];
        for series in &self.series {
            for column in 0..COLUMNS {
                let value = peak(series.line, column, COLUMNS);
                let row = ((value / top) * ROWS as f64).ceil() as usize;
                grid[(ROWS - row.clamp(1, ROWS)) * COLUMNS + column] = series.mark;
            }
        }
        let mut text = String::new();
        for (row, cells) in grid.chunks(COLUMNS).enumerate() {
            let label = match row % 4 {
                0 => format!("{:.0}", top * (ROWS - row) as f64 / ROWS as f64),
                _ => String::new(),
            };
            let line: String = cells.iter().collect();
            let _ = writeln!(text, "  {label:>6} |{}", line.trim_end());
        }
        let _ = writeln!(text, "  {:>6} +{}", self.y_label, "-".repeat(COLUMNS));
        let ticks: Vec<&str> = self.x_ticks.iter().map(|(_, label)| label.as_str()).collect();
        let _ = writeln!(text, "  {}: {}", self.x_label, ticks.join(", "));
        for series in &self.series {
            let _ = writeln!(text, "  {} {}", series.mark, series.name);
        }
        text
    }

    /// Writes the plot as SVG, creating the directory if needed.
    pub(crate) fn write_svg(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, self.svg())
    }

    fn svg(&self) -> String {
        let (right, bottom, steps) = (LEFT + WIDTH, TOP + HEIGHT, self.series[0].line.len());
        let top = self.top();
        let x = |step: usize| LEFT + WIDTH * step as f64 / (steps - 1).max(1) as f64;
        let y = |value: f64| bottom - HEIGHT * value / top;
        let (width, height) = (right + 60.0, bottom + 128.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"26\">{}</text>\n",
            self.title, self.title
        );
        for quarter in 0..=4 {
            let value = top * f64::from(quarter) / 4.0;
            let at = y(value);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>");
            let unit = if quarter == 4 { self.y_label } else { "" };
            let (end, base) = (LEFT - 8.0, at + 4.0);
            let _ = writeln!(svg, "<text x=\"{end}\" y=\"{base:.1}\" text-anchor=\"end\">{value:.0} {unit}</text>");
        }
        for (step, label) in &self.x_ticks {
            let (at, end, base) = (x(*step), bottom + 6.0, bottom + 22.0);
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{end}\"/>");
            let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{base}\" text-anchor=\"middle\">{label}</text>");
        }
        let (middle, base) = (LEFT + WIDTH / 2.0, bottom + 42.0);
        let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{base}\" text-anchor=\"middle\">{}</text>", self.x_label);
        for (number, series) in self.series.iter().enumerate() {
            let points: Vec<String> = (0..POINTS.min(steps))
                .map(|point| {
                    let step = point * (steps - 1) / (POINTS.min(steps) - 1).max(1);
                    format!("{:.1},{:.1}", x(step), y(peak(series.line, point, POINTS.min(steps))))
                })
                .collect();
            let _ = writeln!(svg, "<polyline class=\"s s{number}\" points=\"{}\"/>", points.join(" "));
            let (from, at) = (LEFT + 8.0, bottom + 64.0 + 20.0 * number as f64);
            let _ = writeln!(svg, "<path class=\"s s{number}\" d=\"M{from} {at}h40\"/>");
            let (text, base) = (from + 52.0, at + 4.0);
            let _ = writeln!(svg, "<text x=\"{text}\" y=\"{base}\">{}</text>", series.name);
        }
        svg + "</svg>\n"
    }

    /// Returns the upper end of the vertical axis: a round number above all values.
    fn top(&self) -> f64 {
        let most = self.series.iter().flat_map(|series| series.line).copied().fold(1.0, f64::max);
        let step = 10f64.powf(most.log10().floor()) / 2.5;
        (most / step).ceil() * step
    }
}

/// Returns the maximum of one of `parts` equal parts of a line, so that no short peak is omitted.
fn peak(line: &[f64], part: usize, parts: usize) -> f64 {
    let (from, to) = (line.len() * part / parts, line.len() * (part + 1) / parts);
    line[from..to.max(from + 1)].iter().copied().fold(0.0, f64::max)
}
