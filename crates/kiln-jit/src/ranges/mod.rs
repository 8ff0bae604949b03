//! Which indices are inside of their arrays for certain, so that nothing checks them again.
//!
//! The program is run once over intervals instead of numbers (`interval`), as one invocation sees it, with what conditions say
//! about values (`facts`, `value`). Proven is an index
//! - whose interval is below a known length: of constants, builtins of the work-group, arithmetic that cannot wrap, masks,
//!   remainders, `min` and `clamp`, variables and counters of loops, and what `if`, loops and returns say about them;
//! - that was compared with `arrayLength` of the same buffer, as the same value, or is made smaller than it by `min` or `%`.
//!
//! Not proven is what two facts about different values say together (`i + 1u < n` about `i`), what was loaded from a buffer,
//! what the length of one buffer says about another, and variables that grow in a loop whose condition is not about them.
//! Variables that are indexed by computed numbers are not looked into.
//!
//! All this holds for active invocations. Inactive ones run through the same instructions with numbers of their own, so the emitter
//! leaves out a check only where the mask is full.

mod facts;
mod interval;
mod value;

use crate::analysis::{ActivationId, Analysis, Root, Variable, blocks_of, results_of};
use crate::regions::{SyncPoints, ValueId};
use crate::types::{member, pointee};
use facts::{State, Terms, Value};
use naga::{Block, Expression, Handle, Module, Statement, SwitchCase, TypeInner};
use std::collections::{HashMap, HashSet};

/// Expressions and statements that are looked at before everything stays checked: loops inside of loops take many rounds.
const MAX_VISITED: usize = 100_000;
/// How many values that are known take as long to copy as an expression to look at.
const STATE_PER_VISIT: usize = 16;
/// Rounds of a loop after which its variables may be anything.
const MAX_ROUNDS: usize = 4;

/// What [`proven`] is to its user.
pub(crate) type Prove = fn(&Module, &Analysis<'_>, &Analysis<'_>) -> HashSet<ValueId>;

/// The pointers whose last index is inside of its array.
pub(crate) fn proven(module: &Module, analysis: &Analysis<'_>, whole: &Analysis<'_>) -> HashSet<ValueId> {
    let mut ranges = Ranges {
        module,
        analysis,
        whole,
        terms: Terms::default(),
        values: vec![HashMap::new(); analysis.activations.len()],
        targets: Vec::new(),
        returns: Vec::new(),
        proven: HashSet::new(),
        left: MAX_VISITED,
    };
    let body = &analysis.activations[0].function.body;
    ranges.returns.push(None);
    let state = ranges.start(0, State::default());
    ranges.block(0, body, state, SyncPoints::barriers(module).are_in(body));
    if ranges.left == 0 { HashSet::new() } else { ranges.proven }
}

/// What is known where a `break` or `continue` leads.
#[derive(Default)]
struct Target {
    is_loop: bool,
    broke: Option<State>,
    continued: Option<State>,
}

struct Ranges<'a, 'm> {
    module: &'m Module,
    analysis: &'a Analysis<'m>,
    /// What is the same for all invocations of a work-group.
    whole: &'a Analysis<'m>,
    terms: Terms,
    values: Vec<HashMap<Handle<Expression>, Vec<Value>>>,
    targets: Vec<Target>,
    /// What is known where the running functions end, and what they give back.
    returns: Vec<Option<(State, Vec<Value>)>>,
    proven: HashSet<ValueId>,
    left: usize,
}

