//! Gather, scatter and embedding lookups.

use super::Tensor;
use super::check::{self, Axis, Name, Within, invalid, mismatch};
use crate::{DType, Result, Shape};
use kiln_kernels::gather::{Gather, IndexSelect};
use kiln_kernels::scatter::Scatter;
use smallvec::SmallVec;
use std::sync::Arc;

impl Tensor {
    /// Gathers elements along an axis: `result[i][j] = self[index[i][j]][j]` for axis 0.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// let index = Tensor::from_slice(&[1u32, 0], (2, 1), &device)?;
    /// assert_eq!(x.gather(1, &index)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the ranks differ, or if `index` is longer along another axis, `Unsupported` if it
    /// is not `u32`, `i32` or `i64`, and `InvalidArgument` if the axis does not exist or the devices differ. An index
    /// out of range makes [`eval`](Self::eval) fail on the CPU device, and gives 0 on a GPU.
    pub fn gather(&self, axis: impl Into<Axis>, index: &Self) -> Result<Self> {
        let axis = check::axis("gather", axis, self)?;
        let index = check::index("gather", index)?;
        Self::kernel(Arc::new(Gather { axis }), &[self, &index])
    }

    /// Selects slices along an axis, in the order of `index`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// let index = Tensor::from_slice(&[1u32, 1, 0], 3, &device)?;
    /// assert_eq!(x.index_select(0, &index)?.to_vec::<f32>()?, [3.0, 4.0, 3.0, 4.0, 1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the rank of `index` is not 1. Otherwise same as [`gather`](Self::gather).
    pub fn index_select(&self, axis: impl Into<Axis>, index: &Self) -> Result<Self> {
        let axis = check::axis("index_select", axis, self)?;
        let index = check::index("index_select", index)?;
        Self::kernel(Arc::new(IndexSelect { axis }), &[self, &index])
    }

    /// Looks up rows of this table. The result has the shape of `index` plus a last axis of the row length.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let table = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// let words = Tensor::from_slice(&[1u32, 0, 1, 1], (2, 2), &device)?;
    /// assert_eq!(table.embedding(&words)?.shape()[..], [2, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the rank of the table is not 2. Otherwise same as [`gather`](Self::gather).
    pub fn embedding(&self, index: &Self) -> Result<Self> {
        let index = check::index("embedding", index)?;
        if self.rank() != 2 {
            return Err(mismatch(format!("embedding expected a table with two axes, found {}", Name(self))));
        }
        let rows = self.index_select(0, &index.flatten()?).within("embedding")?;
        rows.reshape(index.shape().iter().copied().chain([self.shape()[1]]).collect::<Shape>()).within("embedding")
    }

    /// Returns this tensor with elements of `source` written along an axis: `result[index[i][j]][j] = source[i][j]`
    /// for axis 0. If an index occurs several times, the last element wins.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[0.0f32; 3], 3, &device)?;
    /// let index = Tensor::from_slice(&[2u32, 0], 2, &device)?;
    /// let source = Tensor::from_slice(&[5.0f32, 6.0], 2, &device)?;
    /// assert_eq!(x.scatter(0, &index, &source)?.to_vec::<f32>()?, [6.0, 0.0, 5.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`gather`](Self::gather), and an error if `index` and `source` differ in shape or this tensor and
    /// `source` in dtype.
    pub fn scatter(&self, axis: impl Into<Axis>, index: &Self, source: &Self) -> Result<Self> {
        self.scattered("scatter", axis, index, source, false)
    }

    /// Adds elements of `source` at the indices that [`scatter`](Self::scatter) would write to.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 1.0], 2, &device)?;
    /// let index = Tensor::from_slice(&[1u32, 1], 2, &device)?;
    /// assert_eq!(x.scatter_add(0, &index, &x)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`scatter`](Self::scatter).
    pub fn scatter_add(&self, axis: impl Into<Axis>, index: &Self, source: &Self) -> Result<Self> {
        self.scattered("scatter_add", axis, index, source, true)
    }

    /// Selects with index tensors on these axes, which are ascending. The index tensors are broadcast together, and
    /// the axes are flattened into one, so that a single lookup suffices.
    pub(super) fn index_joint(&self, indices: &[(usize, Self)]) -> Result<Self> {
        let tensors: SmallVec<[&Self; 2]> = indices.iter().map(|(_, index)| index).collect();
        check::same_device("i", &[&[self][..], &tensors].concat())?;
        let shape = check::broadcast("i", &tensors)?;
        let axes: SmallVec<[usize; 2]> = indices.iter().map(|(axis, _)| *axis).collect();
        let is_adjacent = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
        // NumPy's rule, see `i`: the axes of the indices replace adjacent indexed axes, and otherwise come first.
        let first = if is_adjacent { axes[0] } else { 0 };
        let mut order: Vec<usize> = (0..self.rank()).filter(|axis| !axes.contains(axis)).collect();
        order.splice(first..first, axes.iter().copied());
        let moved = if is_adjacent { self.clone() } else { self.permute(order)? };
        let (before, rest) = moved.dims().split_at(first);
        let (lengths, after) = rest.split_at(axes.len());
        let around = |middle: &[usize]| [before, middle, after].concat();
        let index = match tensors[..] {
            [index] => index.flatten()?,
            _ => flat_index(&tensors, lengths, &shape)?,
        };
        moved.reshape(around(&[lengths.iter().product()]))?.index_select(first, &index)?.reshape(around(&shape))
    }

    fn scattered(&self, name: &str, axis: impl Into<Axis>, index: &Self, source: &Self, add: bool) -> Result<Self> {
        let axis = check::axis(name, axis, self)?;
        check::same_device(name, &[self, index, source])?;
        let index = check::index(name, index)?;
        check::same_dtype(name, &[self, source])?;
        Self::kernel(Arc::new(Scatter { axis, add }), &[self, &index, source])
    }
}

/// Computes row-major element numbers from the indices along several axes. If any index is out of range, so is the
/// number: it never aliases another element.
fn flat_index(tensors: &[&Tensor], lengths: &[usize], shape: &Shape) -> Result<Tensor> {
    let mut number: Option<(Tensor, Tensor)> = None;
    for (index, &length) in tensors.iter().zip(lengths) {
        // A negative `i32` index converts to at least 2^31 as `u32`, so this bound rejects it too.
        let end = if index.dtype() == DType::I32 { length.min(1 << 31) } else { length };
        let index = index.to_dtype(DType::U32)?.broadcast_to(shape)?;
        let is_inside = index.lt(end as f64)?;
        number = Some(match number {
            None => (index, is_inside),
            Some((before, inside)) => (before.mul(length as f64)?.add(&index)?, inside.mul(&is_inside)?),
        });
    }
    let Some((number, is_inside)) = number else { return Err(invalid("i expected an index, found none".to_string())) };
    is_inside.where_(&number, lengths.iter().product::<usize>() as f64)?.flatten()
}
