//! Instrumentation for the sanitizer. Gangs have one lane, so every call concerns one invocation.

use super::lanes::Scalar;
use super::pointer::{Base, Index, Length, Pointer};
use super::{Emitter, Operand, Result};
use crate::operands::operands_of;
use crate::sanitizer::site::{Object, Site, SiteKind};
use crate::sanitizer::{Event, NAN_SITE_MASK};
use crate::types::{Kind, flatten};
use crate::uniformity::{ActivationId, Variable};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{AddressSpace, BinaryOperator, Expression, Handle, Module, Span, StorageAccess, Type, TypeInner};

impl Emitter<'_, '_> {
    /// Adds a site that belongs to no variable.
    pub(crate) fn plain_site(&mut self, kind: SiteKind, span: Span) -> u32 {
        self.add_site(Site::plain(kind, span))
    }

    /// Adds a site. If it has no span, it gets that of the current statement.
    fn add_site(&mut self, site: Site) -> u32 {
        let span = if site.span.is_defined() { site.span } else { self.current_span };
        self.site_table.add_site(Site { span, ..site })
    }

    /// Adds a site for an access through a pointer.
    pub(crate) fn pointer_site(&mut self, pointer: &Pointer, kind: SiteKind, span: Span) -> Result<u32> {
        // Variables of an invocation are tracked by scalar index, so their size in bytes is not needed.
        let (mut bytes, mut granularity) = (0, 4);
        if !matches!(pointer.base, Base::Variable(_)) {
            let found = self.pointee_fields(pointer, span)?;
            bytes = found.last().map_or(0, |field| field.offset + field.kind.bytes());
            granularity = found.iter().map(|field| field.kind.bytes()).min().unwrap_or(4);
        }
        let globals = &self.module.global_variables;
        let (name, ty, object, start) = match pointer.base {
            Base::Variable(variable) => {
                let (name, ty) = match variable {
                    Variable::Private(handle) => (globals[handle].name.clone(), Some(globals[handle].ty)),
                    Variable::Local(id, handle) => {
                        let local = &self.uniformity.activations[id].function.local_variables[handle];
                        (local.name.clone(), Some(local.ty))
                    }
                    Variable::Value(..) => (None, None),
                };
                (name, ty, Object::Untracked, self.site_table.uninit(variable).unwrap_or(0))
            }
            base => {
                let found = self.layout.global_at(base, pointer.offset);
                let variable = found.map(|(handle, _)| &globals[handle]);
                // Read-only buffers cannot race, so they are not tracked.
                let is_written = variable.is_some_and(|variable| match variable.space {
                    AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
                    _ => false,
                });
                let object = match base {
                    Base::Binding(binding) if is_written => Object::Binding(binding),
                    Base::Workgroup => Object::Workgroup,
                    _ => Object::Untracked,
                };
                let name = variable.and_then(|variable| variable.name.clone());
                (name, variable.map(|variable| variable.ty), object, found.map_or(0, |(_, start)| start))
            }
        };
        // Findings name the element of the variable, computed from these and the offset of the access.
        let (first, stride) = match (ty, pointer.base) {
            (Some(ty), Base::Variable(_)) => (0, scalars_of_an_element(self.module, ty)),
            (Some(ty), _) => elements(self.module, ty),
            (None, _) => (0, 0),
        };
        let (first, name) = (first + start, name.unwrap_or_default());
        Ok(self.add_site(Site { kind, object, bytes, granularity, first, stride, line: 0, column: 0, name, span }))
    }

    /// Emits a sanitizer call for the current invocation.
    pub(crate) fn event(&mut self, event: Event, site: u32, arguments: [Value; 2]) {
        // With one lane per gang, the index of the gang is the `local_invocation_index`.
        self.runtime.event(&mut self.b, event, site, self.gang.index, arguments);
    }

