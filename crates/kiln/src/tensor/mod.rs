//! The [`Tensor`] type and its methods.
//!
//! A [`Tensor`] is a cheap handle to a graph node. Methods check shapes and dtypes immediately and record the op;
//! reading elements, [`Tensor::eval`] or a full batch runs the recorded ops.
//!
//! In order of data flow: `make` and `random` create tensors · `element`, `operators` and `fused` are elementwise ops
//! · `view` changes shapes and strides without copies · `reduce` · `linear`, `norm`, `attention`, `index`, `join`,
//! `scan`, `sort`, `pool`, `einsum` use hand-written kernels · `wgsl_op` runs user kernels · `autograd` computes
//! gradients · `node` is the graph node of a handle · `run` plans, executes, explains and verifies · `read` and
//! `show` copy elements to the host.

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
pub(crate) use autograd::is_recomputing;
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

/// An n-dimensional array of elements of one dtype, on one device.
///
/// Handles are cheap to clone and share immutable elements: every op returns a new tensor. Ops do not run when they
/// are called, but when elements are read ([`to_vec`](Self::to_vec)), on [`eval`](Self::eval), or when many ops are
/// pending, so chains of ops fuse into few kernels. Shape and dtype errors are returned by the method that caused
/// them.
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

/// The evaluation state of a tensor.
///
/// See [`Tensor::status`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Elements are not stored: the op has not run, or was fused into a kernel that stored only the final result.
    Planned,
    /// The computation is submitted to the device, or running.
    Submitted,
    /// Elements are computed and stored.
    Ready,
}

impl Tensor {
    /// Returns whether both handles refer to the same tensor.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the length of each axis.
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

    /// Returns the lengths of the axes as a slice.
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

    /// Returns the length of an axis; negative axes count from the end.
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
    /// Returns `InvalidArgument` if the axis does not exist.
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

    /// Returns the element type.
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

    /// Returns the device that holds the elements.
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

    /// Returns the evaluation state of the tensor.
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
            // Submissions complete in the order of their numbers; 0, for elements that the host wrote, is always
            // complete.
            Some(storage) if storage.submission > self.device().runtime().api().completed() => Status::Submitted,
            Some(_) => Status::Ready,
        }
    }

    /// Computes the elements. On the CPU device they are ready on return; on a GPU the work is submitted without
    /// waiting.
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
    /// Returns `OutOfMemory` or `TooLarge` if the result cannot be allocated, `Unsupported` if a length exceeds the
    /// limit of a GPU's kernel (the message has the limit), `InvalidArgument` on the CPU device if an element used as
    /// an index is out of range, and device errors. Ops that did not run stay planned.
    pub fn eval(&self) -> Result<()> {
        run::eval(&[self])
    }

    /// Computes several tensors together; common subexpressions are computed once. Hundreds of tensors are computed
    /// in parts; parts with the same structure are planned once.
    ///
    /// On the CPU device, small results of one part share an allocation: one that outlives the others keeps at most
    /// 16 KiB alive.
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
    /// Same as [`eval`](Self::eval), and `InvalidArgument` if the tensors are on different devices.
    pub fn eval_all(tensors: &[&Self]) -> Result<()> {
        check::same_device("eval_all", tensors)?;
        run::eval(tensors)
    }
}
