//! The table of elementwise ops.
//!
//! Common to all ops, unless an entry says otherwise: NaN operands propagate, integer arithmetic wraps, and a device may flush subnormal
//! operands and results to zero of the same sign.

use super::code::{BitsOp, BitsToFloatOp, CompareOp, FloatOp, IntegerOp, NumberOp, SelectOp};
use super::lane::{Float, Integer, Number, Uint};
use super::{ElementOp, Interval, gradients, math, power, random, reference};
use crate::gradient::each;

/// Declares ops. An entry has a kind, a constant, a name, arguments with the intervals that tests sample, the generic function, the
/// reference, and settings. The first line of its doc comment is the op's description.
macro_rules! table {
    ($d:tt $(#[doc = $doc:literal] $(#[doc = $more:literal])* $(#[doc(alias = $alias:literal)])*
        $kind:ident $constant:ident $name:ident($($arg:ident in $interval:expr),+) = $value:expr;
        $reference:expr $(, $setting:ident $(($amount:expr))?)*;)*) => {
        $(#[doc = $doc] $(#[doc = $more])* $(#[doc(alias = $alias)])*
        pub static $constant: ElementOp = {
            const ARITY: usize = [$(stringify!($arg)),+].len();
            struct Op;
            table!(@$kind ARITY [$($arg),+] $value);
            table!(@$kind new ARITY)(stringify!($name), $doc.trim_ascii(), [$($interval),+], $reference)
                .arguments(&[$(stringify!($arg)),+])
                $(.$setting($($amount)?))*
        };)*

        /// Every op, in a fixed order.
        pub fn all() -> &'static [&'static ElementOp] {
            static ALL: &[&ElementOp] = &[$(&$constant),*];
            ALL
        }

        /// Calls a macro with every op: its description, kind, constant, name, arguments and aliases. Tensor methods are generated with it.
        #[macro_export]
        macro_rules! for_each_element_op {
            ($d callback:ident) => {
                $d callback! { $($doc $kind $constant $name($($arg),+) [$($alias)*];)* }
            };
        }
    };
    (@compare new $n:ident) => { ElementOp::compare::<Op> };
    (@select new $n:ident) => {{
        const { assert!($n == 3) };
        ElementOp::select::<Op>
    }};
    (@$kind:ident new $n:ident) => { ElementOp::$kind::<Op, $n> };
    (@float $n:ident $args:tt $value:expr) => {
        impl FloatOp<$n> for Op {
            #[inline(always)]
            fn eval<T: Float>($args: [T; $n]) -> T { $value }
        }
    };
    (@number $n:ident $args:tt $value:expr) => {
        impl NumberOp<$n> for Op {
            #[inline(always)]
            fn eval<T: Number>($args: [T; $n]) -> T { $value }
        }
    };
    (@integer $n:ident $args:tt $value:expr) => {
        impl IntegerOp<$n> for Op {
            #[inline(always)]
            fn eval<T: Integer>($args: [T; $n]) -> T { $value }
        }
    };
    (@compare $n:ident $args:tt $value:expr) => {
        impl CompareOp for Op {
            #[inline(always)]
            fn eval<T: Number>($args: [T; $n]) -> T::Mask { $value }
        }
    };
    (@select $n:ident [$condition:ident, $yes:ident, $no:ident] $value:expr) => {
        impl SelectOp for Op {
            #[inline(always)]
            fn eval<T: Number>($condition: T::Mask, [$yes, $no]: [T; 2]) -> T { $value }
        }
    };
    (@bits $n:ident $args:tt $value:expr) => {
        impl BitsOp<$n> for Op {
            #[inline(always)]
            fn eval<T: Uint>($args: [T; $n]) -> T { $value }
        }
    };
    (@bits_to_float $n:ident $args:tt $value:expr) => {
        impl BitsToFloatOp<$n> for Op {
            #[inline(always)]
            fn eval<T: Float>($args: [T::Bits; $n]) -> T { $value }
        }
    };
}

/// Test interval of ops that accept any number.
const ANY: Interval = (-1e3, 1e3);
/// Test interval in which the operands of integer comparisons are often equal.
const FEW: Interval = (-3.0, 3.0);
/// Test interval of 32-bit words.
const WORD: Interval = (0.0, u32::MAX as f64);

