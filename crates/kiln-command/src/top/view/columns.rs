//! Tables with declared columns: title, width, text, tone.

use super::{Palette, Tone};
use crate::top::units::shorten;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table};

pub(super) struct Column<T> {
    pub(super) title: &'static str,
    pub(super) width: Width,
    /// Minimum screen width that shows it.
    pub(super) from: u16,
    pub(super) text: fn(&T) -> String,
    pub(super) tone: fn(&T) -> Tone,
}

#[derive(Clone, Copy)]
pub(super) enum Width {
    /// Fixed width in cells, right-aligned.
    Number(u16),
    /// Fixed width in cells, left-aligned.
    Words(u16),
    /// A share of the remaining width.
    Fill(u16),
}

/// The visible rows and their total number.
pub(super) struct Viewport {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) total: usize,
}

impl Viewport {
    /// Clamps the scroll position to the end.
    pub(super) fn new(total: usize, rows: usize, scroll: usize) -> Self {
        Self { first: scroll.min(total.saturating_sub(rows)), rows, total }
    }
}

pub(super) fn plain<T>(title: &'static str, width: Width, from: u16, text: fn(&T) -> String) -> Column<T> {
    Column { title, width, from, text, tone: |_| Tone::Plain }
}

/// Draws the rows from `scroll` on that fit, below the titles.
pub(super) fn table<T>(
    rows: &[T],
    columns: &[Column<T>],
    palette: Palette,
    scroll: usize,
    frame: &mut Frame<'_>,
    area: Rect,
) -> Viewport {
    let columns: Vec<&Column<T>> = columns.iter().filter(|column| column.from <= area.width).collect();
    let viewport = Viewport::new(rows.len(), usize::from(area.height.saturating_sub(1)), scroll);
    // One cell of margin on each side.
    let inside = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let widths: Vec<Constraint> = columns.iter().map(|column| column.width.constraint()).collect();
    let places = Layout::horizontal(&widths).spacing(1).split(inside);
    let columns = || columns.iter().zip(places.iter().map(|place| usize::from(place.width)));
    let titles = columns().map(|(column, width)| column.width.place(column.title, width, palette, Tone::Dim));
    let shown = rows.iter().skip(viewport.first).take(viewport.rows);
    let cells = shown.map(|row| {
        Row::new(
            columns()
                .map(|(column, width)| column.width.place(&(column.text)(row), width, palette, (column.tone)(row))),
        )
    });
    let table = Table::new(cells, &widths).header(Row::new(titles)).column_spacing(1);
    frame.render_widget(table, inside);
    viewport
}

/// Formats a fraction as a bar.
pub(super) fn bar(share: Option<f64>, width: usize) -> String {
    let full = (share.unwrap_or(0.0).clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(full) + &"·".repeat(width - full)
}

impl Width {
    fn constraint(self) -> Constraint {
        match self {
            Self::Number(cells) | Self::Words(cells) => Constraint::Length(cells),
            Self::Fill(share) => Constraint::Fill(share),
        }
    }

    /// Fits the text into this many cells, with an ellipsis if it is truncated.
    fn place(self, text: &str, width: usize, palette: Palette, tone: Tone) -> Line<'static> {
        let line = Line::from(Span::styled(shorten(text, width), palette.style(tone)));
        if matches!(self, Self::Number(_)) { line.right_aligned() } else { line }
    }
}
