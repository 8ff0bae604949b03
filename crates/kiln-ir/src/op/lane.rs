//! What the function of an op is written with: lanes, which are numbers on the CPU and names of WGSL expressions on the way to a GPU.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

/// Truth values of lanes.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {}

/// Numbers of any class. Arithmetic of integers wraps; an integer divided by 0 is 0.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self> + Sized
{
    /// The truth values that comparisons give.
    type Mask: Mask;

    /// A small number that every class has.
    fn small(value: u8) -> Self;
    /// Whether they are equal; false where one is a NaN.
    fn eq(self, other: Self) -> Self::Mask;
    /// Whether this is less; false where one is a NaN.
    fn lt(self, other: Self) -> Self::Mask;
    /// Whether this is less or equal; false where one is a NaN.
    fn le(self, other: Self) -> Self::Mask;
    /// Whether it is a NaN, by its bits: drivers may compute as if there were none. Integers never are.
    fn is_nan(self) -> Self::Mask;
    /// The absolute value; the smallest `i32` stays as it is.
    fn abs(self) -> Self;
    /// `yes` where the mask is true, `no` elsewhere. Both are computed.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Whether this is greater; false where one is a NaN.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    /// Whether this is greater or equal; false where one is a NaN.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    /// Whether they differ; true where one is a NaN.
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }
}

/// Integers.
pub trait Integer:
    Number + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

/// `u32`. Shifts are by the lowest five bits of the amount.
pub trait Uint: Integer + Shl<Output = Self> + Shr<Output = Self> {
    /// A number that is written in the op.
    fn lit(value: u32) -> Self;
}

/// `i32`.
pub trait Int: Integer {
    /// `u32` in as many lanes.
    type Bits: Uint<Mask = Self::Mask>;

    /// The same bits as `u32`.
    fn to_bits(self) -> Self::Bits;
    /// The number of the same bits.
    fn from_bits(bits: Self::Bits) -> Self;
}

/// `f32`.
pub trait Float: Number {
    /// `u32` in as many lanes.
    type Bits: Uint<Mask = Self::Mask>;
    /// `i32` in as many lanes.
    type Int: Int<Mask = Self::Mask, Bits = Self::Bits>;

    /// A number that is written in the op.
    fn lit(value: f32) -> Self;
    /// `self * factor + term`, rounded once or twice, as the processor does faster.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// The square root; NaN of negative numbers.
    fn sqrt(self) -> Self;
    /// One divided by the square root.
    fn rsqrt(self) -> Self;
    /// The largest integer that is not above.
    fn floor(self) -> Self;
    /// The smallest integer that is not below.
    fn ceil(self) -> Self;
    /// The nearest integer, the even one of two.
    fn round(self) -> Self;
    /// The nearest integer, as a float and as an integer, where the number is below 2^22; elsewhere any numbers.
    fn nearest(self) -> (Self, Self::Int);
    /// The nearest float to an integer.
    fn from_int(value: Self::Int) -> Self;
    /// The bits of the number.
    fn to_bits(self) -> Self::Bits;
    /// The number of these bits.
    fn from_bits(bits: Self::Bits) -> Self;

    /// The number with the sign of another.
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        let (magnitude, top) = (Self::Bits::lit(0x7fff_ffff), Self::Bits::lit(0x8000_0000));
        Self::from_bits((self.to_bits() & magnitude) | (sign.to_bits() & top))
    }
    /// The number, negated where the bits have the highest bit.
    #[inline(always)]
    fn flip_sign(self, bits: Self::Bits) -> Self {
        Self::from_bits(self.to_bits() ^ (bits & Self::Bits::lit(0x8000_0000)))
    }
}

/// A lane of one type, and the untyped value that stands for it between ops.
pub(super) trait Lane<V> {
    fn load(value: V) -> Self;
    fn store(self) -> V;
}

/// The lanes of one machine.
pub(super) trait Machine {
    /// A value of any class; truth is 0 or 1 of `u32`.
    type Value: Copy;
    type Mask: Mask + Lane<Self::Value>;
    type Float: Float<Mask = Self::Mask, Bits = Self::Uint, Int = Self::Int> + Lane<Self::Value>;
    type Int: Int<Mask = Self::Mask, Bits = Self::Uint> + Lane<Self::Value>;
    type Uint: Uint<Mask = Self::Mask> + Lane<Self::Value>;
}
