//! Parameters, and the visitor that names them.

use super::Module;
use crate::{Error, ErrorKind, Result, Tensor};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// A tensor that changes from step to step: a trainable weight, or a buffer such as a running mean. Clones refer to
/// the same parameter.
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
    is_trainable: bool,
}

impl Parameter {
    /// Creates a trainable parameter, for which gradients are computed.
    ///
    /// See [`Parameter`] for an example.
    ///
    /// # Errors
    /// Same as [`Tensor::requires_grad`].
    pub fn new(tensor: &Tensor) -> Result<Self> {
        Ok(Self { tensor: Arc::new(Mutex::new(tensor.requires_grad()?)), is_trainable: true })
    }

    /// Creates a buffer, such as a running mean: saved with the parameters, not trained.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::{DType, Tensor, nn::Parameter};
    ///
    /// let mean = Parameter::buffer(&Tensor::zeros(8, DType::F32, &device)?)?;
    /// assert!(!mean.is_trainable());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Tensor::eval`].
    pub fn buffer(tensor: &Tensor) -> Result<Self> {
        tensor.eval()?;
        Ok(Self { tensor: Arc::new(Mutex::new(tensor.detach())), is_trainable: false })
    }

    /// Returns the current tensor.
    ///
    /// See [`Parameter`] for an example.
    pub fn get(&self) -> Tensor {
        self.tensor.lock().clone()
    }

    /// Returns whether both handles refer to the same parameter.
    ///
    /// See [`Parameter`] for an example.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tensor, &other.tensor)
    }

    /// Returns whether the parameter is trainable.
    ///
    /// See [`buffer`](Self::buffer) for an example.
    pub fn is_trainable(&self) -> bool {
        self.is_trainable
    }

    /// Replaces the tensor with another of the same shape, dtype and device, and clears the gradient.
    ///
    /// See [`Parameter`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if shape, dtype or device differ, and the errors of [`Tensor::eval`].
    pub fn set(&self, tensor: &Tensor) -> Result<()> {
        let own = self.get();
        let is_like = own.shape() == tensor.shape() && own.dtype() == tensor.dtype();
        if !is_like || !own.device().is_same(tensor.device()) {
            let describe = |tensor: &Tensor| format!("{} {} on {}", tensor.dtype(), tensor.shape(), tensor.device());
            let message = format!("a parameter expected {}, found {}", describe(&own), describe(tensor));
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // A new leaf: detached, so that it does not keep the graph that computed it alive, and without a gradient.
        let tensor = if self.is_trainable {
            tensor.detach().requires_grad()?
        } else {
            tensor.eval()?;
            tensor.detach()
        };
        *self.tensor.lock() = tensor;
        Ok(())
    }

    /// Returns the gradient, if one was computed.
    ///
    /// See [`Parameter`] for an example.
    pub fn grad(&self) -> Option<Tensor> {
        self.get().grad()
    }

    /// Clears the gradient, so that the next backward pass starts from zero.
    ///
    /// See [`Parameter`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a buffer, which has no gradient.
    pub fn zero_grad(&self) -> Result<()> {
        self.get().set_grad(None)
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = self.get();
        let kind = if self.is_trainable { "Parameter" } else { "Buffer" };
        write!(f, "{kind}({} {})", tensor.dtype(), tensor.shape())
    }
}

/// Receives the parameters that [`Module::visit`] names, and prefixes their names with those of the enclosing layers.
///
/// See [`nn`](super) for an example.
pub struct Visitor<'a> {
    path: String,
    found: &'a mut dyn FnMut(&str, &Parameter),
}

impl<'a> Visitor<'a> {
    /// Creates a visitor that calls a function for each parameter with its full name.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::nn::{Linear, Module, Visitor};
    ///
    /// let (layer, mut names) = (Linear::new(3, 2, &device)?, Vec::new());
    /// layer.visit(&mut Visitor::new(&mut |name, _| names.push(name.to_string())));
    /// assert_eq!(names, ["weight", "bias"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(found: &'a mut dyn FnMut(&str, &Parameter)) -> Self {
        Self { path: String::new(), found }
    }

    /// Visits a parameter of the layer.
    ///
    /// See [`nn`](super) for an example.
    pub fn parameter(&mut self, name: &str, parameter: &Parameter) {
        self.under(name, |visitor| (visitor.found)(&visitor.path, parameter));
    }

    /// Visits an optional parameter.
    ///
    /// See [`nn`](super) for an example.
    pub fn optional(&mut self, name: &str, parameter: Option<&Parameter>) {
        if let Some(parameter) = parameter {
            self.parameter(name, parameter);
        }
    }

    /// Visits a sublayer.
    ///
    /// See [`nn`](super) for an example.
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
