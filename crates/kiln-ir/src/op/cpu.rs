//! Scalar lanes of the CPU: one element at a time, in loops that the compiler vectorizes.

use super::code::Code;
use super::lane::{Float, Int, Integer, Lane, Machine, Mask, Number, Uint};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

/// Whether every processor of the architecture has FMA and vector instructions that round to integers.
const BASELINE_FMA: bool =
    cfg!(target_arch = "aarch64") || cfg!(all(target_feature = "fma", target_feature = "sse4.1"));

/// The loop for the baseline of the architecture.
pub(super) fn portable<C: Code<N>, const N: usize>(out: &mut [u32], args: [&[u32]; 3]) {
    run::<C, Cpu<BASELINE_FMA>, N>(out, args);
}

/// The loop for x86-64 processors with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2<C: Code<N>, const N: usize>(out: &mut [u32], args: [&[u32]; 3]) {
    run::<C, Cpu<true>, N>(out, args);
}

#[inline(always)]
fn run<C: Code<N>, M: Machine<Value = u32>, const N: usize>(out: &mut [u32], args: [&[u32]; 3]) {
    let length = out.len();
    // Slices of the same length: a bounds check in the loop would prevent vectorization.
    let args: [&[u32]; N] = std::array::from_fn(|arg| &args[arg][..length]);
    for (index, out) in out.iter_mut().enumerate() {
        *out = C::run::<M>(std::array::from_fn(|arg| args[arg][index]));
    }
}

/// The CPU, with or without FMA.
pub(super) struct Cpu<const FMA: bool>;

impl<const FMA: bool> Machine for Cpu<FMA> {
    type Value = u32;
    type Mask = bool;
    type Float = F32<FMA>;
    type Int = I32;
    type Uint = U32;
}

/// An `f32`; `FMA` says whether `mul_add` and rounding to integers are single instructions.
#[derive(Clone, Copy)]
pub(super) struct F32<const FMA: bool>(f32);

/// An `i32`.
#[derive(Clone, Copy)]
pub(super) struct I32(i32);

/// A `u32`.
#[derive(Clone, Copy)]
pub(super) struct U32(u32);

/// An `f64`, for loops outside fused programs.
#[derive(Clone, Copy)]
pub(super) struct F64(pub(super) f64);

/// An `i64`, for loops outside fused programs.
#[derive(Clone, Copy)]
pub(super) struct I64(pub(super) i64);

impl Mask for bool {}

macro_rules! lanes {
    ($($lane:ty [$($generics:tt)*]: |$value:ident| $load:expr, |$own:ident| $store:expr;)*) => {
        $(impl<$($generics)*> Lane<u32> for $lane {
            #[inline(always)]
            fn load($value: u32) -> Self {
                $load
            }
            #[inline(always)]
            fn store(self) -> u32 {
                let $own = self;
                $store
            }
        })*
    };
}

lanes! {
    bool []: |value| value != 0, |mask| u32::from(mask);
    F32<FMA> [const FMA: bool]: |value| Self(f32::from_bits(value)), |float| float.0.to_bits();
    I32 []: |value| Self(value as i32), |int| int.0 as u32;
    U32 []: |value| Self(value), |uint| uint.0;
}

macro_rules! operators {
    ($($lane:ty [$($generics:tt)*]: $operator:ident $method:ident |$a:ident, $b:ident| $value:expr;)*) => {
        $(impl<$($generics)*> $operator for $lane {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                Self($value)
            }
        })*
    };
}

operators! {
    F32<FMA> [const FMA: bool]: Add add |a, b| a + b;
    F32<FMA> [const FMA: bool]: Sub sub |a, b| a - b;
    F32<FMA> [const FMA: bool]: Mul mul |a, b| a * b;
    F32<FMA> [const FMA: bool]: Div div |a, b| a / b;
    I32 []: Add add |a, b| a.wrapping_add(b);
    I32 []: Sub sub |a, b| a.wrapping_sub(b);
    I32 []: Mul mul |a, b| a.wrapping_mul(b);
    I32 []: Div div |a, b| if b == 0 { 0 } else { a.wrapping_div(b) };
    I32 []: BitAnd bitand |a, b| a & b;
    I32 []: BitOr bitor |a, b| a | b;
    I32 []: BitXor bitxor |a, b| a ^ b;
    F64 []: Add add |a, b| a + b;
    F64 []: Sub sub |a, b| a - b;
    F64 []: Mul mul |a, b| a * b;
    F64 []: Div div |a, b| a / b;
    I64 []: Add add |a, b| a.wrapping_add(b);
    I64 []: Sub sub |a, b| a.wrapping_sub(b);
    I64 []: Mul mul |a, b| a.wrapping_mul(b);
    I64 []: Div div |a, b| if b == 0 { 0 } else { a.wrapping_div(b) };
    I64 []: BitAnd bitand |a, b| a & b;
    I64 []: BitOr bitor |a, b| a | b;
    I64 []: BitXor bitxor |a, b| a ^ b;
    U32 []: Add add |a, b| a.wrapping_add(b);
    U32 []: Sub sub |a, b| a.wrapping_sub(b);
    U32 []: Mul mul |a, b| a.wrapping_mul(b);
    U32 []: Div div |a, b| a.checked_div(b).unwrap_or(0);
    U32 []: BitAnd bitand |a, b| a & b;
    U32 []: BitOr bitor |a, b| a | b;
    U32 []: BitXor bitxor |a, b| a ^ b;
    U32 []: Shl shl |a, b| a.wrapping_shl(b);
    U32 []: Shr shr |a, b| a.wrapping_shr(b);
}

