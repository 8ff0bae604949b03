//! Facts about values: value numbers, intervals, and comparisons with other values.
//!
//! Equal values share a value number (as in global value numbering). A value never changes, so facts about it
//! stay true on every path that they dominate. A variable maps to the value that was stored last.

use super::interval::Interval;
use crate::types::Kind;
use crate::uniformity::Variable;
use naga::{BinaryOperator, BuiltIn, GlobalVariable, Handle};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Depth to which values made of other values are followed. Without a limit the work is exponential, because
/// operands may be shared.
const MAX_DEPTH: u32 = 8;

/// A value number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueNumber(usize);

/// How a value is computed. Values of the same origin are equal. Integers are mathematical integers regardless
/// of their kind, so that a conversion which keeps the integer keeps the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Constant(i64),
    Builtin(BuiltIn, u32),
    /// Length of a buffer's runtime-sized array.
    Length(Handle<GlobalVariable>),
    /// An operator on integers; the flag says whether they are signed.
    Binary(BinaryOperator, bool, ValueNumber, ValueNumber),
    Minimum(ValueNumber, ValueNumber),
    /// Anything else: equal only to itself.
    Unknown,
}

/// A scalar value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) number: ValueNumber,
    /// Its range where it was computed. [`Facts`] may narrow it later.
    pub(crate) range: Interval,
}

/// The condition that a boolean stands for.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Compare(BinaryOperator, Value, Value),
    Not(ValueNumber),
    And(ValueNumber, ValueNumber),
    Or(ValueNumber, ValueNumber),
    /// A boolean merged from two paths. If only one path can give false (true), the first (second) entry holds
    /// the facts of that path.
    Phi([Option<Rc<Facts>>; 2]),
}

/// Facts that hold at a point of the program, for active invocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    ranges: HashMap<ValueNumber, Interval>,
    /// Pairs whose first value is less than, or at most, the second.
    below: HashSet<(ValueNumber, ValueNumber)>,
    at_most: HashSet<(ValueNumber, ValueNumber)>,
}

impl Facts {
    /// Returns the range of a value at this point.
    pub(crate) fn range(&self, value: Value) -> Interval {
        self.ranges.get(&value.number).and_then(|range| range.meet(value.range)).unwrap_or(value.range)
    }

    /// Narrows the range of a value. A contradiction means that the point is unreachable; it is ignored, so
    /// that ranges are never empty.
    fn narrow(&mut self, value: Value, to: Interval) {
        if let Some(range) = self.range(value).meet(to) {
            self.ranges.insert(value.number, range);
        }
    }

    /// Returns the range of `x - y`. Unsigned subtraction wraps only if `x < y`.
    pub(crate) fn difference(&self, x: Value, y: Value) -> Interval {
        let (left, right) = (self.range(x), self.range(y));
        if x.kind == Kind::U32 && self.at_most.contains(&(y.number, x.number)) {
            // Contradictory facts on an unreachable path must not give an empty interval.
            return Interval::new(0, (left.high - right.low).max(0));
        }
        Interval::binary(BinaryOperator::Subtract, x.kind, left, right)
    }

    /// Facts that hold on both of two paths.
    pub(crate) fn join(&self, other: &Self) -> Self {
        // A range that only one path knows is dropped: on the other path the value is not narrowed.
        let both = |(number, range): (&ValueNumber, &Interval)| Some((*number, range.join(*other.ranges.get(number)?)));
        Self {
            ranges: self.ranges.iter().filter_map(both).collect(),
            below: self.below.intersection(&other.below).copied().collect(),
            at_most: self.at_most.intersection(&other.at_most).copied().collect(),
        }
    }

    /// Adds facts that hold as well.
    fn meet(&mut self, other: &Self) {
        for (number, range) in &other.ranges {
            let known = self.ranges.entry(*number).or_insert(*range);
            *known = known.meet(*range).unwrap_or(*known);
        }
        self.below.extend(&other.below);
        self.at_most.extend(&other.at_most);
    }
}

