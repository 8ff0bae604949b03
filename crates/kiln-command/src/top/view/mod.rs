//! Draws the screen: a pure function of the state and the screen size.

mod columns;
mod palette;
mod panes;
mod pools;

pub(super) use palette::{Palette, Tone};

use super::state::{Pane, State};
use super::units::shorten;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};
use std::time::Duration;

/// Minimum screen size.
const MIN_SIZE: (u16, u16) = (40, 10);

/// Minimum height of the kernel pane next to the others: a title, the column names, some rows.
const KERNELS_HEIGHT: u16 = 5;

const KEYS: [(&str, &str); 7] = [
    ("q", "quit"),
    ("?", "help"),
    ("Tab", "part"),
    ("↑↓", "scroll"),
    ("s", "sort"),
    ("p", "pause"),
    ("+-", "interval"),
];

const HELP: [(&str, &str); 9] = [
    ("q  Esc  Ctrl-C", "quit"),
    ("Tab  1 2 3 4", "select a pane"),
    ("↑ ↓  PgUp PgDn", "scroll it; Home and End too"),
    ("s", "sort kernels: time, launches, GB/s, GFLOP/s, name"),
    ("p  Space", "pause and resume"),
    ("+  -", "update less often, more often"),
    ("?", "this help; any key closes it"),
    ("", ""),
    ("", "Rates are between two updates; hit rates since the start."),
];

/// Maximum scroll position of each visible pane.
pub(super) type Limits = [usize; Pane::ALL.len()];

/// Draws the screen and returns the scroll limits of its panes.
pub(super) fn render(state: &State, palette: Palette, frame: &mut Frame<'_>) -> Limits {
    let area = frame.area();
    // A pane that is not drawn keeps its scroll position.
    let mut limits = [usize::MAX; Pane::ALL.len()];
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        too_small(frame);
        return limits;
    }
    let rows = [Constraint::Length(1 + u16::from(state.lost.is_some())), Constraint::Fill(1), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(rows).areas(area);
    header(state, palette, frame, head);
    footer(palette, frame, foot);
    for (pane, place) in places(state, body, palette, frame) {
        limits[pane as usize] = draw(pane, state, palette, frame, place);
    }
    if state.is_help {
        help(palette, frame, body);
    }
    limits
}

/// Lays out the panes: all of them if there is room, otherwise the selected one below the names of all.
fn places(state: &State, body: Rect, palette: Palette, frame: &mut Frame<'_>) -> Vec<(Pane, Rect)> {
    let heights = [Pane::Devices, Pane::Pools, Pane::Caches].map(|pane| panes::height(pane, state));
    if heights.into_iter().fold(KERNELS_HEIGHT, u16::saturating_add) <= body.height {
        let [devices, pools, caches] = heights.map(Constraint::Length);
        let areas = Layout::vertical([devices, pools, caches, Constraint::Fill(1)]).split(body);
        return Pane::ALL.into_iter().zip(areas.iter().copied()).collect();
    }
    let [names, place] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(body);
    let mut line = Line::default();
    for pane in Pane::ALL {
        let tone = if pane == state.pane { Tone::Title } else { Tone::Dim };
        line.push_span(Span::styled(format!(" {} {} ", pane as usize + 1, pane.name()), palette.style(tone)));
    }
    frame.render_widget(line, names);
    vec![(state.pane, place)]
}

/// Draws a pane below its title and returns its scroll limit.
fn draw(pane: Pane, state: &State, palette: Palette, frame: &mut Frame<'_>, area: Rect) -> usize {
    let tone = if pane == state.pane { Tone::Title } else { Tone::Strong };
    let title = Span::styled(format!(" {} {} ", pane as usize + 1, pane.name()), palette.style(tone));
    let mut block = Block::new().borders(Borders::TOP).border_style(palette.style(Tone::Dim)).title(title);
    let inner = block.inner(area);
    let viewport = panes::render(pane, state, palette, frame, inner);
    if viewport.total > viewport.rows {
        let last = (viewport.first + viewport.rows).min(viewport.total);
        let range = format!(" {} to {last} of {} ", viewport.first + 1, viewport.total);
        block = block.title(Line::styled(range, palette.style(Tone::Dim)).right_aligned());
    }
    if pane == Pane::Kernels {
        let sort = format!(" by {} ", state.sort.name());
        block = block.title(Line::styled(sort, palette.style(Tone::Dim)));
    }
    frame.render_widget(block, area);
    viewport.total.saturating_sub(viewport.rows)
}

fn header(state: &State, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let every = if state.is_paused { "paused".to_string() } else { format!("every {}", interval(state.interval)) };
    let snapshot = &state.view.snapshot;
    let width = usize::from(area.width).saturating_sub(" kiln top ".len() + every.chars().count() + 3);
    let whom = format!("{}  kiln {}  process {}", state.address, snapshot.version, snapshot.pid);
    let left = Line::from(vec![
        Span::styled(" kiln top ", palette.style(Tone::Title)),
        Span::raw(format!(" {}", shorten(&whom, width))),
    ]);
    let top = Rect { height: 1, ..area };
    frame.render_widget(left, top);
    let tone = if state.is_paused { Tone::Warn } else { Tone::Dim };
    frame.render_widget(Line::styled(format!("{every} "), palette.style(tone)).right_aligned(), top);
    if let Some(fault) = &state.lost {
        let text = shorten(&format!(" connection lost, retrying: {fault}"), usize::from(area.width));
        frame.render_widget(Line::styled(text, palette.style(Tone::Bad)), Rect { y: area.y + 1, height: 1, ..area });
    }
}

fn footer(palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let mut line = Line::default();
    for (key, what) in KEYS {
        let width = key.chars().count() + what.len() + 4;
        if line.width() + width > usize::from(area.width) {
            break;
        }
        line.push_span(Span::styled(format!(" {key}"), palette.style(Tone::Key)));
        line.push_span(Span::styled(format!(" {what}  "), palette.style(Tone::Dim)));
    }
    frame.render_widget(line, area);
}

fn help(palette: Palette, frame: &mut Frame<'_>, body: Rect) {
    let lines = HELP.map(|(keys, what)| match keys {
        "" => Line::styled(format!(" {what}"), palette.style(Tone::Dim)),
        keys => Line::from(vec![Span::styled(format!(" {keys:16}"), palette.style(Tone::Key)), Span::raw(what)]),
    });
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 3;
    let area = centred(body, width, lines.len() as u16 + 2);
    let title = Span::styled(" Keys ", palette.style(Tone::Title));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines.to_vec()).block(Block::bordered().title(title)), area);
}

fn too_small(frame: &mut Frame<'_>) {
    let area = frame.area();
    let text = format!("kiln top needs {} x {},\nfound {} x {}", MIN_SIZE.0, MIN_SIZE.1, area.width, area.height);
    let place = centred(area, area.width, 2);
    frame.render_widget(Paragraph::new(text).alignment(Alignment::Center), place);
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

fn interval(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{} s", time.as_secs_f64()) }
}

#[cfg(test)]
mod tests;
