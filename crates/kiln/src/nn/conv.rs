//! Convolutions: what a window sees at each position, as rows, times a matrix.

use super::{Mode, Module, Parameter, Visitor, linear};
use crate::kernels::window::{Unfold, Window};
use crate::{Device, Error, ErrorKind, Result, Tensor};
use std::sync::Arc;

/// A convolution over images `(batch, channels, height, width)`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Conv2d, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let layer = Conv2d::new(1, 8, [3, 3], &device)?.stride([2, 2]).padding([1, 1]);
/// let images = Tensor::ones([4, 1, 8, 8], DType::F32, &device)?;
/// assert_eq!(layer.forward(&images, &Mode::inference())?.shape()[..], [4, 8, 4, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Conv2d {
    /// `(outputs, channels, height, width)` of the window, as other libraries have it.
    pub weight: Parameter,
    /// A number for each output.
    pub bias: Option<Parameter>,
    window: Window,
}

impl Conv2d {
    /// Weights and bias between plus and minus the inverse of the root of what a window sees, from the device's random numbers. The window moves
    /// by 1, and stays inside of the image.
    ///
    /// # Errors
    /// `OutOfMemory` and the device's faults.
    pub fn new(channels: usize, outputs: usize, size: [usize; 2], device: &Device) -> Result<Self> {
        let bound = 1.0 / ((channels * size[0] * size[1]).max(1) as f64).sqrt();
        let weight = Parameter::new(&linear::uniform(&[outputs, channels, size[0], size[1]], bound, device)?)?;
        let bias = Some(Parameter::new(&linear::uniform(&[outputs], bound, device)?)?);
        let window = Window { size, stride: [1, 1], padding: [0, 0], dilation: [1, 1] };
        Ok(Self { weight, bias, window })
    }

    /// From one position of the window to the next: down and across.
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.window.stride = stride;
        self
    }

    /// Zeros around the image.
    pub fn padding(mut self, padding: [usize; 2]) -> Self {
        self.window.padding = padding;
        self
    }

    /// From one place in the window to the next.
    pub fn dilation(mut self, dilation: [usize; 2]) -> Self {
        self.window.dilation = dilation;
        self
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }
}

impl Module for Conv2d {
    fn forward(&self, input: &Tensor, _: &Mode) -> Result<Tensor> {
        let weight = self.weight.get().to_dtype(input.dtype())?;
        let (outputs, channels) = (weight.shape()[0], weight.shape()[1]);
        let [batch, height, width] = match input.shape()[..] {
            [batch, found, height, width] if found == channels => [batch, height, width],
            _ => {
                let (dtype, shape) = (input.dtype(), input.shape());
                let message = format!("conv2d expected (batch, {channels}, height, width), found {dtype} {shape}");
                return Err(Error::new(ErrorKind::ShapeMismatch, message));
            }
        };
        let [down, across] = self.window.positions([height, width])?;
        let rows = Tensor::kernel(Arc::new(Unfold { window: self.window }), &[input])?;
        let places = rows.shape()[2];
        let rows = rows.reshape((batch * down * across, places))?;
        let mut result = rows.matmul(&weight.reshape((outputs, places))?.t()?)?;
        if let Some(bias) = &self.bias {
            result = result.add(&bias.get().to_dtype(input.dtype())?)?;
        }
        result.reshape([batch, down, across, outputs])?.permute(&[0, 3, 1, 2])
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        if let Some(bias) = &self.bias {
            visitor.parameter("bias", bias);
        }
    }
}

/// A convolution over sequences `(batch, channels, length)`: a [`Conv2d`] of height 1.
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
pub struct Conv1d(Conv2d);

impl Conv1d {
    /// As [`Conv2d::new`].
    ///
    /// # Errors
    /// As [`Conv2d::new`].
    pub fn new(channels: usize, outputs: usize, size: usize, device: &Device) -> Result<Self> {
        Ok(Self(Conv2d::new(channels, outputs, [1, size], device)?))
    }

    /// From one position of the window to the next.
    pub fn stride(self, stride: usize) -> Self {
        Self(self.0.stride([1, stride]))
    }

    /// Zeros on both sides of the sequence.
    pub fn padding(self, padding: usize) -> Self {
        Self(self.0.padding([0, padding]))
    }

    /// From one place in the window to the next.
    pub fn dilation(self, dilation: usize) -> Self {
        Self(self.0.dilation([1, dilation]))
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self(self.0.without_bias())
    }
}

impl Module for Conv1d {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        if input.rank() != 3 {
            let message =
                format!("conv1d expected (batch, channels, length), found {} {}", input.dtype(), input.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, message));
        }
        self.0.forward(&input.unsqueeze(2)?, mode)?.squeeze(2)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
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
