//! Work-groups: one after the other on the thread that runs the code, each as vectors of invocations between barriers.

use super::lanes::{LANES, Lanes, Number, PART, PARTS, flags};
use super::memory::{Index, Pointer};
use super::statement::{Flow, case_value, has_return};
use super::{Active, Emitter, Operand, Result};
use crate::analysis::{ActivationId, Variable};
use crate::regions::{Place, Regions, Step, has_barrier};
use crate::sanitize::Event;
use crate::sanitize::site::Use;
use crate::types::Kind;
use crate::{Refusal, abi};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Barrier, Binding, BuiltIn, Expression, Handle, Span, SwitchValue, TypeInner};

/// How a number is kept between regions.
#[derive(Clone, Copy, Debug)]
enum Form {
    Same,
    Steps(i32),
    Each,
}

/// Where an operand is kept between regions.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    numbers: Vec<(Kind, Form, u32)>,
    pointer: Option<Pointer>,
}

/// An activation that has barriers in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stepping {
    /// The word that says who has not returned; `None` where nobody returns before the end.
    live: Option<u32>,
    /// Where its result is kept.
    result: Option<Vec<(Kind, bool, u32)>>,
}

impl<'m> Emitter<'m, '_> {
    /// The loop over work-groups.
    pub(crate) fn workgroups(&mut self, first: Value, end: Value, gangs: u32) -> Result<()> {
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
        if has_barrier(self.module, &entry.body) {
            self.run_steps(gangs)?;
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
        self.spend_round();
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(done);
        let code = self.b.ins().iconst(types::I32, i64::from(abi::DONE));
        self.b.ins().return_(&[code]);
        Ok(())
    }

    fn workgroup_counts(&mut self) -> [Value; 3] {
        let readonly = flags().with_readonly().with_can_move();
        std::array::from_fn(|axis| {
            self.b.ins().load(types::I32, readonly, self.call, abi::WORKGROUPS + 4 * axis as i32)
        })
    }

    /// Emits something for every vector of invocations of a work-group.
    fn for_gangs(&mut self, gangs: u32, emit: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let count = self.b.declare_var(types::I32);
        let zero = self.i32(0);
        self.b.def_var(count, zero);
        let (header, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        self.gang = self.b.use_var(count);
        let address_type = self.address_type();
        let bytes = self.b.ins().load(types::I64, flags().with_readonly().with_can_move(), self.call, abi::FRAME_BYTES);
        let gang = self.b.ins().uextend(types::I64, self.gang);
        let at = self.b.ins().imul(gang, bytes);
        // Behind the memory of the work-group and the decisions.
        let at = self.b.ins().iadd_imm_s(at, i64::from(abi::HEAD_BYTES));
        let at = self.b.ins().iadd_imm_s(at, i64::from(self.shared_bytes));
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
        emit(self)?;
        self.active = Active::All;
        let number = self.b.use_var(count);
        let next = self.b.ins().iadd_imm_s(number, 1);
        self.b.def_var(count, next);
        let goes_on = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, i64::from(gangs));
        self.b.ins().brif(goes_on, header, &[], after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    fn run_steps(&mut self, gangs: u32) -> Result<()> {
        let regions = Regions::new(self.module, &self.analysis);
        for (place, number) in regions.decisions.iter().zip(0..) {
            self.decisions.insert(*place, 4 * number);
        }
        if self.decisions.len() * 4 > abi::HEAD_BYTES as usize {
            let message = format!("expected at most {} decisions around barriers, found more", abi::HEAD_BYTES / 4);
            return Err(Refusal::new(Span::UNDEFINED, message));
        }
        self.kept_places = regions.kept.clone();
        // In their order, so that equal programs are equal code.
        let mut homes: Vec<_> = self.homes.iter_mut().filter(|(_, home)| home.word.is_none()).collect();
        homes.sort_by_key(|(variable, _)| **variable);
        for (_, home) in homes {
            home.word = Some(self.words);
            self.words += home.kinds.len() as u32;
        }
        let end = self.b.create_block();
        self.begin_steps(0, None, gangs)?;
        self.steps(0, &regions.steps, &regions, gangs, end)?;
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
        let caller_live = caller.and_then(|caller| self.stepping[&caller].live);
        let live = (returns_early || caller_live.is_some()).then(|| {
            self.words += 1;
            self.words - 1
        });
        self.stepping.entry(id).or_default().live = live;
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

    fn steps(
        &mut self,
        id: ActivationId,
        steps: &[Step<'m>],
        regions: &Regions<'m>,
        gangs: u32,
        end: cranelift_codegen::ir::Block,
    ) -> Result<()> {
        for step in steps {
            match step {
                Step::Region { number, statements } => {
                    let statements = statements.clone();
                    self.region(id, &regions.needs[*number], gangs, end, |e| e.statements(id, statements.into_iter()))?;
                }
                Step::UniformLoad { number, pointer, result, span } => {
                    self.check_barrier(id, Barrier::WORK_GROUP, *span, gangs)?;
                    self.region(id, &regions.needs[*number], gangs, end, |e| {
                        let span = e.span(id, *pointer);
                        let pointer = e.pointer(id, *pointer)?;
                        let numbers = e.load(&pointer, span)?;
                        e.define(id, *result, Operand::Numbers(numbers))?;
                        Ok(Flow::On)
                    })?;
                    self.check_barrier(id, Barrier::WORK_GROUP, *span, gangs)?;
                }
                Step::Barrier { barrier, span } => self.check_barrier(id, *barrier, *span, gangs)?,
                Step::If { condition, accept, reject } => {
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
                Step::Switch { selector, cases } => self.step_switch(id, *selector, cases, regions, gangs, end)?,
                Step::Loop { body, continuing, break_if } => {
                    let (header, next, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(header);
                    self.step_targets.push((exit, Some(next)));
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
                    self.spend_round();
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(exit);
                }
                Step::Break | Step::Continue => {
                    let target = match step {
                        Step::Break => self.step_targets.last().map(|(exit, _)| *exit),
                        _ => self.step_targets.iter().rev().find_map(|(_, next)| *next),
                    };
                    let target =
                        target.ok_or_else(|| Refusal::new(Span::UNDEFINED, "expected a loop around `break`"))?;
                    self.b.ins().jump(target, &[]);
                    // What follows is never reached.
                    let rest = self.b.create_block();
                    self.b.switch_to_block(rest);
                }
                Step::Call { callee, steps, result } => {
                    self.step_call(id, *callee, steps, *result, regions, gangs)?;
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
        let site = self.plain_site(Use::Control, span);
        if let Some(live) = self.stepping[&id].live {
            self.for_gangs(gangs, |e| {
                let here = e.load_word(live, Kind::Bool, false);
                let here = e.lane(here, 0);
                let numbers = [e.b.ins().uextend(types::I64, here), e.wide(0)];
                e.event(Event::Arrive, site, e.gang, numbers);
                Ok(())
            })?;
        }
        let orders = |kind| i64::from(barrier.contains(kind));
        let numbers = [self.wide(orders(Barrier::STORAGE)), self.wide(orders(Barrier::WORK_GROUP))];
        let nobody = self.i32(0);
        self.event(Event::Barrier, site, nobody, numbers);
        Ok(())
    }

    fn step_switch(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &[(Vec<SwitchValue>, Vec<Step<'m>>)],
        regions: &Regions<'m>,
        gangs: u32,
        end: cranelift_codegen::ir::Block,
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
        self.step_targets.push((after, None));
        for ((_, steps), block) in cases.iter().zip(blocks) {
            self.b.switch_to_block(block);
            self.steps(id, steps, regions, gangs, end)?;
            self.b.ins().jump(after, &[]);
        }
        self.step_targets.pop();
        self.b.switch_to_block(after);
        Ok(())
    }

    fn step_call(
        &mut self,
        id: ActivationId,
        callee: ActivationId,
        steps: &[Step<'m>],
        result: Option<Handle<Expression>>,
        regions: &Regions<'m>,
        gangs: u32,
    ) -> Result<()> {
        let function = self.analysis.activations[callee].function;
        if let (Some(result), Some(declared)) = (result, &function.result) {
            let span = self.span(id, result);
            let found = crate::types::leaves(self.module, &self.module.types[declared.ty].inner);
            let found =
                found.ok_or_else(|| Refusal::new(span, "expected a result of at most some thousand scalars"))?;
            let varies = self.analysis.returns_varying(callee);
            let words: Vec<(Kind, bool, u32)> =
                found.iter().zip(self.words..).map(|(leaf, word)| (leaf.kind, varies, word)).collect();
            self.words += words.len() as u32;
            let form = if varies { Form::Each } else { Form::Same };
            let numbers = words.iter().map(|(kind, _, word)| (*kind, form, *word)).collect();
            self.kept.insert((id, result), Kept { numbers, pointer: None });
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
        Ok(())
    }

    /// Emits statements between two barriers, for every vector of invocations.
    fn region(
        &mut self,
        id: ActivationId,
        needs: &std::collections::BTreeSet<Place>,
        gangs: u32,
        end: cranelift_codegen::ir::Block,
        emit: impl FnOnce(&mut Self) -> Result<Flow>,
    ) -> Result<()> {
        let live = self.stepping[&id].live;
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

    /// Takes what earlier regions left: variables, and what was computed.
    fn fetch(&mut self, needs: &std::collections::BTreeSet<Place>) -> Result<()> {
        let mut variables: Vec<Variable> = (self.homes.keys().copied())
            .filter(|variable| match variable {
                Variable::Private(_) => true,
                Variable::Local(id, _) => self.chain.contains(id),
            })
            .collect();
        variables.sort();
        for variable in variables {
            let home = self.homes[&variable].clone();
            let Some(word) = home.word else { continue };
            for (place, register) in home.registers.iter().enumerate() {
                let number = self.load_word(word + place as u32, home.kinds[place], home.varies);
                self.set_register(*register, home.varies, number);
            }
        }
        for (id, expression) in needs {
            let kept = self.kept.get(&(*id, *expression)).cloned();
            let kept =
                kept.ok_or_else(|| Refusal::new(self.span(*id, *expression), "expected a kept value, found none"))?;
            let load = |e: &mut Self, (kind, form, word): &(Kind, Form, u32)| match form {
                Form::Same => e.load_word(*word, *kind, false),
                Form::Each => e.load_word(*word, *kind, true),
                Form::Steps(step) => {
                    let base = e.load_word(*word, *kind, false);
                    let base = e.lane(base, 0);
                    Number { kind: *kind, lanes: Lanes::Steps(base, *step) }
                }
            };
            let mut numbers: Vec<Number> = kept.numbers.iter().map(|number| load(self, number)).collect();
            let operand = match kept.pointer {
                None => Operand::Numbers(numbers),
                Some(mut pointer) => {
                    let mut next = || numbers.remove(0);
                    if let Some(moved) = &mut pointer.moved {
                        *moved = next();
                    }
                    if let Some(index) = &mut pointer.index {
                        let (number, length) = (next(), next());
                        *index = Index { number, length: self.lane(length, 0), ..*index };
                    }
                    Operand::Pointer(pointer)
                }
            };
            self.known[*id].expressions.insert(*expression, operand);
        }
        Ok(())
    }

    /// Puts variables that changed back to where the next region finds them.
    fn save_written(&mut self) {
        for variable in std::mem::take(&mut self.written) {
            let home = self.homes[&variable].clone();
            let Some(word) = home.word else { continue };
            for (place, register) in home.registers.iter().enumerate() {
                let number = self.get_register(*register, home.varies, home.kinds[place]);
                self.store_word(word + place as u32, number, home.varies);
            }
        }
    }

    /// Makes an operand known, and keeps it where another region needs it or the work-group decides by it.
    pub(crate) fn define(&mut self, id: ActivationId, expression: Handle<Expression>, operand: Operand) -> Result<()> {
        if let (Some(at), Operand::Numbers(numbers)) = (self.decisions.get(&(id, expression)).copied(), &operand) {
            self.check_decision(numbers[0], self.span(id, expression));
            self.decide(at, numbers[0]);
        }
        if self.kept_places.contains(&(id, expression)) {
            self.keep((id, expression), &operand);
        }
        self.known[id].expressions.insert(expression, operand);
        Ok(())
    }

    fn keep(&mut self, place: Place, operand: &Operand) {
        let (numbers, pointer) = match operand {
            Operand::Numbers(numbers) => (numbers.clone(), None),
            Operand::Pointer(pointer) => {
                let lengths = pointer.index.map(|index| [index.number, Number::same(Kind::U32, index.length)]);
                let numbers = pointer.moved.into_iter().chain(lengths.into_iter().flatten()).collect();
                (numbers, Some(pointer.clone()))
            }
        };
        let mut kept = Vec::with_capacity(numbers.len());
        for number in numbers {
            let word = self.words;
            self.words += 1;
            let form = match number.lanes {
                Lanes::Same(_) => Form::Same,
                Lanes::Steps(_, step) => Form::Steps(step),
                Lanes::Each(_) => Form::Each,
            };
            let number = match number.lanes {
                Lanes::Steps(base, _) => Number::same(number.kind, base),
                _ => number,
            };
            self.store_word(word, number, matches!(form, Form::Each));
            kept.push((number.kind, form, word));
        }
        self.kept.insert(place, Kept { numbers: kept, pointer });
    }

    /// Writes down what the work-group will go by: what anybody says who takes part.
    fn decide(&mut self, at: u32, number: Number) {
        let at = self.b.ins().iadd_imm_s(self.scratch, i64::from(self.shared_bytes + at));
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
            Some(at) => {
                let at = (self.shared_bytes + *at).cast_signed();
                Ok(self.b.ins().load(types::I32, flags(), self.scratch, at))
            }
            None => {
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
        if let Some(live) = self.stepping.get(&id).and_then(|stepping| stepping.live) {
            let gone = self.constant(Kind::Bool, 0.0);
            self.store_word(live, gone, false);
        }
    }

    /// Keeps the result of a function with barriers; false where it has none.
    pub(crate) fn keep_result(&mut self, id: ActivationId, numbers: &[Number]) -> bool {
        let Some(stepping) = self.stepping.get(&id).cloned() else { return false };
        for ((kind, varies, word), number) in stepping.result.iter().flatten().zip(numbers) {
            let mut number = *number;
            if let (true, Active::Some(_)) = (*varies, self.active) {
                let mask = self.active_mask();
                let old = self.load_word(*word, *kind, true);
                number = self.select(Number::each(Kind::Bool, mask), number, old);
            }
            self.store_word(*word, number, *varies);
        }
        true
    }

    /// What an argument is: a builtin of the entry point, or what the caller gives.
    pub(crate) fn argument(&mut self, id: ActivationId, index: u32) -> Result<Operand> {
        let activation = &self.analysis.activations[id];
        if let Some((caller, arguments)) = activation.caller {
            if self.in_steps(id) {
                return self.operand(caller, arguments[index as usize]);
            }
            return Ok(self.known[id].arguments[index as usize].clone());
        }
        let argument = &activation.function.arguments[index as usize];
        let refuse = |binding: Option<&Binding>| {
            Refusal::new(Span::UNDEFINED, format!("expected a builtin of a compute kernel, found {binding:?}"))
        };
        let bindings: Vec<Option<&Binding>> = match &self.module.types[argument.ty].inner {
            TypeInner::Struct { members, .. } => members.iter().map(|member| member.binding.as_ref()).collect(),
            _ => vec![argument.binding.as_ref()],
        };
        let mut numbers = Vec::new();
        for binding in bindings {
            let Some(Binding::BuiltIn(builtin)) = binding else { return Err(refuse(binding)) };
            numbers.extend(self.builtin(*builtin).ok_or_else(|| refuse(binding))?);
        }
        Ok(Operand::Numbers(numbers))
    }

    fn builtin(&mut self, builtin: BuiltIn) -> Option<Vec<Number>> {
        let size = self.module.entry_points[0].workgroup_size;
        let same = |value| Number::same(Kind::U32, value);
        Some(match builtin {
            BuiltIn::LocalInvocationIndex => vec![self.local_index()],
            BuiltIn::LocalInvocationId => self.local_id().to_vec(),
            BuiltIn::GlobalInvocationId => {
                let local = self.local_id();
                let component = |axis: usize| {
                    let first = self.b.ins().imul_imm_s(self.workgroup[axis], i64::from(size[axis]));
                    self.add_int(same(first), local[axis])
                };
                [0, 1, 2].map(component).to_vec()
            }
            BuiltIn::WorkGroupId => self.workgroup.map(same).to_vec(),
            BuiltIn::NumWorkGroups => self.workgroup_counts().map(same).to_vec(),
            BuiltIn::WorkGroupSize => size.map(|size| self.u32_same(size)).to_vec(),
            BuiltIn::SubgroupSize => vec![self.u32_same(self.lanes as u32)],
            BuiltIn::SubgroupId => vec![same(self.gang)],
            BuiltIn::NumSubgroups => {
                let invocations = size.iter().product::<u32>();
                vec![self.u32_same(invocations.div_ceil(self.lanes as u32))]
            }
            BuiltIn::SubgroupInvocationId => {
                let zero = self.i32(0);
                vec![self.lane_numbers(zero)]
            }
            _ => return None,
        })
    }

    /// From `first` on, one more in each lane.
    fn lane_numbers(&mut self, first: Value) -> Number {
        let lanes = if self.lanes == 1 { Lanes::Same(first) } else { Lanes::Steps(first, 1) };
        Number { kind: Kind::U32, lanes }
    }

    /// The number of an invocation in its work-group.
    fn local_index(&mut self) -> Number {
        let first = self.b.ins().imul_imm_s(self.gang, self.lanes as i64);
        self.lane_numbers(first)
    }

    fn local_id(&mut self) -> [Number; 3] {
        let [x, y, _] = self.module.entry_points[0].workgroup_size;
        if (x as usize).is_multiple_of(self.lanes) {
            let first = self.b.ins().imul_imm_s(self.gang, self.lanes as i64);
            let row = self.b.ins().udiv_imm_u(first, i64::from(x));
            let column = self.b.ins().urem_imm_u(first, i64::from(x));
            let (layer, row) = (self.b.ins().udiv_imm_u(row, i64::from(y)), self.b.ins().urem_imm_u(row, i64::from(y)));
            return [self.lane_numbers(column), Number::same(Kind::U32, row), Number::same(Kind::U32, layer)];
        }
        let index = self.local_index();
        let (row, column) = self.divide_small(index, x);
        let (layer, row) = self.divide_small(row, y);
        [column, row, layer]
    }

    /// Quotient and rest of numbers of invocations, which singles hold exactly.
    fn divide_small(&mut self, number: Number, by: u32) -> (Number, Number) {
        let quotient = self.map(Kind::U32, number, |e, x| {
            let ty = if e.is_vector(x) { types::F32X4 } else { types::F32 };
            let float = e.b.ins().fcvt_from_sint(ty, x);
            let (half, share) = (e.float_like(float, 0.5), e.float_like(float, 1.0 / by as f32));
            // In the middle of the step, so that rounding does not matter.
            let middle = e.b.ins().fadd(float, half);
            let quotient = e.b.ins().fmul(middle, share);
            let ty = if e.is_vector(quotient) { types::I32X4 } else { types::I32 };
            e.b.ins().fcvt_to_sint_sat(ty, quotient)
        });
        let by = self.u32_same(by);
        let product = self.multiply_int(quotient, by);
        (quotient, self.subtract(number, product))
    }

    /// The lanes of the first four and the last four invocations, counted from zero.
    pub(crate) fn lane_indices(&mut self) -> [Value; PARTS] {
        std::array::from_fn(|part| self.vector_constant(std::array::from_fn(|lane| (part * PART + lane) as i32)))
    }
}

fn is_return(statement: &naga::Statement) -> bool {
    matches!(statement, naga::Statement::Return { .. })
}
