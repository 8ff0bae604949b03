//! Sorting and top-k.

use super::Tensor;
use super::check::{self, Axis, Name, invalid};
use crate::Result;
use kiln_kernels::sort::{Argsort, Merge, Sort};
use std::sync::Arc;

impl Tensor {
    /// Sorts along an axis. Returns the sorted values and their original indices, as `u32`.
    ///
    /// Indices are stable; zeros of both signs compare equal, and their order among the values is unspecified. NaN
    /// compares greater than every number, as in NumPy and PyTorch: last in ascending order, first in descending
    /// order. Gradients of the values flow back to the original positions.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[[3.0f32, 1.0, 2.0], [5.0, 6.0, 4.0]], &device)?;
    /// let (values, indices) = x.sort(1, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(indices.to_vec::<u32>()?, [1, 2, 0, 2, 0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist.
    #[doc(alias = "sort_last_dim")]
    #[doc(alias = "msort")]
    pub fn sort(&self, axis: impl Into<Axis>, descending: bool) -> Result<(Self, Self)> {
        let axis = check::axis("sort", axis, self)?;
        let indices = self.order(axis, Argsort::new(descending))?;
        if !self.device().target().runs_host_code {
            return Ok((self.gather(axis, &indices)?, indices));
        }
        // Values and indices are separate lazy ops, each computed only if used: sorting values alone takes half the
        // time.
        let sorted = |x: &Self| Self::kernel(Arc::new(Sort { descending }), &[x]);
        let values = match axis + 1 == self.rank() {
            true => sorted(self)?,
            false => sorted(&self.transpose(axis, -1)?)?.transpose(axis, -1)?,
        };
        Ok((values, indices))
    }

    /// Returns the indices, as `u32`, that [`sort`](Self::sort) the elements along an axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[3.0f32, 1.0, 2.0], &device)?;
    /// assert_eq!(x.argsort(0, false)?.to_vec::<u32>()?, [1, 2, 0]);
    /// assert_eq!(x.argsort(0, true)?.to_vec::<u32>()?, [0, 2, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`sort`](Self::sort).
    #[doc(alias = "arg_sort_last_dim")]
    pub fn argsort(&self, axis: impl Into<Axis>, descending: bool) -> Result<Self> {
        let axis = check::axis("argsort", axis, self)?;
        self.order(axis, Argsort::new(descending))
    }

    /// Returns the `k` largest or smallest elements along an axis in order, and their indices as `u32`: the first `k`
    /// results of [`sort`](Self::sort).
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[1.0f32, 4.0, 2.0, 3.0], &device)?;
    /// let (values, indices) = x.topk(2, 0, true)?;
    /// assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<u32>()?), (vec![4.0, 3.0], vec![1, 3]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist or has fewer than `k` elements.
    #[doc(alias = "top_k")]
    #[doc(alias = "argpartition")]
    pub fn topk(&self, k: usize, axis: impl Into<Axis>, largest: bool) -> Result<(Self, Self)> {
        let axis = check::axis("topk", axis, self)?;
        let length = self.shape()[axis];
        if k > length {
            return Err(invalid(format!(
                "topk expected at most {length} elements along axis {axis}, found k = {k} for {}",
                Name(self)
            )));
        }
        let indices = self.order(axis, Argsort { count: Some(k), ..Argsort::new(largest) })?;
        Ok((self.gather(axis, &indices)?, indices))
    }

    /// Runs an [`Argsort`] along any axis.
    fn order(&self, axis: usize, op: Argsort) -> Result<Self> {
        // Indices have no gradient; `gather` passes the gradient of the values on.
        let x = self.detach();
        if axis + 1 == self.rank() {
            return x.order_of_rows(op);
        }
        x.transpose(axis, -1)?.order_of_rows(op)?.transpose(axis, -1)
    }

    /// Sorts rows. A GPU sorts long rows in runs and merges pairs of runs, with one kernel per merge level.
    fn order_of_rows(&self, op: Argsort) -> Result<Self> {
        let length = self.shape()[self.rank() - 1];
        if self.device().target().runs_host_code || length <= Argsort::GPU_RUN {
            return Self::kernel(Arc::new(op), &[self]);
        }
        let mut run = Argsort::GPU_RUN;
        let mut indices = Self::kernel(Arc::new(Argsort { run: Some(run), count: None, ..op }), &[self])?;
        while run < length {
            indices = Self::kernel(Arc::new(Merge { descending: op.descending, run }), &[self, &indices])?;
            run *= 2;
        }
        op.count.map_or(Ok(indices.clone()), |count| indices.slice(-1, ..count))
    }
}
