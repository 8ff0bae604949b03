//! Update rules: how a step changes parameters, given their gradients.

use crate::{Result, Tensor};

/// An update rule of an optimizer. All parameters are packed into one tensor, so a rule is a few elementwise ops.
pub trait Rule: Send + Sync {
    /// The names of the tensors that the rule keeps from step to step, one element for each parameter. They start as zeros.
    fn states(&self) -> &'static [&'static str];

    /// Returns the parameters after a step, followed by the states.
    ///
    /// # Errors
    /// The device's faults.
    fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>>;
}

/// A rule that is chosen when the program runs.
impl Rule for Box<dyn Rule> {
    fn states(&self) -> &'static [&'static str] {
        (**self).states()
    }

    fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>> {
        (**self).step(update)
    }
}

/// The inputs of one optimizer step, for all parameters of one dtype and device.
#[derive(Debug)]
pub struct Update<'a> {
    /// The parameters.
    pub parameters: &'a Tensor,
    /// Their gradients.
    pub gradients: &'a Tensor,
    /// The states, in the order of [`Rule::states`].
    pub states: &'a [Tensor],
    /// The learning rate.
    pub rate: f64,
    /// The number of the step, starting at 1.
    pub number: u64,
}

/// Stochastic gradient descent: parameters go against the gradient, or against what is left of it and those before.
///
/// ```
/// let rule = kiln::optim::Sgd::new().momentum(0.9).nesterov().weight_decay(1e-4);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[must_use]
pub struct Sgd {
    momentum: f64,
    is_nesterov: bool,
    weight_decay: f64,
}

impl Sgd {
    /// Without momentum or decay.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much of what the last step followed stays.
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Looks ahead by one step of momentum; nothing changes where there is none.
    pub fn nesterov(self) -> Self {
        Self { is_nesterov: true, ..self }
    }

    /// Adds so much of the parameters to their gradients.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay, ..self }
    }
}

impl Rule for Sgd {
    fn states(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum"] }
    }

    fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>> {
        let gradients = decayed(update, self.weight_decay)?;
        let Some(before) = update.states.first() else {
            return Ok(vec![update.parameters.sub(&gradients.mul_scalar(update.rate)?)?]);
        };
        let momentum = before.mul_scalar(self.momentum)?.add(&gradients)?;
        let followed =
            if self.is_nesterov { gradients.add(&momentum.mul_scalar(self.momentum)?)? } else { momentum.clone() };
        Ok(vec![update.parameters.sub(&followed.mul_scalar(update.rate)?)?, momentum])
    }
}

/// The gradients with a share of the parameters.
fn decayed(update: &Update<'_>, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 {
        return Ok(update.gradients.clone());
    }
    update.gradients.add(&update.parameters.mul_scalar(weight_decay)?)
}

/// Adam, and AdamW with [`decoupled_weight_decay`](Self::decoupled_weight_decay): steps of the size of the rate, whatever that of the gradients is.
///
/// ```
/// let adam = kiln::optim::Adam::new().betas(0.9, 0.98);
/// let adam_w = kiln::optim::Adam::new().decoupled_weight_decay(0.01);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Adam {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    is_decoupled: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, is_decoupled: false }
    }
}

impl Adam {
    /// With the constants of its authors, 0.9, 0.999 and 1e-8, and no decay.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much of the mean and of the mean square of the gradients stays in a step.
    pub fn betas(self, mean: f64, square: f64) -> Self {
        Self { betas: [mean, square], ..self }
    }

    /// What is added to the root of the mean square.
    pub fn eps(self, eps: f64) -> Self {
        Self { eps, ..self }
    }

    /// Adds so much of the parameters to their gradients.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay, is_decoupled: false, ..self }
    }

    /// Makes parameters smaller by so much of the rate, apart from their gradients: AdamW.
    pub fn decoupled_weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay, is_decoupled: true, ..self }
    }
}

impl Rule for Adam {
    fn states(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>> {
        let gradients = decayed(update, if self.is_decoupled { 0.0 } else { self.weight_decay })?;
        let parameters = if self.is_decoupled {
            update.parameters.mul_scalar(1.0 - update.rate * self.weight_decay)?
        } else {
            update.parameters.clone()
        };
        let towards =
            |before: &Tensor, now: &Tensor, stays: f64| before.mul_scalar(stays)?.add(&now.mul_scalar(1.0 - stays)?);
        let mean = towards(&update.states[0], &gradients, self.betas[0])?;
        let square = towards(&update.states[1], &gradients.square()?, self.betas[1])?;
        // Both begin at zero, which counts less with every step.
        let [whole_mean, whole_square] = self.betas.map(|beta| 1.0 - beta.powf(update.number as f64));
        let size = square.mul_scalar(1.0 / whole_square)?.sqrt()?.add_scalar(self.eps)?;
        let change = mean.mul_scalar(update.rate / whole_mean)?.div(&size)?;
        Ok(vec![parameters.sub(&change)?, mean, square])
    }
}
