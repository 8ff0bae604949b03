//! Runs `kiln run`, `kiln check` and `kiln cache` as processes: output, files and exit status.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod cache;
mod check;
mod guide;
mod refusals;
mod run;
mod support;
