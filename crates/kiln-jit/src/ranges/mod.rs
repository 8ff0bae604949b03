//! Range analysis: proves that indices are in bounds, so that their checks can be elided.
//!
//! The program is interpreted once over intervals (`interval`), as one invocation sees it, with facts that
//! follow from conditions (`facts`). `expression` evaluates expressions. An index is proven if
//!
//! - its interval is below a constant length. Intervals come from constants, builtins of the workgroup,
//!   arithmetic that cannot wrap, masks, remainders, `min` and `clamp`, variables and loop counters, narrowed
//!   by `if`, loops and returns;
//! - or it was compared with `arrayLength` of the same buffer, as the same value, or is made smaller than it by
//!   `min` or `%`.
//!
//! Not proven are combinations of facts about different values (`i + 1u < n` for `i`), values loaded from
//! buffers, lengths of one buffer applied to another, and variables that grow in a loop whose condition is not
//! about them. Dynamically indexed variables are not tracked.
//!
//! All proofs hold for active invocations only. Inactive lanes run through the same instructions with arbitrary
//! values, so the emitter elides a check only if the mask is full.

mod expression;
mod facts;
mod interval;

use crate::operands::{blocks_of, results_of};
use crate::regions::{SyncPoints, ValueId};
use crate::types::{member, pointee};
use crate::uniformity::{ActivationId, Root, Uniformity, Variable};
use facts::{State, Value, ValueTable};
use naga::{Block, Expression, Handle, Module, Statement, SwitchCase, TypeInner};
use std::collections::{HashMap, HashSet};

/// Maximum number of expressions and statements visited. Nested loops multiply the iterations. Beyond it,
/// nothing is proven.
const MAX_VISITED: usize = 100_000;
/// Facts that take as long to copy as one expression takes to visit.
const STATE_PER_VISIT: usize = 16;
/// Iterations of a loop after which its variables are no longer tracked.
const MAX_ITERATIONS: usize = 4;

/// The signature of [`proven`]. Arguments: the module, uniformity in a gang, uniformity in the workgroup.
pub(crate) type BoundsProver = fn(&Module, &Uniformity<'_>, &Uniformity<'_>) -> HashSet<ValueId>;

/// Returns the pointers whose last index is proven in bounds.
pub(crate) fn proven(
    module: &Module,
    uniformity: &Uniformity<'_>,
    workgroup_uniformity: &Uniformity<'_>,
) -> HashSet<ValueId> {
    let mut ranges = Ranges {
        module,
        uniformity,
        workgroup_uniformity,
        table: ValueTable::default(),
        values: vec![HashMap::new(); uniformity.activations.len()],
        targets: Vec::new(),
        returns: Vec::new(),
        proven: HashSet::new(),
        budget: MAX_VISITED,
    };
    let body = &uniformity.activations[0].function.body;
    ranges.returns.push(None);
    let state = ranges.init_locals(0, State::default());
    ranges.block(0, body, state, SyncPoints::barriers(module).are_in(body));
    // An unfinished analysis may still hold proofs of early loop iterations that later ones would retract.
    if ranges.budget == 0 { HashSet::new() } else { ranges.proven }
}

/// States that reach the target of a `break` or `continue`.
#[derive(Default)]
struct Target {
    is_loop: bool,
    break_state: Option<State>,
    continue_state: Option<State>,
}

/// The abstract interpreter.
struct Ranges<'a, 'm> {
    module: &'m Module,
    uniformity: &'a Uniformity<'m>,
    /// Uniformity in the workgroup.
    workgroup_uniformity: &'a Uniformity<'m>,
    table: ValueTable,
    /// Values of the expressions of each activation.
    values: Vec<HashMap<Handle<Expression>, Vec<Value>>>,
    targets: Vec<Target>,
    /// For each function being visited, the merged state and result of its returns so far.
    returns: Vec<Option<(State, Vec<Value>)>>,
    proven: HashSet<ValueId>,
    /// Visits left.
    budget: usize,
}

