//! Calls of the sanitizer, where a program is compiled with it: one invocation at a time, so that each has its own.

use super::lanes::Number;
use super::pointer::{Base, Index, Length, Pointer};
use super::{Emitter, Operand, Result};
use crate::analysis::{ActivationId, Variable, operands_of};
use crate::sanitize::site::{Object, Site, Use};
use crate::sanitize::{Event, NAN_SITE};
use crate::types::{Kind, leaves};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{AddressSpace, BinaryOperator, Expression, Handle, Module, Span, StorageAccess, Type, TypeInner};

impl Emitter<'_, '_> {
    /// The number of a site that belongs to no variable.
    pub(crate) fn plain_site(&mut self, what: Use, span: Span) -> u32 {
        self.add_site(Site::plain(what, span))
    }

    /// Not every expression knows where it is; its statement does.
    fn add_site(&mut self, site: Site) -> u32 {
        let span = if site.span.is_defined() { site.span } else { self.here };
        self.hooks.add_site(Site { span, ..site })
    }

    /// The number of a place that takes what a pointer leads to.
    pub(crate) fn pointer_site(&mut self, pointer: &Pointer, what: Use, span: Span) -> Result<u32> {
        let (mut bytes, mut grain) = (0, 4);
        if !matches!(pointer.base, Base::Variable(_)) {
            let found = self.leaves_of(pointer, span)?;
            bytes = found.last().map_or(0, |leaf| leaf.offset + leaf.kind.bytes());
            grain = found.iter().map(|leaf| leaf.kind.bytes()).min().unwrap_or(4);
        }
        let globals = &self.module.global_variables;
        let (name, ty, object, start) = match pointer.base {
            Base::Variable(variable) => {
                let (name, ty) = match variable {
                    Variable::Private(handle) => (globals[handle].name.clone(), Some(globals[handle].ty)),
                    Variable::Local(id, handle) => {
                        let local = &self.analysis.activations[id].function.local_variables[handle];
                        (local.name.clone(), Some(local.ty))
                    }
                    Variable::Value(..) => (None, None),
                };
                (name, ty, Object::Own, self.hooks.unwritten(variable).unwrap_or(0))
            }
            base => {
                let found = self.layout.global_at(base, pointer.offset);
                let variable = found.map(|(handle, _)| &globals[handle]);
                let is_written = variable.is_some_and(|variable| match variable.space {
                    AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
                    _ => false,
                });
                let object = match base {
                    Base::Bound(binding) if is_written => Object::Bound(binding),
                    Base::Shared => Object::Shared,
                    _ => Object::Own,
                };
                let name = variable.and_then(|variable| variable.name.clone());
                (name, variable.map(|variable| variable.ty), object, found.map_or(0, |(_, start)| start))
            }
        };
        let (first, stride) = match (ty, pointer.base) {
            (Some(ty), Base::Variable(_)) => (0, scalars_of_an_element(self.module, ty)),
            (Some(ty), _) => elements(self.module, ty),
            (None, _) => (0, 0),
        };
        let (first, name) = (first + start, name.unwrap_or_default());
        Ok(self.add_site(Site { what, object, bytes, grain, first, stride, line: 0, column: 0, name, span }))
    }

    /// Calls the sanitizer about the running invocation.
    pub(crate) fn event(&mut self, event: Event, site: u32, numbers: [Value; 2]) {
        self.runtime.event(&mut self.b, event, site, self.gang.index, numbers);
    }

    pub(crate) fn wide(&mut self, value: impl Into<i64>) -> Value {
        self.b.ins().iconst(types::I64, value.into())
    }

