//! Work-groups: one after the other on the thread that runs the code, each as vectors of invocations between barriers.

use super::kept::{Form, Kept};
use super::lanes::{LANES, Lanes, Number, flags};
use super::statement::{Flow, case_value};
use super::{Active, Emitter, Operand, Result};
use crate::abi;
use crate::analysis::{ActivationId, Variable};
use crate::regions::{Place, Regions, Step, has_return};
use crate::sanitize::Event;
use crate::sanitize::site::Use;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use naga::{Barrier, Expression, Handle, Span, SwitchValue};

/// An activation that has barriers in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stepping {
    /// The words that say who takes part: who has not returned, where somebody does so before the end, and one for each branch and loop
    /// around that invocations go through apart.
    pub(crate) levels: Vec<u32>,
    /// Where its result is kept.
    pub(crate) result: Option<Vec<(Kind, bool, u32)>>,
}

impl Stepping {
    /// The word that says who takes part; `None` where all do.
    pub(crate) fn live(&self) -> Option<u32> {
        self.levels.last().copied()
    }
}

/// Where a `break` and a `continue` lead; a switch has no `continue`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepTarget {
    /// For the whole work-group.
    Common { exit: Block, next: Option<Block> },
    /// For each invocation: the first of the levels that it takes part in no more.
    Apart { exit: usize, next: Option<usize> },
}

