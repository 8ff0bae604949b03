//! How much is emitted: the limits of a program's size, and what a round of a loop costs.

use super::Result;
use crate::Refusal;
use cranelift_codegen::ir::Function;
use naga::Span;

/// Statements and expressions that a program may become, functions counted where they are called.
pub(crate) const MAX_EMITTED: usize = 200_000;
/// Instructions of Cranelift that a program may become: some statements are hundreds of them, and all are in memory at once.
const MAX_INSTRUCTIONS: usize = 1_000_000;
/// Registers of variables times blocks: what Cranelift looks at to find out which value each of them has where.
const MAX_REGISTERS_IN_BLOCKS: u64 = 50_000_000;
/// Statements and expressions of a program that are emitted in two versions: there may be versions in versions.
const MAX_VERSIONED: usize = 20_000;
/// The cost of a loop of known length beyond which it looks at the clock.
const MAX_UNTIMED_COST: u64 = 1 << 16;

/// What was emitted so far.
#[derive(Default)]
pub(crate) struct Budget {
    /// Statements and expressions, and how many of them have two versions. Code with two versions counts once: the emitter resets the count after the first.
    pub(super) emitted: usize,
    versioned: usize,
    /// Registers of variables.
    registers: u64,
    /// Statements and expressions, as often as they run in a round of the innermost loop of the program around.
    pub(super) cost: u64,
}

impl Budget {
    /// Counts what is emitted into a function: functions inlined in functions can double it each time.
    pub(crate) fn spend(&mut self, items: usize, function: &Function, span: Span) -> Result<()> {
        self.emitted += items;
        self.cost += items as u64;
        if self.emitted > MAX_EMITTED {
            let message = format!(
                "expected at most {MAX_EMITTED} statements, expressions and scalars of large values with functions put in their place, found more"
            );
            return Err(Refusal::new(span, message));
        }
        if function.dfg.num_insts() > MAX_INSTRUCTIONS {
            let message = format!("expected a program of at most {MAX_INSTRUCTIONS} instructions, found more");
            return Err(Refusal::new(span, message));
        }
        if self.registers * function.dfg.num_blocks() as u64 > MAX_REGISTERS_IN_BLOCKS {
            let message = "expected fewer variables, or fewer branches and accesses, found too many of both";
            return Err(Refusal::new(span, message));
        }
        Ok(())
    }

    pub(crate) fn add_registers(&mut self, count: usize) {
        self.registers += count as u64;
    }

    /// Counts items that get a second version; false where that would be too many.
    pub(crate) fn add_version(&mut self, items: usize) -> bool {
        let fits = self.versioned + items <= MAX_VERSIONED;
        self.versioned += if fits { items } else { 0 };
        fits
    }

    /// The cost of a round of a loop that began at a cost of `before`.
    pub(crate) fn round(&self, before: u64) -> i64 {
        (self.cost - before).clamp(1, i32::MAX as u64) as i64
    }

    /// Ends a loop of so many rounds that began at a cost of `before`, and returns the cost of a round where it has to look at the clock.
    pub(crate) fn end_rounds(&mut self, before: u64, count: u32) -> Option<i64> {
        let (round, all) = (self.round(before), (self.cost - before).max(1).saturating_mul(count.into()));
        let is_timed = all > MAX_UNTIMED_COST;
        self.cost = if is_timed { before } else { before + all };
        is_timed.then_some(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_size_that_its_versions_do_not_change() {
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
    fn many_registers_are_too_many_in_many_blocks_only() {
        let (mut budget, mut function) = (Budget::default(), Function::new());
        budget.add_registers(30_000_000);
        function.dfg.make_block();
        assert_eq!(budget.spend(1, &function, Span::UNDEFINED), Ok(()));
        function.dfg.make_block();
        assert!(budget.spend(1, &function, Span::UNDEFINED).is_err());
    }

    #[test]
    fn loops_of_known_length_look_at_the_clock_where_they_are_long() {
        let mut budget = Budget::default();
        budget.cost += 5;
        let before = budget.cost;
        assert_eq!(budget.round(before), 1, "no round is free");
        budget.cost += 10;
        assert_eq!((budget.end_rounds(before, 100), budget.cost), (None, 1005));
        let before = budget.cost;
        budget.cost += 10;
        assert_eq!((budget.end_rounds(before, 10_000), budget.cost), (Some(10), 1005), "its rounds count themselves");
    }
}
