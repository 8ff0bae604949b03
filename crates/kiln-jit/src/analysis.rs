//! What is the same for all invocations of a vector, and what is not.
//!
//! Functions are compiled where they are called, so each call is an activation of its own. A variable is *varying* where two
//! invocations of a vector may have different values in it; control is *divergent* where they may go different ways. Both are
//! found together, from nothing up, until nothing changes. Where that takes too long, everything counts as varying and divergent, which
//! is always right.

use crate::types::pointee;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, AtomicFunction, Block, BuiltIn, CollectiveOperation, Expression, Function, GatherMode,
    GlobalVariable, Handle, LocalVariable, Module, Statement, TypeInner,
};
use std::collections::{HashMap, HashSet};

/// The number of an activation.
pub(crate) type ActivationId = usize;

/// A variable of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Variable {
    Local(ActivationId, Handle<LocalVariable>),
    Private(Handle<GlobalVariable>),
    /// What an expression was, where that is too much for registers.
    Value(ActivationId, Handle<Expression>),
}

/// What a pointer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Variable(Variable),
    Global(Handle<GlobalVariable>),
}

/// A function as it is called in one place.
pub(crate) struct Activation<'m> {
    pub(crate) function: &'m Function,
    pub(crate) info: &'m FunctionInfo,
    /// The caller and the statement's arguments in it; `None` for the entry point.
    pub(crate) caller: Option<(ActivationId, &'m [Handle<Expression>])>,
    varying: Vec<bool>,
    /// Loops and switches that invocations leave at different times, by their first block.
    divergent: HashSet<*const Block>,
    /// Whether invocations return at different times.
    divergent_return: bool,
    returns_varying: bool,
    calls: HashMap<*const Statement, ActivationId>,
}

/// The invocations between which values and control flow are uniform or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// So many invocations, which run as one.
    Vector(usize),
    /// All of a work-group, which run at different times.
    WorkGroup,
}

/// All activations of a program, the entry point's first.
pub(crate) struct Analysis<'m> {
    module: &'m Module,
    info: &'m ModuleInfo,
    /// Whether invocations along x are in one row of a vector, so that y and z are the same for all.
    rows_are_whole: bool,
    /// Whether there is more than one invocation in a vector.
    is_vector: bool,
    /// Whether it is about all invocations of a work-group.
    is_whole: bool,
    pub(crate) activations: Vec<Activation<'m>>,
    varying_variables: HashSet<Variable>,
    /// Variables that are indexed by computed numbers, which registers are not.
    pub(crate) indexed: HashSet<Variable>,
    changed: bool,
    /// Everything varies, for all that is known.
    is_given_up: bool,
}

/// Rounds before it is given up: each finds out about one more of a chain of variables, and programs that people write need a few.
const MAX_ROUNDS: usize = 64;

/// How control came to a statement.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Not all invocations that matter are here.
    divergent: bool,
    /// Invocations went different ways since the innermost loop or switch, loop, or function began.
    since_break: bool,
    since_continue: bool,
    since_function: bool,
}

impl Flow {
    fn split(self) -> Self {
        Self { divergent: true, since_break: true, since_continue: true, since_function: true }
    }
}

/// The block that a loop or switch is known by.
pub(crate) fn block_of(statement: &Statement) -> *const Block {
    match statement {
        Statement::Loop { body, .. } => body,
        Statement::Switch { cases, .. } => cases.first().map_or(std::ptr::null(), |case| &raw const case.body),
        _ => std::ptr::null(),
    }
}

