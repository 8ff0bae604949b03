//! Unsigned words whose order is that of the elements: a *key* for sorting indices, and a *code* from which the element is recovered.

use crate::matmul::vector::Vector;
use crate::unsigned::{Unsigned, Word};
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::Element;

/// An element that can be sorted.
pub(super) trait Key: Element + Pod {
    /// The type of keys and codes: 16 bits for elements of 8 or 16 bits, otherwise 32.
    type Code: Word;
    /// A vector of codes.
    type Codes<V: Vector>: Unsigned<Word = Self::Code>;

    /// Returns a word that sorts like the element: NaN after all numbers, negative zero equal to zero.
    fn key(self) -> Self::Code;

    /// Returns a word like [`key`](Self::key), but with distinct words for the two zeros, so that [`from_code`](Self::from_code) recovers the
    /// element. All NaNs have one code.
    fn code(self) -> Self::Code;

    /// Returns the element of a code.
    fn from_code(code: Self::Code) -> Self;
}

/// Implements `Key` for floats from their bits, with the sign in the top bit.
macro_rules! float_keys {
    ($($float:ty, $bits:ty, $codes:ident;)*) => {
        $(impl Key for $float {
            type Code = $bits;
            type Codes<V: Vector> = V::$codes;

            #[inline(always)]
            fn key(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                // Moves negative zero to the key of positive zero, whose code is the next one.
                self.code() + <$bits>::from(self.to_bits() == SIGN)
            }

            #[inline(always)]
            fn code(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                // Inverts negative floats and sets the sign bit of the others, so that unsigned order is numeric order.
                let code = if bits & SIGN != 0 { !bits } else { bits | SIGN };
                // `MAX` is also the code of a positive NaN with all mantissa bits set, so `from_code` gives a NaN.
                if bits & !SIGN > Self::INFINITY.to_bits() { <$bits>::MAX } else { code }
            }

            #[inline(always)]
            fn from_code(code: $bits) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                Self::from_bits(if code & SIGN != 0 { code ^ SIGN } else { !code })
            }
        })*
    };
}

float_keys! {
    f32, u32, U32;
    f16, u16, U16;
    bf16, u16, U16;
}

/// Implements `Key` for integers, whose key and code are equal: `$key` of an element `$x`, and `$element` of a code `$word`.
macro_rules! integer_keys {
    ($($integer:ty, $code:ty, $codes:ident, |$x:ident| $key:expr, |$word:ident| $element:expr;)*) => {
        $(impl Key for $integer {
            type Code = $code;
            type Codes<V: Vector> = V::$codes;

            #[inline(always)]
            fn key(self) -> $code {
                let $x = self;
                $key
            }

            #[inline(always)]
            fn code(self) -> $code {
                self.key()
            }

            #[inline(always)]
            fn from_code($word: $code) -> Self {
                $element
            }
        })*
    };
}

integer_keys! {
    i32, u32, U32, |x| x as u32 ^ 1 << 31, |code| (code ^ 1 << 31) as i32;
    u32, u32, U32, |x| x, |code| code;
    u8, u16, U16, |x| u16::from(x), |code| code as u8;
    i8, u16, U16, |x| u16::from(x as u8 ^ 0x80), |code| (code as u8 ^ 0x80) as i8;
}
