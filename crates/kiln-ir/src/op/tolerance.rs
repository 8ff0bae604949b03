//! Error bounds.

use crate::DType;

/// An error bound: a number of ULP of the exact result plus an absolute error.
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
            // The largest finite number and the overflow threshold are one ULP apart; rounding goes either way
            // between them.
            let slack = self.ulps.max(0.5) * ulp(dtype, largest) + self.absolute;
            return found.signum() == expected.signum()
                && (found.abs() >= largest - slack)
                && expected.abs() >= largest - slack;
        }
        (expected - found).abs() <= self.ulps * ulp(dtype, expected) + self.absolute
    }
}

/// Returns the spacing of a dtype's numbers at this value (ULP); 1 for integers.
pub fn ulp(dtype: DType, value: f64) -> f64 {
    let (bits, smallest) = match dtype {
        DType::F32 => (23, -126),
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F64 => (52, -1022),
        _ => return 1.0,
    };
    let largest = if dtype == DType::F64 { 1023 } else { 127 };
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    2f64.powi(exponent.clamp(smallest, largest) - bits)
}

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::MAX),
        DType::F16 => f64::from(half::f16::MAX),
        DType::BF16 => f64::from(half::bf16::MAX),
        _ => f64::INFINITY,
    }
}
