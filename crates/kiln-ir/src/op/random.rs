//! Counter-based random numbers from a counter and a key. They are stateless, so every device computes the same
//! numbers in any order.

use super::lane::{Float, Int, Uint};
use super::math;

/// Threefry-2x32 with 13 rounds (Salmon et al., 2011): the fewest rounds that pass TestU01's BigCrush.
///
/// Unrolled, because an inner loop prevents vectorization of the loop over elements.
#[inline(always)]
pub(super) fn threefry<T: Uint>([x0, x1]: [T; 2], [k0, k1]: [T; 2]) -> [T; 2] {
    let k2 = k0 ^ k1 ^ T::lit(0x1bd1_1bda);
    let x = [x0 + k0, x1 + k1];
    let x = four_rounds(x, [13, 15, 26, 6], [k1, k2 + T::lit(1)]);
    let x = four_rounds(x, [17, 29, 16, 24], [k2, k0 + T::lit(2)]);
    let x = four_rounds(x, [13, 15, 26, 6], [k0, k1 + T::lit(3)]);
    round(x, 17)
}

#[inline(always)]
fn four_rounds<T: Uint>(x: [T; 2], [a, b, c, d]: [u32; 4], [k0, k1]: [T; 2]) -> [T; 2] {
    let [x0, x1] = round(round(round(round(x, a), b), c), d);
    [x0 + k0, x1 + k1]
}

#[inline(always)]
fn round<T: Uint>([x0, x1]: [T; 2], rotation: u32) -> [T; 2] {
    let sum = x0 + x1;
    [sum, ((x1 << T::lit(rotation)) | (x1 >> T::lit(32 - rotation))) ^ sum]
}

/// Converts the upper 24 bits to a float.
#[inline(always)]
fn top<T: Float>(bits: T::Bits) -> T {
    T::from_int(T::Int::from_bits(bits >> T::Bits::lit(8)))
}

/// Returns a uniform multiple of 2^-24 in [0, 1).
#[inline(always)]
pub(super) fn uniform<T: Float>(bits: T::Bits) -> T {
    top::<T>(bits) * T::lit(1.0 / 16_777_216.0)
}

/// Returns a normally distributed number (Box-Muller). The argument of the logarithm is above 0, so the radius is
/// finite.
#[inline(always)]
pub(super) fn normal<T: Float>(radius: T::Bits, direction: T::Bits) -> T {
    let above_zero = (top::<T>(radius) + T::lit(1.0)) * T::lit(1.0 / 16_777_216.0);
    let radius = (math::log(above_zero) * T::lit(-2.0)).sqrt();
    radius * math::cos(uniform::<T>(direction) * T::lit(std::f32::consts::TAU))
}
