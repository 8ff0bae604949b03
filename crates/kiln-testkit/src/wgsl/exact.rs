//! Expressions that have one value on every device.
//!
//! Integers are exact anyway. Floats in variables are multiples of 1/16 up to 999 (`f16`: of 1/4 up to 8), and those in matrices are
//! smaller still, so that a few sums and products of them do not overflow, produce no subnormals, and sums of products are exact in any
//! order. Operands of deeper expressions are rounded, by operations that WGSL requires to be correctly rounded.

use super::scope::{Access, Generator, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, F16, F32, I32, U32};

impl Generator {
    /// Returns an expression of a type, sometimes a literal or a constant.
    pub(super) fn exact(&mut self, ty: &Type, depth: usize) -> String {
        if self.chance(75) {
            return self.dynamic(ty, depth);
        }
        let constant = self.part(depth.min(1), ty, false, |variable| variable.access == Access::Constant);
        match constant {
            Some((path, _)) if self.chance(60) => path,
            _ => self.literal(ty),
        }
    }

    /// Returns an expression that is not constant. Arithmetic needs one, because overflow and division by zero in a constant expression are
    /// errors.
    pub(super) fn dynamic(&mut self, ty: &Type, depth: usize) -> String {
        match ty {
            Type::Scalar(scalar) | Type::Vector(scalar, _) => {
                let width = if let Type::Vector(_, width) = ty { *width } else { 1 };
                if depth == 0 || self.chance(15) {
                    return self.leaf(ty);
                }
                if self.chance(8)
                    && let Some(call) = self.call(ty, depth - 1)
                {
                    return call;
                }
                if width > 1 && self.chance(15) {
                    return self.assembled(*scalar, width, depth - 1);
                }
                match scalar {
                    Bool => self.logic(width, depth - 1),
                    I32 | U32 => self.integer(*scalar, width, depth - 1),
                    F32 => self.float(F32, width, depth - 1),
                    // Deeper products would overflow.
                    F16 => self.float(F16, width, (depth - 1).min(1)),
                }
            }
            _ if self.chance(50) => self.leaf(ty),
            _ => self.constructed(ty, depth.saturating_sub(1)),
        }
    }

    /// Returns an expression whose value may be stored in a variable: floats are brought into range.
    pub(super) fn stored(&mut self, ty: &Type, depth: usize) -> String {
        match ty {
            Type::Scalar(scalar) | Type::Vector(scalar, _) if scalar.is_float() => {
                let value = self.dynamic(ty, depth);
                self.in_range(ty, false, &value)
            }
            _ => self.dynamic(ty, depth),
        }
    }

    /// Returns a call of an emitted function that brings floats into range, or into the smaller range of a matrix.
    pub(super) fn in_range(&mut self, ty: &Type, is_small: bool, value: &str) -> String {
        let (scalar, width) = match ty {
            Type::Scalar(scalar) => (*scalar, 1),
            Type::Vector(scalar, width) => (*scalar, *width),
            _ => return value.to_string(),
        };
        if !scalar.is_float() {
            return value.to_string();
        }
        self.quantizers.insert((scalar == F32, width, is_small));
        format!("{}({value})", quantizer(scalar == F32, width, is_small))
    }

    /// Returns a vector or scalar so small that a few products and sums of such values are exact.
    pub(super) fn small(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let ty = Type::wide(scalar, width);
        let value = self.dynamic(&ty, depth);
        self.in_range(&ty, true, &value)
    }

    /// Returns a variable or a part of one.
    fn leaf(&mut self, ty: &Type) -> String {
        let depth = usize::from(self.chance(40));
        let fits = |variable: &Variable| variable.access != Access::Constant && !variable.is_approximate;
        if let Type::Vector(scalar, width) = ty
            && self.chance(20)
        {
            return self.swizzle(*scalar, *width);
        }
        match self.part(depth, ty, false, fits) {
            Some((path, _)) => path,
            None => self.fallback(ty),
        }
    }

    /// Returns components of a vector in scope, in any order.
    fn swizzle(&mut self, scalar: Scalar, width: usize) -> String {
        let from = 2 + self.rng.below(3);
        let fits = |variable: &Variable| variable.access != Access::Constant && !variable.is_approximate;
        let Some((path, _)) = self.part(0, &Type::Vector(scalar, from), false, fits) else {
            return self.fallback(&Type::Vector(scalar, width));
        };
        let letters: String = (0..width).map(|_| self.choose(&['x', 'y', 'z', 'w'][..from])).collect();
        format!("{path}.{letters}")
    }

    /// Returns a value of the type, from variables that every program has.
    fn fallback(&mut self, ty: &Type) -> String {
        match ty {
            Type::Scalar(I32) => "params.m0".to_string(),
            Type::Scalar(U32) => "params.m1".to_string(),
            Type::Scalar(F32) => "params.m2".to_string(),
            Type::Scalar(Bool) => format!("({} < params.m0)", self.leaf(&Type::Scalar(I32))),
            Type::Scalar(F16) => self.in_range(ty, false, "f16(params.m2)"),
            Type::Vector(scalar, width) => {
                let parts: Vec<String> = (0..*width).map(|_| self.leaf(&Type::Scalar(*scalar))).collect();
                format!("{ty}({})", parts.join(", "))
            }
            _ => self.constructed(ty, 0),
        }
    }

