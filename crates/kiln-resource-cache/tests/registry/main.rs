//! The registry through its public API: caches by type, slots, one byte budget, reports.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod advice;
mod budget;
mod kernels;
mod lookup;
mod metrics;
mod names;
mod reentrant;
mod register;
mod reserve;
mod settings;
mod slots;
mod trim;
mod warm;