impl<'m> Emitter<'m, '_> {
    /// The loop over work-groups.
    pub(crate) fn workgroups(
        &mut self,
        first: Value,
        end: Value,
        gangs: u32,
        regions: Option<&Regions<'m>>,
    ) -> Result<()> {
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
        self.workgroup = [x, y, z].map(|number| self.b.ins().ireduce(types::I32, number));
        if self.options.sanitize {
            let (nobody, zero) = (self.i32(0), self.wide(0));
            self.event(Event::Group, 0, nobody, [number, zero]);
        }
        if self.options.zero_workgroup && self.shared_bytes > 0 {
            self.clear(self.scratch, self.shared_bytes);
        }
        let entry = &self.module.entry_points[0].function;
        if let Some(regions) = regions {
            self.run_steps(regions, gangs)?;
        } else {
            self.declare_locals(0, false)?;
            self.for_gangs(gangs, |e| {
                let after = e.b.create_block();
                e.known[0].returned = Some(after);
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

    /// Emits something for every vector of invocations of a work-group.
    pub(crate) fn for_gangs(&mut self, gangs: u32, emit: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.times(gangs, |e, gang| {
            e.begin_gang(gang);
            emit(e)?;
            e.active = Active::All;
            Ok(())
        })
    }

    /// From here on, the running vector of invocations is this one.
    pub(crate) fn begin_gang(&mut self, gang: Value) {
        self.gang = gang;
        let address_type = self.address_type();
        let bytes = self.b.ins().load(types::I64, flags().with_readonly().with_can_move(), self.call, abi::FRAME_BYTES);
        let gang = self.b.ins().uextend(types::I64, self.gang);
        let at = self.b.ins().imul(gang, bytes);
        let at = self.b.ins().iadd_imm_s(at, i64::from(self.group_bytes));
        let at = if address_type == types::I64 { at } else { self.b.ins().ireduce(address_type, at) };
        self.frame = self.b.ins().iadd(self.scratch, at);
        self.active = Active::All;
        let invocations = self.module.entry_points[0].workgroup_size.iter().product::<u32>();
        if self.lanes > 1 && !invocations.is_multiple_of(LANES as u32) {
            let (index, limit) = (self.local_index(), self.u32_same(invocations));
            let inside = self.compare_int(IntCC::UnsignedLessThan, index, limit);
            let mask = self.parts(inside);
            let registers = self.new_mask(mask);
            self.active = Active::Some(registers);
        }
    }

    fn run_steps(&mut self, regions: &Regions<'m>, gangs: u32) -> Result<()> {
        for place in &regions.decisions {
            self.decisions.insert(*place, self.group_bytes);
            self.group_bytes += 4;
        }
        self.group_bytes = self.group_bytes.next_multiple_of(16);
        self.kept_places = regions.kept.clone();
        self.conditions = regions.conditions.clone();
        for (handle, _) in self.module.global_variables.iter() {
            let variable = Variable::Private(handle);
            let Some(home) = self.homes.get(&variable).filter(|home| home.word.is_none()) else { continue };
            let word = self.reserve(home.kinds.len(), self.module.global_variables.get_span(handle))?;
            self.homes.entry(variable).and_modify(|home| home.word = Some(word));
        }
        let end = self.b.create_block();
        self.begin_steps(0, None, gangs)?;
        self.steps(0, &regions.steps, regions, gangs, end)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    /// Starts an activation with barriers: its variables, and who is in it.
    fn begin_steps(&mut self, id: ActivationId, caller: Option<ActivationId>, gangs: u32) -> Result<()> {
        self.declare_locals(id, true)?;
        let body = &self.analysis.activations[id].function.body;
        let returns_early = (body.iter().enumerate())
            .any(|(place, statement)| has_return(statement) && !(place + 1 == body.len() && is_return(statement)));
        let caller_live = caller.and_then(|caller| self.stepping[&caller].live());
        let live = if returns_early || caller_live.is_some() { Some(self.reserve(1, self.here)?) } else { None };
        self.stepping.entry(id).or_default().levels = live.into_iter().collect();
        self.chain.push(id);
        self.for_gangs(gangs, |e| {
            e.written.clear();
            if id == 0 {
                e.start_privates()?;
            }
            e.start_locals(id)?;
            e.save_written();
            if let Some(live) = live {
                let number = match caller_live {
                    Some(word) => e.load_word(word, Kind::Bool, e.lanes > 1),
                    None if e.lanes > 1 => {
                        let mask = e.active_mask();
                        Number::each(Kind::Bool, mask)
                    }
                    None => e.constant(Kind::Bool, 1.0),
                };
                let varies = e.lanes > 1;
                e.store_word(live, number, varies);
            }
            Ok(())
        })
    }

    pub(crate) fn steps(
        &mut self,
        id: ActivationId,
        steps: &[Step<'m>],
        regions: &Regions<'m>,
        gangs: u32,
        end: Block,
    ) -> Result<()> {
        for step in steps {
            match step {
                Step::Region { number, statements } => {
                    let statements = statements.clone();
                    self.region(id, &regions.needs[*number], gangs, end, |e| e.statements(id, statements.into_iter()))?;
                }
                Step::UniformLoad { number, pointer, result, span } => {
                    self.here = *span;
                    self.check_barrier(id, Barrier::WORK_GROUP, *span, gangs)?;
                    self.region(id, &regions.needs[*number], gangs, end, |e| {
                        let span = e.span(id, *pointer);
                        let pointer = e.pointer(id, *pointer)?;
                        let value = e.load_value(id, *result, &pointer, span)?;
                        e.define(id, *result, value)?;
                        Ok(Flow::On)
                    })?;
                    self.check_barrier(id, Barrier::WORK_GROUP, *span, gangs)?;
                }
                Step::Barrier { barrier, span } => self.check_barrier(id, *barrier, *span, gangs)?,
                Step::If { condition, accept, reject, apart: Some(number) } => {
                    let needs = &regions.needs[*number];
                    for (steps, goes) in [(accept, true), (reject, false)] {
                        self.begin_level(id, needs, gangs, |e| {
                            let takes_part = e.number(id, *condition)?;
                            Ok(if goes { takes_part } else { e.not(takes_part) })
                        })?;
                        self.apart(id, steps, regions, gangs)?;
                    }
                }
                Step::Switch { selector, cases, apart: Some(number) } => {
                    self.switch_apart_steps(id, *selector, cases, &regions.needs[*number], regions, gangs)?;
                }
                Step::Loop { body, continuing, break_if, apart: Some(number) } => {
                    self.loop_apart(id, body, continuing, *break_if, &regions.needs[*number], regions, gangs)?;
                }
                Step::If { condition, accept, reject, apart: None } => {
                    let condition = self.decision(id, *condition)?;
                    let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                    self.b.ins().brif(condition, yes, &[], no, &[]);
                    for (start, steps) in [(yes, accept), (no, reject)] {
                        self.b.switch_to_block(start);
                        self.steps(id, steps, regions, gangs, end)?;
                        self.b.ins().jump(after, &[]);
                    }
                    self.b.switch_to_block(after);
                }
                Step::Subgroup { number, statement, result, span } => {
                    let needs = &regions.needs[*number];
                    self.here = *span;
                    self.region(id, needs, gangs, end, |e| {
                        let numbers = e.meet(id, statement, *result, *span, needs, gangs)?;
                        e.define(id, *result, Operand::Numbers(numbers))?;
                        Ok(Flow::On)
                    })?;
                }
                Step::Switch { selector, cases, apart: None } => {
                    self.step_switch(id, *selector, cases, regions, gangs, end)?;
                }
                Step::Loop { body, continuing, break_if, apart: None } => {
                    let (header, next, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                    let cost = self.cost;
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(header);
                    self.step_targets.push(StepTarget::Common { exit, next: Some(next) });
                    self.steps(id, body, regions, gangs, end)?;
                    self.b.ins().jump(next, &[]);
                    self.b.switch_to_block(next);
                    self.steps(id, continuing, regions, gangs, end)?;
                    self.step_targets.pop();
                    if let Some(condition) = break_if {
                        let (condition, again) = (self.decision(id, *condition)?, self.b.create_block());
                        self.b.ins().brif(condition, exit, &[], again, &[]);
                        self.b.switch_to_block(again);
                    }
                    self.spend_round(cost);
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(exit);
                }
                Step::Break | Step::Continue => {
                    self.leave_steps(id, matches!(step, Step::Break), gangs)?;
                }
                Step::Call { callee, steps, result } => {
                    self.step_call(id, *callee, steps, *result, regions, gangs, end)?;
                }
            }
        }
        Ok(())
    }

    /// Notes who is at a barrier, and that all later accesses come behind it.
    fn check_barrier(&mut self, id: ActivationId, barrier: Barrier, span: Span, gangs: u32) -> Result<()> {
        if !self.options.sanitize {
            return Ok(());
        }
        let (site, live) = (self.plain_site(Use::Control, span), self.stepping[&id].live());
        let (orders, zero) = (self.wide(i64::from(barrier.bits())), self.wide(0));
        if barrier == Barrier::SUB_GROUP {
            // Each is told for itself: those of another subgroup need not come.
            return self.for_gangs(gangs, |e| {
                let here = match live {
                    Some(live) => e.load_word(live, Kind::Bool, false),
                    None => e.constant(Kind::Bool, 1.0),
                };
                let here = e.lane(here, 0);
                e.when(here, |e| e.event(Event::Barrier, site, e.gang, [orders, zero]));
                Ok(())
            });
        }
        if let Some(live) = live {
            self.for_gangs(gangs, |e| {
                let here = e.load_word(live, Kind::Bool, false);
                let here = e.lane(here, 0);
                let numbers = [e.b.ins().uextend(types::I64, here), e.wide(0)];
                e.event(Event::Arrive, site, e.gang, numbers);
                Ok(())
            })?;
        }
        let nobody = self.i32(0);
        self.event(Event::Barrier, site, nobody, [orders, zero]);
        Ok(())
    }

    fn step_switch(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &[(Vec<SwitchValue>, Vec<Step<'m>>)],
        regions: &Regions<'m>,
        gangs: u32,
        end: Block,
    ) -> Result<()> {
        let selector = self.decision(id, selector)?;
        let after = self.b.create_block();
        let mut default = after;
        let blocks: Vec<_> = cases.iter().map(|_| self.b.create_block()).collect();
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
        self.step_targets.push(StepTarget::Common { exit: after, next: None });
        for ((_, steps), block) in cases.iter().zip(blocks) {
            self.b.switch_to_block(block);
            self.steps(id, steps, regions, gangs, end)?;
            self.b.ins().jump(after, &[]);
        }
        self.step_targets.pop();
        self.b.switch_to_block(after);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a call, and where it stands")]
    fn step_call(
        &mut self,
        id: ActivationId,
        callee: ActivationId,
        steps: &[Step<'m>],
        result: Option<Handle<Expression>>,
        regions: &Regions<'m>,
        gangs: u32,
        end: Block,
    ) -> Result<()> {
        let function = self.analysis.activations[callee].function;
        if let (Some(result), Some(declared)) = (result, &function.result) {
            let span = self.span(id, result);
            let found = self.scalars("a result", &self.module.types[declared.ty].inner, span)?;
            let varies = self.analysis.returns_varying(callee);
            let first = self.reserve(found.len(), span)?;
            let words: Vec<(Kind, bool, u32)> =
                found.iter().zip(first..).map(|(leaf, word)| (leaf.kind, varies, word)).collect();
            let form = if varies { Form::Each } else { Form::Same };
            let numbers = words.iter().map(|(kind, _, word)| (*kind, form, *word)).collect();
            self.kept.insert((id, result), Kept { numbers, pointer: None, is_stored: false });
            self.stepping.entry(callee).or_default().result = Some(words);
        }
        self.begin_steps(callee, Some(id), gangs)?;
        let after = self.b.create_block();
        let targets = std::mem::take(&mut self.step_targets);
        self.steps(callee, steps, regions, gangs, after)?;
        self.step_targets = targets;
        self.chain.pop();
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        // Its regions kept the result, and none of them is of the caller, who may go by it.
        match result.filter(|result| self.decisions.contains_key(&(id, *result))) {
            Some(result) => self.region(id, &[(id, result)].into(), gangs, end, |e| {
                let number = e.number(id, result)?;
                e.note_decision(id, result, number);
                Ok(Flow::On)
            }),
            None => Ok(()),
        }
    }

    /// Emits statements between two barriers, for every vector of invocations.
    fn region(
        &mut self,
        id: ActivationId,
        needs: &std::collections::BTreeSet<Place>,
        gangs: u32,
        end: Block,
        emit: impl FnOnce(&mut Self) -> Result<Flow>,
    ) -> Result<()> {
        let live = self.stepping[&id].live();
        let alive = live.map(|live| {
            let alive = self.b.declare_var(types::I8);
            let none = self.b.ins().iconst(types::I8, 0);
            self.b.def_var(alive, none);
            (live, alive)
        });
        self.needs.clone_from(needs);
        self.for_gangs(gangs, |e| {
            let (inside, after) = (e.b.create_block(), e.b.create_block());
            if let Some((live, _)) = alive {
                let number = e.load_word(live, Kind::Bool, e.lanes > 1);
                let any = match number.lanes {
                    Lanes::Same(value) => value,
                    _ => {
                        let mask = e.parts(number);
                        let registers = e.new_mask(mask);
                        e.active = Active::Some(registers);
                        e.any(mask)
                    }
                };
                e.b.ins().brif(any, inside, &[], after, &[]);
                e.b.switch_to_block(inside);
            } else {
                e.b.ins().jump(inside, &[]);
                e.b.switch_to_block(inside);
            }
            e.fetch(needs)?;
            e.written.clear();
            let returned = e.b.create_block();
            e.known[id].returned = Some(returned);
            if emit(e)? != Flow::Gone {
                e.b.ins().jump(returned, &[]);
            }
            e.b.switch_to_block(returned);
            e.save_written();
            if let Some((live, alive)) = alive {
                let here = if e.lanes > 1 {
                    let mask = e.active_mask();
                    e.store_word(live, Number::each(Kind::Bool, mask), true);
                    e.any(mask)
                } else {
                    let number = e.load_word(live, Kind::Bool, false);
                    e.lane(number, 0)
                };
                let known = e.b.use_var(alive);
                let known = e.b.ins().bor(known, here);
                e.b.def_var(alive, known);
            }
            e.b.ins().jump(after, &[]);
            e.b.switch_to_block(after);
            Ok(())
        })?;
        self.needs.clear();
        if let Some((_, alive)) = alive {
            let (any, rest) = (self.b.use_var(alive), self.b.create_block());
            self.b.ins().brif(any, rest, &[], end, &[]);
            self.b.switch_to_block(rest);
        }
        Ok(())
    }

    /// Writes down what the work-group will go by: what anybody says who takes part.
    pub(crate) fn decide(&mut self, at: u32, number: Number) {
        let at = self.b.ins().iadd_imm_s(self.scratch, i64::from(at));
        let mut write = |e: &mut Self, lane: usize| {
            let value = e.lane(number, lane);
            let value = if number.kind == Kind::Bool { e.b.ins().uextend(types::I32, value) } else { value };
            e.b.ins().store(flags(), value, at, 0);
        };
        match (number.lanes, self.active) {
            (Lanes::Same(_), Active::All) => write(self, 0),
            (Lanes::Same(_), Active::Some(_)) => {
                let mask = self.active_mask();
                let any = self.any(mask);
                self.when(any, |e| write(e, 0));
            }
            _ => self.for_each_active(&mut write),
        }
    }

    /// What the work-group goes by.
    fn decision(&mut self, id: ActivationId, expression: Handle<Expression>) -> Result<Value> {
        let activation = &self.analysis.activations[id];
        if let (Expression::FunctionArgument(index), Some((caller, arguments))) =
            (&activation.function.expressions[expression], activation.caller)
        {
            return self.decision(caller, arguments[*index as usize]);
        }
        match self.decisions.get(&(id, expression)) {
            Some(at) => Ok(self.b.ins().load(types::I32, flags(), self.scratch, at.cast_signed())),
            None => {
                if self.options.sanitize {
                    let span = self.span(id, expression);
                    self.for_gangs(self.frames, |e| {
                        let number = e.number(id, expression)?;
                        e.check_decision(number, span);
                        Ok(())
                    })?;
                }
                let number = self.number(id, expression)?;
                Ok(self.lane(number, 0))
            }
        }
    }

    /// Whether the activation runs as steps.
    pub(crate) fn in_steps(&self, id: ActivationId) -> bool {
        self.stepping.contains_key(&id)
    }

    /// Notes that the running invocation has returned; for vectors of one.
    pub(crate) fn mark_returned(&mut self, id: ActivationId) {
        let levels = self.stepping.get(&id).map(|stepping| stepping.levels.clone()).unwrap_or_default();
        self.leave_levels(&levels);
    }
}

fn is_return(statement: &naga::Statement) -> bool {
    matches!(statement, naga::Statement::Return { .. })
}
