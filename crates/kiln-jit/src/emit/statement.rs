//! Statements and the control flow of a gang.
//!
//! Uniform control flow is a branch. In divergent control flow both paths run one after the other, each with a
//! mask of the lanes that take it.

use super::control::{Active, Jump, Mask, empty_lanes};
use super::lanes::{Lanes, Scalar, VECTORS};
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::regions::{has_outer_jump, has_return};
use crate::types::Kind;
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use naga::{Block, Expression, Handle, Span, Statement};

/// Control flow after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continues with the next statement.
    Next,
    /// Continues, but no lane is active until others reconverge.
    NoneActive,
    /// The current Cranelift block is terminated.
    Terminated,
}

impl<'m> Emitter<'m, '_> {
    /// Emits a block.
    pub(crate) fn block(&mut self, id: ActivationId, block: &'m Block) -> Result<Flow> {
        self.statements(id, block.span_iter().map(|(statement, span)| (statement, *span)))
    }

    /// Emits statements up to the first that ends control flow.
    pub(crate) fn statements(
        &mut self,
        id: ActivationId,
        statements: impl Iterator<Item = (&'m Statement, Span)>,
    ) -> Result<Flow> {
        let all: Vec<_> = statements.collect();
        for (i, (statement, span)) in all.iter().copied().enumerate() {
            self.budget.spend(1, self.b.func, span)?;
            let known = all[i..].iter().map(|(_, span)| *span).find(Span::is_defined);
            // Errors and findings of expressions without a span are reported at the nearest statement that has
            // one.
            self.current_span = known.unwrap_or(self.current_span);
            let rest = &all[i + 1..];
            // Code after an early return runs with a partial mask, which keeps all bounds checks. A second
            // version of it for gangs in which no lane returned avoids that.
            if let Some(condition) = self.early_return_condition(id, statement)
                && self.is_worth_versioning(id, rest.iter().map(|(next, _)| *next))
            {
                return self.versioned_rest(id, condition, (statement, span), rest);
            }
            let flow = self.statement(id, statement, span)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Emits a statement.
    pub(crate) fn statement(&mut self, id: ActivationId, statement: &'m Statement, span: Span) -> Result<Flow> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone() {
                    self.compute(id, expression)?;
                }
            }
            Statement::Block(block) => return self.block(id, block),
            Statement::If { condition, accept, reject } => {
                self.check_branch_taint(id, *condition);
                let condition = self.scalar(id, *condition)?;
                return self.branch(id, statement, condition, accept, reject);
            }
            Statement::Switch { selector, cases } => {
                self.check_branch_taint(id, *selector);
                let selector = self.scalar(id, *selector)?;
                return self.switch(id, statement, selector, cases, span);
            }
            Statement::Loop { body, continuing, break_if } => {
                return self.loop_statement(id, statement, body, continuing, *break_if);
            }
            Statement::Break => return Ok(self.break_or_continue(true)),
            Statement::Continue => return Ok(self.break_or_continue(false)),
            Statement::Return { value } => {
                let body = &self.uniformity.activations[id].function.body;
                // A return at the end of a split function: the region ends here anyway, so no invocation is
                // deactivated.
                if self.group.is_split(id) && body.last().is_some_and(|last| std::ptr::eq(last, statement)) {
                    if let Some(value) = value {
                        let scalars = self.scalars(id, *value)?;
                        self.set_result(id, &scalars);
                    }
                    return Ok(Flow::Next);
                }
                return self.return_statement(id, *value);
            }
            // Barriers of the workgroup split regions. Only subgroup barriers get here, and a gang runs in
            // lockstep.
            Statement::ControlBarrier(_) | Statement::MemoryBarrier(_) => {}
            Statement::Store { pointer, value } => {
                let begins = self.implicit_zero_init(id, *pointer, *value);
                let pointer = self.pointer(id, *pointer)?;
                self.store_value(&pointer, id, *value, span)?;
                self.taint_store(id, &pointer, *value, span)?;
                // After the store, which marks the variable as initialised.
                if let Some(variable) = begins {
                    self.mark_uninitialised(variable, self.variables.storage(variable).kinds.len());
                }
            }
            Statement::Atomic { pointer, fun, value, result } => {
                self.atomic(id, *pointer, fun, *value, *result, span)?;
            }
            Statement::Call { arguments, result, .. } => self.call(id, statement, arguments, *result, span)?,
            Statement::SubgroupBallot { result, predicate } => self.ballot(id, *result, *predicate)?,
            Statement::SubgroupGather { mode, argument, result } => {
                self.subgroup_gather(id, mode, *argument, *result)?;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.subgroup_collective(id, *op, *collective_op, *argument, *result, span)?;
            }
            other => {
                let name = variant_name(other);
                let message = format!("expected a statement that the CPU device supports, found `{name}`");
                return Err(CompileError::new(span, message));
            }
        }
        Ok(Flow::Next)
    }

    /// Emits an `if`.
    fn branch(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        condition: Scalar,
        accept: &'m Block,
        reject: &'m Block,
    ) -> Result<Flow> {
        if let Lanes::Uniform(condition) = condition.lanes {
            self.materialise_mask(id, statement);
            let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
            self.b.ins().brif(condition, yes, &[], no, &[]);
            // Both paths start with the same mask state. The variables of the mask keep their identity, so SSA
            // construction inserts the phis at `after`.
            let mut continues = false;
            let active = self.control.active;
            for (start, body) in [(yes, accept), (no, reject)] {
                self.b.switch_to_block(start);
                if self.block(id, body)? != Flow::Terminated {
                    debug_assert_eq!(self.control.active, active, "a branch narrows a mask that is known after it");
                    self.b.ins().jump(after, &[]);
                    continues = true;
                }
                self.control.active = active;
            }
            self.b.switch_to_block(after);
            // `after` has no predecessor then, but Cranelift requires a terminator in every block.
            return Ok(if continues { Flow::Next } else { self.unreachable_block() });
        }
        // Divergent: run `accept` with mask & condition, then `reject` with mask & !condition.
        let exits = has_outer_jump(statement, false, false) || has_return(statement);
        let before = self.control.active;
        let saved = self.control.lanes(&mut self.b);
        let mask = self.control.mask(&mut self.b);
        let condition = self.vectors(condition);
        let lanes = std::array::from_fn(|part| self.b.ins().band(saved[part], condition[part]));
        self.masked_block(id, lanes, accept)?;
        // The mask after `accept`, without the lanes that broke, continued or returned.
        let left = mask.get(&mut self.b);
        let lanes: [Value; VECTORS] = std::array::from_fn(|part| self.b.ins().band_not(saved[part], condition[part]));
        if reject.is_empty() {
            mask.set(&mut self.b, lanes);
        } else {
            self.masked_block(id, lanes, reject)?;
        }
        // No lane can have left, so the mask is the one from before the branch. If that was full, later code is
        // unmasked again.
        if !exits {
            mask.set(&mut self.b, saved);
            self.control.active = before;
            return Ok(Flow::Next);
        }
        let joined = std::array::from_fn(|part| {
            let right = mask.part(&mut self.b, part);
            self.b.ins().bor(left[part], right)
        });
        mask.set(&mut self.b, joined);
        // Often no lane is left after an early return. If none waits to reconverge either, skip the rest of the
        // function.
        if let (true, Some(returned)) = (self.control.is_top_level(), self.activations[id].returned) {
            let (any, rest) = (self.any(joined), self.b.create_block());
            self.b.ins().brif(any, rest, &[], returned, &[]);
            self.b.switch_to_block(rest);
        }
        Ok(Flow::Next)
    }

    /// Terminates a block that is never reached. It jumps to the fault exit: a trap would kill the process.
    pub(crate) fn unreachable_block(&mut self) -> Flow {
        self.b.ins().jump(self.runtime.fault, &[]);
        Flow::Terminated
    }

    /// Emits a block that runs with these lanes active, and is skipped if no lane is active.
    pub(super) fn masked_block(&mut self, id: ActivationId, lanes: [Value; VECTORS], body: &'m Block) -> Result<()> {
        let mask = self.control.mask(&mut self.b);
        mask.set(&mut self.b, lanes);
        // Without active lanes the block must be skipped: a loop in it might never end.
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        let any = self.any(lanes);
        self.b.ins().brif(any, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        self.control.push_branch();
        let flow = if self.is_worth_versioning(id, body.iter()) {
            let all = self.all(lanes);
            self.versioned(all, mask, self.control.active, |e, _| e.block(id, body))?
        } else {
            self.block(id, body)?
        };
        if flow != Flow::Terminated {
            self.b.ins().jump(after, &[]);
        }
        self.control.pop();
        self.control.active = Active::Masked(mask);
        self.b.switch_to_block(after);
        Ok(())
    }

    /// Emits a loop. Lanes that leave a divergent loop wait in a mask until all have left.
    fn loop_statement(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        body: &'m Block,
        continuing: &'m Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<Flow> {
        let is_divergent = self.uniformity.is_divergent(id, statement);
        let may_return = self.may_return(id, statement);
        let before = self.control.active;
        // A loop whose lanes leave together needs no mask of its own.
        let mask = (is_divergent || may_return).then(|| self.control.mask(&mut self.b));
        let (header, next, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let cost = self.budget.cost;
        let none = empty_lanes(&mut self.b);
        // Lanes that left the loop, and lanes that wait for the `continuing` block.
        let waiting = is_divergent.then(|| [(); 2].map(|()| Mask::new(&mut self.b, none)));
        if self.control.is_full() {
            self.b.ins().jump(header, &[]);
        } else {
            // A loop without active lanes might never end: nothing would change the value it waits for.
            let lanes = self.control.lanes(&mut self.b);
            let any = self.any(lanes);
            self.b.ins().brif(any, header, &[], exit, &[]);
        }
        self.b.switch_to_block(header);
        let active = self.control.active;
        match waiting {
            Some([break_mask, continue_mask]) => {
                // Empty again in every iteration; the break mask accumulates over all of them.
                continue_mask.set(&mut self.b, none);
                self.control.push_target(Jump::Divergent(break_mask), Some(Jump::Divergent(continue_mask)));
            }
            None => self.control.push_target(Jump::Uniform(exit), Some(Jump::Uniform(next))),
        }
        if self.block(id, body)? != Flow::Terminated {
            self.b.ins().jump(next, &[]);
        }
        self.control.active = active;
        self.b.switch_to_block(next);
        if let (Some(mask), Some([_, continue_mask])) = (mask, waiting) {
            // Lanes that continued reconverge with the others before the `continuing` block.
            mask.union(&mut self.b, continue_mask);
        }
        let flow = self.block(id, continuing)?;
        if flow != Flow::Terminated {
            self.loop_back_edge(id, break_if, mask, (header, exit), cost)?;
        }
        self.control.pop();
        self.control.active = active;
        self.b.switch_to_block(exit);
        if let (Some(mask), Some([break_mask, _])) = (mask, waiting) {
            // Lanes that returned are in neither mask, so they stay inactive after the loop.
            let lanes = break_mask.get(&mut self.b);
            mask.set(&mut self.b, lanes);
        }
        if !may_return {
            // All lanes that left reconverge here.
            self.control.active = before;
        }
        Ok(Flow::Next)
    }

    /// Emits the end of an iteration: the `break if` condition, the fuel, and the jump back.
    fn loop_back_edge(
        &mut self,
        id: ActivationId,
        break_if: Option<Handle<Expression>>,
        mask: Option<Mask>,
        (header, exit): (ir::Block, ir::Block),
        cost: u64,
    ) -> Result<()> {
        if let Some(condition) = break_if {
            self.check_branch_taint(id, condition);
            let condition = self.scalar(id, condition)?;
            match (mask, self.control.on_break(), condition.lanes) {
                (Some(mask), Some(Jump::Divergent(break_mask)), _) => {
                    let (lanes, condition) = (self.control.lanes(&mut self.b), self.vectors(condition));
                    let left = std::array::from_fn(|part| {
                        let leaving = self.b.ins().band(lanes[part], condition[part]);
                        let earlier = break_mask.part(&mut self.b, part);
                        self.b.ins().bor(earlier, leaving)
                    });
                    break_mask.set(&mut self.b, left);
                    let lanes = std::array::from_fn(|part| self.b.ins().band_not(lanes[part], condition[part]));
                    mask.set(&mut self.b, lanes);
                }
                // All active lanes agree, so the loop can end with a branch.
                (_, _, Lanes::Uniform(condition)) => {
                    let again = self.b.create_block();
                    self.b.ins().brif(condition, exit, &[], again, &[]);
                    self.b.switch_to_block(again);
                }
                _ => {
                    return Err(CompileError::new(Span::UNDEFINED, "expected a condition of a loop that was analysed"));
                }
            }
        }
        // After the body was emitted, so that its cost is known.
        self.spend_iteration(cost);
        if mask.is_some() {
            let lanes = self.control.lanes(&mut self.b);
            let any = self.any(lanes);
            self.b.ins().brif(any, header, &[], exit, &[]);
        } else {
            self.b.ins().jump(header, &[]);
        }
        Ok(())
    }

    /// Emits a `break` or `continue`.
    fn break_or_continue(&mut self, is_break: bool) -> Flow {
        let jump = if is_break { self.control.on_break() } else { self.control.on_continue() };
        match jump.expect("validation saw a loop or switch around it") {
            Jump::Uniform(block) => {
                self.b.ins().jump(block, &[]);
                Flow::Terminated
            }
            Jump::Divergent(waiting) => {
                let mask = self.control.mask(&mut self.b);
                waiting.union(&mut self.b, mask);
                mask.clear(&mut self.b);
                Flow::NoneActive
            }
        }
    }

    /// Emits a `return`.
    fn return_statement(&mut self, id: ActivationId, value: Option<Handle<Expression>>) -> Result<Flow> {
        if let Some(value) = value {
            let scalars = self.scalars(id, value)?;
            self.set_result(id, &scalars);
            self.taint_return(id, value)?;
        }
        let (is_split, is_divergent) = (self.group.is_split(id), self.uniformity.returns_divergently(id));
        if self.gang.is_vector() && (is_split || is_divergent) {
            let mask = self.control.mask(&mut self.b);
            mask.clear(&mut self.b);
            if is_divergent {
                return Ok(Flow::NoneActive);
            }
            // All lanes return at once. In a split function the stored mask must still become empty.
        } else if is_split {
            self.mark_returned(id);
        }
        if let Some(returned) = self.activations[id].returned {
            self.b.ins().jump(returned, &[]);
        }
        Ok(Flow::Terminated)
    }

    /// Stores a function's result in active lanes.
    fn set_result(&mut self, id: ActivationId, scalars: &[Scalar]) {
        if self.spill_result(id, scalars) {
            return;
        }
        let varies = self.uniformity.returns_varying(id);
        for (i, scalar) in scalars.iter().enumerate() {
            let register = self.activations[id].result[i];
            // Otherwise all active lanes return here, and inactive ones never read the result.
            let is_partial = varies && self.uniformity.returns_divergently(id);
            let old = |e: &mut Self| e.get_register(register, true, scalar.kind);
            let scalar = if is_partial { self.where_active(*scalar, old) } else { *scalar };
            self.set_register(register, varies, scalar);
        }
    }

    /// Materialises the mask before a uniform branch from which lanes may return, break or continue
    /// divergently. The code after the branch uses the same variables whichever path ran.
    pub(super) fn materialise_mask(&mut self, id: ActivationId, statement: &Statement) {
        let breaks =
            has_outer_jump(statement, false, false) && matches!(self.control.on_break(), Some(Jump::Divergent(_)));
        // `in_switch` is true so that a `break` does not count.
        let continues =
            has_outer_jump(statement, false, true) && matches!(self.control.on_continue(), Some(Jump::Divergent(_)));
        if self.may_return(id, statement) || breaks || continues {
            self.control.mask(&mut self.b);
        }
    }

    /// Emits a call by inlining the callee.
    fn call(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        arguments: &'m [Handle<Expression>],
        result: Option<Handle<Expression>>,
        span: Span,
    ) -> Result<()> {
        let callee = self.uniformity.callee(id, statement).expect("every call was analysed");
        let function = self.uniformity.activations[callee].function;
        // Pointers are passed as operands: the callee accesses the registers or the memory of the caller's
        // variable directly.
        let operands = arguments.iter().map(|argument| self.operand(id, *argument)).collect::<Result<_>>()?;
        self.activations[callee].arguments = operands;
        if let Some(result) = &function.result {
            let inner = &self.module.types[result.ty].inner;
            let found = self.type_fields("a result", inner, span)?;
            let varies = self.uniformity.returns_varying(callee);
            let kinds: Vec<Kind> = found.iter().map(|field| field.kind).collect();
            self.budget.spend(kinds.len(), self.b.func, span)?;
            let registers: Vec<_> = kinds.iter().map(|kind| self.register(*kind, varies)).collect();
            for (register, kind) in registers.iter().zip(&kinds) {
                // Lanes that are inactive at every return keep zero; SSA needs a definition on all paths.
                let zero = self.constant(*kind, 0.0);
                self.set_register(*register, varies, zero);
            }
            self.init_result_taint(callee, kinds.len());
            (self.activations[callee].result, self.activations[callee].result_kinds) = (registers, kinds);
        }
        // Versioned code emits a call twice, and the second version gets storage of its own. That is safe,
        // because no local outlives the call.
        self.declare_locals(callee, false)?;
        self.init_locals(callee)?;
        let returned = self.b.create_block();
        self.activations[callee].returned = Some(returned);
        self.control.enter_function();
        let before = self.control.active;
        // Lanes that return early in the callee are active again in the caller.
        let narrows = self.uniformity.returns_divergently(callee);
        let saved = narrows.then(|| (self.control.lanes(&mut self.b), self.control.mask(&mut self.b)));
        if self.block(callee, &function.body)? != Flow::Terminated {
            self.b.ins().jump(returned, &[]);
        }
        self.b.switch_to_block(returned);
        self.control.leave_function();
        if let Some((lanes, mask)) = saved {
            mask.set(&mut self.b, lanes);
        }
        self.control.active = before;
        if let Some(result) = result {
            self.taint_result(callee, id, result);
            let varies = self.uniformity.returns_varying(callee);
            let pairs: Vec<_> = self.activations[callee]
                .result
                .iter()
                .copied()
                .zip(self.activations[callee].result_kinds.clone())
                .collect();
            let scalars = pairs.into_iter().map(|(register, kind)| self.get_register(register, varies, kind)).collect();
            self.define(id, result, Operand::Scalars(scalars))?;
        }
        Ok(())
    }
}

/// Returns the name of a statement or expression for error messages.
pub(crate) fn variant_name(given: &impl std::fmt::Debug) -> String {
    let text = format!("{given:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_string()
}
