//! Programs with barriers as steps: regions without a barrier, which run for one vector of invocations after the other, and the
//! control between them, which is the same for the whole work-group. Where invocations run one by one, what a subgroup does together is a
//! step too.

use crate::analysis::{ActivationId, Analysis, operands_of, result_of, uses_of};
use naga::{Barrier, Block, Expression, Function, Handle, Module, Span, Statement, SwitchCase, SwitchValue};
use std::collections::{BTreeMap, BTreeSet};

/// An expression of an activation.
pub(crate) type Place = (ActivationId, Handle<Expression>);

/// Whether each invocation goes its own way through a branch or loop, in which subgroups meet and the work-group does not: then the number
/// of what needs its condition.
pub(crate) type Apart = Option<usize>;

/// What a work-group does, in order.
pub(crate) enum Step<'m> {
    /// Statements that each vector of invocations runs to their end before the next one begins.
    Region {
        number: usize,
        statements: Vec<(&'m Statement, Span)>,
    },
    If {
        condition: Handle<Expression>,
        accept: Vec<Step<'m>>,
        reject: Vec<Step<'m>>,
        apart: Apart,
    },
    Switch {
        selector: Handle<Expression>,
        cases: Vec<(Vec<SwitchValue>, Vec<Step<'m>>)>,
        apart: Apart,
    },
    Loop {
        body: Vec<Step<'m>>,
        continuing: Vec<Step<'m>>,
        break_if: Option<Handle<Expression>>,
        apart: Apart,
    },
    Break,
    Continue,
    /// Where all invocations have arrived.
    Barrier {
        barrier: Barrier,
        span: Span,
    },
    /// What invocations of a subgroup do together.
    Subgroup {
        number: usize,
        statement: &'m Statement,
        result: Handle<Expression>,
        span: Span,
    },
    /// A value that all invocations read behind a barrier.
    UniformLoad {
        number: usize,
        pointer: Handle<Expression>,
        result: Handle<Expression>,
        span: Span,
    },
    /// A function with barriers in it.
    Call {
        callee: ActivationId,
        steps: Vec<Step<'m>>,
        result: Option<Handle<Expression>>,
    },
}

/// A program with barriers.
pub(crate) struct Regions<'m> {
    pub(crate) steps: Vec<Step<'m>>,
    /// What each region needs from earlier ones.
    pub(crate) needs: Vec<BTreeSet<Place>>,
    /// What one region computes and another needs.
    pub(crate) kept: BTreeSet<Place>,
    /// What decides the way of the whole work-group.
    pub(crate) decisions: BTreeSet<Place>,
    /// What decides the way of each invocation where subgroups meet.
    pub(crate) conditions: BTreeSet<Place>,
    /// Where an expression is computed.
    defined: BTreeMap<Place, usize>,
}

/// The statements at which invocations wait for each other.
#[derive(Clone, Copy)]
pub(crate) struct Meetings<'m> {
    module: &'m Module,
    /// Whether they do so in subgroups too, whose invocations do not run together.
    subgroups: bool,
}

impl<'m> Meetings<'m> {
    /// Barriers of the work-group.
    pub(crate) fn barriers(module: &'m Module) -> Self {
        Self { module, subgroups: false }
    }

