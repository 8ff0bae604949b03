//! Cumulative sums and products.

use super::Tensor;
use super::check::{self, Axis};
use crate::Result;
use kiln_kernels::scan::{Scan, ScanOp};
use std::sync::Arc;

impl Tensor {
    /// Computes the cumulative sum along an axis.
    ///
    /// Floats are accumulated in `f32` or better; integers wrap, and sums of `u8` are `u32`, as in
    /// [`sum`](Self::sum).
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device)?;
    /// assert_eq!(x.cumsum(1)?.to_vec::<f32>()?, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist. [`eval`](Self::eval) returns `Unsupported` if the axis
    /// exceeds the limit of a GPU's kernel (4,194,304 elements).
    #[doc(alias = "prefix_sum")]
    #[doc(alias = "scan")]
    pub fn cumsum(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.scanned("cumsum", ScanOp::Sum, axis)
    }

    /// Computes the cumulative product along an axis. Its gradient is correct for zero elements.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[1.0f32, 2.0, 3.0, 4.0], &device)?;
    /// assert_eq!(x.cumprod(0)?.to_vec::<f32>()?, [1.0, 2.0, 6.0, 24.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`cumsum`](Self::cumsum), with at most 16,384 elements along the axis on a GPU.
    pub fn cumprod(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.scanned("cumprod", ScanOp::Product, axis)
    }

    fn scanned(&self, name: &str, op: ScanOp, axis: impl Into<Axis>) -> Result<Self> {
        let axis = check::axis(name, axis, self)?;
        // As for sums: a running sum of bytes rarely fits in a byte.
        let wide = if self.dtype().bytes() == 1 { &self.to_dtype(self.dtype().computed())? } else { self };
        Self::kernel(Arc::new(Scan { op, axis, reverse: false }), &[wide])
    }
}
