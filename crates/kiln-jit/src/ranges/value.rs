//! Expressions: what is known about their scalars, and whether indices are inside.

use super::Ranges;
use super::facts::{Condition, Facts, Origin, State, Value};
use super::interval::Interval;
use crate::LANES;
use crate::analysis::{ActivationId, Root, operands_of};
use crate::types::{Kind, element, leaf_count, leaves, member, pointee};
use naga::{
    Arena, ArraySize, Binding, BuiltIn, Expression, Handle, Literal, MathFunction, RelationalFunction, ScalarKind,
    TypeInner, UnaryOperator,
};

/// Scalars of values that are followed.
const MAX_SCALARS: usize = 16;

impl<'m> Ranges<'_, 'm> {
    pub(super) fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> &TypeInner {
        self.analysis.activations[id].info[expression].ty.inner_with(&self.module.types)
    }

    /// Values of a type of which nothing is known; none where it has too many.
    pub(super) fn unknown(&mut self, inner: &TypeInner) -> Vec<Value> {
        let is_small = leaf_count(self.module, inner).is_some_and(|count| count as usize <= MAX_SCALARS);
        let found = if is_small { leaves(self.module, inner) } else { None };
        found.unwrap_or_default().iter().map(|leaf| self.terms.unknown(leaf.kind)).collect()
    }

    pub(super) fn zeros(&mut self, inner: &TypeInner) -> Vec<Value> {
        let mut values = self.unknown(inner);
        for value in values.iter_mut().filter(|value| is_followed(value.kind)) {
            *value = self.terms.constant(value.kind, 0);
        }
        values
    }

    /// The scalars of an expression that is known before the program runs.
    pub(super) fn constants(
        &mut self,
        arena: &'m Arena<Expression>,
        expression: Handle<Expression>,
    ) -> Option<Vec<Value>> {
        let module = self.module;
        Some(match &arena[expression] {
            Expression::Literal(literal) => vec![match *literal {
                Literal::U32(value) => self.terms.constant(Kind::U32, value.into()),
                Literal::I32(value) => self.terms.constant(Kind::I32, value.into()),
                Literal::Bool(value) => self.terms.constant(Kind::Bool, value.into()),
                other => self.terms.unknown(Kind::of(other.scalar())?),
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

    /// The values of an expression: as it was computed, or now where it is never computed.
    pub(super) fn values(&mut self, id: ActivationId, expression: Handle<Expression>) -> Vec<Value> {
        let function = self.analysis.activations[id].function;
        let found = match function.expressions[expression] {
            Expression::FunctionArgument(index) => match self.analysis.activations[id].caller {
                Some((caller, arguments)) => Some(self.values(caller, arguments[index as usize])),
                None => self.builtins(index),
            },
            ref given if given.needs_pre_emit() => self.constants(&function.expressions, expression),
            _ => self.values[id].get(&expression).cloned(),
        };
        self.shaped(id, expression, found)
    }

    /// As many values as the type has scalars, whatever was found.
    fn shaped(&mut self, id: ActivationId, expression: Handle<Expression>, found: Option<Vec<Value>>) -> Vec<Value> {
        let inner = self.inner(id, expression).clone();
        match leaf_count(self.module, &inner) {
            Some(count) => match found {
                Some(found) if found.len() == count as usize => found,
                _ => self.unknown(&inner),
            },
            None => Vec::new(),
        }
    }

    /// The scalars of an argument of the entry point.
    fn builtins(&mut self, index: u32) -> Option<Vec<Value>> {
        let argument = &self.analysis.activations[0].function.arguments[index as usize];
        let inner = &self.module.types[argument.ty].inner;
        let mut all = Vec::new();
        let mut add = |e: &mut Self, binding: &Option<Binding>, count: u32| {
            let Some(Binding::BuiltIn(builtin)) = binding else { return None };
            all.extend((0..count).map(|axis| {
                let range = e.builtin_range(*builtin, axis as usize);
                e.terms.value(Kind::U32, Origin::Builtin(*builtin, axis), range)
            }));
            Some(())
        };
        match inner {
            TypeInner::Struct { members, .. } => {
                for member in members {
                    let count = leaf_count(self.module, &self.module.types[member.ty].inner)?;
                    add(self, &member.binding, count)?;
                }
            }
            inner => add(self, &argument.binding, leaf_count(self.module, inner)?)?,
        }
        Some(all)
    }

    fn builtin_range(&self, builtin: BuiltIn, axis: usize) -> Interval {
        let size = self.module.entry_points[0].workgroup_size;
        let invocations = size.iter().product::<u32>();
        let below = |count: u32| Interval::new(0, i64::from(count) - 1);
        match builtin {
            BuiltIn::LocalInvocationId => below(size[axis]),
            BuiltIn::LocalInvocationIndex => below(invocations),
            BuiltIn::WorkGroupSize => Interval::exactly(size[axis].into()),
            BuiltIn::SubgroupInvocationId => below(LANES as u32),
            BuiltIn::SubgroupSize => Interval::exactly(LANES as i64),
            BuiltIn::SubgroupId => below(invocations.div_ceil(LANES as u32)),
            BuiltIn::NumSubgroups => Interval::exactly(invocations.div_ceil(LANES as u32).into()),
            _ => Interval::full(Kind::U32),
        }
    }

    pub(super) fn evaluate(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        state: &mut State,
    ) -> Vec<Value> {
        let found = self.find(id, expression, state);
        self.shaped(id, expression, found)
    }

    /// The values of an expression, as far as something is known about them.
    fn find(&mut self, id: ActivationId, expression: Handle<Expression>, state: &mut State) -> Option<Vec<Value>> {
        let given = &self.analysis.activations[id].function.expressions[expression];
        Some(match given {
            Expression::AccessIndex { base, index } => match pointee(self.module, self.inner(id, *base)) {
                Some(inner) => {
                    // Others are inside in any case.
                    if let TypeInner::Array { size: ArraySize::Dynamic, .. } = inner {
                        let index = self.terms.constant(Kind::U32, (*index).into());
                        self.judge(id, expression, (*base, &inner), index, &state.facts);
                    }
                    return None;
                }
                None => {
                    let (inner, _, first) = member(self.module, self.inner(id, *base), *index)?;
                    let count = leaf_count(self.module, &inner)? as usize;
                    self.values(id, *base).get(first as usize..first as usize + count)?.to_vec()
                }
            },
            Expression::Access { base, index } => {
                let inner = pointee(self.module, self.inner(id, *base))?;
                let index = *self.values(id, *index).first()?;
                self.judge(id, expression, (*base, &inner), index, &state.facts);
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
                let (variable, inner, at) = self.place(id, *pointer)?;
                let count = leaf_count(self.module, self.inner(id, expression))? as usize;
                self.variable(state, variable, &inner)?.get(at..at + count)?.to_vec()
            }
            Expression::ArrayLength(pointer) => vec![self.length(id, *pointer)?],
            _ => self.computed(id, given, &state.facts)?,
        })
    }

    /// How many elements the array of a buffer has.
    fn length(&mut self, id: ActivationId, pointer: Handle<Expression>) -> Option<Value> {
        let Some(Root::Global(global)) = self.analysis.root(id, pointer) else { return None };
        // Buffers are at least as long as one element, and shorter than this.
        let range = Interval::new(1, crate::abi::MAX_BOUND_BYTES as i64 - 1);
        Some(self.terms.value(Kind::U32, Origin::Length(global), range))
    }

    /// Finds out whether an index is inside of what a pointer leads to.
    fn judge(
        &mut self,
        id: ActivationId,
        expression: Handle<Expression>,
        (base, inner): (Handle<Expression>, &TypeInner),
        index: Value,
        facts: &Facts,
    ) {
        let length = match element(self.module, inner).map(|element| element.length) {
            Some(Some(length)) => Some(self.terms.constant(Kind::U32, length.into())),
            Some(None) => self.length(id, base),
            None => None,
        };
        if length.is_some_and(|length| self.terms.is_inside(facts, index, length)) {
            self.proven.insert((id, expression));
        } else {
            // An earlier round of a loop around knew too much.
            self.proven.remove(&(id, expression));
        }
    }

    /// What operators and functions make of scalars, each by itself.
    fn computed(&mut self, id: ActivationId, given: &Expression, facts: &Facts) -> Option<Vec<Value>> {
        let operands: Vec<Vec<Value>> =
            operands_of(given).into_iter().map(|operand| self.values(id, operand)).collect();
        if let Expression::Relational { fun: RelationalFunction::All, .. } = given {
            let (first, rest) = operands[0].split_first()?;
            let both = |all: Value, x: &Value| self.terms.condition(Condition::Both(all.term, x.term));
            return Some(vec![rest.iter().fold(*first, both)]);
        }
        let count = operands.iter().map(Vec::len).max()?;
        let at = |place: usize| {
            let pick = |values: &Vec<Value>| values.get(place).or(values.last()).copied();
            self.scalar(given, &operands.iter().map(pick).collect::<Option<Vec<_>>>()?, facts)
        };
        (0..count).map(at).collect()
    }

    fn scalar(&mut self, given: &Expression, operands: &[Value], facts: &Facts) -> Option<Value> {
        use naga::BinaryOperator as Op;
        let ranges: Vec<Interval> = operands.iter().map(|operand| facts.range(*operand)).collect();
        let kind = operands.first()?.kind;
        let with_range = |value: Value, range: Interval| Value { range, ..value };
        Some(match (given, operands) {
            (Expression::Unary { op: UnaryOperator::LogicalNot, .. }, [x]) => {
                self.terms.condition(Condition::Not(x.term))
            }
            (Expression::Binary { op, .. }, [x, y]) => match (op, kind) {
                (Op::LogicalAnd | Op::And, Kind::Bool) => self.terms.condition(Condition::Both(x.term, y.term)),
                (Op::LogicalOr | Op::InclusiveOr, Kind::Bool) => {
                    self.terms.condition(Condition::Either(x.term, y.term))
                }
                (_, kind) if !matches!(kind, Kind::I32 | Kind::U32) => return None,
                (Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual, _) => {
                    self.terms.condition(Condition::Compare(*op, *x, *y))
                }
                _ => {
                    let range = match op {
                        Op::Subtract => facts.difference(*x, *y),
                        _ => Interval::binary(*op, kind, ranges[0], ranges[1]),
                    };
                    self.terms.value(kind, Origin::Binary(*op, kind == Kind::I32, x.term, y.term), range)
                }
            },
            (Expression::Select { .. }, [_, yes, _]) => {
                with_range(self.terms.unknown(yes.kind), ranges[1].join(ranges[2]))
            }
            (Expression::Math { fun, .. }, _) if matches!(kind, Kind::I32 | Kind::U32) => {
                let range = Interval::math(*fun, kind, &ranges);
                match (fun, operands) {
                    (MathFunction::Min, [x, y]) => self.terms.value(kind, Origin::Minimum(x.term, y.term), range),
                    (MathFunction::Max | MathFunction::Clamp | MathFunction::Abs, _) => {
                        with_range(self.terms.unknown(kind), range)
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
                let range = ranges[0].converted(kind, to);
                let is_kept = range == ranges[0] && is_followed(kind);
                let value =
                    if is_kept && kind != Kind::Bool { Value { kind: to, ..*x } } else { self.terms.unknown(to) };
                with_range(value, range)
            }
            _ => return None,
        })
    }
}

/// Whether numbers of the kind are looked at.
fn is_followed(kind: Kind) -> bool {
    matches!(kind, Kind::I32 | Kind::U32 | Kind::Bool)
}
