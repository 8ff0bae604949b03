//! Work-groups: one after the other on the thread that runs the code, each as gangs between barriers.

use super::control::Active;
use super::group::{GroupTarget, ResultWord};
use super::lanes::{Lanes, Number, flags};
use super::spill::{Form, Spilled};
use super::statement::Flow;
use super::{Emitter, Operand, Result};
use crate::abi;
use crate::analysis::{ActivationId, Variable};
use crate::regions::{GroupOp, Regions, ValueId, has_return};
use crate::sanitize::Event;
use crate::sanitize::site::Use;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use naga::{Barrier, Expression, Handle, Span, Statement, SwitchValue};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    /// The loop over work-groups, from the first to before the end.
    pub(crate) fn workgroups(&mut self, [first, end]: [Value; 2], regions: Option<&'m Regions<'m>>) -> Result<()> {
        let group = self.b.declare_var(types::I64);
        self.b.def_var(group, first);
        let (header, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        let number = self.b.use_var(group);
        let goes_on = self.b.ins().icmp(IntCC::UnsignedLessThan, number, end);
        self.b.ins().brif(goes_on, body, &[], done, &[]);
        self.b.switch_to_block(body);
        let [x_groups, y_groups, _] = self.workgroup_counts();
        let (x_groups, y_groups) =
            (self.b.ins().uextend(types::I64, x_groups), self.b.ins().uextend(types::I64, y_groups));
        let (rows, x) = (self.b.ins().udiv(number, x_groups), self.b.ins().urem(number, x_groups));
        let (z, y) = (self.b.ins().udiv(rows, y_groups), self.b.ins().urem(rows, y_groups));
        self.gang.workgroup = [x, y, z].map(|number| self.b.ins().ireduce(types::I32, number));
        if self.options.sanitize {
            let (nobody, zero) = (self.i32(0), self.wide(0));
            self.runtime.event(&mut self.b, Event::Group, 0, nobody, [number, zero]);
        }
        if self.options.zero_workgroup && self.layout.shared_bytes > 0 {
            self.clear(self.runtime.scratch, self.layout.shared_bytes);
        }
        let entry = &self.module.entry_points[0].function;
        if let Some(regions) = regions {
            self.run_regions(regions)?;
        } else {
            self.declare_locals(0, false)?;
            self.for_gangs(|e| {
                let after = e.b.create_block();
                e.activations[0].returned = Some(after);
                e.start_privates()?;
                e.start_locals(0)?;
                if e.block(0, &entry.body)? != Flow::Gone {
                    e.b.ins().jump(after, &[]);
                }
                e.b.switch_to_block(after);
                Ok(())
            })?;
        }
        let number = self.b.use_var(group);
        let next = self.b.ins().iadd_imm_s(number, 1);
        self.b.def_var(group, next);
        self.spend_round(0);
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(done);
        let code = self.b.ins().iconst(types::I32, i64::from(abi::DONE));
        self.b.ins().return_(&[code]);
        Ok(())
    }

    /// Emits something for every gang of a work-group.
    pub(crate) fn for_gangs(&mut self, emit: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.times(self.gang.count(), |e, index| {
            e.begin_gang(index);
            emit(e)?;
            e.control.active = Active::All;
            Ok(())
        })
    }

    /// From here on, this gang runs.
    pub(crate) fn begin_gang(&mut self, index: Value) {
        self.gang.begin(&mut self.b, &self.runtime, self.layout.group_bytes, index);
        self.control.active = Active::All;
        if self.gang.is_ragged() {
            let (index, limit) = (self.gang.local_index(&mut self.b), self.u32_same(self.gang.invocations()));
            let inside = self.compare_int(IntCC::UnsignedLessThan, index, limit);
            let lanes = self.parts(inside);
            self.control.activate(&mut self.b, lanes);
        }
    }

    fn run_regions(&mut self, regions: &'m Regions<'m>) -> Result<()> {
        let first = self.layout.add_decisions(regions.decisions.len());
        self.spills.place_decisions(first);
        for (handle, _) in self.module.global_variables.iter() {
            let span = self.module.global_variables.get_span(handle);
            if let Some(home) = self.variables.in_registers(Variable::Private(handle)) {
                home.word = Some(self.layout.reserve(home.kinds.len(), span)?);
            }
        }
        let end = self.b.create_block();
        self.begin_split(0, None)?;
        self.group_ops(0, &regions.ops, end)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    /// Starts an activation that is split at barriers: its variables, and the invocations that are active in it.
    fn begin_split(&mut self, id: ActivationId, caller: Option<ActivationId>) -> Result<()> {
        self.declare_locals(id, true)?;
        let body = &self.analysis.activations[id].function.body;
        let returns_early = (body.iter().enumerate())
            .any(|(place, statement)| has_return(statement) && !(place + 1 == body.len() && is_return(statement)));
        let caller_live = caller.and_then(|caller| self.group.live(caller));
        let live = if returns_early || caller_live.is_some() { Some(self.layout.reserve(1, self.here)?) } else { None };
        self.group.enter(id, live);
        self.for_gangs(|e| {
            e.variables.take_written();
            if id == 0 {
                e.start_privates()?;
            }
            e.start_locals(id)?;
            e.write_back();
            if let Some(live) = live {
                let varies = e.gang.is_vector();
                let number = match caller_live {
                    Some(word) => e.load_word(word, Kind::Bool, varies),
                    None if varies => Number::each(Kind::Bool, e.control.lanes(&mut e.b)),
                    None => e.constant(Kind::Bool, 1.0),
                };
                e.store_word(live, number, varies);
            }
            Ok(())
        })
    }

    /// Emits operations of the work-group; `end` is where it goes when no invocation is active any more.
    pub(crate) fn group_ops(&mut self, id: ActivationId, ops: &'m [GroupOp<'m>], end: Block) -> Result<()> {
        for op in ops {
            match op {
                GroupOp::Region { region, statements } => {
                    let live_ins = self.spills.live_ins_of(*region);
                    self.region(id, live_ins, end, |e| e.statements(id, statements.iter().copied()))?;
                }
                GroupOp::Collective {
                    region,
                    statement: Statement::WorkGroupUniformLoad { pointer, .. },
                    result,
                    span,
                } => {
                    self.here = *span;
                    self.check_barrier(id, Barrier::WORK_GROUP, *span)?;
                    self.region(id, self.spills.live_ins_of(*region), end, |e| {
                        let from = e.pointer(id, *pointer)?;
                        let value = e.load_value(id, *result, &from, e.span(id, *pointer))?;
                        e.define(id, *result, value)?;
                        Ok(Flow::On)
                    })?;
                    self.check_barrier(id, Barrier::WORK_GROUP, *span)?;
                }
                GroupOp::Collective { region, statement, result, span } => {
                    self.here = *span;
                    let live_ins = self.spills.live_ins_of(*region);
                    self.region(id, live_ins, end, |e| {
                        let numbers = e.subgroup_op(id, statement, *result, *span, live_ins)?;
                        e.define(id, *result, Operand::Numbers(numbers))?;
                        Ok(Flow::On)
                    })?;
                }
                GroupOp::Barrier { barrier, span } => self.check_barrier(id, *barrier, *span)?,
                GroupOp::If { condition, accept, reject, divergence: Some(region) } => {
                    let live_ins = self.spills.live_ins_of(*region);
                    for (ops, goes) in [(accept, true), (reject, false)] {
                        self.push_level(id, live_ins, |e| {
                            let is_active = e.number(id, *condition)?;
                            Ok(if goes { is_active } else { e.not(is_active) })
                        })?;
                        self.divergent_ops(id, ops)?;
                    }
                }
                GroupOp::Switch { selector, cases, divergence: Some(region) } => {
                    self.divergent_switch(id, *selector, cases, *region)?;
                }
                GroupOp::Loop { body, continuing, break_if, divergence: Some(region) } => {
                    self.divergent_loop(id, body, continuing, *break_if, *region)?;
                }
                GroupOp::If { condition, accept, reject, divergence: None } => {
                    let condition = self.decision(id, *condition)?;
                    let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                    self.b.ins().brif(condition, yes, &[], no, &[]);
                    for (start, ops) in [(yes, accept), (no, reject)] {
                        self.b.switch_to_block(start);
                        self.group_ops(id, ops, end)?;
                        self.b.ins().jump(after, &[]);
                    }
                    self.b.switch_to_block(after);
                }
                GroupOp::Switch { selector, cases, divergence: None } => {
                    self.group_switch(id, *selector, cases, end)?;
                }
                GroupOp::Loop { body, continuing, break_if, divergence: None } => {
                    let (header, next, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                    let cost = self.budget.cost;
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(header);
                    self.group.push_target(GroupTarget::Uniform { exit, next: Some(next) });
                    self.group_ops(id, body, end)?;
                    self.b.ins().jump(next, &[]);
                    self.b.switch_to_block(next);
                    self.group_ops(id, continuing, end)?;
                    self.group.pop_target();
                    if let Some(condition) = break_if {
                        let (condition, again) = (self.decision(id, *condition)?, self.b.create_block());
                        self.b.ins().brif(condition, exit, &[], again, &[]);
                        self.b.switch_to_block(again);
                    }
                    self.spend_round(cost);
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(exit);
                }
                GroupOp::Break | GroupOp::Continue => self.group_jump(id, matches!(op, GroupOp::Break))?,
                GroupOp::Call { callee, ops, result } => self.group_call(id, *callee, ops, *result, end)?,
            }
        }
        Ok(())
    }

    /// Tells the sanitizer which invocations are at a barrier, and that later accesses come after it.
    fn check_barrier(&mut self, id: ActivationId, barrier: Barrier, span: Span) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        let (site, live) = (self.plain_site(Use::Control, span), self.group.live(id));
        let (orders, zero) = (self.wide(i64::from(barrier.bits())), self.wide(0));
        if barrier == Barrier::SUB_GROUP {
            // One event for each invocation: those of another subgroup need not come.
            return self.for_gangs(|e| {
                let here = match live {
                    Some(live) => e.load_flag(live),
                    None => e.b.ins().iconst(types::I8, 1),
                };
                e.when(here, |e| e.event(Event::Barrier, site, [orders, zero]));
                Ok(())
            });
        }
        if let Some(live) = live {
            self.for_gangs(|e| {
                let here = e.load_flag(live);
                let numbers = [e.b.ins().uextend(types::I64, here), e.wide(0)];
                e.event(Event::Arrive, site, numbers);
                Ok(())
            })?;
        }
        let nobody = self.i32(0);
        self.runtime.event(&mut self.b, Event::Barrier, site, nobody, [orders, zero]);
        Ok(())
    }

    fn group_switch(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &'m [(Vec<SwitchValue>, Vec<GroupOp<'m>>)],
        end: Block,
    ) -> Result<()> {
        let selector = self.decision(id, selector)?;
        let (blocks, after) = self.dispatch(selector, cases);
        self.group.push_target(GroupTarget::Uniform { exit: after, next: None });
        for ((_, ops), block) in cases.iter().zip(blocks) {
            self.b.switch_to_block(block);
            self.group_ops(id, ops, end)?;
            self.b.ins().jump(after, &[]);
        }
        self.group.pop_target();
        self.b.switch_to_block(after);
        Ok(())
    }

    fn group_call(
        &mut self,
        id: ActivationId,
        callee: ActivationId,
        ops: &'m [GroupOp<'m>],
        result: Option<Handle<Expression>>,
        end: Block,
    ) -> Result<()> {
        let function = self.analysis.activations[callee].function;
        if let (Some(result), Some(declared)) = (result, &function.result) {
            let span = self.span(id, result);
            let found = self.scalars("a result", &self.module.types[declared.ty].inner, span)?;
            let varies = self.analysis.returns_varying(callee);
            let first = self.layout.reserve(found.len(), span)?;
            let words: Vec<ResultWord> =
                found.iter().zip(first..).map(|(leaf, word)| (leaf.kind, varies, word)).collect();
            let form = if varies { Form::Each } else { Form::Same };
            let numbers = words.iter().map(|(kind, _, word)| (*kind, form, *word)).collect();
            self.spills.slots.insert((id, result), Spilled { numbers, pointer: None, is_stored: false });
            self.group.set_result(callee, words);
        }
        self.begin_split(callee, Some(id))?;
        let after = self.b.create_block();
        self.group_ops(callee, ops, after)?;
        self.group.leave();
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        // Regions of the callee spilled the result, and none of the caller defines it, whose control flow may depend on it.
        match result.filter(|result| self.spills.decision((id, *result)).is_some()) {
            Some(result) => self.region(id, &[(id, result)].into(), end, |e| {
                let number = e.number(id, result)?;
                e.note_decision(id, result, number);
                Ok(Flow::On)
            }),
            None => Ok(()),
        }
    }

    /// Emits statements between two barriers, for every gang.
    fn region(
        &mut self,
        id: ActivationId,
        live_ins: &BTreeSet<ValueId>,
        end: Block,
        emit: impl FnOnce(&mut Self) -> Result<Flow>,
    ) -> Result<()> {
        let alive = self.group.live(id).map(|live| {
            let alive = self.b.declare_var(types::I8);
            let none = self.b.ins().iconst(types::I8, 0);
            self.b.def_var(alive, none);
            (live, alive)
        });
        self.spills.set_live_ins(live_ins);
        self.for_gangs(|e| {
            let (inside, after) = (e.b.create_block(), e.b.create_block());
            if let Some((live, _)) = alive {
                let number = e.load_word(live, Kind::Bool, e.gang.is_vector());
                let any = match number.lanes {
                    Lanes::Same(value) => value,
                    _ => {
                        let lanes = e.parts(number);
                        e.control.activate(&mut e.b, lanes);
                        e.any(lanes)
                    }
                };
                e.b.ins().brif(any, inside, &[], after, &[]);
            } else {
                e.b.ins().jump(inside, &[]);
            }
            e.b.switch_to_block(inside);
            e.reload(live_ins)?;
            e.variables.take_written();
            let returned = e.b.create_block();
            e.activations[id].returned = Some(returned);
            if emit(e)? != Flow::Gone {
                e.b.ins().jump(returned, &[]);
            }
            e.b.switch_to_block(returned);
            e.write_back();
            if let Some((live, alive)) = alive {
                let here = if e.gang.is_vector() {
                    let lanes = e.control.lanes(&mut e.b);
                    e.store_word(live, Number::each(Kind::Bool, lanes), true);
                    e.any(lanes)
                } else {
                    e.load_flag(live)
                };
                let known = e.b.use_var(alive);
                let known = e.b.ins().bor(known, here);
                e.b.def_var(alive, known);
            }
            e.b.ins().jump(after, &[]);
            e.b.switch_to_block(after);
            Ok(())
        })?;
        self.spills.set_live_ins(&BTreeSet::new());
        if let Some((_, alive)) = alive {
            let (any, rest) = (self.b.use_var(alive), self.b.create_block());
            self.b.ins().brif(any, rest, &[], end, &[]);
            self.b.switch_to_block(rest);
        }
        Ok(())
    }

    /// Writes a condition of uniform control flow to the memory of the work-group, as any active invocation has it.
    pub(crate) fn decide(&mut self, at: u32, number: Number) {
        let at = self.b.ins().iadd_imm_s(self.runtime.scratch, i64::from(at));
        let mut write = |e: &mut Self, lane: usize| {
            let value = e.lane(number, lane);
            let value = if number.kind == Kind::Bool { e.b.ins().uextend(types::I32, value) } else { value };
            e.b.ins().store(flags(), value, at, 0);
        };
        if number.is_same() {
            self.when_any_active(|e| write(e, 0));
        } else {
            self.for_each_active(&mut write);
        }
    }

    /// A condition of uniform control flow of the work-group.
    fn decision(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Value> {
        let activation = &self.analysis.activations[id];
        if let (Expression::FunctionArgument(index), Some((caller, arguments))) =
            (&activation.function.expressions[expression], activation.caller)
        {
            return self.decision(caller, arguments[*index as usize]);
        }
        if let Some(at) = self.spills.decision((id, expression)) {
            return Ok(self.b.ins().load(types::I32, flags(), self.runtime.scratch, at.cast_signed()));
        }
        if self.options.sanitize {
            let span = self.span(id, expression);
            self.for_gangs(|e| {
                let number = e.number(id, expression)?;
                e.check_decision(number, span);
                Ok(())
            })?;
        }
        let number = self.number(id, expression)?;
        Ok(self.lane(number, 0))
    }

    /// Notes that the running invocation has returned; for gangs of one.
    pub(crate) fn mark_returned(&mut self, id: ActivationId) {
        let levels = self.group.levels(id).to_vec();
        self.leave_levels(&levels);
    }
}

fn is_return(statement: &Statement) -> bool {
    matches!(statement, Statement::Return { .. })
}
