//! Divergent branches and loops with subgroup operations in them, where invocations run one by one. Both ways of a branch run one after the
//! other, and a loop runs until no invocation is left in it. Each level of nesting has a word in the frame of an invocation that says
//! whether it is active.

use super::group::GroupTarget;
use super::lanes::Number;
use super::statement::case_value;
use super::{Emitter, Result};
use crate::analysis::ActivationId;
use crate::regions::{GroupOp, ValueId};
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Expression, Handle, SwitchValue};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    /// Begins a level for the active invocations for which the condition holds.
    pub(crate) fn push_level(
        &mut self,
        id: ActivationId,
        live_ins: &BTreeSet<ValueId>,
        holds: impl FnOnce(&mut Self) -> Result<Number>,
    ) -> Result<()> {
        let (before, live) = (self.group.live(id), self.layout.reserve(1, self.here)?);
        self.group.push_level(id, live);
        self.set_level(live, before, live_ins, holds)
    }

    fn set_level(
        &mut self,
        live: u32,
        before: Option<u32>,
        live_ins: &BTreeSet<ValueId>,
        holds: impl FnOnce(&mut Self) -> Result<Number>,
    ) -> Result<()> {
        self.for_gangs(|e| {
            e.reload_values(live_ins)?;
            let mut is_active = holds(e)?;
            if let Some(before) = before {
                let was_active = e.load_word(before, Kind::Bool, false);
                is_active = e.and(is_active, was_active);
            }
            e.store_word(live, is_active, false);
            Ok(())
        })
    }

    /// Emits operations of the innermost level, which ends with them.
    pub(crate) fn divergent_ops(&mut self, id: ActivationId, ops: &'m [GroupOp<'m>]) -> Result<()> {
        let after = self.b.create_block();
        self.group_ops(id, ops, after)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        self.group.pop_level(id);
        Ok(())
    }

    pub(crate) fn divergent_switch(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &'m [(Vec<SwitchValue>, Vec<GroupOp<'m>>)],
        region: usize,
    ) -> Result<()> {
        let all: Vec<SwitchValue> = cases.iter().flat_map(|(values, _)| values.iter().copied()).collect();
        for (values, ops) in cases {
            let exit = self.group.levels(id).len();
            self.push_level(id, self.spills.live_ins_of(region), |e| {
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
            self.group.push_target(GroupTarget::Divergent { exit, next: None });
            self.divergent_ops(id, ops)?;
            self.group.pop_target();
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

    pub(crate) fn divergent_loop(
        &mut self,
        id: ActivationId,
        body: &'m [GroupOp<'m>],
        continuing: &'m [GroupOp<'m>],
        break_if: Option<Handle<Expression>>,
        region: usize,
    ) -> Result<()> {
        let (none, exit) = (BTreeSet::new(), self.group.levels(id).len());
        self.push_level(id, &none, |e| Ok(e.constant(Kind::Bool, 1.0)))?;
        let (header, after, cost) = (self.b.create_block(), self.b.create_block(), self.budget.cost);
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        self.group.push_target(GroupTarget::Divergent { exit, next: Some(exit + 1) });
        self.push_level(id, &none, |e| Ok(e.constant(Kind::Bool, 1.0)))?;
        self.divergent_ops(id, body)?;
        let last = self.b.create_block();
        self.group_ops(id, continuing, last)?;
        self.b.ins().jump(last, &[]);
        self.b.switch_to_block(last);
        self.group.pop_target();
        let live = self.group.levels(id)[exit];
        if let Some(condition) = break_if {
            self.set_level(live, Some(live), self.spills.live_ins_of(region), |e| {
                let leaves = e.number(id, condition)?;
                Ok(e.not(leaves))
            })?;
        }
        let any = self.b.declare_var(types::I8);
        let nobody = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(any, nobody);
        self.for_gangs(|e| {
            let is_active = e.load_flag(live);
            let known = e.b.use_var(any);
            let known = e.b.ins().bor(known, is_active);
            e.b.def_var(any, known);
            Ok(())
        })?;
        self.spend_round(cost);
        let any = self.b.use_var(any);
        self.b.ins().brif(any, header, &[], after, &[]);
        self.b.switch_to_block(after);
        self.group.pop_level(id);
        Ok(())
    }

    /// Emits a `break` or a `continue`.
    pub(crate) fn group_jump(&mut self, id: ActivationId, is_break: bool) -> Result<()> {
        match self.group.target(is_break).expect("validation saw a loop or switch around it") {
            GroupTarget::Uniform { exit, next } => {
                self.b.ins().jump(next.filter(|_| !is_break).unwrap_or(exit), &[]);
                // What follows is never reached.
                let rest = self.b.create_block();
                self.b.switch_to_block(rest);
                Ok(())
            }
            GroupTarget::Divergent { exit, next } => {
                let left = self.group.levels(id)[next.filter(|_| !is_break).unwrap_or(exit)..].to_vec();
                let live = self.group.live(id);
                self.for_gangs(|e| {
                    if let Some(live) = live {
                        let is_active = e.load_flag(live);
                        e.when(is_active, |e| e.leave_levels(&left));
                    }
                    Ok(())
                })
            }
        }
    }

    /// Makes the running invocation inactive in these levels.
    pub(crate) fn leave_levels(&mut self, levels: &[u32]) {
        let gone = self.constant(Kind::Bool, 0.0);
        levels.iter().for_each(|level| self.store_word(*level, gone, false));
    }
}
