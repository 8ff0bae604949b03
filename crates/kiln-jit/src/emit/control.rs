//! The active mask of the running gang, and where `break` and `continue` of its invocations lead.

use super::lanes::{PARTS, vector_constant};
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable as Register};

/// A mask in registers: all bits of a lane are ones where its invocation is in the mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mask([Register; PARTS]);

impl Mask {
    pub(crate) fn new(b: &mut FunctionBuilder<'_>, lanes: [Value; PARTS]) -> Self {
        let mask = Self(std::array::from_fn(|_| b.declare_var(types::I32X4)));
        mask.set(b, lanes);
        mask
    }

    pub(crate) fn set(self, b: &mut FunctionBuilder<'_>, lanes: [Value; PARTS]) {
        self.0.iter().zip(lanes).for_each(|(register, part)| b.def_var(*register, part));
    }

    pub(crate) fn get(self, b: &mut FunctionBuilder<'_>) -> [Value; PARTS] {
        self.0.map(|register| b.use_var(register))
    }

    pub(crate) fn part(self, b: &mut FunctionBuilder<'_>, part: usize) -> Value {
        b.use_var(self.0[part])
    }

    /// Adds the lanes of another mask.
    pub(crate) fn add(self, b: &mut FunctionBuilder<'_>, other: Self) {
        let lanes = std::array::from_fn(|part| {
            let (x, y) = (self.part(b, part), other.part(b, part));
            b.ins().bor(x, y)
        });
        self.set(b, lanes);
    }

    pub(crate) fn clear(self, b: &mut FunctionBuilder<'_>) {
        let none = no_lanes(b);
        self.set(b, none);
    }
}

/// The lanes of an empty mask.
pub(crate) fn no_lanes(b: &mut FunctionBuilder<'_>) -> [Value; PARTS] {
    [vector_constant(b, [0; 4]); PARTS]
}

/// The active invocations of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Active {
    #[default]
    All,
    Some(Mask),
}

/// What a `break` or `continue` does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Jump {
    /// All active invocations go to the block.
    Uniform(Block),
    /// They become inactive, and wait in the mask.
    Divergent(Mask),
}

/// A loop, a switch, which has no `continue`, or a divergent branch, which has neither.
#[derive(Default)]
struct Target {
    on_break: Option<Jump>,
    on_continue: Option<Jump>,
}

/// The control flow of the running gang.
#[derive(Default)]
pub(crate) struct ControlFlow {
    pub(super) active: Active,
    /// Whether this is the masked version of code that has two.
    pub(super) is_masked_version: bool,
    /// What is around the running statement, in its function and in those that called it.
    targets: Vec<Target>,
    callers: Vec<Vec<Target>>,
}

impl ControlFlow {
    pub(crate) fn is_full(&self) -> bool {
        self.active == Active::All
    }

    /// The lanes of the active mask.
    pub(crate) fn lanes(&self, b: &mut FunctionBuilder<'_>) -> [Value; PARTS] {
        match self.active {
            Active::All => [vector_constant(b, [-1; 4]); PARTS],
            Active::Some(mask) => mask.get(b),
        }
    }

    /// The active mask in registers, where it stays from here on, so that control flow may narrow it.
    pub(crate) fn mask(&mut self, b: &mut FunctionBuilder<'_>) -> Mask {
        if let Active::Some(mask) = self.active {
            return mask;
        }
        let lanes = self.lanes(b);
        self.activate(b, lanes)
    }

    /// Makes these lanes the active ones.
    pub(crate) fn activate(&mut self, b: &mut FunctionBuilder<'_>, lanes: [Value; PARTS]) -> Mask {
        let mask = Mask::new(b, lanes);
        self.active = Active::Some(mask);
        mask
    }

    /// Begins a version of code for these invocations, or ends its versions.
    pub(crate) fn set_version(&mut self, active: Active, is_masked: bool) {
        (self.active, self.is_masked_version) = (active, is_masked);
    }

    /// Enters a loop, or a switch where `continue` has nowhere to go.
    pub(crate) fn push_target(&mut self, on_break: Jump, on_continue: Option<Jump>) {
        self.targets.push(Target { on_break: Some(on_break), on_continue });
    }

    /// Enters a divergent branch.
    pub(crate) fn push_branch(&mut self) {
        self.targets.push(Target::default());
    }

    /// Leaves what was entered last.
    pub(crate) fn pop(&mut self) {
        self.targets.pop();
    }

    /// What a `break` does here; `None` outside of loops and switches.
    pub(crate) fn on_break(&self) -> Option<Jump> {
        self.targets.iter().rev().find_map(|target| target.on_break)
    }

    /// What a `continue` does here; `None` outside of loops.
    pub(crate) fn on_continue(&self) -> Option<Jump> {
        self.targets.iter().rev().find_map(|target| target.on_continue)
    }

    /// Whether no invocation of the running function waits at the end of a divergent branch, a loop or a switch around.
    pub(crate) fn is_top_level(&self) -> bool {
        self.targets.is_empty()
    }

    /// Enters a called function, which no `break` leaves.
    pub(crate) fn enter_function(&mut self) {
        self.callers.push(std::mem::take(&mut self.targets));
    }

    pub(crate) fn leave_function(&mut self) {
        self.targets = self.callers.pop().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::tests::with_builder;

    #[test]
    fn the_mask_is_in_registers_from_the_first_divergence_until_it_is_restored() {
        with_builder(|b| {
            let mut control = ControlFlow::default();
            assert!(control.is_full());
            let before = control.active;
            let mask = control.mask(b);
            assert!(!control.is_full() && control.mask(b) == mask, "a second branch narrows the same registers");
            let none = no_lanes(b);
            let inner = control.activate(b, none);
            assert_ne!(inner, mask);
            assert_eq!(control.lanes(b), none);
            mask.add(b, inner);
            mask.clear(b);
            control.active = before;
            assert!(control.is_full());
        });
    }

    #[test]
    fn jumps_lead_to_the_innermost_target_of_their_function() {
        with_builder(|b| {
            let mut control = ControlFlow::default();
            let [exit, next, after] = [(); 3].map(|()| b.create_block());
            let none = no_lanes(b);
            let broke = Mask::new(b, none);
            assert!(control.is_top_level() && control.on_break().is_none() && control.on_continue().is_none());
            control.push_target(Jump::Uniform(exit), Some(Jump::Uniform(next)));
            control.push_target(Jump::Divergent(broke), None);
            assert_eq!(control.on_break(), Some(Jump::Divergent(broke)), "of the switch");
            assert_eq!(control.on_continue(), Some(Jump::Uniform(next)), "of the loop around it");
            control.push_branch();
            control.enter_function();
            assert!(control.is_top_level(), "targets of the caller are out of reach");
            control.push_target(Jump::Uniform(after), None);
            assert!(control.on_continue().is_none() && !control.is_top_level());
            control.pop();
            control.leave_function();
            control.pop();
            control.pop();
            assert_eq!(control.on_break(), Some(Jump::Uniform(exit)));
            control.pop();
            assert!(control.is_top_level());
        });
    }
}
