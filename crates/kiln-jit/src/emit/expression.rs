//! Expressions: constants, composites, operators, conversions.

use super::lanes::{Lanes, Number};
use super::memory::{Index, Pointer};
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::{ActivationId, Variable};
use crate::types::{Kind, element, leaf_count, leaves, member};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, types};
use naga::{
    Arena, BinaryOperator, Expression, Handle, Literal, RelationalFunction, ScalarKind, Span, TypeInner, UnaryOperator,
};

/// The type of a matrix, as its columns and rows.
fn matrix(inner: &TypeInner) -> Option<(usize, usize)> {
    match *inner {
        TypeInner::Matrix { columns, rows, .. } => Some((columns as usize, rows as usize)),
        _ => None,
    }
}

impl<'m> Emitter<'m, '_> {
    /// Computes an expression where the program says so.
    pub(crate) fn compute(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<()> {
        self.spend(self.span(id, expression))?;
        let operand = self.evaluate(id, expression)?;
        let operand = self.check_number(id, expression, operand)?;
        self.define(id, expression, operand)
    }

    /// What an expression is: as it was computed, or now where it is never computed.
    pub(crate) fn operand(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Operand> {
        let function = self.analysis.activations[id].function;
        if let Expression::FunctionArgument(index) = function.expressions[expression] {
            return self.argument(id, index);
        }
        if function.expressions[expression].needs_pre_emit() {
            return self.evaluate(id, expression);
        }
        let found = self.known[id].expressions.get(&expression).cloned();
        found.ok_or_else(|| Refusal::new(self.span(id, expression), "expected a computed expression, found none yet"))
    }

    pub(crate) fn numbers(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Vec<Number>> {
        match self.operand(id, expression)? {
            Operand::Numbers(numbers) => Ok(numbers),
            Operand::Pointer(_) => Err(Refusal::new(self.span(id, expression), "expected a value, found a pointer")),
        }
    }

    pub(crate) fn number(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Number> {
        Ok(self.numbers(id, expression)?[0])
    }

    pub(crate) fn pointer(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Pointer> {
        match self.operand(id, expression)? {
            Operand::Pointer(pointer) => Ok(pointer),
            Operand::Numbers(_) => Err(Refusal::new(self.span(id, expression), "expected a pointer, found a value")),
        }
    }

    fn evaluate(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Operand> {
        let function = self.analysis.activations[id].function;
        let span = self.span(id, expression);
        let numbers = match &function.expressions[expression] {
            Expression::Literal(_) | Expression::Constant(_) | Expression::ZeroValue(_) => {
                self.constant_numbers(&function.expressions, expression, span)?
            }
            Expression::GlobalVariable(global) => return Ok(self.global(*global)),
            Expression::LocalVariable(local) => {
                let inner = self.module.types[function.local_variables[*local].ty].inner.clone();
                let base = super::memory::Base::Variable(Variable::Local(id, *local));
                return Ok(Operand::Pointer(Pointer { base, inner, offset: 0, moved: None, index: None }));
            }
            Expression::AccessIndex { base, index } => match self.operand(id, *base)? {
                Operand::Pointer(pointer) => {
                    return Ok(Operand::Pointer(self.point_to_member(&pointer, *index, span)?));
                }
                Operand::Numbers(numbers) => {
                    let inner = self.inner(id, *base);
                    let found = member(self.module, &inner, *index);
                    let (inner, _, first) = found.ok_or_else(|| Refusal::new(span, "expected a member"))?;
                    let count = self.count(&inner, span)?;
                    numbers[first as usize..][..count].to_vec()
                }
            },
            Expression::Access { base, index } => {
                let index = self.number(id, *index)?;
                match self.operand(id, *base)? {
                    Operand::Pointer(pointer) => {
                        return Ok(Operand::Pointer(self.point_to_element(&pointer, index, span)?));
                    }
                    Operand::Numbers(numbers) => {
                        let inner = self.inner(id, *base);
                        self.element_of(&inner, &numbers, index, span)?
                    }
                }
            }
            Expression::Compose { components, .. } => {
                let mut all = Vec::new();
                for component in components {
                    all.extend(self.numbers(id, *component)?);
                }
                all
            }
            Expression::Splat { size, value } => vec![self.number(id, *value)?; *size as usize],
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.numbers(id, *vector)?;
                pattern[..*size as usize].iter().map(|component| vector[*component as usize]).collect()
            }
            Expression::Load { pointer } => {
                let pointer = self.pointer(id, *pointer)?;
                self.load(&pointer, span)?
            }
            Expression::Unary { op, expr } => {
                let operands = self.numbers(id, *expr)?;
                operands.into_iter().map(|x| self.unary(*op, x)).collect()
            }
            Expression::Binary { op, left, right } => self.binary(id, *op, *left, *right, span)?,
            Expression::Select { condition, accept, reject } => {
                let condition = self.numbers(id, *condition)?;
                let (accept, reject) = (self.numbers(id, *accept)?, self.numbers(id, *reject)?);
                let pairs = accept.into_iter().zip(reject).enumerate();
                pairs
                    .map(|(place, (yes, no))| self.select(condition[place.min(condition.len() - 1)], yes, no))
                    .collect()
            }
            Expression::Relational { fun, argument } => {
                let argument = self.numbers(id, *argument)?;
                vec![self.relational(*fun, &argument, span)?]
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let mut arguments = vec![self.numbers(id, *arg)?];
                for argument in [arg1, arg2, arg3].into_iter().flatten() {
                    arguments.push(self.numbers(id, *argument)?);
                }
                let inner = self.inner(id, *arg);
                self.math(*fun, &arguments, &inner, span)?
            }
            Expression::As { expr, kind, convert } => {
                let operands = self.numbers(id, *expr)?;
                let mut results = Vec::new();
                for x in operands {
                    results.push(self.convert(x, *kind, *convert, span)?);
                }
                results
            }
            Expression::ArrayLength(pointer) => {
                let pointer = self.pointer(id, *pointer)?;
                let found = element(self.module, &pointer.inner);
                let found = found.ok_or_else(|| Refusal::new(span, "expected an array"))?;
                let length = self.array_length(&pointer, found.bytes);
                vec![Number::same(Kind::U32, length)]
            }
            other => {
                let name = format!("{other:?}");
                let name = name.split(['(', ' ', '{']).next().unwrap_or_default().to_string();
                return Err(Refusal::new(span, format!("expected what a processor can compute, found `{name}`")));
            }
        };
        Ok(Operand::Numbers(numbers))
    }

    pub(crate) fn count(&self, inner: &TypeInner, span: Span) -> Result<usize> {
        let count = leaf_count(self.module, inner).filter(|count| *count as usize <= crate::types::MAX_LEAVES);
        count
            .map(|count| count as usize)
            .ok_or_else(|| Refusal::new(span, "expected a value of at most some thousand scalars of 16 or 32 bits"))
    }

    /// The scalars of an expression that is known before the program runs.
    pub(crate) fn constant_numbers(
        &mut self,
        arena: &'m Arena<Expression>,
        expression: Handle<Expression>,
        span: Span,
    ) -> Result<Vec<Number>> {
        let module = self.module;
        Ok(match &arena[expression] {
            Expression::Literal(literal) => vec![self.literal(*literal, span)?],
            Expression::Constant(constant) => {
                self.constant_numbers(&module.global_expressions, module.constants[*constant].init, span)?
            }
            Expression::ZeroValue(ty) => {
                let found = leaves(module, &module.types[*ty].inner);
                let found =
                    found.ok_or_else(|| Refusal::new(span, "expected a value of at most some thousand scalars"))?;
                found.iter().map(|leaf| self.constant(leaf.kind, 0.0)).collect()
            }
            Expression::Compose { components, .. } => {
                let mut all = Vec::new();
                for component in components {
                    all.extend(self.constant_numbers(arena, *component, span)?);
                }
                all
            }
            Expression::Splat { size, value } => {
                let value = self.constant_numbers(arena, *value, span)?;
                vec![value[0]; *size as usize]
            }
            other => return Err(Refusal::new(span, format!("expected a constant, found {other:?}"))),
        })
    }

    fn literal(&mut self, literal: Literal, span: Span) -> Result<Number> {
        Ok(match literal {
            Literal::F32(value) => self.f32_same(value),
            Literal::F16(value) => {
                let value = self.b.ins().f32const(f32::from(value));
                Number::same(Kind::F16, value)
            }
            Literal::U32(value) => self.u32_same(value),
            Literal::I32(value) => {
                let value = self.i32(value);
                Number::same(Kind::I32, value)
            }
            Literal::Bool(value) => self.constant(Kind::Bool, f64::from(u8::from(value))),
            other => return Err(Refusal::new(span, format!("expected a literal of 16 or 32 bits, found {other:?}"))),
        })
    }

    /// An element of a value by a computed index, kept in bounds.
    fn element_of(&mut self, inner: &TypeInner, numbers: &[Number], index: Number, span: Span) -> Result<Vec<Number>> {
        let found = element(self.module, inner).ok_or_else(|| Refusal::new(span, "expected elements"))?;
        let length = self.i32((numbers.len() / found.leaves.max(1) as usize) as i32);
        self.check_index(None, Some(Index { number: index, length, stride: 1 }), span)?;
        let (width, index) = (found.leaves as usize, index.with_kind(Kind::U32));
        let mut picked = numbers[numbers.len() - width..].to_vec();
        // From the last one down: an index beyond it gives the last.
        for place in (0..numbers.len() / width - 1).rev() {
            let place_number = self.u32_same(place as u32);
            let is_here = self.compare_int(IntCC::Equal, index, place_number);
            for (word, picked) in picked.iter_mut().enumerate() {
                *picked = self.select(is_here, numbers[place * width + word], *picked);
            }
        }
        Ok(picked)
    }

    fn unary(&mut self, op: UnaryOperator, x: Number) -> Number {
        match (op, x.kind) {
            (UnaryOperator::Negate, Kind::F32 | Kind::F16) => self.map(x.kind, x, |e, x| e.b.ins().fneg(x)),
            (UnaryOperator::Negate, _) => self.map(x.kind, x, |e, x| e.b.ins().ineg(x)),
            (UnaryOperator::LogicalNot, _) => self.not(x),
            (UnaryOperator::BitwiseNot, _) => self.map(x.kind, x, |e, x| e.b.ins().bnot(x)),
        }
    }

    fn relational(&mut self, fun: RelationalFunction, argument: &[Number], span: Span) -> Result<Number> {
        let first = argument[0];
        Ok(match fun {
            RelationalFunction::All => argument[1..].iter().fold(first, |all, x| self.and(all, *x)),
            RelationalFunction::Any => argument[1..].iter().fold(first, |any, x| self.or(any, *x)),
            other => return Err(Refusal::new(span, format!("expected `all` or `any`, found {other:?}"))),
        })
    }

    fn binary(
        &mut self,
        id: ActivationId,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
        span: Span,
    ) -> Result<Vec<Number>> {
        let (left_inner, right_inner) = (self.inner(id, left), self.inner(id, right));
        if op == BinaryOperator::Multiply {
            let (a, b) = (matrix(&left_inner), matrix(&right_inner));
            let is_vector = |inner: &TypeInner| matches!(inner, TypeInner::Vector { .. });
            if (a.is_some() && (b.is_some() || is_vector(&right_inner))) || (b.is_some() && is_vector(&left_inner)) {
                let (x, y) = (self.numbers(id, left)?, self.numbers(id, right)?);
                return Ok(self.matrix_product(&x, &y, a, b));
            }
        }
        if let Some(fused) = self.fused(id, op, left, right)? {
            return Ok(fused);
        }
        let (x, y) = (self.numbers(id, left)?, self.numbers(id, right)?);
        let count = x.len().max(y.len());
        let mut results = Vec::with_capacity(count);
        for place in 0..count {
            let (x, y) = (x[place.min(x.len() - 1)], y[place.min(y.len() - 1)]);
            results.push(self.operator(op, x, y, span)?);
        }
        Ok(results)
    }

    /// A sum or difference whose one side is a product that nobody else needs, with one rounding, which WGSL allows.
    fn fused(
        &mut self,
        id: ActivationId,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Option<Vec<Number>>> {
        if !self.options.fast_math || !self.has_fma || !matches!(op, BinaryOperator::Add | BinaryOperator::Subtract) {
            return Ok(None);
        }
        let activation = &self.analysis.activations[id];
        let (function, info) = (activation.function, activation.info);
        let product = |expression: Handle<Expression>| match function.expressions[expression] {
            Expression::Binary { op: BinaryOperator::Multiply, left, right } if info[expression].ref_count == 1 => {
                let is_plain =
                    |side: Handle<Expression>| matrix(info[side].ty.inner_with(&self.module.types)).is_none();
                (is_plain(left) && is_plain(right)).then_some((left, right))
            }
            _ => None,
        };
        // Across a barrier the factors are gone.
        let product = |expression| product(expression).filter(|_| !self.needs.contains(&(id, expression)));
        let (factors, other, negates_product) = match (product(left), product(right)) {
            (_, Some(factors)) => (factors, left, op == BinaryOperator::Subtract),
            (Some(factors), None) => (factors, right, false),
            _ => return Ok(None),
        };
        let negates_other = op == BinaryOperator::Subtract && !negates_product;
        let (x, y, z) = (self.numbers(id, factors.0)?, self.numbers(id, factors.1)?, self.numbers(id, other)?);
        if z[0].kind != Kind::F32 {
            return Ok(None);
        }
        let count = z.len().max(x.len()).max(y.len());
        let pick = |numbers: &[Number], place: usize| numbers[place.min(numbers.len() - 1)];
        let fuse = |place| {
            let numbers = [pick(&x, place), pick(&y, place), pick(&z, place)];
            self.map3(Kind::F32, numbers, |e, x, y, z| {
                let x = if negates_product { e.b.ins().fneg(x) } else { x };
                let z = if negates_other { e.b.ins().fneg(z) } else { z };
                e.b.ins().fma(x, y, z)
            })
        };
        Ok(Some((0..count).map(fuse).collect()))
    }

    /// Products with matrices, which are columns one after the other.
    fn matrix_product(
        &mut self,
        x: &[Number],
        y: &[Number],
        a: Option<(usize, usize)>,
        b: Option<(usize, usize)>,
    ) -> Vec<Number> {
        // A vector on the left is a row, on the right a column.
        let (inner, rows) = a.unwrap_or((x.len(), 1));
        let columns = b.map_or(1, |(columns, _)| columns);
        let mut results = Vec::with_capacity(rows * columns);
        for column in 0..columns {
            for row in 0..rows {
                let terms: Vec<(Number, Number)> =
                    (0..inner).map(|term| (x[term * rows + row], y[column * inner + term])).collect();
                results.push(self.sum_of_products(&terms));
            }
        }
        results
    }

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
        let sum = self.map2(x.kind, x, y, |e, x, y| e.b.ins().fadd(x, y));
        self.rounded(sum)
    }

    pub(crate) fn subtract(&mut self, x: Number, y: Number) -> Number {
        if x.kind.is_float() {
            let difference = self.map2(x.kind, x, y, |e, x, y| e.b.ins().fsub(x, y));
            return self.rounded(difference);
        }
        let lanes = match (x.lanes, y.lanes) {
            (Lanes::Steps(a, step), Lanes::Same(b)) => Some((a, b, step)),
            (Lanes::Same(a), Lanes::Steps(b, step)) => Some((a, b, step.wrapping_neg())),
            (Lanes::Steps(a, left), Lanes::Steps(b, right)) => Some((a, b, left.wrapping_sub(right))),
            _ => None,
        };
        match lanes {
            Some((a, b, step)) => {
                let base = self.b.ins().isub(a, b);
                self.stepped(x.kind, base, step)
            }
            None => self.map2(x.kind, x, y, |e, x, y| e.b.ins().isub(x, y)),
        }
    }

    pub(crate) fn multiply(&mut self, x: Number, y: Number) -> Number {
        if !x.kind.is_float() {
            return self.multiply_int(x, y);
        }
        let product = self.map2(x.kind, x, y, |e, x, y| e.b.ins().fmul(x, y));
        self.rounded(product)
    }

    pub(crate) fn divide(&mut self, x: Number, y: Number) -> Number {
        let quotient = self.map2(x.kind, x, y, |e, x, y| e.b.ins().fdiv(x, y));
        self.rounded(quotient)
    }

    /// A result of arithmetic as its kind holds it.
    pub(crate) fn rounded(&mut self, x: Number) -> Number {
        if x.kind == Kind::F16 { self.map(Kind::F16, x, Self::round_to_half) } else { x }
    }

    fn stepped(&mut self, kind: Kind, base: cranelift_codegen::ir::Value, step: i32) -> Number {
        let lanes = if step == 0 { Lanes::Same(base) } else { Lanes::Steps(base, step) };
        Number { kind, lanes }
    }

    pub(crate) fn add_int(&mut self, x: Number, y: Number) -> Number {
        let lanes = match (x.lanes, y.lanes) {
            (Lanes::Steps(a, step), Lanes::Same(b)) | (Lanes::Same(a), Lanes::Steps(b, step)) => Some((a, b, step)),
            (Lanes::Steps(a, left), Lanes::Steps(b, right)) => Some((a, b, left.wrapping_add(right))),
            _ => None,
        };
        match lanes {
            Some((a, b, step)) => {
                let base = self.b.ins().iadd(a, b);
                self.stepped(x.kind, base, step)
            }
            None => self.map2(x.kind, x, y, |e, x, y| e.b.ins().iadd(x, y)),
        }
    }

    pub(crate) fn multiply_int(&mut self, x: Number, y: Number) -> Number {
        let (x, y) = if x.is_same() { (y, x) } else { (x, y) };
        if let (Lanes::Steps(a, step), Lanes::Same(b)) = (x.lanes, y.lanes)
            && let Some(factor) = self.known(b)
        {
            let base = self.b.ins().imul(a, b);
            return self.stepped(x.kind, base, step.wrapping_mul(factor as i32));
        }
        self.map2(x.kind, x, y, |e, x, y| e.b.ins().imul(x, y))
    }

    fn operator(&mut self, op: BinaryOperator, x: Number, y: Number, span: Span) -> Result<Number> {
        use BinaryOperator as Op;
        let is_signed = x.kind == Kind::I32;
        Ok(match (op, x.kind) {
            (Op::Add, _) => self.add(x, y),
            (Op::Subtract, _) => self.subtract(x, y),
            (Op::Multiply, _) => self.multiply(x, y),
            (Op::Divide, Kind::F32 | Kind::F16) => self.divide(x, y),
            (Op::Modulo, Kind::F32 | Kind::F16) => self.remainder(x, y),
            (Op::Divide | Op::Modulo, _) => self.divide_int(op == Op::Modulo, x, y),
            (Op::Equal, Kind::Bool) => {
                let differ = self.map2(Kind::Bool, x, y, |e, x, y| e.b.ins().bxor(x, y));
                self.not(differ)
            }
            (Op::NotEqual, Kind::Bool) | (Op::ExclusiveOr, _) => {
                self.map2(x.kind, x, y, |e, x, y| e.b.ins().bxor(x, y))
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
                    let how = match (op, is_signed) {
                        (Op::Equal, _) => IntCC::Equal,
                        (Op::NotEqual, _) => IntCC::NotEqual,
                        (Op::Less, true) => IntCC::SignedLessThan,
                        (Op::Less, false) => IntCC::UnsignedLessThan,
                        (Op::LessEqual, true) => IntCC::SignedLessThanOrEqual,
                        (Op::LessEqual, false) => IntCC::UnsignedLessThanOrEqual,
                        (Op::Greater, true) => IntCC::SignedGreaterThan,
                        (Op::Greater, false) => IntCC::UnsignedGreaterThan,
                        (_, true) => IntCC::SignedGreaterThanOrEqual,
                        (_, false) => IntCC::UnsignedGreaterThanOrEqual,
                    };
                    self.compare_int(how, x, y)
                }
            }
            #[allow(unreachable_patterns)]
            (op, kind) => return Err(Refusal::new(span, format!("expected an operator for {kind:?}, found {op:?}"))),
        })
    }

    /// What is left of a quotient that is rounded towards zero.
    fn remainder(&mut self, x: Number, y: Number) -> Number {
        let remainder = self.map2(x.kind, x, y, |e, x, y| {
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
            return self
                .map_lanes(x.kind, &[x, y], |e, values| e.quotient(is_signed, wants_rest, values[0], values[1]));
        }
        let divisor = self.map2(y.kind, x, y, |e, x, y| {
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

    fn quotient(
        &mut self,
        is_signed: bool,
        wants_rest: bool,
        x: cranelift_codegen::ir::Value,
        y: cranelift_codegen::ir::Value,
    ) -> cranelift_codegen::ir::Value {
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
            return self.stepped(x.kind, base, step.wrapping_shl(known as u32));
        }
        if let Lanes::Same(bits) = y.lanes {
            return self.map(x.kind, x, |e, x| apply(e, x, bits));
        }
        self.map_lanes(x.kind, &[x, y], |e, values| apply(e, values[0], values[1]))
    }

    fn convert(&mut self, x: Number, kind: ScalarKind, convert: Option<u8>, span: Span) -> Result<Number> {
        let target = match (kind, convert) {
            (ScalarKind::Float, Some(2)) => Kind::F16,
            (ScalarKind::Float, Some(4) | None) => Kind::F32,
            (ScalarKind::Sint, Some(4) | None) => Kind::I32,
            (ScalarKind::Uint, Some(4) | None) => Kind::U32,
            (ScalarKind::Bool, _) => Kind::Bool,
            _ => {
                return Err(Refusal::new(
                    span,
                    format!("expected a conversion to 16 or 32 bits, found {kind:?} of {convert:?}"),
                ));
            }
        };
        if convert.is_none() {
            if x.kind == Kind::F16 || x.kind == Kind::Bool {
                return Err(Refusal::new(span, "expected a bitcast of 32 bits, found one of another width"));
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
                if x.kind.is_float() {
                    self.compare_float(FloatCC::NotEqual, x, zero)
                } else {
                    self.compare_int(IntCC::NotEqual, x, zero)
                }
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
