//! Operators, the forms with a number, and those in place.

use super::{Operand, Tensor};
use crate::Result;
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! arithmetic {
    ($($trait:ident $method:ident $scalar:ident $assign:ident $sign:literal [$with_scalar:literal $in_place:literal];)*) => {
        $(
            impl<'b, O: Into<Operand<'b>>> $trait<O> for &Tensor {
                type Output = Result<Tensor>;

                fn $method(self, other: O) -> Result<Tensor> {
                    Tensor::$method(self, other)
                }
            }

            impl<'b, O: Into<Operand<'b>>> $trait<O> for Tensor {
                type Output = Result<Tensor>;

                fn $method(self, other: O) -> Result<Tensor> {
                    Tensor::$method(&self, other)
                }
            }

            impl $trait<&Tensor> for f64 {
                type Output = Result<Tensor>;

                fn $method(self, other: &Tensor) -> Result<Tensor> {
                    Tensor::$method(&other.like(self)?, other)
                }
            }

            impl $trait<Tensor> for f64 {
                type Output = Result<Tensor>;

                fn $method(self, other: Tensor) -> Result<Tensor> {
                    $trait::$method(self, &other)
                }
            }
        )*

        impl Tensor {
            $(
                #[doc = concat!("`self ", $sign, " value` for every element.")]
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
                /// `InvalidArgument` where an integer dtype cannot hold the number.
                pub fn $scalar(&self, value: impl Into<f64>) -> Result<Self> {
                    self.$method(value.into())
                }

                #[doc = concat!("`self ", $sign, "= other`. Other handles to the same tensor keep its elements.")]
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
                #[doc = concat!("As [`", stringify!($method), "`](Self::", stringify!($method), "), and `ShapeMismatch` where the other is larger; then nothing changes.")]
                pub fn $assign<'a>(&mut self, other: impl Into<Operand<'a>>) -> Result<()> {
                    self.assign(stringify!($assign), |own| own.$method(other))
                }
            )*
        }
    };
}

arithmetic! {
    Add add add_scalar add_assign "+" ["[10.0]" "[16.0]"];
    Sub sub sub_scalar sub_assign "-" ["[6.0]" "[0.0]"];
    Mul mul mul_scalar mul_assign "*" ["[16.0]" "[64.0]"];
    Div div div_scalar div_assign "/" ["[4.0]" "[1.0]"];
}

impl Tensor {
    /// Takes the result of an op in its place, if it has the same shape and dtype.
    fn assign(&mut self, name: &str, op: impl FnOnce(&Self) -> Result<Self>) -> Result<()> {
        let result = op(self)?;
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
