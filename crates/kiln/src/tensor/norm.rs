//! Softmax and norms: one kernel each.

use super::Tensor;
use super::check::{self, Axis, Name, mismatch};
use crate::{DType, Result};
use kiln_kernels::norm::{LayerNorm, RmsNorm};
use kiln_kernels::softmax::Softmax;
use std::sync::Arc;

impl Tensor {
    /// The exponentials along an axis, divided by their sum.
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
    /// `InvalidArgument` where the axis is not there; `Unsupported` for integers. Rows beyond what a GPU's kernel takes are an `Unsupported` of
    /// [`eval`](Self::eval).
    pub fn softmax(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.over_last("softmax", axis, |last| Self::kernel(Arc::new(Softmax { log: false }), &[last]))
    }

    /// The logarithm of [`softmax`](Self::softmax), without the loss of taking it afterwards.
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
    /// As [`softmax`](Self::softmax).
    pub fn log_softmax(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.over_last("log_softmax", axis, |last| Self::kernel(Arc::new(Softmax { log: true }), &[last]))
    }

    /// Along the last axis: less the mean, divided by the standard deviation; then times `weight`, plus `bias`, where they are given.
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
    /// `ShapeMismatch` where weight or bias is not as long as the last axis; `InvalidArgument` where there is no axis, where dtypes or devices
    /// differ; `Unsupported` for integers.
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

    /// Along the last axis: divided by the root of the mean square; then times `weight`, where it is given.
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
    /// As [`layer_norm`](Self::layer_norm).
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

    /// Along axis 1, the channels: less `mean`, divided by the root of `variance` plus `eps`, times `weight`, plus `bias`. This is the form for use
    /// after training, with the statistics of the training. It is an elementwise chain, so it fuses with what is around it.
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
    /// As [`layer_norm`](Self::layer_norm), and `InvalidArgument` where there is no axis 1.
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
        // A channel in its place: as many axes of length 1 behind it as there are behind axis 1.
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

    /// What `op` makes of the tensor with the axis last, with the axis back in its place.
    fn over_last(&self, name: &str, axis: impl Into<Axis>, op: impl FnOnce(&Self) -> Result<Self>) -> Result<Self> {
        check::float(name, self)?;
        let axis = check::axis(name, axis, self)?;
        if axis + 1 == self.rank() {
            return op(self);
        }
        op(&self.transpose(axis, -1)?)?.transpose(axis, -1)
    }
}
