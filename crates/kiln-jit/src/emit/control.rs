//! Control flow of a gang: its active mask, and the targets of `break` and `continue`.
//!
//! Lanes that take another path stay in the gang but are inactive. They are tracked in a mask, and reconverge
//! at the end of the branch, loop, switch or function that they left.

use super::lanes::{VECTORS, vector_constant};
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable as Register};

/// A mask in Cranelift variables. A lane is all ones if it is in the mask, otherwise all zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mask([Register; VECTORS]);

impl Mask {
    /// Creates a mask with these lanes.
    pub(crate) fn new(b: &mut FunctionBuilder<'_>, lanes: [Value; VECTORS]) -> Self {
        let mask = Self(std::array::from_fn(|_| b.declare_var(types::I32X4)));
        mask.set(b, lanes);
        mask
    }

    /// Replaces the lanes.
    pub(crate) fn set(self, b: &mut FunctionBuilder<'_>, lanes: [Value; VECTORS]) {
        self.0.iter().zip(lanes).for_each(|(register, part)| b.def_var(*register, part));
    }

    /// Returns the lanes.
    pub(crate) fn get(self, b: &mut FunctionBuilder<'_>) -> [Value; VECTORS] {
        self.0.map(|register| b.use_var(register))
    }

    /// Returns one vector of the mask.
    pub(crate) fn part(self, b: &mut FunctionBuilder<'_>, part: usize) -> Value {
        b.use_var(self.0[part])
    }

    /// Adds the lanes of another mask.
    pub(crate) fn union(self, b: &mut FunctionBuilder<'_>, other: Self) {
        let lanes = std::array::from_fn(|part| {
            let (x, y) = (self.part(b, part), other.part(b, part));
            b.ins().bor(x, y)
        });
        self.set(b, lanes);
    }

    /// Removes all lanes.
    pub(crate) fn clear(self, b: &mut FunctionBuilder<'_>) {
        let none = empty_lanes(b);
        self.set(b, none);
    }
}

/// The lanes of an empty mask.
pub(crate) fn empty_lanes(b: &mut FunctionBuilder<'_>) -> [Value; VECTORS] {
    [vector_constant(b, [0; 4]); VECTORS]
}

/// The active lanes of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Active {
    /// All lanes, known at compile time. Code for a full mask needs no masking.
    #[default]
    All,
    /// Those of a mask, which may also be full or empty at run time.
    Masked(Mask),
}

/// The effect of a `break` or `continue`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Jump {
    /// All active lanes jump to a block.
    Uniform(Block),
    /// The active lanes become inactive and wait in this mask.
    Divergent(Mask),
}

/// An enclosing statement: a loop, a switch (no `continue`) or a divergent branch (neither).
#[derive(Default)]
struct Target {
    on_break: Option<Jump>,
    on_continue: Option<Jump>,
}

/// Control-flow state of the current gang.
#[derive(Default)]
pub(crate) struct ControlFlow {
    pub(super) active: Active,
    /// Whether the code being emitted is the masked one of two versions. Then it is not versioned again.
    pub(super) is_masked_version: bool,
    /// Enclosing statements in the current function, and in its callers.
    targets: Vec<Target>,
    callers: Vec<Vec<Target>>,
}

impl ControlFlow {
    /// Whether all lanes are known to be active.
    pub(crate) fn is_full(&self) -> bool {
        self.active == Active::All
    }

    /// Returns the lanes of the active mask.
    pub(crate) fn lanes(&self, b: &mut FunctionBuilder<'_>) -> [Value; VECTORS] {
        match self.active {
            Active::All => [vector_constant(b, [-1; 4]); VECTORS],
            Active::Masked(mask) => mask.get(b),
        }
    }

    /// Materialises the active mask in variables. It stays there, so that nested control flow can narrow it.
    pub(crate) fn mask(&mut self, b: &mut FunctionBuilder<'_>) -> Mask {
        if let Active::Masked(mask) = self.active {
            return mask;
        }
        let lanes = self.lanes(b);
        self.activate(b, lanes)
    }

    /// Makes these lanes the active ones, in a new mask.
    pub(crate) fn activate(&mut self, b: &mut FunctionBuilder<'_>, lanes: [Value; VECTORS]) -> Mask {
        let mask = Mask::new(b, lanes);
        self.active = Active::Masked(mask);
        mask
    }

    /// Starts one version of versioned code, or restores the state after both.
    pub(crate) fn set_version(&mut self, active: Active, is_masked: bool) {
        (self.active, self.is_masked_version) = (active, is_masked);
    }

    /// Enters a loop, or a switch if there is no `continue` target.
    pub(crate) fn push_target(&mut self, on_break: Jump, on_continue: Option<Jump>) {
        self.targets.push(Target { on_break: Some(on_break), on_continue });
    }

    /// Enters a divergent branch.
    pub(crate) fn push_branch(&mut self) {
        self.targets.push(Target::default());
    }

    /// Leaves the statement that was entered last.
    pub(crate) fn pop(&mut self) {
        self.targets.pop();
    }

    /// Returns what a `break` does; `None` outside of loops and switches.
    pub(crate) fn on_break(&self) -> Option<Jump> {
        // Divergent branches have no jump and are skipped: a `break` in one makes its loop or switch divergent,
        // so the lanes wait in the mask of that statement.
        self.targets.iter().rev().find_map(|target| target.on_break)
    }

    /// Returns what a `continue` does; `None` outside of loops.
    pub(crate) fn on_continue(&self) -> Option<Jump> {
        self.targets.iter().rev().find_map(|target| target.on_continue)
    }

    /// Whether no loop, switch or divergent branch of the current function is open, so that no inactive lane
    /// waits to reconverge in it.
    pub(crate) fn is_top_level(&self) -> bool {
        self.targets.is_empty()
    }

    /// Enters a called function. Targets of the caller are out of reach in it.
    pub(crate) fn enter_function(&mut self) {
        self.callers.push(std::mem::take(&mut self.targets));
    }

    /// Returns to the caller.
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
            let none = empty_lanes(b);
            let inner = control.activate(b, none);
            assert_ne!(inner, mask);
            assert_eq!(control.lanes(b), none);
            mask.union(b, inner);
            mask.clear(b);
            control.active = before;
            assert!(control.is_full());
        });
    }

    #[test]
    fn jumps_target_the_innermost_loop_or_switch_of_their_function() {
        with_builder(|b| {
            let mut control = ControlFlow::default();
            let [exit, next, after] = [(); 3].map(|()| b.create_block());
            let none = empty_lanes(b);
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
