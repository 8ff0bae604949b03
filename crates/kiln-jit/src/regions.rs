//! Splits a program at its barriers into regions.
//!
//! A region contains no barrier and runs to completion for one gang after the other. The control flow between
//! regions is uniform in the workgroup and runs once. Values that a region uses and another one computes are
//! its live-ins; `emit` spills them. With single-lane gangs, the invocations of a subgroup do not run together
//! either, so programs are split at subgroup operations too.

use crate::operands::{blocks_of, results_of, uses_of};
use crate::uniformity::{ActivationId, Uniformity};
use naga::{Barrier, Block, Expression, Function, Handle, Module, Span, Statement, SwitchCase, SwitchValue};
use std::collections::{BTreeMap, BTreeSet};

/// The value of an expression in one activation.
pub(crate) type ValueId = (ActivationId, Handle<Expression>);

/// `Some` if invocations may diverge in a branch or loop that contains subgroup operations but no barrier. The
/// number is the region whose live-ins are those of the condition.
pub(crate) type Divergence = Option<usize>;

/// An operation of the whole workgroup.
pub(crate) enum GroupOp<'m> {
    /// Statements that each gang runs to completion before the next gang starts.
    Region {
        region: usize,
        statements: Vec<(&'m Statement, Span)>,
    },
    If {
        condition: Handle<Expression>,
        accept: Vec<GroupOp<'m>>,
        reject: Vec<GroupOp<'m>>,
        divergence: Divergence,
    },
    Switch {
        selector: Handle<Expression>,
        cases: Vec<(Vec<SwitchValue>, Vec<GroupOp<'m>>)>,
        divergence: Divergence,
    },
    Loop {
        body: Vec<GroupOp<'m>>,
        continuing: Vec<GroupOp<'m>>,
        break_if: Option<Handle<Expression>>,
        divergence: Divergence,
    },
    Break,
    Continue,
    Barrier {
        barrier: Barrier,
        span: Span,
    },
    /// A `workgroupUniformLoad`, or a subgroup operation with single-lane gangs.
    Collective {
        region: usize,
        statement: &'m Statement,
        result: Handle<Expression>,
        span: Span,
    },
    /// A call of a function that contains sync points.
    Call {
        callee: ActivationId,
        ops: Vec<GroupOp<'m>>,
        result: Option<Handle<Expression>>,
    },
}

/// A program split at its sync points.
pub(crate) struct Regions<'m> {
    pub(crate) ops: Vec<GroupOp<'m>>,
    /// For each region, the values that it uses and another region computes.
    pub(crate) live_ins: Vec<BTreeSet<ValueId>>,
    /// The union of all live-ins.
    pub(crate) spilled: BTreeSet<ValueId>,
    /// Conditions of control flow that is uniform in the workgroup.
    pub(crate) uniform_conditions: BTreeSet<ValueId>,
    /// Conditions of divergent control flow that contains subgroup operations.
    pub(crate) divergent_conditions: BTreeSet<ValueId>,
    /// The region that computes each value.
    definitions: BTreeMap<ValueId, usize>,
}

/// Synchronization points: statements at which invocations wait for each other.
#[derive(Clone, Copy)]
pub(crate) struct SyncPoints<'m> {
    module: &'m Module,
    /// Whether subgroup operations are sync points, which they are if the lanes of a subgroup do not run
    /// together.
    subgroups: bool,
}

impl<'m> SyncPoints<'m> {
    /// Only the barriers of the workgroup.
    pub(crate) fn barriers(module: &'m Module) -> Self {
        Self { module, subgroups: false }
    }

    /// The sync points of gangs with this many lanes.
    pub(crate) fn for_lanes(module: &'m Module, lanes: usize) -> Self {
        Self { module, subgroups: lanes == 1 }
    }

    /// Whether the statement itself is a sync point.
    fn is_sync_point(self, statement: &Statement) -> bool {
        match statement {
            Statement::ControlBarrier(barrier) => self.subgroups || !(*barrier & !Barrier::SUB_GROUP).is_empty(),
            Statement::WorkGroupUniformLoad { .. } => true,
            Statement::SubgroupBallot { .. }
            | Statement::SubgroupGather { .. }
            | Statement::SubgroupCollectiveOperation { .. } => self.subgroups,
            _ => false,
        }
    }

    /// Whether the block contains a sync point, directly or in a called function.
    pub(crate) fn are_in(self, block: &Block) -> bool {
        block.iter().any(|statement| match statement {
            Statement::Call { function, .. } => self.are_in(&self.module.functions[*function].body),
            _ => self.is_sync_point(statement) || self.are_nested_in(statement),
        })
    }

    /// Whether a nested block of the statement contains a sync point.
    fn are_nested_in(self, statement: &Statement) -> bool {
        blocks_of(statement).into_iter().any(|block| self.are_in(block))
    }

