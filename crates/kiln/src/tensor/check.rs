//! Shared argument checks, with errors that name the op, the shapes, the dtypes and the devices.

use super::Tensor;
use crate::{DType, Device, Error, ErrorKind, Result, Shape};
use kiln_ir::graph;
use kiln_kernels::wide::WideConvert;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::ops::RangeFull;
use std::sync::Arc;

/// Formats a tensor for error messages: `f32 (2, 3) on cpu`.
pub(super) struct Name<'a>(pub(super) &'a Tensor);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}", self.0.dtype(), self.0.shape(), self.0.device().info().id)
    }
}

/// Formats tensors for error messages: `a and b`, `a, b and c`.
pub(super) fn names(tensors: &[&Tensor]) -> String {
    list(tensors.iter().map(|tensor| Name(tensor).to_string()))
}

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

pub(super) fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::ShapeMismatch, message)
}

pub(super) fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// Error context for methods composed of other ops.
pub(super) trait Within {
    /// Prefixes an error of an inner op with the name of the public method: `std: mean expected …`. An error that
    /// already starts with it is unchanged.
    fn within(self, method: &str) -> Self;
}

impl<T> Within for Result<T> {
    fn within(self, method: &str) -> Self {
        self.map_err(|error| {
            let text = error.to_string();
            // The inner check may have named the method already.
            let is_named = text.strip_prefix(method).is_some_and(|rest| rest.starts_with([' ', ':']));
            if is_named { error } else { error.context(method) }
        })
    }
}

/// Checks that the tensors are on the same device. Elements are never copied between devices implicitly.
pub(super) fn same_device(op: &str, tensors: &[&Tensor]) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else { return Ok(()) };
    if rest.iter().all(|tensor| tensor.device().is_same(first.device())) {
        return Ok(());
    }
    // Two devices may have the same id, but their names are unique.
    let name = |tensor: &&Tensor| format!("{} {} on {}", tensor.dtype(), tensor.shape(), tensor.device());
    let found = list(tensors.iter().map(name));
    Err(invalid(format!("{op} expected tensors on one device, found {found}; move one with to_device")))
}

pub(super) fn same_dtype(op: &str, tensors: &[&Tensor]) -> Result<()> {
    let Some((first, rest)) = tensors.split_first() else { return Ok(()) };
    if rest.iter().all(|tensor| tensor.dtype() == first.dtype()) {
        return Ok(());
    }
    let found = names(tensors);
    Err(invalid(format!("{op} expected tensors of one dtype, found {found}; convert one with to_dtype")))
}

/// Returns whether a device computes with a dtype. WGSL has no 64-bit numbers.
pub(super) fn has_arithmetic(dtype: DType, device: &Device) -> bool {
    !dtype.is_wide() || device.target().runs_host_code
}

/// Returns an error if the device of the tensors has no arithmetic for a dtype.
pub(super) fn computes(op: &str, dtype: DType, tensors: &[&Tensor]) -> Result<()> {
    let Some(first) = tensors.first().filter(|first| !has_arithmetic(dtype, first.device())) else { return Ok(()) };
    let (found, narrow) = (names(tensors), if dtype == DType::F64 { DType::F32 } else { DType::I32 });
    let device = &first.device().info().id;
    Err(unsupported(format!(
        "{op} expected a dtype that {device} computes with, found {found}; convert with to_dtype({narrow}), or compute on the CPU device with \
         to_device"
    )))
}

/// Returns an error if 64-bit tensors are passed to a 32-bit kernel.
pub(super) fn no_wide(op: &str, tensors: &[&Tensor]) -> Result<()> {
    if !tensors.iter().any(|tensor| tensor.dtype().is_wide()) {
        return Ok(());
    }
    let found = names(tensors);
    Err(unsupported(format!(
        "{op} expected dtypes of at most 32 bits, found {found}; convert with to_dtype, or create it from `1.0f32` instead of `1.0`"
    )))
}

/// Returns an error unless the dtype is a float.
pub(super) fn float(op: &str, tensor: &Tensor) -> Result<()> {
    if tensor.dtype().is_float() {
        return Ok(());
    }
    let found = Name(tensor);
    Err(unsupported(format!("{op} expected a tensor of f16, bf16 or f32, found {found}; convert it with to_dtype")))
}

/// Converts indices to the form that kernels take. `i64` values that `u32` cannot hold become `u32::MAX`, and so stay
/// out of range.
pub(super) fn index<'a>(op: &str, tensor: &'a Tensor) -> Result<Cow<'a, Tensor>> {
    match tensor.dtype() {
        DType::U32 | DType::I32 => Ok(Cow::Borrowed(tensor)),
        DType::I64 => {
            let clamp = WideConvert { to: DType::U32, is_index: true };
            Tensor::kernel(Arc::new(clamp), &[tensor]).map(Cow::Owned)
        }
        DType::U8 | DType::Bool => {
            let found = Name(tensor);
            Err(unsupported(format!(
                "{op} expected indices of u32, i32 or i64, found {found}; a mask is not an index: use nonzero, where_ or masked_fill"
            )))
        }
        _ => {
            let found = Name(tensor);
            Err(unsupported(format!(
                "{op} expected indices of u32, i32 or i64, found {found}; convert them with to_dtype"
            )))
        }
    }
}

