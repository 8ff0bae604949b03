//! Convolutions: what a window sees at each position, as rows, times a matrix.

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
    /// `(outputs, channels / groups, height, width)` of the window, as in PyTorch.
    pub weight: Parameter,
    /// A number for each output.
    pub bias: Option<Parameter>,
    window: Window,
    groups: usize,
}

impl Conv2d {
    /// Creates a layer with weights and a bias that are uniform in ±1/√fan_in (PyTorch's default), stride 1 and no padding. A size is a number, or a pair
    /// `(down, across)`.
    ///
    /// # Errors
    /// `InvalidArgument` for integers; `OutOfMemory` and the device's faults.
    pub fn new(
        channels: usize,
        outputs: usize,
        size: impl IntoPair,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        Self::grouped(channels, outputs, size, 1, options)
    }

    /// Creates a layer whose channels and outputs are in `groups`: the outputs of a group see the channels of that group alone. With as many groups as channels
    /// it is a depthwise convolution.
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
    /// `InvalidArgument` where there is no group, or where the groups divide the channels or the outputs unequally; otherwise as [`new`](Self::new).
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

    /// Sets the step from one position of the window to the next: down and across.
    pub fn stride(mut self, stride: impl IntoPair) -> Self {
        self.window.stride = stride.into_pair();
        self
    }

    /// Sets how many zeros are around the image.
    pub fn padding(mut self, padding: impl IntoPair) -> Self {
        self.window.padding = padding.into_pair();
        self
    }

    /// Sets the step from one place in the window to the next.
    pub fn dilation(mut self, dilation: impl IntoPair) -> Self {
        self.window.dilation = dilation.into_pair();
        self
    }

    /// Leaves out the bias.
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
    /// `(outputs, channels / groups, length)` of the window, as in PyTorch.
    pub weight: Parameter,
    /// A number for each output.
    pub bias: Option<Parameter>,
    window: Window,
    groups: usize,
}

impl Conv1d {
    /// Creates a layer as [`Conv2d::new`] does.
    ///
    /// # Errors
    /// As [`Conv2d::new`].
    pub fn new(channels: usize, outputs: usize, size: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        Self::grouped(channels, outputs, size, 1, options)
    }

    /// Creates a layer with groups as [`Conv2d::grouped`] does.
    ///
    /// # Errors
    /// As [`Conv2d::grouped`].
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

    /// Sets the step from one position of the window to the next.
    pub fn stride(mut self, stride: usize) -> Self {
        self.window.stride[1] = stride;
        self
    }

    /// Sets how many zeros are on both sides of the sequence.
    pub fn padding(mut self, padding: usize) -> Self {
        self.window.padding[1] = padding;
        self
    }

    /// Sets the step from one place in the window to the next.
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.window.dilation[1] = dilation;
        self
    }

    /// Leaves out the bias.
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

/// A number for each channel of images, added.
pub(super) fn add_bias(images: Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(images) };
    let bias = bias.get().to_dtype(images.dtype())?;
    images.add(&bias.reshape((bias.elem_count(), 1, 1))?)
}

/// A convolution of images with a weight `(outputs, channels / groups, height, width)`.
fn convolve(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Parameter>,
    window: Window,
    groups: usize,
) -> Result<Tensor> {
    let &[batch, _, height, width] = &input.shape()[..] else { unreachable!("the layers check the input") };
    let [down, across] = window.positions([height, width])?;
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
    result.reshape([batch, down, across, outputs])?.permute([0, 3, 1, 2])
}

/// The product of rows `(count, groups * places)` with a weight `(outputs, places)`, group by group: `(count, outputs)`.
///
/// With one output in each group, as in a depthwise convolution, it is an elementwise product and a sum, which become one kernel. Otherwise it is a
/// matrix product for each group.
fn grouped_product(rows: &Tensor, weight: &Tensor, groups: usize) -> Result<Tensor> {
    let (count, (outputs, places)) = (rows.shape()[0], weight.dims2()?);
    let rows = rows.reshape((count, groups, places))?;
    if outputs == groups {
        return rows.mul(weight)?.sum(2);
    }
    let weight = weight.reshape((groups, outputs / groups, places))?.transpose(1, 2)?;
    rows.transpose(0, 1)?.matmul(&weight)?.transpose(0, 1)?.reshape((count, outputs))
}

/// Each example as one row.
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
