//! The functions of WGSL on numbers.

use super::lanes::{LANES, Number, PART, flags};
use super::op::op_of;
use super::{Emitter, Result};
use crate::Refusal;
use crate::functions;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{BinaryOperator, MathFunction as Math, Span, TypeInner};

impl Emitter<'_, '_> {
    /// The scalars of a function's result; `inner` is the type of its first argument.
    pub(crate) fn math(
        &mut self,
        fun: Math,
        arguments: &[Vec<Number>],
        inner: &TypeInner,
        span: Span,
    ) -> Result<Vec<Number>> {
        let x = &arguments[0];
        let second = arguments.get(1).map_or(&[][..], Vec::as_slice);
        Ok(match fun {
            Math::Dot => vec![self.dot(x, second)],
            Math::Cross => self.cross(x, second),
            Math::Length => vec![self.length(x)],
            Math::Distance => {
                let between = self.zip(x, second, Self::subtract);
                vec![self.length(&between)]
            }
            Math::Normalize => {
                let length = self.length(x);
                x.iter().map(|x| self.divide(*x, length)).collect()
            }
            Math::FaceForward => {
                let dot = self.dot(second, &arguments[2]);
                let zero = self.constant(dot.kind, 0.0);
                let faces = self.compare_float(FloatCC::LessThan, dot, zero);
                let flip = |x: &Number| {
                    let negated = self.map(x.kind, *x, |e, x| e.b.ins().fneg(x));
                    self.select(faces, *x, negated)
                };
                x.iter().map(flip).collect()
            }
            Math::Reflect => {
                let dot = self.dot(second, x);
                let two = self.constant(dot.kind, 2.0);
                let factor = self.multiply(two, dot);
                let scaled: Vec<Number> = second.iter().map(|normal| self.multiply(factor, *normal)).collect();
                self.zip(x, &scaled, Self::subtract)
            }
            Math::Refract => self.refract(x, second, arguments[2][0]),
            Math::Transpose => {
                let TypeInner::Matrix { columns, rows, .. } = *inner else {
                    return Err(Refusal::new(span, "expected a matrix"));
                };
                let (columns, rows) = (columns as usize, rows as usize);
                (0..rows).flat_map(|row| (0..columns).map(move |column| x[column * rows + row])).collect()
            }
            Math::Determinant => vec![self.determinant(x)],
            Math::Modf => {
                let whole: Vec<Number> = x.iter().map(|x| self.map(x.kind, *x, |e, x| e.b.ins().trunc(x))).collect();
                let rest = self.zip(x, &whole, Self::subtract);
                rest.into_iter().chain(whole).collect()
            }
            Math::Frexp => {
                let pairs: Vec<(Number, Number)> = x.iter().map(|x| self.frexp(*x)).collect();
                pairs.iter().map(|(fraction, _)| *fraction).chain(pairs.iter().map(|(_, exponent)| *exponent)).collect()
            }
            Math::Dot4I8Packed | Math::Dot4U8Packed => {
                let is_signed = fun == Math::Dot4I8Packed;
                let (a, b) = (self.unpack(x[0], 8, is_signed), self.unpack(second[0], 8, is_signed));
                vec![self.dot(&a, &b)]
            }
            Math::Pack4x8snorm => vec![self.pack_normalised(x, 8, true)],
            Math::Pack4x8unorm => vec![self.pack_normalised(x, 8, false)],
            Math::Pack2x16snorm => vec![self.pack_normalised(x, 16, true)],
            Math::Pack2x16unorm => vec![self.pack_normalised(x, 16, false)],
            Math::Pack2x16float => {
                let bits: Vec<Number> = (x.iter())
                    .map(|x| {
                        self.map(Kind::U32, *x, |e, x| {
                            let half = e.round_to_half(x);
                            e.half_bits(half)
                        })
                    })
                    .collect();
                vec![self.pack(&bits, 16)]
            }
            Math::Pack4xI8 | Math::Pack4xU8 => vec![self.pack(x, 8)],
            Math::Pack4xI8Clamp | Math::Pack4xU8Clamp => {
                let (least, most) = if fun == Math::Pack4xI8Clamp { (-128.0, 127.0) } else { (0.0, 255.0) };
                let clamped: Vec<Number> = x.iter().map(|x| self.clamp(*x, least, most)).collect();
                vec![self.pack(&clamped, 8)]
            }
            Math::Unpack4x8snorm => self.unpack_normalised(x[0], 8, true),
            Math::Unpack4x8unorm => self.unpack_normalised(x[0], 8, false),
            Math::Unpack2x16snorm => self.unpack_normalised(x[0], 16, true),
            Math::Unpack2x16unorm => self.unpack_normalised(x[0], 16, false),
            Math::Unpack2x16float => (self.unpack(x[0], 16, false).into_iter())
                .map(|bits| self.map(Kind::F32, bits, Self::half_value))
                .collect(),
            Math::Unpack4xI8 | Math::Unpack4xU8 => self.unpack(x[0], 8, fun == Math::Unpack4xI8),
            _ => {
                let count = arguments.iter().map(Vec::len).max().unwrap_or(0);
                let at = |place: usize| -> Vec<Number> {
                    arguments.iter().map(|argument| argument[place.min(argument.len() - 1)]).collect()
                };
                (0..count).map(|place| self.math_of(fun, &at(place), span)).collect::<Result<_>>()?
            }
        })
    }

