//! Matrix multiplication with fused epilogues.

use super::Tensor;
use super::check::{self, Within, mismatch, names};
use crate::{Result, Shape};
use kiln_ir::KernelOp;
use kiln_ir::graph::{Op, TensorType};
use kiln_kernels::matmul::Matmul;
use smallvec::SmallVec;
use std::sync::Arc;

/// The activation applied to the result of a matrix multiplication.
///
/// See [`Tensor::matmul_with_activation`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// No activation.
    None,
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::gelu`]: the tanh approximation.
    Gelu,
    /// [`Tensor::gelu_erf`]: GELU with the error function, PyTorch's default.
    GeluErf,
}

impl Activation {
    pub(crate) fn apply(self, tensor: Tensor) -> Result<Tensor> {
        match self {
            Self::None => Ok(tensor),
            Self::Relu => tensor.relu(),
            Self::Gelu => tensor.gelu(),
            Self::GeluErf => tensor.gelu_erf(),
        }
    }
}

impl Tensor {
    /// Multiplies matrices along the last axis of this tensor and the second-to-last of the other. Leading axes are
    /// batch axes and broadcast. A vector on the left is one row, on the right one column, and its axis is removed
    /// from the result.
    ///
    /// Sums are accumulated in `f32`. Following elementwise ops (a bias, an activation, a residual) are fused as an
    /// epilogue.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// let b = Tensor::from_slice(&[1.0f32, 1.0], 2, &device)?;
    /// assert_eq!(a.matmul(&b)?.to_vec::<f32>()?, [3.0, 7.0]);
    /// assert_eq!(a.matmul(&a.t()?)?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the inner lengths differ or the batch axes do not broadcast, `InvalidArgument` if
    /// dtypes or devices differ, and `Unsupported` for integer dtypes. [`eval`](Self::eval) returns `Unsupported` if
    /// a length exceeds the limit of a GPU's kernel.
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "dot")]
    #[doc(alias = "broadcast_matmul")]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        check::same_device("matmul", &[self, other])?;
        check::same_dtype("matmul", &[self, other])?;
        check::float("matmul", self)?;
        // Fast path for two matrices: no batch axes to broadcast, and no reshape.
        if let (&[_, k], &[inner, _]) = (&self.shape()[..], &other.shape()[..])
            && k == inner
        {
            return Self::kernel(Arc::new(Matmul), &[self, other]);
        }
        let wrong = |what: &str| mismatch(format!("matmul expected {what}, found {}", names(&[self, other])));
        if self.rank() == 0 || other.rank() == 0 {
            return Err(wrong("at least one axis on each side"));
        }
        let a = if self.rank() == 1 { self.unsqueeze(0)? } else { self.clone() };
        let b = if other.rank() == 1 { other.unsqueeze(1)? } else { other.clone() };
        let (&[ref a_batch @ .., m, k], &[ref b_batch @ .., inner, n]) = (&a.shape()[..], &b.shape()[..]) else {
            return Err(wrong("two axes on each side"));
        };
        if k != inner {
            return Err(wrong(&format!("equal inner lengths ({k} and {inner} here)")));
        }
        let batch = Shape::new(a_batch).broadcast(&Shape::new(b_batch));
        let batch = batch.ok_or_else(|| wrong("batch axes that broadcast together"))?;
        let with = |rows, columns| batch.iter().copied().chain([rows, columns]).collect::<Shape>().checked();
        let (a, b) = (a.broadcast_unchecked(&with(m, k)?)?, b.broadcast_unchecked(&with(k, n)?)?);
        let product = Self::kernel(Arc::new(Matmul), &[&a, &b])?;
        let mut shape: Vec<usize> = batch.to_vec();
        shape.extend((self.rank() > 1).then_some(m).into_iter().chain((other.rank() > 1).then_some(n)));
        product.reshape(shape)
    }

    /// Multiplies matrices and applies an activation, in one kernel. On a GPU a second kernel packs `bf16` results,
    /// and `f16` results if the adapter has no such type.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    /// use kiln::nn::Activation;
    ///
    /// let a = Tensor::from_slice(&[1.0f32, -2.0], (1, 2), &device)?;
    /// let b = Tensor::from_slice(&[1.0f32, 1.0, 1.0, 0.0], (2, 2), &device)?;
    /// let c = a.matmul_with_activation(&b, Activation::Relu)?;
    /// assert_eq!(c.explain()?.kernels(), 1);
    /// assert_eq!(c.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`matmul`](Self::matmul).
    pub fn matmul_with_activation(&self, other: &Self, activation: Activation) -> Result<Self> {
        self.matmul(other).and_then(|product| activation.apply(product)).within("matmul_with_activation")
    }

    /// Applies a hand-written kernel, built-in or user-defined, to tensors of one device.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::kernels::softmax::Softmax;
    /// use std::sync::Arc;
    ///
    /// let x = kiln::Tensor::from_slice(&[0.0f32, 0.0], (1, 2), &device)?;
    /// let y = kiln::Tensor::kernel(Arc::new(Softmax { log: false }), &[&x])?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the devices differ, and the kernel's own shape and dtype errors.
    pub fn kernel(op: Arc<dyn KernelOp>, inputs: &[&Self]) -> Result<Self> {
        if inputs.is_empty() {
            return Err(check::invalid(format!("{} expected at least one tensor, found none", op.name())));
        }
        check::same_device(op.name(), inputs)?;
        if !op.takes_wide() {
            check::no_wide(op.name(), inputs)?;
        }
        let types: SmallVec<[TensorType; 3]> = inputs.iter().map(|input| input.0.kind.ty.clone()).collect();
        let named = |error: crate::Error| error.context(format!("{} of {}", op.name(), names(inputs)));
        let ty = op.infer(&types).map_err(named)?;
        let ty = TensorType { shape: ty.shape.checked().map_err(|e| e.context(op.name()))?, ..ty };
        Self::planned(Op::Kernel(op), inputs, ty)
    }
}
