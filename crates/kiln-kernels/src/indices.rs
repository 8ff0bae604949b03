//! Index tensors: checks at shape inference and during a run.

use crate::memory::elements;
use kiln_ir::graph::TensorType;
use kiln_ir::host::HostOperand;
use kiln_ir::{DType, Error, ErrorKind, Layout, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the inputs of an op as an array.
///
/// # Errors
/// Returns `InvalidArgument` if the number of inputs is not `N`.
pub(crate) fn inputs<'a, const N: usize>(op: &str, inputs: &'a [TensorType]) -> Result<&'a [TensorType; N]> {
    inputs.try_into().map_err(|_| invalid(format!("{op} expected {N} inputs, found {}", inputs.len())))
}

/// Checks that an axis is below the rank of the tensor.
pub(crate) fn check_axis(op: &str, axis: usize, x: &TensorType) -> Result<()> {
    if axis < x.shape.rank() {
        return Ok(());
    }
    Err(invalid(format!("{op} expected an axis below the rank {}, found {axis} for {}", x.shape.rank(), text(x))))
}

/// Checks that indices are `u32` or `i32`.
pub(crate) fn check_dtype(op: &str, index: &TensorType) -> Result<()> {
    match index.dtype {
        DType::U32 | DType::I32 => Ok(()),
        _ => Err(invalid(format!("{op} expected indices of u32 or i32, found {}", text(index)))),
    }
}

/// Checks that indices into `x` have its rank and exceed its shape along no axis but `axis`.
pub(crate) fn check_extent(op: &str, axis: usize, x: &TensorType, index: &TensorType) -> Result<()> {
    let same_rank = index.shape.rank() == x.shape.rank();
    let fits = |other: usize| other == axis || index.shape[other] <= x.shape[other];
    if same_rank && (0..x.shape.rank()).all(fits) {
        return Ok(());
    }
    Err(mismatch(format!(
        "{op} along axis {axis} expected indices with the rank of {} and at most its lengths along other axes, found {}",
        text(x),
        text(index)
    )))
}

/// Formats a tensor type for an error message.
pub(crate) fn text(ty: &TensorType) -> String {
    format!("{} {}", ty.dtype, ty.shape)
}

pub(crate) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

pub(crate) fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::ShapeMismatch, message)
}

/// An index tensor in memory, with the axis length it indexes.
pub(crate) struct Indices<'a> {
    words: &'a [u32],
    layout: &'a Layout,
    dtype: DType,
    /// The length of the axis, and the exclusive upper bound of an index. They differ only for `i32` and axes longer than 2^31: negative indices,
    /// read as `u32`, are at least 2^31, and are out of range on every axis.
    length: usize,
    end: usize,
    /// The row-major position of the first index out of range; `usize::MAX` if there is none.
    bad: AtomicUsize,
}

impl<'a> Indices<'a> {
    pub(crate) fn new(operand: &HostOperand<'a>, length: usize) -> Self {
        let end = if operand.dtype == DType::I32 { length.min(1 << 31) } else { length };
        let HostOperand { dtype, layout, .. } = *operand;
        Self { words: elements(operand), layout, dtype, length, end, bad: AtomicUsize::new(usize::MAX) }
    }

    /// Returns the index at an offset in memory, in elements, if it is in range.
    pub(crate) fn get(&self, offset: isize) -> Option<isize> {
        let index = self.words[offset as usize] as usize;
        (index < self.end).then_some(index as isize)
    }

    /// Records that the index at this position is out of range.
    pub(crate) fn refuse(&self, position: usize) {
        // The minimum does not depend on which thread is first. Relaxed is enough: `finish` consumes `self` after the workers are done.
        self.bad.fetch_min(position, Ordering::Relaxed);
    }

    /// Returns an error for the first position that was passed to [`refuse`](Self::refuse), if any.
    pub(crate) fn finish(self, op: &str, axis: usize) -> Result<()> {
        let position = self.bad.into_inner();
        if position == usize::MAX {
            return Ok(());
        }
        // Only the position was recorded, in one atomic. The coordinates and the index are found again for the message.
        let (mut rest, mut offset) = (position, self.layout.offset() as isize);
        let mut coordinates = self.layout.shape().clone();
        for (axis, &stride) in self.layout.strides().iter().enumerate().rev() {
            let length = self.layout.shape()[axis];
            coordinates = coordinates.with(axis, rest % length);
            offset += (rest % length) as isize * stride;
            rest /= length;
        }
        let word = self.words[offset as usize];
        let found = if self.dtype == DType::I32 { i64::from(word as i32) } else { i64::from(word) };
        Err(invalid(format!(
            "{op} along axis {axis} expected indices below its length {}, found {found} at {coordinates}",
            self.length
        )))
    }
}
