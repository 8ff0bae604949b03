//! Repeating, rolling, padding and masking, composed of other ops.

use super::check::{self, Axis, Name, Within, mismatch};
use super::{Operand, Tensor};
use crate::{DType, Element, Result, Shape};

impl Tensor {
    /// Repeats the tensor along each axis; counts beyond its rank add leading axes.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[1, 2], &device)?;
    /// assert_eq!(x.repeat((2, 2))?.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if there are fewer lengths than axes, and `TooLarge` if the result is too large.
    #[doc(alias = "tile")]
    pub fn repeat(&self, times: impl Into<Shape>) -> Result<Self> {
        let times = times.into();
        let Some(new) = times.rank().checked_sub(self.rank()) else {
            let (rank, name) = (self.rank(), Name(self));
            return Err(mismatch(format!("repeat expected at least {rank} numbers, found {times} for {name}")));
        };
        let lengths = || [1].into_iter().cycle().take(new).chain(self.shape().iter().copied());
        let pairs = || times.iter().copied().zip(lengths());
        // (a, b) is viewed as (1, a, 1, b), broadcast to (times, a, times, b) and merged: no element is copied before
        // the last reshape.
        let split: Shape = lengths().flat_map(|length| [1, length]).collect();
        let repeated: Shape = pairs().flat_map(|(times, length)| [times, length]).collect();
        let joined = pairs().map(|(times, length)| times.saturating_mul(length)).collect::<Shape>();
        let joined = joined.checked().within("repeat")?;
        self.reshape(split)?.broadcast_to(repeated).within("repeat")?.reshape(joined)
    }

    /// Shifts elements along an axis by `shift` places, wrapping around.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[1, 2, 3, 4], &device)?;
    /// assert_eq!(x.roll(1, 0)?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// assert_eq!(x.roll(-1, 0)?.to_vec::<i32>()?, [2, 3, 4, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the axis does not exist.
    pub fn roll(&self, shift: isize, axis: impl Into<Axis>) -> Result<Self> {
        let axis = check::axis("roll", axis, self)?;
        let length = self.shape()[axis];
        let start = shift.checked_rem_euclid(length as isize).map_or(0, |shift| length - shift as usize);
        if start == 0 || start == length {
            return Ok(self.clone());
        }
        Self::cat(&[self.slice(axis, start..)?, self.slice(axis, ..start)?], axis)
    }

    /// Pads each axis with a constant value. As in `numpy.pad`, `lengths` has a pair (before, after) for each axis,
    /// in order.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[[1, 2]], &device)?;
    /// assert_eq!(x.pad(&[(0, 1), (1, 0)], 9)?.to_vec::<i32>()?, [9, 1, 2, 9, 9, 9]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` unless there is one pair per axis, `InvalidArgument` if the dtype cannot hold the
    /// value, and `TooLarge` if the result is too large.
    #[doc(alias = "pad_with_zeros")]
    #[doc(alias = "constant_pad")]
    pub fn pad(&self, lengths: &[(usize, usize)], value: impl Into<f64>) -> Result<Self> {
        if lengths.len() != self.rank() {
            let (rank, found, name) = (self.rank(), lengths.len(), Name(self));
            return Err(mismatch(format!("pad expected {rank} pairs of lengths, found {found} for {name}")));
        }
        let value = value.into();
        let mut padded = self.clone();
        for (axis, &(before, after)) in lengths.iter().enumerate().filter(|(_, pair)| **pair != (0, 0)) {
            let edge = |length| {
                let shape = padded.shape().with(axis, length).checked().within("pad")?;
                Self::splat("pad", shape, value, self.dtype(), self.device())
            };
            let parts = [edge(before)?, padded.clone(), edge(after)?];
            let parts: Vec<&Self> = parts.iter().filter(|part| part.shape()[axis] > 0).collect();
            padded = if parts.is_empty() { padded } else { Self::cat(&parts, axis).within("pad")? };
        }
        Ok(padded)
    }

