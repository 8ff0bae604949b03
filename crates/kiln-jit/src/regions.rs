//! Programs with barriers as steps: regions without a barrier, which run for one vector of invocations after the other, and the
//! control between them, which is the same for the whole work-group.

use crate::analysis::{ActivationId, Analysis, operands_of, uses_of};
use naga::{Barrier, Block, Expression, Function, Handle, Module, Span, Statement, SwitchValue};
use std::collections::{BTreeMap, BTreeSet};

/// An expression of an activation.
pub(crate) type Place = (ActivationId, Handle<Expression>);

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
    },
    Switch {
        selector: Handle<Expression>,
        cases: Vec<(Vec<SwitchValue>, Vec<Step<'m>>)>,
    },
    Loop {
        body: Vec<Step<'m>>,
        continuing: Vec<Step<'m>>,
        break_if: Option<Handle<Expression>>,
    },
    Break,
    Continue,
    /// Where all invocations have arrived.
    Barrier {
        barrier: Barrier,
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
    /// Where an expression is computed.
    defined: BTreeMap<Place, usize>,
}

/// Whether the block has a barrier of the work-group, or calls a function that has.
pub(crate) fn has_barrier(module: &Module, block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::ControlBarrier(barrier) => !(*barrier & !Barrier::SUB_GROUP).is_empty(),
        Statement::WorkGroupUniformLoad { .. } => true,
        Statement::Call { function, .. } => has_barrier(module, &module.functions[*function].body),
        Statement::Block(block) => has_barrier(module, block),
        Statement::If { accept, reject, .. } => has_barrier(module, accept) || has_barrier(module, reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| has_barrier(module, &case.body)),
        Statement::Loop { body, continuing, .. } => has_barrier(module, body) || has_barrier(module, continuing),
        _ => false,
    })
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

/// Whether the whole work-group decides about the statement, where it decides about the block around.
pub(crate) fn is_common(module: &Module, statement: &Statement) -> bool {
    match statement {
        Statement::Break | Statement::Continue | Statement::WorkGroupUniformLoad { .. } => true,
        Statement::ControlBarrier(barrier) => !(*barrier & !Barrier::SUB_GROUP).is_empty(),
        Statement::Call { function, .. } => has_barrier(module, &module.functions[*function].body),
        Statement::Block(block) => block.iter().any(|statement| is_common(module, statement)),
        Statement::If { accept, reject, .. } => {
            [accept, reject].iter().any(|block| has_barrier(module, block)) || leaves(statement, false, false)
        }
        Statement::Switch { cases, .. } => {
            cases.iter().any(|case| has_barrier(module, &case.body)) || leaves(statement, false, false)
        }
        Statement::Loop { body, continuing, .. } => [body, continuing].iter().any(|block| has_barrier(module, block)),
        _ => false,
    }
}

impl<'m> Regions<'m> {
    pub(crate) fn new(module: &'m Module, analysis: &Analysis<'m>) -> Self {
        let mut regions = Self {
            steps: Vec::new(),
            needs: Vec::new(),
            kept: BTreeSet::new(),
            decisions: BTreeSet::new(),
            defined: BTreeMap::new(),
        };
        let mut builder = Builder { module, analysis, regions: &mut regions };
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
    module: &'m Module,
    analysis: &'a Analysis<'m>,
    regions: &'a mut Regions<'m>,
}

impl<'m> Builder<'_, 'm> {
    fn steps(&mut self, id: ActivationId, block: &'m Block) -> Vec<Step<'m>> {
        let (mut steps, mut statements) = (Vec::new(), Vec::new());
        for (statement, span) in block.span_iter() {
            let span = *span;
            let is_whole = !is_common(self.module, statement);
            if is_whole {
                statements.push((statement, span));
                continue;
            }
            self.close(id, &mut statements, &mut steps);
            match statement {
                Statement::Block(block) => steps.extend(self.steps(id, block)),
                Statement::If { condition, accept, reject } => {
                    self.decide(id, *condition);
                    let (accept, reject) = (self.steps(id, accept), self.steps(id, reject));
                    steps.push(Step::If { condition: *condition, accept, reject });
                }
                Statement::Switch { selector, cases } => {
                    self.decide(id, *selector);
                    let mut values = Vec::new();
                    let mut common = Vec::new();
                    for case in cases {
                        values.push(case.value);
                        if !case.fall_through {
                            common.push((std::mem::take(&mut values), self.steps(id, &case.body)));
                        }
                    }
                    steps.push(Step::Switch { selector: *selector, cases: common });
                }
                Statement::Loop { body, continuing, break_if } => {
                    let (body, continuing) = (self.steps(id, body), self.steps(id, continuing));
                    break_if.iter().for_each(|condition| self.decide(id, *condition));
                    steps.push(Step::Loop { body, continuing, break_if: *break_if });
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
                Statement::Call { function, result, .. } => {
                    let Some(callee) = self.analysis.callee(id, statement) else { continue };
                    let function: &'m Function = &self.module.functions[*function];
                    let inner = self.steps(callee, &function.body);
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
            Statement::Atomic { result: Some(result), .. }
            | Statement::Call { result: Some(result), .. }
            | Statement::SubgroupBallot { result, .. }
            | Statement::SubgroupGather { result, .. }
            | Statement::SubgroupCollectiveOperation { result, .. } => define(*result),
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
            _ => {}
        }
    }

    fn need(&mut self, id: ActivationId, expression: Handle<Expression>, number: usize) {
        if let Some(place) = self.place(id, expression) {
            self.regions.needs[number].insert(place);
        }
    }

    fn decide(&mut self, id: ActivationId, expression: Handle<Expression>) {
        if let Some(place) = self.place(id, expression) {
            self.regions.decisions.insert(place);
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
