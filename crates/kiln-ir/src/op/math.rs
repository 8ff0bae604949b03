//! Functions that ops are made of: straight lines of arithmetic without branches, the same on every device.
//!
//! Nothing here needs `mul_add` to round once: where a product must be exact, its factors are short enough.

use super::lane::{Float, Int, Number, Uint};

/// The larger; NaN where one is.
#[inline(always)]
pub(super) fn maximum<T: Number>(a: T, b: T) -> T {
    T::select(b.is_nan(), b, T::select(a.lt(b), b, a))
}

/// The smaller; NaN where one is.
#[inline(always)]
pub(super) fn minimum<T: Number>(a: T, b: T) -> T {
    T::select(b.is_nan(), b, T::select(b.lt(a), b, a))
}

/// -1, 0 or 1; zero and NaN as they are.
#[inline(always)]
pub(super) fn sign<T: Number>(x: T) -> T {
    let negative = T::select(x.lt(T::small(0)), -T::small(1), x);
    T::select(T::small(0).lt(x), T::small(1), negative)
}

/// The number, but at most the limit. A NaN stays.
#[inline(always)]
pub(super) fn at_most<T: Float>(x: T, limit: f32) -> T {
    T::select(T::lit(limit).lt(x), T::lit(limit), x)
}

/// The number, but at least the limit. A NaN stays.
#[inline(always)]
pub(super) fn at_least<T: Float>(x: T, limit: f32) -> T {
    T::select(x.lt(T::lit(limit)), T::lit(limit), x)
}

/// A polynomial, the coefficient of the highest power first.
#[inline(always)]
pub(super) fn polynomial<T: Float, const N: usize>(x: T, coefficients: [f32; N]) -> T {
    let mut sum = T::lit(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, T::lit(coefficient));
    }
    sum
}

/// `2^n`, for n from -126 to 127.
#[inline(always)]
fn power_of_two<T: Float>(n: T::Int) -> T {
    T::from_bits((n.to_bits() + T::Bits::lit(127)) << T::Bits::lit(23))
}

/// `x * 2^n`, for n from -252 to 254, in two steps: `2^n` alone may be too large or too small where the result is not.
#[inline(always)]
pub(super) fn scale<T: Float>(x: T, n: T::Int) -> T {
    let one = T::Bits::lit(1);
    // A shift of integers without a sign, moved to where there is none.
    let half = T::Int::from_bits(((n.to_bits() + T::Bits::lit(512)) >> one) - T::Bits::lit(256));
    x * power_of_two(half) * power_of_two(n - half)
}

/// `e^r` for r within half of ln 2.
#[inline(always)]
pub(super) fn exp_near_zero<T: Float>(r: T) -> T {
    // Of least relative error, 3e-9, and so far below that of the rounding.
    let p = polynomial(r, [1.381_432e-3, 8.368_851e-3, 4.166_84e-2, 0.166_665_2, 0.499_999_94]);
    p.mul_add(r * r, r) + T::lit(1.0)
}

/// `x` as `n ln 2 + r`: r, and n. ln 2 is in two parts, the first short enough that its product with n is exact.
#[inline(always)]
fn divide_by_ln_2<T: Float>(x: T) -> (T, T::Int) {
    let (n, integer) = (x * T::lit(std::f32::consts::LOG2_E)).nearest();
    let r = n.mul_add(T::lit(-0.693_359_4), x);
    (n.mul_add(T::lit(2.121_944_4e-4), r), integer)
}

/// The exponential. What would be subnormal is 0.
#[inline(always)]
pub(super) fn exp<T: Float>(x: T) -> T {
    let (r, n) = divide_by_ln_2(x);
    // The power of two is added to the exponent. From the limits on it has no room there, and the result is known.
    let value = T::from_bits(exp_near_zero(r).to_bits() + (n.to_bits() << T::Bits::lit(23)));
    let value = T::select(x.le(T::lit(88.722_83)), value, x + T::lit(f32::INFINITY));
    T::select(x.lt(T::lit(-87.336_54)), T::lit(0.0), value)
}

/// `2^x`; exact where x is an integer. What would be subnormal is 0.
#[inline(always)]
pub(super) fn exp2<T: Float>(x: T) -> T {
    let (n, integer) = x.nearest();
    let value = exp_near_zero((x - n) * T::lit(std::f32::consts::LN_2));
    let value = T::from_bits(value.to_bits() + (integer.to_bits() << T::Bits::lit(23)));
    let value = T::select(x.lt(T::lit(128.0)), value, x + T::lit(f32::INFINITY));
    T::select(x.lt(T::lit(-126.0)), T::lit(0.0), value)
}

