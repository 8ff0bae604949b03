//! Cumulative sums and products.

use super::Tensor;
use super::check::{self, Axis};
use crate::Result;
use kiln_kernels::scan::{Scan, ScanOp};
use std::sync::Arc;

impl Tensor {
    /// Returns the sums along an axis of each element and all before it.
    ///
    /// Floats are accumulated in `f32` or better; integers wrap, and sums of `u8` are `u32`, as those of [`sum`](Self::sum).
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
    /// `InvalidArgument` where the axis does not exist. An axis beyond what a GPU's kernel takes (4,194,304 elements) is an `Unsupported` of
    /// [`eval`](Self::eval).
    #[doc(alias = "prefix_sum")]
    #[doc(alias = "scan")]
    pub fn cumsum(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.scanned("cumsum", ScanOp::Sum, axis)
    }

    /// Returns the products along an axis of each element and all before it. Its gradient is right where elements are 0.
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
    /// As [`cumsum`](Self::cumsum), with at most 16,384 elements along the axis on a GPU.
    pub fn cumprod(&self, axis: impl Into<Axis>) -> Result<Self> {
        self.scanned("cumprod", ScanOp::Product, axis)
    }

    fn scanned(&self, name: &str, op: ScanOp, axis: impl Into<Axis>) -> Result<Self> {
        let axis = check::axis(name, axis, self)?;
        let wide = if self.dtype().bytes() == 1 { &self.to_dtype(self.dtype().computed())? } else { self };
        Self::kernel(Arc::new(Scan { op, axis, reverse: false }), &[wide])
    }
}
