//! Convolutions as im2col and matrix multiplication.

use super::init::{self, TensorOptions};
use super::{Mode, Module, Parameter, Visitor};
use crate::arguments::IntoPair;
use crate::kernels::window::{Unfold, Window};
use crate::{Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

/// A convolution over images `(batch, channels, height, width)`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Conv2d, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let layer = Conv2d::new(1, 8, 3, &device)?.stride(2).padding((1, 1));
/// let images = Tensor::ones([4, 1, 8, 8], DType::F32, &device)?;
/// assert_eq!(layer.forward(&images, &Mode::inference())?.shape()[..], [4, 8, 4, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Conv2d {
    /// `(output channels, channels / groups, kernel height, kernel width)`, as in PyTorch.
    pub weight: Parameter,
    /// One number per output channel.
    pub bias: Option<Parameter>,
    window: Window,
    groups: usize,
}

impl Conv2d {
    /// Creates a layer with weights and a bias uniform in ±1/√fan_in (PyTorch's default), stride 1 and no padding. A
    /// size is a number, or a pair `(vertical, horizontal)`.
    ///
    /// See [`Conv2d`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, `OutOfMemory`, and device errors.
    pub fn new(
        channels: usize,
        outputs: usize,
        size: impl IntoPair,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        Self::grouped(channels, outputs, size, 1, options)
    }

    /// Creates a grouped convolution: the output channels of a group see only the input channels of that group. With
    /// as many groups as channels it is a depthwise convolution.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::nn::{Conv2d, Mode, Module};
    /// use kiln::{DType, Tensor};
    ///
    /// let depthwise = Conv2d::grouped(16, 16, 3, 16, &device)?.padding(1);
    /// assert_eq!(depthwise.weight.get().dims(), [16, 1, 3, 3]);
    /// let images = Tensor::ones([4, 16, 8, 8], DType::F32, &device)?;
    /// assert_eq!(depthwise.forward(&images, &Mode::inference())?.dims(), [4, 16, 8, 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the number of groups is 0 or does not divide the input or output channels.
    /// Otherwise same as [`new`](Self::new).
    pub fn grouped(
        channels: usize,
        outputs: usize,
        size: impl IntoPair,
        groups: usize,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        if groups == 0 || !channels.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let message = format!(
                "a convolution expected groups that divide its channels and outputs, found {groups} groups for {channels} channels and {outputs} outputs"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let (size, options, seen) = (size.into_pair(), options.into(), channels / groups);
        // The product only scales the random numbers, so it may saturate; a shape that is too large is an error of
        // its own.
        let drawn = |shape: &[usize]| {
            Parameter::new(&init::fan_in_uniform(
                shape,
                seen.saturating_mul(size[0]).saturating_mul(size[1]),
                &options,
            )?)
        };
        let weight = drawn(&[outputs, seen, size[0], size[1]])?;
        let window = Window { size, stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
        Ok(Self { weight, bias: Some(drawn(&[outputs])?), window, groups })
    }

    /// Sets the stride, vertical and horizontal.
    ///
    /// See [`Conv2d`] for an example.
    pub fn stride(mut self, stride: impl IntoPair) -> Self {
        self.window.stride = stride.into_pair();
        self
    }

    /// Sets the zero padding on each side of the image.
    ///
    /// See [`Conv2d`] for an example.
    pub fn padding(mut self, padding: impl IntoPair) -> Self {
        self.window.padding = padding.into_pair();
        self
    }

    /// Sets the dilation.
    ///
    /// See [`Conv2d`] for an example.
    pub fn dilation(mut self, dilation: impl IntoPair) -> Self {
        self.window.dilation = dilation.into_pair();
        self
    }

    /// Removes the bias.
    ///
    /// See [`Conv2d`] for an example.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

impl Module for Conv2d {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let weight = self.weight.get();
        expect_images("conv2d", &["height", "width"], weight.shape()[1] * self.groups, input)?;
        convolve(input, &weight, self.bias.as_ref(), self.window, self.groups).map_err(|error| error.context("conv2d"))
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.optional("bias", self.bias.as_ref());
    }
}

/// A convolution over sequences `(batch, channels, length)`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Conv1d, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let layer = Conv1d::new(2, 4, 3, &device)?.padding(1);
/// let x = Tensor::ones((5, 2, 9), DType::F32, &device)?;
/// assert_eq!(layer.forward(&x, &Mode::inference())?.shape()[..], [5, 4, 9]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Conv1d {
    /// `(output channels, channels / groups, kernel length)`, as in PyTorch.
    pub weight: Parameter,
    /// One number per output channel.
    pub bias: Option<Parameter>,
    window: Window,
    groups: usize,
}

impl Conv1d {
    /// Creates a layer, initialized as by [`Conv2d::new`].
    ///
    /// See [`Conv1d`] for an example.
    ///
    /// # Errors
    /// Same as [`Conv2d::new`].
    pub fn new(channels: usize, outputs: usize, size: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        Self::grouped(channels, outputs, size, 1, options)
    }

