//! WGSL's built-in functions.

use super::lanes::{LANES, Scalar, VECTOR_LANES, flags};
use super::op::op_of;
use super::{Emitter, Result};
use crate::CompileError;
use crate::libcalls;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{BinaryOperator, MathFunction as Math, Span, TypeInner};

impl Emitter<'_, '_> {
    /// Returns the scalars of a function's result. `inner` is the type of the first argument.
    pub(crate) fn math(
        &mut self,
        fun: Math,
        arguments: &[Vec<Scalar>],
        inner: &TypeInner,
        span: Span,
    ) -> Result<Vec<Scalar>> {
        // Functions of whole vectors and matrices first; everything else is componentwise below.
        let x = &arguments[0];
        let second = arguments.get(1).map_or(&[][..], Vec::as_slice);
        Ok(match fun {
            Math::Dot => vec![self.dot(x, second)],
            Math::Cross => self.cross(x, second),
            Math::Length => vec![self.length(x)],
            Math::Distance => {
                let difference = self.zip(x, second, Self::subtract);
                vec![self.length(&difference)]
            }
            Math::Normalize => {
                let length = self.length(x);
                x.iter().map(|x| self.divide(*x, length)).collect()
            }
            Math::FaceForward => {
                let dot = self.dot(second, &arguments[2]);
                let zero = self.constant(dot.kind, 0.0);
                let faces = self.compare_float(FloatCC::LessThan, dot, zero);
                let flip = |x: &Scalar| {
                    let negated = self.map(x.kind, *x, |e, x| e.b.ins().fneg(x));
                    self.select(faces, *x, negated)
                };
                x.iter().map(flip).collect()
            }
            Math::Reflect => {
                let dot = self.dot(second, x);
                let two = self.constant(dot.kind, 2.0);
                let factor = self.multiply(two, dot);
                let scaled: Vec<Scalar> = second.iter().map(|normal| self.multiply(factor, *normal)).collect();
                self.zip(x, &scaled, Self::subtract)
            }
            Math::Refract => self.refract(x, second, arguments[2][0]),
            Math::Transpose => {
                let TypeInner::Matrix { columns, rows, .. } = *inner else {
                    return Err(CompileError::new(span, "expected a matrix"));
                };
                let (columns, rows) = (columns as usize, rows as usize);
                (0..rows).flat_map(|row| (0..columns).map(move |column| x[column * rows + row])).collect()
            }
            Math::Determinant => vec![self.determinant(x)],
            // WGSL returns a struct: the fractions of all components, then the whole parts.
            Math::Modf => {
                let whole: Vec<Scalar> = x.iter().map(|x| self.map(x.kind, *x, |e, x| e.b.ins().trunc(x))).collect();
                let rest = self.zip(x, &whole, Self::subtract);
                rest.into_iter().chain(whole).collect()
            }
            Math::Frexp => {
                let pairs: Vec<(Scalar, Scalar)> = x.iter().map(|x| self.frexp(*x)).collect();
                pairs.iter().map(|(fraction, _)| *fraction).chain(pairs.iter().map(|(_, exponent)| *exponent)).collect()
            }
            Math::Dot4I8Packed | Math::Dot4U8Packed => {
                let is_signed = fun == Math::Dot4I8Packed;
                // Four products of 8-bit integers cannot overflow 32 bits.
                let (a, b) = (self.unpack(x[0], 8, is_signed), self.unpack(second[0], 8, is_signed));
                vec![self.dot(&a, &b)]
            }
            Math::Pack4x8snorm => vec![self.pack_normalised(x, 8, true)],
            Math::Pack4x8unorm => vec![self.pack_normalised(x, 8, false)],
            Math::Pack2x16snorm => vec![self.pack_normalised(x, 16, true)],
            Math::Pack2x16unorm => vec![self.pack_normalised(x, 16, false)],
            Math::Pack2x16float => {
                let bits: Vec<Scalar> = (x.iter())
                    .map(|x| {
                        self.map(Kind::U32, *x, |e, x| {
                            let half = e.round_to_f16(x);
                            e.f32_to_f16_bits(half)
                        })
                    })
                    .collect();
                vec![self.pack(&bits, 16)]
            }
            Math::Pack4xI8 | Math::Pack4xU8 => vec![self.pack(x, 8)],
            Math::Pack4xI8Clamp | Math::Pack4xU8Clamp => {
                let (least, most) = if fun == Math::Pack4xI8Clamp { (-128.0, 127.0) } else { (0.0, 255.0) };
                let clamped: Vec<Scalar> = x.iter().map(|x| self.clamp(*x, least, most)).collect();
                vec![self.pack(&clamped, 8)]
            }
            Math::Unpack4x8snorm => self.unpack_normalised(x[0], 8, true),
            Math::Unpack4x8unorm => self.unpack_normalised(x[0], 8, false),
            Math::Unpack2x16snorm => self.unpack_normalised(x[0], 16, true),
            Math::Unpack2x16unorm => self.unpack_normalised(x[0], 16, false),
            Math::Unpack2x16float => (self.unpack(x[0], 16, false).into_iter())
                .map(|bits| self.map(Kind::F32, bits, Self::f16_bits_to_f32))
                .collect(),
            Math::Unpack4xI8 | Math::Unpack4xU8 => self.unpack(x[0], 8, fun == Math::Unpack4xI8),
            _ => {
                let count = arguments.iter().map(Vec::len).max().unwrap_or(0);
                let at = |i: usize| -> Vec<Scalar> {
                    arguments.iter().map(|argument| argument[i.min(argument.len() - 1)]).collect()
                };
                (0..count).map(|i| self.math_of(fun, &at(i), span)).collect::<Result<_>>()?
            }
        })
    }

