//! A sequence of layers.

use super::{Mode, Module, Visitor};
use crate::{Result, Tensor};
use std::fmt;

/// A sequence of layers: each takes the output of the previous one. Their names are their indices.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Activation, Linear, Mode, Module, Sequential};
/// use kiln::{DType, Tensor};
///
/// let net = Sequential::new().with(Linear::new(4, 8, &device)?).with(Activation::Relu).with(Linear::new(8, 2, &device)?);
/// let y = net.forward(&Tensor::ones((3, 4), DType::F32, &device)?, &Mode::inference())?;
/// assert_eq!(y.shape()[..], [3, 2]);
/// assert_eq!(net.parameters()[2].0, "2.weight");
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use]
pub struct Sequential {
    layers: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// Creates an empty sequence, which returns its input.
    ///
    /// See [`Sequential`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a layer.
    ///
    /// See [`Sequential`] for an example.
    pub fn with(mut self, layer: impl Module + 'static) -> Self {
        self.layers.push(Box::new(layer));
        self
    }
}

impl Module for Sequential {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        self.layers.iter().try_fold(input.clone(), |input, layer| layer.forward(&input, mode))
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (number, layer) in self.layers.iter().enumerate() {
            visitor.module(&number.to_string(), &**layer);
        }
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequential").field("layers", &self.layers.len()).finish()
    }
}
