//! Device-independent intermediate representation of tensor computations: dtypes, shapes, layouts and Kiln's
//! [error](Error) type; the [op table](op); [graphs](graph), the [plans](plan) they are lowered to, the
//! [kernels](kernel) of a plan, and their [WGSL](wgsl). Pure functions only: no I/O, devices, clocks or wgpu.
//!
//! The types to know are [`OpGraph`](graph::OpGraph), [`Plan`](plan::Plan), [`ElementOp`](op::ElementOp) and, for
//! hand-written kernels, [`KernelOp`].
//!
//! ```
//! # fn main() -> kiln_ir::Result<()> {
//! use kiln_ir::graph::{OpGraph, OpNode, Op, TensorType};
//! use kiln_ir::plan::{Plan, Target};
//! use kiln_ir::{DType, Layout, Shape, op};
//!
//! let ty = TensorType { shape: Shape::from((2, 3)), dtype: DType::F32 };
//! let node = |op, inputs: &[usize]| OpNode { op, inputs: inputs.into(), ty: ty.clone() };
//! let nodes = vec![
//!     node(Op::Input(Layout::contiguous(ty.shape.clone()).into()), &[]),
//!     node(Op::Element(&op::MUL), &[0, 0]),
//!     node(Op::Element(&op::RELU), &[1]),
//! ];
//! let plan = Plan::new(&OpGraph { nodes, outputs: vec![2], held: Vec::new() }, &Target::CPU)?;
//! assert_eq!(plan.steps.len(), 1); // both ops in one kernel
//! assert_eq!(plan.steps[0].kernel.name, "mul_relu");
//! # Ok(())
//! # }
//! ```

// The only unsafe item is the signature of `HostOutput::store`.
#![deny(unsafe_code)]

mod dtype;
mod error;
pub mod gradient;
pub mod graph;
#[expect(unsafe_code, reason = "several threads store results, each to its own elements")]
pub mod host;
pub mod kernel;
mod layout;
pub mod op;
pub mod plan;
pub mod round_to_odd;
mod shape;
mod simd;
pub mod size;
pub mod wgsl;

pub use dtype::{Class, DType, Element};
pub use error::{Error, ErrorKind, Result};
/// Re-exported for the expansion of [`with_element`].
#[doc(hidden)]
pub use half;
pub use kernel::KernelOp;
pub use layout::Layout;
pub use shape::Shape;
pub use simd::SimdLevel;
pub use size::Bytes;
