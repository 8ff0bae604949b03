//! Expressions: constants, accesses, composites, operators and conversions.

use super::lanes::Scalar;
use super::pointer::{Index, Length, Pointer, length_of};
use super::statement::variant_name;
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::types::{Kind, element, member};
use crate::uniformity::{ActivationId, Variable};
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use naga::{Arena, BinaryOperator, Expression, Handle, Literal, RelationalFunction, Span, TypeInner, UnaryOperator};

/// Returns the columns and rows of a matrix type.
fn matrix(inner: &TypeInner) -> Option<(usize, usize)> {
    match *inner {
        TypeInner::Matrix { columns, rows, .. } => Some((columns as usize, rows as usize)),
        _ => None,
    }
}

/// Maximum number of scalars of a value that a computed index selects from with a chain of selects. Larger
/// values go to memory: the chain is quadratic for the compiler.
const MAX_CHOICES: usize = 64;
/// Values with more scalars count once per scalar in the size limit.
const MANY_SCALARS: usize = 16;

impl<'m> Emitter<'m, '_> {
    /// Emits an expression at its `Emit` statement.
    pub(crate) fn compute(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<()> {
        let operand = self.evaluate(id, expression)?;
        let items = match &operand {
            Operand::Scalars(scalars) if scalars.len() > MANY_SCALARS => scalars.len(),
            _ => 1,
        };
        self.budget.spend(items, self.b.func, self.span(id, expression))?;
        // In this order: later uses, the taint and the spilled copy must all see the NaN that `check_nan`
        // marked.
        let operand = self.check_nan(id, expression, operand)?;
        self.taint(id, expression, &operand)?;
        self.define(id, expression, operand)
    }

    /// Returns the value of an expression. Constants and variables have no `Emit` statement and are evaluated
    /// at each use; Cranelift merges the duplicates.
    pub(crate) fn operand(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Operand> {
        let function = self.uniformity.activations[id].function;
        if let Expression::FunctionArgument(index) = function.expressions[expression] {
            return self.argument(id, index);
        }
        if function.expressions[expression].needs_pre_emit() {
            return self.evaluate(id, expression);
        }
        let found = self.activations[id].expressions.get(&expression).cloned();
        found.ok_or_else(|| {
            CompileError::new(self.span(id, expression), "expected a computed expression, found none yet")
        })
    }

    /// Returns the scalars of a value.
    pub(crate) fn scalars(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Vec<Scalar>> {
        match self.operand(id, expression)? {
            Operand::Scalars(scalars) => Ok(scalars),
            Operand::Pointer(_) => {
                Err(CompileError::new(self.span(id, expression), "expected a value, found a pointer"))
            }
            Operand::Memory(pointer) => Err(self.too_large("a value", &pointer.inner, self.span(id, expression))),
        }
    }

    /// Returns the first scalar of a value.
    pub(crate) fn scalar(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Scalar> {
        Ok(self.scalars(id, expression)?[0])
    }

    /// Returns a pointer.
    pub(crate) fn pointer(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Pointer> {
        match self.operand(id, expression)? {
            Operand::Pointer(pointer) => Ok(pointer),
            _ => Err(CompileError::new(self.span(id, expression), "expected a pointer, found a value")),
        }
    }

    /// Emits the instructions of an expression.
    fn evaluate(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Operand> {
        let function = self.uniformity.activations[id].function;
        let span = self.span(id, expression);
        // Proofs are keyed by the access expression and attached to its index.
        let is_proven = self.proven.contains(&(id, expression));
        let scalars = match &function.expressions[expression] {
            Expression::Literal(_) | Expression::Constant(_) | Expression::ZeroValue(_) => {
                self.constant_scalars(&function.expressions, expression, span)?
            }
            Expression::GlobalVariable(global) => return Ok(self.global(*global)),
            Expression::LocalVariable(local) => {
                let inner = self.module.types[function.local_variables[*local].ty].inner.clone();
                let base = super::pointer::Base::Variable(Variable::Local(id, *local));
                return Ok(Operand::Pointer(Pointer { base, inner, offset: 0, dynamic_offset: None, index: None }));
            }
            Expression::AccessIndex { base, index } => match self.operand(id, *base)? {
                Operand::Pointer(pointer) => {
                    return Ok(Operand::Pointer(self.member_pointer(&pointer, *index, is_proven, span)?));
                }
                // The pointee is a value: it is loaded at once, not kept as a pointer.
                Operand::Memory(pointer) => {
                    let part = self.member_pointer(&pointer, *index, is_proven, span)?;
                    return self.load_part(part, span);
                }
                Operand::Scalars(scalars) => {
                    let inner = self.inner(id, *base);
                    let found = member(self.module, &inner, *index);
                    let (inner, _, first) = found.ok_or_else(|| CompileError::new(span, "expected a member"))?;
                    let count = self.type_fields("a value", &inner, span)?.len();
                    scalars[first as usize..][..count].to_vec()
                }
            },
            Expression::Access { base, index } => {
                let index = self.scalar(id, *index)?;
                match self.operand(id, *base)? {
                    Operand::Pointer(pointer) => {
                        return Ok(Operand::Pointer(self.element_pointer(&pointer, index, is_proven, span)?));
                    }
                    Operand::Memory(pointer) => {
                        let part = self.element_pointer(&pointer, index, is_proven, span)?;
                        return self.load_part(part, span);
                    }
                    Operand::Scalars(scalars) => {
                        let inner = self.inner(id, *base);
                        // Registers cannot be indexed: use selects, or a copy in memory for long values.
                        if scalars.len() <= MAX_CHOICES {
                            self.element_of(&inner, &scalars, index, span)?
                        } else {
                            let stored = self.spill_to_memory(Variable::Value(id, *base), inner, &scalars, span)?;
                            let part = self.element_pointer(&stored, index, is_proven, span)?;
                            return self.load_part(part, span);
                        }
                    }
                }
            }
            Expression::Compose { components, .. } => {
                let all = components.iter().map(|component| self.scalars(id, *component));
                all.collect::<Result<Vec<_>>>()?.concat()
            }
            Expression::Splat { size, value } => vec![self.scalar(id, *value)?; *size as usize],
            // No instruction: scalars are separate values, so composing and swizzling only reorder them.
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.scalars(id, *vector)?;
                pattern[..*size as usize].iter().map(|component| vector[*component as usize]).collect()
            }
            Expression::Load { pointer } => {
                let pointer = self.pointer(id, *pointer)?;
                return self.load_value(id, expression, &pointer, span);
            }
            Expression::Unary { op, expr } => {
                let operands = self.scalars(id, *expr)?;
                operands.into_iter().map(|x| self.unary(*op, x)).collect()
            }
            Expression::Binary { op, left, right } => self.binary(id, *op, *left, *right)?,
            Expression::Select { condition, accept, reject } => {
                let condition = self.scalars(id, *condition)?;
                let (accept, reject) = (self.scalars(id, *accept)?, self.scalars(id, *reject)?);
                // A scalar condition applies to all components.
                let pairs = accept.into_iter().zip(reject).enumerate();
                pairs.map(|(i, (yes, no))| self.select(condition[i.min(condition.len() - 1)], yes, no)).collect()
            }
            Expression::Relational { fun, argument } => {
                let argument = self.scalars(id, *argument)?;
                vec![self.relational(*fun, &argument, span)?]
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let mut arguments = vec![self.scalars(id, *arg)?];
                for argument in [arg1, arg2, arg3].into_iter().flatten() {
                    arguments.push(self.scalars(id, *argument)?);
                }
                let inner = self.inner(id, *arg);
                self.math(*fun, &arguments, &inner, span)?
            }
            Expression::As { expr, kind, convert } => {
                let operands = self.scalars(id, *expr)?.into_iter();
                operands.map(|x| self.convert(x, *kind, *convert, span)).collect::<Result<_>>()?
            }
            Expression::ArrayLength(pointer) => {
                let pointer = self.pointer(id, *pointer)?;
                let found = element(self.module, &pointer.inner);
                let found = found.ok_or_else(|| CompileError::new(span, "expected an array"))?;
                let length = length_of(&pointer, &found, span)?;
                let length = self.length_value(length);
                vec![Scalar::uniform(Kind::U32, length)]
            }
            other => {
                let name = variant_name(other);
                return Err(CompileError::new(
                    span,
                    format!("expected an expression that the CPU device supports, found `{name}`"),
                ));
            }
        };
        Ok(Operand::Scalars(scalars))
    }

    /// Returns the scalars of a constant expression.
    pub(crate) fn constant_scalars(
        &mut self,
        arena: &'m Arena<Expression>,
        expression: Handle<Expression>,
        span: Span,
    ) -> Result<Vec<Scalar>> {
        let module = self.module;
        Ok(match &arena[expression] {
            Expression::Literal(literal) => vec![self.literal(*literal, span)?],
            Expression::Constant(constant) => {
                self.constant_scalars(&module.global_expressions, module.constants[*constant].init, span)?
            }
            Expression::ZeroValue(ty) => self.zeros(&module.types[*ty].inner, span)?,
            Expression::Compose { components, .. } => {
                let all = components.iter().map(|component| self.constant_scalars(arena, *component, span));
                all.collect::<Result<Vec<_>>>()?.concat()
            }
            Expression::Splat { size, value } => {
                let value = self.constant_scalars(arena, *value, span)?;
                vec![value[0]; *size as usize]
            }
            other => return Err(CompileError::new(span, format!("expected a constant, found {other:?}"))),
        })
    }

    /// Returns the scalar of a literal.
    fn literal(&mut self, literal: Literal, span: Span) -> Result<Scalar> {
        Ok(match literal {
            Literal::F32(value) => self.f32_uniform(value),
            Literal::F16(value) => {
                let value = self.b.ins().f32const(f32::from(value));
                Scalar::uniform(Kind::F16, value)
            }
            Literal::U32(value) => self.u32_uniform(value),
            Literal::I32(value) => {
                let value = self.i32_const(value);
                Scalar::uniform(Kind::I32, value)
            }
            Literal::Bool(value) => self.constant(Kind::Bool, f64::from(u8::from(value))),
            other => {
                return Err(CompileError::new(span, format!("expected a literal of 16 or 32 bits, found {other:?}")));
            }
        })
    }

    /// Selects an element of a value in registers by a computed index, clamped to the last element.
    fn element_of(&mut self, inner: &TypeInner, scalars: &[Scalar], index: Scalar, span: Span) -> Result<Vec<Scalar>> {
        let found = element(self.module, inner).ok_or_else(|| CompileError::new(span, "expected elements"))?;
        let length = Length::Static(scalars.len() as u32 / found.scalars.max(1));
        self.check_index(None, Some(Index { value: index, length, stride: 1, is_proven: false }), span)?;
        let (width, index) = (found.scalars as usize, index.with_kind(Kind::U32));
        let mut picked = scalars[scalars.len() - width..].to_vec();
        // Start with the last element, so that an index beyond the end keeps it.
        for i in (0..scalars.len() / width - 1).rev() {
            let position = self.u32_uniform(i as u32);
            let is_here = self.compare_int(IntCC::Equal, index, position);
            for (word, picked) in picked.iter_mut().enumerate() {
                *picked = self.select(is_here, scalars[i * width + word], *picked);
            }
        }
        Ok(picked)
    }

    /// Emits a unary operator.
    fn unary(&mut self, op: UnaryOperator, x: Scalar) -> Scalar {
        match (op, x.kind) {
            (UnaryOperator::Negate, Kind::F32 | Kind::F16) => self.map(x.kind, x, |e, x| e.b.ins().fneg(x)),
            (UnaryOperator::Negate, _) => self.map(x.kind, x, |e, x| e.b.ins().ineg(x)),
            (UnaryOperator::LogicalNot, _) => self.not(x),
            (UnaryOperator::BitwiseNot, _) => self.map(x.kind, x, |e, x| e.b.ins().bnot(x)),
        }
    }

    /// Emits `all` or `any`.
    fn relational(&mut self, fun: RelationalFunction, argument: &[Scalar], span: Span) -> Result<Scalar> {
        let first = argument[0];
        Ok(match fun {
            RelationalFunction::All => argument[1..].iter().fold(first, |all, x| self.and(all, *x)),
            RelationalFunction::Any => argument[1..].iter().fold(first, |any, x| self.or(any, *x)),
            other => return Err(CompileError::new(span, format!("expected `all` or `any`, found {other:?}"))),
        })
    }

    /// Emits a binary operator, componentwise unless it is a matrix product.
    fn binary(
        &mut self,
        id: ActivationId,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Vec<Scalar>> {
        let (left_inner, right_inner) = (self.inner(id, left), self.inner(id, right));
        if op == BinaryOperator::Multiply {
            let (a, b) = (matrix(&left_inner), matrix(&right_inner));
            let is_vector = |inner: &TypeInner| matches!(inner, TypeInner::Vector { .. });
            if (a.is_some() && (b.is_some() || is_vector(&right_inner))) || (b.is_some() && is_vector(&left_inner)) {
                let (x, y) = (self.scalars(id, left)?, self.scalars(id, right)?);
                return Ok(self.matrix_product(&x, &y, a, b));
            }
        }
        if let Some(fused) = self.fused(id, op, left, right)? {
            return Ok(fused);
        }
        let (x, y) = (self.scalars(id, left)?, self.scalars(id, right)?);
        let at = |scalars: &[Scalar], i: usize| scalars[i.min(scalars.len() - 1)];
        Ok((0..x.len().max(y.len())).map(|i| self.operator(op, at(&x, i), at(&y, i))).collect())
    }

    /// Contracts a sum or difference with a product into a fused multiply-add, if nothing else uses the
    /// product. WGSL permits it. Returns `None` if the expression has another form.
    fn fused(
        &mut self,
        id: ActivationId,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Option<Vec<Scalar>>> {
        if !self.options.fast_math
            || !self.runtime.has_fma
            || !matches!(op, BinaryOperator::Add | BinaryOperator::Subtract)
        {
            return Ok(None);
        }
        let activation = &self.uniformity.activations[id];
        let (function, info) = (activation.function, activation.info);
        let product = |expression: Handle<Expression>| match function.expressions[expression] {
            Expression::Binary { op: BinaryOperator::Multiply, left, right } if info[expression].ref_count == 1 => {
                let is_plain =
                    |side: Handle<Expression>| matrix(info[side].ty.inner_with(&self.module.types)).is_none();
                (is_plain(left) && is_plain(right)).then_some((left, right))
            }
            _ => None,
        };
        // The factors of a product from another region were not reloaded, only the product was.
        let product = |expression| product(expression).filter(|_| !self.spills.is_live_in((id, expression)));
        // Of two products only the right one is fused; the left one is rounded on its own.
        let (factors, other, negates_product) = match (product(left), product(right)) {
            (_, Some(factors)) => (factors, left, op == BinaryOperator::Subtract),
            (Some(factors), None) => (factors, right, false),
            _ => return Ok(None),
        };
        let negates_other = op == BinaryOperator::Subtract && !negates_product;
        let (x, y, z) = (self.scalars(id, factors.0)?, self.scalars(id, factors.1)?, self.scalars(id, other)?);
        // An `f16` must be rounded after the product too, and integers have no such instruction.
        if z[0].kind != Kind::F32 {
            return Ok(None);
        }
        let count = z.len().max(x.len()).max(y.len());
        let pick = |scalars: &[Scalar], i: usize| scalars[i.min(scalars.len() - 1)];
        // `a * b - c` and `c - a * b` use the same instruction, because negating an operand is exact.
        let fuse = |i| {
            let scalars = [pick(&x, i), pick(&y, i), pick(&z, i)];
            self.map_all(Kind::F32, scalars, |e, [x, y, z]| {
                let x = if negates_product { e.b.ins().fneg(x) } else { x };
                let z = if negates_other { e.b.ins().fneg(z) } else { z };
                e.b.ins().fma(x, y, z)
            })
        };
        Ok(Some((0..count).map(fuse).collect()))
    }

    /// Multiplies matrices, or a matrix and a vector. Matrices are stored column by column.
    fn matrix_product(
        &mut self,
        x: &[Scalar],
        y: &[Scalar],
        a: Option<(usize, usize)>,
        b: Option<(usize, usize)>,
    ) -> Vec<Scalar> {
        // A vector on the left is a row, a vector on the right a column.
        let (inner, rows) = a.unwrap_or((x.len(), 1));
        let columns = b.map_or(1, |(columns, _)| columns);
        let mut results = Vec::with_capacity(rows * columns);
        for column in 0..columns {
            for row in 0..rows {
                let terms: Vec<(Scalar, Scalar)> =
                    (0..inner).map(|term| (x[term * rows + row], y[column * inner + term])).collect();
                results.push(self.sum_of_products(&terms));
            }
        }
        results
    }
}
