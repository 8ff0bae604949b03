//! Operators and conversions of numbers.

use super::lanes::{Lanes, Number};
use super::{Emitter, Result};
use crate::Refusal;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{BinaryOperator, ScalarKind, Span};

impl Emitter<'_, '_> {
    pub(crate) fn sum_of_products(&mut self, terms: &[(Number, Number)]) -> Number {
        let mut sum = self.multiply(terms[0].0, terms[0].1);
        for (x, y) in &terms[1..] {
            let product = self.multiply(*x, *y);
            sum = self.add(sum, product);
        }
        sum
    }

    pub(crate) fn add(&mut self, x: Number, y: Number) -> Number {
        if !x.kind.is_float() {
            return self.add_int(x, y);
        }
        let sum = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fadd(x, y));
        self.rounded(sum)
    }

    pub(crate) fn subtract(&mut self, x: Number, y: Number) -> Number {
        if x.kind.is_float() {
            let difference = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fsub(x, y));
            return self.rounded(difference);
        }
        self.linear(x, y, i32::wrapping_sub, |e, [x, y]| e.b.ins().isub(x, y))
    }

    pub(crate) fn multiply(&mut self, x: Number, y: Number) -> Number {
        if !x.kind.is_float() {
            return self.multiply_int(x, y);
        }
        let product = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fmul(x, y));
        self.rounded(product)
    }

    pub(crate) fn divide(&mut self, x: Number, y: Number) -> Number {
        let quotient = self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().fdiv(x, y));
        self.rounded(quotient)
    }

    /// A result of arithmetic as its kind holds it.
    pub(crate) fn rounded(&mut self, x: Number) -> Number {
        if x.kind == Kind::F16 { self.map(Kind::F16, x, Self::round_to_half) } else { x }
    }

    pub(crate) fn add_int(&mut self, x: Number, y: Number) -> Number {
        self.linear(x, y, i32::wrapping_add, |e, [x, y]| e.b.ins().iadd(x, y))
    }

    /// Applies a linear operator, which takes steps between lanes to steps.
    fn linear(
        &mut self,
        x: Number,
        y: Number,
        step: fn(i32, i32) -> i32,
        apply: impl Fn(&mut Self, [Value; 2]) -> Value,
    ) -> Number {
        let steps = |number: Number| match number.lanes {
            Lanes::Same(base) => Some((base, 0)),
            Lanes::Steps(base, step) => Some((base, step)),
            Lanes::Each(_) => None,
        };
        match (steps(x), steps(y)) {
            (Some((a, left)), Some((b, right))) => stepped(x.kind, apply(self, [a, b]), step(left, right)),
            _ => self.map_all(x.kind, [x, y], apply),
        }
    }

    pub(crate) fn multiply_int(&mut self, x: Number, y: Number) -> Number {
        let (x, y) = if x.is_same() { (y, x) } else { (x, y) };
        if let (Lanes::Steps(a, step), Lanes::Same(b)) = (x.lanes, y.lanes)
            && let Some(factor) = self.known(b)
        {
            let base = self.b.ins().imul(a, b);
            return stepped(x.kind, base, step.wrapping_mul(factor as i32));
        }
        self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().imul(x, y))
    }

    pub(crate) fn operator(&mut self, op: BinaryOperator, x: Number, y: Number) -> Number {
        use BinaryOperator as Op;
        match (op, x.kind) {
            (Op::Add, _) => self.add(x, y),
            (Op::Subtract, _) => self.subtract(x, y),
            (Op::Multiply, _) => self.multiply(x, y),
            (Op::Divide, Kind::F32 | Kind::F16) => self.divide(x, y),
            (Op::Modulo, Kind::F32 | Kind::F16) => self.remainder(x, y),
            (Op::Divide | Op::Modulo, _) => self.divide_int(op == Op::Modulo, x, y),
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

    /// What is left of a quotient that is rounded towards zero.
    fn remainder(&mut self, x: Number, y: Number) -> Number {
        let remainder = self.map_all(x.kind, [x, y], |e, [x, y]| {
            let quotient = e.b.ins().fdiv(x, y);
            let whole = e.b.ins().trunc(quotient);
            let product = e.b.ins().fmul(whole, y);
            e.b.ins().fsub(x, product)
        });
        self.rounded(remainder)
    }

    /// Quotient or remainder of integers; a division by zero or beyond the range is one by 1.
    fn divide_int(&mut self, wants_rest: bool, x: Number, y: Number) -> Number {
        let is_signed = x.kind == Kind::I32;
        if let Lanes::Same(divisor) = y.lanes
            && self.known(divisor).is_some_and(|divisor| !matches!(divisor as i32, 0 | -1))
        {
            let quotient = |e: &mut Self, values: &[Value]| e.quotient(is_signed, wants_rest, values[0], values[1]);
            return self.map_lanes(x.kind, &[x, y], quotient);
        }
        let divisor = self.map_all(y.kind, [x, y], |e, [x, y]| {
            let (zero, one) = (e.word_like(y, 0), e.word_like(y, 1));
            let mut is_bad = e.b.ins().icmp(IntCC::Equal, y, zero);
            if is_signed {
                let (least, minus_one) = (e.word_like(y, 1 << 31), e.word_like(y, u32::MAX));
                let (is_least, is_minus_one) =
                    (e.b.ins().icmp(IntCC::Equal, x, least), e.b.ins().icmp(IntCC::Equal, y, minus_one));
                let overflows = e.b.ins().band(is_least, is_minus_one);
                is_bad = e.b.ins().bor(is_bad, overflows);
            }
            e.choose(is_bad, one, y)
        });
        self.map_lanes(x.kind, &[x, divisor], |e, values| e.quotient(is_signed, wants_rest, values[0], values[1]))
    }

    fn quotient(&mut self, is_signed: bool, wants_rest: bool, x: Value, y: Value) -> Value {
        match (is_signed, wants_rest) {
            (true, false) => self.b.ins().sdiv(x, y),
            (true, true) => self.b.ins().srem(x, y),
            (false, false) => self.b.ins().udiv(x, y),
            (false, true) => self.b.ins().urem(x, y),
        }
    }

    /// A shift by the lowest five bits of `y`.
    pub(crate) fn shift(&mut self, is_left: bool, x: Number, y: Number) -> Number {
        let is_signed = x.kind == Kind::I32;
        let apply = move |e: &mut Self, x, bits| match (is_left, is_signed) {
            (true, _) => e.b.ins().ishl(x, bits),
            (false, true) => e.b.ins().sshr(x, bits),
            (false, false) => e.b.ins().ushr(x, bits),
        };
        if let (true, Lanes::Steps(base, step), Lanes::Same(bits)) = (is_left, x.lanes, y.lanes)
            && let Some(known) = self.known(bits)
        {
            let base = self.b.ins().ishl(base, bits);
            return stepped(x.kind, base, step.wrapping_shl(known as u32));
        }
        if let Lanes::Same(bits) = y.lanes {
            return self.map(x.kind, x, |e, x| apply(e, x, bits));
        }
        self.map_lanes(x.kind, &[x, y], |e, values| apply(e, values[0], values[1]))
    }

    pub(crate) fn convert(&mut self, x: Number, kind: ScalarKind, convert: Option<u8>, span: Span) -> Result<Number> {
        let target = match (kind, convert) {
            (ScalarKind::Float, Some(2)) => Kind::F16,
            (ScalarKind::Float, Some(4) | None) => Kind::F32,
            (ScalarKind::Sint, Some(4) | None) => Kind::I32,
            (ScalarKind::Uint, Some(4) | None) => Kind::U32,
            (ScalarKind::Bool, _) => Kind::Bool,
            _ => {
                let message = format!("expected a conversion to 16 or 32 bits, found {kind:?} of {convert:?}");
                return Err(Refusal::new(span, message));
            }
        };
        if convert.is_none() {
            // It keeps the width, and there is no other type of theirs.
            if matches!(x.kind, Kind::F16 | Kind::Bool) {
                return Ok(x);
            }
            return Ok(match (x.kind.is_float(), target.is_float()) {
                (true, false) => self.map(target, x, Self::bits_of),
                (false, true) => self.map(target, x, Self::float_of),
                _ => x.with_kind(target),
            });
        }
        Ok(match (x.kind, target) {
            (from, to) if from == to => x,
            (Kind::F16, Kind::F32) | (Kind::I32, Kind::U32) | (Kind::U32, Kind::I32) => x.with_kind(target),
            (Kind::F32, Kind::F16) => self.map(Kind::F16, x, Self::round_to_half),
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

    /// Towards zero, and to the nearest number that both types have where it is beyond the range.
    fn float_to_int(&mut self, x: Number, from: Kind, target: Kind) -> Number {
        let is_signed = target == Kind::I32;
        let (least, most) = match (from, is_signed) {
            (Kind::F16, true) => (-65504.0, 65504.0),
            (Kind::F16, false) => (0.0, 65504.0),
            (_, true) => (-2_147_483_648.0, 2_147_483_520.0),
            (_, false) => (0.0, 4_294_967_040.0),
        };
        self.map(target, x, |e, x| {
            let (least, most) = (e.float_like(x, least), e.float_like(x, most));
            let is_small = e.b.ins().fcmp(FloatCC::LessThan, x, least);
            let x = e.choose(is_small, least, x);
            let is_large = e.b.ins().fcmp(FloatCC::GreaterThan, x, most);
            let x = e.choose(is_large, most, x);
            let ty = if e.is_vector(x) { types::I32X4 } else { types::I32 };
            if is_signed { e.b.ins().fcvt_to_sint_sat(ty, x) } else { e.b.ins().fcvt_to_uint_sat(ty, x) }
        })
    }
}

fn stepped(kind: Kind, base: Value, step: i32) -> Number {
    let lanes = if step == 0 { Lanes::Same(base) } else { Lanes::Steps(base, step) };
    Number { kind, lanes }
}
