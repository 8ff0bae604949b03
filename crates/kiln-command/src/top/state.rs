//! The state of the screen, and the key bindings.

use super::model::Snapshot;
use super::rates::{Sort, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

/// Polling intervals that `+` and `-` step through.
const INTERVALS_MS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];

/// Lines per page.
const PAGE: usize = 10;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) address: String,
    pub(super) interval: Duration,
    pub(super) view: View,
    /// Why the last request failed.
    pub(super) lost: Option<String>,
    pub(super) pane: Pane,
    /// First visible line of each pane, which drawing limits to the available lines.
    pub(super) scroll: [usize; Pane::ALL.len()],
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    pub(super) is_help: bool,
}

/// A pane of the screen, in display order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Devices,
    Pools,
    Caches,
    Kernels,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
}

impl Pane {
    pub(super) const ALL: [Self; 4] = [Self::Devices, Self::Pools, Self::Caches, Self::Kernels];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Devices => "Devices",
            Self::Pools => "Pools",
            Self::Caches => "Caches",
            Self::Kernels => "Kernels",
        }
    }
}

impl State {
    pub(super) fn new(address: String, interval: Duration, first: Snapshot) -> Self {
        Self {
            address,
            interval,
            view: View::new(first, None),
            lost: None,
            pane: Pane::Kernels,
            scroll: [0; Pane::ALL.len()],
            sort: Sort::default(),
            is_paused: false,
            is_help: false,
        }
    }

    /// Stores an answer, which arrived `elapsed` after the last successful one.
    pub(super) fn take(&mut self, answer: Result<Snapshot, String>, elapsed: Duration) {
        match answer {
            Ok(snapshot) => {
                let before = std::mem::take(&mut self.view.snapshot);
                self.view = View::new(snapshot, Some((&before, elapsed)));
                self.lost = None;
            }
            Err(fault) => self.lost = Some(fault),
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Flow {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Flow::Quit,
            KeyCode::Char('q') => return Flow::Quit,
            // Any key closes the help.
            _ if self.is_help => self.is_help = false,
            KeyCode::Esc => return Flow::Quit,
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('+' | '=') => {
                self.interval = intervals().find(|longer| *longer > self.interval).unwrap_or(self.interval);
            }
            KeyCode::Char('-') => {
                self.interval = intervals().rev().find(|shorter| *shorter < self.interval).unwrap_or(self.interval);
            }
            KeyCode::Tab => self.pane = Pane::ALL[(self.pane as usize + 1) % Pane::ALL.len()],
            KeyCode::BackTab => self.pane = Pane::ALL[(self.pane as usize + Pane::ALL.len() - 1) % Pane::ALL.len()],
            KeyCode::Char(digit @ '1'..='4') => self.pane = Pane::ALL[digit as usize - '1' as usize],
            code => self.scroll(code),
        }
        Flow::Continue
    }

    /// Clamps scroll positions to the end, so that scrolling back starts there.
    pub(super) fn limit(&mut self, limits: [usize; Pane::ALL.len()]) {
        for (line, limit) in self.scroll.iter_mut().zip(limits) {
            *line = (*line).min(limit);
        }
    }

    fn scroll(&mut self, code: KeyCode) {
        let line = &mut self.scroll[self.pane as usize];
        *line = match code {
            KeyCode::Up | KeyCode::Char('k') => line.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => line.saturating_add(1),
            KeyCode::PageUp => line.saturating_sub(PAGE),
            KeyCode::PageDown => line.saturating_add(PAGE),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => *line,
        };
    }
}

fn intervals() -> impl DoubleEndedIterator<Item = Duration> {
    INTERVALS_MS.into_iter().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::new("127.0.0.1:9464".to_string(), Duration::from_secs(1), Snapshot::default())
    }

    fn press(state: &mut State, code: KeyCode) -> Flow {
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_quit_and_close_the_help() {
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut state(), code), Flow::Quit);
        }
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state().key(control_c), Flow::Quit);
        let mut state = state();
        assert_eq!(press(&mut state, KeyCode::Char('?')), Flow::Continue);
        assert!(state.is_help);
        assert_eq!(press(&mut state, KeyCode::Esc), Flow::Continue);
        assert!(!state.is_help, "the help is closed, the program goes on");
        press(&mut state, KeyCode::Char('?'));
        assert_eq!(press(&mut state, KeyCode::Char('q')), Flow::Quit);
    }

    #[test]
    fn keys_change_pane_sort_interval_and_pause() {
        let mut state = state();
        press(&mut state, KeyCode::Tab);
        assert_eq!(state.pane, Pane::Devices);
        press(&mut state, KeyCode::BackTab);
        assert_eq!(state.pane, Pane::Kernels);
        press(&mut state, KeyCode::Char('2'));
        assert_eq!(state.pane, Pane::Pools);
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(state.sort, Sort::Launches);
        press(&mut state, KeyCode::Char('p'));
        assert!(state.is_paused);
        for (key, ms) in [('+', 2000), ('+', 5000), ('-', 2000), ('-', 1000), ('-', 500)] {
            press(&mut state, KeyCode::Char(key));
            assert_eq!(state.interval, Duration::from_millis(ms));
        }
        for _ in 0..10 {
            press(&mut state, KeyCode::Char('-'));
        }
        assert_eq!(state.interval, Duration::from_millis(100));
        for _ in 0..20 {
            press(&mut state, KeyCode::Char('+'));
        }
        assert_eq!(state.interval, Duration::from_secs(10));
    }

    #[test]
    fn each_pane_scrolls_by_itself() {
        let mut state = state();
        for (code, line) in [
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 11),
            (KeyCode::Up, 10),
            (KeyCode::PageUp, 0),
            (KeyCode::Up, 0),
            (KeyCode::End, usize::MAX),
            (KeyCode::Down, usize::MAX),
            (KeyCode::Home, 0),
            (KeyCode::Down, 1),
        ] {
            press(&mut state, code);
            assert_eq!(state.scroll, [0, 0, 0, line]);
        }
        press(&mut state, KeyCode::End);
        state.limit([0, 0, 0, 7]);
        press(&mut state, KeyCode::Up);
        assert_eq!(state.scroll, [0, 0, 0, 6], "the way back begins at the end");
    }

    #[test]
    fn a_lost_connection_keeps_what_was_seen_until_it_is_back() {
        let mut state = state();
        let snapshot = |pid: &str| Snapshot { pid: pid.to_string(), ..Snapshot::default() };
        state.take(Ok(snapshot("1")), Duration::from_secs(1));
        state.take(Err("gone".to_string()), Duration::from_secs(1));
        assert_eq!((state.lost.as_deref(), state.view.snapshot.pid.as_str()), (Some("gone"), "1"));
        state.take(Ok(snapshot("2")), Duration::from_secs(2));
        assert_eq!((state.lost.as_deref(), state.view.snapshot.pid.as_str()), (None, "2"));
    }
}
