//! Statements: control flow of a gang, whose invocations may diverge.
//!
//! Uniform control flow is a branch. Otherwise both ways run, one after the other, and inactive invocations are tracked in a mask.

use super::control::{Active, Jump, Mask, no_lanes};
use super::lanes::{Lanes, Number, PARTS, vector_constant};
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::ActivationId;
use crate::regions::{has_return, leaves};
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use naga::{Block, Expression, Handle, Span, Statement, SwitchCase, SwitchValue};

/// What became of control flow after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It goes on.
    On,
    /// No invocation is active, until others come back.
    Empty,
    /// It went somewhere else.
    Gone,
}

impl<'m> Emitter<'m, '_> {
    pub(crate) fn block(&mut self, id: ActivationId, block: &'m Block) -> Result<Flow> {
        self.statements(id, block.span_iter().map(|(statement, span)| (statement, *span)))
    }

    pub(crate) fn statements(
        &mut self,
        id: ActivationId,
        statements: impl Iterator<Item = (&'m Statement, Span)>,
    ) -> Result<Flow> {
        let all: Vec<_> = statements.collect();
        for (place, (statement, span)) in all.iter().copied().enumerate() {
            self.budget.spend(1, self.b.func, span)?;
            let known = all[place..].iter().map(|(_, span)| *span).find(Span::is_defined);
            self.here = known.unwrap_or(self.here);
            let rest = &all[place + 1..];
            if let Some(condition) = self.may_leave_some(id, statement)
                && self.is_worth_versioning(id, rest.iter().map(|(next, _)| *next))
            {
                return self.with_rest(id, condition, (statement, span), rest);
            }
            let flow = self.statement(id, statement, span)?;
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    pub(crate) fn statement(&mut self, id: ActivationId, statement: &'m Statement, span: Span) -> Result<Flow> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone() {
                    self.compute(id, expression)?;
                }
            }
            Statement::Block(block) => return self.block(id, block),
            Statement::If { condition, accept, reject } => {
                self.check_way(id, *condition);
                let condition = self.number(id, *condition)?;
                return self.branch(id, statement, condition, accept, reject);
            }
            Statement::Switch { selector, cases } => {
                self.check_way(id, *selector);
                let selector = self.number(id, *selector)?;
                return self.switch(id, statement, selector, cases, span);
            }
            Statement::Loop { body, continuing, break_if } => {
                return self.repeat(id, statement, body, continuing, *break_if);
            }
            Statement::Break => return Ok(self.leave(true)),
            Statement::Continue => return Ok(self.leave(false)),
            Statement::Return { value } => {
                let body = &self.analysis.activations[id].function.body;
                if self.group.is_split(id) && body.last().is_some_and(|last| std::ptr::eq(last, statement)) {
                    if let Some(value) = value {
                        let numbers = self.numbers(id, *value)?;
                        self.set_result(id, &numbers);
                    }
                    return Ok(Flow::On);
                }
                return self.give_back(id, *value);
            }
            Statement::ControlBarrier(_) | Statement::MemoryBarrier(_) => {}
            Statement::Store { pointer, value } => {
                let begins = self.begins_anew(id, *pointer, *value);
                let pointer = self.pointer(id, *pointer)?;
                self.store_value(&pointer, id, *value, span)?;
                self.trace_store(id, &pointer, *value, span)?;
                if let Some(variable) = begins {
                    self.forget(variable, self.variables.home(variable).kinds.len());
                }
            }
            Statement::Atomic { pointer, fun, value, result } => {
                self.atomic(id, *pointer, fun, *value, *result, span)?;
            }
            Statement::Call { arguments, result, .. } => self.call(id, statement, arguments, *result, span)?,
            Statement::SubgroupBallot { result, predicate } => self.ballot(id, *result, *predicate)?,
            Statement::SubgroupGather { mode, argument, result } => self.gather_lanes(id, mode, *argument, *result)?,
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collect_lanes(id, *op, *collective_op, *argument, *result, span)?;
            }
            other => {
                let name = variant_name(other);
                let message = format!("expected a statement that a processor can run, found `{name}`");
                return Err(Refusal::new(span, message));
            }
        }
        Ok(Flow::On)
    }

    fn branch(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        condition: Number,
        accept: &'m Block,
        reject: &'m Block,
    ) -> Result<Flow> {
        if let Lanes::Same(condition) = condition.lanes {
            self.prepare_exits(id, statement);
            let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
            self.b.ins().brif(condition, yes, &[], no, &[]);
            let mut goes_on = false;
            let active = self.control.active;
            for (start, body) in [(yes, accept), (no, reject)] {
                self.b.switch_to_block(start);
                if self.block(id, body)? != Flow::Gone {
                    debug_assert_eq!(self.control.active, active, "a branch narrows a mask that is known after it");
                    self.b.ins().jump(after, &[]);
                    goes_on = true;
                }
                self.control.active = active;
            }
            self.b.switch_to_block(after);
            return Ok(if goes_on { Flow::On } else { self.nothing_leads_here() });
        }
        let exits = leaves(statement, false, false) || has_return(statement);
        let before = self.control.active;
        let saved = self.control.lanes(&mut self.b);
        let mask = self.control.mask(&mut self.b);
        let condition = self.parts(condition);
        let lanes = std::array::from_fn(|part| self.b.ins().band(saved[part], condition[part]));
        self.masked(id, lanes, accept)?;
        let left = mask.get(&mut self.b);
        let lanes: [Value; PARTS] = std::array::from_fn(|part| self.b.ins().band_not(saved[part], condition[part]));
        if reject.is_empty() {
            mask.set(&mut self.b, lanes);
        } else {
            self.masked(id, lanes, reject)?;
        }
        if !exits {
            mask.set(&mut self.b, saved);
            self.control.active = before;
            return Ok(Flow::On);
        }
        let joined = std::array::from_fn(|part| {
            let right = mask.part(&mut self.b, part);
            self.b.ins().bor(left[part], right)
        });
        mask.set(&mut self.b, joined);
        // Often no invocation is left, and none waits at the end of a branch or loop around: the rest of the function is skipped.
        if let (true, Some(returned)) = (self.control.is_top_level(), self.activations[id].returned) {
            let (any, rest) = (self.any(joined), self.b.create_block());
            self.b.ins().brif(any, rest, &[], returned, &[]);
            self.b.switch_to_block(rest);
        }
        Ok(Flow::On)
    }

    /// Ends a block that is never reached. Not with a trap, which would end the process where it is.
    pub(crate) fn nothing_leads_here(&mut self) -> Flow {
        self.b.ins().jump(self.runtime.fault, &[]);
        Flow::Gone
    }

    /// Emits a block for these lanes, which runs where there is one.
    fn masked(&mut self, id: ActivationId, lanes: [Value; PARTS], body: &'m Block) -> Result<()> {
        let mask = self.control.mask(&mut self.b);
        mask.set(&mut self.b, lanes);
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
        if flow != Flow::Gone {
            self.b.ins().jump(after, &[]);
        }
        self.control.pop();
        self.control.active = Active::Some(mask);
        self.b.switch_to_block(after);
        Ok(())
    }

    fn repeat(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        body: &'m Block,
        continuing: &'m Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<Flow> {
        let is_divergent = self.analysis.is_divergent(id, statement);
        let may_return = self.may_return(id, statement);
        let before = self.control.active;
        let mask = (is_divergent || may_return).then(|| self.control.mask(&mut self.b));
        let (header, next, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let cost = self.budget.cost;
        let none = no_lanes(&mut self.b);
        // The invocations that left, and those that wait for the next round.
        let waiting = is_divergent.then(|| [(); 2].map(|()| Mask::new(&mut self.b, none)));
        if self.control.is_full() {
            self.b.ins().jump(header, &[]);
        } else {
            // Without an active invocation to change what it waits for, a loop might never end.
            let lanes = self.control.lanes(&mut self.b);
            let any = self.any(lanes);
            self.b.ins().brif(any, header, &[], exit, &[]);
        }
        self.b.switch_to_block(header);
        let active = self.control.active;
        match waiting {
            Some([broke, continued]) => {
                continued.set(&mut self.b, none);
                self.control.push_target(Jump::Divergent(broke), Some(Jump::Divergent(continued)));
            }
            None => self.control.push_target(Jump::Uniform(exit), Some(Jump::Uniform(next))),
        }
        if self.block(id, body)? != Flow::Gone {
            self.b.ins().jump(next, &[]);
        }
        self.control.active = active;
        self.b.switch_to_block(next);
        if let (Some(mask), Some([_, continued])) = (mask, waiting) {
            mask.add(&mut self.b, continued);
        }
        let flow = self.block(id, continuing)?;
        if flow != Flow::Gone {
            self.close_round(id, break_if, mask, (header, exit), cost)?;
        }
        self.control.pop();
        self.control.active = active;
        self.b.switch_to_block(exit);
        if let (Some(mask), Some([broke, _])) = (mask, waiting) {
            let lanes = broke.get(&mut self.b);
            mask.set(&mut self.b, lanes);
        }
        if !may_return {
            // The invocations that left are back.
            self.control.active = before;
        }
        Ok(Flow::On)
    }

    /// After the last statement of a round: once more, or out.
    fn close_round(
        &mut self,
        id: ActivationId,
        break_if: Option<Handle<Expression>>,
        mask: Option<Mask>,
        (header, exit): (ir::Block, ir::Block),
        cost: u64,
    ) -> Result<()> {
        if let Some(condition) = break_if {
            self.check_way(id, condition);
            let condition = self.number(id, condition)?;
            match (mask, self.control.on_break(), condition.lanes) {
                (Some(mask), Some(Jump::Divergent(broke)), _) => {
                    let (lanes, condition) = (self.control.lanes(&mut self.b), self.parts(condition));
                    let left = std::array::from_fn(|part| {
                        let leaving = self.b.ins().band(lanes[part], condition[part]);
                        let earlier = broke.part(&mut self.b, part);
                        self.b.ins().bor(earlier, leaving)
                    });
                    broke.set(&mut self.b, left);
                    let lanes = std::array::from_fn(|part| self.b.ins().band_not(lanes[part], condition[part]));
                    mask.set(&mut self.b, lanes);
                }
                (_, _, Lanes::Same(condition)) => {
                    let again = self.b.create_block();
                    self.b.ins().brif(condition, exit, &[], again, &[]);
                    self.b.switch_to_block(again);
                }
                _ => return Err(Refusal::new(Span::UNDEFINED, "expected a condition of a loop that was analysed")),
            }
        }
        self.spend_round(cost);
        if mask.is_some() {
            let lanes = self.control.lanes(&mut self.b);
            let any = self.any(lanes);
            self.b.ins().brif(any, header, &[], exit, &[]);
        } else {
            self.b.ins().jump(header, &[]);
        }
        Ok(())
    }

    fn leave(&mut self, is_break: bool) -> Flow {
        let jump = if is_break { self.control.on_break() } else { self.control.on_continue() };
        match jump.expect("validation saw a loop or switch around it") {
            Jump::Uniform(block) => {
                self.b.ins().jump(block, &[]);
                Flow::Gone
            }
            Jump::Divergent(waiting) => {
                let mask = self.control.mask(&mut self.b);
                waiting.add(&mut self.b, mask);
                mask.clear(&mut self.b);
                Flow::Empty
            }
        }
    }

    fn give_back(&mut self, id: ActivationId, value: Option<Handle<Expression>>) -> Result<Flow> {
        if let Some(value) = value {
            let numbers = self.numbers(id, value)?;
            self.set_result(id, &numbers);
            self.trace_return(id, value)?;
        }
        let (is_split, is_divergent) = (self.group.is_split(id), self.analysis.returns_divergently(id));
        if self.gang.is_vector() && (is_split || is_divergent) {
            let mask = self.control.mask(&mut self.b);
            mask.clear(&mut self.b);
            if is_divergent {
                return Ok(Flow::Empty);
            }
            // The whole gang returns at once: the mask that is stored after the region has to be empty.
        } else if is_split {
            self.mark_returned(id);
        }
        if let Some(returned) = self.activations[id].returned {
            self.b.ins().jump(returned, &[]);
        }
        Ok(Flow::Gone)
    }

    /// Stores the result of a function, for active invocations.
    fn set_result(&mut self, id: ActivationId, numbers: &[Number]) {
        if self.spill_result(id, numbers) {
            return;
        }
        let varies = self.analysis.returns_varying(id);
        for (place, number) in numbers.iter().enumerate() {
            let register = self.activations[id].result[place];
            let is_partial = varies && self.analysis.returns_divergently(id);
            let old = |e: &mut Self| e.get_register(register, true, number.kind);
            let number = if is_partial { self.where_active(*number, old) } else { *number };
            self.set_register(register, varies, number);
        }
    }

    fn switch(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Number,
        cases: &'m [SwitchCase],
        span: Span,
    ) -> Result<Flow> {
        let mut groups: Vec<(Vec<SwitchValue>, &'m Block)> = Vec::new();
        let mut values = Vec::new();
        for case in cases {
            values.push(case.value);
            if !case.fall_through {
                groups.push((std::mem::take(&mut values), &case.body));
            } else if !case.body.is_empty() {
                return Err(Refusal::new(span, "expected cases that end, found one that goes on with the next"));
            }
        }
        match selector.lanes {
            Lanes::Same(selector) if !self.analysis.is_divergent(id, statement) => {
                self.switch_uniform(id, statement, selector, &groups)
            }
            _ => self.switch_divergent(id, statement, selector, &groups),
        }
    }

    fn switch_uniform(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Value,
        groups: &[(Vec<SwitchValue>, &'m Block)],
    ) -> Result<Flow> {
        self.prepare_exits(id, statement);
        let (blocks, after) = self.dispatch(selector, groups);
        let active = self.control.active;
        self.control.push_target(Jump::Uniform(after), None);
        for ((_, body), block) in groups.iter().zip(blocks) {
            self.b.switch_to_block(block);
            if self.block(id, body)? != Flow::Gone {
                debug_assert_eq!(self.control.active, active, "as in a branch");
                self.b.ins().jump(after, &[]);
            }
            self.control.active = active;
        }
        self.control.pop();
        self.b.switch_to_block(after);
        Ok(Flow::On)
    }

    /// Jumps to the block of the case that a selector names, and returns these blocks and the one after the switch.
    pub(crate) fn dispatch<T>(
        &mut self,
        selector: Value,
        cases: &[(Vec<SwitchValue>, T)],
    ) -> (Vec<ir::Block>, ir::Block) {
        let after = self.b.create_block();
        let blocks: Vec<_> = cases.iter().map(|_| self.b.create_block()).collect();
        let mut default = after;
        for ((values, _), block) in cases.iter().zip(&blocks) {
            for value in values {
                if *value == SwitchValue::Default {
                    default = *block;
                    continue;
                }
                let is_here = self.b.ins().icmp_imm_s(IntCC::Equal, selector, case_value(*value));
                let next = self.b.create_block();
                self.b.ins().brif(is_here, *block, &[], next, &[]);
                self.b.switch_to_block(next);
            }
        }
        self.b.ins().jump(default, &[]);
        (blocks, after)
    }

    /// Puts the mask into registers before a uniform branch in which invocations may leave the function or a loop: the code after the
    /// branch uses them, whichever way was gone.
    fn prepare_exits(&mut self, id: ActivationId, statement: &Statement) {
        let breaks = leaves(statement, false, false) && matches!(self.control.on_break(), Some(Jump::Divergent(_)));
        // As inside of a switch, so that a `break` does not count.
        let continues =
            leaves(statement, false, true) && matches!(self.control.on_continue(), Some(Jump::Divergent(_)));
        if self.may_return(id, statement) || breaks || continues {
            self.control.mask(&mut self.b);
        }
    }

    fn switch_divergent(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Number,
        groups: &[(Vec<SwitchValue>, &'m Block)],
    ) -> Result<Flow> {
        let exits = leaves(statement, false, false) || has_return(statement);
        let before = self.control.active;
        let saved = self.control.lanes(&mut self.b);
        let active = self.control.mask(&mut self.b);
        let selector = self.parts(selector);
        let none = no_lanes(&mut self.b);
        let broke = Mask::new(&mut self.b, none);
        let (mut masks, mut named) = (Vec::new(), none);
        for (values, _) in groups {
            let mut mask = none;
            for value in values.iter().filter(|value| **value != SwitchValue::Default) {
                let case = vector_constant(&mut self.b, [case_value(*value) as i32; 4]);
                mask = std::array::from_fn(|part| {
                    let is_here = self.b.ins().icmp(IntCC::Equal, selector[part], case);
                    self.b.ins().bor(mask[part], is_here)
                });
            }
            named = std::array::from_fn(|part| self.b.ins().bor(named[part], mask[part]));
            masks.push(mask);
        }
        self.control.push_target(Jump::Divergent(broke), None);
        for ((values, body), mask) in groups.iter().zip(masks) {
            let mask = if values.contains(&SwitchValue::Default) {
                std::array::from_fn(|part| {
                    let others = self.b.ins().bnot(named[part]);
                    self.b.ins().bor(mask[part], others)
                })
            } else {
                mask
            };
            let mask = std::array::from_fn(|part| self.b.ins().band(saved[part], mask[part]));
            self.masked(id, mask, body)?;
            broke.add(&mut self.b, active);
        }
        self.control.pop();
        if exits {
            let lanes = broke.get(&mut self.b);
            active.set(&mut self.b, lanes);
        } else {
            active.set(&mut self.b, saved);
            self.control.active = before;
        }
        Ok(Flow::On)
    }

    fn call(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        arguments: &'m [Handle<Expression>],
        result: Option<Handle<Expression>>,
        span: Span,
    ) -> Result<()> {
        let callee = self.analysis.callee(id, statement).expect("every call was analysed");
        let function = self.analysis.activations[callee].function;
        let operands = arguments.iter().map(|argument| self.operand(id, *argument)).collect::<Result<_>>()?;
        self.activations[callee].arguments = operands;
        if let Some(result) = &function.result {
            let inner = &self.module.types[result.ty].inner;
            let found = self.scalars("a result", inner, span)?;
            let varies = self.analysis.returns_varying(callee);
            let kinds: Vec<Kind> = found.iter().map(|leaf| leaf.kind).collect();
            self.budget.spend(kinds.len(), self.b.func, span)?;
            let registers: Vec<_> = kinds.iter().map(|kind| self.register(*kind, varies)).collect();
            for (register, kind) in registers.iter().zip(&kinds) {
                let zero = self.constant(*kind, 0.0);
                self.set_register(*register, varies, zero);
            }
            self.start_result(callee, kinds.len());
            (self.activations[callee].result, self.activations[callee].result_kinds) = (registers, kinds);
        }
        self.declare_locals(callee, false)?;
        self.start_locals(callee)?;
        let returned = self.b.create_block();
        self.activations[callee].returned = Some(returned);
        self.control.enter_function();
        let before = self.control.active;
        let narrows = self.analysis.returns_divergently(callee);
        let saved = narrows.then(|| (self.control.lanes(&mut self.b), self.control.mask(&mut self.b)));
        if self.block(callee, &function.body)? != Flow::Gone {
            self.b.ins().jump(returned, &[]);
        }
        self.b.switch_to_block(returned);
        self.control.leave_function();
        if let Some((lanes, mask)) = saved {
            mask.set(&mut self.b, lanes);
        }
        self.control.active = before;
        if let Some(result) = result {
            self.trace_result(callee, id, result);
            let varies = self.analysis.returns_varying(callee);
            let pairs: Vec<_> = self.activations[callee]
                .result
                .iter()
                .copied()
                .zip(self.activations[callee].result_kinds.clone())
                .collect();
            let numbers = pairs.into_iter().map(|(register, kind)| self.get_register(register, varies, kind)).collect();
            self.define(id, result, Operand::Numbers(numbers))?;
        }
        Ok(())
    }
}

/// The name of a statement or an expression in messages.
pub(crate) fn variant_name(given: &impl std::fmt::Debug) -> String {
    let text = format!("{given:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_string()
}

/// The number of a case.
pub(crate) fn case_value(value: SwitchValue) -> i64 {
    match value {
        SwitchValue::I32(value) => i64::from(value),
        SwitchValue::U32(value) => i64::from(value.cast_signed()),
        SwitchValue::Default => 0,
    }
}
