//! Plans on the CPU against references that share no code with it.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conversions;
mod kernels;
mod maps;
mod plans;
mod reductions;
mod reference;
mod refusals;
mod support;
