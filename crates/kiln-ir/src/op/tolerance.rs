//! How far a result may be from the exact one.

use crate::DType;

/// A bound of an error: so many units in the last place of the exact result, and an absolute amount on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Units in the last place of the dtype.
    pub ulps: f64,
    /// An absolute amount.
    pub absolute: f64,
}

impl Tolerance {
    /// Nothing but the exact result.
    pub const EXACT: Self = Self { ulps: 0.0, absolute: 0.0 };

    /// Whether `found`, of this dtype, is close enough to `expected`. NaN is close to NaN only, and infinity to what is too large for the
    /// dtype.
    ///
    /// ```
    /// use kiln_ir::{DType, op};
    ///
    /// let bound = op::EXP.bound(DType::F32);
    /// assert!(bound.allows(DType::F32, 1f64.exp(), f64::from(1f32.exp())));
    /// assert!(!bound.allows(DType::F32, 1f64.exp(), 2.7182));
    /// ```
    pub fn allows(&self, dtype: DType, expected: f64, found: f64) -> bool {
        if expected.is_nan() || found.is_nan() {
            return expected.is_nan() && found.is_nan();
        }
        let largest = largest(dtype);
        if found.is_infinite() || expected.abs() > largest {
            // The largest number and the first that is too large are one unit apart; rounding goes either way between them.
            let slack = self.ulps.max(0.5) * ulp(dtype, largest) + self.absolute;
            return found.signum() == expected.signum()
                && (found.abs() >= largest - slack)
                && expected.abs() >= largest - slack;
        }
        (expected - found).abs() <= self.ulps * ulp(dtype, expected) + self.absolute
    }
}

/// The distance of the numbers of a dtype around this one; 1 for integers.
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
