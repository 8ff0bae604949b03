//! Gradients: which tensors are tracked, and how a result reaches back to what it was computed from.
//!
//! A tensor of [`Tensor::requires_grad`] is tracked, and so is every float that is computed from a tracked one outside of [`no_grad`]: its node
//! keeps a `record` of the op and its inputs. `backward` walks these records from a result back, and lets each op say, through `build`, what it
//! makes of the gradient of its result. What it says are nodes of the same lazy graph, so gradients are fused, planned and run like all ops.
//! `pending` collects what reaches a tensor, and joins the gradients of its slices. `checkpoint` keeps a function instead of what it computed; `check` compares gradients with differences.

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
pub(crate) use mode::{is_again, is_tracking};
pub(super) use record::{GradientRule, Record};

use super::Tensor;
use super::check::{Name, invalid, unsupported};
use crate::Result;
use record::Source;

impl Tensor {
    /// This tensor as one that gradients are computed for. It shares its elements; what is computed from it is tracked. Gradients end here: what a
    /// tracked tensor was computed from has none of them.
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
    /// `Unsupported` for integers; as [`eval`](Self::eval), because the elements are computed.
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

    /// Whether gradients reach this tensor: it is one of [`requires_grad`](Self::requires_grad), or was computed from one.
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

    /// The gradient that [`backward`](Self::backward) computed for this tensor: the sum, where it was called several times. `None` where nothing
    /// was computed, and for tensors that are not of [`requires_grad`](Self::requires_grad).
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

    /// Sets the gradient, or forgets it, so that the next [`backward`](Self::backward) begins anew.
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
    /// `InvalidArgument` where this tensor is not of [`requires_grad`](Self::requires_grad), or where the gradient has another shape, dtype or
    /// device.
    pub fn set_grad(&self, gradient: Option<Self>) -> Result<()> {
        let wrong = |what: &str| invalid(format!("set_grad expected {what}, found {}", Name(self)));
        let Some(record) = self.0.record.as_ref().filter(|record| record.is_leaf()) else {
            return Err(wrong("a tensor of requires_grad"));
        };
        if let Some(gradient) = &gradient
            && !gradient.0.kind.is_like(&self.0.kind)
        {
            return Err(wrong(&format!("a tensor like the gradient {}", Name(gradient))));
        }
        record.set_gradient(gradient);
        Ok(())
    }

    /// The same elements, not tracked: a constant for every gradient.
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
