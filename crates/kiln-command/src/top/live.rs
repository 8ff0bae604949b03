//! The live view: a terminal, a polling thread, and the event loop.

use super::model::Snapshot;
use super::scrape::scrape;
use super::state::{Flow, State};
use super::view::{self, Limits, Palette};
use crate::Fallible;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Maximum time between the arrival of an answer and its display: answers are received after each wait for a key.
const KEY_TIMEOUT: Duration = Duration::from_millis(50);

/// Shows the metrics of the process until the user quits. The terminal is restored on return and on panic.
pub(super) fn run(mut state: State, palette: Palette) -> Fallible<()> {
    let poller = Poller::start(state.address.clone(), state.interval)?;
    let mut terminal = ratatui::try_init()?;
    // Not returned with `?`: the terminal is restored first, so that an error is printed on a normal screen.
    let outcome = show(&mut terminal, &mut state, palette, &poller);
    ratatui::try_restore()?;
    outcome
}

fn show(terminal: &mut DefaultTerminal, state: &mut State, palette: Palette, poller: &Poller) -> Fallible<()> {
    let mut last_answer = Instant::now();
    loop {
        let mut limits = Limits::default();
        terminal.draw(|frame| limits = view::render(state, palette, frame))?;
        state.limit(limits);
        // Waits until there is something new to draw.
        loop {
            let mut is_new = false;
            if event::poll(KEY_TIMEOUT)? {
                let interval = state.interval;
                // A resize needs no handling, because everything is redrawn.
                if let Event::Key(key) = event::read()?
                    && key.kind != KeyEventKind::Release
                    && state.key(key) == Flow::Quit
                {
                    return Ok(());
                }
                if state.interval != interval {
                    // Fails only if the thread has panicked; the view then stays as it is.
                    let _ = poller.intervals.send(state.interval);
                }
                is_new = true;
            }
            while let Ok((answer, at)) = poller.answers.try_recv() {
                // The first answer after a pause is compared with the last one before it, so `last_answer` stays.
                if state.is_paused {
                    continue;
                }
                let is_answer = answer.is_ok();
                state.take(answer, at.saturating_duration_since(last_answer));
                last_answer = if is_answer { at } else { last_answer };
                is_new = true;
            }
            if is_new {
                break;
            }
        }
    }
}

/// A thread that polls metrics, so that key presses do not wait for a slow answer. Dropping this ends the thread, after its
/// current request.
struct Poller {
    answers: Receiver<(Result<Snapshot, String>, Instant)>,
    intervals: Sender<Duration>,
}

impl Poller {
    fn start(address: String, mut interval: Duration) -> std::io::Result<Self> {
        let (sender, answers) = mpsc::channel();
        let (intervals, changes) = mpsc::channel();
        std::thread::Builder::new().name("kiln-top".to_string()).spawn(move || {
            loop {
                match changes.recv_timeout(interval) {
                    // A new interval starts with a request at once.
                    Ok(changed) => interval = changed,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let answer = scrape(&address);
                if sender.send((answer, Instant::now())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { answers, intervals })
    }
}
