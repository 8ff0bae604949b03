//! Group and instance normalization.

use super::init::TensorOptions;
use super::norm::ones_and_zeros;
use super::{Mode, Module, Parameter, Visitor};
use crate::{DType, Error, ErrorKind, Result, Tensor};

/// Group normalization: divides the channels of each example, along axis 1, into groups, and normalizes each group to
/// mean 0 and variance 1.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{GroupNorm, Mode, Module};
///
/// let norm = GroupNorm::new(1, 2, &device)?; // one group of two channels
/// let x = kiln::Tensor::from_slice(&[1.0f32, 3.0], (1, 2), &device)?;
/// let y = norm.forward(&x, &Mode::inference())?.to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[1] - 1.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct GroupNorm {
    /// The scale of each channel.
    pub weight: Option<Parameter>,
    /// The bias of each channel.
    pub bias: Option<Parameter>,
    groups: usize,
    channels: usize,
    eps: f32,
}

impl GroupNorm {
    /// Creates a layer for `channels` channels in `groups` groups, with weights of 1 and biases of 0.
    ///
    /// See [`GroupNorm`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the channels do not divide evenly, `OutOfMemory`, and device errors.
    pub fn new(groups: usize, channels: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            let message = format!("group_norm expected channels divisible by {groups} groups, found {channels}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let (weight, bias) = ones_and_zeros(channels, &options.into())?;
        Ok(Self { weight: Some(weight), bias: Some(bias), groups, channels, eps: 1e-5 })
    }

    /// Sets the epsilon added to the variance. The default is 1e-5.
    ///
    /// See [`GroupNorm`] for an example.
    pub fn eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// Removes weight and bias.
    ///
    /// See [`GroupNorm`] for an example.
    pub fn without_affine(self) -> Self {
        Self { weight: None, bias: None, ..self }
    }
}

impl Module for GroupNorm {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        normalise("group_norm", self.groups, self.channels, [&self.weight, &self.bias], self.eps, input)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.optional("weight", self.weight.as_ref());
        visitor.optional("bias", self.bias.as_ref());
    }
}

/// Instance normalization: normalizes each channel of each example to mean 0 and variance 1. It uses the statistics
/// of the input, in training and inference.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{InstanceNorm, Mode, Module};
///
/// let norm = InstanceNorm::new(2);
/// let x = kiln::Tensor::from_slice(&[1.0f32, 3.0, 10.0, 10.0], (1, 2, 2), &device)?;
/// let y = norm.forward(&x, &Mode::inference())?.to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && y[2] == 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "InstanceNorm1d")]
#[doc(alias = "InstanceNorm2d")]
#[doc(alias = "InstanceNorm3d")]
pub struct InstanceNorm {
    /// The scale of each channel.
    pub weight: Option<Parameter>,
    /// The bias of each channel.
    pub bias: Option<Parameter>,
    channels: usize,
    eps: f32,
}

impl InstanceNorm {
    /// Creates a layer for this many channels, without parameters (PyTorch's default).
    ///
    /// See [`InstanceNorm`] for an example.
    pub fn new(channels: usize) -> Self {
        Self { weight: None, bias: None, channels, eps: 1e-5 }
    }

    /// Adds weights of 1 and biases of 0.
    ///
    /// See [`InstanceNorm`] for an example.
    ///
    /// # Errors
    /// Returns `OutOfMemory` and device errors.
    pub fn affine(self, options: impl Into<TensorOptions>) -> Result<Self> {
        let (weight, bias) = ones_and_zeros(self.channels, &options.into())?;
        Ok(Self { weight: Some(weight), bias: Some(bias), ..self })
    }

    /// Sets the epsilon added to the variance. The default is 1e-5.
    ///
    /// See [`InstanceNorm`] for an example.
    pub fn eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }
}

impl Module for InstanceNorm {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        normalise("instance_norm", self.channels, self.channels, [&self.weight, &self.bias], self.eps, input)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.optional("weight", self.weight.as_ref());
        visitor.optional("bias", self.bias.as_ref());
    }
}

/// Normalizes groups of channels: each group is a row of a layer norm.
fn normalise(
    op: &str,
    groups: usize,
    channels: usize,
    [weight, bias]: [&Option<Parameter>; 2],
    eps: f32,
    input: &Tensor,
) -> Result<Tensor> {
    let (dtype, shape) = (input.dtype(), input.shape());
    let &[batch, found, ..] = &shape[..] else { return Err(wrong(op, channels, input)) };
    if found != channels {
        return Err(wrong(op, channels, input));
    }
    if !dtype.is_float() {
        let device = &input.device().info().id;
        let found = format!("found {dtype} {shape} on {device}; convert it with to_dtype");
        let message = format!("{op} expected a tensor of f16, bf16 or f32, {found}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if shape.elem_count() == 0 {
        return Ok(input.clone());
    }
    let row = shape.elem_count() / (batch * groups);
    // Squares of `f16` values can overflow `f16`.
    let wide = input.to_dtype(DType::F32)?;
    let mut result = wide.reshape((batch, groups, row))?.layer_norm(None, None, eps)?.reshape(shape.clone())?;
    let mut per_channel = vec![1; shape.len() - 1];
    per_channel[0] = channels;
    let own = |parameter: &Parameter| parameter.get().to_dtype(DType::F32)?.reshape(&per_channel[..]);
    if let Some(weight) = weight {
        result = result.mul(&own(weight)?)?;
    }
    if let Some(bias) = bias {
        result = result.add(&own(bias)?)?;
    }
    result.to_dtype(dtype)
}

fn wrong(op: &str, channels: usize, input: &Tensor) -> Error {
    let (dtype, shape, device) = (input.dtype(), input.shape(), &input.device().info().id);
    let message = format!("{op} expected (batch, {channels}, …), found {dtype} {shape} on {device}");
    Error::new(ErrorKind::ShapeMismatch, message)
}
