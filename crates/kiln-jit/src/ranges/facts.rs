//! What is known about values: each has a name that equal values share, an interval, and lengths that it is below.
//!
//! A value never changes, so what is known about it stays known. Variables change: each has the value that was stored last.

use super::interval::Interval;
use crate::analysis::Variable;
use crate::types::Kind;
use naga::{BinaryOperator, BuiltIn, GlobalVariable, Handle};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// How far values are followed that are made of others: each may be made of two, and of the same one twice.
const MAX_DEPTH: u32 = 8;

/// The name of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term(usize);

/// What a value is made of. An integer is the number, whatever its kind, so that a conversion which keeps it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Constant(i64),
    Builtin(BuiltIn, u32),
    /// How many elements the array of a buffer has.
    Length(Handle<GlobalVariable>),
    /// An operator on integers, which may be signed.
    Binary(BinaryOperator, bool, Term, Term),
    Minimum(Term, Term),
    /// Something else: equal only to itself.
    Unknown,
}

/// A scalar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) term: Term,
    /// Where it is, as far as was known where it was computed.
    pub(crate) range: Interval,
}

/// What a boolean says when it is true or false.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Compare(BinaryOperator, Value, Value),
    Not(Term),
    Both(Term, Term),
    Either(Term, Term),
    /// Of two ways that met: what holds on the only one that gives false, and on the only one that gives true.
    Met([Option<Rc<Facts>>; 2]),
}

/// What holds at a point of the program, for active invocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    ranges: HashMap<Term, Interval>,
    /// The first is less than the second, or at most as much.
    below: HashSet<(Term, Term)>,
    at_most: HashSet<(Term, Term)>,
}

impl Facts {
    /// Where a value is here.
    pub(crate) fn range(&self, value: Value) -> Interval {
        self.ranges.get(&value.term).and_then(|range| range.meet(value.range)).unwrap_or(value.range)
    }

    /// Notes where a value is. What contradicts the rest is never reached, and changes nothing.
    fn narrow(&mut self, value: Value, to: Interval) {
        if let Some(range) = self.range(value).meet(to) {
            self.ranges.insert(value.term, range);
        }
    }

    /// Where a difference of natural numbers is, which wraps only where the first is less.
    pub(crate) fn difference(&self, x: Value, y: Value) -> Interval {
        let (left, right) = (self.range(x), self.range(y));
        if x.kind == Kind::U32 && self.at_most.contains(&(y.term, x.term)) {
            // Where that cannot be, nothing runs, and an interval is one all the same.
            return Interval::new(0, (left.high - right.low).max(0));
        }
        Interval::binary(BinaryOperator::Subtract, x.kind, left, right)
    }

    /// What holds whichever of two ways was taken.
    pub(crate) fn join(&self, other: &Self) -> Self {
        let both = |(term, range): (&Term, &Interval)| Some((*term, range.join(*other.ranges.get(term)?)));
        Self {
            ranges: self.ranges.iter().filter_map(both).collect(),
            below: self.below.intersection(&other.below).copied().collect(),
            at_most: self.at_most.intersection(&other.at_most).copied().collect(),
        }
    }

    /// Adds what holds as well.
    fn meet(&mut self, other: &Self) {
        for (term, range) in &other.ranges {
            let known = self.ranges.entry(*term).or_insert(*range);
            *known = known.meet(*range).unwrap_or(*known);
        }
        self.below.extend(&other.below);
        self.at_most.extend(&other.at_most);
    }
}

/// What is known at a place of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) facts: Facts,
    pub(crate) variables: HashMap<Variable, Vec<Value>>,
}

impl State {
    /// How much is known.
    pub(crate) fn len(&self) -> usize {
        let Facts { ranges, below, at_most } = &self.facts;
        self.variables.len() + ranges.len() + below.len() + at_most.len()
    }
}

/// All values so far.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    origins: Vec<Origin>,
    known: HashMap<Origin, Term>,
    conditions: HashMap<Term, Condition>,
}

impl Terms {
    /// The value that is made in this way: the same each time, unless it is unknown.
    pub(crate) fn value(&mut self, kind: Kind, origin: Origin, range: Interval) -> Value {
        if let Some(term) = self.known.get(&origin) {
            return Value { kind, term: *term, range };
        }
        let term = Term(self.origins.len());
        self.origins.push(origin);
        if origin != Origin::Unknown {
            self.known.insert(origin, term);
        }
        Value { kind, term, range }
    }

    pub(crate) fn unknown(&mut self, kind: Kind) -> Value {
        self.value(kind, Origin::Unknown, Interval::full(kind))
    }

    pub(crate) fn constant(&mut self, kind: Kind, value: i64) -> Value {
        self.value(kind, Origin::Constant(value), Interval::exactly(value))
    }

    pub(crate) fn condition(&mut self, condition: Condition) -> Value {
        let value = self.unknown(Kind::Bool);
        self.conditions.insert(value.term, condition);
        value
    }

    /// Adds what a condition says.
    pub(crate) fn assume(&self, facts: &mut Facts, condition: Term, is_true: bool) {
        self.assume_to(MAX_DEPTH, facts, condition, is_true);
    }

