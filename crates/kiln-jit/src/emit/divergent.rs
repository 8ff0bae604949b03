//! Divergent branches and loops that contain subgroup operations, for single-lane gangs.
//!
//! A subgroup operation needs all its invocations at once, so the branches around it are executed for the
//! workgroup: both paths of a branch run one after the other, and a loop runs until no invocation is left in
//! it. Each level of nesting has a word in the frame that holds whether the invocation is active.

use super::group_flow::GroupTarget;
use super::lanes::Scalar;
use super::switch::case_value;
use super::{Emitter, Result};
use crate::regions::{GroupOp, ValueId};
use crate::types::Kind;
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Expression, Handle, SwitchValue};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    /// Enters a level with the active invocations for which the condition holds.
    pub(crate) fn push_level(
        &mut self,
        id: ActivationId,
        live_ins: &BTreeSet<ValueId>,
        holds: impl FnOnce(&mut Self) -> Result<Scalar>,
    ) -> Result<()> {
        // The new level starts as a subset of the current one.
        let (before, active_word) = (self.group.active_word(id), self.layout.reserve(1, self.current_span)?);
        self.group.push_level(id, active_word);
        self.set_level(active_word, before, live_ins, holds)
    }

    /// Sets the active word of a level in every invocation.
    fn set_level(
        &mut self,
        active_word: u32,
        before: Option<u32>,
        live_ins: &BTreeSet<ValueId>,
        holds: impl FnOnce(&mut Self) -> Result<Scalar>,
    ) -> Result<()> {
        self.for_gangs(|e| {
            e.reload_values(live_ins)?;
            let mut is_active = holds(e)?;
            if let Some(before) = before {
                let was_active = e.load_word(before, Kind::Bool, false);
                is_active = e.and(is_active, was_active);
            }
            e.store_word(active_word, is_active, false);
            Ok(())
        })
    }

    /// Emits operations in the innermost level and leaves it.
    pub(crate) fn divergent_ops(&mut self, id: ActivationId, ops: &'m [GroupOp<'m>]) -> Result<()> {
        // Regions jump to `after` when no invocation is active in this level. The enclosing level may still
        // have some.
        let after = self.b.create_block();
        self.group_ops(id, ops, after)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        self.group.pop_level(id);
        Ok(())
    }

    /// Emits a divergent switch, one case after the other.
    pub(crate) fn divergent_switch(
        &mut self,
        id: ActivationId,
        selector: Handle<Expression>,
        cases: &'m [(Vec<SwitchValue>, Vec<GroupOp<'m>>)],
        region: usize,
    ) -> Result<()> {
        // One level per case: both the lanes of other cases and those that break are inactive in it.
        let all: Vec<SwitchValue> = cases.iter().flat_map(|(values, _)| values.iter().copied()).collect();
        for (values, ops) in cases {
            let exit = self.group.levels(id).len();
            self.push_level(id, self.spills.live_ins_of(region), |e| {
                let selector = e.scalar(id, selector)?;
                let selector = e.lane(selector, 0);
                // The selector is a reloaded live-in, so earlier cases cannot have changed it.
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

    /// Whether a selector equals one of these values; `Default` matches nothing.
    fn is_any_of(&mut self, selector: Value, values: &[SwitchValue]) -> Scalar {
        let mut is_one = self.constant(Kind::Bool, 0.0);
        for value in values.iter().filter(|value| **value != SwitchValue::Default) {
            let is_this = self.b.ins().icmp_imm_s(IntCC::Equal, selector, case_value(*value));
            is_one = self.or(is_one, Scalar::uniform(Kind::Bool, is_this));
        }
        is_one
    }

    /// Emits a divergent loop. The outer level holds which invocations are in the loop, the inner one which are in
    /// the body.
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
        // A `break` clears the flags from the loop's level on, a `continue` only those from the body's level
        // on.
        self.group.push_target(GroupTarget::Divergent { exit, next: Some(exit + 1) });
        self.push_level(id, &none, |e| Ok(e.constant(Kind::Bool, 1.0)))?;
        self.divergent_ops(id, body)?;
        // Leaving the inner level made the invocations that continued active again.
        let last = self.b.create_block();
        self.group_ops(id, continuing, last)?;
        self.b.ins().jump(last, &[]);
        self.b.switch_to_block(last);
        self.group.pop_target();
        let active_word = self.group.levels(id)[exit];
        if let Some(condition) = break_if {
            self.set_level(active_word, Some(active_word), self.spills.live_ins_of(region), |e| {
                let leaves = e.scalar(id, condition)?;
                Ok(e.not(leaves))
            })?;
        }
        // The loop ends when no invocation of the workgroup is left in it.
        let any = self.b.declare_var(types::I8);
        let zero = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(any, zero);
        self.for_gangs(|e| {
            let is_active = e.load_flag(active_word);
            let known = e.b.use_var(any);
            let known = e.b.ins().bor(known, is_active);
            e.b.def_var(any, known);
            Ok(())
        })?;
        self.spend_iteration(cost);
        let any = self.b.use_var(any);
        self.b.ins().brif(any, header, &[], after, &[]);
        self.b.switch_to_block(after);
        self.group.pop_level(id);
        Ok(())
    }

    /// Emits a `break` or `continue`.
    pub(crate) fn group_jump(&mut self, id: ActivationId, is_break: bool) -> Result<()> {
        match self.group.target(is_break).expect("validation saw a loop or switch around it") {
            GroupTarget::Uniform { exit, next } => {
                self.b.ins().jump(next.filter(|_| !is_break).unwrap_or(exit), &[]);
                // The code after it is unreachable.
                let rest = self.b.create_block();
                self.b.switch_to_block(rest);
                Ok(())
            }
            GroupTarget::Divergent { exit, next } => {
                let left = self.group.levels(id)[next.filter(|_| !is_break).unwrap_or(exit)..].to_vec();
                let active_word = self.group.active_word(id);
                self.for_gangs(|e| {
                    if let Some(active_word) = active_word {
                        let is_active = e.load_flag(active_word);
                        // Only active invocations jump; the others keep the flags of the levels that they wait
                        // in.
                        e.emit_if(is_active, |e| e.leave_levels(&left));
                    }
                    Ok(())
                })
            }
        }
    }

    /// Deactivates the current invocation in these levels.
    pub(crate) fn leave_levels(&mut self, levels: &[u32]) {
        let gone = self.constant(Kind::Bool, 0.0);
        levels.iter().for_each(|level| self.store_word(*level, gone, false));
    }
}
