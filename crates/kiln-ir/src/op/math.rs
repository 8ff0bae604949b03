//! Building blocks of ops: straight-line, branch-free arithmetic that is identical on every device.
//!
//! Nothing here depends on `mul_add` rounding only once: where a product must be exact, its factors have few enough
//! bits.

use super::lane::{Float, Int, Number, Uint};

/// Returns the maximum; propagates NaN.
#[inline(always)]
pub(super) fn maximum<T: Number>(a: T, b: T) -> T {
    T::select(b.is_nan(), b, T::select(a.lt(b), b, a))
}

/// Returns the minimum; propagates NaN.
#[inline(always)]
pub(super) fn minimum<T: Number>(a: T, b: T) -> T {
    T::select(b.is_nan(), b, T::select(b.lt(a), b, a))
}

/// Returns -1, 0 or 1; zero and NaN are unchanged.
#[inline(always)]
pub(super) fn sign<T: Number>(x: T) -> T {
    let negative = T::select(x.lt(T::small(0)), -T::small(1), x);
    T::select(T::small(0).lt(x), T::small(1), negative)
}

/// Clamps to an upper limit; propagates NaN.
#[inline(always)]
pub(super) fn at_most<T: Float>(x: T, limit: f32) -> T {
    T::select(T::lit(limit).lt(x), T::lit(limit), x)
}

/// Clamps to a lower limit; propagates NaN.
#[inline(always)]
pub(super) fn at_least<T: Float>(x: T, limit: f32) -> T {
    T::select(x.lt(T::lit(limit)), T::lit(limit), x)
}

/// Evaluates a polynomial by Horner's rule, highest coefficient first.
#[inline(always)]
pub(super) fn polynomial<T: Float, const N: usize>(x: T, coefficients: [f32; N]) -> T {
    let mut sum = T::lit(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, T::lit(coefficient));
    }
    sum
}

/// Returns `2^n`, for n from -126 to 127.
#[inline(always)]
fn power_of_two<T: Float>(n: T::Int) -> T {
    T::from_bits((n.to_bits() + T::Bits::lit(127)) << T::Bits::lit(23))
}

/// Returns `x * 2^n`, for n from -252 to 254, in two steps: `2^n` alone may overflow or underflow when the result
/// does not.
#[inline(always)]
pub(super) fn scale<T: Float>(x: T, n: T::Int) -> T {
    let one = T::Bits::lit(1);
    // `n / 2`, rounded down: n is biased so that a logical shift can be used.
    let half = T::Int::from_bits(((n.to_bits() + T::Bits::lit(512)) >> one) - T::Bits::lit(256));
    x * power_of_two(half) * power_of_two(n - half)
}

/// Returns `e^r` for |r| ≤ ln 2 / 2.
#[inline(always)]
pub(super) fn exp_near_zero<T: Float>(r: T) -> T {
    // Minimax polynomial with a relative error of 3e-9, far below the rounding error.
    let p = polynomial(r, [1.381_432e-3, 8.368_851e-3, 4.166_84e-2, 0.166_665_2, 0.499_999_94]);
    p.mul_add(r * r, r) + T::lit(1.0)
}

/// Reduces `x = n ln 2 + r`; returns r and n. ln 2 is split in two parts, the first with few enough bits that its
/// product with n is exact.
#[inline(always)]
fn divide_by_ln_2<T: Float>(x: T) -> (T, T::Int) {
    // 0.693_359_4 is 355/512, of 9 bits, and n has at most 8 where the result is used; 2.12e-4 is 355/512 - ln 2.
    let (n, integer) = (x * T::lit(std::f32::consts::LOG2_E)).nearest();
    let r = n.mul_add(T::lit(-0.693_359_4), x);
    (n.mul_add(T::lit(2.121_944_4e-4), r), integer)
}