table! { $
    /// `a + b`.
    #[doc(alias = "broadcast_add")]
    number ADD add(a in ANY, b in ANY) = a + b; |x| x[0] + x[1], cheap,
        gradient(|_, _, g| each([g, g]));
    /// `a - b`.
    #[doc(alias = "broadcast_sub")]
    number SUB sub(a in ANY, b in ANY) = a - b; |x| x[0] - x[1], cheap,
        gradient(|_, _, g| each([g, -g]));
    /// `a * b`.
    #[doc(alias = "broadcast_mul")]
    number MUL mul(a in ANY, b in ANY) = a * b; |x| x[0] * x[1], cheap,
        gradient(|x, _, g| each([g * x[1], g * x[0]]));
    /// `a / b`; integer division truncates towards zero.
    ///
    /// An integer divided by 0 is 0; `i32::MIN / -1` is `i32::MIN`.
    #[doc(alias = "broadcast_div")]
    number DIV div(a in ANY, b in ANY) = a / b; |x| x[0] / x[1], ulps(2.5),
        gradient(|x, y, g| each([g / x[1], -(g * y / x[1])]));
    /// `-x`.
    number NEG neg(x in ANY) = -x; |x| -x[0], cheap,
        gradient(|_, _, g| each([-g]));
    /// The absolute value.
    ///
    /// `i32::MIN` stays `i32::MIN`.
    #[doc(alias = "absolute")]
    number ABS abs(x in ANY) = x.abs(); |x| x[0].abs(), cheap,
        gradient(|x, _, g| each([g * x[0].apply(&SIGN, &[])]));
    /// The sign of `x`: -1, 0 or 1.
    ///
    /// A zero keeps its sign.
    number SIGN sign(x in ANY) = math::sign(x); |x| if x[0] == 0.0 { x[0] } else { x[0].signum() }, cheap, zero_gradient;
    /// `x * x`.
    #[doc(alias = "sqr")]
    number SQUARE square(x in ANY) = x * x; |x| x[0] * x[0], cheap,
        gradient(|x, _, g| each([g * x[0] * 2.0]));
    /// The smaller of `a` and `b`.
    ///
    /// NaN if either is NaN. Of two zeros it is `a`.
    number MINIMUM minimum(a in FEW, b in FEW) = math::minimum(a, b); |x| reference::minimum(x[0], x[1]), cheap, logical,
        gradient(gradients::minimum);
    /// The larger of `a` and `b`.
    ///
    /// NaN if either is NaN. Of two zeros it is `a`.
    number MAXIMUM maximum(a in FEW, b in FEW) = math::maximum(a, b); |x| reference::maximum(x[0], x[1]), cheap, logical,
        gradient(gradients::maximum);
    /// `x` clamped to the range from `low` to `high`.
    ///
    /// NaN if any operand is NaN; `high` if `low` is above `high`.
    #[doc(alias = "clip")]
    number CLAMP clamp(x in ANY, low in (-500.0, 0.0), high in (0.0, 500.0)) =
        math::minimum(math::maximum(x, low), high);
        |x| reference::minimum(reference::maximum(x[0], x[1]), x[2]),
        gradient(gradients::clamp);
    /// `max(x, 0)`.
    ///
    /// NaN stays NaN; -0 becomes 0.
    number RELU relu(x in ANY) = T::select(x.le(T::small(0)), T::small(0), x); |x| reference::maximum(x[0], 0.0), cheap,
        gradient(|_, y, g| each([g.only_where(y.apply(&GT, &[y.like(0.0)]))]));
    /// `1 / x`.
    #[doc(alias = "reciprocal")]
    float RECIP recip(x in ANY) = T::lit(1.0) / x; |x| 1.0 / x[0], ulps(2.5),
        gradient(|_, y, g| each([-(g * y * y)]));
    /// The square root.
    ///
    /// NaN for negative numbers; -0 for -0.
    float SQRT sqrt(x in (0.0, 1e6)) = x.sqrt(); |x| x[0].sqrt(), ulps(3.0),
        gradient(|_, y, g| each([g * 0.5 / y]));
    /// `1 / sqrt(x)`.
    ///
    /// NaN for negative numbers; infinite for zero.
    float RSQRT rsqrt(x in (1e-6, 1e6)) = x.rsqrt(); |x| 1.0 / x[0].sqrt(), ulps(2.0),
        gradient(|_, y, g| each([g * -0.5 * y * y * y]));
    /// Rounds down to an integer.
    float FLOOR floor(x in ANY) = x.floor(); |x| x[0].floor(), cheap, zero_gradient;
    /// Rounds up to an integer.
    float CEIL ceil(x in ANY) = x.ceil(); |x| x[0].ceil(), cheap, zero_gradient;
    /// Rounds to the nearest integer, ties to even.
    float ROUND round(x in ANY) = x.round(); |x| x[0].round_ties_even(), cheap, zero_gradient;
    /// `e^x`.
    ///
    /// Subnormal results are flushed to 0.
    float EXP exp(x in (-87.0, 88.0)) = math::exp(x); |x| x[0].exp(), ulps(2.0),
        gradient(|_, y, g| each([g * y]));
    /// `2^x`; exact if `x` is an integer.
    ///
    /// Subnormal results are flushed to 0.
    float EXP2 exp2(x in (-126.0, 127.0)) = math::exp2(x); |x| x[0].exp2(), ulps(2.0),
        gradient(|_, y, g| each([g * y * std::f64::consts::LN_2]));
    /// The natural logarithm.
    ///
    /// NaN for negative numbers; minus infinity for zero.
    #[doc(alias = "ln")]
    float LOG log(x in (0.0, 1e4)) = math::log(x); |x| x[0].ln(), ulps(2.0),
        gradient(|x, _, g| each([g / x[0]]));
    /// The base-2 logarithm; exact for powers of two.
    ///
    /// NaN for negative numbers; minus infinity for zero.
    float LOG2 log2(x in (0.0, 1e4)) = math::log2(x); |x| x[0].log2(), ulps(3.0),
        gradient(|x, _, g| each([g * std::f64::consts::LOG2_E / x[0]]));
    /// `a^b`.
    ///
    /// As in IEEE 754: 1 if `b` is 0 or `a` is 1, even if the other is NaN; NaN if `a` is negative and `b` is not an integer.
    #[doc(alias = "powf")]
    #[doc(alias = "powi")]
    #[doc(alias = "powc")]
    float POW pow(a in (0.0, 10.0), b in (-10.0, 10.0)) = power::pow(a, b); |x| x[0].powf(x[1]), ulps(4.0),
        gradient(gradients::pow);
    /// The sine of `x` radians.
    ///
    /// Angles above 2^20 (1 048 576) in magnitude are treated as zero; NaN for infinity. Near a zero of the function the error is at most
    /// 2^-47 times the angle.
    float SIN sin(x in (-1e5, 1e5)) = math::sin(x); |x| x[0].sin(), ulps(2.0), absolute(1e-8),
        gradient(|x, _, g| each([g * x[0].apply(&COS, &[])]));
    /// The cosine of `x` radians.
    ///
    /// Angles have the same range as for [`SIN`].
    float COS cos(x in (-1e5, 1e5)) = math::cos(x); |x| x[0].cos(), ulps(2.0), absolute(1e-8),
        gradient(|x, _, g| each([-(g * x[0].apply(&SIN, &[]))]));
    /// The tangent of `x` radians.
    ///
    /// Angles have the same range as for [`SIN`].
    float TAN tan(x in (-1e2, 1e2)) = math::tan(x); |x| x[0].tan(), ulps(8.0), absolute(1e-12),
        gradient(|_, y, g| each([g * (y * y + 1.0)]));
    /// The hyperbolic tangent.
    float TANH tanh(x in (-10.0, 10.0)) = math::tanh(x); |x| x[0].tanh(), ulps(3.0),
        gradient(|_, y, g| each([g - g * y * y]));
    /// The error function.
    float ERF erf(x in (-5.0, 5.0)) = math::erf(x); |x| reference::erf(x[0]), ulps(4.0),
        gradient(gradients::erf);
    /// `1 / (1 + e^-x)`.
    #[doc(alias = "expit")]
    #[doc(alias = "logistic")]
    float SIGMOID sigmoid(x in (-20.0, 20.0)) = math::sigmoid(x); |x| 1.0 / (1.0 + (-x[0]).exp()), ulps(5.0),
        gradient(|_, y, g| each([g * y * (y.like(1.0) - y)]));
    /// `x / (1 + e^-x)`.
    ///
    /// 0 for minus infinity.
    #[doc(alias = "swish")]
    float SILU silu(x in (-20.0, 20.0)) = math::silu(x); |x| reference::silu(x[0]), ulps(5.0), absolute(2e-36),
        gradient(gradients::silu);
    /// GELU, tanh approximation: `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`.
    ///
    /// 0 for minus infinity.
    #[doc(alias = "gelu_tanh")]
    #[doc(alias = "gelu_pytorch_tanh")]
    float GELU gelu(x in (-10.0, 10.0)) = math::gelu(x); |x| reference::gelu(x[0]), ulps(5.0), absolute(3e-8),
        gradient(gradients::gelu);
    /// GELU, exact form: `x (1 + erf(x / sqrt 2)) / 2`.
    ///
    /// 0 for minus infinity.
    #[doc(alias = "gelu_exact")]
    #[doc(alias = "gelu_none")]
    float GELU_ERF gelu_erf(x in (-10.0, 10.0)) = math::gelu_erf(x); |x| reference::gelu_erf(x[0]), ulps(4.0),
        absolute(2e-7),
        gradient(gradients::gelu_erf);
    /// Whether `a == b`; false if either is NaN.
    compare EQ eq(a in FEW, b in FEW) = a.eq(b); |x| f64::from(x[0] == x[1]), cheap, zero_gradient;
    /// Whether `a != b`; true if either is NaN.
    #[doc(alias = "not_equal")]
    compare NE ne(a in FEW, b in FEW) = a.ne(b); |x| f64::from(x[0] != x[1]), cheap, zero_gradient;
    /// Whether `a < b`; false if either is NaN.
    #[doc(alias = "less")]
    compare LT lt(a in FEW, b in FEW) = a.lt(b); |x| f64::from(x[0] < x[1]), cheap, zero_gradient;
    /// Whether `a <= b`; false if either is NaN.
    #[doc(alias = "less_equal")]
    compare LE le(a in FEW, b in FEW) = a.le(b); |x| f64::from(x[0] <= x[1]), cheap, zero_gradient;
    /// Whether `a > b`; false if either is NaN.
    #[doc(alias = "greater")]
    compare GT gt(a in FEW, b in FEW) = a.gt(b); |x| f64::from(x[0] > x[1]), cheap, zero_gradient;
    /// Whether `a >= b`; false if either is NaN.
    #[doc(alias = "greater_equal")]
    compare GE ge(a in FEW, b in FEW) = a.ge(b); |x| f64::from(x[0] >= x[1]), cheap, zero_gradient;
    /// `a` where the condition is nonzero, else `b`.
    ///
    /// NaN in the operand that is not selected has no effect.
    #[doc(alias = "where_cond")]
    select WHERE where_(condition in (0.0, 1.5), a in ANY, b in ANY) = T::select(condition, a, b);
        |x| if x[0] != 0.0 { x[1] } else { x[2] }, cheap,
        gradient(gradients::select);
    /// 1 where `x` is 0, else 0.
    #[doc(alias = "not")]
    integer LOGICAL_NOT logical_not(x in FEW) = T::select(x.eq(T::small(0)), T::small(1), T::small(0));
        |x| f64::from(x[0] == 0.0), cheap, logical, zero_gradient;
    /// Bitwise AND.
    integer BIT_AND bit_and(a in WORD, b in WORD) = a & b;
        |x| f64::from(reference::bits(x[0]) & reference::bits(x[1])), cheap, logical, zero_gradient;
    /// Bitwise OR.
    integer BIT_OR bit_or(a in WORD, b in WORD) = a | b;
        |x| f64::from(reference::bits(x[0]) | reference::bits(x[1])), cheap, logical, zero_gradient;
    /// Bitwise XOR.
    integer BIT_XOR bit_xor(a in WORD, b in WORD) = a ^ b;
        |x| f64::from(reference::bits(x[0]) ^ reference::bits(x[1])), cheap, logical, zero_gradient;
    /// Bitwise NOT.
    integer BIT_NOT bit_not(x in WORD) = !x; |x| f64::from(!reference::bits(x[0])), cheap, zero_gradient;
    /// `x` shifted left by `amount` bits.
    ///
    /// Only the lowest five bits of the amount are used.
    bits SHIFT_LEFT shift_left(x in WORD, amount in (0.0, 40.0)) = x << amount;
        |x| f64::from(reference::bits(x[0]) << (reference::bits(x[1]) % 32)), cheap, zero_gradient;
    /// `x` shifted right by `amount` bits (logical shift).
    ///
    /// Only the lowest five bits of the amount are used.
    bits SHIFT_RIGHT shift_right(x in WORD, amount in (0.0, 40.0)) = x >> amount;
        |x| f64::from(reference::bits(x[0]) >> (reference::bits(x[1]) % 32)), cheap, zero_gradient;
    /// Pseudorandom bits from a counter and a key.
    ///
    /// The first word of Threefry-2x32 with 13 rounds, the fewest that pass all tests of BigCrush: they do not
    /// distinguish the outputs of different counters and keys from independent numbers. Not cryptographically secure.
    bits RANDOM_BITS random_bits(counter in WORD, key in WORD) =
        random::threefry([counter, T::lit(0)], [key, T::lit(0)])[0];
        |x| f64::from(reference::random_bits(reference::bits(x[0]), reference::bits(x[1]))), zero_gradient;
    /// A uniform number in [0, 1), a multiple of 2^-24, from random bits.
    bits_to_float UNIFORM uniform(bits in WORD) = random::uniform::<T>(bits); |x| reference::uniform(x[0]), cheap, zero_gradient;
    /// A number of the standard normal distribution, from two words of random bits.
    ///
    /// Finite for all bits, and at most 5.8 in magnitude.
    bits_to_float NORMAL normal(radius in WORD, direction in WORD) = random::normal::<T>(radius, direction);
        |x| reference::normal(x[0], x[1]), ulps(8.0), absolute(2e-6), zero_gradient;
}

/// Returns the op with this name.
///
/// ```
/// use kiln_ir::op;
///
/// assert_eq!(op::by_name("exp"), Some(&op::EXP));
/// assert_eq!(op::by_name("cube"), None);
/// ```
pub fn by_name(name: &str) -> Option<&'static ElementOp> {
    all().iter().copied().find(|op| op.name == name)
}
