//! Dynamic loss scaling for `f16` gradients.

use super::{Optimizer, Rule};
use crate::{DType, Result, Tensor};

/// Dynamic loss scaling, which keeps small gradients from underflowing in `f16`. The scale grows after a run of good
/// steps; a step with overflowing gradients is skipped and reduces the scale.
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
    growth_interval: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: 65536.0, good: 0, growth_interval: 2000 }
    }
}

impl LossScale {
    /// Creates a loss scale that starts at 65,536 and doubles after 2,000 good steps.
    ///
    /// See [`LossScale`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the initial scale.
    ///
    /// See [`LossScale`] for an example.
    pub fn initial(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// Sets the number of good steps after which the scale doubles.
    ///
    /// See [`LossScale`] for an example.
    pub fn growth_interval(self, steps: u32) -> Self {
        Self { growth_interval: steps, ..self }
    }

    /// Sets the current number of good steps; with [`initial`](Self::initial), this resumes a run.
    ///
    /// See [`LossScale`] for an example.
    pub fn after_good_steps(self, good: u32) -> Self {
        Self { good, ..self }
    }

    /// Returns the number of good steps since the scale last changed.
    ///
    /// See [`LossScale`] for an example.
    pub fn good_steps(&self) -> u32 {
        self.good
    }

    /// Returns the current scale.
    ///
    /// See [`LossScale`] for an example.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the scaled loss, on which to call `backward`.
    ///
    /// See [`LossScale`] for an example.
    ///
    /// # Errors
    /// Returns device errors.
    pub fn scaled(&self, loss: &Tensor) -> Result<Tensor> {
        loss.to_dtype(DType::F32)?.mul_scalar(self.scale)
    }

    /// Makes an optimizer step with the gradients of a scaled loss. Returns whether the step was made.
    ///
    /// See [`LossScale`] for an example.
    ///
    /// # Errors
    /// Same as [`Optimizer::step`].
    pub fn step<R: Rule>(&mut self, optimizer: &mut Optimizer<R>, learning_rate: f64) -> Result<bool> {
        let is_good = optimizer.step_if_finite(learning_rate, self.scale)?;
        self.good = if is_good { self.good + 1 } else { 0 };
        if !is_good {
            // Factors of 2: with the default scale, a power of two, scaling and unscaling change exponents only and
            // do not round.
            self.scale = (self.scale / 2.0).max(1.0);
        } else if self.good >= self.growth_interval {
            (self.scale, self.good) = (self.scale * 2.0, 0);
        }
        Ok(is_good)
    }
}
