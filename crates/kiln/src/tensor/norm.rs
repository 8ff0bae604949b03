//! Softmax and normalization, one kernel each.

use super::Tensor;
use super::check::{self, Axis, Name, mismatch};
use crate::{DType, Result};
use kiln_kernels::norm::{LayerNorm, RmsNorm};
use kiln_kernels::softmax::Softmax;
use std::sync::Arc;

impl Tensor {
    /// Computes the softmax along an axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[3.0f32, 3.0, 0.0, 1000.0], (2, 2), &device)?;
    /// assert_eq!(x.softmax(1)?.to_vec::<f32>()?, [0.5, 0.5, 0.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist, and `Unsupported` for integer dtypes.
    /// [`eval`](Self::eval) returns `Unsupported` if rows exceed the limit of a GPU's kernel.
    pub fn softmax(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.along_last_axis("softmax", axis, |last| Self::kernel(Arc::new(Softmax { log: false }), &[last]))
    }

    /// Computes the logarithm of [`softmax`](Self::softmax) along an axis, in a numerically stable way.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[0.0f32, 1000.0], 2, &device)?;
    /// assert_eq!(x.log_softmax(0)?.to_vec::<f32>()?, [-1000.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`softmax`](Self::softmax).
    pub fn log_softmax(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.along_last_axis("log_softmax", axis, |last| Self::kernel(Arc::new(Softmax { log: true }), &[last]))
    }

    /// Normalizes the last axis to mean 0 and variance 1, then multiplies by `weight` and adds `bias`, if given.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 3.0], (1, 2), &device)?;
    /// assert_eq!(x.layer_norm(None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if weight or bias does not match the length of the last axis, `InvalidArgument` if the
    /// rank is 0 or dtypes or devices differ, and `Unsupported` for integer dtypes.
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f32) -> Result<Self> {
        check::float("layer_norm", self)?;
        let last = check::axis("layer_norm", -1, self)?;
        let given: Vec<&Self> = weight.into_iter().chain(bias).collect();
        let length = self.shape()[last];
        check::same_device("layer_norm", &[&[self], &given[..]].concat())?;
        check::same_dtype("layer_norm", &[&[self], &given[..]].concat())?;
        if let Some(other) = given.iter().find(|tensor| tensor.shape()[..] != [length]) {
            let (other, name) = (Name(other), Name(self));
            return Err(mismatch(format!(
                "layer_norm expected weight and bias of shape ({length},), found {other} for {name}"
            )));
        }
        if given.is_empty() {
            return Self::kernel(Arc::new(LayerNorm { eps, affine: false }), &[self]);
        }
        // The kernel has one affine form, with both operands; a missing one is a constant.
        let (one, zero);
        let weight = if let Some(weight) = weight {
            weight
        } else {
            one = Self::ones(length, self.dtype(), self.device())?;
            &one
        };
        let bias = if let Some(bias) = bias {
            bias
        } else {
            zero = Self::zeros(length, self.dtype(), self.device())?;
            &zero
        };
        Self::kernel(Arc::new(LayerNorm { eps, affine: true }), &[self, weight, bias])
    }

    /// Divides the last axis by its root mean square, then multiplies by `weight`, if given.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[2.0f32, -2.0], (1, 2), &device)?;
    /// assert_eq!(x.rms_norm(None, 0.0)?.to_vec::<f32>()?, [1.0, -1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`layer_norm`](Self::layer_norm).
    pub fn rms_norm(&self, weight: Option<&Self>, eps: f32) -> Result<Self> {
        check::float("rms_norm", self)?;
        check::axis("rms_norm", -1, self)?;
        match weight {
            None => Self::kernel(Arc::new(RmsNorm { eps, affine: false }), &[self]),
            Some(weight) => {
                check::same_dtype("rms_norm", &[self, weight])?;
                Self::kernel(Arc::new(RmsNorm { eps, affine: true }), &[self, weight])
            }
        }
    }

    /// Normalizes channels along axis 1: `(x - mean) / sqrt(variance + eps) * weight + bias`. This is the inference
    /// form, with the statistics from training. It is an elementwise chain and fuses with adjacent ops.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::{DType, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 10.0], (1, 2), &device)?;
    /// let (mean, variance) = (Tensor::from_slice(&[0.0f32, 4.0], 2, &device)?, Tensor::from_slice(&[1.0f32, 4.0], 2, &device)?);
    /// let y = x.batch_norm(&mean, &variance, None, None, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`layer_norm`](Self::layer_norm), and `InvalidArgument` if there is no axis 1.
    pub fn batch_norm(
        &self,
        mean: &Self,
        variance: &Self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f32,
    ) -> Result<Self> {
        check::float("batch_norm", self)?;
        let axis = check::axis("batch_norm", 1, self)?;
        let channels = self.shape()[axis];
        // Append axes of length 1, so that the parameter broadcasts along axis 1.
        let per_channel = |tensor: &Self| -> Result<Self> {
            check::same_device("batch_norm", &[self, tensor])?;
            check::same_dtype("batch_norm", &[self, tensor])?;
            if tensor.shape()[..] != [channels] {
                let (found, name) = (Name(tensor), Name(self));
                return Err(mismatch(format!(
                    "batch_norm expected statistics of shape ({channels},), found {found} for {name}"
                )));
            }
            let mut shape = vec![1; self.rank() - 1];
            shape[0] = channels;
            tensor.reshape(shape)?.to_dtype(DType::F32)
        };
        let scale = per_channel(variance)?.add_scalar(f64::from(eps))?.rsqrt()?;
        let mut result = self.to_dtype(DType::F32)?.sub(&per_channel(mean)?)?.mul(&scale)?;
        if let Some(weight) = weight {
            result = result.mul(&per_channel(weight)?)?;
        }
        if let Some(bias) = bias {
            result = result.add(&per_channel(bias)?)?;
        }
        result.to_dtype(self.dtype())
    }

    /// Moves the axis to the end, applies `op`, and moves it back.
    fn along_last_axis(
        &self,
        name: &str,
        axis: impl Into<Axis>,
        op: impl FnOnce(&Self) -> Result<Self>,
    ) -> Result<Self> {
        check::float(name, self)?;
        let axis = check::axis(name, axis, self)?;
        if axis + 1 == self.rank() {
            return op(self);
        }
        op(&self.transpose(axis, -1)?)?.transpose(axis, -1)
    }
}
