//! Views: reordered, reshaped and sliced tensors, without copies if strides can express them.

use super::check::{self, Axes, Axis, Name, Within, invalid, mismatch};
use super::{Dims, Tensor};
use crate::{Result, Shape};
use kiln_ir::graph::{self, View};
use smallvec::smallvec;
use std::ops::{Bound, RangeBounds};

impl Tensor {
    /// Swaps two axes; negative axes count from the end.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2, 3, 4, 5, 6], (2, 3), &device)?;
    /// assert_eq!(x.transpose(0, 1)?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if an axis does not exist.
    #[doc(alias = "swapaxes")]
    pub fn transpose(&self, one: impl Into<Axis>, other: impl Into<Axis>) -> Result<Self> {
        let (one, other) = (check::axis("transpose", one, self)?, check::axis("transpose", other, self)?);
        let mut axes: graph::Axes = (0..self.rank()).collect();
        axes.swap(one, other);
        self.permuted(axes)
    }

    /// Transposes the last two axes: a matrix, or a batch of matrices.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::zeros((5, 2, 3), kiln::DType::F32, &device)?;
    /// assert_eq!(x.t()?.shape()[..], [5, 3, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if there are fewer than two axes.
    #[doc(alias = "T")]
    #[doc(alias = "mT")]
    pub fn t(&self) -> Result<Self> {
        self.transpose(-2, -1).within("t")
    }

    /// Reorders the axes: axis `i` of the result is axis `axes[i]` of this tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::zeros((2, 3, 4), kiln::DType::F32, &device)?;
    /// assert_eq!(x.permute((2, 0, 1))?.dims(), [4, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` unless every axis is given exactly once.
    #[doc(alias = "movedim")]
    pub fn permute(&self, axes: impl Into<Axes>) -> Result<Self> {
        let axes = check::ordered_axes("permute", axes, self)?;
        if axes.len() != self.rank() {
            let (rank, found) = (self.rank(), axes.len());
            return Err(invalid(format!("permute expected {rank} axes, found {found} for {}", Name(self))));
        }
        self.permuted(axes)
    }

    fn permuted(&self, axes: graph::Axes) -> Result<Self> {
        if axes.iter().copied().eq(0..self.rank()) {
            return Ok(self.clone());
        }
        let shape = axes.iter().map(|&axis| self.shape()[axis]).collect();
        self.viewed(View::Permute(axes), shape)
    }

    /// Returns the same elements in the same order with another shape. One length may be inferred: pass -1 or `()`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2, 3, 4, 5, 6], 6, &device)?;
    /// assert_eq!(x.reshape((2, 3))?.sum(0)?.to_vec::<i32>()?, [5, 7, 9]);
    /// assert_eq!(x.reshape((3, -1))?.dims(), [3, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the shape has another number of elements, and `InvalidArgument` if two lengths are
    /// inferred.
    #[doc(alias = "view")]
    pub fn reshape(&self, shape: impl Into<Dims>) -> Result<Self> {
        let shape = shape.into().resolve("reshape", self)?.checked().map_err(|error| error.context("reshape"))?;
        if shape.elem_count() != self.elem_count() {
            let (wanted, found) = (self.elem_count(), shape.elem_count());
            let name = Name(self);
            return Err(mismatch(format!("reshape expected {wanted} elements, found {found} in {shape} for {name}")));
        }
        if shape == *self.shape() {
            return Ok(self.clone());
        }
        self.viewed(View::Reshape, shape)
    }

    /// Returns all elements along a single axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?.flatten()?.shape()[..], [6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`reshape`](Self::reshape).
    #[doc(alias = "flatten_all")]
    #[doc(alias = "ravel")]
    pub fn flatten(&self) -> Result<Self> {
        self.reshape(self.elem_count()).within("flatten")
    }

    /// Merges the axes from `start` on into one.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::zeros((2, 3, 4), kiln::DType::F32, &device)?;
    /// assert_eq!(x.flatten_from(1)?.dims(), [2, 12]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist.
    pub fn flatten_from(&self, start: impl Into<Axis>) -> Result<Self> {
        let start = check::axis("flatten_from", start, self)?;
        let rest = self.shape()[start..].iter().product();
        self.reshape(self.shape()[..start].iter().copied().chain([rest]).collect::<Shape>())
    }

