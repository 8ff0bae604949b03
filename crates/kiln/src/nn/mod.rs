//! Neural network layers: plain structs with a `forward` method, their parameters, and losses.
//!
//! A layer is a struct whose fields are [`Parameter`]s and other layers. [`Module`] is their common trait:
//! [`forward`](Module::forward), and [`visit`](Module::visit), which names each parameter for optimizers and
//! checkpoints. There is no hidden registration. [`Mode`] selects training or inference, and seeds the random ops of
//! a pass.
//!
//! Parameters have the names, shapes and (in recurrent layers) the gate order of PyTorch, so PyTorch checkpoints load
//! without renaming: [`Weights`]. A constructor takes `&device` for `f32` parameters, or `(dtype, &device)`; layers compute in the
//! dtype of their input. [`init`] has the usual initializers.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! # let device = kiln::Device::cpu()?;
//! use kiln::nn::{Linear, Mode, Module, Visitor};
//! use kiln::{DType, Tensor};
//!
//! struct Net {
//!     first: Linear,
//!     second: Linear,
//! }
//!
//! impl Module for Net {
//!     fn forward(&self, input: &Tensor, mode: &Mode) -> kiln::Result<Tensor> {
//!         self.second.forward(&self.first.forward(input, mode)?.relu()?, mode)
//!     }
//!
//!     fn visit(&self, visitor: &mut Visitor<'_>) {
//!         visitor.module("first", &self.first);
//!         visitor.module("second", &self.second);
//!     }
//! }
//!
//! let net = Net { first: Linear::new(4, 8, &device)?, second: Linear::new(8, 2, &device)? };
//! let output = net.forward(&Tensor::ones((3, 4), DType::F32, &device)?, &Mode::inference())?;
//! assert_eq!(output.shape()[..], [3, 2]);
//! let names: Vec<String> = net.parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["first.weight", "first.bias", "second.weight", "second.bias"]);
//! # Ok(())
//! # }
//! ```

mod attention;
mod conv;
mod conv_transpose;
mod group_norm;
pub mod init;
mod linear;
mod loss;
mod mode;
mod norm;
mod parameter;
mod pool;
mod recurrent;
mod sequential;
mod weights;

pub use crate::tensor::{Activation, AttentionOptions, PoolWindow};
pub use attention::{InProjection, MultiHeadAttention};
pub use conv::{Conv1d, Conv2d, Flatten};
pub use conv_transpose::{ConvTranspose1d, ConvTranspose2d};
pub use group_norm::{GroupNorm, InstanceNorm};
pub use init::TensorOptions;
pub use linear::{Embedding, Linear};
pub use loss::{bce_with_logits, cross_entropy, mse};
pub use mode::{Dropout, Mode};
pub use norm::{BatchNorm, LayerNorm, RmsNorm};
pub use parameter::{Parameter, Visitor};
pub use pool::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use recurrent::{Gru, Lstm, LstmState, RecurrentOptions};
pub use sequential::Sequential;
pub use weights::{Weights, load, save, save_tensors};

use crate::{Result, Tensor};

/// A layer, or a network of layers.
///
/// See [`nn`](self) for an example.
pub trait Module: Send + Sync {
    /// Computes the output for an input.
    ///
    /// See [`nn`](self) for an example.
    ///
    /// # Errors
    /// Returns the errors of the ops it is composed of: shape and dtype mismatches, and device errors.
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor>;

    /// Visits each parameter and each sublayer with its name.
    ///
    /// See [`nn`](self) for an example.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Returns all parameters with their names, in the order of [`visit`](Self::visit). A parameter shared by several
    /// layers has its first name.
    ///
    /// See [`nn`](self) for an example.
    fn parameters(&self) -> Vec<(String, Parameter)> {
        let mut all: Vec<(String, Parameter)> = Vec::new();
        self.visit(&mut Visitor::new(&mut |name, parameter| {
            if !all.iter().any(|(_, earlier)| earlier.is_same(parameter)) {
                all.push((name.to_string(), parameter.clone()));
            }
        }));
        all
    }
}

/// An activation as a layer without parameters.
impl Module for Activation {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        self.apply(input.clone())
    }

    fn visit(&self, _: &mut Visitor<'_>) {}
}
