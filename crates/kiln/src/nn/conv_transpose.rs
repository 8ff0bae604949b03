//! Transposed convolutions: the gradient of a convolution with respect to its input, as a layer.

use super::conv::{add_bias, expect_images};
use super::init::{self, TensorOptions};
use super::{Mode, Module, Parameter, Visitor};
use crate::arguments::IntoPair;
use crate::kernels::window::{Fold, Window};
use crate::{Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

/// A transposed convolution over images `(batch, channels, height, width)`, also called deconvolution: each element of the input adds a
/// window of weights to the output.
///
/// The output has `(height - 1) * stride - 2 * padding + dilation * (size - 1) + output_padding + 1` rows; columns
/// follow the same formula.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{ConvTranspose2d, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let layer = ConvTranspose2d::new(8, 3, 2, &device)?.stride(2);
/// let images = Tensor::ones([4, 8, 5, 5], DType::F32, &device)?;
/// assert_eq!(layer.forward(&images, &Mode::inference())?.shape()[..], [4, 3, 10, 10]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ConvTranspose2d {
    /// `(channels, output channels, kernel height, kernel width)`, as in PyTorch.
    pub weight: Parameter,
    /// One number per output channel.
    pub bias: Option<Parameter>,
    window: Window,
    output_padding: [usize; 2],
}

impl ConvTranspose2d {
    /// Creates a layer with weights and a bias uniform in ±1/√(outputs · window) (PyTorch's default), stride 1 and no
    /// padding. A size is a number, or a pair `(vertical, horizontal)`.
    ///
    /// See [`ConvTranspose2d`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, `OutOfMemory`, and device errors.
    pub fn new(
        channels: usize,
        outputs: usize,
        size: impl IntoPair,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        let (size, options) = (size.into_pair(), options.into());
        // PyTorch computes fan-in from the second weight axis, also for transposed convolutions.
        let drawn = |shape: &[usize]| {
            Parameter::new(&init::fan_in_uniform(
                shape,
                outputs.saturating_mul(size[0]).saturating_mul(size[1]),
                &options,
            )?)
        };
        let weight = drawn(&[channels, outputs, size[0], size[1]])?;
        let window = Window { size, stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
        Ok(Self { weight, bias: Some(drawn(&[outputs])?), window, output_padding: [0, 0] })
    }

    /// Sets the stride, vertical and horizontal.
    ///
    /// See [`ConvTranspose2d`] for an example.
    pub fn stride(mut self, stride: impl IntoPair) -> Self {
        self.window.stride = stride.into_pair();
        self
    }

    /// Sets the padding: the number of rows and columns removed on each side of the output.
    ///
    /// See [`ConvTranspose2d`] for an example.
    pub fn padding(mut self, padding: impl IntoPair) -> Self {
        self.window.padding = padding.into_pair();
        self
    }

    /// Sets how many rows and columns are added at the bottom and right of the output: fewer than the stride. It
    /// selects one of the input sizes that a convolution with this stride maps to the same output size.
    ///
    /// See [`ConvTranspose2d`] for an example.
    pub fn output_padding(mut self, padding: impl IntoPair) -> Self {
        self.output_padding = padding.into_pair();
        self
    }

    /// Sets the dilation.
    ///
    /// See [`ConvTranspose2d`] for an example.
    pub fn dilation(mut self, dilation: impl IntoPair) -> Self {
        self.window.dilation = dilation.into_pair();
        self
    }

    /// Removes the bias.
    ///
    /// See [`ConvTranspose2d`] for an example.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

impl Module for ConvTranspose2d {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let weight = self.weight.get();
        expect_images("conv_transpose2d", &["height", "width"], weight.shape()[0], input)?;
        let op = Transposed { name: "conv_transpose2d", window: self.window, output_padding: self.output_padding };
        op.apply(input, &weight, self.bias.as_ref())
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.optional("bias", self.bias.as_ref());
    }
}

/// A transposed convolution over sequences `(batch, channels, length)`; see [`ConvTranspose2d`].
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{ConvTranspose1d, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let layer = ConvTranspose1d::new(2, 1, 4, &device)?.stride(2).padding(1);
/// let x = Tensor::ones((5, 2, 9), DType::F32, &device)?;
/// assert_eq!(layer.forward(&x, &Mode::inference())?.shape()[..], [5, 1, 18]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ConvTranspose1d {
    /// `(channels, output channels, kernel length)`, as in PyTorch.
    pub weight: Parameter,
    /// One number per output channel.
    pub bias: Option<Parameter>,
    window: Window,
    output_padding: [usize; 2],
}

impl ConvTranspose1d {
    /// Creates a layer, initialized as by [`ConvTranspose2d::new`].
    ///
    /// See [`ConvTranspose1d`] for an example.
    ///
    /// # Errors
    /// Same as [`ConvTranspose2d::new`].
    pub fn new(channels: usize, outputs: usize, size: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        let ConvTranspose2d { weight, bias, window, output_padding } =
            ConvTranspose2d::new(channels, outputs, [1, size], options)?;
        Ok(Self { weight: Parameter::new(&weight.get().detach().squeeze(2)?)?, bias, window, output_padding })
    }

