//! Kernels in WGSL give the same on every device: random programs, and those that once did not.
//!
//! `KILN_FUZZ_CASES` says how many random programs run (default: few), `KILN_FUZZ_SEED` with which seed they begin.
//! What differs is made small, told and written to a file; in `cases` it is run again from then on.

#![cfg(feature = "gpu")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails or is skipped says so")]

mod fuzz;
mod launch;
mod run;
