//! Matrix products, and what is fused behind them.

use super::Tensor;
use super::check::{self, Within, mismatch, names};
use crate::{Result, Shape};
use kiln_ir::KernelOp;
use kiln_ir::graph::{Op, TensorType};
use kiln_kernels::matmul::Matmul;
use smallvec::SmallVec;
use std::sync::Arc;

/// What is applied to the elements of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// Nothing.
    None,
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::gelu`]: the tanh form, an approximation.
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
    /// The matrix product over the last axis of this tensor and the last but one of the other. Axes before the last two are batches, and
    /// broadcast. A vector on the left is one row, on the right one column, and its axis is left out of the result.
    ///
    /// Products are added up in `f32`. Elementwise ops behind it (a bias, an activation, a residual) become part of its kernel.
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
    /// `ShapeMismatch` where the inner lengths differ or the batches do not broadcast; `InvalidArgument` where dtypes or devices differ;
    /// `Unsupported` for integers. Lengths beyond what a GPU's kernel takes are an `Unsupported` of [`eval`](Self::eval).
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "dot")]
    #[doc(alias = "broadcast_matmul")]
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        check::same_device("matmul", &[self, other])?;
        check::same_dtype("matmul", &[self, other])?;
        check::float("matmul", self)?;
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
        let batch = batch.ok_or_else(|| wrong("batches that broadcast to one"))?;
        let with = |rows, columns| batch.iter().copied().chain([rows, columns]).collect::<Shape>().checked();
        let (a, b) = (a.spread(&with(m, k)?)?, b.spread(&with(k, n)?)?);
        let product = Self::kernel(Arc::new(Matmul), &[&a, &b])?;
        let mut shape: Vec<usize> = batch.to_vec();
        shape.extend((self.rank() > 1).then_some(m).into_iter().chain((other.rank() > 1).then_some(n)));
        product.reshape(shape)
    }

    /// The matrix product with an activation, as one kernel. On a GPU another one packs results of `bf16`, and of `f16` where the adapter has
    /// no such type.
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
    /// As [`matmul`](Self::matmul).
    pub fn matmul_with_activation(&self, other: &Self, activation: Activation) -> Result<Self> {
        self.matmul(other).and_then(|product| activation.apply(product)).within("matmul_with_activation")
    }

    /// A hand-written kernel applied to tensors of one device: also one of one's own.
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
    /// `InvalidArgument` where the devices differ; what the kernel says of the shapes and dtypes.
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