    /// Functions of one component after the other.
    fn math_of(&mut self, fun: Math, numbers: &[Number], span: Span) -> Result<Number> {
        let x = numbers[0];
        let kind = x.kind;
        let second = || numbers.get(1).copied().unwrap_or(x);
        let third = || numbers.get(2).copied().unwrap_or(x);
        if let Some(op) = op_of(fun) {
            let result = self.element_op(op, numbers, span)?;
            // WGSL leaves it open, and on most GPUs it is NaN: whoever is watched is to know.
            let is_nan_elsewhere = fun == Math::Pow && self.options.sanitize;
            return Ok(if is_nan_elsewhere { self.nan_below_zero(x, result) } else { result });
        }
        if let Some(place) = functions::place_of(fun) {
            return Ok(self.call_helper(place, numbers));
        }
        Ok(match fun {
            Math::Abs => match kind {
                Kind::F32 | Kind::F16 => self.map(kind, x, |e, x| e.b.ins().fabs(x)),
                Kind::I32 => self.map(kind, x, |e, x| e.b.ins().iabs(x)),
                _ => x,
            },
            Math::Min => self.minimum(x, second()),
            Math::Max => self.maximum(x, second()),
            Math::Clamp => {
                let raised = self.maximum(x, second());
                self.minimum(raised, third())
            }
            Math::Saturate => self.clamp(x, 0.0, 1.0),
            Math::Radians | Math::Degrees => {
                let per_degree = std::f64::consts::PI / 180.0;
                let per_radian = 180.0 / std::f64::consts::PI;
                let factor = self.constant(kind, if fun == Math::Radians { per_degree } else { per_radian });
                self.multiply(x, factor)
            }
            Math::Ceil => self.map(kind, x, |e, x| e.b.ins().ceil(x)),
            Math::Floor => self.map(kind, x, |e, x| e.b.ins().floor(x)),
            Math::Round => self.map(kind, x, |e, x| e.b.ins().nearest(x)),
            Math::Trunc => self.map(kind, x, |e, x| e.b.ins().trunc(x)),
            Math::Fract => {
                let floor = self.map(kind, x, |e, x| e.b.ins().floor(x));
                self.subtract(x, floor)
            }
            Math::Ldexp => self.ldexp(x, second()),
            Math::Sign => self.sign(x),
            Math::Fma => {
                let numbers = [x, second(), third()];
                // The product of two halves is exact.
                let sum = self.mul_add(numbers.map(|number| number.with_kind(Kind::F32)));
                self.rounded(sum.with_kind(kind))
            }
            Math::Mix => {
                let one = self.constant(kind, 1.0);
                let rest = self.subtract(one, third());
                let (a, b) = (self.multiply(x, rest), self.multiply(second(), third()));
                self.add(a, b)
            }
            Math::Step => {
                let (zero, one) = (self.constant(kind, 0.0), self.constant(kind, 1.0));
                let is_below = self.compare_float(FloatCC::LessThan, second(), x);
                self.select(is_below, zero, one)
            }
            Math::SmoothStep => {
                let (above, range) = (self.subtract(third(), x), self.subtract(second(), x));
                let share = self.divide(above, range);
                let share = self.clamp(share, 0.0, 1.0);
                let (two, three) = (self.constant(kind, 2.0), self.constant(kind, 3.0));
                let twice = self.multiply(two, share);
                let slope = self.subtract(three, twice);
                let square = self.multiply(share, share);
                self.multiply(square, slope)
            }
            Math::Sqrt => {
                let root = self.map(kind, x, |e, x| e.b.ins().sqrt(x));
                self.rounded(root)
            }
            Math::InverseSqrt => {
                let root = self.map(kind, x, |e, x| e.b.ins().sqrt(x));
                let one = self.constant(kind, 1.0);
                self.divide(one, root)
            }
            Math::QuantizeToF16 => self.map(Kind::F32, x, Self::round_to_half),
            Math::CountOneBits => self.map_lanes(kind, &[x], |e, x| e.b.ins().popcnt(x[0])),
            Math::ReverseBits => self.map_lanes(kind, &[x], |e, x| e.b.ins().bitrev(x[0])),
            Math::CountLeadingZeros => self.map_lanes(kind, &[x], |e, x| e.b.ins().clz(x[0])),
            Math::CountTrailingZeros => self.map_lanes(kind, &[x], |e, x| e.b.ins().ctz(x[0])),
            Math::FirstTrailingBit => self.map_lanes(kind, &[x], |e, x| {
                let (bit, none) = (e.b.ins().ctz(x[0]), e.i32(-1));
                let is_zero = e.b.ins().icmp_imm_s(IntCC::Equal, x[0], 0);
                e.b.ins().select(is_zero, none, bit)
            }),
            Math::FirstLeadingBit => self.map_lanes(kind, &[x], |e, x| {
                // Of a negative number, the first zero.
                let x = if kind == Kind::I32 {
                    let sign = e.b.ins().sshr_imm_s(x[0], 31);
                    e.b.ins().bxor(x[0], sign)
                } else {
                    x[0]
                };
                let zeros = e.b.ins().clz(x);
                let top = e.i32(31);
                let bit = e.b.ins().isub(top, zeros);
                let (none, is_zero) = (e.i32(-1), e.b.ins().icmp_imm_s(IntCC::Equal, x, 0));
                e.b.ins().select(is_zero, none, bit)
            }),
            Math::ExtractBits => self.extract_bits(x, second(), third()),
            Math::InsertBits => self.insert_bits([x, second(), third(), numbers[3]]),
            other => {
                let message = format!("expected a function that a processor can compute, found {other:?}");
                return Err(Refusal::new(span, message));
            }
        })
    }

