//! Uniformity analysis: which values and which control flow may differ between the invocations of a gang, or of a
//! workgroup ([`Scope`]).
//!
//! Functions are inlined, so every call site has its own [`Activation`]. A value is *varying* if two
//! invocations may hold different values, otherwise *uniform*. Control flow is *divergent* if invocations may
//! take different paths. Both depend on each other and are computed together as a least fixed point: everything
//! starts uniform, and a pass over the program marks more until nothing changes. If that takes more than
//! `MAX_PASSES` passes, everything counts as varying and divergent, which is always correct, only slower.

use crate::operands::operands_of;
use crate::types::pointee;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, Block, BuiltIn, CollectiveOperation, Expression, Function, GatherMode, GlobalVariable, Handle,
    LocalVariable, Module, Statement, TypeInner,
};
use std::collections::{HashMap, HashSet};

/// Index of an activation.
pub(crate) type ActivationId = usize;

/// A variable that each invocation has its own copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Variable {
    Local(ActivationId, Handle<LocalVariable>),
    Private(Handle<GlobalVariable>),
    /// The memory copy of an expression that is too large for registers.
    Value(ActivationId, Handle<Expression>),
}

/// The variable that a pointer is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Variable(Variable),
    Global(Handle<GlobalVariable>),
}

/// A function inlined at one call site.
pub(crate) struct Activation<'m> {
    pub(crate) function: &'m Function,
    pub(crate) info: &'m FunctionInfo,
    /// The calling activation and the call's arguments; `None` for the entry point.
    pub(crate) caller: Option<(ActivationId, &'m [Handle<Expression>])>,
    varying: Vec<bool>,
    /// Loops and switches that invocations may leave at different times, by [`flow_key`].
    divergent: HashSet<*const Block>,
    /// Whether invocations may return at different times.
    divergent_return: bool,
    returns_varying: bool,
    calls: HashMap<*const Statement, ActivationId>,
}

/// The set of invocations that uniformity refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A gang of this many lanes, which run in lockstep.
    Gang(usize),
    /// All invocations of a workgroup. They run at different times, so memory may change between their reads.
    WorkGroup,
}

/// Result of the analysis: all activations, the entry point's first.
pub(crate) struct Uniformity<'m> {
    module: &'m Module,
    info: &'m ModuleInfo,
    /// Whether the workgroup's x size is a multiple of the gang, so that y and z are uniform in a gang.
    rows_fill_gangs: bool,
    /// Whether the scope has more than one invocation. With one, everything is uniform.
    is_multi_lane: bool,
    /// Whether the scope is the workgroup.
    is_workgroup_scope: bool,
    pub(crate) activations: Vec<Activation<'m>>,
    varying_variables: HashSet<Variable>,
    /// Variables accessed with a computed index. They need memory: registers cannot be indexed.
    pub(crate) dynamically_indexed: HashSet<Variable>,
    changed: bool,
    /// Whether the analysis gave up and treats everything as varying.
    assumes_varying: bool,
}

/// Maximum number of passes. A pass propagates along a chain of variables by at least one; real programs need a
/// few passes. A chain of 4000 variables took 5 s without the limit.
const MAX_PASSES: usize = 64;

/// Divergence of the control flow that reaches a statement.
#[derive(Clone, Copy, Default)]
struct FlowState {
    /// Whether some invocations of the scope may be inactive here.
    divergent: bool,
    /// Whether control flow diverged since the innermost breakable statement, loop or function was entered.
    /// Then a `break`, `continue` or `return` is divergent too.
    diverged_since_break: bool,
    diverged_since_continue: bool,
    diverged_since_entry: bool,
}

impl FlowState {
    /// The state inside a divergent branch.
    fn diverged(self) -> Self {
        Self { divergent: true, diverged_since_break: true, diverged_since_continue: true, diverged_since_entry: true }
    }
}

/// Identifies a loop or switch by the address of its first block. naga statements have no identity of their
/// own; the module is borrowed for the whole analysis, so addresses are stable.
pub(crate) fn flow_key(statement: &Statement) -> *const Block {
    match statement {
        Statement::Loop { body, .. } => body,
        Statement::Switch { cases, .. } => cases.first().map_or(std::ptr::null(), |case| &raw const case.body),
        _ => std::ptr::null(),
    }
}

