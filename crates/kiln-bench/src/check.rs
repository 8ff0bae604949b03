//! Whether an output is right.

use crate::reference::{self, Expected};
use crate::{Number, Op};
use std::error::Error;
use std::fmt;

/// Steps that a check of an output may take: it compares all elements of small outputs and some of large ones.
const STEPS: usize = 1 << 23;

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
        found: f32,
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
    /// The first element that is off by more than rounding explains.
    pub fn check(&self, number: Number, output: &[f32]) -> Result<(), Wrong> {
        self.check_on(number, &self.data(number), output)
    }

    /// As [`check`](Self::check), with the elements of [`data`](Self::data) at hand.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_on(&self, number: Number, data: &[Vec<f32>], output: &[f32]) -> Result<(), Wrong> {
        let (expected, found) = (self.output_elements(), output.len());
        if expected != found {
            return Err(Wrong::Length { expected, found });
        }
        for place in self.places() {
            let (wanted, found) = (reference::element(self, data, place), output[place]);
            let allowed = self.allowed(number, wanted);
            // Written so that a NaN is wrong.
            let is_close = (f64::from(found) - wanted.value).abs() <= allowed;
            if !is_close {
                return Err(Wrong::Element { place, expected: wanted.value, allowed, found });
            }
        }
        Ok(())
    }

    /// The places of an output that a check looks at. They have no common step: a kernel that leaves out every n-th block is found.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let elements = self.output_elements();
        let most = (STEPS / reference::steps_per_element(self)).clamp(64, 1 << 16);
        let count = elements.min(most);
        let spread = elements as f64 / count as f64;
        let golden = 0.618_033_988_749_895;
        let inside = move |index: usize| if count == elements { 0.0 } else { (index as f64 * golden).fract() };
        (0..count).map(move |index| (((index as f64 + inside(index)) * spread) as usize).min(elements - 1))
    }

    /// How far off an element may be: some roundings to the dtype, and the error of sums in `f32`.
    fn allowed(&self, number: Number, wanted: Expected) -> f64 {
        let rounded = wanted.value.abs().max(reference::rounded_on_the_way(self, number));
        let smallest = if number == Number::F16 { 2f64.powi(-24) } else { 0.0 };
        8.0 * number.epsilon() * rounded + 4.0 * Number::F32.epsilon() * wanted.terms + smallest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::small_ops;
    use crate::works;

    fn reference_output(op: &Op, number: Number) -> Vec<f32> {
        let data = op.data(number);
        (0..op.output_elements()).map(|place| number.round(reference::element(op, &data, place).value as f32)).collect()
    }

    #[test]
    fn the_reference_passes_and_each_damage_fails() {
        for (op, number) in small_ops() {
            let right = reference_output(&op, number);
            op.check(number, &right).unwrap_or_else(|wrong| panic!("{op:?} {number}: {wrong}"));
            for place in 0..right.len() {
                for damage in [|_: f32| f32::NAN, |value: f32| value + 0.05 * value.abs().max(0.2)] {
                    let mut wrong = right.clone();
                    wrong[place] = damage(right[place]);
                    assert!(op.check(number, &wrong).is_err(), "{op:?} {number} at {place}");
                }
            }
            assert!(op.check(number, &right[1..]).is_err(), "{op:?} {number}");
        }
    }

    #[test]
    fn places_of_large_outputs_are_all_over_them() {
        for work in works() {
            let elements = work.op.output_elements();
            let places: Vec<usize> = work.op.places().collect();
            assert!(places.is_sorted() && places.iter().all(|place| *place < elements), "{}", work.id);
            assert!(places.len() >= elements.min(64), "{}", work.id);
            let most_apart = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(most_apart <= 2 * elements.div_ceil(places.len()), "{}: {most_apart}", work.id);
        }
    }
}