    /// Whether a statement is an operation of the workgroup. Only valid in a block that contains sync points,
    /// where every `break` and `continue` moves the whole workgroup.
    pub(crate) fn is_group_op(self, statement: &Statement) -> bool {
        match statement {
            Statement::Break | Statement::Continue => true,
            Statement::Call { function, .. } => self.are_in(&self.module.functions[*function].body),
            Statement::Block(block) => block.iter().any(|statement| self.is_group_op(statement)),
            Statement::If { .. } | Statement::Switch { .. } => {
                // A jump out of the branch moves the workgroup, even if the branch itself has no sync point.
                self.are_nested_in(statement) || has_outer_jump(statement, false, false)
            }
            Statement::Loop { .. } => self.are_nested_in(statement),
            _ => self.is_sync_point(statement),
        }
    }
}

/// Whether the statement contains a `return`.
pub(crate) fn has_return(statement: &Statement) -> bool {
    matches!(statement, Statement::Return { .. }) || blocks_of(statement).into_iter().flatten().any(has_return)
}

/// Whether the statement contains a `break` or `continue` that targets an enclosing loop or switch. The flags
/// say whether a loop or switch inside the statement encloses the current position.
pub(crate) fn has_outer_jump(statement: &Statement, in_loop: bool, in_switch: bool) -> bool {
    let any =
        |block: &Block, in_loop, in_switch| block.iter().any(|statement| has_outer_jump(statement, in_loop, in_switch));
    match statement {
        Statement::Break => !in_loop && !in_switch,
        Statement::Continue => !in_loop,
        Statement::Block(block) => any(block, in_loop, in_switch),
        Statement::If { accept, reject, .. } => any(accept, in_loop, in_switch) || any(reject, in_loop, in_switch),
        Statement::Switch { cases, .. } => cases.iter().any(|case| any(&case.body, in_loop, true)),
        Statement::Loop { body, continuing, .. } => any(body, true, true) || any(continuing, true, true),
        _ => false,
    }
}

impl<'m> Regions<'m> {
    /// Splits the entry point and everything it calls.
    pub(crate) fn new(sync_points: SyncPoints<'m>, uniformity: &Uniformity<'m>) -> Self {
        let mut regions = Self {
            ops: Vec::new(),
            live_ins: Vec::new(),
            spilled: BTreeSet::new(),
            uniform_conditions: BTreeSet::new(),
            divergent_conditions: BTreeSet::new(),
            definitions: BTreeMap::new(),
        };
        let mut builder = Builder { sync_points, uniformity, targets: Vec::new(), regions: &mut regions };
        let ops = builder.ops(0, &uniformity.activations[0].function.body);
        for (number, uses) in regions.live_ins.iter_mut().enumerate() {
            // Filtered at the end, when the defining region of every value is known.
            uses.retain(|value| regions.definitions.get(value).is_some_and(|region| *region != number));
            regions.spilled.extend(uses.iter().copied());
        }
        regions.ops = ops;
        regions
    }
}

struct Builder<'a, 'm> {
    sync_points: SyncPoints<'m>,
    uniformity: &'a Uniformity<'m>,
    /// Whether each enclosing loop or switch is divergent, innermost last.
    targets: Vec<bool>,
    regions: &'a mut Regions<'m>,
}

