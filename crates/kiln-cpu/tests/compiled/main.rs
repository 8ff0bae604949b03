//! Kernels in WGSL, compiled for the CPU device. One binary: each takes 5 s to compile at this crate's opt-level.
#![cfg(all(not(loom), feature = "wgsl"))]

mod accuracy;
mod kernels;
mod large;
mod proven;
mod refusals;
mod stack;
