//! `kiln top` beside a real process: what it writes, and the live view inside of a terminal multiplexer.

#![cfg(feature = "events")]
#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

mod process;
mod snapshot;
mod tmux;
