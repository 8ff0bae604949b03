//! NumPy-style indexing on several axes: the argument types of [`Tensor::i`].

use super::Tensor;
use super::check::{self, Name, Within, invalid};
use crate::Result;
use smallvec::{SmallVec, smallvec};
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// An index for [`Tensor::i`]: one item per axis, starting with the first.
///
/// See [`Tensor::i`] for an example.
#[derive(Clone, Debug)]
pub struct Index(SmallVec<[IndexItem; 4]>);

/// One item of an [`Index`].
///
/// See [`Tensor::i`] for an example.
#[derive(Clone, Debug)]
pub enum IndexItem {
    /// One element; the axis is removed. Negative numbers count from the end.
    At(isize),
    /// A range of elements.
    Slice(Slice),
    /// Elements selected by a tensor of `u32`, `i32` or `i64` indices, together with the other index tensors.
    Tensor(Tensor),
    /// All axes not covered by other items.
    Ellipsis,
    /// A new axis of length 1.
    NewAxis,
}

/// Covers all axes not covered by other items: `x.i((Ellipsis, 0))` is `x[..., 0]` in NumPy.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{DType, Ellipsis, Tensor};
///
/// let x = Tensor::zeros((2, 3, 4), DType::F32, &device)?;
/// assert_eq!(x.i((Ellipsis, 0))?.dims(), [2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// Inserts an axis of length 1: `x.i((.., NewAxis))` is `x[:, None]` in NumPy.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{DType, NewAxis, Tensor};
///
/// let x = Tensor::zeros((2, 3), DType::F32, &device)?;
/// assert_eq!(x.i((.., NewAxis))?.dims(), [2, 1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// A range along an axis, with a step. Negative bounds count from the end.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Slice, Tensor};
///
/// let x = Tensor::new([0, 1, 2, 3, 4, 5], &device)?;
/// assert_eq!(x.i(Slice::new(1..).step(2))?.to_vec::<i32>()?, [1, 3, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    start: Bound<isize>,
    end: Bound<isize>,
    step: isize,
}

impl Slice {
    /// Creates a slice with a step of 1.
    ///
    /// See [`Slice`] for an example.
    pub fn new(range: impl Into<Self>) -> Self {
        range.into()
    }

    /// Sets the step; a negative step goes from the end of the range to its start. The bounds stay in ascending order,
    /// unlike in NumPy: `x[5:2:-1]` is `Slice::new(3..6).step(-1)`.
    ///
    /// See [`Slice`] for an example.
    #[must_use]
    pub fn step(self, step: isize) -> Self {
        Self { step, ..self }
    }

    /// Returns the bounds counted from the front of an axis of this length. They may be out of bounds or descending.
    fn resolve(&self, length: usize) -> (isize, isize) {
        let length = length as isize;
        let from_front = |bound: isize| if bound < 0 { bound.saturating_add(length) } else { bound };
        let start = match self.start {
            Bound::Included(start) => from_front(start),
            Bound::Excluded(start) => from_front(start).saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match self.end {
            Bound::Included(end) => from_front(end).saturating_add(1),
            Bound::Excluded(end) => from_front(end),
            Bound::Unbounded => length,
        };
        (start, end)
    }
}

/// Implements the conversions of integers, and of ranges of them, to index items.
macro_rules! integers {
    ($($number:ty)*) => {$(
        impl From<$number> for IndexItem {
            fn from(number: $number) -> Self {
                Self::At(saturate(number))
            }
        }

        integers!(@ranges $number; Range<$number>, RangeFrom<$number>, RangeTo<$number>, RangeInclusive<$number>, RangeToInclusive<$number>);
    )*};
    (@ranges $number:ty; $($range:ty),*) => {$(
        impl From<$range> for Slice {
            fn from(range: $range) -> Self {
                let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
                Self { start: start.map(saturate), end: end.map(saturate), step: 1 }
            }
        }

        impl From<$range> for IndexItem {
            fn from(range: $range) -> Self {
                Self::Slice(range.into())
            }
        }
    )*};
}

integers!(i32 usize isize);

/// Converts to `isize`. A `usize` that does not fit is out of bounds of every axis, so its exact value is not needed.
fn saturate(number: impl TryInto<isize>) -> isize {
    number.try_into().unwrap_or(isize::MAX)
}

impl From<RangeFull> for Slice {
    fn from(_: RangeFull) -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded, step: 1 }
    }
}

impl From<RangeFull> for IndexItem {
    fn from(range: RangeFull) -> Self {
        Self::Slice(range.into())
    }
}

