//! The GPU device through `kiln-device`, on the first adapter of this machine.
//!
//! A single test binary, because opening a device is slow: tests share two devices, one for each kind of host access.
//! Without an adapter the tests print a message and pass, unless the environment variable `CI` is set.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails or is skipped says so")]

mod commands;
mod debug_checks;
mod faults;
mod features;
mod flood;
mod graph;
mod host_access;
mod identity;
mod kernels;
mod notify;
mod processes;
mod support;
mod tensors;
mod threads;
