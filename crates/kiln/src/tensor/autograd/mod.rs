//! Reverse-mode automatic differentiation.
//!
//! A tensor of [`Tensor::requires_grad`] is tracked, and so is every float tensor computed from a tracked one outside
//! [`no_grad`]: its node keeps a `record` of the op and its inputs. `backward` walks these records in reverse, and
//! `build` applies the gradient rule of each op. The results are nodes of the same lazy graph, so gradients are
//! fused, planned and run like all ops. `pending` accumulates the gradients of a tensor, and joins those of its
//! slices. `checkpoint` recomputes a function instead of storing its intermediates; `check` compares gradients with
//! finite differences.

mod backward;
mod build;
mod check;
mod checkpoint;
mod function;
mod mode;
mod pending;
mod record;

pub use backward::BackwardOptions;
pub use check::{GradientCheck, GradientReport, check_gradients};
pub use checkpoint::checkpoint;
pub use function::{grad, value_and_grad};
pub use mode::no_grad;
pub(crate) use mode::{is_recomputing, is_tracking};
pub(super) use record::{GradientRule, Record};

use super::Tensor;
use super::check::{Name, invalid, unsupported};
use crate::Result;
use record::Source;

impl Tensor {
    /// Returns a tracked leaf tensor that shares the elements of this tensor. Tensors computed from it are tracked.
    /// Gradients stop here: they do not flow to the tensors that this one was computed from.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?.requires_grad()?;
    /// x.mul(&x)?.sum_all()?.backward()?;
    /// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` for integer dtypes, and the errors of [`eval`](Self::eval), because the elements are
    /// computed.
    pub fn requires_grad(&self) -> Result<Self> {
        if !self.dtype().is_float() {
            let found = Name(self);
            return Err(unsupported(format!(
                "requires_grad expected a tensor of f16, bf16 or f32, found {found}; convert it with to_dtype"
            )));
        }
        self.eval()?;
        Ok(self.with_record(Some(Record::new(Source::Leaf))))
    }

    /// Returns whether gradients flow to this tensor: it comes from [`requires_grad`](Self::requires_grad), or was
    /// computed from such a tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32], 1, &device)?;
    /// assert!(!x.exp()?.is_tracked());
    /// assert!(x.requires_grad()?.exp()?.is_tracked());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_tracked(&self) -> bool {
        self.0.record.is_some()
    }

    /// Returns the gradient that [`backward`](Self::backward) accumulated for this tensor, summed over calls. `None`
    /// if there is none, and for tensors that do not come from [`requires_grad`](Self::requires_grad).
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[3.0f32], 1, &device)?.requires_grad()?;
    /// assert!(x.grad().is_none());
    /// for _ in 0..2 {
    ///     x.square()?.backward()?;
    /// }
    /// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?, [12.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn grad(&self) -> Option<Self> {
        self.0.record.as_ref()?.gradient()
    }

    /// Sets or clears the gradient. After clearing it, the next [`backward`](Self::backward) starts from zero.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[3.0f32], 1, &device)?.requires_grad()?;
    /// x.square()?.backward()?;
    /// x.set_grad(None)?;
    /// assert!(x.grad().is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if this tensor does not come from [`requires_grad`](Self::requires_grad), or if the
    /// gradient has another shape, dtype or device.
    pub fn set_grad(&self, gradient: Option<Self>) -> Result<()> {
        let wrong = |what: &str| invalid(format!("set_grad expected {what}, found {}", Name(self)));
        let Some(record) = self.0.record.as_ref().filter(|record| record.is_leaf()) else {
            return Err(wrong("a tensor with requires_grad"));
        };
        if let Some(gradient) = &gradient
            && !gradient.0.kind.is_like(&self.0.kind)
        {
            return Err(wrong(&format!("a tensor like the gradient {}", Name(gradient))));
        }
        record.set_gradient(gradient);
        Ok(())
    }

    /// Returns an untracked tensor with the same elements: a constant for autograd.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[3.0f32], 1, &device)?.requires_grad()?;
    /// x.mul(&x.detach())?.backward()?;
    /// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?, [3.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn detach(&self) -> Self {
        if self.is_tracked() { self.with_record(None) } else { self.clone() }
    }
}