impl From<Slice> for IndexItem {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl From<Ellipsis> for IndexItem {
    fn from(_: Ellipsis) -> Self {
        Self::Ellipsis
    }
}

impl From<NewAxis> for IndexItem {
    fn from(_: NewAxis) -> Self {
        Self::NewAxis
    }
}

impl From<&Tensor> for IndexItem {
    fn from(tensor: &Tensor) -> Self {
        Self::Tensor(tensor.clone())
    }
}

impl<T: Into<IndexItem>> From<T> for Index {
    fn from(item: T) -> Self {
        Self(smallvec![item.into()])
    }
}

macro_rules! tuples {
    ($(($($item:ident)+))*) => {$(
        impl<$($item: Into<IndexItem>),+> From<($($item,)+)> for Index {
            #[expect(non_snake_case, reason = "the macro uses one identifier as type and variable")]
            fn from(($($item,)+): ($($item,)+)) -> Self {
                Self(smallvec![$($item.into()),+])
            }
        }
    )*};
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

impl From<Vec<IndexItem>> for Index {
    fn from(items: Vec<IndexItem>) -> Self {
        Self(items.into())
    }
}

impl Tensor {
    /// Indexes several axes at once as in NumPy: numbers, ranges, index tensors, [`Ellipsis`] and [`NewAxis`]. Axes
    /// without an item are kept. Without index tensors the result is a view.
    ///
    /// Index tensors, of any shape, are broadcast together: `x.i((&rows, &columns))` selects the element
    /// `(rows[k], columns[k])` for each `k`. Their axes replace the first indexed axis, or come first if the index
    /// tensors are not adjacent. As in PyTorch, and unlike NumPy, a number is not an index tensor: it only removes its
    /// axis. A range that exceeds its axis is an error, where NumPy clamps it.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::{Ellipsis, NewAxis, Slice, Tensor};
    ///
    /// let x = Tensor::new(&[[1, 2, 3, 4], [5, 6, 7, 8]], &device)?;
    /// assert_eq!(x.i(-1)?.to_vec::<i32>()?, [5, 6, 7, 8]);
    /// assert_eq!(x.i((.., 1..3))?.to_vec::<i32>()?, [2, 3, 6, 7]);
    /// assert_eq!(x.i((0, ..-1))?.to_vec::<i32>()?, [1, 2, 3]);
    /// assert_eq!(x.i((Ellipsis, Slice::new(..).step(-2)))?.to_vec::<i32>()?, [4, 2, 8, 6]);
    /// assert_eq!(x.i((.., NewAxis, 0))?.dims(), [2, 1]);
    /// let (rows, columns) = (Tensor::new([0u32, 1, 1], &device)?, Tensor::new([3u32, 0, 2], &device)?);
    /// assert_eq!(x.i((&rows, &columns))?.to_vec::<i32>()?, [4, 5, 7]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` for more items than axes, a second ellipsis, an index or range out of bounds, or a
    /// step of 0, `ShapeMismatch` if index tensors do not broadcast, and `Unsupported` if one is not `u32`, `i32` or
    /// `i64`. An out-of-range element of an index tensor, negative ones included, makes [`eval`](Self::eval) fail on
    /// the CPU device, and gives 0 on a GPU.
    #[doc(alias = "index")]
    #[doc(alias = "get")]
    #[doc(alias = "getitem")]
    pub fn i(&self, index: impl Into<Index>) -> Result<Self> {
        let Index(items) = index.into();
        let named = items.iter().filter(|item| !matches!(item, IndexItem::Ellipsis | IndexItem::NewAxis)).count();
        let Some(uncovered) = self.rank().checked_sub(named) else {
            return Err(invalid(format!("i expected at most {} items, found {named} for {}", self.rank(), Name(self))));
        };
        if items.iter().filter(|item| matches!(item, IndexItem::Ellipsis)).count() > 1 {
            return Err(invalid(format!("i expected at most one ellipsis, found more for {}", Name(self))));
        }
        // `axis` is an axis of the result so far; `source_axis` is the corresponding axis of this tensor.
        let (mut result, mut axis, mut source_axis) = (self.clone(), 0, 0);
        let mut indices: SmallVec<[(usize, Self); 2]> = SmallVec::new();
        for item in items {
            // The axes of the result that the item keeps or adds, and the axes of this tensor that it covers.
            let (kept, covered) = match item {
                IndexItem::At(index) => {
                    result = result.select(axis, self.resolve_index(source_axis, index)?)?;
                    (0, 1)
                }
                IndexItem::Slice(slice) => {
                    result = result.slice_step(axis, self.resolve_range(source_axis, slice)?, slice.step)?;
                    (1, 1)
                }
                IndexItem::Tensor(index) => {
                    let index = check::index(&format!("i on axis {source_axis} of {}", Name(self)), &index)?;
                    // Applied together at the end, because index tensors broadcast with each other. Later items
                    // change only later axes, so `axis` stays valid.
                    indices.push((axis, index.into_owned()));
                    (1, 1)
                }
                IndexItem::Ellipsis => (uncovered, uncovered),
                IndexItem::NewAxis => {
                    result = result.unsqueeze(axis)?;
                    (1, 0)
                }
            };
            (axis, source_axis) = (axis + kept, source_axis + covered);
        }
        if indices.is_empty() { Ok(result) } else { result.index_joint(&indices).within("i") }
    }

    /// Returns an index on an axis, counted from the front.
    fn resolve_index(&self, axis: usize, index: isize) -> Result<usize> {
        let length = self.shape()[axis];
        let from_front = if index < 0 { index.saturating_add(length as isize) } else { index };
        let resolved = usize::try_from(from_front).ok().filter(|index| *index < length);
        resolved.ok_or_else(|| {
            let name = Name(self);
            invalid(format!(
                "i expected an index from -{length} to below {length}, found {index} on axis {axis} of {name}"
            ))
        })
    }

    /// Returns a range on an axis, counted from the front.
    fn resolve_range(&self, axis: usize, slice: Slice) -> Result<Range<usize>> {
        let length = self.shape()[axis];
        let (start, end) = slice.resolve(length);
        let wrong = |expected: String| Err(invalid(format!("i expected {expected} on axis {axis} of {}", Name(self))));
        if slice.step == 0 {
            return wrong("a step other than 0, found 0".to_string());
        }
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(from), Ok(to)) if from <= to && to <= length => Ok(from..to),
            _ => wrong(format!("a range within 0..{length}, found {start}..{end}")),
        }
    }
}
