//! Tensors on every device: against NumPy, against references in `f64`, and against themselves on another path.
//!
//! One binary, because opening a GPU is slow and its kernels are compiled once: all tests share the devices. Without a GPU
//! the tests print a note and continue with the CPU devices, unless the environment variable `CI` is set.

#![expect(clippy::unwrap_used, reason = "a test that fails says so")]
#![cfg_attr(feature = "gpu", expect(clippy::print_stdout, reason = "a test that is skipped says so"))]

mod autograd;
mod calls;
mod convolutions;
mod data;
mod devices;
mod elements;
mod errors;
mod fused;
mod gradients;
mod indexing;
mod layers;
mod lazy;
mod learning;
mod numpy;
mod own_op;
mod poison;
mod properties;
mod reductions;
mod special;
mod sums;
mod weights;
#[cfg(feature = "wgsl")]
mod wgsl_op;
mod wide;