    /// Constructs a matrix, array or struct from its parts.
    fn constructed(&mut self, ty: &Type, depth: usize) -> String {
        let parts: Vec<String> = match ty {
            Type::Matrix(scalar, columns, rows) => {
                if let Some(transposed) = self.transposed(*scalar, *columns, *rows) {
                    return transposed;
                }
                if *scalar == F32 && self.has_f16 && self.chance(30) {
                    return format!("{ty}({})", self.dynamic(&Type::Matrix(F16, *columns, *rows), depth));
                }
                let (count, width) = if self.chance(20) { (columns * rows, 1) } else { (*columns, *rows) };
                (0..count).map(|_| self.small(*scalar, width, depth.min(width))).collect()
            }
            Type::Array(of, len) => (0..*len).map(|_| self.stored(of, depth)).collect(),
            Type::Struct(of) => of.members.iter().map(|member| self.stored(member, depth)).collect(),
            Type::Scalar(_) | Type::Vector(..) => return self.stored(ty, depth),
        };
        format!("{ty}({})", parts.join(", "))
    }

    /// Returns the transpose of a matrix in scope, sometimes. Its elements are in the range of a matrix already.
    fn transposed(&mut self, scalar: Scalar, columns: usize, rows: usize) -> Option<String> {
        if !self.chance(30) {
            return None;
        }
        let fits = |variable: &Variable| variable.access != Access::Constant;
        let (path, _) = self.part(0, &Type::Matrix(scalar, rows, columns), false, fits)?;
        Some(format!("transpose({path})"))
    }

    /// Constructs a vector from shorter ones and scalars.
    fn assembled(&mut self, scalar: Scalar, width: usize, depth: usize) -> String {
        let name = match self.rng.below(4) {
            0 => format!("vec{width}"),
            // The suffixes are in the order of `Scalar`, which begins with `Bool`.
            1 if scalar != Bool => format!("vec{width}{}", ["i", "u", "f", "h"][scalar as usize - 1]),
            _ => format!("vec{width}<{scalar}>"),
        };
        if self.chance(25) {
            return format!("{name}({})", self.dynamic(&Type::Scalar(scalar), depth));
        }
        let (mut left, mut parts) = (width, Vec::new());
        while left > 0 {
            let part = (1 + self.rng.below(width - 1)).min(left);
            parts.push(self.dynamic(&Type::wide(scalar, part), depth.min(1)));
            left -= part;
        }
        format!("{name}({})", parts.join(", "))
    }

    /// Returns a literal, or a composite of literals.
    pub(super) fn literal(&mut self, ty: &Type) -> String {
        self.literal_within(ty, false)
    }

    fn literal_within(&mut self, ty: &Type, in_matrix: bool) -> String {
        let parts: Vec<(Type, bool)> = match ty {
            Type::Scalar(scalar) => return self.scalar_literal(*scalar, in_matrix),
            Type::Array(..) | Type::Struct(_) if self.chance(20) => Vec::new(),
            Type::Vector(scalar, width) => vec![(Type::Scalar(*scalar), in_matrix); *width],
            Type::Matrix(scalar, columns, rows) => vec![(Type::Vector(*scalar, *rows), true); *columns],
            Type::Array(of, len) => vec![((**of).clone(), false); *len],
            Type::Struct(of) => of.members.iter().map(|member| (member.clone(), false)).collect(),
        };
        let parts: Vec<String> = parts.iter().map(|(part, in_matrix)| self.literal_within(part, *in_matrix)).collect();
        format!("{ty}({})", parts.join(", "))
    }

    fn scalar_literal(&mut self, scalar: Scalar, in_matrix: bool) -> String {
        match scalar {
            Bool => self.choose(&["true", "false"]).to_string(),
            I32 if self.chance(10) => self.choose(&["i32(-2147483648)", "2147483647i", "-1i", "65535i"]).to_string(),
            I32 => format!("{}i", self.rng.below(61) as i32 - 30),
            U32 if self.chance(10) => self.choose(&["4294967295u", "2147483648u", "0u", "255u"]).to_string(),
            U32 => format!("{}u", self.rng.below(40)),
            F32 => format!("{:?}", (self.rng.below(513) as f32 - 256.0) / 16.0),
            F16 => {
                let quarters = if in_matrix { 8 } else { 32 };
                format!("{:?}h", (self.rng.below(2 * quarters + 1) as f32 - quarters as f32) / 4.0)
            }
        }
    }
}

/// Returns the name of the emitted function that brings floats into range: it clamps them, and rounds down to a multiple of 1/16 (`f32`) or
/// 1/4 (`f16`).
pub(super) fn quantizer(is_f32: bool, width: usize, is_small: bool) -> String {
    format!("q{}{}{width}", if is_f32 { 'f' } else { 'h' }, if is_small { "s" } else { "" })
}

/// Renders the function named by [`quantizer`].
pub(super) fn quantizer_text(is_f32: bool, width: usize, is_small: bool) -> String {
    let (scalar, limit, steps) = match (is_f32, is_small) {
        (true, false) => (F32, "999.0f", "16.0f"),
        (true, true) => (F32, "16.0f", "16.0f"),
        (false, false) => (F16, "8.0h", "4.0h"),
        (false, true) => (F16, "2.0h", "4.0h"),
    };
    let (ty, name) = (Type::wide(scalar, width), quantizer(is_f32, width, is_small));
    let step = if is_f32 { "0.0625f" } else { "0.25h" };
    let value = format!("floor(clamp(x, {ty}(-{limit}), {ty}({limit})) * {steps}) * {step}");
    format!("fn {name}(x: {ty}) -> {ty} {{\nreturn {value}; // keep\n}}")
}
