//! What is learnt.

use super::Module;
use crate::{Error, ErrorKind, Result, Tensor};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// A tensor that changes from step to step: a weight that is learnt, or a statistic that a layer keeps. Clones are the same parameter.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, nn::Parameter};
///
/// let weight = Parameter::new(&Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?)?;
/// weight.get().square()?.sum_all()?.backward()?;
/// assert_eq!(weight.grad().expect("it was computed").to_vec::<f32>()?, [2.0, 4.0]);
/// weight.set(&Tensor::from_slice(&[0.0f32, 0.0], 2, &device)?)?;
/// assert!(weight.grad().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Parameter {
    tensor: Arc<Mutex<Tensor>>,
    is_learnt: bool,
}

impl Parameter {
    /// A parameter that is learnt: gradients are computed for it.
    ///
    /// # Errors
    /// As [`Tensor::requires_grad`].
    pub fn new(tensor: &Tensor) -> Result<Self> {
        Ok(Self { tensor: Arc::new(Mutex::new(tensor.requires_grad()?)), is_learnt: true })
    }

    /// A statistic: saved with the parameters, and no matter for optimisers.
    ///
    /// # Errors
    /// As [`Tensor::eval`].
    pub fn statistic(tensor: &Tensor) -> Result<Self> {
        tensor.eval()?;
        Ok(Self { tensor: Arc::new(Mutex::new(tensor.detach())), is_learnt: false })
    }

    /// The tensor as it is now.
    pub fn get(&self) -> Tensor {
        self.tensor.lock().clone()
    }

    /// Whether both are the same parameter.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tensor, &other.tensor)
    }

    /// Whether gradients are computed for it.
    pub fn is_learnt(&self) -> bool {
        self.is_learnt
    }

    /// Puts another tensor of the same shape, dtype and device in its place, without a gradient.
    ///
    /// # Errors
    /// `InvalidArgument` where they differ; as [`Tensor::eval`].
    pub fn set(&self, tensor: &Tensor) -> Result<()> {
        let own = self.get();
        let is_like = own.shape() == tensor.shape() && own.dtype() == tensor.dtype();
        if !is_like || !own.device().is_same(tensor.device()) {
            let describe = |tensor: &Tensor| format!("{} {} on {}", tensor.dtype(), tensor.shape(), tensor.device());
            let message = format!("a parameter expected {}, found {}", describe(&own), describe(tensor));
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let tensor = if self.is_learnt {
            tensor.detach().requires_grad()?
        } else {
            tensor.eval()?;
            tensor.detach()
        };
        *self.tensor.lock() = tensor;
        Ok(())
    }

    /// The gradient that was computed for it.
    pub fn grad(&self) -> Option<Tensor> {
        self.get().grad()
    }

    /// Forgets the gradient, so that the next backward pass begins anew.
    ///
    /// # Errors
    /// `InvalidArgument` for a statistic, which has none.
    pub fn zero_grad(&self) -> Result<()> {
        self.get().set_grad(None)
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = self.get();
        let kind = if self.is_learnt { "Parameter" } else { "Statistic" };
        write!(f, "{kind}({} {})", tensor.dtype(), tensor.shape())
    }
}

/// What [`Module::visit`] names parameters to: it puts the names of the layers around them in front.
pub struct Visitor<'a> {
    path: String,
    found: &'a mut dyn FnMut(&str, &Parameter),
}

impl<'a> Visitor<'a> {
    /// One that calls a function for each parameter, with its whole name.
    pub fn new(found: &'a mut dyn FnMut(&str, &Parameter)) -> Self {
        Self { path: String::new(), found }
    }

    /// A parameter of the layer.
    pub fn parameter(&mut self, name: &str, parameter: &Parameter) {
        self.under(name, |visitor| (visitor.found)(&visitor.path, parameter));
    }

    /// Names a parameter that the layer may have.
    pub fn optional(&mut self, name: &str, parameter: Option<&Parameter>) {
        if let Some(parameter) = parameter {
            self.parameter(name, parameter);
        }
    }

    /// A layer inside of the layer.
    pub fn module(&mut self, name: &str, module: &dyn Module) {
        self.under(name, |visitor| module.visit(visitor));
    }

    fn under(&mut self, name: &str, then: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        then(self);
        self.path.truncate(length);
    }
}

impl fmt::Debug for Visitor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("path", &self.path).finish_non_exhaustive()
    }
}
