//! Exact operators and functions on integers, floats and bools.

use super::scope::Generator;
use super::types::{Scalar, Type};
use Scalar::{Bool, F16, F32, I32, U32};

impl Generator {
    /// Returns two operands, at least one of them not constant. The other one may be a scalar if `may_mix`.
    fn pair(&mut self, scalar: Scalar, width: usize, depth: usize, may_mix: bool) -> (String, String) {
        let ty = Type::wide(scalar, width);
        let one = self.dynamic(&ty, depth);
        let other = if may_mix && self.chance(25) { Type::Scalar(scalar) } else { ty };
        let other = self.exact(&other, depth);
        if self.chance(50) { (one, other) } else { (other, one) }
    }

    pub(super) fn logic(&mut self, width: usize, depth: usize) -> String {
        let ty = Type::wide(Bool, width);
        match self.rng.below(10) {
            0..5 => {
                let scalar = self.number();
                let (one, other) = self.pair(scalar, width, depth, false);
                format!("({one} {} {other})", self.choose(&["<", "<=", ">", ">=", "==", "!="]))
            }
            5 => format!("!({})", self.dynamic(&ty, depth)),
            6 if width == 1 => {
                let (one, other) = self.pair(Bool, 1, depth, false);
                format!("({one} {} {other})", self.choose(&["&&", "||"]))
            }
            7 if width == 1 => {
                let of = Type::Vector(Bool, 2 + self.rng.below(3));
                format!("{}({})", self.choose(&["any", "all"]), self.dynamic(&of, depth))
            }
            8 => {
                let from = Type::wide(self.choose(&[I32, U32, F32]), width);
                format!("{ty}({})", self.dynamic(&from, depth))
            }
            _ => {
                let (one, other) = self.pair(Bool, width, depth, false);
                format!("({one} {} {other})", self.choose(&["&", "|", "==", "!="]))
            }
        }
    }

    fn selected(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let (one, other) = self.pair(scalar, width, depth, false);
        let by = if self.chance(50) { Type::wide(Bool, width) } else { Type::Scalar(Bool) };
        format!("select({one}, {other}, {})", self.dynamic(&by, depth))
    }

    pub(super) fn integer(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        match self.rng.below(24) {
            0..5 => {
                let (one, other) = self.pair(scalar, width, depth, true);
                format!("({one} {} {other})", self.choose(&["+", "-", "*"]))
            }
            5..7 => {
                let (dividend, divisor) = (self.dividend(scalar, width, depth), self.divisor(scalar, width, depth));
                format!("({dividend} {} {divisor})", self.choose(&["/", "%"]))
            }
            7..9 => {
                let (one, other) = self.pair(scalar, width, depth, false);
                format!("({one} {} {other})", self.choose(&["&", "|", "^"]))
            }
            9..11 => {
                let amount = self.shift_amount(width, depth);
                format!("({} {} {amount})", self.dynamic(&ty, depth), self.choose(&["<<", ">>"]))
            }
            11 if scalar == I32 => format!("{}({})", self.choose(&["-", "~", "sign"]), self.dynamic(&ty, depth)),
            11 => format!("~({})", self.dynamic(&ty, depth)),
            12..14 => {
                const BITS: [&str; 7] = [
                    "abs",
                    "countOneBits",
                    "countLeadingZeros",
                    "countTrailingZeros",
                    "reverseBits",
                    "firstLeadingBit",
                    "firstTrailingBit",
                ];
                format!("{}({})", self.choose(&BITS), self.dynamic(&ty, depth))
            }
            14 => {
                let (one, other) = self.pair(scalar, width, depth, false);
                format!("{}({one}, {other})", self.choose(&["min", "max"]))
            }
            15 => {
                let (one, other) = self.pair(scalar, width, depth, false);
                format!("clamp({}, {one}, {other})", self.dynamic(&ty, depth))
            }
            16 => self.selected(scalar, width, depth),
            17 => self.bit_field(&ty, depth),
            18..21 => self.integer_from(scalar, width, depth),
            _ if width == 1 => self.scalar_integer(scalar, depth),
            _ if width == 4 => {
                let name = if scalar == I32 { "unpack4xI8" } else { "unpack4xU8" };
                format!("{name}({})", self.dynamic(&Type::Scalar(U32), depth))
            }
            _ => self.dynamic(&ty, depth),
        }
    }

