//! Conversions between `f16` and `f32`.
//!
//! Cranelift has no `f16` instructions on these targets. An `f16` is an `f32` whose value an `f16` can
//! represent: every result of arithmetic is rounded with [`round_to_f16`](Emitter::round_to_f16). One operation
//! in `f32` followed by this rounding equals the correctly rounded `f16` operation for `+`, `-`, `*`, `/` and
//! `sqrt`, because `f32` has more than twice the precision.

use super::Emitter;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};

const SIGN: u32 = 0x8000_0000;
const INFINITE: u32 = 0x7f80_0000;
/// Smallest normal `f16`, 2^-14.
const LEAST_NORMAL: u32 = 0x3880_0000;
/// Smallest power of two that overflows an `f16`, 2^16.
const TOO_LARGE: u32 = 0x4780_0000;

impl Emitter<'_, '_> {
    /// Rounds an `f32` to the nearest `f16`, ties to even. The result is an `f32`.
    pub(crate) fn round_to_f16(&mut self, x: Value) -> Value {
        let bits = self.f32_to_bits(x);
        let (sign_mask, abs_mask) = (self.const_like(bits, SIGN), self.const_like(bits, !SIGN));
        let (sign, abs) = (self.b.ins().band(bits, sign_mask), self.b.ins().band(bits, abs_mask));
        // The fraction loses 13 of 23 bits. Adding half a unit in the last place, less one if the kept part is
        // even, rounds to nearest even; a carry into the exponent is correct too.
        let odd = self.shift_right(abs, 13);
        let (one, below, kept) =
            (self.const_like(bits, 1), self.const_like(bits, 0xfff), self.const_like(bits, !0x1fff));
        let odd = self.b.ins().band(odd, one);
        let sum = self.b.ins().iadd(abs, below);
        let sum = self.b.ins().iadd(sum, odd);
        let normal = self.b.ins().band(sum, kept);
        // Subnormal `f16`s are multiples of 2^-24, which is also the spacing of `f32` in [0.5, 1): adding and
        // subtracting 0.5 rounds to that spacing.
        let (magnitude, half) = (self.bits_to_f32(abs), self.f32_like(x, 0.5));
        let sum = self.b.ins().fadd(magnitude, half);
        let subnormal = self.b.ins().fsub(sum, half);
        let subnormal = self.f32_to_bits(subnormal);
        let least = self.const_like(bits, LEAST_NORMAL);
        let is_subnormal = self.b.ins().icmp(IntCC::SignedLessThan, abs, least);
        let rounded = self.select_value(is_subnormal, subnormal, normal);
        let (limit, infinite) = (self.const_like(bits, TOO_LARGE), self.const_like(bits, INFINITE));
        // 65520 and above round to 2^16, which is infinity.
        let is_too_large = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, rounded, limit);
        let rounded = self.select_value(is_too_large, infinite, rounded);
        // The additions above would have changed the payload, or turned NaN into infinity.
        let is_nan = self.b.ins().icmp(IntCC::SignedGreaterThan, abs, infinite);
        let rounded = self.select_value(is_nan, abs, rounded);
        let rounded = self.b.ins().bor(rounded, sign);
        self.bits_to_f32(rounded)
    }

    /// Returns the bits of an `f16`, in the low half of a word, given an `f32` of the same value.
    pub(crate) fn f32_to_f16_bits(&mut self, x: Value) -> Value {
        let bits = self.f32_to_bits(x);
        let abs_mask = self.const_like(bits, !SIGN);
        let abs = self.b.ins().band(bits, abs_mask);
        let sign = self.shift_right(bits, 16);
        let sign_mask = self.const_like(bits, 0x8000);
        let sign = self.b.ins().band(sign, sign_mask);
        let normal = self.shift_right(abs, 13);
        // The exponent biases differ by 127 - 15 = 112, shifted above the 10 fraction bits.
        let bias = self.const_like(bits, 0x1_c000);
        let normal = self.b.ins().isub(normal, bias);
        // Subnormals are integers times 2^-24.
        let (magnitude, steps) = (self.bits_to_f32(abs), self.f32_like(x, 16_777_216.0));
        let subnormal = self.b.ins().fmul(magnitude, steps);
        let ty = self.b.func.dfg.value_type(bits);
        let subnormal = self.b.ins().fcvt_to_sint_sat(ty, subnormal);
        let least = self.const_like(bits, LEAST_NORMAL);
        let is_subnormal = self.b.ins().icmp(IntCC::SignedLessThan, abs, least);
        let half = self.select_value(is_subnormal, subnormal, normal);
        let infinite = self.const_like(bits, INFINITE);
        let (half_infinite, half_nan) = (self.const_like(bits, 0x7c00), self.const_like(bits, 0x7e00));
        let is_infinite = self.b.ins().icmp(IntCC::Equal, abs, infinite);
        let half = self.select_value(is_infinite, half_infinite, half);
        let is_nan = self.b.ins().icmp(IntCC::SignedGreaterThan, abs, infinite);
        let half = self.select_value(is_nan, half_nan, half);
        self.b.ins().bor(half, sign)
    }

    /// Returns the `f32` value of an `f16`, given its bits in the low half of a word.
    pub(crate) fn f16_bits_to_f32(&mut self, half: Value) -> Value {
        let (magnitude, sign) = (self.const_like(half, 0x7fff), self.const_like(half, 0x8000));
        let (magnitude, sign) = (self.b.ins().band(half, magnitude), self.b.ins().band(half, sign));
        let (shifted, sign) = (self.shift_left(magnitude, 13), self.shift_left(sign, 16));
        // Multiplying by 2^112 adjusts the exponent bias, and normalises subnormals in the same step.
        let value = self.bits_to_f32(shifted);
        let factor = self.f32_like(value, f32::from_bits(0x7780_0000));
        // A subnormal `f16` is a subnormal `f32` before this product, so the processor must not flush
        // subnormals to zero; by default it does not.
        let value = self.b.ins().fmul(value, factor);
        let value = self.f32_to_bits(value);
        let (least_infinite, exponent) = (self.const_like(half, 0x7c00), self.const_like(half, INFINITE));
        let is_infinite = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, magnitude, least_infinite);
        let infinite = self.b.ins().bor(shifted, exponent);
        let value = self.select_value(is_infinite, infinite, value);
        let value = self.b.ins().bor(value, sign);
        self.bits_to_f32(value)
    }
}