impl<'m> Ranges<'_, 'm> {
    /// Assigns the initial values of an activation's variables.
    fn init_locals(&mut self, id: ActivationId, mut state: State) -> State {
        let function = self.uniformity.activations[id].function;
        for (handle, local) in function.local_variables.iter() {
            let values = match local.init {
                Some(init) => self.constants(&function.expressions, init),
                None => Some(self.zeros(&self.module.types[local.ty].inner)),
            };
            let inner = &self.module.types[local.ty].inner;
            self.set(&mut state, Variable::Local(id, handle), inner, 0, &values.unwrap_or_default());
        }
        state
    }

    /// Visits a block and returns the state after it; `None` if its end is unreachable.
    ///
    /// `is_split`: the block is split at barriers, so one invocation decides the conditions that the whole
    /// workgroup follows (see [`SyncPoints::is_group_op`]).
    fn block(&mut self, id: ActivationId, block: &'m Block, mut state: State, is_split: bool) -> Option<State> {
        for statement in block {
            self.spend()?;
            state = self.statement(id, statement, state, is_split)?;
        }
        Some(state)
    }

    /// Counts a visit; `None` if the budget is used up.
    fn spend(&mut self) -> Option<()> {
        self.budget = self.budget.saturating_sub(1);
        (self.budget > 0).then_some(())
    }

    /// Clones a state. It costs by size: the product of variables and branches must stay bounded.
    fn clone_state(&mut self, state: &State) -> State {
        self.budget = self.budget.saturating_sub(state.len() / STATE_PER_VISIT);
        state.clone()
    }

    /// Visits a statement and returns the state after it.
    fn statement(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        mut state: State,
        is_split: bool,
    ) -> Option<State> {
        // Only group operations, which contain a barrier or jump out of such a block, are decided once for the
        // workgroup; other statements are decided per invocation.
        let is_split = is_split && SyncPoints::barriers(self.module).is_group_op(statement);
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone() {
                    self.spend()?;
                    let values = self.evaluate(id, expression, &mut state);
                    self.values[id].insert(expression, values);
                }
            }
            Statement::Block(block) => return self.block(id, block, state, is_split),
            Statement::If { condition, accept, reject } => {
                let [yes, no] = self.branch_states(id, *condition, &state, is_split);
                let (yes, no) = (self.block(id, accept, yes, is_split), self.block(id, reject, no, is_split));
                return self.join(yes, no);
            }
            // Case values are not turned into facts; switches on indices are rare.
            Statement::Switch { cases, .. } => return self.switch(id, cases, &state, is_split),
            Statement::Loop { .. } => return self.loop_statement(id, statement, &state, is_split),
            Statement::Break => {
                let before = self.targets.last_mut()?.break_state.take();
                let joined = self.join(before, Some(state));
                self.targets.last_mut()?.break_state = joined;
                return None;
            }
            Statement::Continue => {
                let target = self.targets.iter().rposition(|target| target.is_loop)?;
                let before = self.targets[target].continue_state.take();
                self.targets[target].continue_state = self.join(before, Some(state));
                return None;
            }
            Statement::Return { value } => {
                let values = value.map(|value| self.values(id, value)).unwrap_or_default();
                self.record_return(state, values);
                return None;
            }
            Statement::Store { pointer, value } => {
                let values = self.values(id, *value);
                match (self.resolve_pointer(id, *pointer), self.uniformity.root(id, *pointer)) {
                    (Some((variable, inner, at)), _) => self.set(&mut state, variable, &inner, at, &values),
                    // A store through a computed index may change any scalar of the variable.
                    (None, Some(Root::Variable(variable))) => drop(state.variables.remove(&variable)),
                    _ => {}
                }
            }
            Statement::Call { result, .. } => return self.call(id, statement, *result, state, is_split),
            _ => {
                for result in results_of(statement) {
                    let inner = self.inner(id, result).clone();
                    let values = self.unknown(&inner);
                    self.values[id].insert(result, values);
                }
            }
        }
        Some(state)
    }

    /// Returns the states where a condition is true and where it is false. If one invocation decides for the
    /// workgroup, the condition says nothing about the values of the others.
    fn branch_states(
        &mut self,
        id: ActivationId,
        condition: Handle<Expression>,
        state: &State,
        is_split: bool,
    ) -> [State; 2] {
        let mut branch_states = [self.clone_state(state), self.clone_state(state)];
        if let (Some(value), false) =
            (self.values(id, condition).first(), is_split && self.workgroup_uniformity.varies(id, condition))
        {
            for (branch, is_true) in branch_states.iter_mut().zip([true, false]) {
                self.table.assume(&mut branch.facts, value.number, is_true);
            }
        }
        branch_states
    }

    /// Merges two states; `None` is an unreachable one.
    fn join(&mut self, x: Option<State>, y: Option<State>) -> Option<State> {
        match (x, y) {
            (Some(x), Some(y)) => Some(self.table.join(&x, &y)),
            (x, y) => x.or(y),
        }
    }

    /// Visits a switch. Nothing is assumed about the selector.
    fn switch(&mut self, id: ActivationId, cases: &'m [SwitchCase], state: &State, is_split: bool) -> Option<State> {
        self.targets.push(Target::default());
        let (mut end, mut fallthrough_state) = (None, None);
        for case in cases {
            let start = self.clone_state(state);
            let start = self.join(fallthrough_state.take(), Some(start))?;
            let after = self.block(id, &case.body, start, is_split);
            if case.fall_through {
                fallthrough_state = after;
            } else {
                end = self.join(end, after);
            }
        }
        let break_state = self.targets.pop().and_then(|target| target.break_state);
        let end = self.join(end, break_state);
        // Without a default case the switch may do nothing. Assuming that also with one is safe.
        self.join(end, Some(state.clone()))
    }

    /// Visits a loop until its variables reach a fixed point. Variables start with their values before the
    /// loop; a bound that an iteration exceeds is widened to that of the type.
    fn loop_statement(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        state: &State,
        is_split: bool,
    ) -> Option<State> {
        let mut assigned = HashSet::new();
        blocks_of(statement).into_iter().for_each(|block| self.assigned(id, block, &mut assigned));
        // A variable without a known value before the loop is not tracked in it.
        let mut header = state.variables.clone();
        header.retain(|variable, _| assigned.contains(variable));
        for value in header.values_mut().flatten() {
            value.range = state.facts.range(*value);
        }
        for iteration in 1.. {
            let mut start = self.clone_state(state);
            start.variables.retain(|variable, _| !assigned.contains(variable));
            for (variable, values) in &header {
                // A new value number: facts about the value before the loop do not hold in later iterations.
                let fresh = |value: &Value| Value { range: value.range, ..self.table.unknown(value.kind) };
                start.variables.insert(*variable, values.iter().map(fresh).collect());
            }
            let (back_edge, exit) = self.iteration(id, statement, start, is_split);
            if back_edge.is_none_or(|back_edge| !widen(&mut header, &back_edge)) {
                return exit;
            }
            self.spend()?;
            // Drop all tracked variables. The next iteration has nothing to widen and ends the loop.
            if iteration == MAX_ITERATIONS {
                header.clear();
            }
        }
        None
    }

    /// Visits one iteration. Returns the state at the back edge and the state after the loop.
    fn iteration(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        start: State,
        is_split: bool,
    ) -> (Option<State>, Option<State>) {
        let Statement::Loop { body, continuing, break_if } = statement else {
            unreachable!("only loops have iterations");
        };
        self.targets.push(Target { is_loop: true, ..Target::default() });
        let end = self.block(id, body, start, is_split);
        // Paths that continue skip the rest of the body and join before the `continuing` block.
        let continue_state = self.targets.last_mut().and_then(|target| target.continue_state.take());
        let end = self.join(end, continue_state);
        let back_edge = end.and_then(|end| self.block(id, continuing, end, is_split));
        let break_state = self.targets.pop().and_then(|target| target.break_state);
        match (back_edge, break_if) {
            // `break if` leaves where the condition is true.
            (Some(back_edge), Some(condition)) => {
                let [exit, back_edge] = self.branch_states(id, *condition, &back_edge, is_split);
                (Some(back_edge), self.join(break_state, Some(exit)))
            }
            (back_edge, _) => (back_edge, break_state),
        }
    }

    /// Collects the variables that a block writes.
    fn assigned(&self, id: ActivationId, block: &'m Block, found: &mut HashSet<Variable>) {
        for statement in block {
            match statement {
                Statement::Store { pointer, .. } => {
                    if let Some(Root::Variable(variable)) = self.uniformity.root(id, *pointer) {
                        found.insert(variable);
                    }
                }
                Statement::Call { .. } => {
                    if let Some(callee) = self.uniformity.callee(id, statement) {
                        let function = self.uniformity.activations[callee].function;
                        found.extend(function.local_variables.iter().map(|(local, _)| Variable::Local(callee, local)));
                        self.assigned(callee, &function.body, found);
                    }
                }
                _ => blocks_of(statement).into_iter().for_each(|block| self.assigned(id, block, found)),
            }
        }
    }

    /// Visits a called function.
    fn call(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        result: Option<Handle<Expression>>,
        state: State,
        is_split: bool,
    ) -> Option<State> {
        let callee = self.uniformity.callee(id, statement)?;
        let function = self.uniformity.activations[callee].function;
        let state = self.init_locals(callee, state);
        // Jumps in the callee cannot reach loops of the caller.
        let targets = std::mem::take(&mut self.targets);
        self.returns.push(None);
        if let Some(end) = self.block(callee, &function.body, state, is_split) {
            self.record_return(end, Vec::new());
        }
        self.targets = targets;
        // A callee that never returns makes the code after the call unreachable.
        let (state, values) = self.returns.pop().flatten()?;
        if let Some(result) = result {
            self.values[id].insert(result, values);
        }
        Some(state)
    }

    /// Merges the state at a return into those of the function's other returns.
    fn record_return(&mut self, state: State, values: Vec<Value>) {
        let before = self.returns.pop().flatten();
        let joined = match before {
            None => (state, values),
            Some((other, others)) => {
                let values = self.table.join_values((&other.facts, &others), (&state.facts, &values));
                (self.table.join(&other, &state), values)
            }
        };
        self.returns.push(Some(joined));
    }

    /// Resolves a pointer to a variable, its type and the index of a scalar in it; `None` if it has a computed
    /// index.
    fn resolve_pointer(&self, id: ActivationId, pointer: Handle<Expression>) -> Option<(Variable, TypeInner, usize)> {
        let activation = &self.uniformity.activations[id];
        match activation.function.expressions[pointer] {
            Expression::AccessIndex { base, index } => {
                let (variable, inner, at) = self.resolve_pointer(id, base)?;
                let base = pointee(self.module, self.inner(id, base))?;
                let (_, _, first) = member(self.module, &base, index)?;
                Some((variable, inner, at + first as usize))
            }
            Expression::FunctionArgument(index) => {
                let (caller, arguments) = activation.caller?;
                self.resolve_pointer(caller, arguments[index as usize])
            }
            Expression::LocalVariable(local) => {
                let inner = self.module.types[activation.function.local_variables[local].ty].inner.clone();
                Some((Variable::Local(id, local), inner, 0))
            }
            Expression::GlobalVariable(global) => match self.uniformity.root(id, pointer)? {
                Root::Variable(variable) => {
                    let inner = self.module.types[self.module.global_variables[global].ty].inner.clone();
                    Some((variable, inner, 0))
                }
                Root::Global(_) => None,
            },
            _ => None,
        }
    }

    /// Stores values into a variable from scalar `at` on. If they do not fit, the variable is no longer
    /// tracked.
    fn set(&mut self, state: &mut State, variable: Variable, inner: &TypeInner, at: usize, values: &[Value]) {
        let Some(mut all) = self.variable(state, variable, inner) else { return };
        match all.get_mut(at..at + values.len()) {
            Some(places) if !values.is_empty() => {
                places.copy_from_slice(values);
                state.variables.insert(variable, all);
            }
            _ => drop(state.variables.remove(&variable)),
        }
    }

    /// Returns the scalars of a variable; `None` if it is not tracked.
    fn variable(&mut self, state: &mut State, variable: Variable, inner: &TypeInner) -> Option<Vec<Value>> {
        if self.uniformity.dynamically_indexed.contains(&variable) {
            return None;
        }
        if let Some(values) = state.variables.get(&variable) {
            return Some(values.clone());
        }
        // Unknown, but recorded: all loads up to the next store give the same value, so facts about one hold
        // for the others.
        let values = self.unknown(inner);
        if values.is_empty() {
            return None;
        }
        state.variables.insert(variable, values.clone());
        Some(values)
    }
}

/// Widens the variables of a loop header to include their values at the back edge. False if they were included,
/// so a fixed point is reached.
fn widen(header: &mut HashMap<Variable, Vec<Value>>, back_edge: &State) -> bool {
    let before = header.len();
    // A variable that an iteration stopped tracking has no range at the back edge, so none can be assumed at
    // the header.
    header.retain(|variable, _| back_edge.variables.contains_key(variable));
    let mut is_wider = header.len() < before;
    for (variable, values) in header {
        for (value, next) in values.iter_mut().zip(&back_edge.variables[variable]) {
            let next = back_edge.facts.range(*next);
            if !value.range.contains(next) {
                value.range = value.range.widened(next, value.kind);
                is_wider = true;
            }
        }
    }
    is_wider
}

#[cfg(test)]
mod tests;
