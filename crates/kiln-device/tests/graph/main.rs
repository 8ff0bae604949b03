//! Graphs, their plans and runs, and captured sequences.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod batches;
mod build;
mod capture;
mod errors;
mod faults;
mod fixture;
mod hazards;
mod meeting;
mod model;
mod parallel;
mod picture;
mod replay;
mod report;
