//! Operators and conversions.

use super::lanes::{Lanes, Scalar};
use super::{Emitter, Result};
use crate::CompileError;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{BinaryOperator, ScalarKind, Span};

impl Emitter<'_, '_> {
    /// Emits a dot product of pairs.
    pub(crate) fn sum_of_products(&mut self, terms: &[(Scalar, Scalar)]) -> Scalar {
        let mut sum = self.multiply(terms[0].0, terms[0].1);
        for (x, y) in &terms[1..] {
            let product = self.multiply(*x, *y);
            sum = self.add(sum, product);
        }
        sum
    }

    /// Emits `x + y`.
    pub(crate) fn add(&mut self, x: Scalar, y: Scalar) -> Scalar {
        if !x.kind.is_float() {
            return self.add_int(x, y);
        }
        let sum = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fadd(x, y));
        self.rounded(sum)
    }

    /// Emits `x - y`.
    pub(crate) fn subtract(&mut self, x: Scalar, y: Scalar) -> Scalar {
        if x.kind.is_float() {
            let difference = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fsub(x, y));
            return self.rounded(difference);
        }
        self.map_linear(x, y, i32::wrapping_sub, |e, [x, y]| e.b.ins().isub(x, y))
    }

    /// Emits `x * y`.
    pub(crate) fn multiply(&mut self, x: Scalar, y: Scalar) -> Scalar {
        if !x.kind.is_float() {
            return self.multiply_int(x, y);
        }
        let product = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fmul(x, y));
        self.rounded(product)
    }

    /// Emits `x / y` for floats.
    pub(crate) fn divide(&mut self, x: Scalar, y: Scalar) -> Scalar {
        let quotient = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fdiv(x, y));
        self.rounded(quotient)
    }

    /// Rounds a result of `f32` arithmetic to its kind.
    pub(crate) fn rounded(&mut self, x: Scalar) -> Scalar {
        // The second rounding is harmless after one `+`, `-`, `*`, `/` or square root, because the wider type has
        // at least 2p + 2 bits of precision: `f32` has 24, and p is 11 for `f16`.
        if x.kind == Kind::F16 { self.map(Kind::F16, x, Self::round_to_f16) } else { x }
    }

    /// Emits `x + y` for integers, wrapping.
    pub(crate) fn add_int(&mut self, x: Scalar, y: Scalar) -> Scalar {
        self.map_linear(x, y, i32::wrapping_add, |e, [x, y]| e.b.ins().iadd(x, y))
    }

    /// Applies an operator that maps linear operands to a linear result: `step` computes its increment.
    fn map_linear(
        &mut self,
        x: Scalar,
        y: Scalar,
        step: fn(i32, i32) -> i32,
        apply: impl Fn(&mut Self, [Value; 2]) -> Value,
    ) -> Scalar {
        let steps = |scalar: Scalar| match scalar.lanes {
            Lanes::Uniform(base) => Some((base, 0)),
            Lanes::Linear(base, step) => Some((base, step)),
            Lanes::Varying(_) => None,
        };
        match (steps(x), steps(y)) {
            (Some((a, left)), Some((b, right))) => linear_or_uniform(x.kind, apply(self, [a, b]), step(left, right)),
            _ => self.map_all(x.kind, [x, y], apply),
        }
    }

    /// Emits `x * y` for integers, wrapping. A linear scalar times a constant stays linear.
    pub(crate) fn multiply_int(&mut self, x: Scalar, y: Scalar) -> Scalar {
        // Commutative, so only a linear `x` and a uniform `y` need a case.
        let (x, y) = if x.is_uniform() { (y, x) } else { (x, y) };
        if let (Lanes::Linear(a, step), Lanes::Uniform(b)) = (x.lanes, y.lanes)
            && let Some(factor) = self.as_iconst(b)
        {
            let base = self.b.ins().imul(a, b);
            return linear_or_uniform(x.kind, base, step.wrapping_mul(factor as i32));
        }
        self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().imul(x, y))
    }

    /// Emits a binary operator on scalars.
    pub(crate) fn operator(&mut self, op: BinaryOperator, x: Scalar, y: Scalar) -> Scalar {
        use BinaryOperator as Op;
        match (op, x.kind) {
            (Op::Add, _) => self.add(x, y),
            (Op::Subtract, _) => self.subtract(x, y),
            (Op::Multiply, _) => self.multiply(x, y),
            (Op::Divide, Kind::F32 | Kind::F16) => self.divide(x, y),
            (Op::Modulo, Kind::F32 | Kind::F16) => self.remainder(x, y),
            (Op::Divide | Op::Modulo, _) => self.divide_int(op == Op::Modulo, x, y),
            // `bxor` and `not` are right for both forms of booleans, 0/1 and masks.
            (Op::Equal, Kind::Bool) => {
                let differ = self.map_all(Kind::Bool, [x, y], |e, [x, y]| e.b.ins().bxor(x, y));
                self.not(differ)
            }
            (Op::NotEqual, Kind::Bool) | (Op::ExclusiveOr, _) => {
                self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().bxor(x, y))
            }
            (Op::And | Op::LogicalAnd, _) => self.and(x, y),
            (Op::InclusiveOr | Op::LogicalOr, _) => self.or(x, y),
            (Op::ShiftLeft | Op::ShiftRight, _) => self.shift(op == Op::ShiftLeft, x, y),
            (Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual, kind) => {
                if kind.is_float() {
                    let how = match op {
                        Op::Equal => FloatCC::Equal,
                        Op::NotEqual => FloatCC::NotEqual,
                        Op::Less => FloatCC::LessThan,
                        Op::LessEqual => FloatCC::LessThanOrEqual,
                        Op::Greater => FloatCC::GreaterThan,
                        _ => FloatCC::GreaterThanOrEqual,
                    };
                    self.compare_float(how, x, y)
                } else {
                    let how = match op {
                        Op::Equal => IntCC::Equal,
                        Op::NotEqual => IntCC::NotEqual,
                        Op::Less => IntCC::SignedLessThan,
                        Op::LessEqual => IntCC::SignedLessThanOrEqual,
                        Op::Greater => IntCC::SignedGreaterThan,
                        _ => IntCC::SignedGreaterThanOrEqual,
                    };
                    self.compare_int(if kind == Kind::I32 { how } else { how.unsigned() }, x, y)
                }
            }
        }
    }

    /// `x - y * trunc(x / y)`, as WGSL defines it.
    fn remainder(&mut self, x: Scalar, y: Scalar) -> Scalar {
        let remainder = self.map_all(x.kind, [x, y], |e, [x, y]| {
            let quotient = e.b.ins().fdiv(x, y);
            let whole = e.b.ins().trunc(quotient);
            let product = e.b.ins().fmul(whole, y);
            e.b.ins().fsub(x, product)
        });
        self.rounded(remainder)
    }

    /// Integer quotient or remainder, lane by lane. Where WGSL leaves the result to the implementation (a zero
    /// divisor, or `i32::MIN / -1`), the divisor is replaced by 1, because the processor would trap.
    fn divide_int(&mut self, wants_remainder: bool, x: Scalar, y: Scalar) -> Scalar {
        let is_signed = x.kind == Kind::I32;
        if let Lanes::Uniform(divisor) = y.lanes
            // A constant divisor other than 0 and -1 cannot trap, and Cranelift replaces the division by a
            // multiplication.
            && self.as_iconst(divisor).is_some_and(|divisor| !matches!(divisor as i32, 0 | -1))
        {
            let quotient =
                |e: &mut Self, values: &[Value]| e.quotient(is_signed, wants_remainder, values[0], values[1]);
            return self.map_lanes(x.kind, &[x, y], quotient);
        }
        let divisor = self.map_all(y.kind, [x, y], |e, [x, y]| {
            let (zero, one) = (e.const_like(y, 0), e.const_like(y, 1));
            let mut is_bad = e.b.ins().icmp(IntCC::Equal, y, zero);
            if is_signed {
                let (least, minus_one) = (e.const_like(y, 1 << 31), e.const_like(y, u32::MAX));
                let (is_least, is_minus_one) =
                    (e.b.ins().icmp(IntCC::Equal, x, least), e.b.ins().icmp(IntCC::Equal, y, minus_one));
                let overflows = e.b.ins().band(is_least, is_minus_one);
                is_bad = e.b.ins().bor(is_bad, overflows);
            }
            e.select_value(is_bad, one, y)
        });
        self.map_lanes(x.kind, &[x, divisor], |e, values| e.quotient(is_signed, wants_remainder, values[0], values[1]))
    }

    /// Emits the instruction of a division.
    fn quotient(&mut self, is_signed: bool, wants_remainder: bool, x: Value, y: Value) -> Value {
        match (is_signed, wants_remainder) {
            (true, false) => self.b.ins().sdiv(x, y),
            (true, true) => self.b.ins().srem(x, y),
            (false, false) => self.b.ins().udiv(x, y),
            (false, true) => self.b.ins().urem(x, y),
        }
    }

    /// Shifts by the low five bits of `y`, which is what Cranelift's shifts do.
    pub(crate) fn shift(&mut self, is_left: bool, x: Scalar, y: Scalar) -> Scalar {
        let is_signed = x.kind == Kind::I32;
        let apply = move |e: &mut Self, x, bits| match (is_left, is_signed) {
            (true, _) => e.b.ins().ishl(x, bits),
            (false, true) => e.b.ins().sshr(x, bits),
            (false, false) => e.b.ins().ushr(x, bits),
        };
        // A left shift is a multiplication by a power of two, so an index stays linear.
        if let (true, Lanes::Linear(base, step), Lanes::Uniform(bits)) = (is_left, x.lanes, y.lanes)
            && let Some(known) = self.as_iconst(bits)
        {
            let base = self.b.ins().ishl(base, bits);
            return linear_or_uniform(x.kind, base, step.wrapping_shl(known as u32));
        }
        if let Lanes::Uniform(bits) = y.lanes {
            return self.map(x.kind, x, |e, x| apply(e, x, bits));
        }
        // Cranelift has no vector shift with an amount per lane.
        self.map_lanes(x.kind, &[x, y], |e, values| apply(e, values[0], values[1]))
    }

    /// Emits a conversion, or a bit-cast if `convert` is `None`.
    pub(crate) fn convert(&mut self, x: Scalar, kind: ScalarKind, convert: Option<u8>, span: Span) -> Result<Scalar> {
        let target = match (kind, convert) {
            (ScalarKind::Float, Some(2)) => Kind::F16,
            (ScalarKind::Float, Some(4) | None) => Kind::F32,
            (ScalarKind::Sint, Some(4) | None) => Kind::I32,
            (ScalarKind::Uint, Some(4) | None) => Kind::U32,
            (ScalarKind::Bool, _) => Kind::Bool,
            _ => {
                let message = format!("expected a conversion to 16 or 32 bits, found {kind:?} of {convert:?}");
                return Err(CompileError::new(span, message));
            }
        };
        if convert.is_none() {
            // A bit-cast keeps the width, and these types have no other type of their width.
            if matches!(x.kind, Kind::F16 | Kind::Bool) {
                return Ok(x);
            }
            return Ok(match (x.kind.is_float(), target.is_float()) {
                (true, false) => self.map(target, x, Self::f32_to_bits),
                (false, true) => self.map(target, x, Self::bits_to_f32),
                _ => x.with_kind(target),
            });
        }
        Ok(match (x.kind, target) {
            (from, to) if from == to => x,
            (Kind::F16, Kind::F32) | (Kind::I32, Kind::U32) | (Kind::U32, Kind::I32) => x.with_kind(target),
            (Kind::F32, Kind::F16) => self.map(Kind::F16, x, Self::round_to_f16),
            (Kind::Bool, _) => {
                let (one, zero) = (self.constant(target, 1.0), self.constant(target, 0.0));
                self.select(x, one, zero)
            }
            (_, Kind::Bool) => {
                let zero = self.constant(x.kind, 0.0);
                self.operator(BinaryOperator::NotEqual, x, zero)
            }
            (Kind::I32 | Kind::U32, _) => {
                let is_signed = x.kind == Kind::I32;
                let float = self.map(target, x, |e, x| {
                    let ty = if e.is_vector(x) { types::F32X4 } else { types::F32 };
                    if is_signed { e.b.ins().fcvt_from_sint(ty, x) } else { e.b.ins().fcvt_from_uint(ty, x) }
                });
                self.rounded(float)
            }
            (from, _) => self.float_to_int(x, from, target),
        })
    }

    /// Converts towards zero. Values out of range become the nearest value that both types represent, NaN
    /// becomes 0.
    fn float_to_int(&mut self, x: Scalar, from: Kind, target: Kind) -> Scalar {
        let is_signed = target == Kind::I32;
        let (least, most) = match (from, is_signed) {
            // WGSL clamps to values that both types represent, so the limits of `f16` apply first.
            (Kind::F16, true) => (-65504.0, 65504.0),
            (Kind::F16, false) => (0.0, 65504.0),
            // The largest `f32`s below 2^31 and 2^32.
            (_, true) => (-2_147_483_648.0, 2_147_483_520.0),
            (_, false) => (0.0, 4_294_967_040.0),
        };
        // NaN passes both selects, because it compares false; the saturating conversion turns it into 0.
        self.map(target, x, |e, x| {
            let (least, most) = (e.f32_like(x, least), e.f32_like(x, most));
            let is_small = e.b.ins().fcmp(FloatCC::LessThan, x, least);
            let x = e.select_value(is_small, least, x);
            let is_large = e.b.ins().fcmp(FloatCC::GreaterThan, x, most);
            let x = e.select_value(is_large, most, x);
            let ty = if e.is_vector(x) { types::I32X4 } else { types::I32 };
            if is_signed { e.b.ins().fcvt_to_sint_sat(ty, x) } else { e.b.ins().fcvt_to_uint_sat(ty, x) }
        })
    }
}

/// Builds a linear scalar, or a uniform one if the increment is 0.
fn linear_or_uniform(kind: Kind, base: Value, step: i32) -> Scalar {
    let lanes = if step == 0 { Lanes::Uniform(base) } else { Lanes::Linear(base, step) };
    Scalar { kind, lanes }
}
