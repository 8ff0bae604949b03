//! The lane traits that ops are written against. A lane is a number on the CPU, or the id of a recorded step when an
//! op is traced for code generation.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

/// Boolean lanes.
///
/// See [`CompareOp`](crate::op::CompareOp) for an example.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {}

/// Numbers of any class. Integer arithmetic wraps; an integer divided by 0 is 0.
///
/// See [`NumberOp`](crate::op::NumberOp) for an example.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self> + Sized
{
    /// The mask type returned by comparisons.
    type Mask: Mask;

    /// Creates a small constant, representable in every class.
    fn small(value: u8) -> Self;
    /// Returns whether they are equal; false if either is NaN.
    fn eq(self, other: Self) -> Self::Mask;
    /// Returns whether `self < other`; false if either is NaN.
    fn lt(self, other: Self) -> Self::Mask;
    /// Returns whether `self <= other`; false if either is NaN.
    fn le(self, other: Self) -> Self::Mask;
    /// Tests for NaN by the bits, because drivers may assume that there are no NaNs. Always false for integers.
    fn is_nan(self) -> Self::Mask;
    /// Returns the absolute value; wraps for the smallest `i32`.
    fn abs(self) -> Self;
    /// Returns `yes` where the mask is true, `no` elsewhere. Both are evaluated.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Returns whether `self > other`; false if either is NaN.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    /// Returns whether `self >= other`; false if either is NaN.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    /// Returns whether they differ; true if either is NaN.
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }
}

/// Integers.
///
/// See [`IntegerOp`](crate::op::IntegerOp) for an example.
pub trait Integer:
    Number + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

/// `u32`. Shift amounts are taken modulo 32.
///
/// See [`BitsOp`](crate::op::BitsOp) for an example.
pub trait Uint: Integer + Shl<Output = Self> + Shr<Output = Self> {
    /// Creates a constant.
    fn lit(value: u32) -> Self;
}

/// `i32`.
///
/// See [`BitsToFloatOp`](crate::op::BitsToFloatOp) for an example.
pub trait Int: Integer {
    /// The corresponding `u32` lanes.
    type Bits: Uint<Mask = Self::Mask>;

    /// Reinterprets the bits as `u32`.
    fn to_bits(self) -> Self::Bits;
    /// Reinterprets the bits of a `u32`.
    fn from_bits(bits: Self::Bits) -> Self;
}

/// `f32`.
///
/// See [`ElementOp`](crate::op::ElementOp) for an example.
pub trait Float: Number {
    /// The corresponding `u32` lanes.
    type Bits: Uint<Mask = Self::Mask>;
    /// The corresponding `i32` lanes.
    type Int: Int<Mask = Self::Mask, Bits = Self::Bits>;

    /// Creates a constant.
    fn lit(value: f32) -> Self;
    /// Returns `self * factor + term`, rounded once or twice, whichever is faster.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// Returns the square root; NaN for negative numbers.
    fn sqrt(self) -> Self;
    /// Returns the reciprocal square root.
    fn rsqrt(self) -> Self;
    /// Rounds down.
    fn floor(self) -> Self;
    /// Rounds up.
    fn ceil(self) -> Self;
    /// Rounds to nearest, ties to even.
    fn round(self) -> Self;
    /// Returns the nearest integer as a float and as an integer. Both are unspecified for magnitudes of 2^22 and
    /// above.
    fn nearest(self) -> (Self, Self::Int);
    /// Converts an integer to the nearest float.
    fn from_int(value: Self::Int) -> Self;
    /// Returns the bits.
    fn to_bits(self) -> Self::Bits;
    /// Creates a float from its bits.
    fn from_bits(bits: Self::Bits) -> Self;

    /// Returns `self` with the sign of `sign`.
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        let (magnitude, top) = (Self::Bits::lit(0x7fff_ffff), Self::Bits::lit(0x8000_0000));
        Self::from_bits((self.to_bits() & magnitude) | (sign.to_bits() & top))
    }
    /// Negates `self` where the highest bit of `bits` is set.
    #[inline(always)]
    fn flip_sign(self, bits: Self::Bits) -> Self {
        Self::from_bits(self.to_bits() ^ (bits & Self::Bits::lit(0x8000_0000)))
    }
}

/// Converts between a typed lane and the untyped value passed between ops.
pub(super) trait Lane<V> {
    fn load(value: V) -> Self;
    fn store(self) -> V;
}

/// The lane types of one backend.
pub(super) trait Machine {
    /// An untyped value; booleans are 0 or 1 as `u32`.
    type Value: Copy;
    type Mask: Mask + Lane<Self::Value>;
    type Float: Float<Mask = Self::Mask, Bits = Self::Uint, Int = Self::Int> + Lane<Self::Value>;
    type Int: Int<Mask = Self::Mask, Bits = Self::Uint> + Lane<Self::Value>;
    type Uint: Uint<Mask = Self::Mask> + Lane<Self::Value>;
}
