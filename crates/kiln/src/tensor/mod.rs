//! Tensors: what most users ever touch.
//!
//! A [`Tensor`] is a cheap handle to a node of a graph. Methods check shapes and dtypes at once and record what is to be done; reading
//! elements, [`Tensor::eval`] or a full batch runs it.
//!
//! In the order of the flow: `make` and `random` where tensors come from · `element`, `operators` and `fused` elementwise ops · `view` other
//! orders without copies · `reduce` · `linear`, `norm`, `attention`, `index`, `join`, `scan`, `sort`, `pool`, `einsum` hand-written kernels and what is composed of
//! them · `wgsl_op` kernels of users · `autograd` their gradients · `node` what a handle refers to · `run` how it is computed, explained and checked · `read` and `show` how its
//! elements reach the host.

mod attention;
mod autograd;
mod check;
mod dims;
mod einsum;
mod element;
mod fused;
mod index;
mod join;
mod linear;
mod literal;
mod make;
mod node;
mod norm;
mod operators;
mod pool;
mod random;
mod read;
mod rearrange;
mod reduce;
pub(crate) mod run;
mod scan;
mod show;
mod slicing;
mod sort;
mod view;
mod wgsl_op;

pub use attention::AttentionOptions;
pub(crate) use autograd::is_again;
pub use autograd::{
    BackwardOptions, GradientCheck, GradientReport, check_gradients, checkpoint, grad, no_grad, value_and_grad,
};
pub use check::{Axes, Axis};
pub use dims::{Dim, Dims};
pub use element::Operand;
pub use linear::Activation;
pub use literal::Literal;
pub use operators::OperatorRhs;
pub use pool::{IntoPair, PoolWindow};
pub use run::{TensorExplanation, VerifyReport};
pub use slicing::{Ellipsis, Index, IndexItem, NewAxis, Slice};
pub use wgsl_op::WgslOp;

use crate::{DType, Device, Result, Shape};
use node::TensorNode;
use std::sync::Arc;

/// A tensor: elements of one dtype along any number of axes, on one device.
///
/// Handles are cheap to clone and share their elements, which nothing changes: an op gives another tensor. Ops do not run when they are
/// called, but when elements are read ([`to_vec`](Self::to_vec)), on [`eval`](Self::eval), or when many wait; so chains of ops become few
/// kernels. Shape and dtype errors are returned by the method that caused them.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// use kiln::{Device, Tensor};
///
/// let device = Device::cpu()?;
/// let a = Tensor::from_slice(&[1.0f32, -2.0, 3.0, -4.0], (2, 2), &device)?;
/// let b = a.mul(&a)?.add_scalar(1.0)?.relu()?.sum(1)?; // one kernel
/// assert_eq!(b.to_vec::<f32>()?, [7.0, 27.0]); // runs here
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tensor(Arc<TensorNode>);

/// Whether the elements of a tensor are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// They are not stored: what computes them did not run yet, or ran inside of a kernel that stored only its result.
    Planned,
    /// What computes them is on its way to the device, or runs.
    Submitted,
    /// They are there.
    Ready,
}

impl Tensor {
    /// Whether both are handles of one tensor.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The lengths along each axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?;
    /// assert_eq!(x.shape()[..], [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shape(&self) -> &Shape {
        &self.0.kind.ty.shape
    }

    /// Returns the lengths along the axes as a slice.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?.dims(), [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "size")]
    pub fn dims(&self) -> &[usize] {
        self.shape()
    }

    /// Returns the length along an axis; negative axes count from the end.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?.dim(-1)?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where the axis does not exist.
    pub fn dim(&self, axis: impl Into<Axis>) -> Result<usize> {
        Ok(self.shape()[check::axis("dim", axis, self)?])
    }

    /// Returns the number of axes.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?.rank(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ndim")]
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// Returns the number of elements.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?.elem_count(), 6);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "numel")]
    pub fn elem_count(&self) -> usize {
        self.shape().elem_count()
    }

    /// What the elements are.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::from_slice(&[1u32], 1, &device)?.dtype(), kiln::DType::U32);
    /// # Ok(())
    /// # }
    /// ```
    pub fn dtype(&self) -> DType {
        self.0.kind.ty.dtype
    }

    /// The device that the elements are on.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::from_slice(&[1u32], 1, &device)?.device().info().id, "cpu");
    /// # Ok(())
    /// # }
    /// ```
    pub fn device(&self) -> &Device {
        &self.0.kind.device
    }

    /// Whether the elements are there.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32], 1, &device)?.exp()?;
    /// assert_eq!(x.status(), kiln::Status::Planned);
    /// x.eval()?;
    /// assert_eq!(x.status(), kiln::Status::Ready);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> Status {
        match self.0.storage() {
            None => Status::Planned,
            Some(storage) if storage.submission > self.device().runtime().api().completed() => Status::Submitted,
            Some(_) => Status::Ready,
        }
    }

    /// Computes the elements: on the CPU device before it returns; a GPU is not waited for.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 4.0], 2, &device)?.sqrt()?;
    /// x.eval()?;
    /// let (y, z) = (x.add_scalar(1.0)?, x.neg()?); // neither computes the root again
    /// assert_eq!((y.to_vec::<f32>()?, z.to_vec::<f32>()?), (vec![2.0, 3.0], vec![-1.0, -2.0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` where there is no memory for the result; `Unsupported` where a GPU has no kernel for lengths so large (the
    /// message has the limit); `InvalidArgument` where an index among the elements is out of range, on the CPU device; the device's fault.
    /// What did not run stays planned.
    pub fn eval(&self) -> Result<()> {
        run::eval(&[self])
    }

    /// Computes several tensors at once: what they share is computed once. Hundreds of them are computed in parts; parts that are alike are
    /// planned once.
    ///
    /// On the CPU device small results of one part share memory: one that is kept longer than the others holds at most 16 KiB.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?;
    /// let (y, z) = (x.exp()?, x.neg()?);
    /// Tensor::eval_all(&[&y, &z])?;
    /// assert_eq!(z.to_vec::<f32>()?, [-1.0, -2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`eval`](Self::eval), and `InvalidArgument` where the tensors are of several devices.
    pub fn eval_all(tensors: &[&Self]) -> Result<()> {
        check::same_device("eval_all", tensors)?;
        run::eval(tensors)
    }
}