    fn assume_to(&self, depth: u32, facts: &mut Facts, condition: Term, is_true: bool) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let mut both = |x: &Term, y: &Term, is_true| {
            [x, y].iter().for_each(|x| self.assume_to(depth, facts, **x, is_true));
        };
        match self.conditions.get(&condition) {
            Some(Condition::Compare(op, x, y)) => self.assume_compared(facts, *op, is_true, *x, *y),
            Some(Condition::Not(other)) => self.assume_to(depth, facts, *other, !is_true),
            Some(Condition::Both(x, y)) if is_true => both(x, y, true),
            Some(Condition::Either(x, y)) if !is_true => both(x, y, false),
            Some(Condition::Met(ways)) => ways[usize::from(is_true)].iter().for_each(|way| facts.meet(way)),
            _ => {}
        }
    }

    fn assume_compared(&self, facts: &mut Facts, op: BinaryOperator, is_true: bool, x: Value, y: Value) {
        use BinaryOperator as Op;
        match (op, is_true) {
            (Op::Less, true) | (Op::GreaterEqual, false) => self.assume_less(facts, x, y, 1),
            (Op::Greater, true) | (Op::LessEqual, false) => self.assume_less(facts, y, x, 1),
            (Op::LessEqual, true) | (Op::Greater, false) => self.assume_less(facts, x, y, 0),
            (Op::GreaterEqual, true) | (Op::Less, false) => self.assume_less(facts, y, x, 0),
            (Op::Equal, true) | (Op::NotEqual, false) => {
                facts.narrow(x, facts.range(y));
                facts.narrow(y, facts.range(x));
            }
            (Op::NotEqual, true) | (Op::Equal, false) => {
                for (x, y) in [(x, y), (y, x)] {
                    let (range, other) = (facts.range(x), facts.range(y));
                    if other.low == other.high {
                        let low = range.low + i64::from(range.low == other.low);
                        let high = range.high - i64::from(range.high == other.high);
                        facts.narrow(x, Interval::new(low, high));
                    }
                }
            }
            _ => {}
        }
    }

    /// That `x` and `by` are at most `y`.
    fn assume_less(&self, facts: &mut Facts, x: Value, y: Value, by: i64) {
        let (left, right) = (facts.range(x), facts.range(y));
        facts.narrow(x, Interval::new(left.low, right.high - by));
        facts.narrow(y, Interval::new(left.low + by, right.high));
        facts.at_most.insert((x.term, y.term));
        if by == 1 {
            self.assume_below(MAX_DEPTH, facts, x.term, y.term);
        }
    }

    fn assume_below(&self, depth: u32, facts: &mut Facts, x: Term, bound: Term) {
        facts.below.insert((x, bound));
        if let (Origin::Minimum(a, b), Some(depth)) = (self.origins[bound.0], depth.checked_sub(1)) {
            self.assume_below(depth, facts, x, a);
            self.assume_below(depth, facts, x, b);
        }
    }

    /// Whether an index is inside of an array of this length, which has at least one element.
    pub(crate) fn is_inside(&self, facts: &Facts, index: Value, length: Value) -> bool {
        let (range, lengths) = (facts.range(index), facts.range(length));
        range.low >= 0
            && (range.high < lengths.low || self.is_below(MAX_DEPTH, facts, index.term, length.term, lengths.low))
    }

    fn is_below(&self, depth: u32, facts: &Facts, x: Term, length: Term, least: i64) -> bool {
        use BinaryOperator as Op;
        let Some(depth) = depth.checked_sub(1) else { return false };
        facts.below.contains(&(x, length))
            || match self.origins[x.0] {
                Origin::Minimum(a, b) => [a, b].iter().any(|x| self.is_below(depth, facts, *x, length, least)),
                Origin::Binary(Op::Modulo, false, _, by) => by == length && least > 0,
                Origin::Binary(Op::Subtract, false, from, by) => {
                    let is_less = matches!(self.origins[by.0], Origin::Constant(by) if (1..=least).contains(&by));
                    from == length && is_less
                }
                _ => false,
            }
    }

    /// What a value is that two ways, which met, give.
    fn met(&mut self, [x, y]: [(&Facts, Value); 2]) -> Value {
        let (left, right) = (x.0.range(x.1), y.0.range(y.1));
        if x.1.term == y.1.term {
            return Value { range: left.join(right), ..x.1 };
        }
        if x.1.kind != Kind::Bool {
            return Value { range: left.join(right), ..self.unknown(x.1.kind) };
        }
        let way = |is_true: bool| {
            let (facts, value) = match i64::from(!is_true) {
                other if left == Interval::exactly(other) => y,
                other if right == Interval::exactly(other) => x,
                _ => return None,
            };
            let mut facts = facts.clone();
            self.assume(&mut facts, value.term, is_true);
            Some(Rc::new(facts))
        };
        let ways = [way(false), way(true)];
        Value { range: left.join(right), ..self.condition(Condition::Met(ways)) }
    }

    /// What is known where two ways meet.
    pub(crate) fn join(&mut self, x: &State, y: &State) -> State {
        let mut variables = HashMap::new();
        // In the order of one map, which is not that of the other: names differ from run to run, what is proven does not.
        for (variable, values) in &x.variables {
            if let Some(others) = y.variables.get(variable) {
                let pairs = values.iter().zip(others);
                let met = pairs.map(|(a, b)| self.met([(&x.facts, *a), (&y.facts, *b)])).collect();
                variables.insert(*variable, met);
            }
        }
        State { facts: x.facts.join(&y.facts), variables }
    }

    /// The values that two ways give.
    pub(crate) fn join_values(&mut self, x: (&Facts, &[Value]), y: (&Facts, &[Value])) -> Vec<Value> {
        x.1.iter().zip(y.1).map(|(a, b)| self.met([(x.0, *a), (y.0, *b)])).collect()
    }
}