impl<'m> Uniformity<'m> {
    /// Analyses the entry point and everything it calls.
    pub(crate) fn new(module: &'m Module, info: &'m ModuleInfo, scope: Scope) -> Self {
        let entry_point = &module.entry_points[0];
        let mut uniformity = Self {
            module,
            info,
            rows_fill_gangs: match scope {
                Scope::Gang(lanes) => (entry_point.workgroup_size[0] as usize).is_multiple_of(lanes),
                Scope::WorkGroup => false,
            },
            is_multi_lane: scope != Scope::Gang(1),
            is_workgroup_scope: scope == Scope::WorkGroup,
            activations: Vec::new(),
            varying_variables: HashSet::new(),
            dynamically_indexed: HashSet::new(),
            changed: true,
            assumes_varying: false,
        };
        uniformity.activate(&entry_point.function, info.get_entry_point(0), None);
        // The lattice is finite and values only move from uniform to varying, so this terminates.
        let mut passes = 0;
        while std::mem::take(&mut uniformity.changed) && !uniformity.assumes_varying {
            uniformity.visit(0, &entry_point.function.body, FlowState::default(), &mut Vec::new());
            passes += 1;
            // With one lane nothing varies: the passes only collect activations and `dynamically_indexed`.
            uniformity.assumes_varying = uniformity.is_multi_lane && uniformity.changed && passes == MAX_PASSES;
        }
        uniformity
    }

    /// Adds an activation.
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

    /// Whether the variable may hold different values in different invocations.
    pub(crate) fn is_varying(&self, variable: Variable) -> bool {
        match variable {
            Variable::Value(id, expression) => self.varies(id, expression),
            _ => self.assumes_varying || self.varying_variables.contains(&variable),
        }
    }

    /// Whether invocations may leave the loop or switch at different times.
    pub(crate) fn is_divergent(&self, id: ActivationId, statement: &Statement) -> bool {
        self.assumes_varying || self.activations[id].divergent.contains(&flow_key(statement))
    }

    /// Whether invocations may return at different times.
    pub(crate) fn returns_divergently(&self, id: ActivationId) -> bool {
        self.assumes_varying || self.activations[id].divergent_return
    }

    /// Whether the returned value may differ between invocations.
    pub(crate) fn returns_varying(&self, id: ActivationId) -> bool {
        self.assumes_varying || self.activations[id].returns_varying
    }

    /// Returns the activation of a call statement.
    pub(crate) fn callee(&self, id: ActivationId, statement: &Statement) -> Option<ActivationId> {
        self.activations[id].calls.get(&(&raw const *statement)).copied()
    }

    /// Returns the variable that a pointer is derived from, through accesses and arguments.
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

    /// Whether the value of an expression may differ between invocations.
    pub(crate) fn varies(&self, id: ActivationId, expression: Handle<Expression>) -> bool {
        self.assumes_varying || self.activations[id].varying[expression.index()]
    }

    /// Marks an expression as varying. Uniform is never set: values only move up the lattice.
    fn set_varying(&mut self, id: ActivationId, expression: Handle<Expression>, varies: bool) {
        let known = &mut self.activations[id].varying[expression.index()];
        if varies && self.is_multi_lane && !*known {
            *known = true;
            self.changed = true;
        }
    }

    /// Marks a variable as varying.
    fn set_variable_varying(&mut self, variable: Variable) {
        self.changed |= self.is_multi_lane && self.varying_variables.insert(variable);
    }

    /// Marks a loop or switch as divergent.
    fn set_divergent(&mut self, id: ActivationId, block: *const Block) {
        self.changed |= self.is_multi_lane && self.activations[id].divergent.insert(block);
    }

    /// Visits a block. `targets` are the enclosing loops and switches, with whether each is a loop.
    fn visit(&mut self, id: ActivationId, block: &'m Block, flow: FlowState, targets: &mut Vec<(*const Block, bool)>) {
        for statement in block {
            self.visit_statement(id, statement, flow, targets);
        }
    }

