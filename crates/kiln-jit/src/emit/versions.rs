//! Code versioning: some code has a version for a full mask, without masking and without checks that are proven needless, and a masked
//! one.

use super::control::{Active, Mask};
use super::statement::Flow;
use super::{Emitter, Result};
use crate::analysis::{ActivationId, blocks_of};
use cranelift_codegen::ir::{InstBuilder, Value};
use naga::{Block, Expression, Handle, Span, Statement};

/// The most statements and expressions that have two versions together.
const MAX_VERSIONED: usize = 300;

/// The size of statements, and whether a version for a full mask has fewer checks.
#[derive(Default)]
struct Weight {
    count: usize,
    has_proven: bool,
}

impl<'m> Emitter<'m, '_> {
    /// The condition of a branch in which invocations may return, where the mask is full before it and the code after it can have versions.
    pub(crate) fn may_leave_some(&self, id: ActivationId, statement: &'m Statement) -> Option<Handle<Expression>> {
        let Statement::If { condition, reject, .. } = statement else { return None };
        // Values that a loop or region computes are used outside of it, so they must not have two versions.
        let is_plain = self.control.is_full() && self.control.on_break().is_none() && !self.group.is_split(id);
        let leaves_some = reject.is_empty() && self.may_return(id, statement) && self.analysis.varies(id, *condition);
        (is_plain && leaves_some).then_some(*condition)
    }

    /// Emits such a branch with the code after it, and a version of the latter for where no invocation takes the branch.
    pub(crate) fn with_rest(
        &mut self,
        id: ActivationId,
        condition: Handle<Expression>,
        (branch, span): (&'m Statement, Span),
        rest: &[(&'m Statement, Span)],
    ) -> Result<Flow> {
        let condition = self.number(id, condition)?;
        let taken = self.parts(condition);
        let any = self.any(taken);
        let none = self.b.ins().bxor_imm_s(any, 1);
        let all = self.control.lanes(&mut self.b);
        let mask = Mask::new(&mut self.b, all);
        self.versioned(none, mask, Active::All, |e, is_full| {
            if !is_full {
                e.statement(id, branch, span)?;
            }
            e.statements(id, rest.iter().copied())
        })
    }

    /// Emits code for a full mask, where `all` is not zero, and for others that are active. The mask after it is in the registers.
    pub(super) fn versioned(
        &mut self,
        all: Value,
        mask: Mask,
        others: Active,
        emit: impl Fn(&mut Self, bool) -> Result<Flow>,
    ) -> Result<Flow> {
        let (full, partial, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(all, full, &[], partial, &[]);
        let (emitted, mut goes_on) = (self.budget.emitted, false);
        for (start, active, is_full) in [(full, Active::All, true), (partial, others, false)] {
            self.b.switch_to_block(start);
            self.control.set_version(active, !is_full);
            self.budget.emitted = emitted;
            if emit(self, is_full)? != Flow::Gone {
                let lanes = self.control.lanes(&mut self.b);
                mask.set(&mut self.b, lanes);
                self.b.ins().jump(after, &[]);
                goes_on = true;
            }
        }
        self.control.set_version(Active::Some(mask), false);
        self.b.switch_to_block(after);
        Ok(if goes_on { Flow::On } else { self.nothing_leads_here() })
    }

    /// Whether statements get a version for a full mask: they are few, and checks can be left out there.
    pub(crate) fn is_worth_versioning(
        &mut self,
        id: ActivationId,
        mut statements: impl Iterator<Item = &'m Statement>,
    ) -> bool {
        let mut weight = Weight::default();
        !self.control.is_masked_version
            && statements.all(|statement| self.weigh(id, statement, &mut weight))
            && weight.has_proven
            && self.budget.add_version(weight.count)
    }

    /// Counts statements and expressions; false where they are too many.
    fn weigh(&self, id: ActivationId, statement: &'m Statement, weight: &mut Weight) -> bool {
        let mut all = |id: ActivationId, block: &'m Block| block.iter().all(|inner| self.weigh(id, inner, weight));
        let goes_on = match statement {
            Statement::Emit(range) => {
                weight.has_proven |= range.clone().any(|expression| self.proven.contains(&(id, expression)));
                weight.count += range.clone().count();
                true
            }
            Statement::Call { .. } => match self.analysis.callee(id, statement) {
                Some(callee) => all(callee, &self.analysis.activations[callee].function.body),
                None => true,
            },
            _ => blocks_of(statement).into_iter().all(|block| all(id, block)),
        };
        weight.count += 1;
        goes_on && weight.count <= MAX_VERSIONED
    }
}