/// Returns the exponential. Results that would be subnormal are 0.
#[inline(always)]
pub(super) fn exp<T: Float>(x: T) -> T {
    let (r, n) = divide_by_ln_2(x);
    // Adds n to the exponent field. Past the limits the field overflows, and the result is infinity or 0.
    // A product with 2^n would not do: n is 128 for the largest arguments, and 2^128 is infinite.
    let value = T::from_bits(exp_near_zero(r).to_bits() + (n.to_bits() << T::Bits::lit(23)));
    // The limits are the logarithms of the largest float and of the smallest normal one. `x + infinity` propagates NaN.
    let value = T::select(x.le(T::lit(88.722_83)), value, x + T::lit(f32::INFINITY));
    T::select(x.lt(T::lit(-87.336_54)), T::lit(0.0), value)
}

/// Returns `2^x`; exact for integers. Results that would be subnormal are 0.
#[inline(always)]
pub(super) fn exp2<T: Float>(x: T) -> T {
    let (n, integer) = x.nearest();
    // `x - n` is exact, and 0 for an integer x, which makes the power exact.
    let value = exp_near_zero((x - n) * T::lit(std::f32::consts::LN_2));
    let value = T::from_bits(value.to_bits() + (integer.to_bits() << T::Bits::lit(23)));
    let value = T::select(x.lt(T::lit(128.0)), value, x + T::lit(f32::INFINITY));
    T::select(x.lt(T::lit(-126.0)), T::lit(0.0), value)
}

/// Returns the exponential without range checks, for x from -87 to 88. From 88.5 to 89 it is infinite.
#[inline(always)]
fn exp_in_range<T: Float>(x: T) -> T {
    let (r, n) = divide_by_ln_2(x);
    exp_near_zero(r) * power_of_two(n)
}

/// Returns `1 + e^x` for x up to 89; from 88.5 on it is infinite.
#[inline(always)]
fn one_plus_exp<T: Float>(x: T) -> T {
    exp_in_range(at_least(x, -87.0)) + T::lit(1.0)
}

/// The logit at which `1 + e^-x` is infinite, so that a quotient by it is 0.
const SMALLEST_LOGIT: f32 = -88.6;

/// Splits a positive number into `m * 2^n` with m from about 0.7 to 1.4; returns m and n. Unspecified for zero,
/// infinity and NaN.
#[inline(always)]
pub(super) fn split<T: Float>(x: T) -> (T, T) {
    let subnormal = x.lt(T::lit(f32::MIN_POSITIVE));
    let x = T::select(subnormal, x * T::lit(8_388_608.0), x);
    // Bits of sqrt(1/2): values below it within their binade belong to the previous exponent.
    let root = T::Bits::lit(0x3f35_04f3);
    let shifted = x.to_bits() + (T::Bits::lit(0x3f80_0000) - root);
    let n = T::from_int(T::Int::from_bits((shifted >> T::Bits::lit(23)) - T::Bits::lit(127)));
    let m = T::from_bits((shifted & T::Bits::lit(0x007f_ffff)) + root);
    (m, n - T::select(subnormal, T::lit(23.0), T::lit(0.0)))
}

/// Returns `log(1 + f)` minus `f - f^2 / 2`, for f from about -0.3 to 0.4.
#[inline(always)]
fn log_rest<T: Float>(f: T, square: T) -> T {
    let p = polynomial(
        f,
        [
            7.037_683_6e-2,
            -0.115_146_1,
            0.116_769_99,
            -0.124_201_41,
            0.142_493_23,
            -0.166_680_58,
            0.200_007_15,
            -0.249_999_94,
            0.333_333_3,
        ],
    );
    f * square * p
}

/// Handles the special cases of a logarithm `value` of `x`: zero, negative numbers, infinity and NaN.
#[inline(always)]
fn log_or_limit<T: Float>(x: T, value: T) -> T {
    let finite = x.lt(T::lit(f32::INFINITY));
    let value = T::select(finite, value, x);
    let value = T::select(x.eq(T::lit(0.0)), T::lit(f32::NEG_INFINITY), value);
    T::select(x.lt(T::lit(0.0)), T::lit(f32::NAN), value)
}

