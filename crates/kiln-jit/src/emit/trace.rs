//! NaN that nobody sees: what follows from it where a comparison, a conversion, `min`, `max` or `clamp` makes a number of it.
//!
//! NaN itself carries the place where it was made ([`NAN_SITE`]). What is a number again has that place beside it: the trace, which is 0 where
//! it follows from no NaN. A trace is told where it decides something: a branch, an index, what is written to memory. What is not
//! selected leaves none. Traces end at barriers, in arrays with computed indices and in memory: none is told that is not sure.

use super::lanes::Number;
use super::pointer::{Base, Pointer};
use super::{Emitter, Operand, Result};
use crate::analysis::{ActivationId, Variable, operands_of};
use crate::regions::ValueId;
use crate::sanitize::site::Use;
use crate::sanitize::{Event, NAN_SITE};
use crate::types::member;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable as Register;
use naga::{Arena, BinaryOperator, Expression, Handle, Span};
use std::collections::{BTreeMap, HashMap};

/// The trace of a scalar; `None` where it is known to be 0.
type Trace = Option<Value>;

/// The traces of the running invocation.
#[derive(Default)]
pub(crate) struct Traces {
    expressions: HashMap<ValueId, Vec<Trace>>,
    /// Those of variables in registers: one for each scalar.
    variables: BTreeMap<Variable, Vec<Register>>,
    results: HashMap<ActivationId, Vec<Register>>,
}