    /// Emits a function that applies to each component. Scalar arguments are broadcast.
    fn math_of(&mut self, fun: Math, scalars: &[Scalar], span: Span) -> Result<Scalar> {
        let x = scalars[0];
        let kind = x.kind;
        let second = || scalars.get(1).copied().unwrap_or(x);
        let third = || scalars.get(2).copied().unwrap_or(x);
        if let Some(op) = op_of(fun) {
            // Functions of the op table have the accuracy that tensor ops have.
            let result = self.element_op(op, scalars, span)?;
            // WGSL leaves `pow` of a negative base open, and it is NaN on most GPUs. The sanitizer reports it.
            let is_nan_on_gpus = fun == Math::Pow && self.options.sanitize;
            return Ok(if is_nan_on_gpus { self.nan_below_zero(x, result) } else { result });
        }
        if let Some(index) = libcalls::index_of(fun) {
            return Ok(self.call_libcall(index, scalars));
        }
        Ok(match fun {
            Math::Abs => match kind {
                Kind::F32 | Kind::F16 => self.map(kind, x, |e, x| e.b.ins().fabs(x)),
                Kind::I32 => self.map(kind, x, |e, x| e.b.ins().iabs(x)),
                _ => x,
            },
            Math::Min => self.minimum(x, second()),
            Math::Max => self.maximum(x, second()),
            // WGSL allows this or the median, which differ if `low > high`.
            Math::Clamp => {
                let raised = self.maximum(x, second());
                self.minimum(raised, third())
            }
            Math::Saturate => self.clamp(x, 0.0, 1.0),
            Math::Radians | Math::Degrees => {
                let per_degree = std::f64::consts::PI / 180.0;
                let per_radian = 180.0 / std::f64::consts::PI;
                // The factor has the precision of `f32` for `f16` too: only the product is rounded.
                let factor = self.constant(kind, if fun == Math::Radians { per_degree } else { per_radian });
                self.multiply(x, factor)
            }
            Math::Ceil => self.map(kind, x, |e, x| e.b.ins().ceil(x)),
            Math::Floor => self.map(kind, x, |e, x| e.b.ins().floor(x)),
            // WGSL rounds ties to even, as `nearest` does.
            Math::Round => self.map(kind, x, |e, x| e.b.ins().nearest(x)),
            Math::Trunc => self.map(kind, x, |e, x| e.b.ins().trunc(x)),
            Math::Fract => {
                // For a tiny negative number the difference rounds to 1.0, which WGSL permits.
                let floor = self.map(kind, x, |e, x| e.b.ins().floor(x));
                self.subtract(x, floor)
            }
            Math::Ldexp => self.ldexp(x, second()),
            Math::Sign => self.sign(x),
            Math::Fma => {
                let scalars = [x, second(), third()];
                // The product of two `f16`s is exact in `f32`.
                let sum = self.mul_add(scalars.map(|scalar| scalar.with_kind(Kind::F32)));
                self.rounded(sum.with_kind(kind))
            }
            Math::Mix => {
                let one = self.constant(kind, 1.0);
                // `x * (1 - t) + y * t` is exact at both ends, which `x + t * (y - x)` is not.
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
                // The cubic Hermite polynomial t^2 * (3 - 2t), where t is the clamped position between the
                // edges.
                let (above, range) = (self.subtract(third(), x), self.subtract(second(), x));
                let share = self.divide(above, range);
                let share = self.clamp(share, 0.0, 1.0);
                let (two, three) = (self.constant(kind, 2.0), self.constant(kind, 3.0));
                let double = self.multiply(two, share);
                let slope = self.subtract(three, double);
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
            Math::QuantizeToF16 => self.map(Kind::F32, x, Self::round_to_f16),
            // Cranelift has these only for scalars, or for other lane widths.
            Math::CountOneBits => self.map_lanes(kind, &[x], |e, x| e.b.ins().popcnt(x[0])),
            Math::ReverseBits => self.map_lanes(kind, &[x], |e, x| e.b.ins().bitrev(x[0])),
            Math::CountLeadingZeros => self.map_lanes(kind, &[x], |e, x| e.b.ins().clz(x[0])),
            Math::CountTrailingZeros => self.map_lanes(kind, &[x], |e, x| e.b.ins().ctz(x[0])),
            Math::FirstTrailingBit => self.map_lanes(kind, &[x], |e, x| {
                let (bit, none) = (e.b.ins().ctz(x[0]), e.i32_const(-1));
                let is_zero = e.b.ins().icmp_imm_s(IntCC::Equal, x[0], 0);
                e.b.ins().select(is_zero, none, bit)
            }),
            Math::FirstLeadingBit => self.map_lanes(kind, &[x], |e, x| {
                // For a negative number it is the highest zero bit.
                let x = if kind == Kind::I32 {
                    let sign = e.b.ins().sshr_imm_s(x[0], 31);
                    e.b.ins().bxor(x[0], sign)
                } else {
                    x[0]
                };
                let zeros = e.b.ins().clz(x);
                let top = e.i32_const(31);
                let bit = e.b.ins().isub(top, zeros);
                let (none, is_zero) = (e.i32_const(-1), e.b.ins().icmp_imm_s(IntCC::Equal, x, 0));
                e.b.ins().select(is_zero, none, bit)
            }),
            Math::ExtractBits => self.extract_bits(x, second(), third()),
            Math::InsertBits => self.insert_bits([x, second(), third(), scalars[3]]),
            other => {
                let message = format!("expected a function that the CPU device supports, found {other:?}");
                return Err(CompileError::new(span, message));
            }
        })
    }

    /// Applies a function to pairs of components.
    fn zip(&mut self, x: &[Scalar], y: &[Scalar], apply: fn(&mut Self, Scalar, Scalar) -> Scalar) -> Vec<Scalar> {
        x.iter().zip(y).map(|(x, y)| apply(self, *x, *y)).collect()
    }

    /// Emits a dot product.
    fn dot(&mut self, x: &[Scalar], y: &[Scalar]) -> Scalar {
        let terms: Vec<(Scalar, Scalar)> = x.iter().copied().zip(y.iter().copied()).collect();
        self.sum_of_products(&terms)
    }

    /// Emits the Euclidean norm.
    fn length(&mut self, x: &[Scalar]) -> Scalar {
        if let [only] = x {
            return self.map(only.kind, *only, |e, x| e.b.ins().fabs(x));
        }
        // The square of an `f16` above 255 overflows `f16`, so the sum is computed in `f32`.
        let wide: Vec<Scalar> = x.iter().map(|x| x.with_kind(Kind::F32)).collect();
        let square = self.dot(&wide, &wide);
        let root = self.map(x[0].kind, square, |e, x| e.b.ins().sqrt(x));
        self.rounded(root)
    }

    /// Emits a cross product.
    fn cross(&mut self, x: &[Scalar], y: &[Scalar]) -> Vec<Scalar> {
        let part = |(a, b): (usize, usize)| {
            let (left, right) = (self.multiply(x[a], y[b]), self.multiply(x[b], y[a]));
            self.subtract(left, right)
        };
        [(1, 2), (2, 0), (0, 1)].map(part).to_vec()
    }

    /// Emits `refract`; zero on total internal reflection.
    fn refract(&mut self, x: &[Scalar], normal: &[Scalar], ratio: Scalar) -> Vec<Scalar> {
        let kind = ratio.kind;
        // Snell's law: k = 1 - ratio^2 * (1 - dot^2) is the squared cosine of the refracted angle.
        let dot = self.dot(normal, x);
        let (zero, one) = (self.constant(kind, 0.0), self.constant(kind, 1.0));
        let (square, ratio_square) = (self.multiply(dot, dot), self.multiply(ratio, ratio));
        let rest = self.subtract(one, square);
        let rest = self.multiply(ratio_square, rest);
        let k = self.subtract(one, rest);
        let root = self.map(kind, k, |e, x| e.b.ins().sqrt(x));
        let scaled = self.multiply(ratio, dot);
        let factor = self.add(scaled, root);
        // Where `k` is negative its root is NaN; the select discards it.
        let is_total = self.compare_float(FloatCC::LessThan, k, zero);
        let component = |(x, normal): (&Scalar, &Scalar)| {
            let (a, b) = (self.multiply(ratio, *x), self.multiply(factor, *normal));
            let refracted = self.subtract(a, b);
            self.select(is_total, zero, refracted)
        };
        x.iter().zip(normal).map(component).collect()
    }

    /// Determinant of a square matrix in column order, by expansion along the first row.
    fn determinant(&mut self, x: &[Scalar]) -> Scalar {
        let side = x.len().isqrt();
        if side == 1 {
            return x[0];
        }
        // Factorial in the side, which is at most 4: 24 terms, and no division or pivoting.
        let mut sum = None;
        for column in 0..side {
            let minor: Vec<Scalar> = (0..side)
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

    /// `y` if it is less than `x` or `x` is NaN, otherwise `x`. So of NaN and a number the number.
    pub(crate) fn minimum(&mut self, x: Scalar, y: Scalar) -> Scalar {
        self.min_or_max(FloatCC::LessThan, x, y)
    }

    /// [`minimum`](Self::minimum) with `greater than`.
    pub(crate) fn maximum(&mut self, x: Scalar, y: Scalar) -> Scalar {
        self.min_or_max(FloatCC::GreaterThan, x, y)
    }

    /// `y` if `y` compares as given with `x` or `x` is NaN, otherwise `x`.
    fn min_or_max(&mut self, compares: FloatCC, x: Scalar, y: Scalar) -> Scalar {
        self.map_all(x.kind, [x, y], |e, [a, b]| match (x.kind, compares) {
            // Not Cranelift's `fmin` and `fmax`, which return NaN if either operand is NaN.
            (Kind::F32 | Kind::F16, _) => {
                let (wins, is_nan) = (e.b.ins().fcmp(compares, b, a), e.b.ins().fcmp(FloatCC::Unordered, a, a));
                let is_second = e.b.ins().bor(wins, is_nan);
                e.select_value(is_second, b, a)
            }
            (Kind::I32, FloatCC::LessThan) => e.b.ins().smin(a, b),
            (Kind::I32, _) => e.b.ins().smax(a, b),
            (_, FloatCC::LessThan) => e.b.ins().umin(a, b),
            _ => e.b.ins().umax(a, b),
        })
    }

    /// Clamps to constants.
    fn clamp(&mut self, x: Scalar, least: f64, most: f64) -> Scalar {
        let (least, most) = (self.constant(x.kind, least), self.constant(x.kind, most));
        let x = self.maximum(x, least);
        self.minimum(x, most)
    }

    /// Replaces the result by NaN where `x` is negative.
    fn nan_below_zero(&mut self, x: Scalar, result: Scalar) -> Scalar {
        let (zero, nan) = (self.constant(x.kind, 0.0), self.constant(x.kind, f64::NAN));
        let is_below = self.compare_float(FloatCC::LessThan, x, zero);
        self.select(is_below, nan, result)
    }

    /// Emits `sign`; 0 for NaN.
    fn sign(&mut self, x: Scalar) -> Scalar {
        let (zero, one, minus) = (self.constant(x.kind, 0.0), self.constant(x.kind, 1.0), self.constant(x.kind, -1.0));
        let is_more = self.operator(BinaryOperator::Greater, x, zero);
        let is_less = self.operator(BinaryOperator::Less, x, zero);
        let below = self.select(is_less, minus, zero);
        self.select(is_more, one, below)
    }

    /// `x * 2^exponent`, as three factors that are each a normal `f32`.
    fn ldexp(&mut self, x: Scalar, exponent: Scalar) -> Scalar {
        let kind = x.kind;
        let exponent = self.clamp(exponent.with_kind(Kind::I32), -300.0, 300.0);
        let (third, two) = (self.constant(Kind::I32, 3.0), self.constant(Kind::I32, 2.0));
        // The exponent is clamped to ±300, beyond which every result is 0 or infinity. A third of it fits the
        // exponent range of an `f32`.
        let part = self.map_lanes(Kind::I32, &[exponent, third], |e, values| e.b.ins().sdiv(values[0], values[1]));
        let double = self.multiply_int(part, two);
        let rest = self.subtract(exponent, double);
        let power = |e: &mut Self, exponent: Scalar| {
            e.map(Kind::F32, exponent, |e, exponent| {
                let bias = e.const_like(exponent, 127);
                let biased = e.b.ins().iadd(exponent, bias);
                let bits = e.shift_left(biased, 23);
                e.bits_to_f32(bits)
            })
        };
        let (part, rest) = (power(self, part), power(self, rest));
        let mut value = x.with_kind(Kind::F32);
        // One after the other: the product of the factors may overflow although the result does not.
        for factor in [part, part, rest] {
            value = self.multiply(value, factor);
        }
        self.rounded(value.with_kind(kind))
    }

    /// Splits into a fraction in [0.5, 1) and an exponent.
    fn frexp(&mut self, x: Scalar) -> (Scalar, Scalar) {
        let wide = x.with_kind(Kind::F32);
        let zero = self.f32_uniform(0.0);
        // Scale subnormals by 2^24 so that their exponent field is meaningful, and subtract 24 below.
        let (least, scale) = (self.f32_uniform(f32::MIN_POSITIVE), self.f32_uniform(16_777_216.0));
        let magnitude = self.map(Kind::F32, wide, |e, x| e.b.ins().fabs(x));
        let is_subnormal = self.compare_float(FloatCC::LessThan, magnitude, least);
        let scaled = self.multiply(wide, scale);
        let value = self.select(is_subnormal, scaled, wide);
        let bits = self.map(Kind::I32, value, Self::f32_to_bits);
        let exponent = self.map(Kind::I32, bits, |e, bits| {
            let exponent = e.shift_right(bits, 23);
            // 126 and not the bias of 127, because the fraction is in [0.5, 1) and not in [1, 2).
            let (mask, bias) = (e.const_like(exponent, 0xff), e.const_like(exponent, 126));
            let exponent = e.b.ins().band(exponent, mask);
            e.b.ins().isub(exponent, bias)
        });
        let (shift, none) = (self.constant(Kind::I32, 24.0), self.constant(Kind::I32, 0.0));
        let shift = self.select(is_subnormal, shift, none);
        let exponent = self.subtract(exponent, shift);
        let fraction = self.map(Kind::F32, bits, |e, bits| {
            // Exponent field of 126 gives a fraction in [0.5, 1).
            let (kept, half) = (e.const_like(bits, 0x807f_ffff), e.const_like(bits, 0x3f00_0000));
            let bits = e.b.ins().band(bits, kept);
            let bits = e.b.ins().bor(bits, half);
            e.bits_to_f32(bits)
        });
        let is_zero = self.compare_float(FloatCC::Equal, wide, zero);
        let fraction = self.select(is_zero, wide, fraction);
        let exponent = self.select(is_zero, none, exponent);
        (fraction.with_kind(x.kind), exponent)
    }

    /// Clamps a bit range to the 32 bits of a word, as WGSL defines for `extractBits` and `insertBits`.
    fn bit_range(&mut self, offset: Scalar, count: Scalar) -> (Scalar, Scalar) {
        let most = self.u32_uniform(32);
        let offset = self.minimum(offset, most);
        let rest = self.subtract(most, offset);
        (offset, self.minimum(count, rest))
    }

    /// Emits `extractBits`.
    fn extract_bits(&mut self, x: Scalar, offset: Scalar, count: Scalar) -> Scalar {
        let (offset, count) = self.bit_range(offset, count);
        let (width, zero) = (self.u32_uniform(32), self.constant(x.kind, 0.0));
        // Shift the range to the top and back down, so that the right shift extends the sign.
        let above = self.add_int(offset, count);
        let left = self.subtract(width, above);
        let right = self.subtract(width, count);
        let shifted = self.shift(true, x, left);
        let shifted = self.shift(false, shifted, right);
        let none = self.u32_uniform(0);
        // An empty range would shift by 32, which is a shift by 0.
        let is_empty = self.compare_int(IntCC::Equal, count, none);
        self.select(is_empty, zero, shifted)
    }

    /// Emits `insertBits`.
    fn insert_bits(&mut self, [x, bits, offset, count]: [Scalar; 4]) -> Scalar {
        let (offset, count) = self.bit_range(offset, count);
        let (ones, width, none) = (self.u32_uniform(u32::MAX), self.u32_uniform(32), self.u32_uniform(0));
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

    /// Packs the low `bits` of each scalar into a word, the first one lowest.
    fn pack(&mut self, scalars: &[Scalar], bits: i32) -> Scalar {
        let mut word = self.u32_uniform(0);
        for (i, scalar) in scalars.iter().enumerate() {
            word = self.map_all(Kind::U32, [word, scalar.with_kind(Kind::U32)], |e, [word, x]| {
                let mask = e.const_like(x, (1 << bits) - 1);
                let x = e.b.ins().band(x, mask);
                let x = e.shift_left(x, bits * i as i32);
                e.b.ins().bor(word, x)
            });
        }
        word
    }

    /// Splits a word into fields of `bits` bits, sign-extended if asked to.
    fn unpack(&mut self, word: Scalar, bits: i32, is_signed: bool) -> Vec<Scalar> {
        let kind = if is_signed { Kind::I32 } else { Kind::U32 };
        let part = |i: i32| {
            self.map(kind, word, |e, word| {
                // The field goes to the top first, so that the shift down extends its sign or fills with zeros.
                let raised = e.shift_left(word, 32 - bits * (i + 1));
                let down = e.i32_const(32 - bits);
                if is_signed { e.b.ins().sshr(raised, down) } else { e.b.ins().ushr(raised, down) }
            })
        };
        (0..32 / bits).map(part).collect()
    }

    /// Emits `pack4x8snorm` and its relatives: clamp, scale, round to nearest.
    fn pack_normalised(&mut self, scalars: &[Scalar], bits: i32, is_signed: bool) -> Scalar {
        let (least, most) = if is_signed { (-1.0, (1 << (bits - 1)) - 1) } else { (0.0, (1 << bits) - 1) };
        let convert = |x: &Scalar| {
            let (least, one, most) = (self.f32_uniform(least), self.f32_uniform(1.0), self.f32_uniform(most as f32));
            let x = self.maximum(*x, least);
            let x = self.minimum(x, one);
            let x = self.multiply(x, most);
            let half = self.f32_uniform(0.5);
            // `floor(x + 0.5)` is the rounding that WGSL specifies for packing.
            let x = self.add(x, half);
            self.map(Kind::U32, x, |e, x| {
                let x = e.b.ins().floor(x);
                let ty = if e.is_vector(x) { types::I32X4 } else { types::I32 };
                e.b.ins().fcvt_to_sint_sat(ty, x)
            })
        };
        let words: Vec<Scalar> = scalars.iter().map(convert).collect();
        self.pack(&words, bits)
    }

    /// Emits `unpack4x8snorm` and its relatives.
    fn unpack_normalised(&mut self, word: Scalar, bits: i32, is_signed: bool) -> Vec<Scalar> {
        let most = if is_signed { (1 << (bits - 1)) - 1 } else { (1 << bits) - 1 };
        let parts = self.unpack(word, bits, is_signed);
        let convert = |x: Scalar| {
            let float = self.map(Kind::F32, x, |e, x| {
                let ty = if e.is_vector(x) { types::F32X4 } else { types::F32 };
                e.b.ins().fcvt_from_sint(ty, x)
            });
            let most = self.f32_uniform(most as f32);
            // The most negative value divides to slightly below -1 and is clamped.
            let share = self.divide(float, most);
            let minus = self.f32_uniform(-1.0);
            self.maximum(share, minus)
        };
        parts.into_iter().map(convert).collect()
    }

    /// Calls a float function of the libcall table on all lanes.
    fn call_libcall(&mut self, index: i32, scalars: &[Scalar]) -> Scalar {
        let kind = scalars[0].kind;
        let is_uniform = scalars.iter().all(Scalar::is_uniform);
        let count = if is_uniform { 1 } else { LANES };
        // The function overwrites its arguments, so they go through a stack slot.
        let data = self.runtime.float_args(&mut self.b);
        for (argument, scalar) in scalars.iter().enumerate() {
            let offset = (argument * count * 4) as i32;
            let values = if is_uniform { vec![self.lane(*scalar, 0)] } else { self.vectors(*scalar).to_vec() };
            for (part, value) in values.into_iter().enumerate() {
                self.b.ins().store(flags(), value, data, offset + (part * VECTOR_LANES * 4) as i32);
            }
        }
        self.runtime.call_float_function(&mut self.b, index, data, count);
        let result = if is_uniform {
            let value = self.b.ins().load(types::F32, flags(), data, 0);
            Scalar::uniform(kind, value)
        } else {
            let parts: [Value; 2] = std::array::from_fn(|part| {
                self.b.ins().load(types::F32X4, flags(), data, (part * VECTOR_LANES * 4) as i32)
            });
            Scalar::varying(kind, parts)
        };
        self.rounded(result)
    }
}
