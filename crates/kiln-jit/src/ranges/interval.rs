//! Interval arithmetic on integers. An operation that may wrap gives the full range of its type.

use crate::types::Kind;
use naga::{BinaryOperator, MathFunction};

/// The integers from `low` to `high`, inclusive. Mathematical integers, not bit patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

impl Interval {
    /// The interval from `low` to `high`. `low` must not be greater.
    pub(crate) fn new(low: i64, high: i64) -> Self {
        Self { low, high }
    }

    /// The interval of one integer.
    pub(crate) fn exact(value: i64) -> Self {
        Self::new(value, value)
    }

    /// All values of a kind; unbounded if it is not an integer or boolean.
    pub(crate) fn full(kind: Kind) -> Self {
        match kind {
            Kind::I32 => Self::new(i32::MIN.into(), i32::MAX.into()),
            Kind::U32 => Self::new(0, u32::MAX.into()),
            Kind::Bool => Self::new(0, 1),
            _ => Self::new(i64::MIN, i64::MAX),
        }
    }

    /// Intersection; `None` if it is empty.
    pub(crate) fn meet(self, other: Self) -> Option<Self> {
        let met = Self::new(self.low.max(other.low), self.high.min(other.high));
        (met.low <= met.high).then_some(met)
    }

    /// Smallest interval that contains both.
    pub(crate) fn join(self, other: Self) -> Self {
        Self::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// Whether `other` is a subset.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// Widening: each bound that `next` exceeds moves to the bound of the kind, so that a loop reaches a fixed
    /// point after few iterations.
    pub(crate) fn widened(self, next: Self, kind: Kind) -> Self {
        let full = Self::full(kind);
        let low = if next.low < self.low { full.low } else { self.low };
        let high = if next.high > self.high { full.high } else { self.high };
        Self::new(low, high)
    }

    /// The range after a conversion: unchanged if the other kind represents all of it, otherwise the full
    /// range.
    pub(crate) fn converted(self, from: Kind, to: Kind) -> Self {
        let full = Self::full(to);
        let is_exact = matches!(from, Kind::I32 | Kind::U32 | Kind::Bool) && matches!(to, Kind::I32 | Kind::U32);
        if is_exact && full.contains(self) { self } else { full }
    }

    /// The hull of possible extreme results; the full range if one of them does not fit the kind.
    fn from_bounds(kind: Kind, bounds: [i128; 4]) -> Self {
        let full = Self::full(kind);
        let (low, high) = bounds.iter().fold((i128::MAX, i128::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
        if low < full.low.into() || high > full.high.into() { full } else { Self::new(low as i64, high as i64) }
    }

    /// Range of a binary operator as compiled code computes it (a zero divisor counts as 1, shifts use five
    /// bits).
    pub(crate) fn binary(op: BinaryOperator, kind: Kind, x: Self, y: Self) -> Self {
        use BinaryOperator as Op;
        if !matches!(kind, Kind::I32 | Kind::U32) {
            return Self::full(kind);
        }
        // The operators used with this are monotonic in each operand, so extremes are at the corners. `i128`
        // cannot overflow for 32-bit operands.
        let corners = |apply: fn(i128, i128) -> i128| {
            let (xs, ys) = ([x.low, x.high].map(i128::from), [y.low, y.high].map(i128::from));
            let bounds = [apply(xs[0], ys[0]), apply(xs[0], ys[1]), apply(xs[1], ys[0]), apply(xs[1], ys[1])];
            Self::from_bounds(kind, bounds)
        };
        let is_non_negative = x.low >= 0 && y.low >= 0;
        match op {
            Op::Add => corners(|x, y| x + y),
            Op::Subtract => corners(|x, y| x - y),
            Op::Multiply => corners(|x, y| x * y),
            // Negative operands and zero divisors have special cases in the generated code, so only ranges
            // without them are followed.
            Op::Divide if x.low >= 0 && y.low > 0 => Self::new(x.low / y.high, x.high / y.low),
            Op::Modulo if x.low >= 0 && y.low > x.high => x,
            Op::Modulo if x.low >= 0 && y.low > 0 => Self::new(0, x.high.min(y.high - 1)),
            Op::And if is_non_negative => Self::new(0, x.high.min(y.high)),
            Op::And if x.low >= 0 => Self::new(0, x.high),
            Op::And if y.low >= 0 => Self::new(0, y.high),
            Op::InclusiveOr | Op::ExclusiveOr if is_non_negative => {
                // The result has no bit above the highest of both operands.
                let bits = 64 - x.high.max(y.high).leading_zeros();
                let low = if op == Op::InclusiveOr { x.low.max(y.low) } else { 0 };
                Self::new(low, (1 << bits) - 1)
            }
            Op::ShiftLeft if is_non_negative && y.high < 32 => corners(|x, y| x << y),
            Op::ShiftRight if is_non_negative && y.high < 32 => Self::new(x.low >> y.high, x.high >> y.low),
            _ => Self::full(kind),
        }
    }

    /// Range of a function.
    pub(crate) fn math(fun: MathFunction, kind: Kind, operands: &[Self]) -> Self {
        let minimum = |x: Self, y: Self| Self::new(x.low.min(y.low), x.high.min(y.high));
        let maximum = |x: Self, y: Self| Self::new(x.low.max(y.low), x.high.max(y.high));
        match (fun, operands) {
            _ if !matches!(kind, Kind::I32 | Kind::U32) => Self::full(kind),
            (MathFunction::Min, [x, y]) => minimum(*x, *y),
            (MathFunction::Max, [x, y]) => maximum(*x, *y),
            (MathFunction::Clamp, [x, low, high]) => minimum(maximum(*x, *low), *high),
            (MathFunction::Abs, [x]) if x.low >= 0 => *x,
            _ => Self::full(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BinaryOperator as Op;

    /// Reference: what compiled code computes for two values of a kind.
    fn computed(op: Op, kind: Kind, x: i64, y: i64) -> i64 {
        let (x, y) = (x as u32, y as u32);
        let bits = match (op, kind) {
            (Op::Add, _) => x.wrapping_add(y),
            (Op::Subtract, _) => x.wrapping_sub(y),
            (Op::Multiply, _) => x.wrapping_mul(y),
            (Op::Divide, Kind::I32) => x.cast_signed().checked_div(y.cast_signed()).map_or(x, i32::cast_unsigned),
            (Op::Divide, _) => x.checked_div(y).unwrap_or(x),
            (Op::Modulo, Kind::I32) => x.cast_signed().checked_rem(y.cast_signed()).map_or(0, i32::cast_unsigned),
            (Op::Modulo, _) => x.checked_rem(y).unwrap_or(0),
            (Op::And, _) => x & y,
            (Op::InclusiveOr, _) => x | y,
            (Op::ExclusiveOr, _) => x ^ y,
            (Op::ShiftLeft, _) => x.wrapping_shl(y),
            (_, Kind::I32) => x.cast_signed().wrapping_shr(y).cast_unsigned(),
            _ => x.wrapping_shr(y),
        };
        if kind == Kind::I32 { bits.cast_signed().into() } else { bits.into() }
    }

    /// The interval of a result contains the result for all pairs of sample points, including wrapping ones.
    #[test]
    fn intervals_contain_every_result() {
        let ops = [
            Op::Add,
            Op::Subtract,
            Op::Multiply,
            Op::Divide,
            Op::Modulo,
            Op::And,
            Op::InclusiveOr,
            Op::ExclusiveOr,
            Op::ShiftLeft,
            Op::ShiftRight,
        ];
        let near = |center: i64| (center - 3..=center + 3).collect::<Vec<i64>>();
        for kind in [Kind::U32, Kind::I32] {
            let full = Interval::full(kind);
            let points: Vec<i64> = [0, 6, 16, 31, 1 << 16, i32::MAX.into(), full.low, full.high]
                .into_iter()
                .flat_map(near)
                .filter(|point| full.contains(Interval::exact(*point)))
                .collect();
            for (i, low) in points.iter().enumerate() {
                for x in points[i..].iter().map(|high| Interval::new(*low, *high.max(low))) {
                    for y in [x, Interval::new(0, 7), Interval::new(1, 40), Interval::new(16, 16), full] {
                        for op in ops {
                            let results = Interval::binary(op, kind, x, y);
                            let inside = |side: Interval| {
                                points.iter().copied().filter(move |point| side.contains(Interval::exact(*point)))
                            };
                            for (a, b) in inside(x).flat_map(|a| inside(y).map(move |b| (a, b))) {
                                let found = computed(op, kind, a, b);
                                assert!(
                                    results.contains(Interval::exact(found)),
                                    "{kind:?} {a} {op:?} {b} is {found}, of {x:?} and {y:?}: {results:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn intervals_are_tight() {
        let of = |low, high| Interval::new(low, high);
        let cases = [
            (Op::Add, of(0, 15), of(0, 240), of(0, 255)),
            (Op::Subtract, of(8, 9), of(1, 8), of(0, 8)),
            (Op::Subtract, of(0, 9), of(1, 8), Interval::full(Kind::U32)),
            (Op::Multiply, of(0, 15), of(16, 16), of(0, 240)),
            (Op::Multiply, of(0, 1), of(u32::MAX.into(), u32::MAX.into()), of(0, u32::MAX.into())),
            (Op::Multiply, of(0, 2), of(u32::MAX.into(), u32::MAX.into()), Interval::full(Kind::U32)),
            (Op::Divide, of(10, 21), of(2, 5), of(2, 10)),
            (Op::Modulo, Interval::full(Kind::U32), of(16, 16), of(0, 15)),
            (Op::And, Interval::full(Kind::U32), of(7, 7), of(0, 7)),
            (Op::InclusiveOr, of(0, 8), of(3, 3), of(3, 15)),
            (Op::ShiftLeft, of(1, 3), of(0, 4), of(1, 48)),
            (Op::ShiftRight, of(0, 128), of(1, 1), of(0, 64)),
        ];
        for (op, x, y, expected) in cases {
            assert_eq!(Interval::binary(op, Kind::U32, x, y), expected, "{op:?} {x:?} {y:?}");
        }
        assert_eq!(Interval::binary(Op::And, Kind::I32, Interval::full(Kind::I32), of(7, 7)), of(0, 7));
        assert_eq!(of(-1, 4).converted(Kind::I32, Kind::U32), Interval::full(Kind::U32));
        assert_eq!(of(0, 4).converted(Kind::I32, Kind::U32), of(0, 4));
        assert_eq!(of(0, 9).widened(of(1, 10), Kind::U32), of(0, u32::MAX.into()));
        let clamped = Interval::math(MathFunction::Clamp, Kind::I32, &[Interval::full(Kind::I32), of(0, 0), of(7, 7)]);
        assert_eq!(clamped, of(0, 7));
    }
}
