//! `switch` statements of a gang.

use super::control::{Jump, Mask, empty_lanes};
use super::lanes::{Lanes, Scalar, vector_constant};
use super::statement::Flow;
use super::{Emitter, Result};
use crate::CompileError;
use crate::regions::{has_outer_jump, has_return};
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use naga::{Block, Span, Statement, SwitchCase, SwitchValue};

impl<'m> Emitter<'m, '_> {
    /// Emits a `switch`.
    pub(super) fn switch(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Scalar,
        cases: &'m [SwitchCase],
        span: Span,
    ) -> Result<Flow> {
        let mut groups: Vec<(Vec<SwitchValue>, &'m Block)> = Vec::new();
        let mut values = Vec::new();
        for case in cases {
            values.push(case.value);
            if !case.fall_through {
                groups.push((std::mem::take(&mut values), &case.body));
            // WGSL has no fallthrough; naga uses it for cases with several selectors, whose bodies are empty.
            } else if !case.body.is_empty() {
                return Err(CompileError::new(
                    span,
                    "expected cases without fallthrough, found one that falls through",
                ));
            }
        }
        // A uniform selector is not enough for a branch: lanes may still break out of a case at different
        // times.
        match selector.lanes {
            Lanes::Uniform(selector) if !self.uniformity.is_divergent(id, statement) => {
                self.switch_uniform(id, statement, selector, &groups)
            }
            _ => self.switch_divergent(id, statement, selector, &groups),
        }
    }

    /// Emits a `switch` whose lanes all take the same case.
    fn switch_uniform(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Value,
        groups: &[(Vec<SwitchValue>, &'m Block)],
    ) -> Result<Flow> {
        // Before the dispatch, so that all cases and the code after the switch share the mask's variables.
        self.materialise_mask(id, statement);
        let (blocks, after) = self.dispatch(selector, groups);
        let active = self.control.active;
        self.control.push_target(Jump::Uniform(after), None);
        for ((_, body), block) in groups.iter().zip(blocks) {
            self.b.switch_to_block(block);
            if self.block(id, body)? != Flow::Terminated {
                debug_assert_eq!(self.control.active, active, "as in a branch");
                self.b.ins().jump(after, &[]);
            }
            self.control.active = active;
        }
        self.control.pop();
        self.b.switch_to_block(after);
        Ok(Flow::Next)
    }

    /// Emits the comparisons of a switch. Returns the block of each case and the block after the switch.
    pub(crate) fn dispatch<T>(
        &mut self,
        selector: Value,
        cases: &[(Vec<SwitchValue>, T)],
    ) -> (Vec<ir::Block>, ir::Block) {
        let after = self.b.create_block();
        let blocks: Vec<_> = cases.iter().map(|_| self.b.create_block()).collect();
        // A chain of comparisons is enough: kernels have few cases.
        let mut default = after;
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
        (blocks, after)
    }

    /// Emits a `switch` whose lanes may take different cases: each case runs with the mask of its lanes.
    fn switch_divergent(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        selector: Scalar,
        groups: &[(Vec<SwitchValue>, &'m Block)],
    ) -> Result<Flow> {
        let exits = has_outer_jump(statement, false, false) || has_return(statement);
        let before = self.control.active;
        let saved = self.control.lanes(&mut self.b);
        let active = self.control.mask(&mut self.b);
        let selector = self.vectors(selector);
        let none = empty_lanes(&mut self.b);
        let break_mask = Mask::new(&mut self.b, none);
        // All masks first: the default case needs the lanes that no other case names, and may precede them.
        let (mut masks, mut named) = (Vec::new(), none);
        for (values, _) in groups {
            let mut mask = none;
            for value in values.iter().filter(|value| **value != SwitchValue::Default) {
                // `U32` cases above `i32::MAX` are compared by their bits.
                let case = vector_constant(&mut self.b, [case_value(*value) as i32; 4]);
                mask = std::array::from_fn(|part| {
                    let is_here = self.b.ins().icmp(IntCC::Equal, selector[part], case);
                    self.b.ins().bor(mask[part], is_here)
                });
            }
            named = std::array::from_fn(|part| self.b.ins().bor(named[part], mask[part]));
            masks.push(mask);
        }
        self.control.push_target(Jump::Divergent(break_mask), None);
        for ((values, body), mask) in groups.iter().zip(masks) {
            let mask = if values.contains(&SwitchValue::Default) {
                std::array::from_fn(|part| {
                    // The default case takes the lanes that no case names, whatever its position.
                    let others = self.b.ins().bnot(named[part]);
                    self.b.ins().bor(mask[part], others)
                })
            } else {
                mask
            };
            let mask = std::array::from_fn(|part| self.b.ins().band(saved[part], mask[part]));
            self.masked_block(id, mask, body)?;
            // Lanes that reach the end of a case leave the switch like those that break.
            break_mask.union(&mut self.b, active);
        }
        self.control.pop();
        // Some lanes may have returned or continued an outer loop, so the mask may be smaller than before.
        if exits {
            let lanes = break_mask.get(&mut self.b);
            active.set(&mut self.b, lanes);
        } else {
            active.set(&mut self.b, saved);
            self.control.active = before;
        }
        Ok(Flow::Next)
    }
}

/// Returns the value of a case as the selector's bits.
pub(crate) fn case_value(value: SwitchValue) -> i64 {
    match value {
        SwitchValue::I32(value) => i64::from(value),
        SwitchValue::U32(value) => i64::from(value.cast_signed()),
        SwitchValue::Default => 0,
    }
}
