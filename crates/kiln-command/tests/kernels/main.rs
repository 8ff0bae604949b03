//! Runs the real program on kernels: `kiln run`, `kiln check` and `kiln cache`, what they write, where, and how they exit.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

mod cache;
mod check;
mod guide;
mod refusals;
mod run;
mod support;
