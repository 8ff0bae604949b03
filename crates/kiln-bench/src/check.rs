//! Checks outputs against the reference.

use crate::reference::{self, Expected};
use crate::{ElementType, Op};
use std::error::Error;
use std::fmt;

/// Maximum steps, about multiply-adds, that the reference of one check computes: all elements of small outputs are compared, and a sample of large
/// ones.
const MAX_REFERENCE_STEPS: usize = 1 << 23;

/// How close an output is to the reference.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// Every element is within some roundings of its dtype plus the error of an `f32` sum.
    Close,
    /// Some elements are further off, for example because a library rounds partial sums to `f16` or has a coarse `exp`.
    Rough,
}

/// The error for a wrong output.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputError {
    /// The number of elements is wrong.
    Length {
        /// Expected number of elements.
        expected: usize,
        /// Actual number of elements.
        found: usize,
    },
    /// An element is out of tolerance.
    Element {
        /// Index of the element.
        index: usize,
        /// Reference value.
        expected: f64,
        /// Absolute tolerance.
        allowed: f64,
        /// Actual value.
        found: f64,
    },
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, found } => write!(f, "output expected {expected} elements, found {found}"),
            Self::Element { index, expected, allowed, found } => {
                write!(f, "output expected {expected:e} within {allowed:.1e} at {index}, found {found:e}")
            }
        }
    }
}

impl Error for OutputError {}

impl Op {
    /// Compares an output with the reference: all its elements, or a sample of them if that would take long.
    ///
    /// # Errors
    /// Returns the first element that is off by more than rounding explains, even if every partial sum is rounded to the dtype.
    pub fn check(&self, dtype: ElementType, output: &[f32]) -> Result<Closeness, OutputError> {
        self.check_on(dtype, &self.data(dtype), output)
    }

    /// Like [`check`](Self::check), but takes the elements of [`data`](Self::data).
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_on(&self, dtype: ElementType, data: &[Vec<f32>], output: &[f32]) -> Result<Closeness, OutputError> {
        let (expected, found) = (self.output_elem_count(), output.len());
        if expected != found {
            return Err(OutputError::Length { expected, found });
        }
        let mut closeness = Closeness::Close;
        for index in sampled_indices(expected, reference::steps_per_element(self)) {
            let (wanted, found) = (reference::element(self, data, index), f64::from(output[index]));
            let (close, rough) = self.allowed(dtype, wanted);
            let off = (found - wanted.value).abs();
            // Both comparisons are false for NaN, which is reported as wrong.
            if off <= close {
                continue;
            }
            if off <= rough {
                closeness = Closeness::Rough;
                continue;
            }
            return Err(OutputError::Element { index, expected: wanted.value, allowed: rough, found });
        }
        Ok(closeness)
    }

    /// Returns the tolerances for `Close` and for `Rough`.
    fn allowed(&self, dtype: ElementType, wanted: Expected) -> (f64, f64) {
        let magnitude = wanted.value.abs().max(reference::intermediate_magnitude(self));
        // The spacing of f16 subnormals, below which relative error is meaningless.
        let smallest = if dtype == ElementType::F16 { 2f64.powi(-24) } else { 0.0 };
        let close = 8.0 * dtype.epsilon() * magnitude + 4.0 * ElementType::F32.epsilon() * wanted.terms + smallest;
        // The error of a sum rounded after each addition, capped below the error that dropping part of the sum would cause.
        let of_sum = (2.0 * dtype.epsilon() * wanted.terms).min(0.05 * wanted.terms.sqrt());
        (close, 8.0 * close + of_sum)
    }
}

/// Returns the indices that a check compares, given the steps per element. They have no common stride, so that a kernel that skips every
/// n-th block is found.
pub(crate) fn sampled_indices(elements: usize, steps_per_element: usize) -> impl Iterator<Item = usize> {
    let most = (MAX_REFERENCE_STEPS / steps_per_element.max(1)).clamp(64, 1 << 16);
    let count = elements.min(most);
    let stride = elements as f64 / count as f64;
    // The golden-ratio sequence jitters each index within its stride.
    let golden = 0.618_033_988_749_895;
    let jitter = move |index: usize| if count == elements { 0.0 } else { (index as f64 * golden).fract() };
    (0..count).map(move |index| (((index as f64 + jitter(index)) * stride) as usize).min(elements - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::small_ops;
    use crate::workloads;

    fn reference_output(op: &Op, dtype: ElementType) -> Vec<f32> {
        let data = op.data(dtype);
        (0..op.output_elem_count())
            .map(|index| dtype.round(reference::element(op, &data, index).value as f32))
            .collect()
    }

    #[test]
    fn the_reference_passes_and_each_damage_fails() {
        for (op, dtype) in small_ops() {
            let right = reference_output(&op, dtype);
            assert_eq!(op.check(dtype, &right), Ok(Closeness::Close), "{op:?} {dtype}");
            for index in 0..right.len() {
                let with = |value: f32| {
                    let mut output = right.clone();
                    output[index] = value;
                    op.check(dtype, &output)
                };
                let (value, size) = (right[index], right[index].abs().max(1.0));
                assert!(with(f32::NAN).is_err(), "{op:?} {dtype} at {index}");
                assert!(with(value + 0.6 * size).is_err(), "{op:?} {dtype} at {index}");
                assert_ne!(with(value + 0.05 * size), Ok(Closeness::Close), "{op:?} {dtype} at {index}");
            }
            assert!(op.check(dtype, &right[1..]).is_err(), "{op:?} {dtype}");
        }
    }

    #[test]
    fn places_of_large_outputs_are_all_over_them() {
        for workload in workloads() {
            let elements = workload.op.output_elem_count();
            let indices: Vec<usize> = sampled_indices(elements, reference::steps_per_element(&workload.op)).collect();
            assert!(indices.is_sorted() && indices.iter().all(|index| *index < elements), "{}", workload.id);
            assert!(indices.len() >= elements.min(64), "{}", workload.id);
            let most_apart = indices.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(most_apart <= 2 * elements.div_ceil(indices.len()), "{}: {most_apart}", workload.id);
        }
    }
}
