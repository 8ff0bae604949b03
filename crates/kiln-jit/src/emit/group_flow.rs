//! Control flow of a workgroup, for functions split at barriers: the functions being emitted, the targets of
//! `break` and `continue`, and which invocations are active.

use crate::types::Kind;
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::Block;
use std::collections::HashMap;

/// Target of `break` and `continue`. A switch has no `next`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GroupTarget {
    /// The whole workgroup jumps to a block.
    Uniform { exit: Block, next: Option<Block> },
    /// Each active invocation becomes inactive from this level on.
    Divergent { exit: usize, next: Option<usize> },
}

/// A scalar of a function result: kind, whether it varies in a gang, and its word in the frame.
pub(crate) type ResultWord = (Kind, bool, u32);

/// State of an activation split at barriers.
#[derive(Default)]
struct SplitActivation {
    /// Frame words that hold whether an invocation is active. The first is for the function, if it has early
    /// returns; the others are for nested divergent branches and loops. An invocation is active if its
    /// innermost word is set.
    levels: Vec<u32>,
    result: Vec<ResultWord>,
}

/// State of all split activations.
#[derive(Default)]
pub(crate) struct GroupFlow {
    activations: HashMap<ActivationId, SplitActivation>,
    /// The activations being emitted, innermost last, with their enclosing loops and switches.
    running: Vec<(ActivationId, Vec<GroupTarget>)>,
}

impl GroupFlow {
    /// Enters an activation. `active_word` holds whether an invocation is active; `None` if all are.
    pub(crate) fn enter(&mut self, id: ActivationId, active_word: Option<u32>) {
        // Only the levels are replaced: `set_result` has stored the words of the result before.
        self.activations.entry(id).or_default().levels = active_word.into_iter().collect();
        self.running.push((id, Vec::new()));
    }

    /// Leaves the innermost activation.
    pub(crate) fn leave(&mut self) {
        self.running.pop();
    }

    /// Whether an activation is split at barriers.
    pub(crate) fn is_split(&self, id: ActivationId) -> bool {
        self.activations.contains_key(&id)
    }

    /// Whether an activation is being emitted.
    pub(crate) fn is_running(&self, id: ActivationId) -> bool {
        self.running.iter().any(|(other, _)| *other == id)
    }

    /// Sets the frame words for the result of an activation.
    pub(crate) fn set_result(&mut self, id: ActivationId, words: Vec<ResultWord>) {
        self.activations.entry(id).or_default().result = words;
    }

    /// Returns the frame words for the result.
    pub(crate) fn result(&self, id: ActivationId) -> &[ResultWord] {
        self.activations.get(&id).map_or(&[], |activation| &activation.result)
    }

    /// Returns the active words of all levels, innermost last.
    pub(crate) fn levels(&self, id: ActivationId) -> &[u32] {
        self.activations.get(&id).map_or(&[], |activation| &activation.levels)
    }

    /// Returns the word that holds whether an invocation is active; `None` if all are.
    pub(crate) fn active_word(&self, id: ActivationId) -> Option<u32> {
        self.levels(id).last().copied()
    }

    /// Enters a divergent branch or loop.
    pub(crate) fn push_level(&mut self, id: ActivationId, word: u32) {
        self.activations.entry(id).or_default().levels.push(word);
    }

    /// Leaves a divergent branch or loop. The next outer word becomes current, which reconverges its
    /// invocations.
    pub(crate) fn pop_level(&mut self, id: ActivationId) {
        self.activations.entry(id).or_default().levels.pop();
    }

    /// Enters a loop or switch.
    pub(crate) fn push_target(&mut self, target: GroupTarget) {
        self.running.last_mut().expect("targets belong to a function that is being emitted").1.push(target);
    }

    /// Leaves a loop or switch.
    pub(crate) fn pop_target(&mut self) {
        self.running.last_mut().expect("targets belong to a function that is being emitted").1.pop();
    }

    /// Returns the target of a `break` or `continue`.
    pub(crate) fn target(&self, is_break: bool) -> Option<GroupTarget> {
        let (_, targets) = self.running.last()?;
        // A `continue` passes through switches.
        let is_loop = |target: &&GroupTarget| {
            !matches!(target, GroupTarget::Uniform { next: None, .. } | GroupTarget::Divergent { next: None, .. })
        };
        targets.iter().rev().find(|target| is_break || is_loop(target)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_nest_in_their_activation() {
        let mut group = GroupFlow::default();
        group.enter(0, None);
        assert!(group.is_split(0) && !group.is_split(1) && group.active_word(0).is_none());
        group.push_level(0, 7);
        group.enter(1, Some(9));
        group.push_level(1, 11);
        assert_eq!((group.active_word(0), group.active_word(1), group.levels(1)), (Some(7), Some(11), &[9, 11][..]));
        assert!(group.is_running(0) && group.is_running(1));
        group.pop_level(1);
        group.leave();
        assert_eq!((group.active_word(1), group.is_running(1), group.is_split(1)), (Some(9), false, true));
        group.pop_level(0);
        assert_eq!(group.active_word(0), None);
    }

    #[test]
    fn jumps_target_the_innermost_function() {
        let (mut group, [exit, next]) = (GroupFlow::default(), [1, 2].map(Block::from_u32));
        assert_eq!(group.target(true), None);
        group.enter(0, None);
        let (uniform, switch) =
            (GroupTarget::Uniform { exit, next: Some(next) }, GroupTarget::Divergent { exit: 1, next: None });
        group.push_target(uniform);
        group.push_target(switch);
        assert_eq!((group.target(true), group.target(false)), (Some(switch), Some(uniform)));
        group.enter(1, None);
        assert_eq!((group.target(true), group.target(false)), (None, None));
        group.leave();
        group.pop_target();
        assert_eq!(group.target(true), Some(uniform));
    }
}
