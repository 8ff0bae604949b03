//! The pool pane: usage of reserved bytes, and the fraction of the budget.

use super::columns::{Viewport, bar};
use super::{Palette, Tone};
use crate::top::model::{Device, Pool, share};
use crate::top::rates::DeviceRates;
use crate::top::units::{bytes, percent, rate, shorten};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Lines per pool: its bars, its numbers.
pub(super) const LINES: usize = 2;

/// Width of the device id in cells.
const ID: usize = 9;

/// Width of the budget bar in cells.
const BUDGET: usize = 10;

pub(super) fn render(
    devices: &[(&Device, &DeviceRates)],
    palette: Palette,
    scroll: usize,
    frame: &mut Frame<'_>,
    area: Rect,
) -> Viewport {
    let width = usize::from(area.width);
    let lines: Vec<Line<'_>> = devices
        .iter()
        .flat_map(|(device, rates)| [bars(device, palette, width), numbers(&device.pool, rates, palette, width)])
        .collect();
    let viewport = Viewport::new(lines.len(), usize::from(area.height), scroll);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(viewport.first).take(viewport.rows).collect();
    frame.render_widget(Paragraph::new(shown), area);
    viewport
}

/// Draws the usage of the reserved bytes, and their fraction of the budget.
fn bars(device: &Device, palette: Palette, width: usize) -> Line<'static> {
    let pool = &device.pool;
    let of_budget = share(pool.reserved_bytes, pool.budget_bytes);
    let budget = match width {
        ..50 => format!("  {} ", percent(of_budget)),
        50..66 => format!("  {} of {} ", percent(of_budget), bytes(pool.budget_bytes)),
        _ => format!("  {} {} of {} ", bar(of_budget, BUDGET), percent(of_budget), bytes(pool.budget_bytes)),
    };
    let reserved = format!(" {:>9}", bytes(pool.reserved_bytes));
    let cells = width.saturating_sub(ID + reserved.chars().count() + budget.chars().count() + 1).clamp(4, 60);
    let mut line =
        Line::from(Span::styled(format!(" {:ID$}", shorten(&device.id, ID - 1)), palette.style(Tone::Strong)));
    for (tone, sign, count) in parts(pool, cells) {
        line.push_span(Span::styled(sign.repeat(count), palette.style(tone)));
    }
    line.push_span(Span::raw(reserved));
    line.push_span(Span::styled(budget, palette.style(budget_tone(of_budget))));
    line
}

/// Returns the cells of each use, which add up to the width of the bar; none if nothing is reserved.
fn parts(pool: &Pool, cells: usize) -> [(Tone, &'static str, usize); 3] {
    let cached = pool.cached_bytes.saturating_add(pool.pending_bytes);
    let at = |bytes: u64| {
        let share = share(bytes, pool.reserved_bytes).unwrap_or(0.0).min(1.0);
        (share * cells as f64).round() as usize
    };
    // The ends of the segments are rounded, not their lengths, so that the segments always add up to the width.
    let (used, free) = (at(pool.in_use_bytes), at(pool.in_use_bytes.saturating_add(cached)));
    let free = free.max(used);
    [(Tone::InUse, "█", used), (Tone::Cached, "▒", free - used), (Tone::Dim, "·", cells - free)]
}

fn budget_tone(share: Option<f64>) -> Tone {
    match share {
        // The default pressure for automatic cleanup of a pool.
        Some(share) if share > 0.7 => Tone::Warn,
        _ => Tone::Dim,
    }
}

fn numbers(pool: &Pool, rates: &DeviceRates, palette: Palette, width: usize) -> Line<'static> {
    let cached = pool.cached_bytes.saturating_add(pool.pending_bytes);
    let mut pieces = vec![
        (Tone::InUse, "█ ", format!("in use {}", bytes(pool.in_use_bytes))),
        (Tone::Cached, "▒ ", format!("cached {}", bytes(cached))),
        (Tone::Plain, "", format!("reused {}", percent(pool.hit_rate()))),
        (Tone::Plain, "", format!("requests {}", rate(rates.pool_requests_per_second))),
        (Tone::Plain, "", format!("peak {}", bytes(pool.peak_bytes))),
        (Tone::Plain, "", format!("buffers {}", pool.live_buffers)),
    ];
    if pool.out_of_memory > 0 {
        pieces.insert(0, (Tone::Bad, "", format!("out of memory {} times", pool.out_of_memory)));
    }
    let mut line = Line::raw(" ".repeat(ID + 1));
    for (tone, sign, text) in pieces {
        if line.width() + sign.chars().count() + text.chars().count() > width {
            break;
        }
        // The symbol has the tone of the bar, the words have the tone of text.
        let words = if sign.is_empty() { tone } else { Tone::Plain };
        line.push_span(Span::styled(sign, palette.style(tone)));
        line.push_span(Span::styled(text, palette.style(words)));
        line.push_span(Span::raw("  "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_has_all_its_cells_whatever_the_numbers_are() {
        let pool = |in_use_bytes, cached_bytes, reserved_bytes| Pool {
            in_use_bytes,
            cached_bytes,
            reserved_bytes,
            ..Pool::default()
        };
        let table = [
            (pool(0, 0, 0), [0, 0, 10]),
            (pool(50, 30, 100), [5, 3, 2]),
            (pool(100, 0, 100), [10, 0, 0]),
            (pool(u64::MAX, u64::MAX, 5), [10, 0, 0]),
            (pool(1, 1, 1000), [0, 0, 10]),
        ];
        for (pool, cells) in table {
            assert_eq!(parts(&pool, 10).map(|(_, _, count)| count), cells, "{pool:?}");
        }
    }
}
