//! Observation of devices: kernel statistics, events, spans.
//!
//! Each test opens its own devices, because counters are per device. Without a GPU the tests print a note and continue
//! with the CPU device, unless the environment variable `CI` is set.

#![cfg(feature = "events")]
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]
#![cfg_attr(feature = "gpu", expect(clippy::print_stdout, reason = "a test that is skipped says so"))]

mod devices;
mod events;
mod statistics;