    /// Returns any value, sometimes `i32::MIN`, whose quotient by -1 overflows.
    fn dividend(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        let value = self.dynamic(&ty, depth);
        if scalar == U32 || self.chance(75) {
            return value;
        }
        format!("select({value}, {ty}(i32(-2147483648)), {})", self.dynamic(&Type::Scalar(Bool), depth))
    }

    /// Returns any value, including 0 and -1, but no constant 0.
    pub(super) fn divisor(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        if self.chance(20) {
            let end = if scalar == I32 { self.choose(&["-1i", "0i"]) } else { "0u" };
            let (value, condition) = (self.dynamic(&ty, depth), self.dynamic(&Type::wide(Bool, width), depth));
            return format!("select({value}, {ty}({end}), {condition})");
        }
        if self.chance(60) {
            return self.dynamic(&ty, depth);
        }
        let suffix = if scalar == I32 { "i" } else { "u" };
        format!("{}{suffix}", self.choose(&[1, 2, 3, 5, 7, 8, 10, 255, 65536, 2_147_483_647]))
    }

    /// Returns any amount; WGSL takes it modulo 32.
    fn shift_amount(&mut self, width: usize, depth: usize) -> String {
        let ty = Type::wide(U32, width);
        match self.rng.below(4) {
            0 => format!("{ty}({}u)", self.rng.below(32)),
            1 => self.dynamic(&ty, depth),
            _ => format!("({} & {ty}(31u))", self.dynamic(&ty, depth)),
        }
    }

    fn bit_field(&mut self, ty: &Type, depth: usize) -> String {
        let unsigned = Type::Scalar(U32);
        let value = self.dynamic(ty, depth);
        let (offset, count) = (self.dynamic(&unsigned, depth.min(1)), self.dynamic(&unsigned, depth.min(1)));
        let (offset, count) = if self.chance(70) {
            (format!("({offset} & 15u)"), format!("({count} % 17u)"))
        } else {
            // Any offset and count.
            (offset, count)
        };
        if self.chance(50) {
            return format!("extractBits({value}, {offset}, {count})");
        }
        format!("insertBits({value}, {}, {offset}, {count})", self.exact(ty, depth))
    }

    fn integer_from(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        let other = if scalar == I32 { U32 } else { I32 };
        match self.rng.below(7) {
            0 => format!("bitcast<{ty}>({})", self.dynamic(&Type::wide(other, width), depth)),
            // Far beyond the range of integers; the product is exact.
            6 => format!(
                "{ty}({} * {}f)",
                self.small(F32, width, depth),
                self.choose(&["134217728.0", "268435456.0", "1e30"])
            ),
            1 => format!("{ty}({})", self.dynamic(&Type::wide(Bool, width), depth)),
            2 => format!("{ty}({})", self.dynamic(&Type::wide(F32, width), depth)),
            3 if self.has_f16 => format!("{ty}({})", self.dynamic(&Type::wide(F16, width), depth)),
            // Without the sign, because zeros may differ in it.
            4 => format!("bitcast<{ty}>(abs({}))", self.dynamic(&Type::wide(F32, width), depth)),
            _ => format!("{ty}({})", self.dynamic(&Type::wide(other, width), depth)),
        }
    }