/// Facts and variables at a point of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) facts: Facts,
    pub(crate) variables: HashMap<Variable, Vec<Value>>,
}

impl State {
    /// Number of entries, which is what a clone costs.
    pub(crate) fn len(&self) -> usize {
        let Facts { ranges, below, at_most } = &self.facts;
        self.variables.len() + ranges.len() + below.len() + at_most.len()
    }
}

/// All value numbers, with what booleans imply.
#[derive(Debug, Default)]
pub(crate) struct ValueTable {
    origins: Vec<Origin>,
    numbers: HashMap<Origin, ValueNumber>,
    conditions: HashMap<ValueNumber, Condition>,
}

impl ValueTable {
    /// Returns the value of an origin. Equal origins have the same value number, except unknown ones.
    pub(crate) fn value(&mut self, kind: Kind, origin: Origin, range: Interval) -> Value {
        if let Some(number) = self.numbers.get(&origin) {
            // The number of the first computation, but the range of this one: facts may have narrowed the
            // operands in between.
            return Value { kind, number: *number, range };
        }
        let number = ValueNumber(self.origins.len());
        self.origins.push(origin);
        if origin != Origin::Unknown {
            self.numbers.insert(origin, number);
        }
        Value { kind, number, range }
    }

    /// Returns a new value that nothing is known about.
    pub(crate) fn unknown(&mut self, kind: Kind) -> Value {
        self.value(kind, Origin::Unknown, Interval::full(kind))
    }

    /// Returns the value of a constant.
    pub(crate) fn constant(&mut self, kind: Kind, value: i64) -> Value {
        self.value(kind, Origin::Constant(value), Interval::exact(value))
    }

    /// Returns a new boolean with what it implies.
    pub(crate) fn condition(&mut self, condition: Condition) -> Value {
        let value = self.unknown(Kind::Bool);
        self.conditions.insert(value.number, condition);
        value
    }

    /// Adds the facts that follow from a condition being true or false.
    pub(crate) fn assume(&self, facts: &mut Facts, condition: ValueNumber, is_true: bool) {
        self.assume_to(MAX_DEPTH, facts, condition, is_true);
    }

