//! The optimizer: packs all parameters of a device into one flat tensor and updates them together.

use super::rule::{Rule, Update};
use crate::nn::{self, Module, Parameter, Weights};
use crate::{DType, Error, ErrorKind, Result, Tensor, no_grad};
use std::fmt;
use std::path::Path;

/// The metadata key of the step count in a saved file.
const STEPS: &str = "steps";

/// Updates parameters from their gradients by a [`Rule`].
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Linear, Mode, Module, mse};
/// use kiln::optim::{Optimizer, Sgd};
/// use kiln::{DType, Tensor};
///
/// let net = Linear::new(2, 1, &device)?;
/// let mut optimizer = Optimizer::new(Sgd::new().momentum(0.9), &net)?.clip_norm(1.0);
/// let (x, y) = (Tensor::ones((4, 2), DType::F32, &device)?, Tensor::zeros((4, 1), DType::F32, &device)?);
/// mse(&net.forward(&x, &Mode::training(0))?, &y)?.backward()?;
/// optimizer.step(0.1)?;
/// assert_eq!(optimizer.steps(), 1);
///
/// // Restores the momentum of a run.
/// let state = optimizer.state()?;
/// optimizer.set_state(&state)?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Optimizer<R> {
    rule: R,
    groups: Vec<Group>,
    steps: u64,
    max_norm: Option<f64>,
}

/// The parameters of one device.
struct Group {
    parameters: Vec<(String, Parameter)>,
    /// The parameter tensors that `all` was packed from, or that were sliced from it.
    parts: Vec<Tensor>,
    all: Tensor,
    states: Vec<Tensor>,
}

/// The saved state of an [`Optimizer`]: the step count, and the states of its rule for each parameter.
///
/// See [`Optimizer`] for an example.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// The number of steps made.
    pub steps: u64,
    /// State tensors, named `<parameter>.<state>`.
    pub tensors: Vec<(String, Tensor)>,
}

impl<R: Rule> Optimizer<R> {
    /// Creates an optimizer for the trainable parameters of a module.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the module has no trainable parameters, `Unsupported` if one is not `f32`,
    /// `OutOfMemory`, and device errors.
    pub fn new(rule: R, module: &dyn Module) -> Result<Self> {
        Self::of(rule, module.parameters())
    }

