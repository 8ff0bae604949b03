//! Whether an output is right.

use crate::reference::{self, Expected};
use crate::{Number, Op};
use std::error::Error;
use std::fmt;

/// Steps that a check of an output may take: it compares all elements of small outputs and some of large ones.
const STEPS: usize = 1 << 23;

/// How close an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// Every element is within some roundings of its dtype and the error of a sum in `f32`.
    Close,
    /// Some elements are further off, as where a library rounds sums to `f16` on the way, or has a coarse `exp`.
    Rough,
}

/// An output that is not what it must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// It has not as many elements.
    Length {
        /// How many it must have.
        expected: usize,
        /// How many it has.
        found: usize,
    },
    /// An element is off.
    Element {
        /// Which one.
        place: usize,
        /// Its value in the reference.
        expected: f64,
        /// How far off it may be.
        allowed: f64,
        /// What it is.
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
    /// Compares an output with the reference: all its elements, or where that would take long, elements all over it.
    ///
    /// # Errors
    /// The first element that is off by more than rounding explains, even if every sum is rounded to the dtype on the way.
    pub fn check(&self, number: Number, output: &[f32]) -> Result<Closeness, Wrong> {
        self.check_on(number, &self.data(number), output)
    }

    /// As [`check`](Self::check), with the elements of [`data`](Self::data) at hand.
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
            // A NaN is neither.
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

    /// How far off an element may be to be close, and to be no worse than rough.
    fn allowed(&self, number: Number, wanted: Expected) -> (f64, f64) {
        let rounded = wanted.value.abs().max(reference::rounded_on_the_way(self));
        let smallest = if number == Number::F16 { 2f64.powi(-24) } else { 0.0 };
        let close = 8.0 * number.epsilon() * rounded + 4.0 * Number::F32.epsilon() * wanted.terms + smallest;
        // The error of a sum that is rounded after each addition, unless it is as large as the loss of a part of the sum would be.
        let of_sum = (2.0 * number.epsilon() * wanted.terms).min(0.05 * wanted.terms.sqrt());
        (close, 8.0 * close + of_sum)
    }
}

/// The places of an output of so many elements that a check looks at, each in so many steps. They have no common step: a kernel that leaves
/// out every n-th block is found.
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
