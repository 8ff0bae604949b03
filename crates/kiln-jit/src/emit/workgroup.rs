//! The loop over workgroups, and the operations of a workgroup: regions, barriers and the uniform control flow
//! between them.

use super::control::Active;
use super::group_flow::{GroupTarget, ResultWord};
use super::lanes::{Lanes, Scalar, flags};
use super::spill::{Spilled, SpilledForm};
use super::statement::Flow;
use super::{Emitter, Operand, Result};
use crate::abi;
use crate::regions::{GroupOp, Regions, ValueId, has_return};
use crate::sanitizer::Event;
use crate::sanitizer::site::SiteKind;
use crate::types::Kind;
use crate::uniformity::{ActivationId, Variable};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use naga::{Barrier, Expression, Handle, Span, Statement, SwitchValue};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    /// Emits the loop over a half-open range of workgroups.
    pub(crate) fn workgroups(&mut self, [first, end]: [Value; 2], regions: Option<&'m Regions<'m>>) -> Result<()> {
        let group = self.b.declare_var(types::I64);
        self.b.def_var(group, first);
        let (header, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        let group_index = self.b.use_var(group);
        let continues = self.b.ins().icmp(IntCC::UnsignedLessThan, group_index, end);
        self.b.ins().brif(continues, body, &[], done, &[]);
        self.b.switch_to_block(body);
        let [x_groups, y_groups, _] = self.workgroup_counts();
        let (x_groups, y_groups) =
            (self.b.ins().uextend(types::I64, x_groups), self.b.ins().uextend(types::I64, y_groups));
        // x is the fastest axis.
        // The counts are not 0 here: the range of a launch with such a count is empty.
        let (rows, x) = (self.b.ins().udiv(group_index, x_groups), self.b.ins().urem(group_index, x_groups));
        let (z, y) = (self.b.ins().udiv(rows, y_groups), self.b.ins().urem(rows, y_groups));
        self.gang.workgroup = [x, y, z].map(|axis| self.b.ins().ireduce(types::I32, axis));
        if self.options.sanitize {
            let (no_invocation, zero) = (self.i32_const(0), self.i64_const(0));
            self.runtime.event(&mut self.b, Event::BeginWorkgroup, 0, no_invocation, [group_index, zero]);
        }
        // The scratch memory is reused, so it holds data of the previous workgroup.
        if self.options.zero_workgroup && self.layout.workgroup_bytes > 0 {
            self.clear(self.runtime.scratch, self.layout.workgroup_bytes);
        }
        let entry = &self.module.entry_points[0].function;
        if let Some(regions) = regions {
            self.run_regions(regions)?;
        } else {
            self.declare_locals(0, false)?;
            self.for_gangs(|e| {
                let after = e.b.create_block();
                e.activations[0].returned = Some(after);
                e.init_privates()?;
                e.init_locals(0)?;
                if e.block(0, &entry.body)? != Flow::Terminated {
                    e.b.ins().jump(after, &[]);
                }
                e.b.switch_to_block(after);
                Ok(())
            })?;
        }
        let group_index = self.b.use_var(group);
        let next = self.b.ins().iadd_imm_s(group_index, 1);
        self.b.def_var(group, next);
        // Every workgroup is charged, so that kernels without loops can time out too.
        self.spend_iteration(0);
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(done);
        let code = self.b.ins().iconst(types::I32, i64::from(abi::DONE));
        self.b.ins().return_(&[code]);
        Ok(())
    }

    /// Emits code for every gang of a workgroup, in a loop.
    pub(crate) fn for_gangs(&mut self, emit: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.counted_loop(self.gang.count(), |e, index| {
            e.begin_gang(index);
            emit(e)?;
            e.control.active = Active::All;
            Ok(())
        })
    }

    /// Switches to a gang and sets its mask.
    pub(crate) fn begin_gang(&mut self, index: Value) {
        self.gang.begin(&mut self.b, &self.runtime, self.layout.group_bytes, index);
        self.control.active = Active::All;
        // Known per workgroup size, so kernels whose size is a multiple of the gang never need this mask.
        if self.gang.has_partial_gang() {
            let (index, limit) = (self.gang.local_index(&mut self.b), self.u32_uniform(self.gang.invocations()));
            let inside = self.compare_int(IntCC::UnsignedLessThan, index, limit);
            let lanes = self.vectors(inside);
            self.control.activate(&mut self.b, lanes);
        }
    }

    /// Emits a program that is split at barriers.
    fn run_regions(&mut self, regions: &'m Regions<'m>) -> Result<()> {
        let first = self.layout.add_uniform_conditions(regions.uniform_conditions.len());
        self.spills.place_uniform_conditions(first);
        for (handle, _) in self.module.global_variables.iter() {
            let span = self.module.global_variables.get_span(handle);
            // Private variables were declared before it was known that they live across regions.
            if let Some(storage) = self.variables.in_registers(Variable::Private(handle)) {
                storage.word = Some(self.layout.reserve(storage.kinds.len(), span)?);
            }
        }
        let end = self.b.create_block();
        self.begin_activation(0, None)?;
        self.group_ops(0, &regions.ops, end)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    /// Starts an activation that is split at barriers: declares and initialises its variables and active words.
    fn begin_activation(&mut self, id: ActivationId, caller: Option<ActivationId>) -> Result<()> {
        self.declare_locals(id, true)?;
        let body = &self.uniformity.activations[id].function.body;
        // A `return` as the last statement deactivates no invocation, so it needs no active word.
        let returns_early = (body.iter().enumerate())
            .any(|(i, statement)| has_return(statement) && !(i + 1 == body.len() && is_return(statement)));
        // An invocation that is inactive in the caller starts inactive in the callee.
        let caller_active_word = caller.and_then(|caller| self.group.active_word(caller));
        let active_word = if returns_early || caller_active_word.is_some() {
            Some(self.layout.reserve(1, self.current_span)?)
        } else {
            None
        };
        self.group.enter(id, active_word);
        self.for_gangs(|e| {
            // Marks of earlier code; its stores were written back already.
            e.variables.take_dirty();
            if id == 0 {
                e.init_privates()?;
            }
            e.init_locals(id)?;
            e.write_back();
            if let Some(active_word) = active_word {
                let varies = e.gang.is_vector();
                let scalar = match caller_active_word {
                    Some(word) => e.load_word(word, Kind::Bool, varies),
                    None if varies => Scalar::varying(Kind::Bool, e.control.lanes(&mut e.b)),
                    None => e.constant(Kind::Bool, 1.0),
                };
                e.store_word(active_word, scalar, varies);
            }
            Ok(())
        })
    }

    /// Emits operations of the workgroup. Control jumps to `end` when no invocation is active any more.
    pub(crate) fn group_ops(&mut self, id: ActivationId, ops: &'m [GroupOp<'m>], end: Block) -> Result<()> {
        for op in ops {
            match op {
                // The common case: a loop over gangs that reloads, runs the statements and writes back.
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
                    self.current_span = *span;
                    // The load has a barrier before and after it. Here both only matter to the sanitizer:
                    // regions are ordered anyway.
                    self.check_barrier(id, Barrier::WORK_GROUP, *span)?;
                    self.region(id, self.spills.live_ins_of(*region), end, |e| {
                        let from = e.pointer(id, *pointer)?;
                        let value = e.load_value(id, *result, &from, e.span(id, *pointer))?;
                        e.define(id, *result, value)?;
                        Ok(Flow::Next)
                    })?;
                    self.check_barrier(id, Barrier::WORK_GROUP, *span)?;
                }
                GroupOp::Collective { region, statement, result, span } => {
                    self.current_span = *span;
                    let live_ins = self.spills.live_ins_of(*region);
                    self.region(id, live_ins, end, |e| {
                        let scalars = e.subgroup_op(id, statement, *result, *span, live_ins)?;
                        e.define(id, *result, Operand::Scalars(scalars))?;
                        Ok(Flow::Next)
                    })?;
                }
                // No code: the barrier is where one region's loop over gangs ends and the next one starts.
                GroupOp::Barrier { barrier, span } => self.check_barrier(id, *barrier, *span)?,
                GroupOp::If { condition, accept, reject, divergence: Some(region) } => {
                    let live_ins = self.spills.live_ins_of(*region);
                    // Both paths run, each in a level of the invocations that take it. The condition is
                    // evaluated again for `reject` from its spilled value, so `accept` cannot change it.
                    for (ops, is_accept) in [(accept, true), (reject, false)] {
                        self.push_level(id, live_ins, |e| {
                            let is_active = e.scalar(id, *condition)?;
                            Ok(if is_accept { is_active } else { e.not(is_active) })
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
                    // All invocations agree, so the workgroup branches once.
                    let condition = self.uniform_condition(id, *condition)?;
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
                    // The loop itself runs once for the workgroup; regions in it loop over gangs.
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
                        let (condition, again) = (self.uniform_condition(id, *condition)?, self.b.create_block());
                        self.b.ins().brif(condition, exit, &[], again, &[]);
                        self.b.switch_to_block(again);
                    }
                    self.spend_iteration(cost);
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(exit);
                }
                GroupOp::Break | GroupOp::Continue => self.group_jump(id, matches!(op, GroupOp::Break))?,
                GroupOp::Call { callee, ops, result } => self.group_call(id, *callee, ops, *result, end)?,
            }
        }
        Ok(())
    }

    /// Reports to the sanitizer which invocations reach a barrier, and starts a new epoch.
    fn check_barrier(&mut self, id: ActivationId, barrier: Barrier, span: Span) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        let (site, active_word) = (self.plain_site(SiteKind::Control, span), self.group.active_word(id));
        // naga's bits say which memory the barrier orders.
        let (orders, zero) = (self.i64_const(i64::from(barrier.bits())), self.i64_const(0));
        if barrier == Barrier::SUB_GROUP {
            // One event per invocation: other subgroups need not reach the barrier.
            return self.for_gangs(|e| {
                let is_active = match active_word {
                    Some(active_word) => e.load_flag(active_word),
                    None => e.b.ins().iconst(types::I8, 1),
                };
                e.emit_if(is_active, |e| e.event(Event::Barrier, site, [orders, zero]));
                Ok(())
            });
        }
        if let Some(active_word) = active_word {
            self.for_gangs(|e| {
                let is_active = e.load_flag(active_word);
                let arguments = [e.b.ins().uextend(types::I64, is_active), e.i64_const(0)];
                e.event(Event::Arrive, site, arguments);
                Ok(())
            })?;
        }
        let no_invocation = self.i32_const(0);
        self.runtime.event(&mut self.b, Event::Barrier, site, no_invocation, [orders, zero]);
        Ok(())
    }

    /// Emits a switch that is uniform in the workgroup.
    fn group_switch(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &'m [(Vec<SwitchValue>, Vec<GroupOp<'m>>)],
        end: Block,
    ) -> Result<()> {
        let selector = self.uniform_condition(id, selector)?;
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

    /// Emits a call of a function that is split at barriers.
    fn group_call(
        &mut self,
        id: ActivationId,
        callee: ActivationId,
        ops: &'m [GroupOp<'m>],
        result: Option<Handle<Expression>>,
        end: Block,
    ) -> Result<()> {
        let function = self.uniformity.activations[callee].function;
        if let (Some(result), Some(declared)) = (result, &function.result) {
            let span = self.span(id, result);
            // Reserve frame words for the result: returns in different regions of the callee store to them.
            let found = self.type_fields("a result", &self.module.types[declared.ty].inner, span)?;
            let varies = self.uniformity.returns_varying(callee);
            let first = self.layout.reserve(found.len(), span)?;
            let words: Vec<ResultWord> =
                found.iter().zip(first..).map(|(field, word)| (field.kind, varies, word)).collect();
            let form = if varies { SpilledForm::Varying } else { SpilledForm::Uniform };
            let scalars = words.iter().map(|(kind, _, word)| (*kind, form, *word)).collect();
            self.spills.slots.insert((id, result), Spilled { scalars, pointer: None, is_memory_value: false });
            self.group.set_result(callee, words);
        }
        self.begin_activation(callee, Some(id))?;
        let after = self.b.create_block();
        // To `after` and not to `end`: invocations that returned from the callee are active again in the
        // caller.
        self.group_ops(callee, ops, after)?;
        self.group.leave();
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        // Regions of the callee spilled the result, so no region of the caller defines it. If control flow
        // depends on it, it is recorded here.
        match result.filter(|result| self.spills.uniform_condition((id, *result)).is_some()) {
            Some(result) => self.region(id, &[(id, result)].into(), end, |e| {
                let scalar = e.scalar(id, result)?;
                e.record_condition(id, result, scalar);
                Ok(Flow::Next)
            }),
            None => Ok(()),
        }
    }

    /// Emits statements between two sync points, for every gang.
    fn region(
        &mut self,
        id: ActivationId,
        live_ins: &BTreeSet<ValueId>,
        end: Block,
        emit: impl FnOnce(&mut Self) -> Result<Flow>,
    ) -> Result<()> {
        // Tracks at run time whether any invocation is still active after the region.
        let any_active = self.group.active_word(id).map(|active_word| {
            let any_active = self.b.declare_var(types::I8);
            let none = self.b.ins().iconst(types::I8, 0);
            self.b.def_var(any_active, none);
            (active_word, any_active)
        });
        self.spills.set_live_ins(live_ins);
        self.for_gangs(|e| {
            let (inside, after) = (e.b.create_block(), e.b.create_block());
            if let Some((active_word, _)) = any_active {
                let scalar = e.load_word(active_word, Kind::Bool, e.gang.is_vector());
                let any = match scalar.lanes {
                    Lanes::Uniform(value) => value,
                    _ => {
                        let lanes = e.vectors(scalar);
                        // The mask of a gang does not survive a barrier in registers; it is restored from the
                        // frame.
                        e.control.activate(&mut e.b, lanes);
                        e.any(lanes)
                    }
                };
                e.b.ins().brif(any, inside, &[], after, &[]);
            } else {
                e.b.ins().jump(inside, &[]);
            }
            e.b.switch_to_block(inside);
            // Reload first: the registers hold values of the gang that ran before in this loop.
            e.reload(live_ins)?;
            e.variables.take_dirty();
            let returned = e.b.create_block();
            // A return in this region must still write back, so it jumps to the end of the region.
            e.activations[id].returned = Some(returned);
            if emit(e)? != Flow::Terminated {
                e.b.ins().jump(returned, &[]);
            }
            e.b.switch_to_block(returned);
            e.write_back();
            if let Some((active_word, any_active)) = any_active {
                // A gang stores its remaining mask. A single lane has stored its flag in `mark_returned`
                // already.
                let is_active = if e.gang.is_vector() {
                    let lanes = e.control.lanes(&mut e.b);
                    e.store_word(active_word, Scalar::varying(Kind::Bool, lanes), true);
                    e.any(lanes)
                } else {
                    e.load_flag(active_word)
                };
                let known = e.b.use_var(any_active);
                let known = e.b.ins().bor(known, is_active);
                e.b.def_var(any_active, known);
            }
            e.b.ins().jump(after, &[]);
            e.b.switch_to_block(after);
            Ok(())
        })?;
        self.spills.set_live_ins(&BTreeSet::new());
        // All invocations returned: nothing is left to do up to `end`.
        if let Some((_, any_active)) = any_active {
            let (any, rest) = (self.b.use_var(any_active), self.b.create_block());
            self.b.ins().brif(any, rest, &[], end, &[]);
            self.b.switch_to_block(rest);
        }
        Ok(())
    }

    /// Stores a condition of uniform control flow to workgroup memory. Any active invocation may write it,
    /// because WGSL requires that all agree.
    pub(crate) fn store_uniform_condition(&mut self, at: u32, scalar: Scalar) {
        let at = self.b.ins().iadd_imm_s(self.runtime.scratch, i64::from(at));
        let mut write = |e: &mut Self, lane: usize| {
            let value = e.lane(scalar, lane);
            let value = if scalar.kind == Kind::Bool { e.b.ins().uextend(types::I32, value) } else { value };
            e.b.ins().store(flags(), value, at, 0);
        };
        if scalar.is_uniform() {
            self.when_any_active(|e| write(e, 0));
        } else {
            // Lane by lane: the last active lane wins, and all agree in a valid program.
            self.for_each_active(&mut write);
        }
    }

    /// Loads a condition of uniform control flow.
    fn uniform_condition(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Value> {
        let activation = &self.uniformity.activations[id];
        if let (Expression::FunctionArgument(index), Some((caller, arguments))) =
            (&activation.function.expressions[expression], activation.caller)
        {
            return self.uniform_condition(caller, arguments[*index as usize]);
        }
        if let Some(at) = self.spills.uniform_condition((id, expression)) {
            return Ok(self.b.ins().load(types::I32, flags(), self.runtime.scratch, at.cast_signed()));
        }
        // No slot: a constant or a builtin, which no `Emit` covers. It is evaluated here.
        if self.options.sanitize {
            let span = self.span(id, expression);
            self.for_gangs(|e| {
                let scalar = e.scalar(id, expression)?;
                e.check_uniform_condition(scalar, span);
                Ok(())
            })?;
        }
        let scalar = self.scalar(id, expression)?;
        Ok(self.lane(scalar, 0))
    }

    /// Marks the current invocation of a single-lane gang as returned.
    pub(crate) fn mark_returned(&mut self, id: ActivationId) {
        let levels = self.group.levels(id).to_vec();
        self.leave_levels(&levels);
    }
}

fn is_return(statement: &Statement) -> bool {
    matches!(statement, Statement::Return { .. })
}
