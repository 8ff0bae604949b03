//! Argument types and traits of tensor methods.
//!
//! You rarely name them: `x.sum((0, 2))` converts a tuple into [`Axes`], `x.i((.., -1))` an index into [`Index`], and
//! [`Tensor::new`](crate::Tensor::new) takes a nested [`Literal`]. They are public for functions that forward such
//! arguments.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! use kiln::arguments::Axes;
//! use kiln::{Device, Result, Tensor};
//!
//! fn mean_square(x: &Tensor, axes: impl Into<Axes>) -> Result<Tensor> {
//!     x.mul(x)?.mean(axes)
//! }
//!
//! let x = Tensor::new([[1.0f32, 3.0], [2.0, 4.0]], &Device::cpu()?)?;
//! assert_eq!(mean_square(&x, 1)?.to_vec::<f32>()?, [5.0, 10.0]);
//! # Ok(())
//! # }
//! ```

pub use crate::tensor::{Axes, Axis, Dim, Dims, Index, IndexItem, IntoPair, Literal, Operand, OperatorRhs};
