//! Taint tracking for NaN that is no longer visible: a comparison, a conversion, `min`, `max` or `clamp` turns
//! NaN into a number or boolean.
//!
//! NaN itself carries the site where it was created in its payload ([`NAN_SITE_MASK`]). A value computed from
//! NaN that is not NaN has that site as its *taint*, in a separate register; 0 means untainted. A taint is
//! reported where it influences something: a branch, an index, or what is written to memory. The side of a
//! select that is not chosen contributes no taint. Tracking stops at barriers, in dynamically indexed arrays
//! and in memory, so there are false negatives. A test for NaN is only recognised as `x == x` or `x != x`; any
//! other guard against NaN is reported.
//!
//! Instrumented code has gangs of one lane, so lane 0 of a value is the value of the invocation.

use super::lanes::Scalar;
use super::pointer::{Base, Pointer};
use super::{Emitter, Operand, Result};
use crate::operands::operands_of;
use crate::regions::ValueId;
use crate::sanitizer::site::SiteKind;
use crate::sanitizer::{Event, NAN_SITE_MASK};
use crate::types::member;
use crate::uniformity::{ActivationId, Variable};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable as Register;
use naga::{Arena, BinaryOperator, Expression, Handle, Span};
use std::collections::{BTreeMap, HashMap};

/// The taint of a scalar; `None` if it is known to be 0.
type Taint = Option<Value>;

/// Taints of the current invocation.
#[derive(Default)]
pub(crate) struct Taints {
    /// One per scalar; expressions without taint have no entry.
    expressions: HashMap<ValueId, Vec<Taint>>,
    /// Of variables in registers, one per scalar.
    variables: BTreeMap<Variable, Vec<Register>>,
    /// Of function results.
    results: HashMap<ActivationId, Vec<Register>>,
}