    /// Broadcasts to a shape: expands axes of length 1 and adds leading axes.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2], (2, 1), &device)?;
    /// assert_eq!(x.broadcast_to((2, 3))?.to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the tensor does not broadcast to the shape.
    #[doc(alias = "expand")]
    #[doc(alias = "broadcast_as")]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into().checked().map_err(|error| error.context("broadcast_to"))?;
        if self.shape().broadcast(&shape).as_ref() != Some(&shape) {
            let name = Name(self);
            return Err(mismatch(format!("broadcast_to expected a shape that {name} broadcasts to, found {shape}")));
        }
        self.broadcast_unchecked(&shape)
    }

    /// Returns the tensor broadcast to a compatible shape.
    pub(super) fn broadcast_unchecked(&self, shape: &Shape) -> Result<Self> {
        if shape == self.shape() { Ok(self.clone()) } else { self.viewed(View::Broadcast, shape.clone()) }
    }

    /// Returns a range along an axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2, 3, 4, 5, 6], (2, 3), &device)?;
    /// assert_eq!(x.slice(1, 1..)?.to_vec::<i32>()?, [2, 3, 5, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist or the range is out of bounds.
    pub fn slice(&self, axis: impl Into<Axis>, range: impl RangeBounds<usize>) -> Result<Self> {
        self.sliced("slice", axis, range, 1)
    }

    /// Returns `length` elements along an axis, from `start` on.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::new(&[1, 2, 3, 4], &device)?.narrow(0, 1, 2)?.to_vec::<i32>()?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist or the range is out of bounds.
    pub fn narrow(&self, axis: impl Into<Axis>, start: usize, length: usize) -> Result<Self> {
        self.sliced("narrow", axis, start..start.saturating_add(length), 1)
    }

    /// Returns every `step`-th element of a range along an axis, from its start; from its end backwards if the step
    /// is negative.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2, 3, 4, 5], 5, &device)?;
    /// assert_eq!(x.slice_step(0, 1.., 2)?.to_vec::<i32>()?, [2, 4]);
    /// assert_eq!(x.slice_step(0, .., -2)?.to_vec::<i32>()?, [5, 3, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist, the range is out of bounds, or the step is 0.
    pub fn slice_step(&self, axis: impl Into<Axis>, range: impl RangeBounds<usize>, step: isize) -> Result<Self> {
        self.sliced("slice_step", axis, range, step)
    }

    /// Slices on behalf of the method with this name, which error messages use.
    fn sliced(&self, name: &str, axis: impl Into<Axis>, range: impl RangeBounds<usize>, step: isize) -> Result<Self> {
        let axis = check::axis(name, axis, self)?;
        let length = self.shape()[axis];
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => length,
        };
        if start > end || end > length {
            let found = format!("{start}..{end} on axis {axis} of {}", Name(self));
            return Err(invalid(format!("{name} expected a range within 0..{length}, found {found}")));
        }
        if step == 0 {
            return Err(invalid(format!(
                "{name} expected a step other than 0, found 0 on axis {axis} of {}",
                Name(self)
            )));
        }
        let count = (end - start).div_ceil(step.unsigned_abs());
        if count == length && step == 1 {
            return Ok(self.clone());
        }
        // A negative step walks the range from its end.
        let first = if step < 0 { end.saturating_sub(1) } else { start };
        // With fewer than two elements the step is irrelevant and may be arbitrarily large; normalize it.
        let step = if count < 2 { 1 } else { step };
        self.viewed(View::Slice { axis, start: first, step }, self.shape().with(axis, count))
    }

    /// Reverses the elements along one or more axes.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::new(&[1, 2, 3], &device)?.flip(0)?.to_vec::<i32>()?, [3, 2, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if an axis does not exist.
    pub fn flip(&self, axes: impl Into<Axes>) -> Result<Self> {
        check::axes("flip", axes, self)?.into_iter().try_fold(self.clone(), |x, axis| {
            let view = View::Slice { axis, start: x.shape()[axis].saturating_sub(1), step: -1 };
            x.viewed(view, x.shape().clone())
        })
    }

    /// Returns one index along an axis and removes the axis.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[1, 2, 3, 4], (2, 2), &device)?;
    /// assert_eq!(x.select(0, 1)?.to_vec::<i32>()?, [3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist or the index is out of range.
    pub fn select(&self, axis: impl Into<Axis>, index: usize) -> Result<Self> {
        let axis = check::axis("select", axis, self)?;
        let length = self.shape()[axis];
        if index >= length {
            let name = Name(self);
            return Err(invalid(format!(
                "select expected an index below {length}, found {index} on axis {axis} of {name}"
            )));
        }
        self.slice(axis, index..=index)?.squeeze(axis)
    }

    /// Removes an axis of length 1.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::zeros((2, 1, 3), kiln::DType::F32, &device)?;
    /// assert_eq!(x.squeeze(1)?.shape()[..], [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the length of the axis is not 1, and `InvalidArgument` if the axis does not exist.
    pub fn squeeze(&self, axis: impl Into<Axis>) -> Result<Self> {
        let axis = check::axis("squeeze", axis, self)?;
        if self.shape()[axis] != 1 {
            let (found, name) = (self.shape()[axis], Name(self));
            return Err(mismatch(format!(
                "squeeze expected an axis of length 1, found {found} on axis {axis} of {name}"
            )));
        }
        self.without_axes(&smallvec![axis])
    }

    /// Removes these axes, which must have length 1.
    pub(super) fn without_axes(&self, axes: &graph::Axes) -> Result<Self> {
        let kept = self.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        self.reshape(kept.map(|(_, &length)| length).collect::<Shape>())
    }

    /// Inserts an axis of length 1 at this position; negative positions count from the end.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?;
    /// assert_eq!(x.unsqueeze(1)?.shape()[..], [2, 1, 3]);
    /// assert_eq!(x.unsqueeze(-1)?.shape()[..], [2, 3, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis is out of range.
    pub fn unsqueeze(&self, axis: impl Into<Axis>) -> Result<Self> {
        let axis = check::axis_of("unsqueeze", axis, self.rank() + 1, self)?;
        let mut lengths = self.shape().to_vec();
        lengths.insert(axis, 1);
        self.reshape(lengths)
    }

    /// Splits an axis into parts of these lengths, in order.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let parts = kiln::Tensor::from_slice(&[1, 2, 3], 3, &device)?.split(&[1, 2], 0)?;
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the lengths do not add up to the length of the axis, and `InvalidArgument` if the
    /// axis does not exist.
    pub fn split(&self, lengths: &[usize], axis: impl Into<Axis>) -> Result<Vec<Self>> {
        let axis = check::axis("split", axis, self)?;
        let total = lengths.iter().try_fold(0usize, |total, &length| total.checked_add(length));
        if total != Some(self.shape()[axis]) {
            let (wanted, name) = (self.shape()[axis], Name(self));
            let message =
                format!("split expected lengths that add up to {wanted}, found {lengths:?} on axis {axis} of {name}");
            return Err(mismatch(message));
        }
        let mut start = 0;
        let part = |&length: &usize| {
            start += length;
            self.slice(axis, start - length..start)
        };
        lengths.iter().map(part).collect()
    }

    /// Splits an axis into `count` parts of equal length, except that the last may be shorter. Returns fewer parts if
    /// the axis has fewer elements.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let parts = kiln::Tensor::from_slice(&[1, 2, 3], 3, &device)?.chunk(2, 0)?;
    /// assert_eq!(parts[0].to_vec::<i32>()?, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist, or if `count` is 0.
    pub fn chunk(&self, count: usize, axis: impl Into<Axis>) -> Result<Vec<Self>> {
        let axis = check::axis("chunk", axis, self)?;
        if count == 0 {
            return Err(invalid(format!("chunk expected at least one part, found 0 for {}", Name(self))));
        }
        let length = self.shape()[axis];
        let part = length.div_ceil(count).max(1);
        // An empty axis yields one empty part.
        let starts = (0..length.max(1)).step_by(part);
        starts.map(|start| self.slice(axis, start..length.min(start + part))).collect()
    }
}