    /// [`assume`](Self::assume) up to a depth.
    fn assume_to(&self, depth: u32, facts: &mut Facts, condition: ValueNumber, is_true: bool) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let mut both = |x: &ValueNumber, y: &ValueNumber, is_true| {
            [x, y].iter().for_each(|x| self.assume_to(depth, facts, **x, is_true));
        };
        match self.conditions.get(&condition) {
            Some(Condition::Compare(op, x, y)) => self.assume_compared(facts, *op, is_true, *x, *y),
            Some(Condition::Not(other)) => self.assume_to(depth, facts, *other, !is_true),
            Some(Condition::And(x, y)) if is_true => both(x, y, true),
            Some(Condition::Or(x, y)) if !is_true => both(x, y, false),
            Some(Condition::Phi(ways)) => ways[usize::from(is_true)].iter().for_each(|facts_if| facts.meet(facts_if)),
            _ => {}
        }
    }

    /// Adds the facts that follow from a comparison.
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
            // Inequality with a constant at the edge of a range moves that edge.
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

    /// Adds that `x + by <= y`, where `by` is 0 or 1.
    fn assume_less(&self, facts: &mut Facts, x: Value, y: Value, by: i64) {
        let (left, right) = (facts.range(x), facts.range(y));
        // The bounds can be in the wrong order on an unreachable path. Then the intersection is empty and
        // `narrow` ignores it.
        facts.narrow(x, Interval::new(left.low, right.high - by));
        facts.narrow(y, Interval::new(left.low + by, right.high));
        facts.at_most.insert((x.number, y.number));
        if by == 1 {
            self.assume_below(MAX_DEPTH, facts, x.number, y.number);
        }
    }

    /// Adds that `x < bound`. A value below a minimum is below both operands.
    fn assume_below(&self, depth: u32, facts: &mut Facts, x: ValueNumber, bound: ValueNumber) {
        facts.below.insert((x, bound));
        if let (Origin::Minimum(a, b), Some(depth)) = (self.origins[bound.0], depth.checked_sub(1)) {
            self.assume_below(depth, facts, x, a);
            self.assume_below(depth, facts, x, b);
        }
    }

    /// Whether an index is in bounds of an array of this length, which has at least one element.
    pub(crate) fn is_in_bounds(&self, facts: &Facts, index: Value, length: Value) -> bool {
        let (range, lengths) = (facts.range(index), facts.range(length));
        // A negative `i32` is a large `u32` as an index, which a signed comparison with the length does not
        // exclude.
        range.low >= 0
            && (range.high < lengths.low || self.is_below(MAX_DEPTH, facts, index.number, length.number, lengths.low))
    }

    /// Whether `x < length` follows from a fact or from how `x` is computed. `least` is a lower bound of the
    /// length.
    fn is_below(&self, depth: u32, facts: &Facts, x: ValueNumber, length: ValueNumber, least: i64) -> bool {
        use BinaryOperator as Op;
        let Some(depth) = depth.checked_sub(1) else { return false };
        facts.below.contains(&(x, length))
            || match self.origins[x.0] {
                Origin::Minimum(a, b) => [a, b].iter().any(|x| self.is_below(depth, facts, *x, length, least)),
                // An unsigned remainder is below its divisor, if that is not zero.
                Origin::Binary(Op::Modulo, false, _, by) => by == length && least > 0,
                // `length - c` does not wrap if the length is at least `c`.
                Origin::Binary(Op::Subtract, false, from, by) => {
                    let is_less = matches!(self.origins[by.0], Origin::Constant(by) if (1..=least).contains(&by));
                    from == length && is_less
                }
                _ => false,
            }
    }

    /// Merges the values of two paths (a phi node).
    fn phi(&mut self, [x, y]: [(&Facts, Value); 2]) -> Value {
        let (left, right) = (x.0.range(x.1), y.0.range(y.1));
        // The same value on both paths keeps its number, and with it the facts that both paths share.
        if x.1.number == y.1.number {
            return Value { range: left.join(right), ..x.1 };
        }
        if x.1.kind != Kind::Bool {
            return Value { range: left.join(right), ..self.unknown(x.1.kind) };
        }
        // If one path always gives the opposite, the other one was taken.
        let facts_if = |is_true: bool| {
            let (facts, value) = match i64::from(!is_true) {
                other if left == Interval::exact(other) => y,
                other if right == Interval::exact(other) => x,
                _ => return None,
            };
            let mut facts = facts.clone();
            self.assume(&mut facts, value.number, is_true);
            Some(Rc::new(facts))
        };
        let ways = [facts_if(false), facts_if(true)];
        Value { range: left.join(right), ..self.condition(Condition::Phi(ways)) }
    }

    /// Merges the states of two paths.
    pub(crate) fn join(&mut self, x: &State, y: &State) -> State {
        let mut variables = HashMap::new();
        // The iteration order of the map changes value numbers from run to run, but not what can be proven.
        for (variable, values) in &x.variables {
            if let Some(others) = y.variables.get(variable) {
                let pairs = values.iter().zip(others);
                let phi = pairs.map(|(a, b)| self.phi([(&x.facts, *a), (&y.facts, *b)])).collect();
                variables.insert(*variable, phi);
            }
        }
        State { facts: x.facts.join(&y.facts), variables }
    }

    /// Merges lists of values of two paths.
    pub(crate) fn join_values(&mut self, x: (&Facts, &[Value]), y: (&Facts, &[Value])) -> Vec<Value> {
        x.1.iter().zip(y.1).map(|(a, b)| self.phi([(x.0, *a), (y.0, *b)])).collect()
    }
}
