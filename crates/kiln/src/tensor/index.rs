//! Elements by their indices.

use super::Tensor;
use super::check::{self, Axis, Name, Within, invalid, mismatch};
use crate::{DType, Result, Shape};
use kiln_kernels::gather::{Gather, IndexSelect};
use kiln_kernels::scatter::Scatter;
use smallvec::SmallVec;
use std::sync::Arc;

impl Tensor {
    /// Along an axis, the elements that `index` names for each place: `result[i][j] = self[index[i][j]][j]` for axis 0.
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
    /// `ShapeMismatch` where the ranks differ, or where `index` is longer along another axis; `Unsupported` where it is not `u32`, `i32` or `i64`;
    /// `InvalidArgument` where the axis is not there or the devices differ. An index out of range is an error of [`eval`](Self::eval) on the CPU
    /// device, and gives 0 on a GPU.
    pub fn gather(&self, axis: impl Into<Axis>, index: &Self) -> Result<Self> {
        let axis = check::axis("gather", axis, self)?;
        let index = check::index("gather", index)?;
        Self::kernel(Arc::new(Gather { axis }), &[self, &index])
    }

    /// Along an axis, the slices that `index` names, one after the other.
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
    /// `ShapeMismatch` where `index` has not one axis; otherwise as [`gather`](Self::gather).
    pub fn index_select(&self, axis: impl Into<Axis>, index: &Self) -> Result<Self> {
        let axis = check::axis("index_select", axis, self)?;
        let index = check::index("index_select", index)?;
        Self::kernel(Arc::new(IndexSelect { axis }), &[self, &index])
    }

    /// The rows of this table that `index` names, under the shape of `index` with the length of a row behind it.
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
    /// `ShapeMismatch` where the table has not two axes; otherwise as [`gather`](Self::gather).
    pub fn embedding(&self, index: &Self) -> Result<Self> {
        let index = check::index("embedding", index)?;
        if self.rank() != 2 {
            return Err(mismatch(format!("embedding expected a table with two axes, found {}", Name(self))));
        }
        let rows = self.index_select(0, &index.flatten()?).within("embedding")?;
        rows.reshape(index.shape().iter().copied().chain([self.shape()[1]]).collect::<Shape>()).within("embedding")
    }

    /// This tensor, with elements of `source` at the places along an axis that `index` names: `result[index[i][j]][j] = source[i][j]` for axis 0.
    /// Of several for one place, the last counts.
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
    /// As [`gather`](Self::gather), and where `index` and `source` differ in shape or this tensor and `source` in dtype.
    pub fn scatter(&self, axis: impl Into<Axis>, index: &Self, source: &Self) -> Result<Self> {
        self.scattered("scatter", axis, index, source, false)
    }

    /// As [`scatter`](Self::scatter), but elements are added to what is there.
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
    /// As [`scatter`](Self::scatter).
    pub fn scatter_add(&self, axis: impl Into<Axis>, index: &Self, source: &Self) -> Result<Self> {
        self.scattered("scatter_add", axis, index, source, true)
    }

    /// Selects with tensors of indices on these axes, which ascend. The tensors are broadcast together, and the axes become one, so that one lookup does all.
    pub(super) fn index_together(&self, indices: &[(usize, Self)]) -> Result<Self> {
        let tensors: SmallVec<[&Self; 2]> = indices.iter().map(|(_, index)| index).collect();
        check::same_device("i", &[&[self][..], &tensors].concat())?;
        let shape = check::broadcast("i", &tensors)?;
        let axes: SmallVec<[usize; 2]> = indices.iter().map(|(axis, _)| *axis).collect();
        let is_adjacent = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
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

/// Numbers, row by row, of the elements that the indices together select in a shape of these lengths. Where one is out of range, the number is as well: it is not that
/// of another element.
fn flat_index(tensors: &[&Tensor], lengths: &[usize], shape: &Shape) -> Result<Tensor> {
    let mut number: Option<(Tensor, Tensor)> = None;
    for (index, &length) in tensors.iter().zip(lengths) {
        // As an unsigned number, a negative index is not below this either.
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
