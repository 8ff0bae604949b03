//! Named forms of common op chains. Each runs as one kernel, because chains of ops fuse; for matrix multiplication
//! see also [`Tensor::matmul_with_activation`].

use super::check::Within;
use super::{Operand, Tensor};
use crate::Result;

impl Tensor {
    /// Computes `relu(self + other)` in one kernel.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let a = kiln::Tensor::from_slice(&[1.0f32, -2.0], 2, &device)?;
    /// assert_eq!(a.fused_add_relu(&a)?.to_vec::<f32>()?, [2.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`add`](Self::add).
    pub fn fused_add_relu(&self, other: &Self) -> Result<Self> {
        self.add(other).and_then(|sum| sum.relu()).within("fused_add_relu")
    }

    /// Computes `relu(self * other)` in one kernel.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let a = kiln::Tensor::from_slice(&[1.0f32, -2.0], 2, &device)?;
    /// assert_eq!(a.fused_mul_relu(&a)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`mul`](Self::mul).
    pub fn fused_mul_relu(&self, other: &Self) -> Result<Self> {
        self.mul(other).and_then(|product| product.relu()).within("fused_mul_relu")
    }

    /// Computes `self * scale + bias` in one kernel; each of the two is a tensor or a number.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let a = kiln::Tensor::from_slice(&[1.0f32, -2.0], 2, &device)?;
    /// assert_eq!(a.fused_affine(2.0, &a)?.to_vec::<f32>()?, [3.0, -6.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`mul`](Self::mul) and [`add`](Self::add).
    pub fn fused_affine<'a>(&self, scale: impl Into<Operand<'a>>, bias: impl Into<Operand<'a>>) -> Result<Self> {
        self.mul(scale).and_then(|product| product.add(bias)).within("fused_affine")
    }

    /// Computes `relu(self @ weight + bias + residual)` in one kernel.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], (1, 2), &device)?;
    /// let (weight, bias) = (Tensor::eye(2, kiln::DType::F32, &device)?, Tensor::full(2, -5.0, kiln::DType::F32, &device)?);
    /// let y = x.fused_linear_residual_relu(&weight, &bias, &x.mul_scalar(2.0)?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`matmul`](Self::matmul) and [`add`](Self::add).
    pub fn fused_linear_residual_relu(&self, weight: &Self, bias: &Self, residual: &Self) -> Result<Self> {
        let compute = || self.matmul(weight)?.add(bias)?.add(residual)?.relu();
        compute().within("fused_linear_residual_relu")
    }

    /// Computes `gelu(self @ weight + bias)` in one kernel.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], (1, 2), &device)?;
    /// let (weight, bias) = (Tensor::eye(2, kiln::DType::F32, &device)?, Tensor::full(2, 100.0, kiln::DType::F32, &device)?);
    /// assert_eq!(x.fused_gelu_linear(&weight, &bias)?.to_vec::<f32>()?, [101.0, 102.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`matmul`](Self::matmul) and [`add`](Self::add).
    pub fn fused_gelu_linear(&self, weight: &Self, bias: &Self) -> Result<Self> {
        let compute = || self.matmul(weight)?.add(bias)?.gelu();
        compute().within("fused_gelu_linear")
    }
}