    /// Sets the stride.
    ///
    /// See [`ConvTranspose1d`] for an example.
    pub fn stride(mut self, stride: usize) -> Self {
        self.window.stride[1] = stride;
        self
    }

    /// Sets the padding: the number of elements removed on each side of the output.
    ///
    /// See [`ConvTranspose1d`] for an example.
    pub fn padding(mut self, padding: usize) -> Self {
        self.window.padding[1] = padding;
        self
    }

    /// Sets how many elements are added at the end of the output: fewer than the stride.
    ///
    /// See [`ConvTranspose1d`] for an example.
    pub fn output_padding(mut self, padding: usize) -> Self {
        self.output_padding[1] = padding;
        self
    }

    /// Sets the dilation.
    ///
    /// See [`ConvTranspose1d`] for an example.
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.window.dilation[1] = dilation;
        self
    }

    /// Removes the bias.
    ///
    /// See [`ConvTranspose1d`] for an example.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

impl Module for ConvTranspose1d {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let weight = self.weight.get();
        expect_images("conv_transpose1d", &["length"], weight.shape()[0], input)?;
        let op = Transposed { name: "conv_transpose1d", window: self.window, output_padding: self.output_padding };
        op.apply(&input.unsqueeze(2)?, &weight.unsqueeze(2)?, self.bias.as_ref())?.squeeze(2)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        visitor.optional("bias", self.bias.as_ref());
    }
}

struct Transposed {
    name: &'static str,
    window: Window,
    output_padding: [usize; 2],
}

impl Transposed {
    /// Computes the windows of all input elements with one matrix multiplication; [`Fold`] sums them where they
    /// overlap (col2im).
    fn apply(&self, input: &Tensor, weight: &Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
        let (&[batch, channels, height, width], &[_, outputs, down, across]) =
            (&input.shape()[..], &weight.shape()[..])
        else {
            unreachable!("the layers check the input")
        };
        let image = self.output([height, width], input)?;
        let positions = height * width;
        // The gradient of im2col: each input element is multiplied by the window, and `Fold` adds up the overlapping
        // windows.
        let rows = input.permute([0, 2, 3, 1])?.reshape((batch * positions, channels))?;
        let places = outputs * down * across;
        let rows = rows.matmul(&weight.to_dtype(input.dtype())?.reshape((channels, places))?)?;
        let rows = rows.reshape((batch, positions, places))?;
        add_bias(Tensor::kernel(Arc::new(Fold { window: self.window, image }), &[&rows])?, bias)
    }

    /// Returns the height and width of the output.
    fn output(&self, input: [usize; 2], tensor: &Tensor) -> Result<[usize; 2]> {
        let Window { size, stride, padding, dilation } = self.window;
        let wrong = |kind, what: &str| {
            let (name, window, output_padding) = (self.name, &self.window, self.output_padding);
            let (dtype, shape, device) = (tensor.dtype(), tensor.shape(), &tensor.device().info().id);
            let message = format!(
                "{name} expected {what}, found {dtype} {shape} on {device} for {window:?} and output_padding {output_padding:?}"
            );
            Err(Error::new(kind, message))
        };
        if [size, stride, dilation].concat().contains(&0) {
            return wrong(ErrorKind::InvalidArgument, "sizes, strides and dilations of at least 1");
        }
        // Output padding selects one of the `stride` input lengths for which a convolution has the same output
        // length.
        if (0..2).any(|axis| self.output_padding[axis] >= stride[axis]) {
            return wrong(ErrorKind::InvalidArgument, "an output_padding below the stride");
        }
        let along = |axis: usize| {
            let window = dilation[axis].checked_mul(size[axis] - 1)?.checked_add(1)?;
            let whole = input[axis].checked_sub(1)?.checked_mul(stride[axis])?.checked_add(window)?;
            let whole = whole.checked_add(self.output_padding[axis])?;
            whole.checked_sub(padding[axis].checked_mul(2)?).filter(|length| *length > 0)
        };
        match (along(0), along(1)) {
            (Some(down), Some(across)) => Ok([down, across]),
            _ => wrong(ErrorKind::ShapeMismatch, "an input whose output has at least one element"),
        }
    }
}