    /// Whether an index is beyond the end; `None` where it is known not to be.
    fn is_outside(&mut self, index: Index) -> Option<(Value, Value)> {
        let number = self.lane(index.number, 0);
        if let (Some(number), Length::Known(length)) = (self.known(number), index.length)
            && (number as u32) < length
        {
            return None;
        }
        let length = self.length_value(index.length);
        Some((self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, number, length), number))
    }

    fn report_outside(&mut self, site: u32, number: Value, length: Length) {
        let length = self.length_value(length);
        let numbers = [number, length].map(|value| self.b.ins().uextend(types::I64, value));
        self.event(Event::OutOfBounds, site, numbers);
    }

    /// Checks an index that is followed by another one, or that is into a value.
    pub(crate) fn check_index(&mut self, pointer: Option<&Pointer>, index: Option<Index>, span: Span) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        let Some((index, (is_outside, number))) = index.and_then(|index| Some((index, self.is_outside(index)?))) else {
            return Ok(());
        };
        let site = match pointer {
            Some(pointer) => self.pointer_site(pointer, Use::Compute, span)?,
            None => self.plain_site(Use::Compute, span),
        };
        self.when(is_outside, |e| e.report_outside(site, number, index.length));
        Ok(())
    }

    /// Checks an access before it happens. One beyond the end is no other access.
    pub(crate) fn check_access(&mut self, pointer: &Pointer, what: Use, span: Span) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        let what = match (&pointer.inner, what) {
            (TypeInner::Atomic(_), Use::Write) => Use::AtomicWrite,
            (TypeInner::Atomic(_), _) => Use::Atomic,
            _ => what,
        };
        let site = self.pointer_site(pointer, what, span)?;
        let count = self.leaves_of(pointer, span)?.len();
        let is_outside = pointer.index.and_then(|index| Some((index, self.is_outside(index)?)));
        let Some((index, (is_outside, number))) = is_outside else {
            self.note_access(pointer, site, count);
            return Ok(());
        };
        self.either(
            is_outside,
            |e| {
                e.report_outside(site, number, index.length);
                Vec::new()
            },
            |e| {
                e.note_access(pointer, site, count);
                Vec::new()
            },
        );
        Ok(())
    }

    fn note_access(&mut self, pointer: &Pointer, site: u32, count: usize) {
        let zero = self.wide(0);
        match pointer.base {
            Base::Variable(variable) => {
                let Some(first) = self.hooks.unwritten(variable) else { return };
                let place = self.place_of(pointer, first);
                let is_write = self.hooks.site(site).what == Use::Write;
                let (event, count) = (if is_write { Event::Write } else { Event::Check }, self.wide(count as i64));
                self.event(event, site, [place, count]);
            }
            Base::Bound(_) | Base::Shared if self.hooks.site(site).object == Object::Own => {}
            Base::Bound(_) | Base::Shared => {
                let offset = self.place_of(pointer, 0);
                self.event(Event::Access, site, [offset, zero]);
            }
        }
    }

    /// How far what a pointer leads to is from the beginning of its object, and from `first` on.
    pub(crate) fn place_of(&mut self, pointer: &Pointer, first: u32) -> Value {
        let start = first + pointer.offset;
        match self.moved(pointer) {
            Some(moved) => {
                let moved = self.lane(moved, 0);
                let moved = self.b.ins().uextend(types::I64, moved);
                self.b.ins().iadd_imm_s(moved, i64::from(start))
            }
            None => self.wide(start),
        }
    }

    /// Tells of NaN among numbers that are written to memory which outlives the invocation.
    pub(crate) fn check_stored(&mut self, pointer: &Pointer, values: &[Number], span: Span) -> Result<()> {
        if !self.options.sanitize || matches!(pointer.base, Base::Variable(_)) {
            return Ok(());
        }
        let floats: Vec<Number> = values.iter().copied().filter(|number| number.kind.is_float()).collect();
        if floats.is_empty() {
            return Ok(());
        }
        let site = self.pointer_site(pointer, Use::Compute, span)?;
        for number in floats {
            let value = self.lane(number, 0);
            let is_nan = self.b.ins().fcmp(FloatCC::NotEqual, value, value);
            self.when(is_nan, |e| {
                let bits = e.bits_of(value);
                let (bits, byte) = (e.b.ins().uextend(types::I64, bits), e.place_of(pointer, 1));
                e.event(Event::StoreNotANumber, site, [bits, byte]);
            });
        }
        Ok(())
    }

    /// Marks NaN that arithmetic made of numbers with the place where it did.
    pub(crate) fn check_number(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        operand: Operand,
    ) -> Result<Operand> {
        use BinaryOperator as Op;
        let given = &self.analysis.activations[id].function.expressions[expression];
        let is_arithmetic = match given {
            Expression::Binary { op, .. } => {
                matches!(op, Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo)
            }
            Expression::Math { .. } => true,
            _ => false,
        };
        let Operand::Numbers(mut numbers) = operand else { return Ok(operand) };
        if !self.options.sanitize || !is_arithmetic || !numbers.iter().any(|number| number.kind.is_float()) {
            return Ok(Operand::Numbers(numbers));
        }
        let mut inputs = Vec::new();
        for operand in operands_of(given) {
            inputs.extend(self.numbers(id, operand)?.into_iter().filter(|number| number.kind.is_float()));
        }
        if inputs.is_empty() {
            return Ok(Operand::Numbers(numbers));
        }
        let inputs: Vec<Value> = inputs.into_iter().map(|number| self.lane(number, 0)).collect();
        let mut is_clean = self.b.ins().iconst(types::I8, 1);
        for input in &inputs {
            let is_number = self.b.ins().fcmp(FloatCC::Equal, *input, *input);
            is_clean = self.b.ins().band(is_clean, is_number);
        }
        let shown = if numbers.len() == 1 && inputs.len() <= 2 { inputs } else { Vec::new() };
        self.mark_made(&mut numbers, is_clean, &shown, self.span(id, expression));
        Ok(Operand::Numbers(numbers))
    }

    /// Marks and tells NaN among numbers that were made of clean ones, which are shown where they are few.
    pub(crate) fn mark_made(&mut self, numbers: &mut [Number], is_clean: Value, shown: &[Value], span: Span) {
        let site = self.plain_site(Use::Compute, span);
        let mark = f32::from_bits(0x7fc0_0000 | ((site + 1) & NAN_SITE));
        for number in numbers.iter_mut().filter(|number| number.kind.is_float()) {
            let value = self.lane(*number, 0);
            let is_nan = self.b.ins().fcmp(FloatCC::NotEqual, value, value);
            let is_made = self.b.ins().band(is_nan, is_clean);
            self.when(is_made, |e| e.report_nan(site, shown));
            let mark = self.b.ins().f32const(mark);
            let value = self.b.ins().select(is_made, mark, value);
            *number = Number::same(number.kind, value);
        }
    }

    fn report_nan(&mut self, site: u32, operands: &[Value]) {
        let mut bits = self.wide(0);
        for (place, operand) in operands.iter().enumerate() {
            let word = self.bits_of(*operand);
            let word = self.b.ins().uextend(types::I64, word);
            let word = self.b.ins().ishl_imm_u(word, 32 * place as i64);
            bits = self.b.ins().bor(bits, word);
        }
        let count = self.wide(operands.len() as i64);
        self.event(Event::NotANumber, site, [bits, count]);
    }

    /// Notes what the running invocation says about the way of the work-group.
    pub(crate) fn check_decision(&mut self, number: Number, span: Span) {
        if !self.options.sanitize {
            return;
        }
        let value = self.lane(number, 0);
        let value = match number.kind {
            Kind::I32 => self.b.ins().sextend(types::I64, value),
            _ => self.b.ins().uextend(types::I64, value),
        };
        let (site, is_bool) = (self.plain_site(Use::Control, span), self.wide(number.kind == Kind::Bool));
        self.event(Event::Decide, site, [value, is_bool]);
    }

    /// The variable that a store begins anew, as naga writes it for one without a value in a loop: the zeros are where the variable is.
    pub(crate) fn begins_anew(
        &self,
        id: ActivationId,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    ) -> Option<Variable> {
        let function = self.analysis.activations[id].function;
        match (&function.expressions[pointer], &function.expressions[value]) {
            (Expression::LocalVariable(local), Expression::ZeroValue(_)) => {
                let span = function.expressions.get_span(value);
                let is_implied = span.is_defined() && span == function.local_variables.get_span(*local);
                is_implied.then_some(Variable::Local(id, *local))
            }
            _ => None,
        }
    }

    /// Notes that a variable of the running invocation begins without a value.
    pub(crate) fn forget(&mut self, variable: Variable, count: usize) {
        if !self.options.sanitize {
            return;
        }
        let first = self.hooks.add_unwritten(variable, count);
        let numbers = [self.wide(first), self.wide(count as i64)];
        self.event(Event::Forget, 0, numbers);
    }
}

/// Scalars from one element of a variable of an invocation to the next; 0 where it has none.
fn scalars_of_an_element(module: &Module, ty: Handle<Type>) -> u32 {
    match module.types[ty].inner {
        TypeInner::Array { base, .. } => {
            leaves(module, &module.types[base].inner).map_or(0, |leaves| leaves.len() as u32)
        }
        _ => 0,
    }
}

/// Where the elements of a variable begin, and the bytes from one to the next; 0 where it has none.
fn elements(module: &Module, ty: Handle<Type>) -> (u32, u32) {
    match &module.types[ty].inner {
        TypeInner::Array { stride, .. } => (0, *stride),
        TypeInner::Struct { members, .. } => match members.last() {
            Some(last) => match module.types[last.ty].inner {
                TypeInner::Array { stride, .. } => (last.offset, stride),
                _ => (0, 0),
            },
            None => (0, 0),
        },
        _ => (0, 0),
    }
}