    fn zip(&mut self, x: &[Number], y: &[Number], apply: fn(&mut Self, Number, Number) -> Number) -> Vec<Number> {
        x.iter().zip(y).map(|(x, y)| apply(self, *x, *y)).collect()
    }

    fn dot(&mut self, x: &[Number], y: &[Number]) -> Number {
        let terms: Vec<(Number, Number)> = x.iter().copied().zip(y.iter().copied()).collect();
        self.sum_of_products(&terms)
    }

    fn length(&mut self, x: &[Number]) -> Number {
        if let [only] = x {
            return self.map(only.kind, *only, |e, x| e.b.ins().fabs(x));
        }
        // The squares of halves soon are beyond their range.
        let wide: Vec<Number> = x.iter().map(|x| x.with_kind(Kind::F32)).collect();
        let square = self.dot(&wide, &wide);
        let root = self.map(x[0].kind, square, |e, x| e.b.ins().sqrt(x));
        self.rounded(root)
    }

    fn cross(&mut self, x: &[Number], y: &[Number]) -> Vec<Number> {
        let part = |(a, b): (usize, usize)| {
            let (left, right) = (self.multiply(x[a], y[b]), self.multiply(x[b], y[a]));
            self.subtract(left, right)
        };
        [(1, 2), (2, 0), (0, 1)].map(part).to_vec()
    }

