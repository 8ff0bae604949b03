//! Code versioning: some code is emitted twice, once for a full mask and once masked. The version for a full
//! mask has no masking and omits bounds checks that are proven needless.

use super::control::{Active, Mask};
use super::statement::Flow;
use super::{Emitter, Result};
use crate::operands::blocks_of;
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::{InstBuilder, Value};
use naga::{Block, Expression, Handle, Span, Statement};

/// Maximum number of statements and expressions in one versioned piece of code.
const MAX_VERSIONED: usize = 300;

/// Size of statements, and whether a full mask saves bounds checks in them.
#[derive(Default)]
struct VersionCost {
    count: usize,
    has_proven: bool,
}

impl<'m> Emitter<'m, '_> {
    /// Returns the condition of a branch with an early return (`if (id >= n) { return; }`), if the mask is full
    /// before it and the code after it can be versioned.
    pub(crate) fn early_return_condition(
        &self,
        id: ActivationId,
        statement: &'m Statement,
    ) -> Option<Handle<Expression>> {
        let Statement::If { condition, reject, .. } = statement else { return None };
        // Values of a loop or region are used outside of it, where only one version can define them.
        let is_plain = self.control.is_full() && self.control.on_break().is_none() && !self.group.is_split(id);
        let leaves_some = reject.is_empty() && self.may_return(id, statement) && self.uniformity.varies(id, *condition);
        (is_plain && leaves_some).then_some(*condition)
    }

    /// Emits such a branch with the code after it. If no lane takes the branch, a version of that code for a
    /// full mask runs.
    pub(crate) fn versioned_rest(
        &mut self,
        id: ActivationId,
        condition: Handle<Expression>,
        (branch, span): (&'m Statement, Span),
        rest: &[(&'m Statement, Span)],
    ) -> Result<Flow> {
        let condition = self.scalar(id, condition)?;
        let taken = self.vectors(condition);
        let any = self.any(taken);
        let none = self.b.ins().bxor_imm_s(any, 1);
        let all = self.control.lanes(&mut self.b);
        let mask = Mask::new(&mut self.b, all);
        self.versioned(none, mask, Active::All, |e, is_full| {
            // No lane takes the branch in the version for a full mask, so it is omitted there.
            if !is_full {
                e.statement(id, branch, span)?;
            }
            e.statements(id, rest.iter().copied())
        })
    }

    /// Emits code in two versions: for a full mask if `all` is not zero, and for the lanes of `others`.
    /// Afterwards the active mask is in `mask`, whichever version ran.
    pub(super) fn versioned(
        &mut self,
        all: Value,
        mask: Mask,
        others: Active,
        emit: impl Fn(&mut Self, bool) -> Result<Flow>,
    ) -> Result<Flow> {
        let (full, partial, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(all, full, &[], partial, &[]);
        // Both versions define the same expressions, and the second replaces the first. Later code cannot tell:
        // they are out of scope there.
        let (emitted, mut continues) = (self.budget.emitted, false);
        for (start, active, is_full) in [(full, Active::All, true), (partial, others, false)] {
            self.b.switch_to_block(start);
            self.control.set_version(active, !is_full);
            // The second version must not count against the size limit of the program.
            self.budget.emitted = emitted;
            if emit(self, is_full)? != Flow::Terminated {
                let lanes = self.control.lanes(&mut self.b);
                mask.set(&mut self.b, lanes);
                self.b.ins().jump(after, &[]);
                continues = true;
            }
        }
        self.control.set_version(Active::Masked(mask), false);
        self.b.switch_to_block(after);
        Ok(if continues { Flow::Next } else { self.unreachable_block() })
    }

    /// Whether statements are versioned: they are small enough and a full mask saves bounds checks.
    pub(crate) fn is_worth_versioning(
        &mut self,
        id: ActivationId,
        mut statements: impl Iterator<Item = &'m Statement>,
    ) -> bool {
        let mut cost = VersionCost::default();
        // A masked version would have no use for a nested one: its mask is not full.
        !self.control.is_masked_version
            && statements.all(|statement| self.measure(id, statement, &mut cost))
            && cost.has_proven
            // Last, because it reserves a part of the budget.
            && self.budget.add_version(cost.count)
    }

    /// Adds the size of a statement; false if it exceeds the limit.
    fn measure(&self, id: ActivationId, statement: &'m Statement, cost: &mut VersionCost) -> bool {
        let mut all = |id: ActivationId, block: &'m Block| block.iter().all(|inner| self.measure(id, inner, cost));
        let continues = match statement {
            Statement::Emit(range) => {
                cost.has_proven |= range.clone().any(|expression| self.proven.contains(&(id, expression)));
                cost.count += range.clone().count();
                true
            }
            Statement::Call { .. } => match self.uniformity.callee(id, statement) {
                Some(callee) => all(callee, &self.uniformity.activations[callee].function.body),
                None => true,
            },
            _ => blocks_of(statement).into_iter().all(|block| all(id, block)),
        };
        cost.count += 1;
        continues && cost.count <= MAX_VERSIONED
    }
}