impl Emitter<'_, '_> {
    /// Finds the trace of what was computed, and tells one that decides an index.
    pub(crate) fn trace(&mut self, id: ActivationId, expression: Handle<Expression>, operand: &Operand) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        match operand {
            Operand::Numbers(numbers) => {
                let traces = self.traces_of(id, expression, numbers)?;
                if traces.iter().any(Option::is_some) {
                    self.traces.expressions.insert((id, expression), traces);
                }
            }
            Operand::Pointer(pointer) => {
                let given = &self.analysis.activations[id].function.expressions[expression];
                if let Expression::Access { index, .. } = given
                    && let Some(traces) = self.found_traces(id, *index)
                {
                    let site = self.pointer_site(pointer, Use::Compute, self.span(id, expression))?;
                    self.tell(site, None, &traces);
                }
            }
            // As in memory: none.
            Operand::Stored(_) => {}
        }
        Ok(())
    }

    fn traces_of(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        numbers: &[Number],
    ) -> Result<Vec<Trace>> {
        use BinaryOperator as Op;
        let expressions = &self.analysis.activations[id].function.expressions;
        let is_float = numbers.iter().any(|number| number.kind.is_float());
        Ok(match &expressions[expression] {
            Expression::Load { pointer } => {
                let pointer = self.pointer(id, *pointer)?;
                let registers = self.registers_of(&pointer, numbers.len());
                registers.into_iter().map(|register| Some(self.b.use_var(register))).collect()
            }
            Expression::AccessIndex { base, index } => {
                let inner = self.inner(id, *base);
                let first = member(self.module, &inner, *index).map_or(0, |(_, _, first)| first as usize);
                self.known_traces(id, *base)?.into_iter().skip(first).take(numbers.len()).collect()
            }
            Expression::Swizzle { vector, pattern, .. } => {
                let traces = self.known_traces(id, *vector)?;
                pattern[..numbers.len()].iter().map(|component| traces[*component as usize]).collect()
            }
            Expression::Compose { components, .. } => {
                let traces = components.iter().map(|component| self.known_traces(id, *component));
                traces.collect::<Result<Vec<_>>>()?.concat()
            }
            Expression::Select { condition, accept, reject } => {
                let conditions = self.numbers(id, *condition)?;
                let (accept, reject) = (self.known_traces(id, *accept)?, self.known_traces(id, *reject)?);
                let by = self.known_traces(id, *condition)?;
                let pick = |place: usize, of: usize| place.min(of - 1);
                let chosen = |place: usize| {
                    let condition = conditions[pick(place, conditions.len())];
                    let chosen = self.chosen_trace(condition, accept[place], reject[place]);
                    self.first_of(by[pick(place, by.len())], chosen)
                };
                (0..numbers.len()).map(chosen).collect()
            }
            // A test for NaN is what somebody meant.
            Expression::Binary { op: Op::Equal | Op::NotEqual, left, right }
                if is_same(MAX_DEPTH, expressions, *left, *right) =>
            {
                vec![None; numbers.len()]
            }
            Expression::Binary { op: op @ (Op::And | Op::InclusiveOr), left, right } if is_bool(numbers) => {
                let (x, y) = (self.numbers(id, *left)?, self.numbers(id, *right)?);
                let (of_x, of_y) = (self.known_traces(id, *left)?, self.known_traces(id, *right)?);
                let both = |place: usize| {
                    // One side is for nothing where the other one alone says what comes out.
                    let is_and = *op == Op::And;
                    let of_x = self.open_trace(of_x[place], y[place], of_y[place], is_and);
                    let of_y = self.open_trace(of_y[place], x[place], of_x, is_and);
                    self.first_of(of_x, of_y)
                };
                (0..numbers.len()).map(both).collect()
            }
            Expression::As { convert: None, .. } | Expression::ArrayLength(_) => vec![None; numbers.len()],
            given => {
                // Arithmetic hands NaN on; everything else may make a number of it.
                let swallows = !is_float || matches!(given, Expression::Math { .. });
                let mut traces = Vec::new();
                for operand in operands_of(given) {
                    let known = self.known_traces(id, operand)?;
                    traces.push(if swallows { self.with_marks(id, operand, known)? } else { known });
                }
                let traces = self.combined(numbers.len(), &traces);
                numbers.iter().zip(traces).map(|(number, trace)| self.unless_nan(*number, trace)).collect()
            }
        })
    }

    /// The trace of what came out; NaN that is still there needs none.
    fn unless_nan(&mut self, number: Number, trace: Trace) -> Trace {
        let trace = trace?;
        if !number.kind.is_float() {
            return Some(trace);
        }
        let value = self.lane(number, 0);
        let (is_nan, zero) = (self.b.ins().fcmp(FloatCC::NotEqual, value, value), self.i32(0));
        Some(self.b.ins().select(is_nan, zero, trace))
    }

    /// The traces of operands together: place by place, or all of them where they have other shapes.
    fn combined(&mut self, count: usize, operands: &[Vec<Trace>]) -> Vec<Trace> {
        let is_each = operands.iter().all(|traces| traces.len() == 1 || traces.len() == count);
        if is_each {
            let at = |place: usize| {
                operands.iter().fold(None, |all, traces| self.first_of(all, traces[place.min(traces.len() - 1)]))
            };
            return (0..count).map(at).collect();
        }
        let all = operands.iter().flatten().fold(None, |all, trace| self.first_of(all, *trace));
        vec![all; count]
    }

    /// What is known about an expression.
    fn found_traces(&self, id: ActivationId, expression: Handle<Expression>) -> Option<Vec<Trace>> {
        let activation = &self.analysis.activations[id];
        match (&activation.function.expressions[expression], activation.caller) {
            (Expression::FunctionArgument(index), Some((caller, arguments))) => {
                self.found_traces(caller, arguments[*index as usize])
            }
            _ => self.traces.expressions.get(&(id, expression)).cloned(),
        }
    }

    /// A trace for each scalar of an operand.
    fn known_traces(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Vec<Trace>> {
        if let Some(traces) = self.found_traces(id, expression) {
            return Ok(traces);
        }
        let Operand::Numbers(numbers) = self.operand(id, expression)? else { return Ok(vec![None]) };
        Ok(vec![None; numbers.len()])
    }

    /// The traces, and where a scalar is NaN itself, the place that it carries.
    fn with_marks(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        traces: Vec<Trace>,
    ) -> Result<Vec<Trace>> {
        let Operand::Numbers(numbers) = self.operand(id, expression)? else { return Ok(traces) };
        let mark = |(number, trace): (Number, Trace)| {
            if !number.kind.is_float() {
                return trace;
            }
            let value = self.lane(number, 0);
            let is_nan = self.b.ins().fcmp(FloatCC::NotEqual, value, value);
            let bits = self.bits_of(value);
            let (mark, zero) = (self.b.ins().band_imm_u(bits, i64::from(NAN_SITE)), self.i32(0));
            let mark = self.b.ins().select(is_nan, mark, zero);
            self.first_of(Some(mark), trace)
        };
        Ok(numbers.into_iter().zip(traces).map(mark).collect())
    }

    /// The first of two that is not 0.
    fn first_of(&mut self, x: Trace, y: Trace) -> Trace {
        let (Some(x), Some(y)) = (x, y) else { return x.or(y) };
        Some(self.b.ins().select(x, x, y))
    }

    fn chosen_trace(&mut self, condition: Number, accept: Trace, reject: Trace) -> Trace {
        if accept.is_none() && reject.is_none() {
            return None;
        }
        let [accept, reject] = [accept, reject].map(|trace| trace.unwrap_or_else(|| self.i32(0)));
        let condition = self.lane(condition, 0);
        Some(self.b.ins().select(condition, accept, reject))
    }

    /// The trace of one side of `&` or `|`, unless the other side decides alone.
    fn open_trace(&mut self, trace: Trace, other: Number, of_other: Trace, is_and: bool) -> Trace {
        let trace = trace?;
        let (other, zero) = (self.lane(other, 0), self.i32(0));
        let open = if is_and { [trace, zero] } else { [zero, trace] };
        let open = self.b.ins().select(other, open[0], open[1]);
        // What the other side says may be for nothing too.
        Some(of_other.map_or(open, |of_other| self.b.ins().select(of_other, trace, open)))
    }

    /// Where traces of what a pointer leads to are; nowhere where it is no variable in registers.
    fn registers_of(&self, pointer: &Pointer, count: usize) -> Vec<Register> {
        let Base::Variable(variable) = pointer.base else { return Vec::new() };
        let registers = self.traces.variables.get(&variable);
        registers.map_or_else(Vec::new, |registers| {
            registers.iter().skip(pointer.offset as usize).take(count).copied().collect()
        })
    }

    /// A variable begins anew.
    pub(crate) fn start_traces(&mut self, variable: Variable) {
        let count = self.variables.home(variable).registers.len();
        if !self.options.sanitize || count == 0 {
            return;
        }
        if !self.traces.variables.contains_key(&variable) {
            let registers = (0..count).map(|_| self.b.declare_var(types::I32)).collect();
            self.traces.variables.insert(variable, registers);
        }
        let zero = self.i32(0);
        self.traces.variables[&variable].iter().for_each(|register| self.b.def_var(*register, zero));
    }

    /// A region begins: what is known is of another invocation.
    pub(crate) fn forget_traces(&mut self) {
        self.traces.expressions.clear();
        let variables: Vec<Variable> = self.traces.variables.keys().copied().collect();
        variables.into_iter().for_each(|variable| self.start_traces(variable));
    }

    /// A value is written: a variable takes its traces, and where it goes to memory they are told.
    pub(crate) fn trace_store(
        &mut self,
        id: ActivationId,
        pointer: &Pointer,
        value: Handle<Expression>,
        span: Span,
    ) -> Result<()> {
        // What is large is in memory, where traces end.
        if !self.options.sanitize || self.is_large(&pointer.inner) {
            return Ok(());
        }
        let traces = self.known_traces(id, value)?;
        if let Base::Variable(_) = pointer.base {
            let registers = self.registers_of(pointer, traces.len());
            self.set_traces(&registers, &traces);
        } else if traces.iter().any(Option::is_some) {
            let site = self.pointer_site(pointer, Use::Write, span)?;
            self.tell(site, Some(pointer), &traces);
        }
        Ok(())
    }

    fn set_traces(&mut self, registers: &[Register], traces: &[Trace]) {
        for (register, trace) in registers.iter().zip(traces) {
            let trace = trace.unwrap_or_else(|| self.i32(0));
            self.b.def_var(*register, trace);
        }
    }

    /// A function begins whose result has so many scalars.
    pub(crate) fn start_result(&mut self, callee: ActivationId, count: usize) {
        if self.options.sanitize {
            let registers: Vec<Register> = (0..count).map(|_| self.b.declare_var(types::I32)).collect();
            self.set_traces(&registers, &vec![None; count]);
            self.traces.results.insert(callee, registers);
        }
    }

    pub(crate) fn trace_return(&mut self, id: ActivationId, value: Handle<Expression>) -> Result<()> {
        if let Some(registers) = self.traces.results.get(&id).cloned() {
            let traces = self.known_traces(id, value)?;
            self.set_traces(&registers, &traces);
        }
        Ok(())
    }

    /// The result of a function has the traces of what it returned.
    pub(crate) fn trace_result(&mut self, callee: ActivationId, id: ActivationId, result: Handle<Expression>) {
        if let Some(registers) = self.traces.results.remove(&callee) {
            let traces = registers.into_iter().map(|register| Some(self.b.use_var(register))).collect();
            self.traces.expressions.insert((id, result), traces);
        }
    }

    /// Tells where control goes by something that follows from NaN.
    pub(crate) fn check_way(&mut self, id: ActivationId, condition: Handle<Expression>) {
        if let Some(traces) = self.found_traces(id, condition) {
            let site = self.plain_site(Use::Control, self.span(id, condition));
            self.tell(site, None, &traces);
        }
    }

    /// Tells a trace that decides something: what is written to where the pointer leads, where there is one.
    fn tell(&mut self, site: u32, written: Option<&Pointer>, traces: &[Trace]) {
        let Some(trace) = traces.iter().fold(None, |all, trace| self.first_of(all, *trace)) else { return };
        let is_there = self.b.ins().icmp_imm_s(IntCC::NotEqual, trace, 0);
        self.when(is_there, |e| {
            let byte = match written {
                Some(pointer) => e.place_of(pointer, 1),
                None => e.wide(0),
            };
            let numbers = [e.b.ins().uextend(types::I64, trace), byte];
            e.event(Event::FollowNotANumber, site, numbers);
        });
    }
}

