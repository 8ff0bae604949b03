//! Options of the backward pass, and gradient checks against finite differences.
//!
//! [`grad`](crate::grad), [`value_and_grad`](crate::value_and_grad), [`no_grad`](crate::no_grad) and
//! [`checkpoint`](crate::checkpoint) are in the crate root; [`Tensor::backward`](crate::Tensor::backward) computes
//! the gradients of parameters.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! use kiln::autograd::{GradientCheck, check_gradients};
//! use kiln::{Device, Tensor};
//!
//! let x = Tensor::new([0.5f32, -1.0, 2.0], &Device::cpu()?)?;
//! let report = check_gradients(|inputs| inputs[0].tanh()?.exp(), &[&x], GradientCheck::new())?;
//! assert!(report.passed(), "{report}");
//! # Ok(())
//! # }
//! ```

pub use crate::tensor::{BackwardOptions, GradientCheck, GradientReport, check_gradients};