    fn scalar_integer(&mut self, scalar: Scalar, depth: usize) -> String {
        let unsigned = Type::Scalar(U32);
        if self.chance(30) {
            let width = 2 + self.rng.below(3);
            let (one, other) = self.pair(scalar, width, depth, false);
            return format!("dot({one}, {other})");
        }
        if scalar == I32 {
            if self.chance(50) {
                let (one, other) = (self.dynamic(&unsigned, depth), self.dynamic(&unsigned, depth));
                return format!("dot4I8Packed({one}, {other})");
            }
            let value = self.dynamic(&Type::Scalar(F32), depth);
            let value = self.in_range(&Type::Scalar(F32), false, &value);
            return format!("frexp(abs({value}) + 0.0625f).exp");
        }
        match self.rng.below(8) {
            0 => format!("dot4U8Packed({}, {})", self.dynamic(&unsigned, depth), self.dynamic(&unsigned, depth)),
            1 => format!(
                "{}({})",
                self.choose(&["pack4xI8", "pack4xI8Clamp"]),
                self.dynamic(&Type::Vector(I32, 4), depth)
            ),
            2 => format!(
                "{}({})",
                self.choose(&["pack4xU8", "pack4xU8Clamp"]),
                self.dynamic(&Type::Vector(U32, 4), depth)
            ),
            // The factor avoids ties between two integers.
            3 => {
                let name = self.choose(&["pack4x8snorm", "pack4x8unorm"]);
                format!("{name}({} * 0.29f)", self.unknown(4, depth))
            }
            4 => {
                let name = self.choose(&["pack2x16snorm", "pack2x16unorm"]);
                format!("{name}({} * 0.29f)", self.unknown(2, depth))
            }
            5 => format!("(pack2x16float({}) & 0x7fff7fffu)", self.loaded_pair()),
            6 => format!("arrayLength(&{})", self.choose(&["in_i", "in_s", "in_v", "in_t.m1"])),
            _ => {
                format!("select({}, 3u, {})", self.dynamic(&unsigned, depth), self.dynamic(&Type::Scalar(Bool), depth))
            }
        }
    }

    /// Returns a small vector that is not constant: when lavapipe packs constants, the bits of a negative component leak into the others.
    fn unknown(&mut self, width: usize, depth: usize) -> String {
        let ty = Type::wide(F32, width);
        format!("min({}, {ty}(in_f[{}] + 99.0f))", self.small(F32, width, depth), self.rng.below(48))
    }

    /// Returns two floats that are not constant, for the same reason.
    fn loaded_pair(&mut self) -> String {
        format!("vec2<f32>(in_f[{}], in_f[{}])", self.rng.below(48), self.rng.below(48))
    }

    /// Returns an exact float expression.
    pub(super) fn float(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        match self.rng.below(24) {
            0..7 => {
                let (one, other) = self.pair(scalar, width, depth, true);
                format!("({one} {} {other})", self.choose(&["+", "-", "*"]))
            }
            7..10 => {
                const SIMPLE: [&str; 8] = ["-", "abs", "floor", "ceil", "trunc", "round", "sign", "saturate"];
                format!("{}({})", self.choose(&SIMPLE), self.dynamic(&ty, depth))
            }
            10 => {
                let value = self.dynamic(&ty, depth);
                format!("fract({})", self.in_range(&ty, false, &value))
            }
            11..13 => {
                let (one, other) = self.pair(scalar, width, depth, false);
                format!("{}({one}, {other})", self.choose(&["min", "max", "step"]))
            }
            13 => {
                let suffix = if scalar == F16 { "h" } else { "f" };
                let (low, high) = (self.rng.below(8), self.rng.below(8));
                format!("clamp({}, {ty}(-{low}.0{suffix}), {ty}({high}.0{suffix}))", self.dynamic(&ty, depth))
            }
            14 => self.selected(scalar, width, depth),
            15..18 => self.float_from(scalar, width, depth),
            18 => {
                let part = self.choose(&["fract", "whole"]);
                let value = self.dynamic(&ty, depth);
                format!("modf({}).{part}", self.in_range(&ty, false, &value))
            }
            19 | 20 => self.small_products(scalar, width, depth),
            _ if width == 1 => {
                let of = 2 + self.rng.below(3);
                format!("dot({}, {})", self.small(scalar, of, depth), self.small(scalar, of, depth))
            }
            _ => self.matrix_product(scalar, width, depth),
        }
    }