    /// Visits a statement.
    fn visit_statement(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        flow: FlowState,
        targets: &mut Vec<(*const Block, bool)>,
    ) {
        // After a divergent return, the remaining statements run with a partial mask. The caller restores the
        // mask; in the entry point the returned invocations never become active again.
        let is_partial = id != 0 && self.activations[id].divergent_return;
        let flow = if is_partial { FlowState { divergent: true, ..flow } } else { flow };
        match statement {
            Statement::Emit(range) => range.clone().for_each(|expression| self.visit_expression(id, expression)),
            Statement::Block(block) => self.visit(id, block, flow, targets),
            Statement::If { condition, accept, reject } => {
                self.visit_expression(id, *condition);
                let flow = if self.varies(id, *condition) { flow.diverged() } else { flow };
                self.visit(id, accept, flow, targets);
                self.visit(id, reject, flow, targets);
            }
            Statement::Switch { selector, cases } => {
                self.visit_expression(id, *selector);
                let key = flow_key(statement);
                // A uniform selector diverges too if an earlier pass found a `break` that only some invocations
                // take.
                let diverges = self.varies(id, *selector) || self.activations[id].divergent.contains(&key);
                if diverges {
                    self.set_divergent(id, key);
                }
                let flow = if diverges { flow.diverged() } else { FlowState { diverged_since_break: false, ..flow } };
                targets.push((key, false));
                cases.iter().for_each(|case| self.visit(id, &case.body, flow, targets));
                targets.pop();
            }
            Statement::Loop { body, continuing, break_if } => {
                let key = flow_key(statement);
                // A previous pass may have found a divergent exit; then the body runs with a partial mask.
                let diverges = self.activations[id].divergent.contains(&key);
                let flow = if diverges {
                    flow.diverged()
                } else {
                    FlowState { diverged_since_break: false, diverged_since_continue: false, ..flow }
                };
                targets.push((key, true));
                // The body is visited once per pass: values that the back edge carries reach its start in the
                // next pass.
                self.visit(id, body, flow, targets);
                self.visit(id, continuing, flow, targets);
                if let Some(condition) = break_if {
                    self.visit_expression(id, *condition);
                    if self.varies(id, *condition) {
                        self.set_divergent(id, key);
                    }
                }
                targets.pop();
            }
            Statement::Break if flow.diverged_since_break => {
                if let Some((target, _)) = targets.last() {
                    self.set_divergent(id, *target);
                }
            }
            Statement::Continue if flow.diverged_since_continue => {
                // A `continue` passes through switches and does not make them divergent: its lanes wait in a mask of
                // the loop.
                let innermost = targets.iter().rev().find(|(_, is_loop)| *is_loop).map(|(target, _)| *target);
                if let Some(target) = innermost {
                    self.set_divergent(id, target);
                }
            }
            Statement::Return { value } => {
                value.iter().for_each(|value| self.visit_expression(id, *value));
                // Lanes that return here skip the rest of the function while others go on.
                let is_divergent = flow.diverged_since_entry && self.is_multi_lane;
                let varies = value.is_some_and(|value| self.is_multi_lane && self.varies(id, value) || is_divergent);
                let activation = &mut self.activations[id];
                self.changed |= is_divergent && !activation.divergent_return || varies && !activation.returns_varying;
                activation.divergent_return |= is_divergent;
                activation.returns_varying |= varies;
            }
            Statement::Store { pointer, value } => {
                self.visit_expression(id, *pointer);
                self.visit_expression(id, *value);
                if let Some(Root::Variable(variable)) = self.root(id, *pointer)
                    // In divergent control flow only some lanes store, so even a uniform value makes the
                    // variable varying.
                    && (flow.divergent || self.varies(id, *value) || self.varies(id, *pointer))
                {
                    self.set_variable_varying(variable);
                }
            }
            // Each invocation sees a different old value.
            Statement::Atomic { result: Some(result), .. } => self.set_varying(id, *result, true),
            // A gang is a subgroup: ballots, broadcasts and reductions are uniform in it, but not in the
            // workgroup.
            Statement::SubgroupBallot { result, .. } => self.set_varying(id, *result, self.is_workgroup_scope),
            Statement::SubgroupGather { mode, result, .. } => {
                let is_uniform = matches!(mode, GatherMode::BroadcastFirst | GatherMode::Broadcast(_));
                self.set_varying(id, *result, self.is_workgroup_scope || !is_uniform);
            }
            Statement::SubgroupCollectiveOperation { collective_op, result, .. } => {
                self.set_varying(id, *result, self.is_workgroup_scope || *collective_op != CollectiveOperation::Reduce);
            }
            // Uniform in the workgroup unless invocations pass different pointers.
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.visit_expression(id, *pointer);
                let varies = self.varies(id, *pointer);
                self.set_varying(id, *result, varies);
            }
            Statement::Call { function, arguments, result } => {
                self.visit_call(id, statement, (*function, arguments, *result), flow);
            }
            _ => {}
        }
    }

    /// Visits the body of a called function, in its own activation.
    fn visit_call(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        (function, arguments, result): (Handle<Function>, &'m [Handle<Expression>], Option<Handle<Expression>>),
        flow: FlowState,
    ) {
        arguments.iter().for_each(|argument| self.visit_expression(id, *argument));
        // The first pass creates the activation; later passes find it by the address of the call statement.
        let callee = self.callee(id, statement).unwrap_or_else(|| {
            let callee = self.activate(&self.module.functions[function], &self.info[function], Some((id, arguments)));
            self.activations[id].calls.insert(&raw const *statement, callee);
            callee
        });
        // `break` and `continue` do not cross the call, and returns of the callee are its own.
        let flow = FlowState { divergent: flow.divergent, ..FlowState::default() };
        let body = &self.module.functions[function].body;
        self.visit(callee, body, flow, &mut Vec::new());
        if let Some(result) = result {
            let varies = self.activations[callee].returns_varying;
            self.set_varying(id, result, varies);
        }
    }

    /// Computes whether an expression varies. Operands that are never emitted by a statement are visited first.
    fn visit_expression(&mut self, id: ActivationId, expression: Handle<Expression>) {
        let function = self.activations[id].function;
        let varies = match &function.expressions[expression] {
            // Arguments are as varying as the caller's operand. Those of the entry point are builtins.
            Expression::FunctionArgument(index) => match self.activations[id].caller {
                Some((caller, arguments)) => self.varies(caller, arguments[*index as usize]),
                None => true,
            },
            Expression::AccessIndex { base, index } => match self.builtin(id, *base) {
                Some(builtin) => self.builtin_varies(builtin, *index),
                None => {
                    self.visit_argument(id, *base);
                    self.varies(id, *base)
                }
            },
            Expression::Access { base, index } => {
                self.visit_argument(id, *base);
                self.visit_argument(id, *index);
                let is_pointer = pointee(self.module, self.inner(id, *base)).is_some();
                if let (true, Some(Root::Variable(variable))) = (is_pointer, self.root(id, *base)) {
                    self.changed |= self.dynamically_indexed.insert(variable);
                }
                self.varies(id, *base) || self.varies(id, *index)
            }
            Expression::Load { pointer } => {
                self.visit_argument(id, *pointer);
                let of_variable = match self.root(id, *pointer) {
                    Some(Root::Variable(variable)) => self.is_varying(variable),
                    // Another invocation may write the memory between two loads, unless it is read-only.
                    Some(Root::Global(global)) => {
                        self.is_workgroup_scope && self.module.global_variables[global].space != AddressSpace::Uniform
                    }
                    None => self.is_workgroup_scope,
                };
                of_variable || self.varies(id, *pointer)
            }
            // The statement that computes the result sets it.
            Expression::AtomicResult { .. }
            | Expression::CallResult(_)
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupBallotResult
            | Expression::SubgroupOperationResult { .. } => return,
            other => {
                let operands = operands_of(other);
                operands.iter().for_each(|operand| self.visit_argument(id, *operand));
                operands.iter().any(|operand| self.varies(id, *operand))
            }
        };
        self.set_varying(id, expression, varies);
    }

    /// Visits a function argument. No `Emit` statement covers arguments, so their first use visits them.
    fn visit_argument(&mut self, id: ActivationId, expression: Handle<Expression>) {
        if let Expression::FunctionArgument(_) = self.activations[id].function.expressions[expression] {
            self.visit_expression(id, expression);
        }
    }

    /// Returns the resolved type of an expression.
    fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> &TypeInner {
        self.activations[id].info[expression].ty.inner_with(&self.module.types)
    }

    /// Returns the builtin vector that an expression denotes, so that its components are judged separately.
    fn builtin(&self, id: ActivationId, expression: Handle<Expression>) -> Option<BuiltIn> {
        let activation = &self.activations[id];
        let binding = match activation.function.expressions[expression] {
            Expression::FunctionArgument(index) => match activation.caller {
                // A builtin passed to a function keeps its precision.
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

    /// Whether a component of a builtin varies in the scope.
    fn builtin_varies(&self, builtin: BuiltIn, component: u32) -> bool {
        match builtin {
            // Lanes are consecutive along x.
            BuiltIn::GlobalInvocationId | BuiltIn::LocalInvocationId => component == 0 || !self.rows_fill_gangs,
            _ => false,
        }
    }
}
