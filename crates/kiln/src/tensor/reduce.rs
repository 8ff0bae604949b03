//! Reductions along one, several or all axes.

use super::Tensor;
use super::check::{self, Axes, Name, Within, invalid};
use crate::{DType, Result, Shape};
use kiln_ir::graph::{self, Op, Reduce, TensorType};
use kiln_kernels::wide::WideReduce;
use std::sync::Arc;

macro_rules! reductions {
    ($($name:ident $keepdim:ident $all:ident $op:ident [$($alias:literal),*] $what:literal, $dtype:ty, $of_rows:literal, $of_all:literal;)*) => {
        impl Tensor {
            $(
                #[doc = concat!("Returns the ", $what, " along one or more axes, which are removed.")]
                ///
                /// Axes are a number, a tuple, a list, or `..` for all; negative axes count from the end.
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::new(&[[1.0f32, 5.0], [3.0, 4.0]], &device)?;
                #[doc = concat!("assert_eq!(x.", stringify!($name), "(1)?.to_vec::<", stringify!($dtype), ">()?, ", $of_rows, ");")]
                #[doc = concat!("assert_eq!(x.", stringify!($name), "((0, 1))?.to_scalar::<", stringify!($dtype), ">()?, ", $of_all, ");")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                /// Returns `InvalidArgument` if an axis does not exist or is given twice, or for the maximum or
                /// minimum of zero elements, and `Unsupported` if the dtype has no such reduction.
                $(#[doc(alias = $alias)])*
                pub fn $name(&self, axes: impl Into<Axes>) -> Result<Self> {
                    let axes = check::axes(stringify!($name), axes, self)?;
                    self.reduced(stringify!($name), Reduce::$op, &axes)?.without_axes(&axes)
                }

                #[doc = concat!("Returns the ", $what, " along one or more axes, which keep length 1.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::new(&[[1.0f32, 5.0], [3.0, 4.0]], &device)?;
                #[doc = concat!("assert_eq!(x.", stringify!($keepdim), "(1)?.dims(), [2, 1]);")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                #[doc = concat!("Same as [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                pub fn $keepdim(&self, axes: impl Into<Axes>) -> Result<Self> {
                    self.reduced(stringify!($keepdim), Reduce::$op, &check::axes(stringify!($keepdim), axes, self)?)
                }

                #[doc = concat!("Returns the ", $what, " of all elements: [`", stringify!($name), "`](Self::", stringify!($name), ") along `..`.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::new(&[[1.0f32, 5.0], [3.0, 4.0]], &device)?;
                #[doc = concat!("assert_eq!(x.", stringify!($all), "()?.to_scalar::<", stringify!($dtype), ">()?, ", $of_all, ");")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                #[doc = concat!("Same as [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                pub fn $all(&self) -> Result<Self> {
                    let axes = (0..self.rank()).collect();
                    self.reduced(stringify!($all), Reduce::$op, &axes)?.without_axes(&axes)
                }
            )*
        }
    };
}

reductions! {
    sum sum_keepdim sum_all Sum ["sum_axis", "reduce_sum"] "sum", f32, "[6.0, 7.0]", "13.0";
    mean mean_keepdim mean_all Mean ["mean_axis", "average"] "mean", f32, "[3.0, 3.5]", "3.25";
    max max_keepdim max_all Max ["amax", "max_axis"] "largest element", f32, "[5.0, 4.0]", "5.0";
    min min_keepdim min_all Min ["amin", "min_axis"] "smallest element", f32, "[1.0, 3.0]", "1.0";
    argmax argmax_keepdim argmax_all ArgMax ["argmax_axis"] "index of the first largest element, as `u32`,", u32, "[1, 1]", "1";
    argmin argmin_keepdim argmin_all ArgMin ["argmin_axis"] "index of the first smallest element, as `u32`,", u32, "[0, 0]", "0";
}

impl Tensor {
    /// Returns the square root, with a gradient of 0 at 0.
    fn safe_sqrt(&self) -> Result<Self> {
        // The derivative of `sqrt` at 0 is infinite, and infinity times a zero gradient is NaN. The inner select
        // keeps 0 out of `sqrt`, the outer one restores the result.
        let is_zero = self.eq(0.0)?;
        is_zero.where_(0.0, &is_zero.where_(1.0, self)?.sqrt()?)
    }
}

