//! Halves, which Cranelift has no instructions for: as singles that have the value of a half.

use super::Emitter;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};

const SIGN: u32 = 0x8000_0000;
const INFINITE: u32 = 0x7f80_0000;
/// The least half that is not subnormal, 2^-14.
const LEAST_NORMAL: u32 = 0x3880_0000;
/// The first power of two that is too large for a half, 2^16.
const TOO_LARGE: u32 = 0x4780_0000;

impl Emitter<'_, '_> {
    /// The half that is nearest to a single, ties to even, as a single.
    pub(crate) fn round_to_half(&mut self, x: Value) -> Value {
        let bits = self.bits_of(x);
        let (sign_mask, abs_mask) = (self.word_like(bits, SIGN), self.word_like(bits, !SIGN));
        let (sign, abs) = (self.b.ins().band(bits, sign_mask), self.b.ins().band(bits, abs_mask));
        // Thirteen bits of the fraction go.
        let odd = self.shift_right(abs, 13);
        let (one, below, kept) = (self.word_like(bits, 1), self.word_like(bits, 0xfff), self.word_like(bits, !0x1fff));
        let odd = self.b.ins().band(odd, one);
        let sum = self.b.ins().iadd(abs, below);
        let sum = self.b.ins().iadd(sum, odd);
        let normal = self.b.ins().band(sum, kept);
        // The steps of subnormal halves, 2^-24, are those of singles from one half to one.
        let (magnitude, half) = (self.float_of(abs), self.float_like(x, 0.5));
        let sum = self.b.ins().fadd(magnitude, half);
        let subnormal = self.b.ins().fsub(sum, half);
        let subnormal = self.bits_of(subnormal);
        let least = self.word_like(bits, LEAST_NORMAL);
        let is_subnormal = self.b.ins().icmp(IntCC::SignedLessThan, abs, least);
        let rounded = self.choose(is_subnormal, subnormal, normal);
        let (limit, infinite) = (self.word_like(bits, TOO_LARGE), self.word_like(bits, INFINITE));
        let is_too_large = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, rounded, limit);
        let rounded = self.choose(is_too_large, infinite, rounded);
        let is_nan = self.b.ins().icmp(IntCC::SignedGreaterThan, abs, infinite);
        let rounded = self.choose(is_nan, abs, rounded);
        let rounded = self.b.ins().bor(rounded, sign);
        self.float_of(rounded)
    }

    /// The bits of a half, in a word, of a single that has its value.
    pub(crate) fn half_bits(&mut self, x: Value) -> Value {
        let bits = self.bits_of(x);
        let abs_mask = self.word_like(bits, !SIGN);
        let abs = self.b.ins().band(bits, abs_mask);
        let sign = self.shift_right(bits, 16);
        let sign_mask = self.word_like(bits, 0x8000);
        let sign = self.b.ins().band(sign, sign_mask);
        let normal = self.shift_right(abs, 13);
        let bias = self.word_like(bits, 0x1_c000);
        let normal = self.b.ins().isub(normal, bias);
        let (magnitude, steps) = (self.float_of(abs), self.float_like(x, 16_777_216.0));
        let subnormal = self.b.ins().fmul(magnitude, steps);
        let ty = self.b.func.dfg.value_type(bits);
        let subnormal = self.b.ins().fcvt_to_sint_sat(ty, subnormal);
        let least = self.word_like(bits, LEAST_NORMAL);
        let is_subnormal = self.b.ins().icmp(IntCC::SignedLessThan, abs, least);
        let half = self.choose(is_subnormal, subnormal, normal);
        let infinite = self.word_like(bits, INFINITE);
        let (half_infinite, half_nan) = (self.word_like(bits, 0x7c00), self.word_like(bits, 0x7e00));
        let is_infinite = self.b.ins().icmp(IntCC::Equal, abs, infinite);
        let half = self.choose(is_infinite, half_infinite, half);
        let is_nan = self.b.ins().icmp(IntCC::SignedGreaterThan, abs, infinite);
        let half = self.choose(is_nan, half_nan, half);
        self.b.ins().bor(half, sign)
    }

    /// The single that has the value of a half, which is given as its bits in a word.
    pub(crate) fn half_value(&mut self, half: Value) -> Value {
        let (magnitude, sign) = (self.word_like(half, 0x7fff), self.word_like(half, 0x8000));
        let (magnitude, sign) = (self.b.ins().band(half, magnitude), self.b.ins().band(half, sign));
        let (shifted, sign) = (self.shift_left(magnitude, 13), self.shift_left(sign, 16));
        // The exponents are 112 apart; a product makes subnormal halves right too.
        let value = self.float_of(shifted);
        let factor = self.float_like(value, f32::from_bits(0x7780_0000));
        let value = self.b.ins().fmul(value, factor);
        let value = self.bits_of(value);
        let (least_infinite, exponent) = (self.word_like(half, 0x7c00), self.word_like(half, INFINITE));
        let is_infinite = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, magnitude, least_infinite);
        let infinite = self.b.ins().bor(shifted, exponent);
        let value = self.choose(is_infinite, infinite, value);
        let value = self.b.ins().bor(value, sign);
        self.float_of(value)
    }
}