/// Returns the natural logarithm.
#[inline(always)]
pub(super) fn log<T: Float>(x: T) -> T {
    let (m, n) = split(x);
    let f = m - T::lit(1.0);
    let square = f * f;
    // The terms are added from the smallest to the largest. n ln 2 is split as in `divide_by_ln_2`.
    let small = n.mul_add(T::lit(-2.121_944_4e-4), log_rest(f, square));
    let small = square.mul_add(T::lit(-0.5), small);
    log_or_limit(x, n.mul_add(T::lit(0.693_359_4), f + small))
}

/// Returns the base-2 logarithm; exact for powers of two.
#[inline(always)]
pub(super) fn log2<T: Float>(x: T) -> T {
    let (m, n) = split(x);
    let f = m - T::lit(1.0);
    let square = f * f;
    let small = square.mul_add(T::lit(-0.5), log_rest(f, square));
    log_or_limit(x, (f + small).mul_add(T::lit(std::f32::consts::LOG2_E), n))
}

/// The largest angle for which the argument is reduced.
const LARGEST_ANGLE: f32 = 1_048_576.0;

/// Reduces a positive angle modulo pi/2; returns the remainder, within pi/4, and the quadrant. Angles above
/// [`LARGEST_ANGLE`] count as 0, except that infinity and NaN give NaN.
#[inline(always)]
fn angle<T: Float>(x: T) -> (T, T::Bits) {
    let too_large = T::select(x.lt(T::lit(f32::INFINITY)), T::lit(0.0), T::lit(f32::NAN));
    let rest = T::select(T::lit(LARGEST_ANGLE).lt(x), too_large, x);
    let (n, integer) = (rest * T::lit(std::f32::consts::FRAC_2_PI)).nearest();
    // Cody-Waite reduction with pi/2 in parts of 4 bits: their products with n, of at most 20 bits, are exact, and so
    // are the differences. Only the last part is inexact, and it is small.
    let mut rest = rest;
    for part in QUARTER {
        rest = n.mul_add(T::lit(-part), rest);
    }
    (rest, integer.to_bits())
}

/// pi/2, in parts of at most 4 bits and a last one of 24.
const QUARTER: [f32; 6] = {
    // pi/2 in fixed point with 52 fraction bits.
    let mut digits: u64 = 0x0019_21fb_5444_2d18;
    let mut parts = [0.0; 6];
    let mut index = 0;
    while index < 6 {
        let keep = if index < 5 { 4 } else { 24 };
        let drop = 64 - digits.leading_zeros() - keep;
        let part = digits >> drop << drop;
        digits -= part;
        parts[index] = (part as f64 / (1u64 << 52) as f64) as f32;
        index += 1;
    }
    parts
};

/// Returns the sine of an angle within pi/4.
#[inline(always)]
fn sin_near_zero<T: Float>(r: T) -> T {
    let square = r * r;
    let p = polynomial(square, [-1.951_529_6e-4, 8.332_161e-3, -0.166_666_55]);
    (p * square).mul_add(r, r)
}

/// Returns the cosine of an angle within pi/4.
#[inline(always)]
fn cos_near_zero<T: Float>(r: T) -> T {
    let square = r * r;
    let p = polynomial(square, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]);
    (p * square).mul_add(square, square.mul_add(T::lit(-0.5), T::lit(1.0)))
}

/// Returns the sine of `x` plus `quarters` quarter turns.
#[inline(always)]
fn sin_from<T: Float>(x: T, quarters: u32) -> T {
    let (rest, n) = angle(x);
    let n = n + T::Bits::lit(quarters);
    let odd = (n & T::Bits::lit(1)).ne(T::Bits::lit(0));
    // Quadrants 2 and 3 are negative: bit 1 of n moves to the sign bit.
    T::select(odd, cos_near_zero(rest), sin_near_zero(rest)).flip_sign(n << T::Bits::lit(30))
}