impl Tensor {
    /// Reduces over axes, which keep length 1.
    pub(super) fn reduced(&self, name: &str, op: Reduce, axes: &graph::Axes) -> Result<Self> {
        let shape = self.shape().iter().enumerate();
        let shape: Shape = shape.map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length }).collect();
        let is_empty = axes.iter().any(|&axis| self.shape()[axis] == 0);
        let dtype = match op {
            Reduce::Mean if self.dtype() == DType::F64 => DType::F64,
            Reduce::Mean => {
                check::float(name, self)?;
                self.dtype()
            }
            // A sum of bytes rarely fits in a byte; a sum of booleans is a count.
            Reduce::Sum if self.dtype().bytes() == 1 => self.dtype().computed(),
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
        if self.dtype().is_wide() {
            return self.reduced_wide(name, op, axes, shape);
        }
        Self::planned(Op::Reduce(op, axes.clone()), &[self], TensorType { shape, dtype })
    }

    /// Reduces 64-bit elements, as the rows of a matrix.
    fn reduced_wide(&self, name: &str, op: Reduce, axes: &graph::Axes, shape: Shape) -> Result<Self> {
        check::computes(name, self.dtype(), &[self])?;
        let kept = (0..self.rank()).filter(|axis| !axes.contains(axis));
        // 64-bit reductions are a kernel over the rows of a matrix, so the reduced axes move to the end.
        let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
        let length: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        let matrix = self.permute(&order)?.reshape((shape.elem_count(), length))?;
        Self::kernel(Arc::new(WideReduce { op }), &[&matrix])?.reshape(shape)
    }
}

macro_rules! statistics {
    ($($name:ident $keepdim:ident $what:literal [$($alias:literal),*] $expected:literal |$x:ident, $axes:ident| $value:expr;)*) => {
        impl Tensor {
            $(
                #[doc = concat!("Returns the ", $what, " along one or more axes, which are removed.")]
                ///
                /// ```
                /// # fn main() -> kiln::Result<()> {
                /// # let device = kiln::Device::cpu()?;
                /// let x = kiln::Tensor::new(&[[1.0f32, 2.0, 3.0], [3.0, 4.0, 12.0]], &device)?;
                #[doc = concat!("let found = x.", stringify!($name), "(1)?.to_vec::<f32>()?;")]
                #[doc = concat!("assert!((found[0] - ", $expected, ").abs() < 1e-5, \"{found:?}\");")]
                /// # Ok(())
                /// # }
                /// ```
                ///
                /// # Errors
                /// Returns `Unsupported` for integer dtypes. Otherwise same as [`mean`](Self::mean).
                $(#[doc(alias = $alias)])*
                pub fn $name(&self, axes: impl Into<Axes>) -> Result<Self> {
                    check::float(stringify!($name), self)?;
                    let axes = check::axes(stringify!($name), axes, self)?;
                    self.$keepdim(axes.to_vec()).within(stringify!($name))?.without_axes(&axes)
                }

                #[doc = concat!("Returns the ", $what, " along one or more axes, which keep length 1.")]
                ///
                #[doc = concat!("See [`", stringify!($name), "`](Self::", stringify!($name), ") for an example.")]
                ///
                /// # Errors
                #[doc = concat!("Same as [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                pub fn $keepdim(&self, axes: impl Into<Axes>) -> Result<Self> {
                    check::float(stringify!($keepdim), self)?;
                    let $axes = check::axes(stringify!($keepdim), axes, self)?.to_vec();
                    // In `f32`: 16-bit means and squares would be rounded, or overflow, before they are used.
                    let $x = self.to_dtype(DType::F32)?;
                    let compute = || -> Result<Self> { $value };
                    compute().within(stringify!($keepdim))?.to_dtype(self.dtype())
                }
            )*
        }
    };
}

statistics! {
    var var_keepdim "unbiased variance (with Bessel's correction, as in PyTorch)" ["variance"] "1.0" |x, axes| {
        let count: usize = axes.iter().map(|&axis| x.shape()[axis]).product();
        let deviation = x.sub(&x.mean_keepdim(&axes)?)?;
        // One element, or none, gives 0 / 0 = NaN, as in PyTorch.
        deviation.square()?.sum_keepdim(axes)?.div_scalar((count as f64 - 1.0).max(0.0))
    };
    std std_keepdim "square root of the unbiased variance" ["standard_deviation"] "1.0" |x, axes| x.var_keepdim(axes)?.safe_sqrt();
    norm norm_keepdim "L2 norm" ["l2_norm"] "14.0f32.sqrt()" |x, axes| x.square()?.sum_keepdim(axes)?.safe_sqrt();
    logsumexp logsumexp_keepdim "logarithm of the sum of exponentials, without overflow," ["log_sum_exp"] "3.407606" |x, axes| {
        let largest = x.max_keepdim(&axes)?;
        // An infinite maximum would make `x - largest` NaN.
        let shift = largest.abs()?.lt(f64::INFINITY)?.where_(&largest, 0.0)?.detach();
        x.sub(&shift)?.exp()?.sum_keepdim(axes)?.log()?.add(&shift)
    };
}
