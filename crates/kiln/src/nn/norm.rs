//! Layer, RMS and batch normalization.

use super::init::TensorOptions;
use super::{Mode, Module, Parameter, Visitor};
use crate::tensor::is_recomputing;
use crate::{DType, Error, ErrorKind, Result, Tensor, no_grad};

/// [`Tensor::layer_norm`] with a trainable weight and bias.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{LayerNorm, Mode, Module};
///
/// let norm = LayerNorm::new(2, &device)?;
/// let x = kiln::Tensor::from_slice(&[1.0f32, 3.0], (1, 2), &device)?;
/// let y = norm.forward(&x, &Mode::inference())?.to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LayerNorm {
    /// The scale of each element of a row.
    pub weight: Parameter,
    /// The bias of each element of a row.
    pub bias: Parameter,
    eps: f32,
}

impl LayerNorm {
    /// Creates a layer for rows of this length, with weights of 1 and biases of 0.
    ///
    /// See [`LayerNorm`] for an example.
    ///
    /// # Errors
    /// Returns `OutOfMemory` and device errors.
    pub fn new(length: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        let (weight, bias) = ones_and_zeros(length, &options.into())?;
        Ok(Self { weight, bias, eps: 1e-5 })
    }

    /// Sets the epsilon added to the variance. The default is 1e-5.
    ///
    /// See [`LayerNorm`] for an example.
    pub fn eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }
}

/// Creates the initial weight and bias of a norm.
pub(super) fn ones_and_zeros(length: usize, options: &TensorOptions) -> Result<(Parameter, Parameter)> {
    let TensorOptions { dtype, device } = options;
    let ones = Parameter::new(&Tensor::ones(length, *dtype, device)?)?;
    Ok((ones, Parameter::new(&Tensor::zeros(length, *dtype, device)?)?))
}

impl Module for LayerNorm {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let [weight, bias] = [&self.weight, &self.bias].map(|parameter| parameter.get().to_dtype(input.dtype()));
        input.layer_norm(Some(&weight?), Some(&bias?), self.eps)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.parameter("bias", &self.bias);
    }
}

/// [`Tensor::rms_norm`] with a trainable weight.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Mode, Module, RmsNorm};
///
/// let norm = RmsNorm::new(2, &device)?;
/// let x = kiln::Tensor::from_slice(&[2.0f32, -2.0], (1, 2), &device)?;
/// let y = norm.forward(&x, &Mode::inference())?.to_vec::<f32>()?;
/// assert!((y[0] - 1.0).abs() < 1e-4 && (y[1] + 1.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RmsNorm {
    /// The scale of each element of a row.
    pub weight: Parameter,
    eps: f32,
}

impl RmsNorm {
    /// Creates a layer for rows of this length, with weights of 1.
    ///
    /// See [`RmsNorm`] for an example.
    ///
    /// # Errors
    /// Returns `OutOfMemory` and device errors.
    pub fn new(length: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        let TensorOptions { dtype, device } = options.into();
        Ok(Self { weight: Parameter::new(&Tensor::ones(length, dtype, &device)?)?, eps: 1e-6 })
    }

    /// Sets the epsilon added to the mean square. The default is 1e-6.
    ///
    /// See [`RmsNorm`] for an example.
    pub fn eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }
}

impl Module for RmsNorm {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        input.rms_norm(Some(&self.weight.get().to_dtype(input.dtype())?), self.eps)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
    }
}

/// Batch normalization of the channels along axis 1, for inputs of any rank. Training uses the mean and variance of
/// the batch, inference the running statistics.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{BatchNorm, Mode, Module};
///
/// let norm = BatchNorm::new(1, &device)?;
/// let x = kiln::Tensor::from_slice(&[1.0f32, 3.0], (2, 1), &device)?;
/// let y = norm.forward(&x, &Mode::training(0))?.to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
/// assert!((norm.running_mean.get().to_scalar::<f32>()? - 0.2).abs() < 1e-6); // a tenth of the way to 2
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "BatchNorm1d")]
#[doc(alias = "BatchNorm2d")]
#[doc(alias = "BatchNorm3d")]
pub struct BatchNorm {
    /// The scale of each channel.
    pub weight: Parameter,
    /// The bias of each channel.
    pub bias: Parameter,
    /// The running mean of each channel.
    pub running_mean: Parameter,
    /// The running variance of each channel.
    pub running_var: Parameter,
    eps: f32,
    momentum: f64,
}

