//! The pool on the null device with a mock clock.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod adaptive;
mod cleanup;
mod dashboard;
mod debug;
mod defragment;
mod drift;
mod export;
mod fixture;
mod hooked;
mod idle;
mod model;
mod out_of_memory;
mod recycling;
mod report;
mod requests;
mod settings;
mod statistics;
mod unprotected;