/// Returns the broadcast shape of all tensors.
pub(super) fn broadcast(op: &str, tensors: &[&Tensor]) -> Result<Shape> {
    let Some((first, rest)) = tensors.split_first() else { return Ok(Shape::default()) };
    let mut shape = first.shape().clone();
    for tensor in rest {
        shape = shape.broadcast(tensor.shape()).ok_or_else(|| {
            mismatch(format!("{op} expected shapes that broadcast together, found {}", names(tensors)))
        })?;
    }
    shape.checked().map_err(|error| error.context(format!("{op} of {}", names(tensors))))
}

/// Resolves an axis; negative axes count from the end.
pub(super) fn axis(op: &str, axis: impl Into<Axis>, tensor: &Tensor) -> Result<usize> {
    axis_of(op, axis, tensor.rank(), tensor)
}

/// Resolves an axis among `rank` axes.
pub(super) fn axis_of(op: &str, axis: impl Into<Axis>, rank: usize, tensor: &Tensor) -> Result<usize> {
    let Axis(axis) = axis.into();
    let counted = if axis < 0 { axis + rank as isize } else { axis };
    if (0..rank as isize).contains(&counted) {
        return Ok(counted as usize);
    }
    let found = Name(tensor);
    let range = if rank == 0 { "no axis".to_string() } else { format!("an axis from -{rank} to {}", rank - 1) };
    Err(invalid(format!("{op} expected {range}, found {axis} for {found}")))
}

/// An axis number; negative numbers count from the end.
///
/// See [`Axes`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Axis(isize);

impl From<usize> for Axis {
    fn from(axis: usize) -> Self {
        Self(isize::try_from(axis).unwrap_or(isize::MAX))
    }
}

impl From<i32> for Axis {
    fn from(axis: i32) -> Self {
        Self(axis as isize)
    }
}

impl From<isize> for Axis {
    fn from(axis: isize) -> Self {
        Self(axis)
    }
}

/// Axes: one, several as a tuple or a list, or all with `..`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// let x = kiln::Tensor::ones((2, 3, 4), kiln::DType::F32, &device)?;
/// assert_eq!(x.sum(-1)?.dims(), [2, 3]);
/// assert_eq!(x.sum((0, 2))?.dims(), [3]);
/// assert_eq!(x.sum([0, 1])?.dims(), [4]);
/// assert_eq!(x.sum(..)?.to_scalar::<f32>()?, 24.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Axes(Option<SmallVec<[Axis; 4]>>);

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Self {
        Self(None)
    }
}

macro_rules! axes_from {
    ($($ty:ty)*) => {$(
        axes_from! { @list $ty;
            [] $ty: |axis| [axis];
            [const N: usize] [$ty; N]: |axes| axes;
            [const N: usize] &[$ty; N]: |axes| axes.iter().copied();
            [] &[$ty]: |axes| axes.iter().copied();
            [] Vec<$ty>: |axes| axes;
            [] &Vec<$ty>: |axes| axes.iter().copied();
            [] ($ty, $ty): |axes| <[$ty; 2]>::from(axes);
            [] ($ty, $ty, $ty): |axes| <[$ty; 3]>::from(axes);
            [] ($ty, $ty, $ty, $ty): |axes| <[$ty; 4]>::from(axes);
        }
    )*};
    (@list $ty:ty; $([$($generic:tt)*] $from:ty: |$axes:ident| $items:expr;)*) => {$(
        impl<$($generic)*> From<$from> for Axes {
            fn from($axes: $from) -> Self {
                Self(Some($items.into_iter().map(Axis::from).collect()))
            }
        }
    )*};
}

axes_from!(i32 usize isize);

/// Resolves axes in the given order; returns an error if one does not exist or is repeated.
pub(super) fn ordered_axes(op: &str, axes: impl Into<Axes>, tensor: &Tensor) -> Result<graph::Axes> {
    let Axes(Some(given)) = axes.into() else { return Ok((0..tensor.rank()).collect()) };
    let axes: graph::Axes = given.into_iter().map(|given| axis(op, given, tensor)).collect::<Result<_>>()?;
    if let Some(twice) = axes.iter().enumerate().find(|(index, axis)| axes[..*index].contains(axis)) {
        let found = Name(tensor);
        return Err(invalid(format!("{op} expected each axis once, found {} twice for {found}", twice.1)));
    }
    Ok(axes)
}

/// Resolves axes in ascending order.
pub(super) fn axes(op: &str, axes: impl Into<Axes>, tensor: &Tensor) -> Result<graph::Axes> {
    let mut axes = ordered_axes(op, axes, tensor)?;
    axes.sort_unstable();
    Ok(axes)
}
