//! The registry through its public API: caches by type, slots, one byte budget, reports (R1.1 to R1.4, R1.6, R1.8 to
//! R1.10).
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod advice;
mod budget;
mod kernels;
mod lookup;
mod metrics;
mod names;
mod reentrant;
mod settings;
mod slots;
mod trim;
mod warm;
