//! Branches and loops in which subgroups meet, where invocations run one by one: each goes its own way. Both ways of a branch are gone one
//! after the other, and a loop until nobody is left in it, by those who take part: a level has a word for each invocation that says so.

use super::lanes::Number;
use super::region::StepTarget;
use super::statement::case_value;
use super::{Emitter, Result};
use crate::analysis::ActivationId;
use crate::regions::{Place, Regions, Step};
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Expression, Handle, SwitchValue};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    /// From here on those take part who did, and for whom it holds.
    pub(crate) fn begin_level(
        &mut self,
        id: ActivationId,
        needs: &BTreeSet<Place>,
        gangs: u32,
        holds: impl FnOnce(&mut Self) -> Result<Number>,
    ) -> Result<()> {
        let (before, live) = (self.stepping[&id].live(), self.reserve(1, self.here)?);
        self.stepping.entry(id).or_default().levels.push(live);
        self.set_level(live, before, needs, gangs, holds)
    }

    fn set_level(
        &mut self,
        live: u32,
        before: Option<u32>,
        needs: &BTreeSet<Place>,
        gangs: u32,
        holds: impl FnOnce(&mut Self) -> Result<Number>,
    ) -> Result<()> {
        self.for_gangs(gangs, |e| {
            e.fetch_values(needs)?;
            let mut takes_part = holds(e)?;
            if let Some(before) = before {
                let took_part = e.load_word(before, Kind::Bool, false);
                takes_part = e.and(takes_part, took_part);
            }
            e.store_word(live, takes_part, false);
            Ok(())
        })
    }

    /// Emits steps for those of the level that began, which ends with them.
    pub(crate) fn apart(
        &mut self,
        id: ActivationId,
        steps: &[Step<'m>],
        regions: &Regions<'m>,
        gangs: u32,
    ) -> Result<()> {
        let after = self.b.create_block();
        self.steps(id, steps, regions, gangs, after)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        self.stepping.entry(id).or_default().levels.pop();
        Ok(())
    }

    pub(crate) fn switch_apart_steps(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &[(Vec<SwitchValue>, Vec<Step<'m>>)],
        needs: &BTreeSet<Place>,
        regions: &Regions<'m>,
        gangs: u32,
    ) -> Result<()> {
        let all: Vec<SwitchValue> = cases.iter().flat_map(|(values, _)| values.iter().copied()).collect();
        for (values, steps) in cases {
            let exit = self.stepping[&id].levels.len();
            self.begin_level(id, needs, gangs, |e| {
                let selector = e.number(id, selector)?;
                let selector = e.lane(selector, 0);
                let mut is_here = e.is_any_of(selector, values);
                if values.contains(&SwitchValue::Default) {
                    let is_elsewhere = e.is_any_of(selector, &all);
                    let is_nowhere = e.not(is_elsewhere);
                    is_here = e.or(is_here, is_nowhere);
                }
                Ok(is_here)
            })?;
            self.step_targets.push(StepTarget::Apart { exit, next: None });
            self.apart(id, steps, regions, gangs)?;
            self.step_targets.pop();
        }
        Ok(())
    }

    /// Whether a selector is one of these values; the default is none.
    fn is_any_of(&mut self, selector: Value, values: &[SwitchValue]) -> Number {
        let mut is_one = self.constant(Kind::Bool, 0.0);
        for value in values.iter().filter(|value| **value != SwitchValue::Default) {
            let is_this = self.b.ins().icmp_imm_s(IntCC::Equal, selector, case_value(*value));
            is_one = self.or(is_one, Number::same(Kind::Bool, is_this));
        }
        is_one
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a loop, and where it stands")]
    pub(crate) fn loop_apart(
        &mut self,
        id: ActivationId,
        body: &[Step<'m>],
        continuing: &[Step<'m>],
        break_if: Option<Handle<Expression>>,
        needs: &BTreeSet<Place>,
        regions: &Regions<'m>,
        gangs: u32,
    ) -> Result<()> {
        let (none, exit) = (BTreeSet::new(), self.stepping[&id].levels.len());
        self.begin_level(id, &none, gangs, |e| Ok(e.constant(Kind::Bool, 1.0)))?;
        let (header, after, cost) = (self.b.create_block(), self.b.create_block(), self.cost);
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        self.step_targets.push(StepTarget::Apart { exit, next: Some(exit + 1) });
        self.begin_level(id, &none, gangs, |e| Ok(e.constant(Kind::Bool, 1.0)))?;
        self.apart(id, body, regions, gangs)?;
        let last = self.b.create_block();
        self.steps(id, continuing, regions, gangs, last)?;
        self.b.ins().jump(last, &[]);
        self.b.switch_to_block(last);
        self.step_targets.pop();
        let live = self.stepping[&id].levels[exit];
        if let Some(condition) = break_if {
            self.set_level(live, Some(live), needs, gangs, |e| {
                let leaves = e.number(id, condition)?;
                Ok(e.not(leaves))
            })?;
        }
        let any = self.b.declare_var(types::I8);
        let nobody = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(any, nobody);
        self.for_gangs(gangs, |e| {
            let takes_part = e.load_word(live, Kind::Bool, false);
            let (known, takes_part) = (e.b.use_var(any), e.lane(takes_part, 0));
            let known = e.b.ins().bor(known, takes_part);
            e.b.def_var(any, known);
            Ok(())
        })?;
        self.spend_round(cost);
        let any = self.b.use_var(any);
        self.b.ins().brif(any, header, &[], after, &[]);
        self.b.switch_to_block(after);
        self.stepping.entry(id).or_default().levels.pop();
        Ok(())
    }

    /// Emits a `break` or a `continue`.
    pub(crate) fn leave_steps(&mut self, id: ActivationId, is_break: bool, gangs: u32) -> Result<()> {
        let targets = self.step_targets.iter().rev();
        let target = targets.copied().find(|target| {
            is_break
                || matches!(target, StepTarget::Common { next: Some(_), .. } | StepTarget::Apart { next: Some(_), .. })
        });
        match target.expect("validation saw a loop or switch around it") {
            StepTarget::Common { exit, next } => {
                self.b.ins().jump(next.filter(|_| !is_break).unwrap_or(exit), &[]);
                // What follows is never reached.
                let rest = self.b.create_block();
                self.b.switch_to_block(rest);
                Ok(())
            }
            StepTarget::Apart { exit, next } => {
                let levels = &self.stepping[&id].levels;
                let left = levels[next.filter(|_| !is_break).unwrap_or(exit)..].to_vec();
                let live = self.stepping[&id].live();
                self.for_gangs(gangs, |e| {
                    let takes_part = live.map(|live| e.load_word(live, Kind::Bool, false));
                    let takes_part = takes_part.map(|takes_part| e.lane(takes_part, 0));
                    if let Some(takes_part) = takes_part {
                        e.when(takes_part, |e| e.leave_levels(&left));
                    }
                    Ok(())
                })
            }
        }
    }

    /// The running invocation takes part in these levels no more.
    pub(crate) fn leave_levels(&mut self, levels: &[u32]) {
        let gone = self.constant(Kind::Bool, 0.0);
        levels.iter().for_each(|level| self.store_word(*level, gone, false));
    }
}