/// The exponential where it is neither too large nor too small: from -87 to 88. From 88.5 to 89 it is infinite.
#[inline(always)]
fn exp_in_range<T: Float>(x: T) -> T {
    let (r, n) = divide_by_ln_2(x);
    exp_near_zero(r) * power_of_two(n)
}

/// `1 + e^x` for x up to 89; from 88.5 on it is infinite.
#[inline(always)]
fn one_plus_exp<T: Float>(x: T) -> T {
    exp_in_range(at_least(x, -87.0)) + T::lit(1.0)
}

/// Where `1 + e^-x` is infinite, and what is divided by it therefore 0.
const SMALLEST_LOGIT: f32 = -88.6;

/// A positive number as `m * 2^n`, m from about 0.7 to 1.4: `m` and n. Of zero, infinity and NaN, any.
#[inline(always)]
pub(super) fn split<T: Float>(x: T) -> (T, T) {
    let subnormal = x.lt(T::lit(f32::MIN_POSITIVE));
    let x = T::select(subnormal, x * T::lit(8_388_608.0), x);
    // The bits of the square root of 1/2: what is below it in its binade counts to the one before.
    let root = T::Bits::lit(0x3f35_04f3);
    let shifted = x.to_bits() + (T::Bits::lit(0x3f80_0000) - root);
    let n = T::from_int(T::Int::from_bits((shifted >> T::Bits::lit(23)) - T::Bits::lit(127)));
    let m = T::from_bits((shifted & T::Bits::lit(0x007f_ffff)) + root);
    (m, n - T::select(subnormal, T::lit(23.0), T::lit(0.0)))
}

/// What the logarithm of `1 + f` has beyond `f - f^2 / 2`, for f from about -0.3 to 0.4.
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

/// A logarithm of `x`, with what the bits cannot say: infinity and NaN are as they are.
#[inline(always)]
fn log_or_limit<T: Float>(x: T, value: T) -> T {
    let finite = x.lt(T::lit(f32::INFINITY));
    let value = T::select(finite, value, x);
    let value = T::select(x.eq(T::lit(0.0)), T::lit(f32::NEG_INFINITY), value);
    T::select(x.lt(T::lit(0.0)), T::lit(f32::NAN), value)
}

/// The natural logarithm.
#[inline(always)]
pub(super) fn log<T: Float>(x: T) -> T {
    let (m, n) = split(x);
    let f = m - T::lit(1.0);
    let square = f * f;
    let small = n.mul_add(T::lit(-2.121_944_4e-4), log_rest(f, square));
    let small = square.mul_add(T::lit(-0.5), small);
    log_or_limit(x, n.mul_add(T::lit(0.693_359_4), f + small))
}

/// The logarithm to base 2; an integer of a power of two.
#[inline(always)]
pub(super) fn log2<T: Float>(x: T) -> T {
    let (m, n) = split(x);
    let f = m - T::lit(1.0);
    let square = f * f;
    let small = square.mul_add(T::lit(-0.5), log_rest(f, square));
    log_or_limit(x, (f + small).mul_add(T::lit(std::f32::consts::LOG2_E), n))
}

/// The largest angle that is divided into turns.
const LARGEST_ANGLE: f32 = 1_048_576.0;

/// A positive angle as `n` quarters of a turn and a rest within an eighth: the rest, and n. Angles above [`LARGEST_ANGLE`] count as 0,
/// except that infinity and NaN give NaN.
#[inline(always)]
fn angle<T: Float>(x: T) -> (T, T::Bits) {
    let too_large = T::select(x.lt(T::lit(f32::INFINITY)), T::lit(0.0), T::lit(f32::NAN));
    let rest = T::select(T::lit(LARGEST_ANGLE).lt(x), too_large, x);
    let (n, integer) = (rest * T::lit(std::f32::consts::FRAC_2_PI)).nearest();
    // A quarter of a turn in parts of 4 bits: their products with n, of at most 20 bits, are exact, and so are the differences. Only the
    // last part is not, and it is small.
    let mut rest = rest;
    for part in QUARTER {
        rest = n.mul_add(T::lit(-part), rest);
    }
    (rest, integer.to_bits())
}