fn is_bool(numbers: &[Number]) -> bool {
    numbers.iter().all(|number| number.kind == crate::types::Kind::Bool)
}

/// How far two expressions are compared: each may be made of the same one twice.
const MAX_DEPTH: u32 = 8;

/// Whether two expressions are the same thing, written twice, as far as it is looked.
fn is_same(depth: u32, expressions: &Arena<Expression>, x: Handle<Expression>, y: Handle<Expression>) -> bool {
    use Expression as E;
    let Some(depth) = depth.checked_sub(1) else { return false };
    let same = |x: &Handle<Expression>, y: &Handle<Expression>| is_same(depth, expressions, *x, *y);
    x == y
        || match (&expressions[x], &expressions[y]) {
            (E::Load { pointer: x }, E::Load { pointer: y }) => same(x, y),
            (E::Access { base: x, index: i }, E::Access { base: y, index: j }) => same(x, y) && same(i, j),
            (E::AccessIndex { base: x, index: i }, E::AccessIndex { base: y, index: j }) => same(x, y) && i == j,
            (E::Binary { op, left: x, right: i }, E::Binary { op: other, left: y, right: j }) => {
                op == other && same(x, y) && same(i, j)
            }
            (E::GlobalVariable(x), E::GlobalVariable(y)) => x == y,
            (E::LocalVariable(x), E::LocalVariable(y)) => x == y,
            (E::FunctionArgument(x), E::FunctionArgument(y)) => x == y,
            (E::Literal(x), E::Literal(y)) => x == y,
            _ => false,
        }
}
