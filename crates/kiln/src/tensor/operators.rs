//! Operator overloads, scalar forms and in-place forms.

use super::check::Within;
use super::{Operand, Tensor};
use crate::Result;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The right-hand side of an operator: a tensor, a reference to one, a number, or the result of an op.
///
/// A result on either side of a tensor needs no `?`: its error becomes the error of the operator. On the left-hand
/// side a number is an `f64` or an `i32`, like literals. Rust allows no operator between a result and a number or
/// another result; these need the `?`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// let (a, b) = (kiln::Tensor::new([1f32, 2.0], &device)?, kiln::Tensor::new([3f32, 4.0], &device)?);
/// assert_eq!((&a + (&a * &b))?.to_vec::<f32>()?, [4.0, 10.0]);
/// assert_eq!(((&a * &b) + &a)?.to_vec::<f32>()?, [4.0, 10.0]);
/// assert_eq!((1 - (2.0 * &a)?)?.to_vec::<f32>()?, [-1.0, -3.0]);
/// # Ok(())
/// # }
/// ```
pub trait OperatorRhs {
    /// Calls `apply` with the tensor or number.
    ///
    /// See [`OperatorRhs`] for an example.
    ///
    /// # Errors
    /// Returns the error held in place of a tensor, or the error of `apply`.
    fn with_operand(self, apply: impl FnOnce(Operand<'_>) -> Result<Tensor>) -> Result<Tensor>;
}

impl OperatorRhs for &Tensor {
    fn with_operand(self, apply: impl FnOnce(Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
        apply(self.into())
    }
}

impl OperatorRhs for Tensor {
    fn with_operand(self, apply: impl FnOnce(Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
        apply((&self).into())
    }
}

impl<T: OperatorRhs> OperatorRhs for Result<T> {
    fn with_operand(self, apply: impl FnOnce(Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
        self?.with_operand(apply)
    }
}

impl OperatorRhs for Operand<'_> {
    fn with_operand(self, apply: impl FnOnce(Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
        apply(self)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl OperatorRhs for $number {
            fn with_operand(self, apply: impl FnOnce(Operand<'_>) -> Result<Tensor>) -> Result<Tensor> {
                apply(self.into())
            }
        }
    )*};
}

numbers!(f64 f32 half::f16 half::bf16 i32 i16 i8 u32 u16 u8);

macro_rules! arithmetic {
    ($($trait:ident $method:ident $scalar:ident $assign:ident $sign:literal [$with_scalar:literal $in_place:literal];)*) => {
        $(
            impl<R: OperatorRhs> $trait<R> for &Tensor {
                type Output = Result<Tensor>;

                fn $method(self, other: R) -> Result<Tensor> {
                    other.with_operand(|other| Tensor::$method(self, other))
                }
            }

            impl<R: OperatorRhs> $trait<R> for Tensor {
                type Output = Result<Tensor>;

                fn $method(self, other: R) -> Result<Tensor> {
                    $trait::$method(&self, other)
                }
            }

            impl $trait<&Tensor> for Result<Tensor> {
                type Output = Result<Tensor>;

                fn $method(self, other: &Tensor) -> Result<Tensor> {
                    Tensor::$method(&self?, other)
                }
            }

            impl $trait<Tensor> for Result<Tensor> {
                type Output = Result<Tensor>;

                fn $method(self, other: Tensor) -> Result<Tensor> {
                    Tensor::$method(&self?, &other)
                }
            }

            arithmetic!(@left $trait $method f64 i32);
        )*

        impl Tensor {
            $(
                #[doc = concat!("Returns `self ", $sign, " value` for every element.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::from_slice(&[8.0f32], 1, &device)?;
                #[doc = concat!("assert_eq!(x.", stringify!($scalar), "(2.0)?.to_vec::<f32>()?, ", $with_scalar, ");")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                /// Returns `InvalidArgument` if an integer dtype cannot hold the number.
                pub fn $scalar(&self, value: impl Into<f64>) -> Result<Self> {
                    self.$method(value.into()).within(stringify!($scalar))
                }

                #[doc = concat!("Computes `self ", $sign, "= other`. Other handles to the same tensor keep its elements.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let mut x = kiln::Tensor::from_slice(&[8.0f32], 1, &device)?;
                /// let other = x.clone();
                #[doc = concat!("x.", stringify!($assign), "(&other)?;")]
                #[doc = concat!("assert_eq!(x.to_vec::<f32>()?, ", $in_place, ");")]
                /// assert_eq!(other.to_vec::<f32>()?, [8.0]);
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                #[doc = concat!("Same as [`", stringify!($method), "`](Self::", stringify!($method), "), and `ShapeMismatch` if the result has another shape. Nothing is changed then.")]
                pub fn $assign<'a>(&mut self, other: impl Into<Operand<'a>>) -> Result<()> {
                    self.assign(stringify!($assign), |own| own.$method(other))
                }
            )*
        }
    };
    // One float type and one integer type: a second one would make the type of a literal such as `2.0` ambiguous, and
    // with it the type of `2.0 * &x`.
    (@left $trait:ident $method:ident $($number:ty)*) => {$(
        impl $trait<&Tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, other: &Tensor) -> Result<Tensor> {
                let (shape, value) = (other.shape().clone(), f64::from(self));
                let left = Tensor::splat(stringify!($method), shape, value, other.dtype(), other.device())?;
                Tensor::$method(&left, other)
            }
        }

        impl $trait<Tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, other: Tensor) -> Result<Tensor> {
                $trait::$method(self, &other)
            }
        }
    )*};
}

arithmetic! {
    Add add add_scalar add_assign "+" ["[10.0]" "[16.0]"];
    Sub sub sub_scalar sub_assign "-" ["[6.0]" "[0.0]"];
    Mul mul mul_scalar mul_assign "*" ["[16.0]" "[64.0]"];
    Div div div_scalar div_assign "/" ["[4.0]" "[1.0]"];
}

impl Tensor {
    /// Replaces the tensor with the result of an op, if shape and dtype stay the same.
    fn assign(&mut self, name: &str, op: impl FnOnce(&Self) -> Result<Self>) -> Result<()> {
        let result = op(self).within(name)?;
        if result.shape() != self.shape() {
            let (own, found) = (super::check::Name(self), result.shape());
            return Err(super::check::mismatch(format!(
                "{name} expected a result of the shape of {own}, found {found}"
            )));
        }
        *self = result;
        Ok(())
    }
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
