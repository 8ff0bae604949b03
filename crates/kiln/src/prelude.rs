//! The names that most programs need: `use kiln::prelude::*;`.
//!
//! Tensors with their dtypes, shapes and indices, devices, errors, the modules [`nn`] and [`optim`] with the traits
//! for calling layers, and the functions that control gradients.
//!
//! ```
//! use kiln::prelude::*;
//!
//! fn main() -> Result<()> {
//!     let device = Device::best()?;
//!     let x = Tensor::new([[1f32, 2., 3.], [4., 5., 6.]], &device)?;
//!     assert_eq!(x.i((.., Slice::new(..).step(2)))?.to_vec2::<f32>()?, [[1., 3.], [4., 6.]]);
//!
//!     let layer = nn::Linear::new(3, 1, &device)?;
//!     let mut optimizer = Optimizer::new(optim::Sgd::new(), &layer)?;
//!     let loss = layer.forward(&x, &Mode::training(0))?.mean(..)?;
//!     loss.backward()?;
//!     optimizer.step(0.01)?;
//!     Ok(())
//! }
//! ```

pub use crate::nn::{self, Mode, Module};
pub use crate::optim::{self, Optimizer};
pub use crate::{
    DType, Device, DeviceKind, Element, Ellipsis, Error, ErrorKind, NewAxis, Result, Shape, Slice, Tensor, bf16,
    checkpoint, f16, grad, no_grad, value_and_grad,
};
