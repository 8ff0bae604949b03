//! What is emitted twice: for where all invocations of a vector take part, without masks and without checks that are proven
//! needless, and for where not all do.

use super::lanes::PARTS;
use super::statement::Flow;
use super::{Active, Emitter, Result};
use crate::analysis::ActivationId;
use cranelift_codegen::ir::{InstBuilder, Value};
use naga::{Block, Expression, Handle, Span, Statement};

/// The most statements and expressions that are emitted twice together, and in the whole program: inside of what is emitted twice there
/// may be more of it.
const MAX_TWICE: usize = 300;
const MAX_TWICE_OF_ALL: usize = 20_000;

/// What is known about statements that may be emitted twice.
#[derive(Default)]
struct Weight {
    count: usize,
    has_proven: bool,
}

impl<'m> Emitter<'m, '_> {
    /// Whether all take part before a branch in which some may leave the function, and what is behind it can be emitted twice.
    pub(crate) fn may_leave_some(&self, id: ActivationId, statement: &'m Statement) -> Option<Handle<Expression>> {
        let Statement::If { condition, reject, .. } = statement else { return None };
        // What a loop computes is needed where it goes on, what is between barriers behind them: it must not be there twice.
        let is_plain = matches!(self.active, Active::All) && self.targets.is_empty() && !self.in_steps(id);
        let leaves_some = reject.is_empty() && self.may_return(id, statement) && self.analysis.varies(id, *condition);
        (is_plain && leaves_some).then_some(*condition)
    }

    /// Emits such a branch with what is behind it; for where nobody takes it, the latter alone.
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
        let nobody = self.b.ins().bxor_imm_s(any, 1);
        let everyone = self.active_mask();
        let registers = self.new_mask(everyone);
        self.twice(nobody, registers, Active::All, |e, is_whole| {
            if !is_whole {
                e.statement(id, branch, span)?;
            }
            e.statements(id, rest.iter().copied())
        })
    }

    /// Emits something for where all take part, and for where that is not so with those who then do. Who is left is in the registers.
    pub(super) fn twice(
        &mut self,
        all: Value,
        registers: [cranelift_frontend::Variable; PARTS],
        others: Active,
        emit: impl Fn(&mut Self, bool) -> Result<Flow>,
    ) -> Result<Flow> {
        let (whole, partial, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(all, whole, &[], partial, &[]);
        let (emitted, mut goes_on) = (self.emitted, false);
        for (start, active, is_whole) in [(whole, Active::All, true), (partial, others, false)] {
            self.b.switch_to_block(start);
            // It counts once: whether a program is too large does not depend on this.
            (self.active, self.is_partial, self.emitted) = (active, !is_whole, emitted);
            if emit(self, is_whole)? != Flow::Gone {
                let mask = self.active_mask();
                self.set_mask(registers, mask);
                self.b.ins().jump(after, &[]);
                goes_on = true;
            }
        }
        (self.active, self.is_partial) = (Active::Some(registers), false);
        self.b.switch_to_block(after);
        Ok(if goes_on { Flow::On } else { self.nothing_leads_here() })
    }

    /// Whether statements are emitted for where all take part as well: they are few, and checks can be left out there.
    pub(crate) fn is_worth_twice(
        &mut self,
        id: ActivationId,
        mut statements: impl Iterator<Item = &'m Statement>,
    ) -> bool {
        let mut weight = Weight::default();
        let is_worth = !self.is_partial
            && statements.all(|statement| self.weigh(id, statement, &mut weight))
            && weight.has_proven
            && self.emitted_twice + weight.count <= MAX_TWICE_OF_ALL;
        self.emitted_twice += if is_worth { weight.count } else { 0 };
        is_worth
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
            Statement::Block(block) => all(id, block),
            Statement::If { accept, reject, .. } => all(id, accept) && all(id, reject),
            Statement::Switch { cases, .. } => cases.iter().all(|case| all(id, &case.body)),
            Statement::Loop { body, continuing, .. } => all(id, body) && all(id, continuing),
            Statement::Call { .. } => match self.analysis.callee(id, statement) {
                Some(callee) => all(callee, &self.analysis.activations[callee].function.body),
                None => true,
            },
            _ => true,
        };
        weight.count += 1;
        goes_on && weight.count <= MAX_TWICE
    }
}