impl<'m> Analysis<'m> {
    pub(crate) fn new(module: &'m Module, info: &'m ModuleInfo, scope: Scope) -> Self {
        let point = &module.entry_points[0];
        let mut analysis = Self {
            module,
            info,
            rows_are_whole: match scope {
                Scope::Vector(lanes) => (point.workgroup_size[0] as usize).is_multiple_of(lanes),
                Scope::WorkGroup => false,
            },
            is_vector: scope != Scope::Vector(1),
            is_whole: scope == Scope::WorkGroup,
            activations: Vec::new(),
            varying_variables: HashSet::new(),
            indexed: HashSet::new(),
            changed: true,
            is_given_up: false,
        };
        analysis.activate(&point.function, info.get_entry_point(0), None);
        let mut rounds = 0;
        while std::mem::take(&mut analysis.changed) && !analysis.is_given_up {
            analysis.visit(0, &point.function.body, Flow::default(), &mut Vec::new());
            rounds += 1;
            analysis.is_given_up = analysis.is_vector && analysis.changed && rounds == MAX_ROUNDS;
        }
        analysis
    }

    fn activate(
        &mut self,
        function: &'m Function,
        info: &'m FunctionInfo,
        caller: Option<(ActivationId, &'m [Handle<Expression>])>,
    ) -> ActivationId {
        self.activations.push(Activation {
            function,
            info,
            caller,
            varying: vec![false; function.expressions.len()],
            divergent: HashSet::new(),
            divergent_return: false,
            returns_varying: false,
            calls: HashMap::new(),
        });
        self.activations.len() - 1
    }

    /// Whether the variable's value may differ between invocations of a vector.
    pub(crate) fn is_varying(&self, variable: Variable) -> bool {
        match variable {
            Variable::Value(id, expression) => self.varies(id, expression),
            _ => self.is_given_up || self.varying_variables.contains(&variable),
        }
    }

    /// Whether invocations may leave the loop or switch at different times.
    pub(crate) fn is_divergent(&self, id: ActivationId, statement: &Statement) -> bool {
        self.is_given_up || self.activations[id].divergent.contains(&block_of(statement))
    }

    /// Whether invocations may return at different times.
    pub(crate) fn returns_divergently(&self, id: ActivationId) -> bool {
        self.is_given_up || self.activations[id].divergent_return
    }

    /// Whether what an activation gives back may differ between invocations of a vector.
    pub(crate) fn returns_varying(&self, id: ActivationId) -> bool {
        self.is_given_up || self.activations[id].returns_varying
    }

    /// The activation of a call.
    pub(crate) fn callee(&self, id: ActivationId, statement: &Statement) -> Option<ActivationId> {
        self.activations[id].calls.get(&(&raw const *statement)).copied()
    }

    /// What a pointer leads to.
    pub(crate) fn root(&self, id: ActivationId, pointer: Handle<Expression>) -> Option<Root> {
        match self.activations[id].function.expressions[pointer] {
            Expression::LocalVariable(local) => Some(Root::Variable(Variable::Local(id, local))),
            Expression::GlobalVariable(global) => {
                let is_private = self.module.global_variables[global].space == AddressSpace::Private;
                Some(if is_private { Root::Variable(Variable::Private(global)) } else { Root::Global(global) })
            }
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.root(id, base),
            Expression::FunctionArgument(index) => {
                let (caller, arguments) = self.activations[id].caller?;
                self.root(caller, arguments[index as usize])
            }
            _ => None,
        }
    }

    pub(crate) fn varies(&self, id: ActivationId, expression: Handle<Expression>) -> bool {
        self.is_given_up || self.activations[id].varying[expression.index()]
    }

    fn set(&mut self, id: ActivationId, expression: Handle<Expression>, varies: bool) {
        let known = &mut self.activations[id].varying[expression.index()];
        if varies && self.is_vector && !*known {
            *known = true;
            self.changed = true;
        }
    }

    fn set_variable(&mut self, variable: Variable) {
        self.changed |= self.is_vector && self.varying_variables.insert(variable);
    }

    fn set_divergent(&mut self, id: ActivationId, block: *const Block) {
        self.changed |= self.is_vector && self.activations[id].divergent.insert(block);
    }

    fn visit(&mut self, id: ActivationId, block: &'m Block, flow: Flow, targets: &mut Vec<(*const Block, bool)>) {
        for statement in block {
            self.visit_statement(id, statement, flow, targets);
        }
    }

    fn visit_statement(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        flow: Flow,
        targets: &mut Vec<(*const Block, bool)>,
    ) {
        // Who returned early comes back in the caller; from the entry point nobody does.
        let is_split = id != 0 && self.activations[id].divergent_return;
        let flow = if is_split { Flow { divergent: true, ..flow } } else { flow };
        match statement {
            Statement::Emit(range) => range.clone().for_each(|expression| self.emit(id, expression)),
            Statement::Block(block) => self.visit(id, block, flow, targets),
            Statement::If { condition, accept, reject } => {
                self.emit(id, *condition);
                let flow = if self.varies(id, *condition) { flow.split() } else { flow };
                self.visit(id, accept, flow, targets);
                self.visit(id, reject, flow, targets);
            }
            Statement::Switch { selector, cases } => {
                self.emit(id, *selector);
                let key = block_of(statement);
                let splits = self.varies(id, *selector) || self.activations[id].divergent.contains(&key);
                if splits {
                    self.set_divergent(id, key);
                }
                let flow = if splits { flow.split() } else { Flow { since_break: false, ..flow } };
                targets.push((key, false));
                cases.iter().for_each(|case| self.visit(id, &case.body, flow, targets));
                targets.pop();
            }
            Statement::Loop { body, continuing, break_if } => {
                let key = block_of(statement);
                let splits = self.activations[id].divergent.contains(&key);
                let flow =
                    if splits { flow.split() } else { Flow { since_break: false, since_continue: false, ..flow } };
                targets.push((key, true));
                self.visit(id, body, flow, targets);
                self.visit(id, continuing, flow, targets);
                if let Some(condition) = break_if {
                    self.emit(id, *condition);
                    if self.varies(id, *condition) {
                        self.set_divergent(id, key);
                    }
                }
                targets.pop();
            }
            Statement::Break if flow.since_break => {
                if let Some((target, _)) = targets.last() {
                    self.set_divergent(id, *target);
                }
            }
            Statement::Continue if flow.since_continue => {
                let innermost = targets.iter().rev().find(|(_, is_loop)| *is_loop).map(|(target, _)| *target);
                if let Some(target) = innermost {
                    self.set_divergent(id, target);
                }
            }
            Statement::Return { value } => {
                value.iter().for_each(|value| self.emit(id, *value));
                let is_divergent = flow.since_function && self.is_vector;
                let varies = value.is_some_and(|value| self.is_vector && self.varies(id, value) || is_divergent);
                let activation = &mut self.activations[id];
                self.changed |= is_divergent && !activation.divergent_return || varies && !activation.returns_varying;
                activation.divergent_return |= is_divergent;
                activation.returns_varying |= varies;
            }
            Statement::Store { pointer, value } => {
                self.emit(id, *pointer);
                self.emit(id, *value);
                if let Some(Root::Variable(variable)) = self.root(id, *pointer)
                    && (flow.divergent || self.varies(id, *value) || self.varies(id, *pointer))
                {
                    self.set_variable(variable);
                }
            }
            Statement::Atomic { result: Some(result), .. } => self.set(id, *result, true),
            Statement::SubgroupBallot { result, .. } => self.set(id, *result, self.is_whole),
            Statement::SubgroupGather { mode, result, .. } => {
                let is_same = matches!(mode, GatherMode::BroadcastFirst | GatherMode::Broadcast(_));
                self.set(id, *result, self.is_whole || !is_same);
            }
            Statement::SubgroupCollectiveOperation { collective_op, result, .. } => {
                self.set(id, *result, self.is_whole || *collective_op != CollectiveOperation::Reduce);
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.emit(id, *pointer);
                let varies = self.varies(id, *pointer);
                self.set(id, *result, varies);
            }
            Statement::Call { function, arguments, result } => {
                self.visit_call(id, statement, (*function, arguments, *result), flow);
            }
            _ => {}
        }
    }

    fn visit_call(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        (function, arguments, result): (Handle<Function>, &'m [Handle<Expression>], Option<Handle<Expression>>),
        flow: Flow,
    ) {
        arguments.iter().for_each(|argument| self.emit(id, *argument));
        let callee = self.callee(id, statement).unwrap_or_else(|| {
            let callee = self.activate(&self.module.functions[function], &self.info[function], Some((id, arguments)));
            self.activations[id].calls.insert(&raw const *statement, callee);
            callee
        });
        let flow = Flow { divergent: flow.divergent, ..Flow::default() };
        let body = &self.module.functions[function].body;
        self.visit(callee, body, flow, &mut Vec::new());
        if let Some(result) = result {
            let varies = self.activations[callee].returns_varying;
            self.set(id, result, varies);
        }
    }

    /// Finds out about an expression, and about those that are not emitted and that it is made of.
    fn emit(&mut self, id: ActivationId, expression: Handle<Expression>) {
        let function = self.activations[id].function;
        let varies = match &function.expressions[expression] {
            Expression::FunctionArgument(index) => match self.activations[id].caller {
                Some((caller, arguments)) => self.varies(caller, arguments[*index as usize]),
                None => true,
            },
            Expression::AccessIndex { base, index } => match self.builtin(id, *base) {
                Some(builtin) => self.builtin_varies(builtin, *index),
                None => {
                    self.emit_if_given(id, *base);
                    self.varies(id, *base)
                }
            },
            Expression::Access { base, index } => {
                self.emit_if_given(id, *base);
                self.emit_if_given(id, *index);
                let is_pointer = pointee(self.module, self.inner(id, *base)).is_some();
                if let (true, Some(Root::Variable(variable))) = (is_pointer, self.root(id, *base)) {
                    self.changed |= self.indexed.insert(variable);
                }
                self.varies(id, *base) || self.varies(id, *index)
            }
            Expression::Load { pointer } => {
                self.emit_if_given(id, *pointer);
                let of_variable = match self.root(id, *pointer) {
                    Some(Root::Variable(variable)) => self.is_varying(variable),
                    // Others may write in between.
                    Some(Root::Global(global)) => {
                        self.is_whole && self.module.global_variables[global].space != AddressSpace::Uniform
                    }
                    None => self.is_whole,
                };
                of_variable || self.varies(id, *pointer)
            }
            Expression::AtomicResult { .. }
            | Expression::CallResult(_)
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupBallotResult
            | Expression::SubgroupOperationResult { .. } => return,
            other => {
                let operands = operands_of(other);
                operands.iter().for_each(|operand| self.emit_if_given(id, *operand));
                operands.iter().any(|operand| self.varies(id, *operand))
            }
        };
        self.set(id, expression, varies);
    }

    /// Arguments are never emitted; who uses them finds out about them.
    fn emit_if_given(&mut self, id: ActivationId, expression: Handle<Expression>) {
        if let Expression::FunctionArgument(_) = self.activations[id].function.expressions[expression] {
            self.emit(id, expression);
        }
    }

    fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> &TypeInner {
        self.activations[id].info[expression].ty.inner_with(&self.module.types)
    }

    /// The builtin vector that an expression is.
    fn builtin(&self, id: ActivationId, expression: Handle<Expression>) -> Option<BuiltIn> {
        let activation = &self.activations[id];
        let binding = match activation.function.expressions[expression] {
            Expression::FunctionArgument(index) => match activation.caller {
                Some((caller, arguments)) => return self.builtin(caller, arguments[index as usize]),
                None => activation.function.arguments[index as usize].binding.as_ref(),
            },
            Expression::AccessIndex { base, index } => {
                let Expression::FunctionArgument(argument) = activation.function.expressions[base] else { return None };
                if activation.caller.is_some() {
                    return None;
                }
                let ty = activation.function.arguments[argument as usize].ty;
                let TypeInner::Struct { members, .. } = &self.module.types[ty].inner else { return None };
                members[index as usize].binding.as_ref()
            }
            _ => None,
        };
        match binding {
            Some(naga::Binding::BuiltIn(builtin)) if matches!(self.inner(id, expression), TypeInner::Vector { .. }) => {
                Some(*builtin)
            }
            _ => None,
        }
    }

    fn builtin_varies(&self, builtin: BuiltIn, component: u32) -> bool {
        match builtin {
            BuiltIn::GlobalInvocationId | BuiltIn::LocalInvocationId => component == 0 || !self.rows_are_whole,
            _ => false,
        }
    }
}

/// The operands of an expression.
pub(crate) fn operands_of(expression: &Expression) -> Vec<Handle<Expression>> {
    match *expression {
        Expression::Compose { ref components, .. } => components.clone(),
        Expression::Access { base, index } => vec![base, index],
        Expression::Binary { left, right, .. } => vec![left, right],
        Expression::Select { condition, accept, reject } => vec![condition, accept, reject],
        Expression::Math { arg, arg1, arg2, arg3, .. } => [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect(),
        Expression::AccessIndex { base: operand, .. }
        | Expression::Splat { value: operand, .. }
        | Expression::Swizzle { vector: operand, .. }
        | Expression::Load { pointer: operand }
        | Expression::Unary { expr: operand, .. }
        | Expression::As { expr: operand, .. }
        | Expression::Relational { argument: operand, .. }
        | Expression::ArrayLength(operand) => vec![operand],
        _ => Vec::new(),
    }
}

/// The expressions that a statement computes, without those in its blocks.
pub(crate) fn results_of(statement: &Statement) -> Vec<Handle<Expression>> {
    match statement {
        Statement::Emit(range) => range.clone().collect(),
        Statement::Atomic { result, .. } | Statement::Call { result, .. } => result.iter().copied().collect(),
        Statement::WorkGroupUniformLoad { result, .. }
        | Statement::SubgroupBallot { result, .. }
        | Statement::SubgroupGather { result, .. }
        | Statement::SubgroupCollectiveOperation { result, .. } => vec![*result],
        _ => Vec::new(),
    }
}

/// The expressions that a statement of a function uses, without those in its blocks.
pub(crate) fn uses_of(function: &Function, statement: &Statement) -> Vec<Handle<Expression>> {
    match *statement {
        Statement::Emit(ref range) => {
            range.clone().flat_map(|expression| operands_of(&function.expressions[expression])).collect()
        }
        Statement::Store { pointer, value } => vec![pointer, value],
        Statement::Atomic { pointer, fun: AtomicFunction::Exchange { compare: Some(compare) }, value, .. } => {
            vec![pointer, value, compare]
        }
        Statement::Atomic { pointer, value, .. } => vec![pointer, value],
        Statement::Call { ref arguments, .. } => arguments.clone(),
        Statement::SubgroupGather {
            mode:
                GatherMode::Broadcast(index)
                | GatherMode::Shuffle(index)
                | GatherMode::ShuffleDown(index)
                | GatherMode::ShuffleUp(index)
                | GatherMode::ShuffleXor(index)
                | GatherMode::QuadBroadcast(index),
            argument,
            ..
        } => vec![argument, index],
        Statement::If { condition: only, .. }
        | Statement::Switch { selector: only, .. }
        | Statement::Loop { break_if: Some(only), .. }
        | Statement::Return { value: Some(only) }
        | Statement::WorkGroupUniformLoad { pointer: only, .. }
        | Statement::SubgroupBallot { predicate: Some(only), .. }
        | Statement::SubgroupGather { argument: only, .. }
        | Statement::SubgroupCollectiveOperation { argument: only, .. } => vec![only],
        _ => Vec::new(),
    }
}

/// The blocks of a statement.
pub(crate) fn blocks_of(statement: &Statement) -> Vec<&Block> {
    match statement {
        Statement::Block(block) => vec![block],
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, .. } => cases.iter().map(|case| &case.body).collect(),
        Statement::Loop { body, continuing, .. } => vec![body, continuing],
        _ => Vec::new(),
    }
}