/// Half of pi, in parts of at most 4 bits and a last one of 24.
const QUARTER: [f32; 6] = {
    // Half of pi with 52 bits behind the point.
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

/// Sine of an angle within an eighth of a turn.
#[inline(always)]
fn sin_near_zero<T: Float>(r: T) -> T {
    let square = r * r;
    let p = polynomial(square, [-1.951_529_6e-4, 8.332_161e-3, -0.166_666_55]);
    (p * square).mul_add(r, r)
}

/// Cosine of an angle within an eighth of a turn.
#[inline(always)]
fn cos_near_zero<T: Float>(r: T) -> T {
    let square = r * r;
    let p = polynomial(square, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]);
    (p * square).mul_add(square, square.mul_add(T::lit(-0.5), T::lit(1.0)))
}

/// Sine of an angle and `quarters` more.
#[inline(always)]
fn sin_from<T: Float>(x: T, quarters: u32) -> T {
    let (rest, n) = angle(x);
    let n = n + T::Bits::lit(quarters);
    let odd = (n & T::Bits::lit(1)).ne(T::Bits::lit(0));
    T::select(odd, cos_near_zero(rest), sin_near_zero(rest)).flip_sign(n << T::Bits::lit(30))
}

/// The sine.
#[inline(always)]
pub(super) fn sin<T: Float>(x: T) -> T {
    sin_from(x.abs(), 0).flip_sign(x.to_bits())
}

/// The cosine.
#[inline(always)]
pub(super) fn cos<T: Float>(x: T) -> T {
    sin_from(x.abs(), 1)
}

/// The tangent.
#[inline(always)]
pub(super) fn tan<T: Float>(x: T) -> T {
    let (rest, n) = angle(x.abs());
    let (sin, cos) = (sin_near_zero(rest), cos_near_zero(rest));
    let odd = (n & T::Bits::lit(1)).ne(T::Bits::lit(0));
    let tan = T::select(odd, cos, sin) / T::select(odd, -sin, cos);
    tan.flip_sign(x.to_bits())
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh<T: Float>(x: T) -> T {
    let square = x * x;
    let p = polynomial(square, [-5.704_989e-3, 2.063_908_8e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8]);
    let near = (p * square).mul_add(x, x);
    // From 10 on it is 1.
    let magnitude = at_most(x.abs(), 10.0);
    let far = T::lit(1.0) - T::lit(2.0) / (exp_in_range(magnitude + magnitude) + T::lit(1.0));
    T::select(magnitude.lt(T::lit(0.625)), near, far).copysign(x)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<T: Float>(x: T) -> T {
    T::lit(1.0) / one_plus_exp(-at_least(x, SMALLEST_LOGIT))
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu<T: Float>(x: T) -> T {
    let x = at_least(x, SMALLEST_LOGIT);
    x / one_plus_exp(-x)
}

/// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, written as `x / (1 + e^-2u)`, which loses no digits where the tangent is near -1.
#[inline(always)]
pub(super) fn gelu<T: Float>(x: T) -> T {
    // Here -2u is 88.47, so from here down the result is -0.
    let x = at_least(x, -10.05);
    let u = (x * x).mul_add(T::lit(-0.071_354_814), T::lit(-1.595_769_2)) * x;
    x / one_plus_exp(u)
}

/// The error function.
#[inline(always)]
pub(super) fn erf<T: Float>(x: T) -> T {
    let square = x * x;
    let p = polynomial(
        square,
        [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 0.112_819_925, -0.376_125_34, 0.128_379_17],
    );
    let near = p.mul_add(x, x);
    // From 4 on it is 1.
    let t = at_most(x.abs(), 4.0);
    let q = polynomial(
        t,
        [-1.728_534_7e-5, 3.831_971_3e-4, -3.883_964_4e-3, 2.425_462_2e-2, -0.106_777_88, -0.634_846_7, -0.128_717_51],
    );
    let far = T::lit(1.0) - exp_in_range(q.mul_add(t, -t));
    T::select(t.lt(T::lit(0.927_734_4)), near, far).copysign(x)
}

/// `x (1 + erf(x / sqrt 2)) / 2`.
#[inline(always)]
pub(super) fn gelu_erf<T: Float>(x: T) -> T {
    // Below this the result is 0; 0 times infinity is not.
    let x = at_least(x, -10.0);
    let half = x * T::lit(0.5);
    half.mul_add(erf(x * T::lit(std::f32::consts::FRAC_1_SQRT_2)), half)
}
