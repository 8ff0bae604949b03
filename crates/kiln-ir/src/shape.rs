//! Tensor shapes.

use crate::{Error, ErrorKind, Result};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// The dimensions of a tensor; empty for a scalar. Up to four dimensions are stored inline.
///
/// ```
/// use kiln_ir::Shape;
///
/// let shape = Shape::from((2, 3));
/// assert_eq!(shape.to_string(), "(2, 3)");
/// assert_eq!((shape.rank(), shape.elem_count()), (2, 6));
/// assert_eq!(Shape::from(()).elem_count(), 1);
/// ```
#[derive(Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// Creates a shape from its dimensions.
    pub fn new(lengths: &[usize]) -> Self {
        Self(SmallVec::from_slice(lengths))
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements. Cannot overflow for a [checked](Self::checked) shape.
    pub fn elem_count(&self) -> usize {
        self.0.iter().product()
    }

    /// Returns the shape if it has at most `u32::MAX` elements, the limit of an index on a GPU.
    ///
    /// # Errors
    /// Returns `TooLarge` if it has more.
    pub fn checked(self) -> Result<Self> {
        let counted =
            // Zero dimensions are skipped, so that strides, which count them as 1, cannot overflow either.
            self.0.iter().filter(|&&length| length > 0).try_fold(1usize, |all, &length| all.checked_mul(length));
        match counted {
            Some(elements) if elements <= u32::MAX as usize => Ok(self),
            _ => {
                let message = format!("shape expected at most {} elements, found {self}", u32::MAX);
                Err(Error::new(ErrorKind::TooLarge, message))
            }
        }
    }

    /// Returns the shape with the length of one axis replaced.
    #[must_use]
    pub fn with(&self, axis: usize, length: usize) -> Self {
        let mut lengths = self.0.clone();
        lengths[axis] = length;
        Self(lengths)
    }

    /// Returns the shape that both broadcast to: axes are aligned from the last, and a length of 1 is repeated.
    /// Returns `None` if the shapes are incompatible.
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        let rank = self.rank().max(other.rank());
        let length = |shape: &Self, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |axis| shape[axis]);
        (0..rank)
            .map(|axis| match (length(self, axis), length(other, axis)) {
                (a, b) if a == b || b == 1 => Some(a),
                (1, b) => Some(b),
                _ => None,
            })
            .collect::<Option<SmallVec<_>>>()
            .map(Self)
    }

    /// Returns the row-major strides of a contiguous tensor, in elements.
    pub fn strides(&self) -> SmallVec<[isize; 4]> {
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(1, self.rank());
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis].max(1) as isize;
        }
        strides
    }
}

impl Clone for Shape {
    fn clone(&self) -> Self {
        // A single copy: the derived `Clone` goes through an iterator, and every op clones a shape.
        Self::new(self)
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(lengths: I) -> Self {
        Self(lengths.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (axis, length) in self.0.iter().enumerate() {
            write!(f, "{}{length}", if axis == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.rank() == 1 { ",)" } else { ")" })
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! from {
    ($([$($generics:tt)*] $lengths:ident: $ty:ty => $shape:expr;)*) => {
        $(impl<$($generics)*> From<$ty> for Shape {
            fn from($lengths: $ty) -> Self {
                $shape
            }
        })*
    };
}

from! {
    [] shape: &Shape => shape.clone();
    [] lengths: &[usize] => Self::new(lengths);
    [] lengths: Vec<usize> => Self(lengths.into());
    [const RANK: usize] lengths: [usize; RANK] => Self::new(&lengths);
    [] length: usize => Self::new(&[length]);
    [] _nothing: () => Self::default();
}

macro_rules! from_tuples {
    ($($($length:ident)+;)*) => {
        $(impl From<($(from_tuples!(@usize $length),)+)> for Shape {
            #[expect(non_snake_case, reason = "one name serves as variable and counter")]
            fn from(($($length,)+): ($(from_tuples!(@usize $length),)+)) -> Self {
                Self::new(&[$($length),+])
            }
        })*
    };
    (@usize $length:ident) => { usize };
}

from_tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_from_the_last_axis() {
        type Lengths = &'static [usize];
        let table: [(Lengths, Lengths, Option<Lengths>); 8] = [
            (&[], &[], Some(&[])),
            (&[3], &[], Some(&[3])),
            (&[2, 3], &[3], Some(&[2, 3])),
            (&[2, 1], &[1, 3], Some(&[2, 3])),
            (&[4, 1, 3], &[2, 1], Some(&[4, 2, 3])),
            (&[0], &[1], Some(&[0])),
            (&[0], &[2], None),
            (&[2, 3], &[2], None),
        ];
        for (a, b, expected) in table {
            let (a, b, expected) = (Shape::new(a), Shape::new(b), expected.map(Shape::new));
            assert_eq!(a.broadcast(&b), expected, "{a} {b}");
            assert_eq!(b.broadcast(&a), expected, "{b} {a}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        assert!(Shape::from([1 << 16, 1 << 15]).checked().is_ok());
        for lengths in [[1 << 16, 1 << 16], [usize::MAX, 2], [usize::MAX, 0]] {
            assert_eq!(Shape::from(lengths).checked().unwrap_err().kind(), ErrorKind::TooLarge, "{lengths:?}");
        }
    }

    #[test]
    fn shapes_come_from_tuples_arrays_and_lists_and_read_as_python_writes_them() {
        let texts = [Shape::from(()), 7.into(), (7,).into(), (2, 3).into(), [2, 3, 4].into(), vec![1; 7].into()];
        let texts = texts.map(|shape| shape.to_string());
        assert_eq!(texts, ["()", "(7,)", "(7,)", "(2, 3)", "(2, 3, 4)", "(1, 1, 1, 1, 1, 1, 1)"]);
        assert_eq!(Shape::from((2, 0, 3)).strides().to_vec(), [3, 3, 1]);
    }
}