    /// Creates an optimizer for named parameters. Buffers and duplicates are skipped.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn of(rule: R, parameters: Vec<(String, Parameter)>) -> Result<Self> {
        let mut sorted: Vec<Vec<(String, Parameter)>> = Vec::new();
        for (name, parameter) in parameters.into_iter().filter(|(_, parameter)| parameter.is_trainable()) {
            let own = parameter.get();
            if own.dtype() != DType::F32 {
                let message = format!(
                    "an optimizer expected f32 parameters, which layers convert to the dtype of their input, found {name} of {}",
                    describe(&own)
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            // A tied parameter appears under two names and must be updated once.
            if sorted.iter().flatten().any(|(_, other)| other.is_same(&parameter)) {
                continue;
            }
            let fits = |group: &&mut Vec<(String, Parameter)>| group[0].1.get().device().is_same(own.device());
            match sorted.iter_mut().find(fits) {
                Some(group) => group.push((name, parameter)),
                None => sorted.push(vec![(name, parameter)]),
            }
        }
        if sorted.is_empty() {
            return Err(invalid("an optimizer expected trainable parameters, found none".to_string()));
        }
        let group = |parameters: Vec<(String, Parameter)>| -> Result<Group> {
            let parts: Vec<Tensor> = parameters.iter().map(|(_, parameter)| parameter.get()).collect();
            // One flat tensor per device: a step is then a few kernels, however many parameters there are.
            let all = Tensor::packed(&parts)?;
            all.eval()?;
            let state = |_: &&str| Tensor::zeros(all.elem_count(), all.dtype(), all.device());
            let states = rule.states().iter().map(state).collect::<Result<_>>()?;
            Ok(Group { parameters, parts, all, states })
        };
        let groups = sorted.into_iter().map(group).collect::<Result<_>>()?;
        Ok(Self { rule, groups, steps: 0, max_norm: None })
    }

    /// Clips gradients by global L2 norm: if it exceeds `max_norm`, all gradients are scaled down to it.
    ///
    /// See [`Optimizer`] for an example.
    pub fn clip_norm(mut self, max_norm: f64) -> Self {
        self.max_norm = Some(max_norm);
        self
    }

    /// Returns the number of steps made.
    ///
    /// See [`Optimizer`] for an example.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates the parameters from their gradients at the given learning rate, and clears the gradients. A missing
    /// gradient counts as zeros.
    ///
    /// Pending gradient ops are evaluated here, together with the step.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if no parameter has a gradient, and device errors. Nothing is changed then.
    pub fn step(&mut self, learning_rate: f64) -> Result<()> {
        let gradients = self.gradients(1.0)?;
        self.apply(gradients, learning_rate)
    }

    /// Updates the parameters as [`step`](Self::step) does, with gradients divided by `scale`. If a gradient is
    /// infinite or NaN, the step is skipped and the gradients are cleared. Returns whether the step was made.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Same as [`step`](Self::step).
    pub fn step_if_finite(&mut self, learning_rate: f64, scale: f64) -> Result<bool> {
        let gradients = self.gradients(1.0 / scale)?;
        for gradient in &gradients {
            // The maximum propagates NaN, so one comparison finds both NaN and infinities.
            let largest = no_grad(|| gradient.abs()?.max_all()?.to_scalar::<f32>())?;
            if !largest.is_finite() {
                // A step creates leaves without gradients; a skipped step must not leave infinite ones to be added
                // to.
                self.zero_grad()?;
                return Ok(false);
            }
        }
        self.apply(gradients, learning_rate)?;
        Ok(true)
    }

    /// Clears all gradients, so that the next backward pass starts from zero. A step does that too.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Does not fail for the parameters of an optimizer, which are all trainable.
    pub fn zero_grad(&self) -> Result<()> {
        self.groups.iter().flat_map(|group| &group.parameters).try_for_each(|(_, own)| own.zero_grad())
    }

    /// Packs the gradients of each group into one tensor, times a factor.
    fn gradients(&self, factor: f64) -> Result<Vec<Tensor>> {
        let has_any = self.groups.iter().flat_map(|group| &group.parameters).any(|(_, own)| own.grad().is_some());
        if !has_any {
            let message = "an optimizer expected gradients, found none; call backward before step";
            return Err(invalid(message.to_string()));
        }
        let of_group = |group: &Group| {
            let gradient = |(_, parameter): &(String, Parameter)| {
                let zeros = || {
                    let own = parameter.get();
                    Tensor::zeros(own.shape(), own.dtype(), own.device())
                };
                parameter.grad().map_or_else(zeros, Ok)
            };
            let gradients = group.parameters.iter().map(gradient).collect::<Result<Vec<_>>>()?;
            let all = Tensor::packed(&gradients)?;
            if factor == 1.0 { Ok(all) } else { all.mul_scalar(factor) }
        };
        no_grad(|| self.groups.iter().map(of_group).collect())
    }

    fn apply(&mut self, gradients: Vec<Tensor>, learning_rate: f64) -> Result<()> {
        no_grad(|| {
            let gradients = self.clipped(gradients)?;
            // Compute all groups before setting any, so that an error changes nothing.
            let mut results = Vec::new();
            for (group, gradients) in self.groups.iter().zip(&gradients) {
                let update = Update {
                    parameters: &group.current()?,
                    gradients,
                    states: &group.states,
                    learning_rate,
                    number: self.steps + 1,
                };
                let result = self.rule.step(&update)?;
                // Evaluated in each step: otherwise the states of successive steps would accumulate in one pending
                // graph.
                Tensor::eval_all(&result.iter().collect::<Vec<_>>())?;
                results.push(result);
            }
            for (group, mut result) in self.groups.iter_mut().zip(results) {
                group.states = result.split_off(1);
                group.set(result.remove(0))?;
            }
            self.steps += 1;
            Ok(())
        })
    }

    /// Applies gradient clipping, if enabled.
    fn clipped(&self, gradients: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let Some(max_norm) = self.max_norm else { return Ok(gradients) };
        let first = gradients[0].device().clone();
        let squares = |gradient: &Tensor| gradient.square()?.sum_all()?.to_device(&first);
        let mut sum = squares(&gradients[0])?;
        for gradient in &gradients[1..] {
            sum = sum.add(&squares(gradient)?)?;
        }
        // The epsilon avoids a division by zero, as in PyTorch's `clip_grad_norm_`.
        let factor = sum.sqrt()?.add_scalar(1e-6)?.recip()?.mul_scalar(max_norm)?.minimum(1.0)?;
        let scaled = |gradient: &Tensor| gradient.mul(&factor.to_device(gradient.device())?);
        gradients.iter().map(scaled).collect()
    }

    /// Saves the optimizer state to a file, including the step count.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Same as [`nn::save_tensors`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let OptimizerState { steps, tensors } = self.state()?;
        nn::save_tensors(path, &tensors, &[(STEPS.to_string(), steps.to_string())].into())
    }

