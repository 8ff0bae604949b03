//! Shapes with an inferred length, for [`Tensor::reshape`].

use super::Tensor;
use super::check::{Name, invalid, mismatch};
use crate::{Result, Shape};
use smallvec::{SmallVec, smallvec};

/// A length along an axis: a number, or -1 or `()` to infer it from the others.
///
/// See [`Tensor::reshape`] for an example.
pub trait Dim {
    /// Returns the length as a number, -1 if it is inferred.
    ///
    /// See [`Tensor::reshape`] for an example.
    fn length(self) -> isize;
}

impl Dim for usize {
    fn length(self) -> isize {
        // No tensor is that long, so the error is the same.
        isize::try_from(self).unwrap_or(isize::MAX)
    }
}

impl Dim for isize {
    fn length(self) -> isize {
        self
    }
}

impl Dim for i32 {
    fn length(self) -> isize {
        self as isize
    }
}

impl Dim for () {
    fn length(self) -> isize {
        -1
    }
}

/// A shape with at most one inferred length: a number, a tuple or a list of [`Dim`]s, or a [`Shape`].
///
/// See [`Tensor::reshape`] for an example.
#[derive(Clone, Debug)]
pub struct Dims(SmallVec<[isize; 4]>);

impl Dims {
    /// Resolves the shape for a tensor.
    pub(super) fn resolve(self, op: &str, tensor: &Tensor) -> Result<Shape> {
        let Self(lengths) = self;
        if let Some(wrong) = lengths.iter().find(|length| **length < -1) {
            return Err(invalid(format!(
                "{op} expected lengths of at least 0, or -1, found {wrong} for {}",
                Name(tensor)
            )));
        }
        let open = lengths.iter().filter(|length| **length == -1).count();
        let known = lengths.iter().filter(|length| **length >= 0);
        let product = known.clone().try_fold(1usize, |all, length| all.checked_mul(*length as usize));
        let rest = match (open, product) {
            (0, _) => 0,
            // With a known length of 0, any inferred length would fit, so the inference is an error.
            (1, Some(product @ 1..)) if tensor.elem_count().is_multiple_of(product) => tensor.elem_count() / product,
            (1, _) => {
                let lengths = lengths.as_slice();
                return Err(mismatch(format!("{op} expected lengths that divide {}, found {lengths:?}", Name(tensor))));
            }
            _ => {
                return Err(invalid(format!(
                    "{op} expected at most one inferred length, found {open} for {}",
                    Name(tensor)
                )));
            }
        };
        Ok(lengths.iter().map(|&length| if length < 0 { rest } else { length as usize }).collect())
    }
}

impl From<&Shape> for Dims {
    fn from(shape: &Shape) -> Self {
        Self::from(&shape[..])
    }
}

impl From<Shape> for Dims {
    fn from(shape: Shape) -> Self {
        Self::from(&shape[..])
    }
}

impl From<()> for Dims {
    fn from((): ()) -> Self {
        Self(SmallVec::new())
    }
}

impl<D: Dim + Copy> From<&[D]> for Dims {
    fn from(lengths: &[D]) -> Self {
        Self(lengths.iter().map(|length| length.length()).collect())
    }
}

impl<D: Dim + Copy> From<Vec<D>> for Dims {
    fn from(lengths: Vec<D>) -> Self {
        Self::from(&lengths[..])
    }
}

impl<D: Dim + Copy, const RANK: usize> From<[D; RANK]> for Dims {
    fn from(lengths: [D; RANK]) -> Self {
        Self::from(&lengths[..])
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Dims {
            fn from(length: $number) -> Self {
                Self(smallvec![length.length()])
            }
        }
    )*};
}

numbers!(usize isize i32);

macro_rules! tuples {
    ($(($($dim:ident)+))*) => {$(
        impl<$($dim: Dim),+> From<($($dim,)+)> for Dims {
            #[expect(non_snake_case, reason = "the macro uses one identifier as type and variable")]
            fn from(($($dim,)+): ($($dim,)+)) -> Self {
                Self(smallvec![$($dim.length()),+])
            }
        }
    )*};
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

impl Tensor {
    /// Returns the length of a rank-1 tensor.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(kiln::Tensor::new([1.0f32, 2.0], &device)?.dims1()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the tensor has another rank.
    pub fn dims1(&self) -> Result<usize> {
        match *self.dims() {
            [length] => Ok(length),
            _ => Err(mismatch(format!("dims1 expected 1 axis, found {}", Name(self)))),
        }
    }
}

macro_rules! exact_rank {
    ($($name:ident $rank:literal ($($length:ident)+);)*) => {
        impl Tensor {
            $(
                #[doc = concat!("Returns the lengths of a tensor with ", $rank, " axes.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let (rows, columns) = kiln::Tensor::zeros((2, 3), kiln::DType::F32, &device)?.dims2()?;
                /// assert_eq!((rows, columns), (2, 3));
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                /// Returns `ShapeMismatch` if the tensor has another rank.
                pub fn $name(&self) -> Result<($(exact_rank!(@usize $length)),+)> {
                    match *self.dims() {
                        [$($length),+] => Ok(($($length),+)),
                        _ => Err(mismatch(format!(concat!(stringify!($name), " expected ", $rank, " axes, found {}"), Name(self)))),
                    }
                }
            )*
        }
    };
    (@usize $length:ident) => { usize };
}

exact_rank! {
    dims2 "2" (a b);
    dims3 "3" (a b c);
    dims4 "4" (a b c d);
    dims5 "5" (a b c d e);
}
