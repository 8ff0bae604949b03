//! The screen as text at several sizes.

use super::*;
use crate::top::model::Snapshot;
use crate::top::model::tests::TEXT;
use crate::top::rates::View;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

/// A process with two snapshots, a second apart.
fn state() -> State {
    let first = Snapshot::parse(TEXT).unwrap();
    let mut second = first.clone();
    for device in &mut second.devices {
        device.pool.requests += 500;
        device.caches.iter_mut().for_each(|cache| cache.hits += 40);
        for (number, kernel) in device.kernels.iter_mut().enumerate() {
            let more = 10.0 * (number + 1) as f64;
            kernel.totals.launches += more;
            kernel.totals.timed += more;
            kernel.totals.seconds += 0.002 * more;
            kernel.totals.bytes += 4e6 * more;
            kernel.totals.operations += 1e7 * more;
        }
    }
    let mut state = State::new("127.0.0.1:9464".to_string(), Duration::from_secs(1), first);
    state.take(Ok(second), Duration::from_secs(1));
    state
}

fn drawn(state: &State, palette: Palette, width: u16, height: u16) -> (Terminal<TestBackend>, Limits) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut limits = Limits::default();
    terminal.draw(|frame| limits = render(state, palette, frame)).unwrap();
    (terminal, limits)
}

/// Returns the screen as lines of text.
fn screen(state: &State, width: u16, height: u16) -> String {
    let (terminal, _) = drawn(state, Palette::new(false), width, height);
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_string() + "\n").collect()
}

#[test]
fn screens_of_several_sizes() {
    for (width, height) in [(80, 24), (120, 40), (60, 14), (40, 10), (39, 10), (10, 2)] {
        insta::assert_snapshot!(format!("screen_{width}x{height}"), screen(&state(), width, height));
    }
}

#[test]
fn screens_of_several_states() {
    let mut lost = state();
    lost.take(Err("nothing answers at 127.0.0.1:9464".to_string()), Duration::from_secs(1));
    lost.is_paused = true;
    insta::assert_snapshot!("screen_lost", screen(&lost, 80, 24));
    let mut help = state();
    help.is_help = true;
    insta::assert_snapshot!("screen_help", screen(&help, 80, 24));
    let empty = Snapshot { version: "0.1.0".to_string(), pid: "7".to_string(), devices: Vec::new() };
    let empty = State::new("127.0.0.1:9464".to_string(), Duration::from_millis(250), empty);
    insta::assert_snapshot!("screen_empty", screen(&empty, 80, 12));
    let mut pools = state();
    pools.pane = Pane::Pools;
    insta::assert_snapshot!("screen_pools_small", screen(&pools, 60, 12));
}

/// Every size and every key position draws something without a panic.
#[test]
fn no_size_is_too_odd() {
    let mut state = state();
    state.scroll = [usize::MAX; 4];
    for width in (1..130).step_by(7) {
        for height in 1..45 {
            for pane in Pane::ALL {
                state.pane = pane;
                assert!(!screen(&state, width, height).trim().is_empty() || width < 2, "{width} x {height}");
            }
        }
    }
}

#[test]
fn a_pane_scrolls_to_its_last_row_and_no_further() {
    let mut state = state();
    state.view = View::new(state.view.snapshot.clone(), None);
    state.pane = Pane::Kernels;
    let (_, limits) = drawn(&state, Palette::new(false), 60, 10);
    let kernels = state.view.kernels.len();
    // Header, pane names, title, column names and footer take five lines.
    assert_eq!(limits, [usize::MAX, usize::MAX, usize::MAX, kernels - 5]);
    state.scroll[3] = usize::MAX;
    let text = screen(&state, 60, 10);
    let last = state.view.sorted(state.sort)[kernels - 1];
    assert!(text.contains(&last.name), "{text}");
    assert!(text.contains(&format!("of {kernels}")), "{text}");
}

#[test]
fn colours_are_only_there_where_they_are_wanted() {
    let has_colour = |is_coloured: bool| {
        let (terminal, _) = drawn(&state(), Palette::new(is_coloured), 80, 24);
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(true));
    assert!(!has_colour(false));
}