impl BatchNorm {
    /// Creates a layer for this many channels.
    ///
    /// See [`BatchNorm`] for an example.
    ///
    /// # Errors
    /// Returns `OutOfMemory` and device errors.
    pub fn new(channels: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        let options = options.into();
        let (weight, bias) = ones_and_zeros(channels, &options)?;
        let TensorOptions { dtype, device } = options;
        let running_mean = Parameter::buffer(&Tensor::zeros(channels, dtype, &device)?)?;
        let running_var = Parameter::buffer(&Tensor::ones(channels, dtype, &device)?)?;
        Ok(Self { weight, bias, running_mean, running_var, eps: 1e-5, momentum: 0.1 })
    }

    /// Sets the epsilon added to the variance. The default is 1e-5.
    ///
    /// See [`BatchNorm`] for an example.
    pub fn eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// Sets the weight of a new batch in the running statistics. The default is 0.1.
    ///
    /// See [`BatchNorm`] for an example.
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Computes the mean and variance of each channel of a batch, and updates the running statistics, except in the
    /// second call of a checkpointed function.
    fn measure(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        let own = self.weight.get().elem_count();
        let count = match &input.shape()[..] {
            [_, channels, ..] if *channels == own && input.elem_count() > 0 => input.elem_count() / channels,
            _ => {
                let (dtype, shape) = (input.dtype(), input.shape());
                let message =
                    format!("batch_norm expected a batch with {own} channels along axis 1, found {dtype} {shape}");
                return Err(Error::new(ErrorKind::ShapeMismatch, message));
            }
        };
        let axes: Vec<usize> = (0..input.rank()).filter(|&axis| axis != 1).collect();
        let mean = input.mean_keepdim(&axes)?;
        // Two passes: the difference of the mean of squares and the squared mean cancels when the mean is large.
        let variance = input.sub(&mean)?.square()?.mean_keepdim(&axes)?;
        let (mean, variance) = (mean.reshape(own)?, variance.reshape(own)?);
        if is_recomputing() {
            return Ok((mean, variance));
        }
        no_grad(|| -> Result<()> {
            // Bessel's correction: the running variance is unbiased, as in PyTorch.
            let drawn = count as f64 / (count.max(2) - 1) as f64;
            let variance = variance.mul_scalar(drawn)?;
            for (buffer, batch) in [(&self.running_mean, &mean), (&self.running_var, &variance)] {
                let before = buffer.get();
                let (wide, dtype) = (before.to_dtype(DType::F32)?, before.dtype());
                let moved = wide.mul_scalar(1.0 - self.momentum)?.add(&batch.mul_scalar(self.momentum)?)?;
                buffer.set(&moved.to_dtype(dtype)?)?;
            }
            Ok(())
        })?;
        Ok((mean, variance))
    }
}

impl Module for BatchNorm {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        // Squares of `f16` values can overflow `f16`.
        let wide = input.to_dtype(DType::F32)?;
        let own = |parameter: &Parameter| parameter.get().to_dtype(DType::F32);
        let (mean, variance) =
            if mode.is_training() { self.measure(&wide)? } else { (own(&self.running_mean)?, own(&self.running_var)?) };
        let (weight, bias) = (own(&self.weight)?, own(&self.bias)?);
        wide.batch_norm(&mean, &variance, Some(&weight), Some(&bias), self.eps)?.to_dtype(input.dtype())
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.parameter("bias", &self.bias);
        visitor.parameter("running_mean", &self.running_mean);
        visitor.parameter("running_var", &self.running_var);
    }
}
