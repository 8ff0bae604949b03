//! What devices tell of their work: statistics of kernels, events, spans.
//!
//! Each test opens devices of its own, because what is counted is of a whole device. Without a GPU the tests say so and go on
//! with the CPU device, unless the environment variable `CI` is set.

#![cfg(feature = "events")]
#![expect(clippy::unwrap_used, reason = "a test that fails says so")]
#![cfg_attr(feature = "gpu", expect(clippy::print_stdout, reason = "a test that is skipped says so"))]

mod devices;
mod events;
mod statistics;
