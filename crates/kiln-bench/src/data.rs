//! Inputs from a formula that is easy to reproduce in another language.
//!
//! Element `i` of the sequence with seed `s` is derived from `z = splitmix64(s * 2^32 + i)`: its upper 24 bits as an integer, times `2^-23`,
//! minus 1, which lies in `[-1, 1)` and is exact in `f32`. In NumPy:
//!
//! ```text
//! z = (np.uint64(s) << np.uint64(32)) + np.arange(n, dtype=np.uint64) + np.uint64(0x9e3779b97f4a7c15)
//! z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
//! z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
//! x = ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
//! ```

use crate::ElementType;
use serde::Serialize;

/// An input of a workload: its shape and its values.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// Length along each axis.
    pub shape: Vec<usize>,
    /// The seed of its [values](uniform): 1 for the first input of a workload, 2 for the second, and so on.
    pub seed: u64,
    /// Scale of the values, a power of two.
    pub scale: f32,
    /// Whether values are first rounded to -1, 0 or 1, so that sums of them are exact in every dtype.
    pub is_whole: bool,
}

impl Input {
    /// Returns the number of elements.
    pub fn elem_count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the elements as `f32`, rounded to the dtype.
    pub fn elements_of(&self, dtype: ElementType) -> Vec<f32> {
        let element = |unit: f32| dtype.round(self.scale * if self.is_whole { unit.round_ties_even() } else { unit });
        uniform(self.seed, self.elem_count()).map(element).collect()
    }
}

/// Returns the first `len` numbers of the sequence with this seed, in `[-1, 1)`.
///
/// ```
/// let numbers: Vec<f32> = kiln_bench::uniform(1, 3).collect();
/// assert!(numbers.iter().all(|number| (-1.0..1.0).contains(number)));
/// ```
pub fn uniform(seed: u64, len: usize) -> impl Iterator<Item = f32> {
    words(seed, len).map(|word| (word >> 40) as f32 * 2f32.powi(-23) - 1.0)
}

/// Returns numbers of an interval with full `f64` precision.
pub(crate) fn uniform_in(seed: u64, len: usize, (low, high): (f64, f64)) -> impl Iterator<Item = f64> {
    // 53 bits fill the mantissa of an `f64`: the fraction is exact and less than 1.
    words(seed, len).map(move |word| low + (high - low) * ((word >> 11) as f64 * 2f64.powi(-53)))
}

/// Returns the splitmix64 words of a sequence; see the module documentation.
fn words(seed: u64, len: usize) -> impl Iterator<Item = u64> {
    // splitmix64 of a counter. Sequences of different seeds do not overlap within 2^32 elements.
    (0..len as u64).map(move |index| {
        let mut bits = (seed << 32).wrapping_add(index).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_formula_in_numpy() {
        let found: Vec<f32> = uniform(1, 4).collect();
        assert_eq!(found, [0.532_603_5, -0.747_938_04, 0.401_862_38, 0.265_752_43]);
    }

    #[test]
    fn whole_numbers_are_scaled_and_halves_rounded() {
        let input = |is_whole| Input { shape: vec![1000], seed: 3, scale: 0.25, is_whole };
        let whole = input(true).elements_of(ElementType::F32);
        assert!(whole.iter().all(|value| [-0.25, 0.0, 0.25].contains(value)));
        assert!([-0.25, 0.0, 0.25].iter().all(|value| whole.contains(value)));
        let (exact, half) = (input(false).elements_of(ElementType::F32), input(false).elements_of(ElementType::F16));
        assert_ne!(exact, half);
        assert!(exact.iter().zip(&half).all(|(exact, half)| (exact - half).abs() <= exact.abs() * 2f32.powi(-11)));
    }
}
