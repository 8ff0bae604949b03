//! The live view: a terminal, a thread that asks, and the loop between them.

use super::model::Snapshot;
use super::scrape::scrape;
use super::state::{Flow, State};
use super::view::{self, Limits, Palette};
use crate::Fallible;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How long a key or an answer may wait.
const TICK: Duration = Duration::from_millis(50);

/// Shows the process until a key ends it. The terminal is as it was before when this returns, and on a panic.
pub(super) fn run(mut state: State, palette: Palette) -> Fallible<()> {
    let asker = Asker::start(state.address.clone(), state.interval)?;
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, &mut state, palette, &asker);
    ratatui::try_restore()?;
    outcome
}

fn show(terminal: &mut DefaultTerminal, state: &mut State, palette: Palette, asker: &Asker) -> Fallible<()> {
    let mut last_answer = Instant::now();
    loop {
        let mut limits = Limits::default();
        terminal.draw(|frame| limits = view::render(state, palette, frame))?;
        state.limit(limits);
        // Until there is something else to see.
        loop {
            let mut is_new = false;
            if event::poll(TICK)? {
                let interval = state.interval;
                // A new size is drawn anew like everything else.
                if let Event::Key(key) = event::read()?
                    && key.kind != KeyEventKind::Release
                    && state.key(key) == Flow::Quit
                {
                    return Ok(());
                }
                if state.interval != interval {
                    // A thread that has ended says so by its answers, of which there are none.
                    let _ = asker.intervals.send(state.interval);
                }
                is_new = true;
            }
            while let Ok((answer, at)) = asker.answers.try_recv() {
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

/// A thread that asks for metrics again and again, so that keys need not wait for a slow answer. It ends when this is dropped,
/// at the latest after the question that is under way.
struct Asker {
    answers: Receiver<(Result<Snapshot, String>, Instant)>,
    intervals: Sender<Duration>,
}

impl Asker {
    fn start(address: String, mut interval: Duration) -> std::io::Result<Self> {
        let (sender, answers) = mpsc::channel();
        let (intervals, changes) = mpsc::channel();
        std::thread::Builder::new().name("kiln-top".to_string()).spawn(move || {
            loop {
                match changes.recv_timeout(interval) {
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
