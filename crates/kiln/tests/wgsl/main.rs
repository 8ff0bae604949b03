//! WGSL kernels give the same results on every device: random programs, and past failures.
//!
//! `KILN_FUZZ_CASES` sets the number of random programs (default: few), `KILN_FUZZ_SEED` the first seed.
//! A failing program is minimized, reported and written to a file; put into `cases`, it becomes a regression test.

#![cfg(feature = "gpu")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails or is skipped says so")]

mod fuzz;
mod launch;
mod run;
