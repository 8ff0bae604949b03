//! Linear and embedding layers.

use super::init::{self, TensorOptions};
use super::{Mode, Module, Parameter, Visitor};
use crate::{Result, Tensor};

/// Computes `x @ weightᵀ + bias`. Weights are converted to the dtype of the input.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Linear, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let layer = Linear::new(3, 2, &device)?;
/// let x = Tensor::ones((4, 5, 3), DType::F16, &device)?;
/// assert_eq!(layer.forward(&x, &Mode::inference())?.shape()[..], [4, 5, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Linear {
    /// `(outputs, inputs)`, as in PyTorch.
    pub weight: Parameter,
    /// One number per output.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// Creates a layer with weights and a bias uniform in ±1/√fan_in (PyTorch's default), on a device, in `f32` or
    /// the dtype of [`TensorOptions`].
    ///
    /// See [`Linear`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, `OutOfMemory`, and device errors.
    pub fn new(inputs: usize, outputs: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        let options = options.into();
        // The bias uses the fan-in of the weight too: a vector of outputs has none.
        let random = |shape: &[usize]| Parameter::new(&init::fan_in_uniform(shape, inputs, &options)?);
        Ok(Self { weight: random(&[outputs, inputs])?, bias: Some(random(&[outputs])?) })
    }

    /// Removes the bias.
    ///
    /// See [`Linear`] for an example.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

impl Module for Linear {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        affine(input, &self.weight.get(), self.bias.as_ref().map(Parameter::get).as_ref())
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.optional("bias", self.bias.as_ref());
    }
}

/// Computes `input @ weightᵀ + bias` in the dtype of the input.
pub(super) fn affine(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let weight = weight.to_dtype(input.dtype())?;
    // Flattens the batch axes into one, so that one matrix multiplication covers all rows. An empty last axis stays as it is:
    // its row count cannot be computed from the element count.
    let flat = match &input.shape()[..] {
        [.., length] if input.rank() > 2 && *length > 0 => Some(input.reshape((input.elem_count() / length, *length))?),
        _ => None,
    };
    let mut output = flat.as_ref().unwrap_or(input).matmul(&weight.t()?)?;
    if let Some(bias) = bias {
        output = output.add(&bias.to_dtype(input.dtype())?)?;
    }
    if flat.is_none() {
        return Ok(output);
    }
    let rows = input.shape()[..input.rank() - 1].iter().copied();
    output.reshape(rows.chain([weight.shape()[0]]).collect::<crate::Shape>())
}

/// Looks up a row of a table for each index of the input.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Embedding, Mode, Module};
///
/// let words = kiln::Tensor::from_slice(&[1u32, 4, 1], 3, &device)?;
/// assert_eq!(Embedding::new(10, 8, &device)?.forward(&words, &Mode::inference())?.shape()[..], [3, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    /// The embedding table, `(count, length)`.
    pub weight: Parameter,
}

impl Embedding {
    /// Creates a table of `count` rows of `length` standard normal numbers (PyTorch's default).
    ///
    /// See [`Embedding`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, `OutOfMemory`, and device errors.
    pub fn new(count: usize, length: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        Ok(Self { weight: Parameter::new(&init::normal((count, length), 0.0, 1.0, options)?)? })
    }
}

impl Module for Embedding {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        self.weight.get().embedding(input)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
    }
}
