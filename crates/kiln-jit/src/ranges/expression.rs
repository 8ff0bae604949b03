//! Abstract evaluation of expressions, and the bounds proofs of accesses.

use super::Ranges;
use super::facts::{Condition, Facts, Origin, State, Value};
use super::interval::Interval;
use crate::LANES;
use crate::operands::operands_of;
use crate::types::{Kind, element, flatten, member, pointee, scalar_count};
use crate::uniformity::{ActivationId, Root};
use naga::{
    Arena, ArraySize, Binding, BuiltIn, Expression, Handle, Literal, MathFunction, RelationalFunction, ScalarKind,
    TypeInner, UnaryOperator,
};

/// Maximum number of scalars of a value that is tracked.
const MAX_SCALARS: usize = 16;

impl<'m> Ranges<'_, 'm> {
    /// Returns the resolved type of an expression.
    pub(super) fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> &TypeInner {
        self.uniformity.activations[id].info[expression].ty.inner_with(&self.module.types)
    }

    /// Returns unknown values of a type; empty if it has too many scalars.
    pub(super) fn unknown(&mut self, inner: &TypeInner) -> Vec<Value> {
        let is_small = scalar_count(self.module, inner).is_some_and(|count| count as usize <= MAX_SCALARS);
        let found = if is_small { flatten(self.module, inner) } else { None };
        found.unwrap_or_default().iter().map(|field| self.table.unknown(field.kind)).collect()
    }

    /// Returns the values of a zero value.
    pub(super) fn zeros(&mut self, inner: &TypeInner) -> Vec<Value> {
        let mut values = self.unknown(inner);
        for value in values.iter_mut().filter(|value| is_tracked(value.kind)) {
            *value = self.table.constant(value.kind, 0);
        }
        values
    }

    /// Returns the values of a constant expression.
    pub(super) fn constants(
        &mut self,
        arena: &'m Arena<Expression>,
        expression: Handle<Expression>,
    ) -> Option<Vec<Value>> {
        let module = self.module;
        Some(match &arena[expression] {
            Expression::Literal(literal) => vec![match *literal {
                // Integers and booleans have exact values; floats are only placeholders.
                Literal::U32(value) => self.table.constant(Kind::U32, value.into()),
                Literal::I32(value) => self.table.constant(Kind::I32, value.into()),
                Literal::Bool(value) => self.table.constant(Kind::Bool, value.into()),
                other => self.table.unknown(Kind::of(other.scalar())?),
            }],
            Expression::Constant(constant) => {
                self.constants(&module.global_expressions, module.constants[*constant].init)?
            }
            Expression::ZeroValue(ty) => self.zeros(&module.types[*ty].inner),
            Expression::Compose { components, .. } => {
                let all = components.iter().map(|component| self.constants(arena, *component));
                all.collect::<Option<Vec<_>>>()?.concat()
            }
            Expression::Splat { size, value } => vec![*self.constants(arena, *value)?.first()?; *size as usize],
            _ => return None,
        })
    }

    /// Returns the values of an expression. Constants and arguments have no `Emit` statement and are evaluated
    /// here.
    pub(super) fn values(&mut self, id: ActivationId, expression: Handle<Expression>) -> Vec<Value> {
        let function = self.uniformity.activations[id].function;
        let found = match function.expressions[expression] {
            Expression::FunctionArgument(index) => match self.uniformity.activations[id].caller {
                Some((caller, arguments)) => Some(self.values(caller, arguments[index as usize])),
                None => self.builtins(index),
            },
            ref given if given.needs_pre_emit() => self.constants(&function.expressions, expression),
            _ => self.values[id].get(&expression).cloned(),
        };
        self.fit_to_type(id, expression, found)
    }

    /// Makes the number of values match the type: anything else becomes unknown.
    fn fit_to_type(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        found: Option<Vec<Value>>,
    ) -> Vec<Value> {
        let inner = self.inner(id, expression).clone();
        match scalar_count(self.module, &inner) {
            Some(count) => match found {
                Some(found) if found.len() == count as usize => found,
                _ => self.unknown(&inner),
            },
            None => Vec::new(),
        }
    }

    /// Returns the values of an argument of the entry point.
    fn builtins(&mut self, index: u32) -> Option<Vec<Value>> {
        let argument = &self.uniformity.activations[0].function.arguments[index as usize];
        let inner = &self.module.types[argument.ty].inner;
        let mut all = Vec::new();
        let mut add = |e: &mut Self, binding: &Option<Binding>, count: u32| {
            let Some(Binding::BuiltIn(builtin)) = binding else { return None };
            all.extend((0..count).map(|axis| {
                let range = e.builtin_range(*builtin, axis as usize);
                e.table.value(Kind::U32, Origin::Builtin(*builtin, axis), range)
            }));
            Some(())
        };
        match inner {
            TypeInner::Struct { members, .. } => {
                for member in members {
                    let count = scalar_count(self.module, &self.module.types[member.ty].inner)?;
                    add(self, &member.binding, count)?;
                }
            }
            inner => add(self, &argument.binding, scalar_count(self.module, inner)?)?,
        }
        Some(all)
    }

    /// Returns the range of a builtin.
    fn builtin_range(&self, builtin: BuiltIn, axis: usize) -> Interval {
        let size = self.module.entry_points[0].workgroup_size;
        let invocations = size.iter().product::<u32>();
        let below = |count: u32| Interval::new(0, i64::from(count) - 1);
        match builtin {
            BuiltIn::LocalInvocationId => below(size[axis]),
            BuiltIn::LocalInvocationIndex => below(invocations),
            BuiltIn::WorkGroupSize => Interval::exact(size[axis].into()),
            BuiltIn::SubgroupInvocationId => below(LANES as u32),
            BuiltIn::SubgroupSize => Interval::exact(LANES as i64),
            BuiltIn::SubgroupId => below(invocations.div_ceil(LANES as u32)),
            BuiltIn::NumSubgroups => Interval::exact(invocations.div_ceil(LANES as u32).into()),
            // These depend on the number of workgroups, which is not known at compile time.
            _ => Interval::full(Kind::U32),
        }
    }

    /// Evaluates an expression at its `Emit` statement.
    pub(super) fn evaluate(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        state: &mut State,
    ) -> Vec<Value> {
        let found = self.evaluate_known(id, expression, state);
        self.fit_to_type(id, expression, found)
    }

    /// Returns the values of an expression; `None` if nothing is known about them.
    fn evaluate_known(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        state: &mut State,
    ) -> Option<Vec<Value>> {
        let given = &self.uniformity.activations[id].function.expressions[expression];
        Some(match given {
            Expression::AccessIndex { base, index } => match pointee(self.module, self.inner(id, *base)) {
                Some(inner) => {
                    // Constant indices into other types were checked by naga.
                    if let TypeInner::Array { size: ArraySize::Dynamic, .. } = inner {
                        let index = self.table.constant(Kind::U32, (*index).into());
                        self.check_bounds(id, expression, (*base, &inner), index, &state.facts);
                    }
                    return None;
                }
                None => {
                    let (inner, _, first) = member(self.module, self.inner(id, *base), *index)?;
                    let count = scalar_count(self.module, &inner)? as usize;
                    self.values(id, *base).get(first as usize..first as usize + count)?.to_vec()
                }
            },
            Expression::Access { base, index } => {
                let inner = pointee(self.module, self.inner(id, *base))?;
                // The result is a pointer, which has no values. Only the proof about its index matters.
                let index = *self.values(id, *index).first()?;
                self.check_bounds(id, expression, (*base, &inner), index, &state.facts);
                return None;
            }
            Expression::Compose { components, .. } => {
                components.iter().flat_map(|component| self.values(id, *component)).collect()
            }
            Expression::Splat { size, value } => vec![*self.values(id, *value).first()?; *size as usize],
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.values(id, *vector);
                pattern[..*size as usize]
                    .iter()
                    .map(|component| vector.get(*component as usize).copied())
                    .collect::<Option<_>>()?
            }
            Expression::Load { pointer } => {
                let (variable, inner, at) = self.resolve_pointer(id, *pointer)?;
                let count = scalar_count(self.module, self.inner(id, expression))? as usize;
                self.variable(state, variable, &inner)?.get(at..at + count)?.to_vec()
            }
            Expression::ArrayLength(pointer) => vec![self.length(id, *pointer)?],
            _ => self.evaluate_operator(id, given, &state.facts)?,
        })
    }

    /// Returns the length of a buffer's runtime-sized array.
    fn length(&mut self, id: ActivationId, pointer: Handle<Expression>) -> Option<Value> {
        let Some(Root::Global(global)) = self.uniformity.root(id, pointer) else { return None };
        // The launch guarantees at least one element, and less than `MAX_BINDING_BYTES` elements.
        let range = Interval::new(1, crate::abi::MAX_BINDING_BYTES as i64 - 1);
        Some(self.table.value(Kind::U32, Origin::Length(global), range))
    }

    /// Proves or disproves that an index is in bounds of the pointee.
    fn check_bounds(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        (base, inner): (Handle<Expression>, &TypeInner),
        index: Value,
        facts: &Facts,
    ) {
        let length = match element(self.module, inner).map(|element| element.length) {
            Some(Some(length)) => Some(self.table.constant(Kind::U32, length.into())),
            Some(None) => self.length(id, base),
            None => None,
        };
        if length.is_some_and(|length| self.table.is_in_bounds(facts, index, length)) {
            self.proven.insert((id, expression));
        } else {
            // An earlier iteration of an enclosing loop assumed narrower ranges.
            self.proven.remove(&(id, expression));
        }
    }

    /// Evaluates an operator or function componentwise.
    fn evaluate_operator(&mut self, id: ActivationId, given: &Expression, facts: &Facts) -> Option<Vec<Value>> {
        let operands: Vec<Vec<Value>> =
            operands_of(given).into_iter().map(|operand| self.values(id, operand)).collect();
        if let Expression::Relational { fun: RelationalFunction::All, .. } = given {
            // `all` of a comparison of vectors implies the comparison of each component. `any` implies nothing
            // about one of them.
            let (first, rest) = operands[0].split_first()?;
            let both = |all: Value, x: &Value| self.table.condition(Condition::And(all.number, x.number));
            return Some(vec![rest.iter().fold(*first, both)]);
        }
        let count = operands.iter().map(Vec::len).max()?;
        let at = |i: usize| {
            let pick = |values: &Vec<Value>| values.get(i).or(values.last()).copied();
            self.scalar(given, &operands.iter().map(pick).collect::<Option<Vec<_>>>()?, facts)
        };
        (0..count).map(at).collect()
    }

    /// Evaluates an operator or function on one component.
    fn scalar(&mut self, given: &Expression, operands: &[Value], facts: &Facts) -> Option<Value> {
        use naga::BinaryOperator as Op;
        let ranges: Vec<Interval> = operands.iter().map(|operand| facts.range(*operand)).collect();
        let kind = operands.first()?.kind;
        let with_range = |value: Value, range: Interval| Value { range, ..value };
        Some(match (given, operands) {
            (Expression::Unary { op: UnaryOperator::LogicalNot, .. }, [x]) => {
                self.table.condition(Condition::Not(x.number))
            }
            (Expression::Binary { op, .. }, [x, y]) => match (op, kind) {
                (Op::LogicalAnd | Op::And, Kind::Bool) => self.table.condition(Condition::And(x.number, y.number)),
                (Op::LogicalOr | Op::InclusiveOr, Kind::Bool) => {
                    self.table.condition(Condition::Or(x.number, y.number))
                }
                // Floats are not tracked.
                (_, kind) if !matches!(kind, Kind::I32 | Kind::U32) => return None,
                (Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual, _) => {
                    self.table.condition(Condition::Compare(*op, *x, *y))
                }
                _ => {
                    let range = match op {
                        Op::Subtract => facts.difference(*x, *y),
                        _ => Interval::binary(*op, kind, ranges[0], ranges[1]),
                    };
                    self.table.value(kind, Origin::Binary(*op, kind == Kind::I32, x.number, y.number), range)
                }
            },
            // The result is one of both operands, so its range is their hull.
            (Expression::Select { .. }, [_, yes, _]) => {
                with_range(self.table.unknown(yes.kind), ranges[1].join(ranges[2]))
            }
            (Expression::Math { fun, .. }, _) if matches!(kind, Kind::I32 | Kind::U32) => {
                let range = Interval::math(*fun, kind, &ranges);
                match (fun, operands) {
                    (MathFunction::Min, [x, y]) => self.table.value(kind, Origin::Minimum(x.number, y.number), range),
                    (MathFunction::Max | MathFunction::Clamp | MathFunction::Abs, _) => {
                        with_range(self.table.unknown(kind), range)
                    }
                    _ => return None,
                }
            }
            (Expression::As { kind: to, convert, .. }, [x]) => {
                let to = match (to, convert) {
                    (ScalarKind::Sint, Some(4)) => Kind::I32,
                    (ScalarKind::Uint, Some(4)) => Kind::U32,
                    (ScalarKind::Sint, None) if kind == Kind::U32 => Kind::I32,
                    (ScalarKind::Uint, None) if kind == Kind::I32 => Kind::U32,
                    _ => return None,
                };
                // The value number survives a conversion that keeps the integer, so that facts about it still
                // apply.
                let range = ranges[0].converted(kind, to);
                let is_kept = range == ranges[0] && is_tracked(kind);
                let value =
                    if is_kept && kind != Kind::Bool { Value { kind: to, ..*x } } else { self.table.unknown(to) };
                with_range(value, range)
            }
            _ => return None,
        })
    }
}

/// Whether values of this kind are tracked.
fn is_tracked(kind: Kind) -> bool {
    matches!(kind, Kind::I32 | Kind::U32 | Kind::Bool)
}
