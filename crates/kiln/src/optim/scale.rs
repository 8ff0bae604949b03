//! Gradients of `f16` in range.

use super::{Optimizer, Rule};
use crate::{DType, Result, Tensor};

/// A factor for the loss, so that small gradients are not lost in `f16`: it grows while all goes well, and a step whose gradients are beyond `f16`
/// is left out and makes it smaller.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Linear, Mode, Module, mse};
/// use kiln::optim::{LossScale, Optimizer, Sgd};
/// use kiln::{DType, Tensor};
///
/// let net = Linear::new(2, 1, &device)?;
/// let (mut optimizer, mut scale) = (Optimizer::new(Sgd::new(), &net)?, LossScale::new());
/// let x = Tensor::ones((4, 2), DType::F16, &device)?;
/// let loss = mse(&net.forward(&x, &Mode::training(0))?, &Tensor::ones((4, 1), DType::F16, &device)?)?;
/// scale.scaled(&loss)?.backward()?;
/// assert!(scale.step(&mut optimizer, 0.1)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct LossScale {
    scale: f64,
    good: u32,
    grows_after: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: 65536.0, good: 0, grows_after: 2000 }
    }
}

impl LossScale {
    /// Begins at 65,536, and doubles after 2,000 good steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins here.
    pub fn initial(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// Doubles after so many good steps.
    pub fn grows_after(self, steps: u32) -> Self {
        Self { grows_after: steps, ..self }
    }

    /// Goes on after so many good steps: with [`initial`](Self::initial), what a run that is resumed needs.
    pub fn after_good_steps(self, good: u32) -> Self {
        Self { good, ..self }
    }

    /// Good steps since the factor has changed.
    pub fn good_steps(&self) -> u32 {
        self.good
    }

    /// The factor as it is now.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The loss to call `backward` on.
    ///
    /// # Errors
    /// The device's faults.
    pub fn scaled(&self, loss: &Tensor) -> Result<Tensor> {
        loss.to_dtype(DType::F32)?.mul_scalar(self.scale)
    }

    /// A step with the gradients of a scaled loss. Returns whether it was made.
    ///
    /// # Errors
    /// As [`Optimizer::step`].
    pub fn step<R: Rule>(&mut self, optimizer: &mut Optimizer<R>, rate: f64) -> Result<bool> {
        let is_good = optimizer.step_if_finite(rate, self.scale)?;
        self.good = if is_good { self.good + 1 } else { 0 };
        if !is_good {
            self.scale = (self.scale / 2.0).max(1.0);
        } else if self.good >= self.grows_after {
            (self.scale, self.good) = (self.scale * 2.0, 0);
        }
        Ok(is_good)
    }
}
