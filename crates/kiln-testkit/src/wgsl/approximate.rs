//! Expressions whose accuracy WGSL leaves open: functions of exact arguments, in ranges where devices agree closely. They are assigned
//! to approximate variables only, and scaled down on the way, so that differences do not grow.

use super::scope::{Generator, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, F16, F32};

/// A unary function and the range of its argument.
type Unary = (&'static str, f64, f64);

const F32_UNARY: [Unary; 18] = [
    ("sin", -3.0, 3.0),
    ("cos", -3.0, 3.0),
    ("tan", -1.0, 1.0),
    ("asin", -0.9, 0.9),
    ("acos", -0.9, 0.9),
    ("atan", -999.0, 999.0),
    ("sinh", -3.0, 3.0),
    ("cosh", -3.0, 3.0),
    ("tanh", -90.0, 90.0),
    ("asinh", -900.0, 900.0),
    ("acosh", 1.5, 900.0),
    ("atanh", -0.8, 0.8),
    ("exp", -80.0, 4.0),
    ("exp2", -120.0, 6.0),
    ("log", 0.0625, 999.0),
    ("log2", 0.0625, 999.0),
    ("sqrt", 0.0625, 900.0),
    ("inverseSqrt", 0.0625, 900.0),
];
const F16_UNARY: [Unary; 18] = [
    ("sin", -3.0, 3.0),
    ("cos", -3.0, 3.0),
    ("tan", -1.0, 1.0),
    ("asin", -0.75, 0.75),
    ("acos", -0.75, 0.75),
    ("atan", -8.0, 8.0),
    ("sinh", -2.0, 2.0),
    ("cosh", -2.0, 2.0),
    ("tanh", -4.0, 4.0),
    ("asinh", -8.0, 8.0),
    ("acosh", 1.5, 8.0),
    ("atanh", -0.75, 0.75),
    ("exp", -2.0, 2.0),
    ("exp2", -3.0, 3.0),
    ("log", 0.25, 8.0),
    ("log2", 0.25, 8.0),
    ("sqrt", 0.25, 8.0),
    ("inverseSqrt", 0.25, 8.0),
];

impl Generator {
    /// Returns an approximate expression with a magnitude of at most 64 (`f16`: 16).
    pub(super) fn approximate(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        let value = self.approximate_sum(scalar, width, depth);
        let limit = if scalar == F16 { "16.0h" } else { "64.0f" };
        format!("clamp({value}, {ty}(-{limit}), {ty}({limit}))")
    }

    fn approximate_sum(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        let suffix = if scalar == F16 { "h" } else { "f" };
        let fits = |variable: &Variable| variable.is_approximate;
        match self.rng.below(8) {
            0 | 1 => match self.part(0, &ty, false, fits) {
                Some((path, _)) => format!("({path} * 0.5{suffix})"),
                None => self.inexact(scalar, width, depth),
            },
            2 if depth > 0 => {
                let (one, other) =
                    (self.approximate_sum(scalar, width, depth - 1), self.approximate_sum(scalar, width, depth - 1));
                match self.rng.below(3) {
                    0 => format!("{}({one}, {other})", self.choose(&["min", "max"])),
                    1 => format!("select({one}, {other}, {})", self.dynamic(&Type::Scalar(Bool), 1)),
                    _ => format!("(({one} {} {other}) * 0.5{suffix})", self.choose(&["+", "-"])),
                }
            }
            _ => self.inexact(scalar, width, depth),
        }
    }

    /// Returns an exact value within a range.
    fn within(&mut self, scalar: Scalar, width: usize, depth: usize, low: f64, high: f64) -> String {
        let ty = Type::wide(scalar, width);
        let suffix = if scalar == F16 { "h" } else { "f" };
        format!("clamp({}, {ty}({low:?}{suffix}), {ty}({high:?}{suffix}))", self.dynamic(&ty, depth))
    }

    fn inexact(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        if scalar == F16 {
            return self.half_function(width, depth.min(1));
        }
        let ty = Type::wide(F32, width);
        match self.rng.below(12) {
            0..5 => {
                let (name, low, high) = self.choose(&F32_UNARY);
                format!("{name}({})", self.within(F32, width, depth, low, high))
            }
            5 => format!(
                "({} / (abs({}) + 0.5f))",
                self.within(F32, width, depth, -30.0, 30.0),
                self.dynamic(&ty, depth)
            ),
            6 => format!(
                "pow({}, {})",
                self.within(F32, width, depth, 0.125, 4.0),
                self.within(F32, width, depth, -2.0, 2.0)
            ),
            7 => {
                let sides = self.dynamic(&Type::wide(Bool, width), depth);
                format!(
                    "atan2({} + 0.03f, select({ty}(-1.0f), {ty}(1.0f), {sides}) * {})",
                    self.within(F32, width, depth, -20.0, 20.0),
                    self.within(F32, width, depth, 0.5, 20.0)
                )
            }
            8 => {
                let (low, high) = (self.choose(&["-4.0f", "0.0f", "0.5f"]), self.choose(&["1.0f", "3.0f", "16.0f"]));
                format!("smoothstep({ty}({low}), {ty}({high}), {})", self.dynamic(&ty, depth))
            }
            9 => self.converted(width, depth),
            _ if width == 1 => self.length(F32, depth),
            _ => self.direction(F32, width, depth),
        }
    }

    fn half_function(&mut self, width: usize, depth: usize) -> String {
        let ty = Type::wide(F16, width);
        match self.rng.below(8) {
            0..4 => {
                let (name, low, high) = self.choose(&F16_UNARY);
                format!("{name}({})", self.within(F16, width, depth, low, high))
            }
            4 => {
                format!("({} / (abs({}) + 0.5h))", self.within(F16, width, depth, -4.0, 4.0), self.dynamic(&ty, depth))
            }
            5 => format!("smoothstep({ty}(-1.0h), {ty}(2.0h), {})", self.dynamic(&ty, depth)),
            _ if width == 1 => self.length(F16, depth),
            _ => self.direction(F16, width, depth),
        }
    }

    /// Returns a conversion between number formats or units.
    fn converted(&mut self, width: usize, depth: usize) -> String {
        let bits = self.dynamic(&Type::Scalar(Scalar::U32), depth);
        match (self.rng.below(3), width) {
            (0, _) => format!("quantizeToF16({})", self.within(F32, width, depth, -60.0, 60.0)),
            (_, 4) => format!("{}({bits})", self.choose(&["unpack4x8snorm", "unpack4x8unorm"])),
            (_, 2) => format!("{}({bits})", self.choose(&["unpack2x16snorm", "unpack2x16unorm"])),
            (1, _) => format!("radians({})", self.within(F32, width, depth, -360.0, 360.0)),
            _ => format!("degrees({})", self.within(F32, width, depth, -1.0, 1.0)),
        }
    }

    fn length(&mut self, scalar: Scalar, depth: usize) -> String {
        let width = 2 + self.rng.below(3);
        let (one, other) = (self.small(scalar, width, depth), self.small(scalar, width, depth));
        match self.rng.below(4) {
            0 => format!("length({one})"),
            1 => format!("distance({one}, {other})"),
            2 if scalar == F32 => {
                let matrix = Type::Matrix(F32, width, width);
                format!("determinant({} * 0.125f)", self.dynamic(&matrix, depth.min(1)))
            }
            _ => {
                let (one, other) = (self.direction(scalar, width, depth), self.direction(scalar, width, depth));
                format!("dot({one}, {other})")
            }
        }
    }

    /// Returns a unit vector, or a vector computed from unit vectors.
    fn direction(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let suffix = if scalar == F16 { "h" } else { "f" };
        let ty = Type::wide(scalar, width);
        let mut unit = |depth| format!("normalize(abs({}) + {ty}(1.0{suffix}))", self.small(scalar, width, depth));
        let (one, other) = (unit(depth), unit(depth));
        match self.rng.below(4) {
            0 => format!("reflect({one}, {other})"),
            // With a ratio below 1 there is always a refracted direction.
            1 => format!("refract({one}, {other}, 0.5{suffix})"),
            2 if width == 3 => format!("cross({one}, {other})"),
            _ => one,
        }
    }
}
