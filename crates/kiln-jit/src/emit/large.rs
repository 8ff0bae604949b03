//! Values of more scalars than a program may have in registers: copies in memory, made part by part in loops.

use super::lanes::Number;
use super::pointer::{Base, Pointer};
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::{ActivationId, Variable};
use crate::types::{Kind, Leaf, MAX_LEAVES, leaf_count, leaves};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{ArraySize, Expression, Handle, Span, TypeInner};

/// The most scalars of a part: what is no array or struct has no more.
const PART_SCALARS: u32 = 16;

impl Emitter<'_, '_> {
    /// The scalars of what is to be in registers.
    pub(crate) fn scalars(&self, what: &str, inner: &TypeInner, span: Span) -> Result<Vec<Leaf>> {
        leaves(self.module, inner).ok_or_else(|| self.too_large(what, inner, span))
    }

    pub(crate) fn too_large(&self, what: &str, inner: &TypeInner, span: Span) -> Refusal {
        let found = leaf_count(self.module, inner).map_or_else(|| format!("{inner:?}"), |count| count.to_string());
        Refusal::new(span, format!("expected {what} of at most {MAX_LEAVES} scalars, found {found}"))
    }

    pub(crate) fn is_large(&self, inner: &TypeInner) -> bool {
        leaf_count(self.module, inner).is_some_and(|count| count as usize > MAX_LEAVES)
    }

    /// What a pointer leads to, as the value of an expression: a copy, since the original may change.
    pub(crate) fn load_value(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        from: &Pointer,
        span: Span,
    ) -> Result<Operand> {
        if !self.is_large(&from.inner) {
            return Ok(Operand::Numbers(self.load(from, span)?));
        }
        let variable = Variable::Value(id, expression);
        self.declare(variable, &from.inner, span, false)?;
        let base = Base::Variable(variable);
        let to = Pointer { base, inner: from.inner.clone(), offset: 0, moved: None, index: None };
        self.store_parts(&to, Some(from), span)?;
        Ok(Operand::Stored(to))
    }

    /// A value of registers in memory, where it is indexed by computed numbers.
    pub(crate) fn put_into_memory(
        &mut self,
        variable: Variable,
        inner: TypeInner,
        numbers: &[Number],
        span: Span,
    ) -> Result<Pointer> {
        if self.analysis.indexed.insert(variable) {
            self.declare(variable, &inner, span, false)?;
        }
        let stored = Pointer { base: Base::Variable(variable), inner, offset: 0, moved: None, index: None };
        self.budget.cost += numbers.len() as u64;
        self.store(&stored, numbers, span)?;
        Ok(stored)
    }

    /// A part of a value in memory, which is not written any more.
    pub(crate) fn part(&mut self, from: Pointer, span: Span) -> Result<Operand> {
        Ok(if self.is_large(&from.inner) { Operand::Stored(from) } else { Operand::Numbers(self.load(&from, span)?) })
    }

    pub(crate) fn store_value(
        &mut self,
        to: &Pointer,
        id: ActivationId,
        value: Handle<Expression>,
        span: Span,
    ) -> Result<()> {
        if self.is_large(&to.inner) {
            if self.is_zero(&self.analysis.activations[id].function.expressions, value) {
                return self.store_parts(to, None, span);
            }
            if let Operand::Stored(from) = self.operand(id, value)? {
                return self.store_parts(to, Some(&from), span);
            }
        }
        let numbers = self.numbers(id, value)?;
        self.store(to, &numbers, span)
    }

    /// Stores what another pointer leads to, or zeros.
    fn store_parts(&mut self, to: &Pointer, from: Option<&Pointer>, span: Span) -> Result<()> {
        let module = self.module;
        if leaf_count(module, &to.inner).is_some_and(|count| count <= PART_SCALARS) {
            let numbers = match from {
                Some(from) => self.load(from, span)?,
                None => self.zeros(&to.inner, span)?,
            };
            return self.store(to, &numbers, span);
        }
        match &to.inner {
            TypeInner::Struct { members, .. } => {
                for (index, _) in (0..).zip(members) {
                    let part = self.point_to_member(to, index, false, span)?;
                    let from = from.map(|from| self.point_to_member(from, index, false, span)).transpose()?;
                    self.store_parts(&part, from.as_ref(), span)?;
                }
                Ok(())
            }
            TypeInner::Array { size: ArraySize::Constant(length), .. } => self.times(length.get(), |e, place| {
                let place = Number::same(Kind::U32, place);
                let part = e.point_to_element(to, place, false, span)?;
                let from = from.map(|from| e.point_to_element(from, place, false, span)).transpose()?;
                e.store_parts(&part, from.as_ref(), span)
            }),
            other => Err(Refusal::new(span, format!("expected a value of scalars, found {other:?}"))),
        }
    }

    pub(crate) fn zeros(&mut self, inner: &TypeInner, span: Span) -> Result<Vec<Number>> {
        Ok(self.scalars("a value", inner, span)?.iter().map(|leaf| self.constant(leaf.kind, 0.0)).collect())
    }

    /// Emits something that runs once or more, with the number of the round from zero on.
    pub(crate) fn times(&mut self, count: u32, emit: impl FnOnce(&mut Self, Value) -> Result<()>) -> Result<()> {
        let round = self.b.declare_var(types::I32);
        let zero = self.i32(0);
        self.b.def_var(round, zero);
        let (body, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(body, &[]);
        self.b.switch_to_block(body);
        let (number, before) = (self.b.use_var(round), self.budget.cost);
        emit(self, number)?;
        if let Some(cost) = self.budget.end_rounds(before, count) {
            self.runtime.spend_fuel(&mut self.b, cost);
        }
        let number = self.b.use_var(round);
        let next = self.b.ins().iadd_imm_s(number, 1);
        self.b.def_var(round, next);
        let goes_on = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, i64::from(count));
        self.b.ins().brif(goes_on, body, &[], after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }
}
