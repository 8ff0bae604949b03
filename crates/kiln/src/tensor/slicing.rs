//! Indexing on several axes at once.

use super::Tensor;
use super::check::{Name, invalid};
use crate::Result;
use smallvec::{SmallVec, smallvec};
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// The part of a tensor that [`Tensor::i`] returns: an item for each axis, from the first.
#[derive(Clone, Debug)]
pub struct Index(SmallVec<[IndexItem; 4]>);

/// What an [`Index`] says of one axis.
#[derive(Clone, Debug)]
pub enum IndexItem {
    /// One element; the axis is left out. Negative numbers count from the end.
    At(isize),
    /// A range of elements.
    Slice(Slice),
    /// The elements that a tensor of `u32` or `i32` with one axis names, as in [`Tensor::index_select`].
    Tensor(Tensor),
    /// All axes that no other item stands for.
    Ellipsis,
    /// A new axis of length 1.
    NewAxis,
}

/// Stands for all axes that no other item of an index stands for: `x.i((Ellipsis, 0))` is `x[..., 0]` of NumPy.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// Inserts an axis of length 1: `x.i((.., NewAxis))` is `x[:, None]` of NumPy.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// A range along an axis, with a step. Negative bounds count from the end.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    start: Bound<isize>,
    end: Bound<isize>,
    step: isize,
}

impl Slice {
    /// Creates a slice with a step of 1.
    pub fn new(range: impl Into<Self>) -> Self {
        range.into()
    }

    /// Sets the step; a negative one goes from the end of the range to its start.
    #[must_use]
    pub fn step(self, step: isize) -> Self {
        Self { step, ..self }
    }

    /// Returns the range within an axis of this length.
    fn within(&self, length: usize) -> (isize, isize) {
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

/// Numbers of these types are indices and bounds of ranges.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for IndexItem {
            fn from(number: $number) -> Self {
                Self::At(saturate(number))
            }
        }

        numbers!(@ranges $number; Range<$number>, RangeFrom<$number>, RangeTo<$number>, RangeInclusive<$number>, RangeToInclusive<$number>);
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

numbers!(i32 usize isize);

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
            #[expect(non_snake_case, reason = "one name serves as type and variable")]
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
    /// Returns a part of the tensor, selected on several axes at once as in NumPy: numbers, ranges, tensors of indices, [`Ellipsis`] and
    /// [`NewAxis`]. Axes that no item stands for are kept whole. Without a tensor among the items the result is a view.
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
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for more items than axes, a second ellipsis, an index or range outside of its axis, or a step of 0; for a tensor as
    /// [`index_select`](Self::index_select).
    #[doc(alias = "index")]
    #[doc(alias = "get")]
    #[doc(alias = "getitem")]
    pub fn i(&self, index: impl Into<Index>) -> Result<Self> {
        let Index(items) = index.into();
        let named = items.iter().filter(|item| !matches!(item, IndexItem::Ellipsis | IndexItem::NewAxis)).count();
        let Some(others) = self.rank().checked_sub(named) else {
            return Err(invalid(format!("i expected at most {} items, found {named} for {}", self.rank(), Name(self))));
        };
        if items.iter().filter(|item| matches!(item, IndexItem::Ellipsis)).count() > 1 {
            return Err(invalid(format!("i expected one ellipsis, found more for {}", Name(self))));
        }
        let (mut result, mut axis) = (self.clone(), 0);
        for item in items {
            (result, axis) = match item {
                IndexItem::At(index) => (result.at(axis, index)?, axis),
                IndexItem::Slice(slice) => (result.sliced(axis, slice)?, axis + 1),
                IndexItem::Tensor(index) => (result.index_select(axis, &index)?, axis + 1),
                IndexItem::Ellipsis => (result, axis + others),
                IndexItem::NewAxis => (result.unsqueeze(axis)?, axis + 1),
            };
        }
        Ok(result)
    }

    fn at(&self, axis: usize, index: isize) -> Result<Self> {
        let length = self.shape()[axis];
        let from_front = if index < 0 { index.saturating_add(length as isize) } else { index };
        match usize::try_from(from_front) {
            Ok(from_front) if from_front < length => self.select(axis, from_front),
            _ => {
                let name = Name(self);
                let message = format!(
                    "i expected an index from -{length} to below {length}, found {index} on axis {axis} of {name}"
                );
                Err(invalid(message))
            }
        }
    }

    fn sliced(&self, axis: usize, slice: Slice) -> Result<Self> {
        let length = self.shape()[axis];
        let (start, end) = slice.within(length);
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(from), Ok(to)) => self.slice_step(axis, from..to, slice.step),
            _ => {
                let name = Name(self);
                let message =
                    format!("i expected a range within 0..{length}, found {start}..{end} on axis {axis} of {name}");
                Err(invalid(message))
            }
        }
    }
}
