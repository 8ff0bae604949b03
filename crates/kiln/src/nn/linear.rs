//! Layers that multiply by, or look up in, a matrix.

use super::{Mode, Module, Parameter, Visitor};
use crate::{DType, Device, Result, Tensor};

/// `x @ weightᵀ + bias`. Weights are stored in `f32` and used in the dtype of the input.
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
    /// A row for each output, as other libraries have it.
    pub weight: Parameter,
    /// A number for each output.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// Weights and bias between plus and minus the inverse of the root of `inputs`, from the device's random numbers.
    ///
    /// # Errors
    /// `OutOfMemory` and the device's faults.
    pub fn new(inputs: usize, outputs: usize, device: &Device) -> Result<Self> {
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let weight = Parameter::new(&uniform(&[outputs, inputs], bound, device)?)?;
        Ok(Self { weight, bias: Some(Parameter::new(&uniform(&[outputs], bound, device)?)?) })
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

/// Numbers between plus and minus `bound`.
pub(super) fn uniform(shape: &[usize], bound: f64, device: &Device) -> Result<Tensor> {
    Tensor::rand(shape, DType::F32, device)?.mul_scalar(2.0 * bound)?.sub_scalar(bound)
}

impl Module for Linear {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let weight = self.weight.get().to_dtype(input.dtype())?;
        // One matrix of all rows: what is before the last axis needs no products of its own.
        let flat = match &input.shape()[..] {
            [.., length] if input.rank() > 2 && *length > 0 => {
                Some(input.reshape((input.elem_count() / length, *length))?)
            }
            _ => None,
        };
        let mut output = flat.as_ref().unwrap_or(input).matmul(&weight.t()?)?;
        if let Some(bias) = &self.bias {
            output = output.add(&bias.get().to_dtype(input.dtype())?)?;
        }
        if flat.is_none() {
            return Ok(output);
        }
        let rows = input.shape()[..input.rank() - 1].iter().copied();
        output.reshape(rows.chain([weight.shape()[0]]).collect::<crate::Shape>())
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        if let Some(bias) = &self.bias {
            visitor.parameter("bias", bias);
        }
    }
}

/// A row of a table for each number of the input.
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
    /// The table.
    pub weight: Parameter,
}

impl Embedding {
    /// `count` rows of `length` normally distributed numbers, from the device's random numbers.
    ///
    /// # Errors
    /// `OutOfMemory` and the device's faults.
    pub fn new(count: usize, length: usize, device: &Device) -> Result<Self> {
        Ok(Self { weight: Parameter::new(&Tensor::randn((count, length), DType::F32, device)?)? })
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