    /// Replaces elements with a number where a `u8` mask is not 0. The mask broadcasts.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[1.0f32, -2.0], &device)?;
    /// assert_eq!(x.masked_fill(&x.lt(0)?, 0)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`where_`](Self::where_), and `ShapeMismatch` if the mask is larger than the tensor.
    pub fn masked_fill(&self, mask: &Self, value: impl Into<f64>) -> Result<Self> {
        let mask = mask.broadcast_to(self.shape()).within("masked_fill")?;
        mask.where_(Operand::Scalar(value.into()), self).within("masked_fill")
    }

    /// Returns the one-hot encoding of indices: a new last axis of length `depth`, with a one at each index and zeros
    /// elsewhere.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let labels = kiln::Tensor::new(&[1u32, 0], &device)?;
    /// assert_eq!(labels.one_hot(3, kiln::DType::F32)?.to_vec::<f32>()?, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` unless the elements are `u32`, `i32` or `i64`, and `TooLarge` if the result is too
    /// large. An index that is not below `depth` gives zeros.
    pub fn one_hot(&self, depth: usize, dtype: DType) -> Result<Self> {
        let index = check::index("one_hot", self)?;
        let places = Self::arange(0.0, depth as f64, 1.0, index.dtype(), self.device()).within("one_hot")?;
        index.unsqueeze(-1)?.eq(&places).within("one_hot")?.to_dtype(dtype)
    }

    /// Returns the indices of nonzero elements, one row each, as `u32` with shape `(count, rank)`.
    ///
    /// The shape of the result depends on the elements, so this evaluates the tensor and waits.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[[0, 5], [7, 0]], &device)?;
    /// assert_eq!(x.nonzero()?.to_vec::<u32>()?, [0, 1, 1, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`eval`](Self::eval).
    #[doc(alias = "argwhere")]
    pub fn nonzero(&self) -> Result<Self> {
        let is_set: Vec<bool> = self.to_dtype(DType::Bool)?.to_vec()?;
        let strides = self.shape().strides();
        let mut indices = Vec::new();
        for (place, _) in is_set.iter().enumerate().filter(|(_, is_set)| **is_set) {
            let along = self.shape().iter().zip(&strides);
            indices.extend(along.map(|(&length, &stride)| (place / stride as usize % length) as u32));
        }
        let count = is_set.iter().filter(|is_set| **is_set).count();
        Self::from_slice(&indices, (count, self.rank()), self.device())
    }

    /// Returns the distinct elements along one axis, in ascending order, NaN last.
    ///
    /// The length of the result depends on the elements, so this evaluates the tensor and waits.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::new(&[3, 1, 3, 2], &device)?;
    /// assert_eq!(x.unique()?.to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`eval`](Self::eval).
    pub fn unique(&self) -> Result<Self> {
        let distinct = match self.dtype() {
            DType::F64 => self.distinct(self.to_vec::<f64>()?)?,
            // `f32` holds every value of the narrower dtypes exactly.
            dtype if dtype.is_float() => self.distinct(self.to_vec::<f32>()?)?,
            _ => self.distinct(self.to_vec::<i64>()?)?,
        };
        distinct.to_dtype(self.dtype())
    }

    /// Returns the distinct elements of a list in ascending order. NaN, which has no order, comes last.
    fn distinct<T: Element + PartialOrd>(&self, mut elements: Vec<T>) -> Result<Self> {
        let is_nan = |x: &T| x.partial_cmp(x).is_none();
        // NaN sorts last, which makes this a total order; NaNs count as one value.
        elements.sort_by(|a, b| is_nan(a).cmp(&is_nan(b)).then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)));
        elements.dedup_by(|a, b| a == b || is_nan(a) && is_nan(b));
        Self::from_slice(&elements, elements.len(), self.device())
    }
}