    /// Emits an `i64` constant.
    pub(crate) fn i64_const(&mut self, value: impl Into<i64>) -> Value {
        self.b.ins().iconst(types::I64, value.into())
    }

    /// Compares an index with the length: the condition and the index. `None` if it is known to be in bounds.
    fn out_of_bounds_condition(&mut self, index: Index) -> Option<(Value, Value)> {
        let index_value = self.lane(index.value, 0);
        // No check for constants that are in bounds, which keeps instrumented code smaller.
        if let (Some(index_value), Length::Static(length)) = (self.as_iconst(index_value), index.length)
            && (index_value as u32) < length
        {
            return None;
        }
        let length = self.length_value(index.length);
        // Unsigned, so that a negative `i32` is out of bounds as well.
        Some((self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index_value, length), index_value))
    }

    /// Emits the report of an index that is out of bounds.
    fn report_out_of_bounds(&mut self, site: u32, index_value: Value, length: Length) {
        let length = self.length_value(length);
        let arguments = [index_value, length].map(|value| self.b.ins().uextend(types::I64, value));
        self.event(Event::OutOfBounds, site, arguments);
    }

    /// Checks an index that is followed by another one, or an index into a value.
    /// [`check_access`](Self::check_access) checks the last index of a pointer.
    pub(crate) fn check_index(&mut self, pointer: Option<&Pointer>, index: Option<Index>, span: Span) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        let Some((index, (is_out_of_bounds, index_value))) =
            index.and_then(|index| Some((index, self.out_of_bounds_condition(index)?)))
        else {
            return Ok(());
        };
        let site = match pointer {
            Some(pointer) => self.pointer_site(pointer, SiteKind::Compute, span)?,
            None => self.plain_site(SiteKind::Compute, span),
        };
        self.emit_if(is_out_of_bounds, |e| e.report_out_of_bounds(site, index_value, index.length));
        Ok(())
    }

    /// Checks an access before it happens. An access that is out of bounds is reported as such and not tracked
    /// further.
    pub(crate) fn check_access(&mut self, pointer: &Pointer, kind: SiteKind, span: Span) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        // Accesses to atomics never race with each other, so they have kinds of their own.
        let kind = match (&pointer.inner, kind) {
            (TypeInner::Atomic(_), SiteKind::Write) => SiteKind::AtomicWrite,
            (TypeInner::Atomic(_), _) => SiteKind::Atomic,
            _ => kind,
        };
        let site = self.pointer_site(pointer, kind, span)?;
        let count = self.pointee_fields(pointer, span)?.len();
        // Earlier indices of the pointer were checked when it was derived.
        let is_out_of_bounds = pointer.index.and_then(|index| Some((index, self.out_of_bounds_condition(index)?)));
        let Some((index, (is_out_of_bounds, index_value))) = is_out_of_bounds else {
            self.emit_access(pointer, site, count);
            return Ok(());
        };
        // An access that is out of bounds is clamped to an element that the program does not mean, so tracking
        // it would report false races.
        self.emit_if_else(
            is_out_of_bounds,
            |e| {
                e.report_out_of_bounds(site, index_value, index.length);
                Vec::new()
            },
            |e| {
                e.emit_access(pointer, site, count);
                Vec::new()
            },
        );
        Ok(())
    }

    /// Emits the tracking of an access: initialisation of variables, races on shared memory.
    fn emit_access(&mut self, pointer: &Pointer, site: u32, count: usize) {
        let zero = self.i64_const(0);
        match pointer.base {
            Base::Variable(variable) => {
                let Some(first) = self.site_table.uninit(variable) else { return };
                let offset = self.object_offset(pointer, first);
                let is_write = self.site_table.site(site).kind == SiteKind::Write;
                let (event, count) =
                    (if is_write { Event::MarkInit } else { Event::CheckInit }, self.i64_const(count as i64));
                self.event(event, site, [offset, count]);
            }
            Base::Binding(_) | Base::Workgroup if self.site_table.site(site).object == Object::Untracked => {}
            Base::Binding(_) | Base::Workgroup => {
                let offset = self.object_offset(pointer, 0);
                self.event(Event::Access, site, [offset, zero]);
            }
        }
    }

    /// Offset of the pointee from the start of its object, plus `first`.
    pub(crate) fn object_offset(&mut self, pointer: &Pointer, first: u32) -> Value {
        let start = first + pointer.offset;
        match self.dynamic_offset(pointer) {
            Some(dynamic_offset) => {
                let dynamic_offset = self.lane(dynamic_offset, 0);
                let dynamic_offset = self.b.ins().uextend(types::I64, dynamic_offset);
                self.b.ins().iadd_imm_s(dynamic_offset, i64::from(start))
            }
            None => self.i64_const(start),
        }
    }

    /// Reports NaN that is stored to memory which outlives the invocation.
    pub(crate) fn check_stored(&mut self, pointer: &Pointer, values: &[Scalar], span: Span) -> Result<()> {
        if !self.options.sanitize || matches!(pointer.base, Base::Variable(_)) {
            return Ok(());
        }
        let floats: Vec<Scalar> = values.iter().copied().filter(|scalar| scalar.kind.is_float()).collect();
        if floats.is_empty() {
            return Ok(());
        }
        let site = self.pointer_site(pointer, SiteKind::Compute, span)?;
        for scalar in floats {
            let value = self.lane(scalar, 0);
            let is_nan = self.b.ins().fcmp(FloatCC::NotEqual, value, value);
            self.emit_if(is_nan, |e| {
                let bits = e.f32_to_bits(value);
                let (bits, byte) = (e.b.ins().uextend(types::I64, bits), e.object_offset(pointer, 1));
                e.event(Event::NanStored, site, [bits, byte]);
            });
        }
        Ok(())
    }

    /// Marks NaN that arithmetic created from numbers with its site.
    pub(crate) fn check_nan(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        operand: Operand,
    ) -> Result<Operand> {
        use BinaryOperator as Op;
        let given = &self.uniformity.activations[id].function.expressions[expression];
        let is_arithmetic = match given {
            Expression::Binary { op, .. } => {
                matches!(op, Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo)
            }
            Expression::Math { .. } => true,
            _ => false,
        };
        let Operand::Scalars(mut scalars) = operand else { return Ok(operand) };
        if !self.options.sanitize || !is_arithmetic || !scalars.iter().any(|scalar| scalar.kind.is_float()) {
            return Ok(Operand::Scalars(scalars));
        }
        let mut inputs = Vec::new();
        for operand in operands_of(given) {
            inputs.extend(self.scalars(id, operand)?.into_iter().filter(|scalar| scalar.kind.is_float()));
        }
        if inputs.is_empty() {
            return Ok(Operand::Scalars(scalars));
        }
        let inputs: Vec<Value> = inputs.into_iter().map(|scalar| self.lane(scalar, 0)).collect();
        // NaN in, NaN out is propagation. Only NaN from numbers is a new fault.
        let mut has_nan_free_inputs = self.b.ins().iconst(types::I8, 1);
        for input in &inputs {
            let is_number = self.b.ins().fcmp(FloatCC::Equal, *input, *input);
            has_nan_free_inputs = self.b.ins().band(has_nan_free_inputs, is_number);
        }
        // The event has room for two operands, and a vector result does not tell which components were
        // involved.
        let reported = if scalars.len() == 1 && inputs.len() <= 2 { inputs } else { Vec::new() };
        self.mark_created_nan(&mut scalars, has_nan_free_inputs, &reported, self.span(id, expression));
        Ok(Operand::Scalars(scalars))
    }

    /// Replaces NaN among results by a NaN whose payload is the site, if no input was NaN, and records its
    /// creation. `reported` are the operands to show, if they are few.
    pub(crate) fn mark_created_nan(
        &mut self,
        scalars: &mut [Scalar],
        has_nan_free_inputs: Value,
        reported: &[Value],
        span: Span,
    ) {
        let site = self.plain_site(SiteKind::Compute, span);
        // A quiet NaN: processors propagate its payload through arithmetic. Sites count from 1, so that 0 means
        // no site.
        let mark = f32::from_bits(0x7fc0_0000 | ((site + 1) & NAN_SITE_MASK));
        for scalar in scalars.iter_mut().filter(|scalar| scalar.kind.is_float()) {
            let value = self.lane(*scalar, 0);
            let is_nan = self.b.ins().fcmp(FloatCC::NotEqual, value, value);
            let is_made = self.b.ins().band(is_nan, has_nan_free_inputs);
            self.emit_if(is_made, |e| e.report_nan(site, reported));
            let mark = self.b.ins().f32const(mark);
            let value = self.b.ins().select(is_made, mark, value);
            *scalar = Scalar::uniform(scalar.kind, value);
        }
    }

    /// Emits the event of a created NaN with up to two operands, packed into one argument.
    fn report_nan(&mut self, site: u32, operands: &[Value]) {
        let mut bits = self.i64_const(0);
        for (i, operand) in operands.iter().enumerate() {
            let word = self.f32_to_bits(*operand);
            let word = self.b.ins().uextend(types::I64, word);
            let word = self.b.ins().ishl_imm_u(word, 32 * i as i64);
            bits = self.b.ins().bor(bits, word);
        }
        let count = self.i64_const(operands.len() as i64);
        self.event(Event::NanCreated, site, [bits, count]);
    }

    /// Emits a check that all invocations agree on a condition of uniform control flow.
    pub(crate) fn check_uniform_condition(&mut self, scalar: Scalar, span: Span) {
        if !self.options.sanitize {
            return;
        }
        let value = self.lane(scalar, 0);
        // The sanitizer prints the value, so its sign matters.
        let value = match scalar.kind {
            Kind::I32 => self.b.ins().sextend(types::I64, value),
            _ => self.b.ins().uextend(types::I64, value),
        };
        let (site, is_bool) = (self.plain_site(SiteKind::Control, span), self.i64_const(scalar.kind == Kind::Bool));
        self.event(Event::UniformCondition, site, [value, is_bool]);
    }

    /// Returns the variable that a store re-initialises. naga lowers `var x: T;` in a loop to a store of zeros
    /// whose span is that of the variable; the source has no such store.
    pub(crate) fn implicit_zero_init(
        &self,
        id: ActivationId,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    ) -> Option<Variable> {
        let function = self.uniformity.activations[id].function;
        match (&function.expressions[pointer], &function.expressions[value]) {
            (Expression::LocalVariable(local), Expression::ZeroValue(_)) => {
                let span = function.expressions.get_span(value);
                let is_implied = span.is_defined() && span == function.local_variables.get_span(*local);
                is_implied.then_some(Variable::Local(id, *local))
            }
            _ => None,
        }
    }

    /// Marks a variable of the current invocation as uninitialised.
    pub(crate) fn mark_uninitialised(&mut self, variable: Variable, count: usize) {
        if !self.options.sanitize {
            return;
        }
        let first = self.site_table.add_uninit(variable, count);
        let arguments = [self.i64_const(first), self.i64_const(count as i64)];
        self.event(Event::MarkUninit, 0, arguments);
    }
}

/// Scalars per element of a variable that is an array; 0 otherwise.
fn scalars_of_an_element(module: &Module, ty: Handle<Type>) -> u32 {
    match module.types[ty].inner {
        TypeInner::Array { base, .. } => {
            flatten(module, &module.types[base].inner).map_or(0, |leaves| leaves.len() as u32)
        }
        _ => 0,
    }
}

/// Offset of the first element and distance between elements, in bytes, of a variable that is or ends with an
/// array; zeros otherwise.
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