impl<'m> Ranges<'_, 'm> {
    /// The first values of the variables of an activation.
    fn start(&mut self, id: ActivationId, mut state: State) -> State {
        let function = self.analysis.activations[id].function;
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

    /// What is known behind a block; `None` where nothing leads there. In a function that is split at barriers, the whole work-group decides about its operations.
    fn block(&mut self, id: ActivationId, block: &'m Block, mut state: State, is_split: bool) -> Option<State> {
        for statement in block {
            self.spend()?;
            state = self.statement(id, statement, state, is_split)?;
        }
        Some(state)
    }

    /// Counts what is looked at; `None` where it is too much.
    fn spend(&mut self) -> Option<()> {
        self.left = self.left.saturating_sub(1);
        (self.left > 0).then_some(())
    }

    /// What is known, once more. It counts by what it has: many variables times many branches are more than either.
    fn copied(&mut self, state: &State) -> State {
        self.left = self.left.saturating_sub(state.len() / STATE_PER_VISIT);
        state.clone()
    }

    fn statement(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        mut state: State,
        is_split: bool,
    ) -> Option<State> {
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
                let [yes, no] = self.ways(id, *condition, &state, is_split);
                let (yes, no) = (self.block(id, accept, yes, is_split), self.block(id, reject, no, is_split));
                return self.join(yes, no);
            }
            Statement::Switch { cases, .. } => return self.switch(id, cases, &state, is_split),
            Statement::Loop { .. } => return self.repeat(id, statement, &state, is_split),
            Statement::Break => {
                let before = self.targets.last_mut()?.broke.take();
                let joined = self.join(before, Some(state));
                self.targets.last_mut()?.broke = joined;
                return None;
            }
            Statement::Continue => {
                let place = self.targets.iter().rposition(|target| target.is_loop)?;
                let before = self.targets[place].continued.take();
                self.targets[place].continued = self.join(before, Some(state));
                return None;
            }
            Statement::Return { value } => {
                let values = value.map(|value| self.values(id, value)).unwrap_or_default();
                self.give_back(state, values);
                return None;
            }
            Statement::Store { pointer, value } => {
                let values = self.values(id, *value);
                match (self.place(id, *pointer), self.analysis.root(id, *pointer)) {
                    (Some((variable, inner, at)), _) => self.set(&mut state, variable, &inner, at, &values),
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

    /// What is known where a condition holds, and where it does not. What one invocation decides for all says nothing about the others'.
    fn ways(&mut self, id: ActivationId, condition: Handle<Expression>, state: &State, is_split: bool) -> [State; 2] {
        let mut ways = [self.copied(state), self.copied(state)];
        if let (Some(value), false) = (self.values(id, condition).first(), is_split && self.whole.varies(id, condition))
        {
            for (way, is_true) in ways.iter_mut().zip([true, false]) {
                self.terms.assume(&mut way.facts, value.term, is_true);
            }
        }
        ways
    }

    fn join(&mut self, x: Option<State>, y: Option<State>) -> Option<State> {
        match (x, y) {
            (Some(x), Some(y)) => Some(self.terms.join(&x, &y)),
            (x, y) => x.or(y),
        }
    }

    fn switch(&mut self, id: ActivationId, cases: &'m [SwitchCase], state: &State, is_split: bool) -> Option<State> {
        self.targets.push(Target::default());
        let (mut end, mut fallen) = (None, None);
        for case in cases {
            let start = self.copied(state);
            let start = self.join(fallen.take(), Some(start))?;
            let after = self.block(id, &case.body, start, is_split);
            if case.fall_through {
                fallen = after;
            } else {
                end = self.join(end, after);
            }
        }
        let broke = self.targets.pop().and_then(|target| target.broke);
        let end = self.join(end, broke);
        self.join(end, Some(state.clone()))
    }

    /// A loop: its variables are where they begin; where a round leaves them elsewhere, that side may be anything.
    fn repeat(&mut self, id: ActivationId, statement: &'m Statement, state: &State, is_split: bool) -> Option<State> {
        let mut assigned = HashSet::new();
        blocks_of(statement).into_iter().for_each(|block| self.assigned(id, block, &mut assigned));
        // What is not known before the loop is not followed in it.
        let mut header = state.variables.clone();
        header.retain(|variable, _| assigned.contains(variable));
        for value in header.values_mut().flatten() {
            value.range = state.facts.range(*value);
        }
        for round in 1.. {
            let mut start = self.copied(state);
            start.variables.retain(|variable, _| !assigned.contains(variable));
            for (variable, values) in &header {
                let fresh = |value: &Value| Value { range: value.range, ..self.terms.unknown(value.kind) };
                start.variables.insert(*variable, values.iter().map(fresh).collect());
            }
            let (again, exit) = self.round(id, statement, start, is_split);
            if again.is_none_or(|again| !widen(&mut header, &again)) {
                return exit;
            }
            self.spend()?;
            if round == MAX_ROUNDS {
                header.clear();
            }
        }
        None
    }

    /// One round of a loop: what is known where the next one begins, and behind the loop.
    fn round(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        start: State,
        is_split: bool,
    ) -> (Option<State>, Option<State>) {
        let Statement::Loop { body, continuing, break_if } = statement else {
            unreachable!("rounds are of loops");
        };
        self.targets.push(Target { is_loop: true, ..Target::default() });
        let end = self.block(id, body, start, is_split);
        let continued = self.targets.last_mut().and_then(|target| target.continued.take());
        let end = self.join(end, continued);
        let again = end.and_then(|end| self.block(id, continuing, end, is_split));
        let broke = self.targets.pop().and_then(|target| target.broke);
        match (again, break_if) {
            (Some(again), Some(condition)) => {
                let [exit, again] = self.ways(id, *condition, &again, is_split);
                (Some(again), self.join(broke, Some(exit)))
            }
            (again, _) => (again, broke),
        }
    }

    /// The variables that a block writes.
    fn assigned(&self, id: ActivationId, block: &'m Block, found: &mut HashSet<Variable>) {
        for statement in block {
            match statement {
                Statement::Store { pointer, .. } => {
                    if let Some(Root::Variable(variable)) = self.analysis.root(id, *pointer) {
                        found.insert(variable);
                    }
                }
                Statement::Call { .. } => {
                    if let Some(callee) = self.analysis.callee(id, statement) {
                        let function = self.analysis.activations[callee].function;
                        found.extend(function.local_variables.iter().map(|(local, _)| Variable::Local(callee, local)));
                        self.assigned(callee, &function.body, found);
                    }
                }
                _ => blocks_of(statement).into_iter().for_each(|block| self.assigned(id, block, found)),
            }
        }
    }

    fn call(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        result: Option<Handle<Expression>>,
        state: State,
        is_split: bool,
    ) -> Option<State> {
        let callee = self.analysis.callee(id, statement)?;
        let function = self.analysis.activations[callee].function;
        let state = self.start(callee, state);
        let targets = std::mem::take(&mut self.targets);
        self.returns.push(None);
        if let Some(end) = self.block(callee, &function.body, state, is_split) {
            self.give_back(end, Vec::new());
        }
        self.targets = targets;
        let (state, values) = self.returns.pop().flatten()?;
        if let Some(result) = result {
            self.values[id].insert(result, values);
        }
        Some(state)
    }

    /// Notes one more way out of the running function.
    fn give_back(&mut self, state: State, values: Vec<Value>) {
        let before = self.returns.pop().flatten();
        let joined = match before {
            None => (state, values),
            Some((other, others)) => {
                let values = self.terms.join_values((&other.facts, &others), (&state.facts, &values));
                (self.terms.join(&other, &state), values)
            }
        };
        self.returns.push(Some(joined));
    }

    /// The variable that a pointer leads into, its type, and the number of the scalar in it; `None` where an index decides.
    fn place(&self, id: ActivationId, pointer: Handle<Expression>) -> Option<(Variable, TypeInner, usize)> {
        let activation = &self.analysis.activations[id];
        match activation.function.expressions[pointer] {
            Expression::AccessIndex { base, index } => {
                let (variable, inner, at) = self.place(id, base)?;
                let base = pointee(self.module, self.inner(id, base))?;
                let (_, _, first) = member(self.module, &base, index)?;
                Some((variable, inner, at + first as usize))
            }
            Expression::FunctionArgument(index) => {
                let (caller, arguments) = activation.caller?;
                self.place(caller, arguments[index as usize])
            }
            Expression::LocalVariable(local) => {
                let inner = self.module.types[activation.function.local_variables[local].ty].inner.clone();
                Some((Variable::Local(id, local), inner, 0))
            }
            Expression::GlobalVariable(global) => match self.analysis.root(id, pointer)? {
                Root::Variable(variable) => {
                    let inner = self.module.types[self.module.global_variables[global].ty].inner.clone();
                    Some((variable, inner, 0))
                }
                Root::Global(_) => None,
            },
            _ => None,
        }
    }

    /// Stores values into a variable from a scalar on; what does not fit is not known.
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

    /// The scalars of a variable; `None` where it is not followed.
    fn variable(&mut self, state: &mut State, variable: Variable, inner: &TypeInner) -> Option<Vec<Value>> {
        if self.analysis.indexed.contains(&variable) {
            return None;
        }
        if let Some(values) = state.variables.get(&variable) {
            return Some(values.clone());
        }
        let values = self.unknown(inner);
        if values.is_empty() {
            return None;
        }
        state.variables.insert(variable, values.clone());
        Some(values)
    }
}

/// Makes room for where a round leaves the variables of a loop; false where there is enough.
fn widen(header: &mut HashMap<Variable, Vec<Value>>, again: &State) -> bool {
    let before = header.len();
    header.retain(|variable, _| again.variables.contains_key(variable));
    let mut is_wider = header.len() < before;
    for (variable, values) in header {
        for (value, next) in values.iter_mut().zip(&again.variables[variable]) {
            let next = again.facts.range(*next);
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