    fn float_from(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        let (signed, unsigned) = (Type::wide(I32, width), Type::wide(U32, width));
        let mask = if scalar == F16 { 7 } else { 0xfffff };
        match self.rng.below(6) {
            0 => format!("{ty}({} & {signed}({mask}i))", self.dynamic(&signed, depth)),
            1 => format!("{ty}({} & {unsigned}({mask}u))", self.dynamic(&unsigned, depth)),
            2 => format!("{ty}({})", self.dynamic(&Type::wide(Bool, width), depth)),
            3 if scalar == F16 => format!("{ty}({})", self.small(F32, width, depth)),
            3 if self.has_f16 => format!("{ty}({})", self.dynamic(&Type::wide(F16, width), depth)),
            4 if scalar == F32 => {
                let bits = self.dynamic(&unsigned, depth);
                format!("bitcast<{ty}>(({bits} & {unsigned}(0x7fffffu)) | {unsigned}(0x3f800000u))")
            }
            _ => {
                let value = self.dynamic(&ty, depth);
                let value = self.in_range(&ty, false, &value);
                let amount = self.dynamic(&signed, depth);
                // Powers of two, so that the quotient is exact.
                let suffix = if scalar == F16 { "h" } else { "f" };
                match self.rng.below(3) {
                    0 => format!("({value} % {}{suffix})", self.choose(&["0.5", "1.0", "2.0", "4.0"])),
                    // naga gives `frexp` of `f16` a 16-bit exponent, which few devices support.
                    1 if scalar == F32 => format!("frexp(abs({value}) + {ty}(0.25{suffix})).fract"),
                    _ => format!("ldexp({value}, ({amount} & {signed}(3i)))"),
                }
            }
        }
    }

    /// Returns a function that multiplies and adds, exact in any order.
    fn small_products(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let (one, other) = (self.small(scalar, width, depth), self.small(scalar, width, depth));
        let suffix = if scalar == F16 { "h" } else { "f" };
        match self.rng.below(4) {
            0 if width == 3 => format!("cross({one}, {other})"),
            1 if width > 1 => format!("faceForward({one}, {other}, {})", self.small(scalar, width, depth)),
            2 => format!("mix({one}, {other}, {}{suffix})", self.choose(&["0.0", "0.25", "0.5", "0.75", "1.0"])),
            3 if width == 2 && scalar == F32 => format!("unpack2x16float(pack2x16float({}))", self.loaded_pair()),
            _ => format!("fma({one}, {other}, {})", self.small(scalar, width, depth)),
        }
    }

    /// Returns a vector computed from matrices.
    fn matrix_product(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let other = 2 + self.rng.below(3);
        let (left, right) = (Type::Matrix(scalar, other, width), Type::Matrix(scalar, width, other));
        match self.rng.below(5) {
            0 => format!("({} * {})", self.dynamic(&left, depth), self.small(scalar, other, depth)),
            1 => format!("({} * {})", self.small(scalar, other, depth), self.dynamic(&right, depth)),
            2 => {
                let operator = self.choose(&["+", "-"]);
                format!(
                    "({} {operator} {})[{}]",
                    self.dynamic(&left, depth),
                    self.dynamic(&left, depth),
                    self.rng.below(other)
                )
            }
            3 => {
                format!("({} * {})[{}]", self.dynamic(&left, depth), self.dynamic(&right, depth), self.rng.below(width))
            }
            _ => {
                let suffix = if scalar == F16 { "h" } else { "f" };
                format!("({} * 0.5{suffix})[{}]", self.dynamic(&left, depth), self.rng.below(other))
            }
        }
    }
}
