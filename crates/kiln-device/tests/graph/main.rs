//! Graphs, their plans and runs, and captured sequences.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod batches;
mod build;
mod capture;
mod diagram;
mod errors;
mod faults;
mod fixture;
mod hazards;
mod model;
mod parallel;
mod rendezvous;
mod replay;
mod report;
