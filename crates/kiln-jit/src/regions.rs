//! Splits programs at barriers, into regions without a barrier, which run for one gang (vector of invocations) after the other, and
//! the control flow between them, which is uniform in the work-group. Where invocations run one by one, programs are split at subgroup
//! operations too.

use crate::analysis::{ActivationId, Analysis, blocks_of, results_of, uses_of};
use naga::{Barrier, Block, Expression, Function, Handle, Module, Span, Statement, SwitchCase, SwitchValue};
use std::collections::{BTreeMap, BTreeSet};

/// The value of an expression in one activation.
pub(crate) type ValueId = (ActivationId, Handle<Expression>);

/// Whether invocations diverge in a branch or loop, which then has subgroup operations and no barrier in it: the region whose live-ins
/// are those of its condition.
pub(crate) type Divergence = Option<usize>;

/// An operation of the whole work-group.
pub(crate) enum GroupOp<'m> {
    /// Statements that each gang runs to their end before the next one begins.
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
    /// A `workgroupUniformLoad`, or a subgroup operation where invocations run one by one.
    Collective {
        region: usize,
        statement: &'m Statement,
        result: Handle<Expression>,
        span: Span,
    },
    /// A call of a function with barriers in it.
    Call {
        callee: ActivationId,
        ops: Vec<GroupOp<'m>>,
        result: Option<Handle<Expression>>,
    },
}

/// A program that is split at its barriers.
pub(crate) struct Regions<'m> {
    pub(crate) ops: Vec<GroupOp<'m>>,
    /// The values that each region uses and another one computes.
    pub(crate) live_ins: Vec<BTreeSet<ValueId>>,
    /// All of these.
    pub(crate) spilled: BTreeSet<ValueId>,
    /// Conditions of uniform control flow of the work-group.
    pub(crate) decisions: BTreeSet<ValueId>,
    /// Conditions of divergent control flow with subgroup operations in it.
    pub(crate) conditions: BTreeSet<ValueId>,
    /// The region that computes a value.
    defined: BTreeMap<ValueId, usize>,
}

/// The statements at which invocations wait for each other: synchronization points.
#[derive(Clone, Copy)]
pub(crate) struct SyncPoints<'m> {
    module: &'m Module,
    /// Whether subgroup operations are among them, since the invocations of a subgroup do not run together.
    subgroups: bool,
}

impl<'m> SyncPoints<'m> {
    /// Barriers of the work-group.
    pub(crate) fn barriers(module: &'m Module) -> Self {
        Self { module, subgroups: false }
    }

    /// Those of invocations that run in gangs of this many.
    pub(crate) fn of_lanes(module: &'m Module, lanes: usize) -> Self {
        Self { module, subgroups: lanes == 1 }
    }

    /// Whether the statement itself is one.
    fn is_one(self, statement: &Statement) -> bool {
        match statement {
            Statement::ControlBarrier(barrier) => self.subgroups || !(*barrier & !Barrier::SUB_GROUP).is_empty(),
            Statement::WorkGroupUniformLoad { .. } => true,
            Statement::SubgroupBallot { .. }
            | Statement::SubgroupGather { .. }
            | Statement::SubgroupCollectiveOperation { .. } => self.subgroups,
            _ => false,
        }
    }

    /// Whether the block has one, or calls a function that has.
    pub(crate) fn are_in(self, block: &Block) -> bool {
        block.iter().any(|statement| match statement {
            Statement::Call { function, .. } => self.are_in(&self.module.functions[*function].body),
            _ => self.is_one(statement) || self.are_inside(statement),
        })
    }

    /// Whether there is one in the blocks of a statement.
    fn are_inside(self, statement: &Statement) -> bool {
        blocks_of(statement).into_iter().any(|block| self.are_in(block))
    }

    /// Whether the statement is an operation of the work-group, in a block that is.
    pub(crate) fn is_group_op(self, statement: &Statement) -> bool {
        match statement {
            Statement::Break | Statement::Continue => true,
            Statement::Call { function, .. } => self.are_in(&self.module.functions[*function].body),
            Statement::Block(block) => block.iter().any(|statement| self.is_group_op(statement)),
            Statement::If { .. } | Statement::Switch { .. } => {
                self.are_inside(statement) || leaves(statement, false, false)
            }
            Statement::Loop { .. } => self.are_inside(statement),
            _ => self.is_one(statement),
        }
    }
}

/// Whether a function may end inside of the statement.
pub(crate) fn has_return(statement: &Statement) -> bool {
    matches!(statement, Statement::Return { .. }) || blocks_of(statement).into_iter().flatten().any(has_return)
}

/// Whether the statement leaves, or goes on with, a loop or switch around it.
pub(crate) fn leaves(statement: &Statement, in_loop: bool, in_switch: bool) -> bool {
    let any = |block: &Block, in_loop, in_switch| block.iter().any(|statement| leaves(statement, in_loop, in_switch));
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
    /// Splits a program at these points.
    pub(crate) fn new(sync_points: SyncPoints<'m>, analysis: &Analysis<'m>) -> Self {
        let mut regions = Self {
            ops: Vec::new(),
            live_ins: Vec::new(),
            spilled: BTreeSet::new(),
            decisions: BTreeSet::new(),
            conditions: BTreeSet::new(),
            defined: BTreeMap::new(),
        };
        let mut builder = Builder { sync_points, analysis, targets: Vec::new(), regions: &mut regions };
        let ops = builder.ops(0, &analysis.activations[0].function.body);
        for (number, uses) in regions.live_ins.iter_mut().enumerate() {
            uses.retain(|value| regions.defined.get(value).is_some_and(|region| *region != number));
            regions.spilled.extend(uses.iter().copied());
        }
        regions.ops = ops;
        regions
    }
}

