//! Tensor computations without a device: the op table, op graphs, plans, and the types of hand-written kernels.
//!
//! [`DType`](crate::DType), [`Shape`](crate::Shape) and the error type are in the crate root. [`op`] declares every
//! elementwise op with its `f64` reference and its error bound; [`plan`] turns a [`graph::OpGraph`] into kernels;
//! [`wgsl`] and [`host`] are for authors of a [`KernelOp`](crate::kernel::KernelOp).
//!
//! ```
//! use kiln::ir::op;
//!
//! assert_eq!(op::RELU.reference()(&[-1.0]), 0.0);
//! ```

pub use kiln_ir::{Bytes, Class, Layout, gradient, graph, host, kernel, op, plan, round_to_odd, wgsl, with_element};