    fn refract(&mut self, x: &[Number], normal: &[Number], ratio: Number) -> Vec<Number> {
        let kind = ratio.kind;
        let dot = self.dot(normal, x);
        let (zero, one) = (self.constant(kind, 0.0), self.constant(kind, 1.0));
        let (square, ratio_square) = (self.multiply(dot, dot), self.multiply(ratio, ratio));
        let rest = self.subtract(one, square);
        let rest = self.multiply(ratio_square, rest);
        let k = self.subtract(one, rest);
        let root = self.map(kind, k, |e, x| e.b.ins().sqrt(x));
        let scaled = self.multiply(ratio, dot);
        let factor = self.add(scaled, root);
        let is_total = self.compare_float(FloatCC::LessThan, k, zero);
        let component = |(x, normal): (&Number, &Number)| {
            let (a, b) = (self.multiply(ratio, *x), self.multiply(factor, *normal));
            let refracted = self.subtract(a, b);
            self.select(is_total, zero, refracted)
        };
        x.iter().zip(normal).map(component).collect()
    }

    /// Of a square matrix, columns one after the other.
    fn determinant(&mut self, x: &[Number]) -> Number {
        let side = x.len().isqrt();
        if side == 1 {
            return x[0];
        }
        let mut sum = None;
        for column in 0..side {
            let minor: Vec<Number> = (0..side)
                .filter(|other| *other != column)
                .flat_map(|other| (1..side).map(move |row| x[other * side + row]))
                .collect();
            let minor = self.determinant(&minor);
            let term = self.multiply(x[column * side], minor);
            sum = Some(match sum {
                None => term,
                Some(sum) if column % 2 == 1 => self.subtract(sum, term),
                Some(sum) => self.add(sum, term),
            });
        }
        sum.unwrap_or(x[0])
    }

    /// The second where it is less. Of NaN and a number the number.
    pub(crate) fn minimum(&mut self, x: Number, y: Number) -> Number {
        self.extreme(FloatCC::LessThan, x, y)
    }

    pub(crate) fn maximum(&mut self, x: Number, y: Number) -> Number {
        self.extreme(FloatCC::GreaterThan, x, y)
    }

    /// The second of two numbers where it compares so with the first, or the first is NaN.
    fn extreme(&mut self, compares: FloatCC, x: Number, y: Number) -> Number {
        self.map_all(x.kind, [x, y], |e, [a, b]| match (x.kind, compares) {
            (Kind::F32 | Kind::F16, _) => {
                let (wins, is_nan) = (e.b.ins().fcmp(compares, b, a), e.b.ins().fcmp(FloatCC::Unordered, a, a));
                let is_second = e.b.ins().bor(wins, is_nan);
                e.choose(is_second, b, a)
            }
            (Kind::I32, FloatCC::LessThan) => e.b.ins().smin(a, b),
            (Kind::I32, _) => e.b.ins().smax(a, b),
            (_, FloatCC::LessThan) => e.b.ins().umin(a, b),
            _ => e.b.ins().umax(a, b),
        })
    }

    fn clamp(&mut self, x: Number, least: f64, most: f64) -> Number {
        let (least, most) = (self.constant(x.kind, least), self.constant(x.kind, most));
        let x = self.maximum(x, least);
        self.minimum(x, most)
    }

    /// NaN where `x` is below zero, and the result elsewhere.
    fn nan_below_zero(&mut self, x: Number, result: Number) -> Number {
        let (zero, nan) = (self.constant(x.kind, 0.0), self.constant(x.kind, f64::NAN));
        let is_below = self.compare_float(FloatCC::LessThan, x, zero);
        self.select(is_below, nan, result)
    }

    fn sign(&mut self, x: Number) -> Number {
        let (zero, one, minus) = (self.constant(x.kind, 0.0), self.constant(x.kind, 1.0), self.constant(x.kind, -1.0));
        let is_more = self.operator(BinaryOperator::Greater, x, zero);
        let is_less = self.operator(BinaryOperator::Less, x, zero);
        let below = self.select(is_less, minus, zero);
        self.select(is_more, one, below)
    }

