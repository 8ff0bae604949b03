//! Expressions: constants, composites, operators, conversions.

use super::lanes::Number;
use super::pointer::{Index, Length, Pointer, length_of};
use super::statement::variant_name;
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::{ActivationId, Variable};
use crate::types::{Kind, element, member};
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use naga::{Arena, BinaryOperator, Expression, Handle, Literal, RelationalFunction, Span, TypeInner, UnaryOperator};

/// The type of a matrix, as its columns and rows.
fn matrix(inner: &TypeInner) -> Option<(usize, usize)> {
    match *inner {
        TypeInner::Matrix { columns, rows, .. } => Some((columns as usize, rows as usize)),
        _ => None,
    }
}

/// The most scalars of a value in registers of which a computed index chooses one after the other.
const MAX_CHOICES: usize = 64;
/// Values of more scalars count by these in the size of a program, not as one.
const MANY_SCALARS: usize = 16;

impl<'m> Emitter<'m, '_> {
    /// Computes an expression where the program says so.
    pub(crate) fn compute(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<()> {
        let operand = self.evaluate(id, expression)?;
        let items = match &operand {
            Operand::Numbers(numbers) if numbers.len() > MANY_SCALARS => numbers.len(),
            _ => 1,
        };
        self.budget.spend(items, self.b.func, self.span(id, expression))?;
        let operand = self.check_number(id, expression, operand)?;
        self.trace(id, expression, &operand)?;
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
        let found = self.activations[id].expressions.get(&expression).cloned();
        found.ok_or_else(|| Refusal::new(self.span(id, expression), "expected a computed expression, found none yet"))
    }

    pub(crate) fn numbers(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Vec<Number>> {
        match self.operand(id, expression)? {
            Operand::Numbers(numbers) => Ok(numbers),
            Operand::Pointer(_) => Err(Refusal::new(self.span(id, expression), "expected a value, found a pointer")),
            Operand::Stored(pointer) => Err(self.too_large("a value", &pointer.inner, self.span(id, expression))),
        }
    }

    pub(crate) fn number(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Number> {
        Ok(self.numbers(id, expression)?[0])
    }

    pub(crate) fn pointer(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Pointer> {
        match self.operand(id, expression)? {
            Operand::Pointer(pointer) => Ok(pointer),
            _ => Err(Refusal::new(self.span(id, expression), "expected a pointer, found a value")),
        }
    }

    fn evaluate(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Operand> {
        let function = self.analysis.activations[id].function;
        let span = self.span(id, expression);
        let is_proven = self.proven.contains(&(id, expression));
        let numbers = match &function.expressions[expression] {
            Expression::Literal(_) | Expression::Constant(_) | Expression::ZeroValue(_) => {
                self.constant_numbers(&function.expressions, expression, span)?
            }
            Expression::GlobalVariable(global) => return Ok(self.global(*global)),
            Expression::LocalVariable(local) => {
                let inner = self.module.types[function.local_variables[*local].ty].inner.clone();
                let base = super::pointer::Base::Variable(Variable::Local(id, *local));
                return Ok(Operand::Pointer(Pointer { base, inner, offset: 0, moved: None, index: None }));
            }
            Expression::AccessIndex { base, index } => match self.operand(id, *base)? {
                Operand::Pointer(pointer) => {
                    return Ok(Operand::Pointer(self.point_to_member(&pointer, *index, is_proven, span)?));
                }
                Operand::Stored(pointer) => {
                    let part = self.point_to_member(&pointer, *index, is_proven, span)?;
                    return self.part(part, span);
                }
                Operand::Numbers(numbers) => {
                    let inner = self.inner(id, *base);
                    let found = member(self.module, &inner, *index);
                    let (inner, _, first) = found.ok_or_else(|| Refusal::new(span, "expected a member"))?;
                    let count = self.scalars("a value", &inner, span)?.len();
                    numbers[first as usize..][..count].to_vec()
                }
            },
            Expression::Access { base, index } => {
                let index = self.number(id, *index)?;
                match self.operand(id, *base)? {
                    Operand::Pointer(pointer) => {
                        return Ok(Operand::Pointer(self.point_to_element(&pointer, index, is_proven, span)?));
                    }
                    Operand::Stored(pointer) => {
                        let part = self.point_to_element(&pointer, index, is_proven, span)?;
                        return self.part(part, span);
                    }
                    Operand::Numbers(numbers) => {
                        let inner = self.inner(id, *base);
                        if numbers.len() <= MAX_CHOICES {
                            self.element_of(&inner, &numbers, index, span)?
                        } else {
                            let stored = self.put_into_memory(Variable::Value(id, *base), inner, &numbers, span)?;
                            let part = self.point_to_element(&stored, index, is_proven, span)?;
                            return self.part(part, span);
                        }
                    }
                }
            }
            Expression::Compose { components, .. } => {
                let all = components.iter().map(|component| self.numbers(id, *component));
                all.collect::<Result<Vec<_>>>()?.concat()
            }
            Expression::Splat { size, value } => vec![self.number(id, *value)?; *size as usize],
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.numbers(id, *vector)?;
                pattern[..*size as usize].iter().map(|component| vector[*component as usize]).collect()
            }
            Expression::Load { pointer } => {
                let pointer = self.pointer(id, *pointer)?;
                return self.load_value(id, expression, &pointer, span);
            }
            Expression::Unary { op, expr } => {
                let operands = self.numbers(id, *expr)?;
                operands.into_iter().map(|x| self.unary(*op, x)).collect()
            }
            Expression::Binary { op, left, right } => self.binary(id, *op, *left, *right)?,
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
                let operands = self.numbers(id, *expr)?.into_iter();
                operands.map(|x| self.convert(x, *kind, *convert, span)).collect::<Result<_>>()?
            }
            Expression::ArrayLength(pointer) => {
                let pointer = self.pointer(id, *pointer)?;
                let found = element(self.module, &pointer.inner);
                let found = found.ok_or_else(|| Refusal::new(span, "expected an array"))?;
                let length = length_of(&pointer, &found, span)?;
                let length = self.length_value(length);
                vec![Number::same(Kind::U32, length)]
            }
            other => {
                let name = variant_name(other);
                return Err(Refusal::new(span, format!("expected what a processor can compute, found `{name}`")));
            }
        };
        Ok(Operand::Numbers(numbers))
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
            Expression::ZeroValue(ty) => self.zeros(&module.types[*ty].inner, span)?,
            Expression::Compose { components, .. } => {
                let all = components.iter().map(|component| self.constant_numbers(arena, *component, span));
                all.collect::<Result<Vec<_>>>()?.concat()
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
        let length = Length::Known(numbers.len() as u32 / found.leaves.max(1));
        self.check_index(None, Some(Index { number: index, length, stride: 1, is_proven: false }), span)?;
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
        let at = |numbers: &[Number], place: usize| numbers[place.min(numbers.len() - 1)];
        Ok((0..x.len().max(y.len())).map(|place| self.operator(op, at(&x, place), at(&y, place))).collect())
    }

    /// A sum or difference whose one side is a product that nobody else needs, with one rounding, which WGSL allows.
    fn fused(
        &mut self,
        id: ActivationId,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Option<Vec<Number>>> {
        if !self.options.fast_math
            || !self.runtime.has_fma
            || !matches!(op, BinaryOperator::Add | BinaryOperator::Subtract)
        {
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
        let product = |expression| product(expression).filter(|_| !self.spills.is_live_in((id, expression)));
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
            self.map_all(Kind::F32, numbers, |e, [x, y, z]| {
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
}
