//! Reductions: over all axes, one, or several.

use super::Tensor;
use super::check::{self, Axis, Name, invalid};
use crate::{DType, Result};
use kiln_ir::graph::{Axes, Op, Reduce, TensorType};

macro_rules! reductions {
    ($($all:ident, $axis:ident, $keepdim:ident, $op:ident, $name:literal, $what:literal, $dtype:ty, [$of_all:expr, $of_axis:expr];)*) => {
        impl Tensor {
            $(
                #[doc = concat!("The ", $what, " of all elements.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::from_slice(&[1.0f32, 5.0, 3.0, 4.0], (2, 2), &device)?;
                #[doc = concat!("assert_eq!(x.", stringify!($all), "()?.to_scalar::<", stringify!($dtype), ">()?, ", stringify!($of_all), ");")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                #[doc = concat!("As [`", stringify!($axis), "`](Self::", stringify!($axis), ").")]
                pub fn $all(&self) -> Result<Self> {
                    let axes = (0..self.rank()).collect();
                    self.reduced($name, Reduce::$op, &axes)?.without_axes(&axes)
                }

                #[doc = concat!("The ", $what, " along an axis, which is left out; negative ones count from the end.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::from_slice(&[1.0f32, 5.0, 3.0, 4.0], (2, 2), &device)?;
                #[doc = concat!("assert_eq!(x.", stringify!($axis), "(1)?.to_vec::<", stringify!($dtype), ">()?, ", stringify!($of_axis), ");")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                /// `InvalidArgument` where the axis is not there, or where there is nothing to choose from along it; `Unsupported` where the
                /// dtype has no such reduction.
                pub fn $axis(&self, axis: impl Into<Axis>) -> Result<Self> {
                    let axes = [check::axis($name, axis, self)?].into_iter().collect();
                    self.reduced($name, Reduce::$op, &axes)?.without_axes(&axes)
                }

                #[doc = concat!("The ", $what, " over several axes, which keep the length 1.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::from_slice(&[1.0f32, 5.0, 3.0, 4.0], (2, 2), &device)?;
                #[doc = concat!("let y = x.", stringify!($keepdim), "(&[0, 1])?;")]
                /// assert_eq!(y.shape()[..], [1, 1]);
                #[doc = concat!("assert_eq!(y.to_vec::<", stringify!($dtype), ">()?, [", stringify!($of_all), "]);")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                #[doc = concat!("As [`", stringify!($axis), "`](Self::", stringify!($axis), ").")]
                pub fn $keepdim(&self, axes: &[impl Into<Axis> + Copy]) -> Result<Self> {
                    self.reduced($name, Reduce::$op, &check::axes($name, axes, self)?)
                }
            )*
        }
    };
}

reductions! {
    sum_all, sum_axis, sum_keepdim, Sum, "sum", "sum", f32, [13.0, [6.0, 7.0]];
    mean_all, mean_axis, mean_keepdim, Mean, "mean", "mean", f32, [3.25, [3.0, 3.5]];
    max_all, max_axis, max_keepdim, Max, "max", "largest", f32, [5.0, [5.0, 4.0]];
    min_all, min_axis, min_keepdim, Min, "min", "smallest", f32, [1.0, [1.0, 3.0]];
    argmax_all, argmax_axis, argmax_keepdim, ArgMax, "argmax", "place of the first largest, as `u32`,", u32, [1, [1, 1]];
    argmin_all, argmin_axis, argmin_keepdim, ArgMin, "argmin", "place of the first smallest, as `u32`,", u32, [0, [0, 0]];
}

impl Tensor {
    /// The reduction over axes, which keep the length 1.
    pub(super) fn reduced(&self, name: &str, op: Reduce, axes: &Axes) -> Result<Self> {
        let shape = self.shape().iter().enumerate();
        let shape = shape.map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length }).collect();
        let is_empty = axes.iter().any(|&axis| self.shape()[axis] == 0);
        let dtype = match op {
            Reduce::Mean => {
                check::float(name, self)?;
                self.dtype()
            }
            // A sum of bytes hardly ever fits into one.
            Reduce::Sum if self.dtype() == DType::U8 => DType::U32,
            Reduce::Sum => self.dtype(),
            Reduce::Max | Reduce::Min | Reduce::ArgMax | Reduce::ArgMin if is_empty => {
                let axes = axes.as_slice();
                return Err(invalid(format!(
                    "{name} expected at least one element along {axes:?}, found {}",
                    Name(self)
                )));
            }
            Reduce::Max | Reduce::Min => self.dtype(),
            Reduce::ArgMax | Reduce::ArgMin => DType::U32,
        };
        Self::planned(Op::Reduce(op, axes.clone()), &[self], TensorType { shape, dtype })
    }
}
