//! Update rules: SGD, Adam and AdamW.

use crate::{Result, Tensor};

/// An update rule of an optimizer. The parameters of a device are packed into one tensor of rank 1, so a rule is a few
/// elementwise ops.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::optim::{Rule, Update};
/// use kiln::{Result, Tensor};
///
/// /// Moves each parameter by the learning rate, against the sign of its gradient.
/// struct SignSgd;
///
/// impl Rule for SignSgd {
///     fn states(&self) -> &'static [&'static str] {
///         &[]
///     }
///
///     fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>> {
///         let change = update.gradients.sign()?.mul_scalar(update.learning_rate)?;
///         Ok(vec![update.parameters.sub(&change)?])
///     }
/// }
///
/// let net = kiln::nn::Linear::new(2, 1, &device)?;
/// let optimizer = kiln::optim::Optimizer::new(SignSgd, &net)?;
/// # let _ = optimizer;
/// # Ok(())
/// # }
/// ```
pub trait Rule: Send + Sync {
    /// Returns the names of the tensors that the rule keeps between steps. Each has the shape of the packed
    /// [`parameters`](Update::parameters), and starts as zeros.
    ///
    /// See [`Rule`] for an example.
    fn states(&self) -> &'static [&'static str];

    /// Returns the parameters after a step, followed by the states in the order of [`states`](Self::states).
    ///
    /// See [`Rule`] for an example.
    ///
    /// # Errors
    /// Returns device errors.
    fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>>;
}

/// A rule chosen at run time.
impl Rule for Box<dyn Rule> {
    fn states(&self) -> &'static [&'static str] {
        (**self).states()
    }

    fn step(&self, update: &Update<'_>) -> Result<Vec<Tensor>> {
        (**self).step(update)
    }
}

/// The inputs of one optimizer step, for all parameters of one device.
///
/// See [`Rule`] for an example.
#[derive(Debug)]
pub struct Update<'a> {
    /// The elements of all parameters, packed into one `f32` tensor of rank 1.
    pub parameters: &'a Tensor,
    /// Their gradients, packed in the same order.
    pub gradients: &'a Tensor,
    /// The states, in the order of [`Rule::states`].
    pub states: &'a [Tensor],
    /// The learning rate.
    pub learning_rate: f64,
    /// The number of the step, starting at 1.
    pub number: u64,
}

/// Stochastic gradient descent, with optional momentum, Nesterov momentum and weight decay.
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
    /// Creates a rule without momentum or weight decay.
    ///
    /// See [`Sgd`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the momentum.
    ///
    /// See [`Sgd`] for an example.
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Enables Nesterov momentum; no effect without momentum.
    ///
    /// See [`Sgd`] for an example.
    pub fn nesterov(self) -> Self {
        Self { is_nesterov: true, ..self }
    }

    /// Sets the weight decay (L2 penalty), which is added to the gradients.
    ///
    /// See [`Sgd`] for an example.
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
            return Ok(vec![update.parameters.sub(&gradients.mul_scalar(update.learning_rate)?)?]);
        };
        let momentum = before.mul_scalar(self.momentum)?.add(&gradients)?;
        let direction =
            if self.is_nesterov { gradients.add(&momentum.mul_scalar(self.momentum)?)? } else { momentum.clone() };
        Ok(vec![update.parameters.sub(&direction.mul_scalar(update.learning_rate)?)?, momentum])
    }
}

/// Returns the gradients with weight decay added.
fn decayed(update: &Update<'_>, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 {
        return Ok(update.gradients.clone());
    }
    update.gradients.add(&update.parameters.mul_scalar(weight_decay)?)
}

/// Adam, and AdamW with [`decoupled_weight_decay`](Self::decoupled_weight_decay). The step size follows the learning
/// rate, independent of the gradient scale.
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
    /// Creates a rule with the default betas 0.9 and 0.999, epsilon 1e-8, and no weight decay.
    ///
    /// See [`Adam`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the decay rates of the running mean and mean square of the gradients.
    ///
    /// See [`Adam`] for an example.
    pub fn betas(self, mean: f64, square: f64) -> Self {
        Self { betas: [mean, square], ..self }
    }

    /// Sets the epsilon added to the root of the mean square.
    ///
    /// See [`Adam`] for an example.
    pub fn eps(self, eps: f64) -> Self {
        Self { eps, ..self }
    }

    /// Sets the weight decay (L2 penalty), which is added to the gradients.
    ///
    /// See [`Adam`] for an example.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay, is_decoupled: false, ..self }
    }

    /// Sets decoupled weight decay (AdamW): parameters shrink by `learning_rate * weight_decay` per step,
    /// independent of their gradients.
    ///
    /// See [`Adam`] for an example.
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
            // AdamW: the decay does not pass through the moments, so it is not divided by the root of the second one.
            update.parameters.mul_scalar(1.0 - update.learning_rate * self.weight_decay)?
        } else {
            update.parameters.clone()
        };
        let average =
            |before: &Tensor, now: &Tensor, beta: f64| before.mul_scalar(beta)?.add(&now.mul_scalar(1.0 - beta)?);
        let mean = average(&update.states[0], &gradients, self.betas[0])?;
        let square = average(&update.states[1], &gradients.square()?, self.betas[1])?;
        // Bias correction: both running averages start at zero.
        let [mean_weight, square_weight] = self.betas.map(|beta| 1.0 - beta.powf(update.number as f64));
        let scale = square.mul_scalar(1.0 / square_weight)?.sqrt()?.add_scalar(self.eps)?;
        let change = mean.mul_scalar(update.learning_rate / mean_weight)?.div(&scale)?;
        Ok(vec![parameters.sub(&change)?, mean, square])
    }
}
