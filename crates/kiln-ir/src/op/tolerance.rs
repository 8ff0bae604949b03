//! Error bounds in ULP (units in the last place).

use crate::DType;

/// An error bound: a number of ULP of the exact result plus an absolute error.
///
/// See [`allows`](Self::allows) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative part, in ULP of the dtype.
    pub ulps: f64,
    /// Absolute part.
    pub absolute: f64,
}

impl Tolerance {
    /// No error allowed.
    pub const EXACT: Self = Self { ulps: 0.0, absolute: 0.0 };

    /// Returns whether `found`, of this dtype, is close enough to `expected`. NaN matches only NaN, and infinity
    /// matches values too large for the dtype.
    ///
    /// ```
    /// use kiln_ir::{DType, op};
    ///
    /// let bound = op::EXP.error_bound(DType::F32);
    /// assert!(bound.allows(DType::F32, 1f64.exp(), f64::from(1f32.exp())));
    /// assert!(!bound.allows(DType::F32, 1f64.exp(), 2.7182));
    /// ```
    pub fn allows(&self, dtype: DType, expected: f64, found: f64) -> bool {
        if expected.is_nan() || found.is_nan() {
            return expected.is_nan() && found.is_nan();
        }
        let largest = largest(dtype);
        if found.is_infinite() || expected.abs() > largest {
            // A result within the tolerance of the largest finite number may round to it or to infinity.
            let slack = self.ulps.max(0.5) * ulp(dtype, largest) + self.absolute;
            return found.signum() == expected.signum()
                && (found.abs() >= largest - slack)
                && expected.abs() >= largest - slack;
        }
        (expected - found).abs() <= self.ulps * ulp(dtype, expected) + self.absolute
    }
}

/// Returns the spacing of a dtype's numbers at this value (ULP); 1 for integers.
///
/// ```
/// use kiln_ir::{DType, op::ulp};
///
/// assert_eq!(ulp(DType::F32, 1.0), f64::from(f32::EPSILON));
/// assert_eq!(ulp(DType::I32, 1.0), 1.0);
/// ```
pub fn ulp(dtype: DType, value: f64) -> f64 {
    // Bits of the mantissa, and the exponent of the smallest normal number: subnormal numbers have its spacing.
    let (bits, min_exponent) = match dtype {
        DType::F32 => (23, -126),
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F64 => (52, -1022),
        _ => return 1.0,
    };
    // Infinity and NaN have the spacing of the largest finite numbers.
    let max_exponent = if dtype == DType::F64 { 1023 } else { 127 };
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    2f64.powi(exponent.clamp(min_exponent, max_exponent) - bits)
}

/// Returns the largest finite number of a float dtype that fused kernels compute; infinity for other dtypes.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::MAX),
        DType::F16 => f64::from(half::f16::MAX),
        DType::BF16 => f64::from(half::bf16::MAX),
        _ => f64::INFINITY,
    }
}
