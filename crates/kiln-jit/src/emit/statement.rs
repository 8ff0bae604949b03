//! Statements: control flow of a vector of invocations, who may go different ways.
//!
//! Where all go the same way, control is a branch. Otherwise both ways run, one after the other, and who does not take part
//! is kept in registers.

use super::lanes::{Number, PARTS};
use super::{Active, Emitter, Operand, Result, Target};
use crate::Refusal;
use crate::analysis::ActivationId;
use crate::regions::{has_return, leaves};
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use naga::{Block, Expression, Handle, Span, Statement, SwitchCase, SwitchValue};

/// What became of control behind a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It goes on.
    On,
    /// Nobody takes part any more, until others come back.
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
            self.spend(1, span)?;
            let known = all[place..].iter().map(|(_, span)| *span).find(Span::is_defined);
            self.here = known.unwrap_or(self.here);
            let rest = &all[place + 1..];
            if let Some(condition) = self.may_leave_some(id, statement)
                && self.is_worth_twice(id, rest.iter().map(|(next, _)| *next))
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
                if self.in_steps(id) && body.last().is_some_and(|last| std::ptr::eq(last, statement)) {
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
                    self.forget(variable, self.homes[&variable].kinds.len());
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
                let name = format!("{other:?}");
                let name = name.split([' ', '(', '{']).next().unwrap_or_default().to_string();
                return Err(Refusal::new(
                    span,
                    format!("expected a statement that a processor can run, found `{name}`"),
                ));
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
        if let super::lanes::Lanes::Same(condition) = condition.lanes {
            self.spread_before(id, statement);
            let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
            self.b.ins().brif(condition, yes, &[], no, &[]);
            let mut goes_on = false;
            let active = self.active;
            for (start, body) in [(yes, accept), (no, reject)] {
                self.b.switch_to_block(start);
                if self.block(id, body)? != Flow::Gone {
                    debug_assert_eq!(
                        self.active, active,
                        "who leaves in a branch does so in registers that are known behind it"
                    );
                    self.b.ins().jump(after, &[]);
                    goes_on = true;
                }
                self.active = active;
            }
            self.b.switch_to_block(after);
            return Ok(if goes_on { Flow::On } else { self.nothing_leads_here() });
        }
        let exits = leaves(statement, false, false) || has_return(statement);
        let before = self.active;
        let saved = self.active_mask();
        let registers = self.spread_active();
        let condition = self.parts(condition);
        let mask = std::array::from_fn(|part| self.b.ins().band(saved[part], condition[part]));
        self.masked(id, mask, accept)?;
        let left = registers.map(|register| self.b.use_var(register));
        let mask: [Value; PARTS] = std::array::from_fn(|part| self.b.ins().band_not(saved[part], condition[part]));
        if reject.is_empty() {
            self.set_mask(registers, mask);
        } else {
            self.masked(id, mask, reject)?;
        }
        if !exits {
            self.set_mask(registers, saved);
            self.active = before;
            return Ok(Flow::On);
        }
        let joined = std::array::from_fn(|part| {
            let right = self.b.use_var(registers[part]);
            self.b.ins().bor(left[part], right)
        });
        self.set_mask(registers, joined);
        // Often nobody is left, and nobody waits at the end of a branch or loop around: the rest of the function is for others.
        let is_alone = self.targets.is_empty() && self.branches == 0;
        if let (true, Some(returned)) = (is_alone, self.known[id].returned) {
            let (any, rest) = (self.any(joined), self.b.create_block());
            self.b.ins().brif(any, rest, &[], returned, &[]);
            self.b.switch_to_block(rest);
        }
        Ok(Flow::On)
    }

    /// Ends a block that is never reached. Not with a trap, which would end the process where it is.
    pub(crate) fn nothing_leads_here(&mut self) -> Flow {
        let fault = self.fault;
        self.b.ins().jump(fault, &[]);
        Flow::Gone
    }

    /// Emits a block for those in the mask, to be run where there is one.
    fn masked(&mut self, id: ActivationId, mask: [Value; PARTS], body: &'m Block) -> Result<()> {
        let registers = self.spread_active();
        self.set_mask(registers, mask);
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        let any = self.any(mask);
        self.b.ins().brif(any, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        self.branches += 1;
        let flow = if self.is_worth_twice(id, body.iter()) {
            let all = self.all(mask);
            self.twice(all, registers, self.active, |e, _| e.block(id, body))?
        } else {
            self.block(id, body)?
        };
        if flow != Flow::Gone {
            self.b.ins().jump(after, &[]);
        }
        self.branches -= 1;
        self.active = Active::Some(registers);
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
        let before = self.active;
        let registers = (is_divergent || may_return).then(|| self.spread_active());
        let (header, next, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let cost = self.cost;
        let nobody = [self.vector_constant([0; 4]); PARTS];
        let broke = is_divergent.then(|| self.new_mask(nobody));
        let continued = is_divergent.then(|| self.new_mask(nobody));
        match self.active {
            // Without anybody to change what it waits for, a loop might never end.
            Active::Some(_) => {
                let mask = self.active_mask();
                let any = self.any(mask);
                self.b.ins().brif(any, header, &[], exit, &[]);
            }
            Active::All => {
                self.b.ins().jump(header, &[]);
            }
        }
        self.b.switch_to_block(header);
        let active = self.active;
        if let Some(continued) = continued {
            self.set_mask(continued, nobody);
        }
        self.targets.push(Target { is_loop: true, on_break: exit, on_continue: next, broke, continued });
        if self.block(id, body)? != Flow::Gone {
            self.b.ins().jump(next, &[]);
        }
        self.active = active;
        self.b.switch_to_block(next);
        if let (Some(registers), Some(continued)) = (registers, continued) {
            self.join(registers, continued);
        }
        let flow = self.block(id, continuing)?;
        if flow != Flow::Gone {
            self.close_round(id, break_if, registers, (header, exit), cost)?;
        }
        self.targets.pop();
        self.active = active;
        self.b.switch_to_block(exit);
        if let (Some(registers), Some(broke)) = (registers, broke) {
            let mask = broke.map(|register| self.b.use_var(register));
            self.set_mask(registers, mask);
        }
        if !may_return {
            // Who left is back.
            self.active = before;
        }
        Ok(Flow::On)
    }

    /// Behind the last statement of a round: once more, or out.
    fn close_round(
        &mut self,
        id: ActivationId,
        break_if: Option<Handle<Expression>>,
        registers: Option<[cranelift_frontend::Variable; PARTS]>,
        (header, exit): (cranelift_codegen::ir::Block, cranelift_codegen::ir::Block),
        cost: u64,
    ) -> Result<()> {
        let broke = self.targets.last().and_then(|target| target.broke);
        if let Some(condition) = break_if {
            self.check_way(id, condition);
            let condition = self.number(id, condition)?;
            match (registers, broke, condition.lanes) {
                (Some(registers), Some(broke), _) => {
                    let (mask, condition) = (self.active_mask(), self.parts(condition));
                    let left = std::array::from_fn(|part| {
                        let leaving = self.b.ins().band(mask[part], condition[part]);
                        let earlier = self.b.use_var(broke[part]);
                        self.b.ins().bor(earlier, leaving)
                    });
                    self.set_mask(broke, left);
                    let mask = std::array::from_fn(|part| self.b.ins().band_not(mask[part], condition[part]));
                    self.set_mask(registers, mask);
                }
                (_, _, super::lanes::Lanes::Same(condition)) => {
                    let again = self.b.create_block();
                    self.b.ins().brif(condition, exit, &[], again, &[]);
                    self.b.switch_to_block(again);
                }
                _ => return Err(Refusal::new(Span::UNDEFINED, "expected a condition of a loop that was analysed")),
            }
        }
        self.spend_round(cost);
        if registers.is_some() {
            let mask = self.active_mask();
            let any = self.any(mask);
            self.b.ins().brif(any, header, &[], exit, &[]);
        } else {
            self.b.ins().jump(header, &[]);
        }
        Ok(())
    }

    /// Adds the lanes of one mask to another.
    fn join(&mut self, to: [cranelift_frontend::Variable; PARTS], from: [cranelift_frontend::Variable; PARTS]) {
        let mask = std::array::from_fn(|part| {
            let (a, b) = (self.b.use_var(to[part]), self.b.use_var(from[part]));
            self.b.ins().bor(a, b)
        });
        self.set_mask(to, mask);
    }

    fn leave(&mut self, is_break: bool) -> Flow {
        let target =
            if is_break { self.targets.last() } else { self.targets.iter().rev().find(|target| target.is_loop) };
        let target = target.expect("validation saw a loop or switch around it");
        let (mask, block) =
            if is_break { (target.broke, target.on_break) } else { (target.continued, target.on_continue) };
        match mask {
            None => {
                self.b.ins().jump(block, &[]);
                Flow::Gone
            }
            Some(gone) => {
                let registers = self.spread_active();
                self.join(gone, registers);
                self.nobody(registers);
                Flow::Empty
            }
        }
    }

    fn nobody(&mut self, registers: [cranelift_frontend::Variable; PARTS]) {
        let nobody = [self.vector_constant([0; 4]); PARTS];
        self.set_mask(registers, nobody);
    }

    fn give_back(&mut self, id: ActivationId, value: Option<Handle<Expression>>) -> Result<Flow> {
        if let Some(value) = value {
            let numbers = self.numbers(id, value)?;
            self.set_result(id, &numbers);
            self.trace_return(id, value)?;
        }
        let (in_steps, is_apart) = (self.in_steps(id), self.analysis.returns_apart(id));
        if self.lanes > 1 && (in_steps || is_apart) {
            let registers = self.spread_active();
            self.nobody(registers);
            if is_apart {
                return Ok(Flow::Empty);
            }
            // All of the vector leave at once: what is behind it is for nobody, and counts on that.
        } else if in_steps {
            self.mark_returned(id);
        }
        if let Some(returned) = self.known[id].returned {
            self.b.ins().jump(returned, &[]);
        }
        Ok(Flow::Gone)
    }

    /// Keeps what a function gives back, for those who are at its end.
    fn set_result(&mut self, id: ActivationId, numbers: &[Number]) {
        if self.keep_result(id, numbers) {
            return;
        }
        let varies = self.analysis.returns_varying(id);
        for (place, number) in numbers.iter().enumerate() {
            let register = self.known[id].result[place];
            let mut number = *number;
            if let (true, true, Active::Some(_)) = (varies, self.analysis.returns_apart(id), self.active) {
                let mask = self.active_mask();
                let old = self.get_register(register, true, number.kind);
                number = self.select(Number::each(Kind::Bool, mask), number, old);
            }
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
            super::lanes::Lanes::Same(selector) if !self.analysis.is_divergent(id, statement) => {
                self.switch_together(id, statement, selector, &groups)
            }
            _ => self.switch_apart(id, statement, selector, &groups),
        }
    }

    fn switch_together(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Value,
        groups: &[(Vec<SwitchValue>, &'m Block)],
    ) -> Result<Flow> {
        self.spread_before(id, statement);
        let after = self.b.create_block();
        let blocks: Vec<_> = groups.iter().map(|_| self.b.create_block()).collect();
        let mut default = after;
        for ((values, _), block) in groups.iter().zip(&blocks) {
            for value in values {
                match value {
                    SwitchValue::Default => default = *block,
                    SwitchValue::I32(_) | SwitchValue::U32(_) => {
                        let is_here = self.b.ins().icmp_imm_s(IntCC::Equal, selector, case_value(*value));
                        let next = self.b.create_block();
                        self.b.ins().brif(is_here, *block, &[], next, &[]);
                        self.b.switch_to_block(next);
                    }
                }
            }
        }
        self.b.ins().jump(default, &[]);
        let active = self.active;
        self.targets.push(Target { is_loop: false, on_break: after, on_continue: after, broke: None, continued: None });
        for ((_, body), block) in groups.iter().zip(blocks) {
            self.b.switch_to_block(block);
            if self.block(id, body)? != Flow::Gone {
                debug_assert_eq!(self.active, active, "as in a branch");
                self.b.ins().jump(after, &[]);
            }
            self.active = active;
        }
        self.targets.pop();
        self.b.switch_to_block(after);
        Ok(Flow::On)
    }

    /// Puts who takes part into registers before a branch that all go the same way, if some may leave the function or a loop in it: what is
    /// behind the branch goes by them, whichever way was gone.
    fn spread_before(&mut self, id: ActivationId, statement: &Statement) {
        let breaks =
            leaves(statement, false, false) && self.targets.last().is_some_and(|target| target.broke.is_some());
        let innermost = self.targets.iter().rev().find(|target| target.is_loop);
        // As inside of a switch, so that a `break` does not count.
        let continues = leaves(statement, false, true) && innermost.is_some_and(|target| target.continued.is_some());
        if self.may_return(id, statement) || breaks || continues {
            self.spread_active();
        }
    }

    fn switch_apart(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Number,
        groups: &[(Vec<SwitchValue>, &'m Block)],
    ) -> Result<Flow> {
        let exits = leaves(statement, false, false) || has_return(statement);
        let before = self.active;
        let saved = self.active_mask();
        let registers = self.spread_active();
        let selector = self.parts(selector);
        let nobody = [self.vector_constant([0; 4]); PARTS];
        let broke = self.new_mask(nobody);
        let (mut masks, mut named) = (Vec::new(), nobody);
        for (values, _) in groups {
            let mut mask = nobody;
            for value in values.iter().filter(|value| **value != SwitchValue::Default) {
                let case = self.vector_constant([case_value(*value) as i32; 4]);
                mask = std::array::from_fn(|part| {
                    let is_here = self.b.ins().icmp(IntCC::Equal, selector[part], case);
                    self.b.ins().bor(mask[part], is_here)
                });
            }
            named = std::array::from_fn(|part| self.b.ins().bor(named[part], mask[part]));
            masks.push(mask);
        }
        self.targets.push(Target {
            is_loop: false,
            on_break: self.fault,
            on_continue: self.fault,
            broke: Some(broke),
            continued: None,
        });
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
            self.join(broke, registers);
        }
        self.targets.pop();
        if exits {
            let mask = broke.map(|register| self.b.use_var(register));
            self.set_mask(registers, mask);
        } else {
            self.set_mask(registers, saved);
            self.active = before;
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
        let mut operands = Vec::with_capacity(arguments.len());
        for argument in arguments {
            operands.push(self.operand(id, *argument)?);
        }
        self.known[callee].arguments = operands;
        if let Some(result) = &function.result {
            let inner = &self.module.types[result.ty].inner;
            let found = self.scalars("a result", inner, span)?;
            let varies = self.analysis.returns_varying(callee);
            let kinds: Vec<Kind> = found.iter().map(|leaf| leaf.kind).collect();
            self.spend(kinds.len(), span)?;
            let registers: Vec<_> = kinds.iter().map(|kind| self.register(*kind, varies)).collect();
            for (register, kind) in registers.iter().zip(&kinds) {
                let zero = self.constant(*kind, 0.0);
                self.set_register(*register, varies, zero);
            }
            self.start_result(callee, kinds.len());
            (self.known[callee].result, self.known[callee].result_kinds) = (registers, kinds);
        }
        self.declare_locals(callee, false)?;
        self.start_locals(callee)?;
        let returned = self.b.create_block();
        self.known[callee].returned = Some(returned);
        let (targets, branches) = (std::mem::take(&mut self.targets), std::mem::take(&mut self.branches));
        let before = self.active;
        let narrows = self.analysis.returns_apart(callee);
        let saved = narrows.then(|| (self.active_mask(), self.spread_active()));
        if self.block(callee, &function.body)? != Flow::Gone {
            self.b.ins().jump(returned, &[]);
        }
        self.b.switch_to_block(returned);
        (self.targets, self.branches) = (targets, branches);
        if let Some((mask, registers)) = saved {
            self.set_mask(registers, mask);
        }
        self.active = before;
        if let Some(result) = result {
            self.trace_result(callee, id, result);
            let varies = self.analysis.returns_varying(callee);
            let pairs: Vec<_> =
                self.known[callee].result.iter().copied().zip(self.known[callee].result_kinds.clone()).collect();
            let numbers = pairs.into_iter().map(|(register, kind)| self.get_register(register, varies, kind)).collect();
            self.define(id, result, Operand::Numbers(numbers))?;
        }
        Ok(())
    }
}

/// The number of a case.
pub(crate) fn case_value(value: SwitchValue) -> i64 {
    match value {
        SwitchValue::I32(value) => i64::from(value),
        SwitchValue::U32(value) => i64::from(value.cast_signed()),
        SwitchValue::Default => 0,
    }
}
