//! Powers. The error of the logarithm is multiplied by the exponent, so it is computed in double-float arithmetic: a
//! head of few bits, whose products are exact, and a tail.

use super::lane::{Float, Uint};
use super::math::{at_least, at_most, exp_near_zero, polynomial, scale, split};

/// Clears the low 12 bits of the mantissa.
#[inline(always)]
fn head<T: Float>(x: T) -> T {
    // 12 of the 24 significant bits remain, so the product of two heads is exact.
    T::from_bits(x.to_bits() & T::Bits::lit(0xffff_f000))
}

/// Returns the base-2 logarithm of a positive number as head and tail.
#[inline(always)]
fn log_2<T: Float>(x: T) -> (T, T) {
    let (m, n) = split(x);
    // ln m = 2 artanh s with s = (m - 1) / (m + 1); the tail holds the rounding error of s.
    let (numerator, denominator) = (m - T::lit(1.0), m + T::lit(1.0));
    let s = numerator / denominator;
    let s_head = head(s);
    let denominator_head = head(denominator);
    let denominator_tail = m - (denominator_head - T::lit(1.0));
    let s_tail = ((numerator - s_head * denominator_head) - s_head * denominator_tail) / denominator;
    // artanh s = s (3 + s_head^2 + r) / 3, where r = s^4 p + s_tail (s_head + s). The coefficients of p are those of the
    // Taylor series, 3/5, 3/7, 3/9, 3/11 and 3/13: |s| is at most 0.172, because m is from sqrt(1/2) to sqrt(2).
    let square = s * s;
    let p = polynomial(square, [0.230_769_23, 0.272_727_28, 0.333_333_34, 0.428_571_43, 0.6]);
    let r = p.mul_add(square * square, s_tail * (s_head + s));
    let square_head = s_head * s_head;
    let factor_head = head(T::lit(3.0) + square_head + r);
    let factor_tail = r - ((factor_head - T::lit(3.0)) - square_head);
    let product_head = s_head * factor_head;
    let product_tail = s_tail * factor_head + factor_tail * s;
    let sum_head = head(product_head + product_tail);
    let sum_tail = product_tail - (sum_head - product_head);
    // 2 / (3 ln 2), also as head and tail.
    let value_head = T::lit(0.961_914_06) * sum_head;
    let value_tail = T::lit(-1.173_685_7e-4) * sum_head + sum_tail * T::lit(0.961_796_7);
    let whole = head((value_head + value_tail) + n);
    (whole, value_tail - ((whole - n) - value_head))
}

/// Returns `a^b` for a positive, finite `a`.
#[inline(always)]
fn power<T: Float>(a: T, b: T) -> T {
    // Beyond 2^32 the result is 0, 1 or infinity: |log2 a| of a float other than 1 is above 2^-24. Clamping avoids
    // infinity minus infinity.
    let b = at_least(at_most(b, 4_294_967_296.0), -4_294_967_296.0);
    let (log_head, log_tail) = log_2(a);
    let b_head = head(b);
    let tail = (b - b_head) * log_head + b * log_tail;
    let product = b_head * log_head;
    // The logarithm of the result. 2^130 is infinite and 2^-152 is 0 in `f32`, and `scale` takes both exponents.
    let bounded = at_least(at_most(product + tail, 130.0), -152.0);
    let (n, integer) = bounded.nearest();
    let is_in_range = (product + tail).eq(bounded);
    let rest = T::select(is_in_range, (product - n) + tail, bounded - n);
    scale(exp_near_zero(rest * T::lit(std::f32::consts::LN_2)), integer)
}

/// Returns `a^b` for all inputs, following IEEE 754.
#[inline(always)]
pub(super) fn pow<T: Float>(a: T, b: T) -> T {
    let (zero, one, infinity) = (T::lit(0.0), T::lit(1.0), T::lit(f32::INFINITY));
    let magnitude = a.abs();
    let rises = zero.lt(b);
    let value = power(magnitude, b);
    let value = T::select(magnitude.eq(zero), T::select(rises, zero, infinity), value);
    let value = T::select(magnitude.eq(infinity), T::select(rises, infinity, zero), value);
    // A negative base needs an integer exponent; the result is negative if the exponent is odd.
    let is_integer = b.floor().eq(b);
    let half = b * T::lit(0.5);
    let is_odd = is_integer & half.floor().ne(half);
    let value = T::select(is_odd, value.copysign(a), value);
    let nan = T::lit(f32::NAN);
    let value = T::select(a.lt(zero) & magnitude.lt(infinity) & !is_integer, nan, value);
    let value = T::select(a.is_nan() | b.is_nan(), nan, value);
    T::select(b.eq(zero) | a.eq(one), one, value)
}