    /// Creates a grouped convolution, as [`Conv2d::grouped`] does.
    ///
    /// See [`Conv1d`] for an example.
    ///
    /// # Errors
    /// Same as [`Conv2d::grouped`].
    pub fn grouped(
        channels: usize,
        outputs: usize,
        size: usize,
        groups: usize,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        let Conv2d { weight, bias, window, groups } = Conv2d::grouped(channels, outputs, [1, size], groups, options)?;
        let weight = Parameter::new(&weight.get().detach().squeeze(2)?)?;
        Ok(Self { weight, bias, window, groups })
    }

    /// Sets the stride.
    ///
    /// See [`Conv1d`] for an example.
    pub fn stride(mut self, stride: usize) -> Self {
        self.window.stride[1] = stride;
        self
    }

    /// Sets the zero padding on each side of the sequence.
    ///
    /// See [`Conv1d`] for an example.
    pub fn padding(mut self, padding: usize) -> Self {
        self.window.padding[1] = padding;
        self
    }

    /// Sets the dilation.
    ///
    /// See [`Conv1d`] for an example.
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.window.dilation[1] = dilation;
        self
    }

    /// Removes the bias.
    ///
    /// See [`Conv1d`] for an example.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

impl Module for Conv1d {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let weight = self.weight.get();
        expect_images("conv1d", &["length"], weight.shape()[1] * self.groups, input)?;
        convolve(&input.unsqueeze(2)?, &weight.unsqueeze(2)?, self.bias.as_ref(), self.window, self.groups)
            .map_err(|error| error.context("conv1d"))?
            .squeeze(2)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.optional("bias", self.bias.as_ref());
    }
}

/// Checks that the input is `(batch, channels, axes...)`.
pub(super) fn expect_images(op: &str, axes: &[&str], channels: usize, input: &Tensor) -> Result<()> {
    let (dtype, shape, device) = (input.dtype(), input.shape(), &input.device().info().id);
    if !dtype.is_float() {
        let message = format!(
            "{op} expected images of f16, bf16 or f32, found {dtype} {shape} on {device}; convert them with to_dtype"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if input.rank() == axes.len() + 2 && input.shape()[1] == channels {
        return Ok(());
    }
    let message = format!("{op} expected (batch, {channels}, {}), found {dtype} {shape} on {device}", axes.join(", "));
    Err(Error::new(ErrorKind::ShapeMismatch, message))
}

/// Adds one bias per channel to images.
pub(super) fn add_bias(images: Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(images) };
    let bias = bias.get().to_dtype(images.dtype())?;
    images.add(&bias.reshape((bias.elem_count(), 1, 1))?)
}

/// Convolves images with a weight `(output channels, channels / groups, kernel height, kernel width)`.
fn convolve(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Parameter>,
    window: Window,
    groups: usize,
) -> Result<Tensor> {
    let &[batch, _, height, width] = &input.shape()[..] else { unreachable!("the layers check the input") };
    let [down, across] = window.positions([height, width])?;
    // im2col: each row holds the elements under one position of the window, channel by channel, so that the
    // convolution is one matrix multiplication.
    let rows = Tensor::kernel(Arc::new(Unfold { window }), &[input])?;
    let (places, outputs) = (rows.shape()[2], weight.shape()[0]);
    let rows = rows.reshape((batch * down * across, places))?;
    let weight = weight.to_dtype(input.dtype())?.reshape((outputs, places / groups))?;
    let mut result = match groups {
        1 => rows.matmul(&weight.t()?)?,
        _ => grouped_product(&rows, &weight, groups)?,
    };
    if let Some(bias) = bias {
        result = result.add(&bias.get().to_dtype(input.dtype())?)?;
    }
    // The matmul produces channels last; channels first is a view of it.
    result.reshape([batch, down, across, outputs])?.permute([0, 3, 1, 2])
}

/// Multiplies rows `(count, groups * places)` by a weight `(outputs, places)`, group by group; returns
/// `(count, outputs)`.
///
/// With one output channel per group, as in a depthwise convolution, it is an elementwise product and a sum, which
/// fuse into one kernel. Otherwise it is one matrix multiplication per group.
fn grouped_product(rows: &Tensor, weight: &Tensor, groups: usize) -> Result<Tensor> {
    let (count, (outputs, places)) = (rows.shape()[0], weight.dims2()?);
    let rows = rows.reshape((count, groups, places))?;
    if outputs == groups {
        return rows.mul(weight)?.sum(2);
    }
    let weight = weight.reshape((groups, outputs / groups, places))?.transpose(1, 2)?;
    rows.transpose(0, 1)?.matmul(&weight)?.transpose(0, 1)?.reshape((count, outputs))
}

/// Flattens each example into one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flatten;

impl Module for Flatten {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let Some(&batch) = input.shape().first() else { return input.unsqueeze(0) };
        let length = input.shape()[1..].iter().product::<usize>();
        input.reshape((batch, length))
    }

    fn visit(&self, _: &mut Visitor<'_>) {}
}
