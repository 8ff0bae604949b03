//! Attention of a sequence to itself.

use super::{Linear, Mode, Module, Visitor};
use crate::{AttentionOptions, Device, Error, ErrorKind, Result, Tensor};

/// Several heads of [`Tensor::attention`] over a sequence `(batch, length, width)`, with projections before and behind.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Mode, Module, SelfAttention};
/// use kiln::{DType, Tensor};
///
/// let layer = SelfAttention::new(8, 2, &device)?.causal();
/// let x = Tensor::randn((1, 5, 8), DType::F32, &device)?;
/// assert_eq!(layer.forward(&x, &Mode::inference())?.shape(), x.shape());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SelfAttention {
    /// Queries, keys and values, one behind the other.
    pub inputs: Linear,
    /// What becomes of the heads' results.
    pub output: Linear,
    heads: usize,
    is_causal: bool,
}

impl SelfAttention {
    /// For elements of `width` numbers, which `heads` share.
    ///
    /// # Errors
    /// `InvalidArgument` where they cannot share them evenly; as [`Linear::new`].
    pub fn new(width: usize, heads: usize, device: &Device) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            let message = format!("attention expected a width that {heads} heads share evenly, found {width}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let (inputs, output) = (Linear::new(width, 3 * width, device)?, Linear::new(width, width, device)?);
        Ok(Self { inputs, output, heads, is_causal: false })
    }

    /// Each element sees itself and those before it only.
    pub fn causal(self) -> Self {
        Self { is_causal: true, ..self }
    }
}

impl Module for SelfAttention {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        let &[batch, length, width] = &input.shape()[..] else {
            let message = format!("attention expected (batch, length, width), found {}", input.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, message));
        };
        let all = self.inputs.forward(input, mode)?.reshape([batch, length, 3, self.heads, width / self.heads])?;
        // (3, batch, heads, length, width of a head)
        let all = all.permute(&[2, 0, 3, 1, 4])?;
        let part = |number| all.select(0, number);
        let options = AttentionOptions::new();
        let options = if self.is_causal { options.causal() } else { options };
        let seen = Tensor::attention(&part(0)?, &part(1)?, &part(2)?, options)?;
        self.output.forward(&seen.transpose(1, 2)?.reshape((batch, length, width))?, mode)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("inputs", &self.inputs);
        visitor.module("output", &self.output);
    }
}
