//! Checks outputs against the reference.

use crate::reference::{self, Expected};
use crate::{Number, Op};
use std::error::Error;
use std::fmt;

/// Budget of a check in steps: all elements of small outputs are compared, and a sample of large ones.
const STEPS: usize = 1 << 23;

/// How close an output is to the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// Every element is within some roundings of its dtype plus the error of an `f32` sum.
    Close,
    /// Some elements are further off, for example because a library rounds partial sums to `f16` or has a coarse `exp`.
    Rough,
}

/// The error for a wrong output.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
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
        place: usize,
        /// Reference value.
        expected: f64,
        /// Absolute tolerance.
        allowed: f64,
        /// Actual value.
        found: f64,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, found } => write!(f, "output expected {expected} elements, found {found}"),
            Self::Element { place, expected, allowed, found } => {
                write!(f, "output expected {expected:e} within {allowed:.1e} at {place}, found {found:e}")
            }
        }
    }
}

impl Error for Wrong {}

impl Op {
    /// Compares an output with the reference: all its elements, or a sample of them if that would take long.
    ///
    /// # Errors
    /// Returns the first element that is off by more than rounding explains, even if every partial sum is rounded to the dtype.
    pub fn check(&self, number: Number, output: &[f32]) -> Result<Closeness, Wrong> {
        self.check_on(number, &self.data(number), output)
    }

    /// Like [`check`](Self::check), but takes the elements of [`data`](Self::data).
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_on(&self, number: Number, data: &[Vec<f32>], output: &[f32]) -> Result<Closeness, Wrong> {
        let (expected, found) = (self.output_elem_count(), output.len());
        if expected != found {
            return Err(Wrong::Length { expected, found });
        }
        let mut closeness = Closeness::Close;
        for place in places(expected, reference::steps_per_element(self)) {
            let (wanted, found) = (reference::element(self, data, place), f64::from(output[place]));
            let (close, rough) = self.allowed(number, wanted);
            let off = (found - wanted.value).abs();
            // Both comparisons are false for NaN, which is reported as wrong.
            if off <= close {
                continue;
            }
            if off <= rough {
                closeness = Closeness::Rough;
                continue;
            }
            return Err(Wrong::Element { place, expected: wanted.value, allowed: rough, found });
        }
        Ok(closeness)
    }

    /// Returns the tolerances for `Close` and for `Rough`.
    fn allowed(&self, number: Number, wanted: Expected) -> (f64, f64) {
        let rounded = wanted.value.abs().max(reference::rounded_on_the_way(self));
        // The spacing of f16 subnormals, below which relative error is meaningless.
        let smallest = if number == Number::F16 { 2f64.powi(-24) } else { 0.0 };
        let close = 8.0 * number.epsilon() * rounded + 4.0 * Number::F32.epsilon() * wanted.terms + smallest;
        // The error of a sum rounded after each addition, capped below the error that dropping part of the sum would cause.
        let of_sum = (2.0 * number.epsilon() * wanted.terms).min(0.05 * wanted.terms.sqrt());
        (close, 8.0 * close + of_sum)
    }
}

/// Returns the indices that a check compares, given the steps per element. They have no common stride, so that a kernel that skips every
/// n-th block is found.
pub(crate) fn places(elements: usize, steps_per_element: usize) -> impl Iterator<Item = usize> {
    let most = (STEPS / steps_per_element.max(1)).clamp(64, 1 << 16);
    let count = elements.min(most);
    let spread = elements as f64 / count as f64;
    let golden = 0.618_033_988_749_895;
    let inside = move |index: usize| if count == elements { 0.0 } else { (index as f64 * golden).fract() };
    (0..count).map(move |index| (((index as f64 + inside(index)) * spread) as usize).min(elements - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::small_ops;
    use crate::works;

    fn reference_output(op: &Op, number: Number) -> Vec<f32> {
        let data = op.data(number);
        (0..op.output_elem_count())
            .map(|place| number.round(reference::element(op, &data, place).value as f32))
            .collect()
    }

    #[test]
    fn the_reference_passes_and_each_damage_fails() {
        for (op, number) in small_ops() {
            let right = reference_output(&op, number);
            assert_eq!(op.check(number, &right), Ok(Closeness::Close), "{op:?} {number}");
            for place in 0..right.len() {
                let with = |value: f32| {
                    let mut output = right.clone();
                    output[place] = value;
                    op.check(number, &output)
                };
                let (value, size) = (right[place], right[place].abs().max(1.0));
                assert!(with(f32::NAN).is_err(), "{op:?} {number} at {place}");
                assert!(with(value + 0.6 * size).is_err(), "{op:?} {number} at {place}");
                assert_ne!(with(value + 0.05 * size), Ok(Closeness::Close), "{op:?} {number} at {place}");
            }
            assert!(op.check(number, &right[1..]).is_err(), "{op:?} {number}");
        }
    }

    #[test]
    fn places_of_large_outputs_are_all_over_them() {
        for work in works() {
            let elements = work.op.output_elem_count();
            let places: Vec<usize> = places(elements, reference::steps_per_element(&work.op)).collect();
            assert!(places.is_sorted() && places.iter().all(|place| *place < elements), "{}", work.id);
            assert!(places.len() >= elements.min(64), "{}", work.id);
            let most_apart = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(most_apart <= 2 * elements.div_ceil(places.len()), "{}: {most_apart}", work.id);
        }
    }
}
