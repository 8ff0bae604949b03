//! Control flow of a work-group whose functions are split at barriers: the functions under way, where `break` and `continue` lead, and
//! which invocations are active in a divergent branch or loop.

use crate::analysis::ActivationId;
use crate::types::Kind;
use cranelift_codegen::ir::Block;
use std::collections::HashMap;

/// Where a `break` and a `continue` lead; a switch has no `continue`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GroupTarget {
    /// For the whole work-group.
    Uniform { exit: Block, next: Option<Block> },
    /// For each invocation: the first of the levels that it leaves.
    Divergent { exit: usize, next: Option<usize> },
}

/// A scalar of a result: its kind, whether it varies in a gang, and its word in the frame.
pub(crate) type ResultWord = (Kind, bool, u32);

/// An activation that is split at barriers.
#[derive(Default)]
struct SplitActivation {
    /// The words of the frame that say whether an invocation is active: in the function, where it may return before the end, then in each
    /// divergent branch and loop.
    levels: Vec<u32>,
    result: Vec<ResultWord>,
}

/// The state of all activations that are split.
#[derive(Default)]
pub(crate) struct GroupFlow {
    activations: HashMap<ActivationId, SplitActivation>,
    /// Those that run, the innermost last, with the loops and switches around.
    running: Vec<(ActivationId, Vec<GroupTarget>)>,
}

impl GroupFlow {
    /// Enters an activation, in which invocations may be inactive where a word says so.
    pub(crate) fn enter(&mut self, id: ActivationId, live: Option<u32>) {
        self.activations.entry(id).or_default().levels = live.into_iter().collect();
        self.running.push((id, Vec::new()));
    }

    pub(crate) fn leave(&mut self) {
        self.running.pop();
    }

    pub(crate) fn is_split(&self, id: ActivationId) -> bool {
        self.activations.contains_key(&id)
    }

    pub(crate) fn is_running(&self, id: ActivationId) -> bool {
        self.running.iter().any(|(other, _)| *other == id)
    }

    /// Where the result of an activation goes.
    pub(crate) fn set_result(&mut self, id: ActivationId, words: Vec<ResultWord>) {
        self.activations.entry(id).or_default().result = words;
    }

    pub(crate) fn result(&self, id: ActivationId) -> &[ResultWord] {
        self.activations.get(&id).map_or(&[], |activation| &activation.result)
    }

    /// The words of the levels, the innermost last.
    pub(crate) fn levels(&self, id: ActivationId) -> &[u32] {
        self.activations.get(&id).map_or(&[], |activation| &activation.levels)
    }

    /// The word that says whether an invocation is active; `None` where all are.
    pub(crate) fn live(&self, id: ActivationId) -> Option<u32> {
        self.levels(id).last().copied()
    }

    pub(crate) fn push_level(&mut self, id: ActivationId, word: u32) {
        self.activations.entry(id).or_default().levels.push(word);
    }

    pub(crate) fn pop_level(&mut self, id: ActivationId) {
        self.activations.entry(id).or_default().levels.pop();
    }

    pub(crate) fn push_target(&mut self, target: GroupTarget) {
        self.running.last_mut().expect("targets are inside of a function").1.push(target);
    }

    pub(crate) fn pop_target(&mut self) {
        self.running.last_mut().expect("targets are inside of a function").1.pop();
    }

    /// The target of a `break` or a `continue`.
    pub(crate) fn target(&self, is_break: bool) -> Option<GroupTarget> {
        let (_, targets) = self.running.last()?;
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
        assert!(group.is_split(0) && !group.is_split(1) && group.live(0).is_none());
        group.push_level(0, 7);
        group.enter(1, Some(9));
        group.push_level(1, 11);
        assert_eq!((group.live(0), group.live(1), group.levels(1)), (Some(7), Some(11), &[9, 11][..]));
        assert!(group.is_running(0) && group.is_running(1));
        group.pop_level(1);
        group.leave();
        assert_eq!((group.live(1), group.is_running(1), group.is_split(1)), (Some(9), false, true));
        group.pop_level(0);
        assert_eq!(group.live(0), None);
    }

    #[test]
    fn jumps_lead_to_targets_of_the_innermost_function() {
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
