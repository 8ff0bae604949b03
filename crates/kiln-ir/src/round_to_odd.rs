//! Rounding to odd, which makes a following rounding to a narrower type free of double rounding.
//!
//! The value is truncated towards zero, and the lowest bit is set if the result is inexact. A second rounding then
//! knows on which side of a midpoint the exact value is. (`half` drops the lowest 32 bits of an `f64` without this.)

/// Converts an `f64` to `f32`, rounding to odd.
///
/// ```
/// use half::bf16;
///
/// // Just above the midpoint of two neighbours of `bf16`, by less than a step of `f32`.
/// let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
/// assert_eq!(bf16::from_f32(kiln_ir::round_to_odd::f32_of(x)), bf16::from_f32(1.0 + 2f32.powi(-7)));
/// assert_eq!(bf16::from_f32(x as f32), bf16::ONE, "rounded twice");
/// ```
pub fn f32_of(x: f64) -> f32 {
    // A number that overflows to infinity steps back to the largest float, which is odd; a tiny one becomes the smallest.
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || x.is_nan() {
        return nearest;
    }
    // Subtracting 1 from the bits steps towards zero, which undoes a rounding away from it.
    let cut = nearest.to_bits() - u32::from(back.abs() > x.abs());
    f32::from_bits(cut | 1)
}

/// Converts an `i64` to `f64`, rounding to odd.
///
/// ```
/// let x = (1i64 << 53) + 1;
/// assert_eq!(kiln_ir::round_to_odd::f64_of(x), 9_007_199_254_740_994.0);
/// assert_eq!(x as f64, 9_007_199_254_740_992.0, "rounded to even");
/// ```
pub fn f64_of(x: i64) -> f64 {
    let nearest = x as f64;
    // `nearest` can be 2^63, which overflows `i64`.
    let (back, exact) = (nearest as i128, i128::from(x));
    if back == exact {
        return nearest;
    }
    let cut = nearest.to_bits() - u64::from(back.abs() > exact.abs());
    f64::from_bits(cut | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// The nearest `bf16` to an integer, computed with integers only.
    fn nearest_bf16(x: i64) -> f64 {
        let (size, mut step) = (i128::from(x).abs(), 1i128);
        while size / step >= 256 {
            step *= 2;
        }
        let (low, rest) = (size / step, size % step);
        let up = rest * 2 > step || (rest * 2 == step && low % 2 == 1);
        ((low + i128::from(up)) * step) as f64 * if x < 0 { -1.0 } else { 1.0 }
    }

    #[test]
    fn two_roundings_are_one() {
        for shift in 9..62 {
            for (lead, low) in [(129, 0), (129, 1), (128, 0), (255, 1), (200, -1)] {
                // Near the midpoint above a value with eight significant bits.
                let x = (lead << shift) / 128 + (1i64 << (shift - 8)) + low;
                for x in [x, -x] {
                    let expected = nearest_bf16(x);
                    assert_eq!(bf16::from_f32(f32_of(f64_of(x))).to_f64(), expected, "{x}");
                    let scale = 2f64.powi(-60);
                    assert_eq!(
                        bf16::from_f32(f32_of(x as f64 * scale)).to_f64(),
                        nearest_bf16(x as f64 as i64) * scale
                    );
                }
            }
        }
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-50);
        assert_eq!(f16::from_f32(f32_of(above)), f16::from_f32(1.0 + 2f32.powi(-10)));
        assert_eq!(f32_of(1e300), f32::MAX);
        assert_eq!(f32_of(f64::NEG_INFINITY), f32::NEG_INFINITY);
        assert!(f32_of(f64::NAN).is_nan());
        assert_eq!((f64_of(i64::MIN), f64_of(3)), (-9_223_372_036_854_775_808.0, 3.0));
    }
}