    /// `x` times a power of two, in two steps so that the powers are numbers.
    fn ldexp(&mut self, x: Number, exponent: Number) -> Number {
        let kind = x.kind;
        let exponent = self.clamp(exponent.with_kind(Kind::I32), -300.0, 300.0);
        let (third, two) = (self.constant(Kind::I32, 3.0), self.constant(Kind::I32, 2.0));
        // Three factors, each within the range of exponents.
        let part = self.map_lanes(Kind::I32, &[exponent, third], |e, values| e.b.ins().sdiv(values[0], values[1]));
        let twice = self.multiply_int(part, two);
        let rest = self.subtract(exponent, twice);
        let power = |e: &mut Self, exponent: Number| {
            e.map(Kind::F32, exponent, |e, exponent| {
                let bias = e.word_like(exponent, 127);
                let biased = e.b.ins().iadd(exponent, bias);
                let bits = e.shift_left(biased, 23);
                e.float_of(bits)
            })
        };
        let (part, rest) = (power(self, part), power(self, rest));
        let mut value = x.with_kind(Kind::F32);
        for factor in [part, part, rest] {
            value = self.multiply(value, factor);
        }
        self.rounded(value.with_kind(kind))
    }

    /// Fraction in [0.5, 1) and exponent.
    fn frexp(&mut self, x: Number) -> (Number, Number) {
        let wide = x.with_kind(Kind::F32);
        let zero = self.f32_same(0.0);
        // A subnormal number gets a proper exponent first.
        let (least, scale) = (self.f32_same(f32::MIN_POSITIVE), self.f32_same(16_777_216.0));
        let magnitude = self.map(Kind::F32, wide, |e, x| e.b.ins().fabs(x));
        let is_subnormal = self.compare_float(FloatCC::LessThan, magnitude, least);
        let scaled = self.multiply(wide, scale);
        let value = self.select(is_subnormal, scaled, wide);
        let bits = self.map(Kind::I32, value, Self::bits_of);
        let exponent = self.map(Kind::I32, bits, |e, bits| {
            let exponent = e.shift_right(bits, 23);
            let (mask, bias) = (e.word_like(exponent, 0xff), e.word_like(exponent, 126));
            let exponent = e.b.ins().band(exponent, mask);
            e.b.ins().isub(exponent, bias)
        });
        let (shift, none) = (self.constant(Kind::I32, 24.0), self.constant(Kind::I32, 0.0));
        let shift = self.select(is_subnormal, shift, none);
        let exponent = self.subtract(exponent, shift);
        let fraction = self.map(Kind::F32, bits, |e, bits| {
            let (kept, half) = (e.word_like(bits, 0x807f_ffff), e.word_like(bits, 0x3f00_0000));
            let bits = e.b.ins().band(bits, kept);
            let bits = e.b.ins().bor(bits, half);
            e.float_of(bits)
        });
        let is_zero = self.compare_float(FloatCC::Equal, wide, zero);
        let fraction = self.select(is_zero, wide, fraction);
        let exponent = self.select(is_zero, none, exponent);
        (fraction.with_kind(x.kind), exponent)
    }

    /// The part of `count` bits that may be taken from `offset` on, both at most 32.
    fn bit_range(&mut self, offset: Number, count: Number) -> (Number, Number) {
        let most = self.u32_same(32);
        let offset = self.minimum(offset, most);
        let rest = self.subtract(most, offset);
        (offset, self.minimum(count, rest))
    }

    fn extract_bits(&mut self, x: Number, offset: Number, count: Number) -> Number {
        let (offset, count) = self.bit_range(offset, count);
        let (width, zero) = (self.u32_same(32), self.constant(x.kind, 0.0));
        // To the top, so that what comes down brings the sign.
        let above = self.add_int(offset, count);
        let left = self.subtract(width, above);
        let right = self.subtract(width, count);
        let shifted = self.shift(true, x, left);
        let shifted = self.shift(false, shifted, right);
        let none = self.u32_same(0);
        let is_empty = self.compare_int(IntCC::Equal, count, none);
        self.select(is_empty, zero, shifted)
    }

    fn insert_bits(&mut self, [x, bits, offset, count]: [Number; 4]) -> Number {
        let (offset, count) = self.bit_range(offset, count);
        let (ones, width, none) = (self.u32_same(u32::MAX), self.u32_same(32), self.u32_same(0));
        let rest = self.subtract(width, count);
        let mask = self.shift(false, ones, rest);
        let mask = self.shift(true, mask, offset);
        let is_empty = self.compare_int(IntCC::Equal, count, none);
        let mask = self.select(is_empty, none, mask);
        let moved = self.shift(true, bits.with_kind(Kind::U32), offset);
        self.map_all(x.kind, [mask, moved, x], |e, [mask, moved, x]| {
            let (inside, kept) = (e.b.ins().band(moved, mask), e.b.ins().bnot(mask));
            let kept = e.b.ins().band(x, kept);
            e.b.ins().bor(inside, kept)
        })
    }