    /// Restores the state from a file written by [`save`](Self::save).
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Same as [`Weights::load`] and [`set_state`](Self::set_state), and `InvalidArgument` if the file has no step
    /// count.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        let weights = Weights::load(path, self.groups[0].all.device())?;
        let found = weights.metadata().get(STEPS);
        let steps = found.and_then(|steps| steps.parse().ok()).ok_or_else(|| {
            let path = path.display();
            invalid(format!("{path}: expected the number of steps under the metadata key {STEPS}, found {found:?}"))
        })?;
        let read = |name: &str| Ok((name.to_string(), weights.tensor(name)?));
        let tensors = weights.names().map(read).collect::<Result<_>>()?;
        self.set_state(&OptimizerState { steps, tensors }).map_err(|error| error.context(path.display().to_string()))
    }

    /// Returns the optimizer state, to save with the parameters.
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Returns device errors.
    pub fn state(&self) -> Result<OptimizerState> {
        let mut tensors = Vec::new();
        for group in &self.groups {
            for (state, name) in group.states.iter().zip(self.rule.states()) {
                for ((own, _), part) in group.parameters.iter().zip(group.split(state)?) {
                    tensors.push((format!("{own}.{name}"), part));
                }
            }
        }
        Ok(OptimizerState { steps: self.steps, tensors })
    }

    /// Restores a state returned by [`state`](Self::state).
    ///
    /// See [`Optimizer`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a tensor is missing, unexpected, or has the wrong shape or dtype. Nothing is
    /// changed then.
    pub fn set_state(&mut self, state: &OptimizerState) -> Result<()> {
        let wanted: usize = self.groups.iter().map(|group| group.parameters.len() * group.states.len()).sum();
        // With equal counts, and every expected name found below, the state has no surplus tensors.
        if wanted != state.tensors.len() {
            let found = state.tensors.len();
            return Err(invalid(format!("an optimizer expected a state of {wanted} tensors, found {found}")));
        }
        let find = |name: String, like: &Tensor| {
            let found = state.tensors.iter().find(|(found, _)| *found == name).map(|(_, tensor)| tensor);
            let found = found
                .ok_or_else(|| invalid(format!("an optimizer expected {name} in its state, found no such tensor")))?;
            if found.shape() != like.shape() || found.dtype() != like.dtype() {
                let (wanted, found) = (describe(like), describe(found));
                return Err(invalid(format!("an optimizer expected {name} of {wanted} in its state, found {found}")));
            }
            found.to_device(like.device())
        };
        let of_group = |group: &Group| {
            let of_state = |name: &&str| {
                let own = |(own, parameter): &(String, Parameter)| find(format!("{own}.{name}"), &parameter.get());
                Tensor::packed(&group.parameters.iter().map(own).collect::<Result<Vec<_>>>()?)
            };
            self.rule.states().iter().map(of_state).collect::<Result<Vec<_>>>()
        };
        let all = self.groups.iter().map(of_group).collect::<Result<Vec<_>>>()?;
        for (group, states) in self.groups.iter_mut().zip(all) {
            group.states = states;
        }
        self.steps = state.steps;
        Ok(())
    }
}

impl Group {
    /// Returns the packed parameters; packs them again if one was replaced since the last step.
    fn current(&self) -> Result<Tensor> {
        let own: Vec<Tensor> = self.parameters.iter().map(|(_, parameter)| parameter.get()).collect();
        let is_own = own.iter().zip(&self.parts).all(|(own, part)| own.is_same(part));
        if is_own { Ok(self.all.clone()) } else { Tensor::packed(&own) }
    }

    /// Sets the parameters to slices of a packed tensor.
    fn set(&mut self, all: Tensor) -> Result<()> {
        for ((_, parameter), part) in self.parameters.iter().zip(self.split(&all)?) {
            parameter.set(&part)?;
        }
        self.parts = self.parameters.iter().map(|(_, parameter)| parameter.get()).collect();
        self.all = all;
        Ok(())
    }

    /// Slices a packed tensor into one tensor per parameter.
    fn split(&self, all: &Tensor) -> Result<Vec<Tensor>> {
        let mut start = 0;
        let part = |(_, parameter): &(String, Parameter)| {
            let own = parameter.get();
            start += own.elem_count();
            all.slice(0, start - own.elem_count()..start)?.reshape(own.shape())
        };
        self.parameters.iter().map(part).collect()
    }
}

fn describe(tensor: &Tensor) -> String {
    format!("{} {}", tensor.dtype(), tensor.shape())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

impl<R: fmt::Debug> fmt::Debug for Optimizer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters: usize = self.groups.iter().map(|group| group.parameters.len()).sum();
        f.debug_struct("Optimizer")
            .field("rule", &self.rule)
            .field("parameters", &parameters)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
