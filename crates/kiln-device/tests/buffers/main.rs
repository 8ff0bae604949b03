//! Buffers, command lists and the null device.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod commands;
mod devices;
mod faults;
mod fixture;
mod model;
mod null;
mod reads;
mod slices;
mod transfers;
mod typed;
