//! Hand-written kernels, one folder each: the shape rule, the CPU code, the WGSL, an independent reference and tests.
//!
//! This crate owns the ops that are more than an elementwise program or a reduction. It refuses devices and memory: a kernel is given
//! its operands and its threads. Types to know: each op implements [`KernelOp`](kiln_ir::KernelOp).

pub mod attention;
pub mod cat;
pub mod gather;
mod indices;
pub mod matmul;
mod memory;
pub mod norm;
mod places;
mod rows;
pub mod scatter;
pub mod softmax;
#[cfg(test)]
mod testing;
mod walk;

/// Half of a step between neighbours of `f32`, relative to them: what one rounding costs.
const HALF_STEP: f64 = 1.0 / (1u64 << 24) as f64;
