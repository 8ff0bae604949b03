//! Accumulates the gradient of a tensor from the ops that use it.
//!
//! The gradient of a slice is the slice's gradient padded with zeros to the full shape. For a sequence that is read
//! slice by slice, one padded tensor per slice would make `backward` quadratic in the length of the sequence. Slices
//! are therefore deferred until all are known, and those that do not overlap are joined by one concatenation.

use crate::Result;
use crate::tensor::Tensor;

/// The gradients accumulated so far.
#[derive(Default)]
pub(super) struct Pending {
    /// The sum of the gradients of the whole tensor.
    whole: Option<Tensor>,
    slices: Vec<SliceGradient>,
}

/// The gradient of consecutive elements along an axis.
struct SliceGradient {
    axis: usize,
    start: usize,
    gradient: Tensor,
}

impl SliceGradient {
    fn length(&self) -> usize {
        self.gradient.shape()[self.axis]
    }

    fn end(&self) -> usize {
        self.start + self.length()
    }
}

impl Pending {
    /// Adds a gradient of the whole tensor.
    pub(super) fn add(&mut self, gradient: Tensor) -> Result<()> {
        self.whole = Some(match self.whole.take() {
            None => gradient,
            Some(before) => before.add(&gradient)?,
        });
        Ok(())
    }

    /// Adds the gradient of a slice.
    pub(super) fn add_slice(&mut self, axis: usize, start: usize, gradient: Tensor) {
        self.slices.push(SliceGradient { axis, start, gradient });
    }

    /// Returns the gradient of the tensor; `None` if there is none.
    pub(super) fn finish(mut self, tensor: &Tensor) -> Result<Option<Tensor>> {
        if self.slices.is_empty() {
            return Ok(self.whole);
        }
        let mut rest = merged(std::mem::take(&mut self.slices))?;
        // Each pass joins one row of disjoint slices with a single `cat`. The first slice always fits, so every pass
        // removes at least one; slices that overlap need one pass and one addition per layer.
        while let Some(first) = rest.first() {
            // A run of slices that do not overlap.
            let (axis, mut end) = (first.axis, 0);
            let (row, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|slice| {
                let fits = slice.axis == axis && slice.start >= end;
                end = if fits { slice.end() } else { end };
                fits
            });
            self.add(joined(&row, tensor)?)?;
            rest = others;
        }
        match self.whole {
            // All slices were empty.
            None => tensor.like(0.0).map(Some),
            whole => Ok(whole),
        }
    }
}

/// Sorts slices by position, adds those at the same position, and drops empty ones.
fn merged(mut slices: Vec<SliceGradient>) -> Result<Vec<SliceGradient>> {
    slices.retain(|slice| slice.length() > 0);
    // A stable sort keeps the order of summation deterministic.
    slices.sort_by_key(|slice| (slice.axis, slice.start, slice.end()));
    let mut merged: Vec<SliceGradient> = Vec::with_capacity(slices.len());
    for slice in slices {
        match merged.last_mut() {
            Some(last) if (last.axis, last.start, last.end()) == (slice.axis, slice.start, slice.end()) => {
                last.gradient = last.gradient.add(&slice.gradient)?;
            }
            _ => merged.push(slice),
        }
    }
    Ok(merged)
}

/// Concatenates ordered, disjoint slices along one axis, with zeros between them.
fn joined(row: &[SliceGradient], tensor: &Tensor) -> Result<Tensor> {
    let axis = row[0].axis;
    let zeros = |length: usize| {
        Tensor::splat("gradient", tensor.shape().with(axis, length), 0.0, tensor.dtype(), tensor.device())
    };
    let (mut parts, mut at) = (Vec::with_capacity(row.len() + 1), 0);
    for slice in row {
        if slice.start > at {
            parts.push(zeros(slice.start - at)?);
        }
        parts.push(slice.gradient.clone());
        at = slice.end();
    }
    let length = tensor.shape()[axis];
    if at < length {
        parts.push(zeros(length - at)?);
    }
    Tensor::cat(&parts, axis)
}