/// Returns the sine.
#[inline(always)]
pub(super) fn sin<T: Float>(x: T) -> T {
    sin_from(x.abs(), 0).flip_sign(x.to_bits())
}

/// Returns the cosine.
#[inline(always)]
pub(super) fn cos<T: Float>(x: T) -> T {
    sin_from(x.abs(), 1)
}

/// Returns the tangent.
#[inline(always)]
pub(super) fn tan<T: Float>(x: T) -> T {
    let (rest, n) = angle(x.abs());
    let (sin, cos) = (sin_near_zero(rest), cos_near_zero(rest));
    let odd = (n & T::Bits::lit(1)).ne(T::Bits::lit(0));
    // In odd quadrants, tan(r + pi/2) = -cos r / sin r.
    let tan = T::select(odd, cos, sin) / T::select(odd, -sin, cos);
    tan.flip_sign(x.to_bits())
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh<T: Float>(x: T) -> T {
    let square = x * x;
    let p = polynomial(square, [-5.704_989e-3, 2.063_908_8e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8]);
    let near = (p * square).mul_add(x, x);
    // The result rounds to 1 from 10 on.
    let magnitude = at_most(x.abs(), 10.0);
    let far = T::lit(1.0) - T::lit(2.0) / (exp_in_range(magnitude + magnitude) + T::lit(1.0));
    // Below 0.625 the difference from 1 would cancel leading bits; from there on the result is above 1/2.
    T::select(magnitude.lt(T::lit(0.625)), near, far).copysign(x)
}

/// Returns `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<T: Float>(x: T) -> T {
    T::lit(1.0) / one_plus_exp(-at_least(x, SMALLEST_LOGIT))
}

/// Returns `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu<T: Float>(x: T) -> T {
    let x = at_least(x, SMALLEST_LOGIT);
    x / one_plus_exp(-x)
}

/// Returns `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, computed as `x / (1 + e^-2u)`, which has no
/// cancellation where the tanh is near -1.
#[inline(always)]
pub(super) fn gelu<T: Float>(x: T) -> T {
    // Here -2u is 88.47, so the result is -0 from here down.
    let x = at_least(x, -10.05);
    // -2u: the factors are 2 sqrt(2/pi) and 0.044715 times that.
    let u = (x * x).mul_add(T::lit(-0.071_354_814), T::lit(-1.595_769_2)) * x;
    x / one_plus_exp(u)
}

/// Returns the error function.
#[inline(always)]
pub(super) fn erf<T: Float>(x: T) -> T {
    let square = x * x;
    let p = polynomial(
        square,
        [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 0.112_819_925, -0.376_125_34, 0.128_379_17],
    );
    // The constant term of p is 2/sqrt(pi) - 1; adding x itself last rounds better than a factor of 1.128.
    let near = p.mul_add(x, x);
    // The result rounds to 1 from 4 on.
    let t = at_most(x.abs(), 4.0);
    let q = polynomial(
        t,
        [-1.728_534_7e-5, 3.831_971_3e-4, -3.883_964_4e-3, 2.425_462_2e-2, -0.106_777_88, -0.634_846_7, -0.128_717_51],
    );
    // erfc t = e^(t (q - 1)). It is below 0.2 here, so the difference from 1 does not cancel.
    let far = T::lit(1.0) - exp_in_range(q.mul_add(t, -t));
    T::select(t.lt(T::lit(0.927_734_4)), near, far).copysign(x)
}

/// Returns `x (1 + erf(x / sqrt 2)) / 2`.
#[inline(always)]
pub(super) fn gelu_erf<T: Float>(x: T) -> T {
    // The result is 0 below this; clamping avoids 0 times infinity.
    let x = at_least(x, -10.0);
    let half = x * T::lit(0.5);
    half.mul_add(erf(x * T::lit(std::f32::consts::FRAC_1_SQRT_2)), half)
}