impl Emitter<'_, '_> {
    /// Computes the taint of an expression, and reports a tainted index.
    pub(crate) fn taint(&mut self, id: ActivationId, expression: Handle<Expression>, operand: &Operand) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        match operand {
            Operand::Scalars(scalars) => {
                let taints = self.compute_taints(id, expression, scalars)?;
                if taints.iter().any(Option::is_some) {
                    self.taints.expressions.insert((id, expression), taints);
                }
            }
            Operand::Pointer(pointer) => {
                let given = &self.uniformity.activations[id].function.expressions[expression];
                if let Expression::Access { index, .. } = given
                    && let Some(taints) = self.lookup_taints(id, *index)
                {
                    let site = self.pointer_site(pointer, SiteKind::Compute, self.span(id, expression))?;
                    self.report_taint(site, None, &taints);
                }
            }
            // Memory is not tracked.
            Operand::Memory(_) => {}
        }
        Ok(())
    }

    /// Returns the taint of each scalar of an expression.
    fn compute_taints(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        scalars: &[Scalar],
    ) -> Result<Vec<Taint>> {
        use BinaryOperator as Op;
        let expressions = &self.uniformity.activations[id].function.expressions;
        let is_float = scalars.iter().any(|scalar| scalar.kind.is_float());
        Ok(match &expressions[expression] {
            Expression::Load { pointer } => {
                let pointer = self.pointer(id, *pointer)?;
                // Empty for memory, which is not tracked; then no taint is recorded.
                let registers = self.taint_registers(&pointer, scalars.len());
                registers.into_iter().map(|register| Some(self.b.use_var(register))).collect()
            }
            Expression::AccessIndex { base, index } => {
                let inner = self.inner(id, *base);
                let first = member(self.module, &inner, *index).map_or(0, |(_, _, first)| first as usize);
                self.operand_taints(id, *base)?.into_iter().skip(first).take(scalars.len()).collect()
            }
            Expression::Swizzle { vector, pattern, .. } => {
                let taints = self.operand_taints(id, *vector)?;
                pattern[..scalars.len()].iter().map(|component| taints[*component as usize]).collect()
            }
            Expression::Compose { components, .. } => {
                let taints = components.iter().map(|component| self.operand_taints(id, *component));
                taints.collect::<Result<Vec<_>>>()?.concat()
            }
            Expression::Select { condition, accept, reject } => {
                let conditions = self.scalars(id, *condition)?;
                let (accept, reject) = (self.operand_taints(id, *accept)?, self.operand_taints(id, *reject)?);
                // The condition counts in any case: it decided which side is taken.
                let by = self.operand_taints(id, *condition)?;
                let pick = |i: usize, of: usize| i.min(of - 1);
                let chosen = |i: usize| {
                    let condition = conditions[pick(i, conditions.len())];
                    let chosen = self.select_taint(condition, accept[i], reject[i]);
                    self.merge_taints(by[pick(i, by.len())], chosen)
                };
                (0..scalars.len()).map(chosen).collect()
            }
            // `x != x` is a deliberate test for NaN.
            Expression::Binary { op: Op::Equal | Op::NotEqual, left, right }
                if is_same_expression(MAX_DEPTH, expressions, *left, *right) =>
            {
                vec![None; scalars.len()]
            }
            Expression::Binary { op: op @ (Op::And | Op::InclusiveOr), left, right } if is_bool(scalars) => {
                let (x, y) = (self.scalars(id, *left)?, self.scalars(id, *right)?);
                let (of_x, of_y) = (self.operand_taints(id, *left)?, self.operand_taints(id, *right)?);
                let both = |i: usize| {
                    // One side has no influence if the other one alone decides the result.
                    let is_and = *op == Op::And;
                    let of_x = self.unmasked_taint(of_x[i], y[i], of_y[i], is_and);
                    let of_y = self.unmasked_taint(of_y[i], x[i], of_x, is_and);
                    self.merge_taints(of_x, of_y)
                };
                (0..scalars.len()).map(both).collect()
            }
            Expression::As { convert: None, .. } | Expression::ArrayLength(_) => vec![None; scalars.len()],
            given => {
                // Float arithmetic propagates NaN with its payload. Everything else may turn NaN into a number.
                let swallows = !is_float || matches!(given, Expression::Math { .. });
                let mut taints = Vec::new();
                for operand in operands_of(given) {
                    let known = self.operand_taints(id, operand)?;
                    taints.push(if swallows { self.with_nan_payloads(id, operand, known)? } else { known });
                }
                let taints = self.merge_operand_taints(scalars.len(), &taints);
                scalars.iter().zip(taints).map(|(scalar, taint)| self.clear_if_nan(*scalar, taint)).collect()
            }
        })
    }

    /// Returns the taint of a result. If the result is NaN, its payload is enough.
    fn clear_if_nan(&mut self, scalar: Scalar, taint: Taint) -> Taint {
        let taint = taint?;
        if !scalar.kind.is_float() {
            return Some(taint);
        }
        let value = self.lane(scalar, 0);
        let (is_nan, zero) = (self.b.ins().fcmp(FloatCC::NotEqual, value, value), self.i32_const(0));
        Some(self.b.ins().select(is_nan, zero, taint))
    }

    /// Merges the taints of operands: componentwise, or all of them if the shapes differ (as for `dot`).
    fn merge_operand_taints(&mut self, count: usize, operands: &[Vec<Taint>]) -> Vec<Taint> {
        let is_each = operands.iter().all(|taints| taints.len() == 1 || taints.len() == count);
        if is_each {
            let at = |i: usize| {
                operands.iter().fold(None, |all, taints| self.merge_taints(all, taints[i.min(taints.len() - 1)]))
            };
            return (0..count).map(at).collect();
        }
        let all = operands.iter().flatten().fold(None, |all, taint| self.merge_taints(all, *taint));
        vec![all; count]
    }

    /// Returns the recorded taints of an expression, resolving arguments to the caller.
    fn lookup_taints(&self, id: ActivationId, expression: Handle<Expression>) -> Option<Vec<Taint>> {
        let activation = &self.uniformity.activations[id];
        match (&activation.function.expressions[expression], activation.caller) {
            (Expression::FunctionArgument(index), Some((caller, arguments))) => {
                self.lookup_taints(caller, arguments[*index as usize])
            }
            _ => self.taints.expressions.get(&(id, expression)).cloned(),
        }
    }

    /// Returns a taint for each scalar of an operand.
    fn operand_taints(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Vec<Taint>> {
        if let Some(taints) = self.lookup_taints(id, expression) {
            return Ok(taints);
        }
        let Operand::Scalars(scalars) = self.operand(id, expression)? else { return Ok(vec![None]) };
        Ok(vec![None; scalars.len()])
    }

    /// Adds the sites of operands that are NaN themselves, from their payloads.
    fn with_nan_payloads(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        taints: Vec<Taint>,
    ) -> Result<Vec<Taint>> {
        let Operand::Scalars(scalars) = self.operand(id, expression)? else { return Ok(taints) };
        let mark = |(scalar, taint): (Scalar, Taint)| {
            if !scalar.kind.is_float() {
                return taint;
            }
            let value = self.lane(scalar, 0);
            let is_nan = self.b.ins().fcmp(FloatCC::NotEqual, value, value);
            let bits = self.f32_to_bits(value);
            let (mark, zero) = (self.b.ins().band_imm_u(bits, i64::from(NAN_SITE_MASK)), self.i32_const(0));
            let mark = self.b.ins().select(is_nan, mark, zero);
            self.merge_taints(Some(mark), taint)
        };
        Ok(scalars.into_iter().zip(taints).map(mark).collect())
    }

    /// Returns the first taint that is not 0.
    fn merge_taints(&mut self, x: Taint, y: Taint) -> Taint {
        let (Some(x), Some(y)) = (x, y) else { return x.or(y) };
        // A nonzero integer counts as true, so a taint is its own condition.
        Some(self.b.ins().select(x, x, y))
    }

    /// Returns the taint of the chosen side of a select.
    fn select_taint(&mut self, condition: Scalar, accept: Taint, reject: Taint) -> Taint {
        if accept.is_none() && reject.is_none() {
            return None;
        }
        let [accept, reject] = [accept, reject].map(|taint| taint.unwrap_or_else(|| self.i32_const(0)));
        let condition = self.lane(condition, 0);
        Some(self.b.ins().select(condition, accept, reject))
    }

    /// Returns the taint of one side of `&` or `|`, or 0 if the other side alone decides the result.
    fn unmasked_taint(&mut self, taint: Taint, other: Scalar, of_other: Taint, is_and: bool) -> Taint {
        let taint = taint?;
        let (other, zero) = (self.lane(other, 0), self.i32_const(0));
        let open = if is_and { [taint, zero] } else { [zero, taint] };
        let open = self.b.ins().select(other, open[0], open[1]);
        // If the other side is tainted, it does not decide reliably.
        Some(of_other.map_or(open, |of_other| self.b.ins().select(of_other, taint, open)))
    }

    /// Returns the taint registers of the pointee; empty unless it is a variable in registers.
    fn taint_registers(&self, pointer: &Pointer, count: usize) -> Vec<Register> {
        let Base::Variable(variable) = pointer.base else { return Vec::new() };
        let registers = self.taints.variables.get(&variable);
        registers.map_or_else(Vec::new, |registers| {
            registers.iter().skip(pointer.offset as usize).take(count).copied().collect()
        })
    }

    /// Resets the taints of a variable.
    pub(crate) fn init_variable_taint(&mut self, variable: Variable) {
        let count = self.variables.storage(variable).registers.len();
        if !self.options.sanitize || count == 0 {
            return;
        }
        if !self.taints.variables.contains_key(&variable) {
            let registers = (0..count).map(|_| self.b.declare_var(types::I32)).collect();
            self.taints.variables.insert(variable, registers);
        }
        let zero = self.i32_const(0);
        self.taints.variables[&variable].iter().for_each(|register| self.b.def_var(*register, zero));
    }

    /// Resets all taints at the start of a region: they belong to another invocation.
    pub(crate) fn clear_taints(&mut self) {
        self.taints.expressions.clear();
        // In the order of a `BTreeMap`: each reset emits instructions, whose order must not change from run to
        // run.
        let variables: Vec<Variable> = self.taints.variables.keys().copied().collect();
        variables.into_iter().for_each(|variable| self.init_variable_taint(variable));
    }

    /// Propagates taints to a stored variable, or reports them if the store is to memory.
    pub(crate) fn taint_store(
        &mut self,
        id: ActivationId,
        pointer: &Pointer,
        value: Handle<Expression>,
        span: Span,
    ) -> Result<()> {
        // Large values are in memory, which is not tracked.
        if !self.options.sanitize || self.is_large(&pointer.inner) {
            return Ok(());
        }
        let taints = self.operand_taints(id, value)?;
        if let Base::Variable(_) = pointer.base {
            let registers = self.taint_registers(pointer, taints.len());
            self.set_taints(&registers, &taints);
        } else if taints.iter().any(Option::is_some) {
            let site = self.pointer_site(pointer, SiteKind::Write, span)?;
            self.report_taint(site, Some(pointer), &taints);
        }
        Ok(())
    }

    /// Sets taint registers.
    fn set_taints(&mut self, registers: &[Register], taints: &[Taint]) {
        for (register, taint) in registers.iter().zip(taints) {
            let taint = taint.unwrap_or_else(|| self.i32_const(0));
            self.b.def_var(*register, taint);
        }
    }

    /// Declares the taint registers of a function result.
    pub(crate) fn init_result_taint(&mut self, callee: ActivationId, count: usize) {
        if self.options.sanitize {
            let registers: Vec<Register> = (0..count).map(|_| self.b.declare_var(types::I32)).collect();
            self.set_taints(&registers, &vec![None; count]);
            self.taints.results.insert(callee, registers);
        }
    }

    /// Propagates taints to the function result.
    pub(crate) fn taint_return(&mut self, id: ActivationId, value: Handle<Expression>) -> Result<()> {
        if let Some(registers) = self.taints.results.get(&id).cloned() {
            let taints = self.operand_taints(id, value)?;
            self.set_taints(&registers, &taints);
        }
        Ok(())
    }

    /// Propagates taints from a function result to the call expression.
    pub(crate) fn taint_result(&mut self, callee: ActivationId, id: ActivationId, result: Handle<Expression>) {
        if let Some(registers) = self.taints.results.remove(&callee) {
            let taints = registers.into_iter().map(|register| Some(self.b.use_var(register))).collect();
            self.taints.expressions.insert((id, result), taints);
        }
    }

    /// Reports a tainted condition. Emits nothing in code without instrumentation, where no taint is recorded.
    pub(crate) fn check_branch_taint(&mut self, id: ActivationId, condition: Handle<Expression>) {
        if let Some(taints) = self.lookup_taints(id, condition) {
            let site = self.plain_site(SiteKind::Control, self.span(id, condition));
            self.report_taint(site, None, &taints);
        }
    }

    /// Reports a taint that influences something. `written` is the pointer of a store.
    fn report_taint(&mut self, site: u32, written: Option<&Pointer>, taints: &[Taint]) {
        let Some(taint) = taints.iter().fold(None, |all, taint| self.merge_taints(all, *taint)) else { return };
        let is_tainted = self.b.ins().icmp_imm_s(IntCC::NotEqual, taint, 0);
        self.emit_if(is_tainted, |e| {
            let byte = match written {
                Some(pointer) => e.object_offset(pointer, 1),
                None => e.i64_const(0),
            };
            let arguments = [e.b.ins().uextend(types::I64, taint), byte];
            e.event(Event::NanInfluences, site, arguments);
        });
    }
}

fn is_bool(scalars: &[Scalar]) -> bool {
    scalars.iter().all(|scalar| scalar.kind == crate::types::Kind::Bool)
}

/// Depth to which two expressions are compared. The comparison is exponential in it, because operands may be
/// shared.
const MAX_DEPTH: u32 = 8;

/// Whether two expressions are structurally equal, up to a depth.
fn is_same_expression(
    depth: u32,
    expressions: &Arena<Expression>,
    x: Handle<Expression>,
    y: Handle<Expression>,
) -> bool {
    use Expression as E;
    // At the limit a deliberate test for NaN may be reported, which is harmless.
    let Some(depth) = depth.checked_sub(1) else { return false };
    let same = |x: &Handle<Expression>, y: &Handle<Expression>| is_same_expression(depth, expressions, *x, *y);
    x == y
        || match (&expressions[x], &expressions[y]) {
            // A store between two loads makes them differ. That can only hide a report, never add a false one.
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
