//! References in `f64` that ops and kernels are compared with. They use different methods from the ops.

use crate::DType;
/// The error function and its complement, accurate in `f64`.
pub(super) use libm::{erf, erfc};
use std::f64::consts::PI;

/// Returns the softmax or log-softmax of a row.
///
/// ```
/// assert_eq!(kiln_ir::op::reference::softmax(&[3.0, 3.0], false), [0.5, 0.5]);
/// ```
pub fn softmax(row: &[f64], log: bool) -> Vec<f64> {
    // Subtracting the maximum keeps every exponential at most 1, so that the sum cannot overflow.
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|number| (number - largest).exp()).sum();
    let share = |number: &f64| if log { number - largest - sum.ln() } else { (number - largest).exp() / sum };
    row.iter().map(share).collect()
}

/// Converts a number to an integer dtype: truncates and wraps; 0 if not finite.
///
/// ```
/// use kiln_ir::{DType, op::reference::wrapped};
///
/// assert_eq!((wrapped(-1.5, DType::U8), wrapped(-1.5, DType::I32)), (255.0, -1.0));
/// ```
pub fn wrapped(exact: f64, dtype: DType) -> f64 {
    if !exact.is_finite() {
        return 0.0;
    }
    let bits = exact.trunc() as i64;
    match dtype {
        DType::I32 => f64::from(bits as i32),
        DType::I8 => f64::from(bits as i8),
        DType::I64 => bits as f64,
        DType::U8 => f64::from(bits as u8),
        _ => f64::from(bits as u32),
    }
}

/// Exact GELU.
pub(super) fn gelu_erf(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

/// GELU with the tanh approximation.
pub(super) fn gelu(x: f64) -> f64 {
    // 1 + tanh u = 2 / (1 + e^-2u), which has no cancellation for small results.
    let u = (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x);
    if x == f64::NEG_INFINITY { 0.0 } else { x / (1.0 + (-2.0 * u).exp()) }
}

/// `x / (1 + e^-x)`.
pub(super) fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { x / (1.0 + (-x).exp()) }
}

/// Maximum that propagates NaN.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Minimum that propagates NaN.
pub(super) fn minimum(a: f64, b: f64) -> f64 {
    -maximum(-a, -b)
}

/// The bits of a signed or unsigned integer.
pub(super) fn bits(x: f64) -> u32 {
    x as i64 as u32
}

/// First word of Threefry-2x32 with 13 rounds, written as in the paper.
pub(super) fn random_bits(counter: u32, key: u32) -> u32 {
    let schedule = [key, 0, 0x1bd1_1bda ^ key];
    let mut x = [counter.wrapping_add(key), 0u32];
    let rotations = [13, 15, 26, 6, 17, 29, 16, 24, 13, 15, 26, 6, 17];
    for (round, rotation) in rotations.into_iter().enumerate() {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(rotation) ^ x[0];
        if let 3 | 7 | 11 = round {
            let turn = (round + 1) / 4;
            x[0] = x[0].wrapping_add(schedule[turn % 3]);
            x[1] = x[1].wrapping_add(schedule[(turn + 1) % 3]).wrapping_add(turn as u32);
        }
    }
    x[0]
}

/// Uniform number in [0, 1) from the upper 24 bits.
pub(super) fn uniform(bits: f64) -> f64 {
    (bits / 256.0).floor() / 16_777_216.0
}

/// Box-Muller transform.
pub(super) fn normal(radius: f64, direction: f64) -> f64 {
    let above_zero = uniform(radius) + 1.0 / 16_777_216.0;
    (-2.0 * above_zero.ln()).sqrt() * (2.0 * PI * uniform(direction)).cos()
}
