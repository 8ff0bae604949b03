//! `KILN_METRICS` of a real process, at an address and in a file, and `kiln top` reading it: once, and live in a terminal multiplexer.

#![cfg(feature = "events")]
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod endpoint;
mod process;
mod snapshot;
mod tmux;