    /// The lowest bits of each, the first one's lowest.
    fn pack(&mut self, numbers: &[Number], bits: i32) -> Number {
        let mut word = self.u32_same(0);
        for (place, number) in numbers.iter().enumerate() {
            word = self.map_all(Kind::U32, [word, number.with_kind(Kind::U32)], |e, [word, x]| {
                let mask = e.word_like(x, (1 << bits) - 1);
                let x = e.b.ins().band(x, mask);
                let x = e.shift_left(x, bits * place as i32);
                e.b.ins().bor(word, x)
            });
        }
        word
    }

    fn unpack(&mut self, word: Number, bits: i32, is_signed: bool) -> Vec<Number> {
        let kind = if is_signed { Kind::I32 } else { Kind::U32 };
        let part = |place: i32| {
            self.map(kind, word, |e, word| {
                let raised = e.shift_left(word, 32 - bits * (place + 1));
                let down = e.i32(32 - bits);
                if is_signed { e.b.ins().sshr(raised, down) } else { e.b.ins().ushr(raised, down) }
            })
        };
        (0..32 / bits).map(part).collect()
    }

    fn pack_normalised(&mut self, numbers: &[Number], bits: i32, is_signed: bool) -> Number {
        let (least, most) = if is_signed { (-1.0, (1 << (bits - 1)) - 1) } else { (0.0, (1 << bits) - 1) };
        let convert = |x: &Number| {
            let (least, one, most) = (self.f32_same(least), self.f32_same(1.0), self.f32_same(most as f32));
            let x = self.maximum(*x, least);
            let x = self.minimum(x, one);
            let x = self.multiply(x, most);
            let half = self.f32_same(0.5);
            let x = self.add(x, half);
            self.map(Kind::U32, x, |e, x| {
                let x = e.b.ins().floor(x);
                let ty = if e.is_vector(x) { types::I32X4 } else { types::I32 };
                e.b.ins().fcvt_to_sint_sat(ty, x)
            })
        };
        let words: Vec<Number> = numbers.iter().map(convert).collect();
        self.pack(&words, bits)
    }

    fn unpack_normalised(&mut self, word: Number, bits: i32, is_signed: bool) -> Vec<Number> {
        let most = if is_signed { (1 << (bits - 1)) - 1 } else { (1 << bits) - 1 };
        let parts = self.unpack(word, bits, is_signed);
        let convert = |x: Number| {
            let float = self.map(Kind::F32, x, |e, x| {
                let ty = if e.is_vector(x) { types::F32X4 } else { types::F32 };
                e.b.ins().fcvt_from_sint(ty, x)
            });
            let most = self.f32_same(most as f32);
            let share = self.divide(float, most);
            let minus = self.f32_same(-1.0);
            self.maximum(share, minus)
        };
        parts.into_iter().map(convert).collect()
    }

    /// Calls the function at a place of the table on all lanes.
    fn call_helper(&mut self, place: i32, numbers: &[Number]) -> Number {
        let kind = numbers[0].kind;
        let is_same = numbers.iter().all(Number::is_same);
        let count = if is_same { 1 } else { LANES };
        let data = self.runtime.floats(&mut self.b);
        for (argument, number) in numbers.iter().enumerate() {
            let offset = (argument * count * 4) as i32;
            let values = if is_same { vec![self.lane(*number, 0)] } else { self.parts(*number).to_vec() };
            for (part, value) in values.into_iter().enumerate() {
                self.b.ins().store(flags(), value, data, offset + (part * PART * 4) as i32);
            }
        }
        self.runtime.call_on_floats(&mut self.b, place, data, count);
        let result = if is_same {
            let value = self.b.ins().load(types::F32, flags(), data, 0);
            Number::same(kind, value)
        } else {
            let parts: [Value; 2] =
                std::array::from_fn(|part| self.b.ins().load(types::F32X4, flags(), data, (part * PART * 4) as i32));
            Number::each(kind, parts)
        };
        self.rounded(result)
    }
}