impl<'m> Builder<'_, 'm> {
    /// Splits a block into operations of the workgroup.
    fn ops(&mut self, id: ActivationId, block: &'m Block) -> Vec<GroupOp<'m>> {
        let (mut ops, mut statements) = (Vec::new(), Vec::new());
        for (statement, span) in block.span_iter() {
            let span = *span;
            // Collect as many statements as possible into one region: every region costs reloads and a loop
            // over gangs.
            if !self.sync_points.is_group_op(statement) {
                statements.push((statement, span));
                continue;
            }
            self.finish_region(id, &mut statements, &mut ops);
            match statement {
                // Flattened: a block is only a scope, and naga's handles are unique in a function.
                Statement::Block(block) => ops.extend(self.ops(id, block)),
                Statement::If { condition, accept, reject } => {
                    let divergence = self.add_condition(id, statement, Some(*condition));
                    let (accept, reject) = (self.ops(id, accept), self.ops(id, reject));
                    ops.push(GroupOp::If { condition: *condition, accept, reject, divergence });
                }
                Statement::Switch { selector, cases } => {
                    let divergence = self.add_condition(id, statement, Some(*selector));
                    let cases = self.cases(id, cases, divergence);
                    ops.push(GroupOp::Switch { selector: *selector, cases, divergence });
                }
                Statement::Loop { body, continuing, break_if } => {
                    let divergence = self.add_condition(id, statement, *break_if);
                    self.targets.push(divergence.is_some());
                    let (body, continuing) = (self.ops(id, body), self.ops(id, continuing));
                    self.targets.pop();
                    ops.push(GroupOp::Loop { body, continuing, break_if: *break_if, divergence });
                }
                Statement::Break => ops.push(GroupOp::Break),
                Statement::Continue => ops.push(GroupOp::Continue),
                Statement::ControlBarrier(barrier) => ops.push(GroupOp::Barrier { barrier: *barrier, span }),
                Statement::Call { function, result, .. } => {
                    let Some(callee) = self.uniformity.callee(id, statement) else { continue };
                    let function: &'m Function = &self.sync_points.module.functions[*function];
                    // Jumps in the callee cannot reach loops of the caller.
                    let targets = std::mem::take(&mut self.targets);
                    let inner = self.ops(callee, &function.body);
                    self.targets = targets;
                    if let Some(result) = result {
                        // Always spilled: a region of the callee computes it, so no region of the caller
                        // defines it.
                        self.regions.definitions.insert((id, *result), usize::MAX);
                    }
                    ops.push(GroupOp::Call { callee, ops: inner, result: *result });
                }
                _ => {
                    let region = self.new_region();
                    self.visit(id, statement, region);
                    // Every sync point other than a barrier has exactly one result.
                    let results = results_of(statement).into_iter();
                    ops.extend(results.map(|result| GroupOp::Collective { region, statement, result, span }));
                }
            }
        }
        self.finish_region(id, &mut statements, &mut ops);
        ops
    }

    /// Merges fallthrough cases, so that each body has the list of its selector values.
    fn cases(
        &mut self,
        id: ActivationId,
        cases: &'m [SwitchCase],
        divergence: Divergence,
    ) -> Vec<(Vec<SwitchValue>, Vec<GroupOp<'m>>)> {
        let (mut values, mut groups) = (Vec::new(), Vec::new());
        self.targets.push(divergence.is_some());
        for case in cases {
            values.push(case.value);
            if !case.fall_through {
                groups.push((std::mem::take(&mut values), self.ops(id, &case.body)));
            }
        }
        self.targets.pop();
        groups
    }

    /// Registers the condition of a branch or loop as uniform or divergent.
    fn add_condition(
        &mut self,
        id: ActivationId,
        statement: &Statement,
        condition: Option<Handle<Expression>>,
    ) -> Divergence {
        let value = condition.and_then(|condition| self.value(id, condition));
        if !self.is_divergent(statement) {
            self.regions.uniform_conditions.extend(value);
            return None;
        }
        // A region without statements: it only names the live-ins that `emit` reloads to evaluate
        // the condition.
        let region = self.new_region();
        condition.iter().for_each(|condition| self.add_use(id, *condition, region));
        self.regions.divergent_conditions.extend(value);
        Some(region)
    }

    /// Whether a branch or loop is executed per invocation: it contains no barrier, and no jump from it moves
    /// the whole workgroup.
    fn is_divergent(&self, statement: &Statement) -> bool {
        let has_barrier = SyncPoints::barriers(self.sync_points.module).are_nested_in(statement);
        // A jump out of this statement is only per invocation if its target is divergent too.
        let is_divergent_around = self.targets.last().is_some_and(|is_divergent| *is_divergent);
        self.sync_points.subgroups && !has_barrier && (is_divergent_around || !has_outer_jump(statement, false, false))
    }

    /// Adds a region and returns its index.
    fn new_region(&mut self) -> usize {
        self.regions.live_ins.push(BTreeSet::new());
        self.regions.live_ins.len() - 1
    }

    /// Turns the collected statements into a region.
    fn finish_region(
        &mut self,
        id: ActivationId,
        statements: &mut Vec<(&'m Statement, Span)>,
        ops: &mut Vec<GroupOp<'m>>,
    ) {
        if statements.is_empty() {
            return;
        }
        let region = self.new_region();
        statements.iter().for_each(|(statement, _)| self.visit(id, statement, region));
        ops.push(GroupOp::Region { region, statements: std::mem::take(statements) });
    }

    /// Records the values that a statement of a region defines and uses.
    fn visit(&mut self, id: ActivationId, statement: &'m Statement, region: usize) {
        let uses = uses_of(self.uniformity.activations[id].function, statement);
        uses.into_iter().for_each(|expression| self.add_use(id, expression, region));
        self.regions.definitions.extend(results_of(statement).into_iter().map(|result| ((id, result), region)));
        // Calls are not followed: a callee without sync points gets values of the caller as arguments only,
        // which `uses_of` lists.
        blocks_of(statement).into_iter().flatten().for_each(|inner| self.visit(id, inner, region));
    }

    /// Records that a region uses an expression.
    fn add_use(&mut self, id: ActivationId, expression: Handle<Expression>, region: usize) {
        if let Some(value) = self.value(id, expression) {
            self.regions.live_ins[region].insert(value);
        }
    }

    /// Resolves arguments to the caller's expression. `None` for constants and variables, which are never
    /// computed.
    fn value(&self, id: ActivationId, expression: Handle<Expression>) -> Option<ValueId> {
        let activation = &self.uniformity.activations[id];
        match (&activation.function.expressions[expression], activation.caller) {
            (Expression::FunctionArgument(index), Some((caller, arguments))) => {
                self.value(caller, arguments[*index as usize])
            }
            (given, _) if given.needs_pre_emit() => None,
            _ => Some((id, expression)),
        }
    }
}
