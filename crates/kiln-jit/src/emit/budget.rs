//! Limits on the size of a program, and the cost of loop iterations.
//!
//! Hostile or generated programs must not make the compiler run for minutes; each limit bounds one superlinear
//! part of compilation.

use super::Result;
use crate::CompileError;
use cranelift_codegen::ir::Function;
use naga::Span;

/// Maximum number of statements, expressions and scalars of large values after inlining.
pub(crate) const MAX_EMITTED: usize = 200_000;
/// Maximum number of Cranelift instructions. A statement can take hundreds, and all are in memory at once.
const MAX_INSTRUCTIONS: usize = 1_000_000;
/// Maximum of variables times blocks: the work of Cranelift's SSA construction.
const MAX_REGISTERS_IN_BLOCKS: u64 = 50_000_000;
/// Maximum number of statements and expressions that are emitted in two versions. Versions nest.
const MAX_VERSIONED: usize = 20_000;
/// Cost above which a loop of constant trip count checks the clock.
const MAX_UNTIMED_COST: u64 = 1 << 16;

/// Size and cost of the code emitted so far.
#[derive(Default)]
pub(crate) struct Budget {
    /// Statements and expressions, and how many of them have two versions. Versioned code counts once: the
    /// emitter resets `emitted` after the first version.
    pub(super) emitted: usize,
    versioned: usize,
    /// Cranelift variables declared.
    registers: u64,
    /// Estimated run time of the code so far, in statements and expressions. Inner loops of constant trip count
    /// are multiplied by it; other loops charge their iterations at run time.
    pub(super) cost: u64,
}

impl Budget {
    /// Counts emitted items and fails if a limit is exceeded.
    pub(crate) fn spend(&mut self, items: usize, function: &Function, span: Span) -> Result<()> {
        // All limits are checked at every item, so that emission stops before a huge function is in memory.
        self.emitted += items;
        self.cost += items as u64;
        if self.emitted > MAX_EMITTED {
            let message = format!(
                "expected at most {MAX_EMITTED} statements, expressions and scalars of large values after inlining, found more"
            );
            return Err(CompileError::new(span, message));
        }
        if function.dfg.num_insts() > MAX_INSTRUCTIONS {
            let message = format!("expected a program of at most {MAX_INSTRUCTIONS} instructions, found more");
            return Err(CompileError::new(span, message));
        }
        if self.registers * function.dfg.num_blocks() as u64 > MAX_REGISTERS_IN_BLOCKS {
            let message = "expected fewer variables, or fewer branches and accesses, found too many of both";
            return Err(CompileError::new(span, message));
        }
        Ok(())
    }

    /// Counts Cranelift variables.
    pub(crate) fn add_registers(&mut self, count: usize) {
        self.registers += count as u64;
    }

    /// Counts items that get a second version; false if there are too many.
    pub(crate) fn add_version(&mut self, items: usize) -> bool {
        let fits = self.versioned + items <= MAX_VERSIONED;
        self.versioned += if fits { items } else { 0 };
        fits
    }

    /// Cost of one iteration of a loop that started at cost `before`. At least 1, so that an empty loop ends
    /// too.
    pub(crate) fn iteration_cost(&self, before: u64) -> i64 {
        (self.cost - before).clamp(1, i32::MAX as u64) as i64
    }

    /// Ends a loop of `count` iterations that started at cost `before`. Returns the cost of an iteration if the
    /// loop must spend fuel; otherwise the whole loop is added to the cost of the enclosing code.
    pub(crate) fn end_counted_loop(&mut self, before: u64, count: u32) -> Option<i64> {
        let (iteration_cost, all) =
            (self.iteration_cost(before), (self.cost - before).max(1).saturating_mul(count.into()));
        let is_timed = all > MAX_UNTIMED_COST;
        // A loop that charges itself at run time must not be charged again by the enclosing loop.
        self.cost = if is_timed { before } else { before + all };
        is_timed.then_some(iteration_cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versioned_code_counts_once() {
        let (mut budget, function) = (Budget::default(), Function::new());
        budget.spend(MAX_EMITTED - 10, &function, Span::UNDEFINED).unwrap();
        for _ in 0..2 {
            let emitted = budget.emitted;
            budget.spend(10, &function, Span::UNDEFINED).unwrap();
            budget.emitted = emitted;
        }
        assert!(budget.spend(11, &function, Span::UNDEFINED).is_err());
        assert!(budget.add_version(MAX_VERSIONED - 1) && !budget.add_version(2) && budget.add_version(1));
    }

    #[test]
    fn the_register_limit_scales_with_the_number_of_blocks() {
        let (mut budget, mut function) = (Budget::default(), Function::new());
        budget.add_registers(30_000_000);
        function.dfg.make_block();
        assert_eq!(budget.spend(1, &function, Span::UNDEFINED), Ok(()));
        function.dfg.make_block();
        assert!(budget.spend(1, &function, Span::UNDEFINED).is_err());
    }

    #[test]
    fn only_long_counted_loops_spend_fuel() {
        let mut budget = Budget::default();
        budget.cost += 5;
        let before = budget.cost;
        assert_eq!(budget.iteration_cost(before), 1, "every iteration has a cost");
        budget.cost += 10;
        assert_eq!((budget.end_counted_loop(before, 100), budget.cost), (None, 1005));
        let before = budget.cost;
        budget.cost += 10;
        assert_eq!(
            (budget.end_counted_loop(before, 10_000), budget.cost),
            (Some(10), 1005),
            "the inner loop counts its own iterations"
        );
    }
}