struct Builder<'a, 'm> {
    sync_points: SyncPoints<'m>,
    analysis: &'a Analysis<'m>,
    /// The loops and switches around, and whether each of them is divergent.
    targets: Vec<bool>,
    regions: &'a mut Regions<'m>,
}

impl<'m> Builder<'_, 'm> {
    fn ops(&mut self, id: ActivationId, block: &'m Block) -> Vec<GroupOp<'m>> {
        let (mut ops, mut statements) = (Vec::new(), Vec::new());
        for (statement, span) in block.span_iter() {
            let span = *span;
            if !self.sync_points.is_group_op(statement) {
                statements.push((statement, span));
                continue;
            }
            self.close(id, &mut statements, &mut ops);
            match statement {
                Statement::Block(block) => ops.extend(self.ops(id, block)),
                Statement::If { condition, accept, reject } => {
                    let divergence = self.decide(id, statement, Some(*condition));
                    let (accept, reject) = (self.ops(id, accept), self.ops(id, reject));
                    ops.push(GroupOp::If { condition: *condition, accept, reject, divergence });
                }
                Statement::Switch { selector, cases } => {
                    let divergence = self.decide(id, statement, Some(*selector));
                    let cases = self.cases(id, cases, divergence);
                    ops.push(GroupOp::Switch { selector: *selector, cases, divergence });
                }
                Statement::Loop { body, continuing, break_if } => {
                    let divergence = self.decide(id, statement, *break_if);
                    self.targets.push(divergence.is_some());
                    let (body, continuing) = (self.ops(id, body), self.ops(id, continuing));
                    self.targets.pop();
                    ops.push(GroupOp::Loop { body, continuing, break_if: *break_if, divergence });
                }
                Statement::Break => ops.push(GroupOp::Break),
                Statement::Continue => ops.push(GroupOp::Continue),
                Statement::ControlBarrier(barrier) => ops.push(GroupOp::Barrier { barrier: *barrier, span }),
                Statement::Call { function, result, .. } => {
                    let Some(callee) = self.analysis.callee(id, statement) else { continue };
                    let function: &'m Function = &self.sync_points.module.functions[*function];
                    let targets = std::mem::take(&mut self.targets);
                    let inner = self.ops(callee, &function.body);
                    self.targets = targets;
                    if let Some(result) = result {
                        // Spilled in any case: a region of the callee computes it.
                        self.regions.defined.insert((id, *result), usize::MAX);
                    }
                    ops.push(GroupOp::Call { callee, ops: inner, result: *result });
                }
                _ => {
                    let region = self.open();
                    self.visit(id, statement, region);
                    let results = results_of(statement).into_iter();
                    ops.extend(results.map(|result| GroupOp::Collective { region, statement, result, span }));
                }
            }
        }
        self.close(id, &mut statements, &mut ops);
        ops
    }

    /// The cases of a switch, each with all the values that lead to it.
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

    /// Adds the condition of a branch or loop, uniform or divergent.
    fn decide(&mut self, id: ActivationId, statement: &Statement, condition: Option<Handle<Expression>>) -> Divergence {
        let value = condition.and_then(|condition| self.value(id, condition));
        if !self.is_divergent(statement) {
            self.regions.decisions.extend(value);
            return None;
        }
        let region = self.open();
        condition.iter().for_each(|condition| self.add_use(id, *condition, region));
        self.regions.conditions.extend(value);
        Some(region)
    }

    /// Whether invocations may diverge in a branch or loop: it has no barrier in it, and leads to nothing that is uniform.
    fn is_divergent(&self, statement: &Statement) -> bool {
        let has_barrier = SyncPoints::barriers(self.sync_points.module).are_inside(statement);
        let is_divergent_around = self.targets.last().is_some_and(|is_divergent| *is_divergent);
        self.sync_points.subgroups && !has_barrier && (is_divergent_around || !leaves(statement, false, false))
    }

    fn open(&mut self) -> usize {
        self.regions.live_ins.push(BTreeSet::new());
        self.regions.live_ins.len() - 1
    }

    fn close(&mut self, id: ActivationId, statements: &mut Vec<(&'m Statement, Span)>, ops: &mut Vec<GroupOp<'m>>) {
        if statements.is_empty() {
            return;
        }
        let region = self.open();
        statements.iter().for_each(|(statement, _)| self.visit(id, statement, region));
        ops.push(GroupOp::Region { region, statements: std::mem::take(statements) });
    }

    /// Adds the values that a statement of a region computes and uses.
    fn visit(&mut self, id: ActivationId, statement: &'m Statement, region: usize) {
        let uses = uses_of(self.analysis.activations[id].function, statement);
        uses.into_iter().for_each(|expression| self.add_use(id, expression, region));
        self.regions.defined.extend(results_of(statement).into_iter().map(|result| ((id, result), region)));
        blocks_of(statement).into_iter().flatten().for_each(|inner| self.visit(id, inner, region));
    }

    fn add_use(&mut self, id: ActivationId, expression: Handle<Expression>, region: usize) {
        if let Some(value) = self.value(id, expression) {
            self.regions.live_ins[region].insert(value);
        }
    }

    /// The value of an expression, which is in the caller for an argument; `None` where it is not computed.
    fn value(&self, id: ActivationId, expression: Handle<Expression>) -> Option<ValueId> {
        let activation = &self.analysis.activations[id];
        match (&activation.function.expressions[expression], activation.caller) {
            (Expression::FunctionArgument(index), Some((caller, arguments))) => {
                self.value(caller, arguments[*index as usize])
            }
            (given, _) if given.needs_pre_emit() => None,
            _ => Some((id, expression)),
        }
    }
}
