//! Values with too many scalars for registers. They live in memory and are copied part by part in loops.

use super::lanes::Scalar;
use super::pointer::{Base, Pointer};
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::types::{Kind, MAX_VALUE_SCALARS, ScalarField, flatten, scalar_count};
use crate::uniformity::{ActivationId, Variable};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{ArraySize, Expression, Handle, Span, TypeInner};

/// Maximum number of scalars copied at once: those of the largest matrix.
const PART_SCALARS: u32 = 16;

impl Emitter<'_, '_> {
    /// Flattens a type that must fit into registers.
    pub(crate) fn type_fields(&self, what: &str, inner: &TypeInner, span: Span) -> Result<Vec<ScalarField>> {
        flatten(self.module, inner).ok_or_else(|| self.too_large(what, inner, span))
    }

    /// The error for a value with too many scalars.
    pub(crate) fn too_large(&self, what: &str, inner: &TypeInner, span: Span) -> CompileError {
        let found = scalar_count(self.module, inner).map_or_else(|| format!("{inner:?}"), |count| count.to_string());
        CompileError::new(span, format!("expected {what} of at most {MAX_VALUE_SCALARS} scalars, found {found}"))
    }

    /// Whether a type has too many scalars for registers.
    pub(crate) fn is_large(&self, inner: &TypeInner) -> bool {
        scalar_count(self.module, inner).is_some_and(|count| count as usize > MAX_VALUE_SCALARS)
    }

    /// Loads the pointee as the value of an expression. A large one is copied, because the original may be
    /// written later.
    pub(crate) fn load_value(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        from: &Pointer,
        span: Span,
    ) -> Result<Operand> {
        if !self.is_large(&from.inner) {
            return Ok(Operand::Scalars(self.load(from, span)?));
        }
        let variable = Variable::Value(id, expression);
        self.declare(variable, &from.inner, span, false)?;
        // A variable that no statement names: the copy belongs to the expression.
        let base = Base::Variable(variable);
        let to = Pointer { base, inner: from.inner.clone(), offset: 0, dynamic_offset: None, index: None };
        self.store_parts(&to, Some(from), span)?;
        Ok(Operand::Memory(to))
    }

    /// Stores a value from registers to memory, so that a computed index can select an element.
    pub(crate) fn spill_to_memory(
        &mut self,
        variable: Variable,
        inner: TypeInner,
        scalars: &[Scalar],
        span: Span,
    ) -> Result<Pointer> {
        // Declared once, stored at every access: the value may differ between loop iterations.
        // `declare` places the variables of this set in memory, so the insertion comes first.
        if self.uniformity.dynamically_indexed.insert(variable) {
            self.declare(variable, &inner, span, false)?;
        }
        let stored = Pointer { base: Base::Variable(variable), inner, offset: 0, dynamic_offset: None, index: None };
        self.budget.cost += scalars.len() as u64;
        self.store(&stored, scalars, span)?;
        Ok(stored)
    }

    /// Loads a part of a value in memory. A large part needs no copy, because such memory is not written again.
    pub(crate) fn load_part(&mut self, from: Pointer, span: Span) -> Result<Operand> {
        Ok(if self.is_large(&from.inner) { Operand::Memory(from) } else { Operand::Scalars(self.load(&from, span)?) })
    }

    /// Stores the value of an expression, copying a large one.
    pub(crate) fn store_value(
        &mut self,
        to: &Pointer,
        id: ActivationId,
        value: Handle<Expression>,
        span: Span,
    ) -> Result<()> {
        if self.is_large(&to.inner) {
            if self.is_zero(&self.uniformity.activations[id].function.expressions, value) {
                return self.store_parts(to, None, span);
            }
            if let Operand::Memory(from) = self.operand(id, value)? {
                return self.store_parts(to, Some(&from), span);
            }
        }
        let scalars = self.scalars(id, value)?;
        self.store(to, &scalars, span)
    }

    /// Stores the pointee of `from`, or zeros.
    fn store_parts(&mut self, to: &Pointer, from: Option<&Pointer>, span: Span) -> Result<()> {
        let module = self.module;
        // Small enough to go through registers.
        if scalar_count(module, &to.inner).is_some_and(|count| count <= PART_SCALARS) {
            let scalars = match from {
                Some(from) => self.load(from, span)?,
                None => self.zeros(&to.inner, span)?,
            };
            return self.store(to, &scalars, span);
        }
        match &to.inner {
            TypeInner::Struct { members, .. } => {
                // Members have different types, so they are unrolled.
                for (index, _) in (0..).zip(members) {
                    let part = self.member_pointer(to, index, false, span)?;
                    let from = from.map(|from| self.member_pointer(from, index, false, span)).transpose()?;
                    self.store_parts(&part, from.as_ref(), span)?;
                }
                Ok(())
            }
            // Elements are alike, so one loop copies them. Unrolling would make the code as long as the value.
            TypeInner::Array { size: ArraySize::Constant(length), .. } => {
                self.counted_loop(length.get(), |e, index| {
                    let index = Scalar::uniform(Kind::U32, index);
                    let part = e.element_pointer(to, index, false, span)?;
                    let from = from.map(|from| e.element_pointer(from, index, false, span)).transpose()?;
                    e.store_parts(&part, from.as_ref(), span)
                })
            }
            other => Err(CompileError::new(span, format!("expected a value of scalars, found {other:?}"))),
        }
    }

    /// Returns the scalars of a zero value.
    pub(crate) fn zeros(&mut self, inner: &TypeInner, span: Span) -> Result<Vec<Scalar>> {
        Ok(self.type_fields("a value", inner, span)?.iter().map(|field| self.constant(field.kind, 0.0)).collect())
    }

    /// Emits a loop with a constant trip count of at least one. `emit` gets the index of the iteration.
    pub(crate) fn counted_loop(&mut self, count: u32, emit: impl FnOnce(&mut Self, Value) -> Result<()>) -> Result<()> {
        // The body is emitted once, and the condition is at the end, so `count` must be at least one.
        let counter = self.b.declare_var(types::I32);
        let zero = self.i32_const(0);
        self.b.def_var(counter, zero);
        let (body, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(body, &[]);
        self.b.switch_to_block(body);
        let (index, before) = (self.b.use_var(counter), self.budget.cost);
        emit(self, index)?;
        if let Some(cost) = self.budget.end_counted_loop(before, count) {
            self.runtime.spend_fuel(&mut self.b, cost);
        }
        let index = self.b.use_var(counter);
        let next = self.b.ins().iadd_imm_s(index, 1);
        self.b.def_var(counter, next);
        let continues = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, i64::from(count));
        self.b.ins().brif(continues, body, &[], after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }
}