    /// What invocations meet at that run in vectors of so many.
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
            Statement::Block(block) => self.are_in(block),
            _ => self.is_one(statement) || self.are_inside(statement),
        })
    }

    /// Whether invocations meet in the blocks of a branch or loop.
    fn are_inside(self, statement: &Statement) -> bool {
        match statement {
            Statement::If { accept, reject, .. } => self.are_in(accept) || self.are_in(reject),
            Statement::Switch { cases, .. } => cases.iter().any(|case| self.are_in(&case.body)),
            Statement::Loop { body, continuing, .. } => self.are_in(body) || self.are_in(continuing),
            _ => false,
        }
    }

    /// Whether the whole work-group decides about the statement, where it decides about the block around.
    pub(crate) fn is_common(self, statement: &Statement) -> bool {
        match statement {
            Statement::Break | Statement::Continue => true,
            Statement::Call { function, .. } => self.are_in(&self.module.functions[*function].body),
            Statement::Block(block) => block.iter().any(|statement| self.is_common(statement)),
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
    let any = |block: &Block| block.iter().any(has_return);
    match statement {
        Statement::Return { .. } => true,
        Statement::Block(block) => any(block),
        Statement::If { accept, reject, .. } => any(accept) || any(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| any(&case.body)),
        Statement::Loop { body, continuing, .. } => any(body) || any(continuing),
        _ => false,
    }
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
    /// The steps of a program, whose invocations wait for each other at these meetings.
    pub(crate) fn new(meetings: Meetings<'m>, analysis: &Analysis<'m>) -> Self {
        let mut regions = Self {
            steps: Vec::new(),
            needs: Vec::new(),
            kept: BTreeSet::new(),
            decisions: BTreeSet::new(),
            conditions: BTreeSet::new(),
            defined: BTreeMap::new(),
        };
        let mut builder = Builder { meetings, analysis, targets: Vec::new(), regions: &mut regions };
        let steps = builder.steps(0, &analysis.activations[0].function.body);
        let (mut needs, mut kept) = (vec![BTreeSet::new(); regions.needs.len()], BTreeSet::new());
        for (number, needed) in regions.needs.iter().enumerate() {
            let foreign =
                needed.iter().filter(|place| regions.defined.get(place).is_some_and(|region| *region != number));
            needs[number].extend(foreign.copied());
            kept.extend(needs[number].iter().copied());
        }
        (regions.steps, regions.needs, regions.kept) = (steps, needs, kept);
        regions
    }
}

struct Builder<'a, 'm> {
    meetings: Meetings<'m>,
    analysis: &'a Analysis<'m>,
    /// The loops and switches around, and whether invocations go through each of them apart.
    targets: Vec<bool>,
    regions: &'a mut Regions<'m>,
}

impl<'m> Builder<'_, 'm> {
    fn steps(&mut self, id: ActivationId, block: &'m Block) -> Vec<Step<'m>> {
        let (mut steps, mut statements) = (Vec::new(), Vec::new());
        for (statement, span) in block.span_iter() {
            let span = *span;
            if !self.meetings.is_common(statement) {
                statements.push((statement, span));
                continue;
            }
            self.close(id, &mut statements, &mut steps);
            match statement {
                Statement::Block(block) => steps.extend(self.steps(id, block)),
                Statement::If { condition, accept, reject } => {
                    let apart = self.decide(id, statement, Some(*condition));
                    let (accept, reject) = (self.steps(id, accept), self.steps(id, reject));
                    steps.push(Step::If { condition: *condition, accept, reject, apart });
                }
                Statement::Switch { selector, cases } => {
                    let apart = self.decide(id, statement, Some(*selector));
                    let cases = self.cases(id, cases, apart);
                    steps.push(Step::Switch { selector: *selector, cases, apart });
                }
                Statement::Loop { body, continuing, break_if } => {
                    let apart = self.decide(id, statement, *break_if);
                    self.targets.push(apart.is_some());
                    let (body, continuing) = (self.steps(id, body), self.steps(id, continuing));
                    self.targets.pop();
                    steps.push(Step::Loop { body, continuing, break_if: *break_if, apart });
                }
                Statement::Break => steps.push(Step::Break),
                Statement::Continue => steps.push(Step::Continue),
                Statement::ControlBarrier(barrier) => steps.push(Step::Barrier { barrier: *barrier, span }),
                Statement::WorkGroupUniformLoad { pointer, result } => {
                    let number = self.open();
                    self.need(id, *pointer, number);
                    self.regions.defined.insert((id, *result), number);
                    steps.push(Step::UniformLoad { number, pointer: *pointer, result: *result, span });
                }
                Statement::SubgroupBallot { result, .. }
                | Statement::SubgroupGather { result, .. }
                | Statement::SubgroupCollectiveOperation { result, .. } => {
                    let number = self.open();
                    uses_of(statement, &mut |expression| self.need(id, expression, number));
                    self.regions.defined.insert((id, *result), number);
                    steps.push(Step::Subgroup { number, statement, result: *result, span });
                }
                Statement::Call { function, result, .. } => {
                    let Some(callee) = self.analysis.callee(id, statement) else { continue };
                    let function: &'m Function = &self.meetings.module.functions[*function];
                    let targets = std::mem::take(&mut self.targets);
                    let inner = self.steps(callee, &function.body);
                    self.targets = targets;
                    if let Some(result) = result {
                        // Kept in any case: it is written in a region of the callee.
                        self.regions.defined.insert((id, *result), usize::MAX);
                    }
                    steps.push(Step::Call { callee, steps: inner, result: *result });
                }
                _ => {}
            }
        }
        self.close(id, &mut statements, &mut steps);
        steps
    }

    /// The cases of a switch, each with all the values that lead to it.
    fn cases(
        &mut self,
        id: ActivationId,
        cases: &'m [SwitchCase],
        apart: Apart,
    ) -> Vec<(Vec<SwitchValue>, Vec<Step<'m>>)> {
        let (mut values, mut common) = (Vec::new(), Vec::new());
        self.targets.push(apart.is_some());
        for case in cases {
            values.push(case.value);
            if !case.fall_through {
                common.push((std::mem::take(&mut values), self.steps(id, &case.body)));
            }
        }
        self.targets.pop();
        common
    }

    /// Notes what decides about a branch or loop: for the whole work-group, or for each invocation.
    fn decide(&mut self, id: ActivationId, statement: &Statement, condition: Option<Handle<Expression>>) -> Apart {
        let place = condition.and_then(|condition| self.place(id, condition));
        if !self.is_apart(statement) {
            self.regions.decisions.extend(place);
            return None;
        }
        let number = self.open();
        condition.iter().for_each(|condition| self.need(id, *condition, number));
        self.regions.conditions.extend(place);
        Some(number)
    }

    /// Whether each invocation goes its own way: no barrier of the work-group is inside, and where it leads out, all are apart there.
    fn is_apart(&self, statement: &Statement) -> bool {
        let has_barrier = Meetings::barriers(self.meetings.module).are_inside(statement);
        let is_apart_around = self.targets.last().is_some_and(|is_apart| *is_apart);
        self.meetings.subgroups && !has_barrier && (is_apart_around || !leaves(statement, false, false))
    }

    fn open(&mut self) -> usize {
        self.regions.needs.push(BTreeSet::new());
        self.regions.needs.len() - 1
    }

    fn close(&mut self, id: ActivationId, statements: &mut Vec<(&'m Statement, Span)>, steps: &mut Vec<Step<'m>>) {
        if statements.is_empty() {
            return;
        }
        let number = self.open();
        statements.iter().for_each(|(statement, _)| self.visit(id, statement, number));
        steps.push(Step::Region { number, statements: std::mem::take(statements) });
    }

    /// Notes what a statement of a region computes and needs.
    fn visit(&mut self, id: ActivationId, statement: &'m Statement, number: usize) {
        uses_of(statement, &mut |expression| self.need(id, expression, number));
        let mut define = |expression: Handle<Expression>| {
            self.regions.defined.insert((id, expression), number);
        };
        match statement {
            Statement::Emit(range) => {
                range.clone().for_each(&mut define);
                for expression in range.clone() {
                    let function = self.analysis.activations[id].function;
                    operands_of(&function.expressions[expression], &mut |operand| self.need(id, operand, number));
                }
            }
            Statement::Block(block) => block.iter().for_each(|statement| self.visit(id, statement, number)),
            Statement::If { accept, reject, .. } => {
                accept.iter().chain(reject.iter()).for_each(|statement| self.visit(id, statement, number));
            }
            Statement::Switch { cases, .. } => {
                cases.iter().flat_map(|case| case.body.iter()).for_each(|statement| self.visit(id, statement, number));
            }
            Statement::Loop { body, continuing, .. } => {
                body.iter().chain(continuing.iter()).for_each(|statement| self.visit(id, statement, number));
            }
            _ => result_of(statement).into_iter().for_each(define),
        }
    }

    fn need(&mut self, id: ActivationId, expression: Handle<Expression>, number: usize) {
        if let Some(place) = self.place(id, expression) {
            self.regions.needs[number].insert(place);
        }
    }

    /// Where an expression is computed: an argument in the caller.
    fn place(&self, id: ActivationId, expression: Handle<Expression>) -> Option<Place> {
        let activation = &self.analysis.activations[id];
        match (&activation.function.expressions[expression], activation.caller) {
            (Expression::FunctionArgument(index), Some((caller, arguments))) => {
                self.place(caller, arguments[*index as usize])
            }
            (given, _) if given.needs_pre_emit() => None,
            _ => Some((id, expression)),
        }
    }
}
