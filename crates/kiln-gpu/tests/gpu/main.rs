//! The GPU device through the interface of the runtime, on the first adapter of this machine.
//!
//! One binary, because opening a device is slow: tests share two devices, one for each way to reach memory. Without an
//! adapter the tests say so and pass, unless the environment variable `CI` is set.

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