macro_rules! negations {
    ($($lane:ty [$($generics:tt)*]: $operator:ident $method:ident |$a:ident| $value:expr;)*) => {
        $(impl<$($generics)*> $operator for $lane {
            type Output = Self;
            #[inline(always)]
            fn $method(self) -> Self {
                let $a = self.0;
                Self($value)
            }
        })*
    };
}

negations! {
    F32<FMA> [const FMA: bool]: Neg neg |a| -a;
    F64 []: Neg neg |a| -a;
    I64 []: Neg neg |a| a.wrapping_neg();
    I64 []: Not not |a| !a;
    I32 []: Neg neg |a| a.wrapping_neg();
    I32 []: Not not |a| !a;
    U32 []: Neg neg |a| a.wrapping_neg();
    U32 []: Not not |a| !a;
}

macro_rules! numbers {
    ($($lane:ty [$($generics:tt)*]: |$x:ident| small $small:expr, is_nan $is_nan:expr, abs $abs:expr;)*) => {
        $(impl<$($generics)*> Number for $lane {
            type Mask = bool;
            #[inline(always)]
            fn small($x: u8) -> Self {
                Self($small)
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self.0 == other.0
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self.0 < other.0
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self.0 <= other.0
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                let $x = self.0;
                $is_nan
            }
            #[inline(always)]
            fn abs(self) -> Self {
                let $x = self.0;
                Self($abs)
            }
            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }
        })*
    };
}

numbers! {
    F32<FMA> [const FMA: bool]: |x| small f32::from(x), is_nan x.is_nan(), abs x.abs();
    F64 []: |x| small f64::from(x), is_nan x.is_nan(), abs x.abs();
    I64 []: |x| small i64::from(x), is_nan { let _ = x; false }, abs x.wrapping_abs();
    I32 []: |x| small i32::from(x), is_nan { let _ = x; false }, abs x.wrapping_abs();
    U32 []: |x| small u32::from(x), is_nan { let _ = x; false }, abs x;
}

impl Integer for I32 {}
impl Integer for I64 {}
impl Integer for U32 {}

impl Uint for U32 {
    #[inline(always)]
    fn lit(value: u32) -> Self {
        Self(value)
    }
}

impl Int for I32 {
    type Bits = U32;

    #[inline(always)]
    fn to_bits(self) -> U32 {
        U32(self.0 as u32)
    }
    #[inline(always)]
    fn from_bits(bits: U32) -> Self {
        Self(bits.0 as i32)
    }
}

/// 1.5 * 2^23. Adding it to a float of magnitude below 2^22 leaves the nearest integer in the low mantissa bits.
const TO_INTEGER: f32 = 12_582_912.0;
/// 2^23: every float of at least this magnitude is an integer.
const ALL_INTEGERS: f32 = 8_388_608.0;

impl<const FMA: bool> F32<FMA> {
    /// Rounds to an integer: with `instruction` if there is one, otherwise by correcting the nearest integer with
    /// `fix`.
    #[inline(always)]
    fn integral(self, instruction: fn(f32) -> f32, fix: fn(nearest: f32, x: f32) -> f32) -> Self {
        if FMA {
            return Self(instruction(self.0));
        }
        let x = self.0;
        let magnitude = x.abs();
        // The sum has no fraction bits, so it is rounded to nearest, ties to even.
        let nearest = ((magnitude + ALL_INTEGERS) - ALL_INTEGERS).copysign(x);
        // NaN fails the comparison and is returned unchanged.
        if magnitude < ALL_INTEGERS { Self(fix(nearest, x).copysign(x)) } else { self }
    }
}

impl<const FMA: bool> Float for F32<FMA> {
    type Bits = U32;
    type Int = I32;

    #[inline(always)]
    fn lit(value: f32) -> Self {
        Self(value)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // Without the instruction, `f32::mul_add` is a call of a library function for each element.
        Self(if FMA { self.0.mul_add(factor.0, term.0) } else { self.0 * factor.0 + term.0 })
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }
    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self(1.0 / self.0.sqrt())
    }
    #[inline(always)]
    fn floor(self) -> Self {
        self.integral(f32::floor, |nearest, x| if nearest > x { nearest - 1.0 } else { nearest })
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        self.integral(f32::ceil, |nearest, x| if nearest < x { nearest + 1.0 } else { nearest })
    }
    #[inline(always)]
    fn round(self) -> Self {
        self.integral(f32::round_ties_even, |nearest, _| nearest)
    }
    #[inline(always)]
    fn nearest(self) -> (Self, I32) {
        let shifted = self.0 + TO_INTEGER;
        // Both have the same exponent, so the difference of the bits is the integer, in two's complement.
        let integer = shifted.to_bits().wrapping_sub(TO_INTEGER.to_bits());
        (Self(shifted - TO_INTEGER), I32(integer as i32))
    }
    #[inline(always)]
    fn from_int(value: I32) -> Self {
        Self(value.0 as f32)
    }
    #[inline(always)]
    fn to_bits(self) -> U32 {
        U32(self.0.to_bits())
    }
    #[inline(always)]
    fn from_bits(bits: U32) -> Self {
        Self(f32::from_bits(bits.0))
    }
}
