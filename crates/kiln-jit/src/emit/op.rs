//! WGSL functions that are ops of `kiln-ir`'s table. They are emitted from the op's traced steps, the same that
//! tensor kernels use, so both have the same accuracy.

use super::lanes::Scalar;
use super::{Emitter, Result};
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, types};
use kiln_ir::Class;
use kiln_ir::op::{self, ElementOp, Expression, Function, Infix, Prefix, TraceStep, Type};
use naga::{BinaryOperator, MathFunction as Math, Span};

/// WGSL functions and their ops.
static OPS: [(Math, &ElementOp); 9] = [
    (Math::Sin, &op::SIN),
    (Math::Cos, &op::COS),
    (Math::Tan, &op::TAN),
    (Math::Tanh, &op::TANH),
    (Math::Exp, &op::EXP),
    (Math::Exp2, &op::EXP2),
    (Math::Log, &op::LOG),
    (Math::Log2, &op::LOG2),
    (Math::Pow, &op::POW),
];

/// Returns the op of a WGSL function.
pub(crate) fn op_of(function: Math) -> Option<&'static ElementOp> {
    OPS.iter().find(|(known, _)| *known == function).map(|(_, op)| *op)
}

impl Emitter<'_, '_> {
    /// Emits an op on floats. The result is rounded to the kind of the operands.
    pub(crate) fn element_op(&mut self, op: &ElementOp, scalars: &[Scalar], span: Span) -> Result<Scalar> {
        let kind = scalars[0].kind;
        // Steps refer to earlier steps by index, so one pass in order suffices.
        let trace = op.trace(Class::Float).expect("ops that WGSL has are ops on floats");
        let mut values: Vec<Scalar> = Vec::with_capacity(trace.steps.len());
        for step in &trace.steps {
            self.budget.spend(1, self.b.func, span)?;
            let value = self.step(step, scalars, &values);
            values.push(value);
        }
        let result = values.pop().expect("an op has steps");
        Ok(self.rounded(result.with_kind(kind)))
    }

    /// Emits one step of a trace.
    fn step(&mut self, step: &TraceStep, arguments: &[Scalar], values: &[Scalar]) -> Scalar {
        let kind = match step.ty {
            Type::F32 => Kind::F32,
            Type::I32 => Kind::I32,
            Type::U32 => Kind::U32,
            Type::Bool => Kind::Bool,
        };
        match step.expression {
            // An `f16` argument counts as `f32` from here on, so that the steps are not rounded; only the
            // result is.
            Expression::Arg(i) => arguments[i].with_kind(kind),
            // Literals are bits, so that NaN payloads and signed zeros survive.
            Expression::Literal(bits) => match kind {
                Kind::F32 | Kind::F16 => self.f32_uniform(f32::from_bits(bits)),
                Kind::I32 | Kind::U32 => self.u32_uniform(bits).with_kind(kind),
                Kind::Bool => self.constant(Kind::Bool, f64::from(bits)),
            },
            Expression::Prefix(Prefix::Not, x) => self.not(values[x]),
            Expression::Prefix(Prefix::Invert, x) => self.map(kind, values[x], |e, x| e.b.ins().bnot(x)),
            Expression::Prefix(Prefix::Neg, x) if kind == Kind::F32 => {
                self.map(kind, values[x], |e, x| e.b.ins().fneg(x))
            }
            Expression::Prefix(Prefix::Neg, x) => self.map(kind, values[x], |e, x| e.b.ins().ineg(x)),
            Expression::Infix(infix, x, y) => self.operator(operator(infix), values[x], values[y]),
            Expression::Call(function, x) => self.call_function(function, values[x]),
            Expression::MulAdd(operands) => self.mul_add(operands.map(|i| values[i])),
            Expression::IsNan(x) => self.compare_float(FloatCC::Unordered, values[x], values[x]),
            // Between integers a bit-cast only changes the kind.
            Expression::Bitcast(x) => match (values[x].kind.is_float(), kind.is_float()) {
                (true, false) => self.map(kind, values[x], Self::f32_to_bits),
                (false, true) => self.map(kind, values[x], Self::bits_to_f32),
                _ => values[x].with_kind(kind),
            },
            Expression::Convert(x) => self.convert_number(values[x], kind),
            Expression::Select([no, yes, mask]) => self.select(values[mask], values[yes], values[no]),
        }
    }

    /// Emits a unary function.
    fn call_function(&mut self, function: Function, x: Scalar) -> Scalar {
        let result = self.map(Kind::F32, x, |e, x| match function {
            Function::Abs => e.b.ins().fabs(x),
            Function::Sqrt | Function::InverseSqrt => e.b.ins().sqrt(x),
            Function::Floor => e.b.ins().floor(x),
            Function::Ceil => e.b.ins().ceil(x),
            Function::Round => e.b.ins().nearest(x),
        });
        if function != Function::InverseSqrt {
            return result;
        }
        // A division by the root: Cranelift has no reciprocal square root, and an estimate would be less
        // accurate.
        let one = self.f32_uniform(1.0);
        self.divide(one, result)
    }

    /// `x * y + z`, with one rounding if the processor has FMA.
    pub(crate) fn mul_add(&mut self, scalars: [Scalar; 3]) -> Scalar {
        let has_fma = self.runtime.has_fma;
        self.map_all(Kind::F32, scalars, |e, [x, y, z]| {
            if has_fma {
                return e.b.ins().fma(x, y, z);
            }
            let product = e.b.ins().fmul(x, y);
            e.b.ins().fadd(product, z)
        })
    }

    /// Converts between kinds. A float out of the integer's range gives an unspecified value; ops do not rely
    /// on it.
    fn convert_number(&mut self, x: Scalar, kind: Kind) -> Scalar {
        self.map(kind, x, |e, value| {
            let (floats, integers) =
                if e.is_vector(value) { (types::F32X4, types::I32X4) } else { (types::F32, types::I32) };
            match (x.kind, kind) {
                (Kind::F32, _) => e.b.ins().fcvt_to_sint_sat(integers, value),
                (Kind::U32, _) => e.b.ins().fcvt_from_uint(floats, value),
                _ => e.b.ins().fcvt_from_sint(floats, value),
            }
        })
    }
}

/// Maps an operator of the op table to naga's.
fn operator(infix: Infix) -> BinaryOperator {
    match infix {
        Infix::Add => BinaryOperator::Add,
        Infix::Sub => BinaryOperator::Subtract,
        Infix::Mul => BinaryOperator::Multiply,
        Infix::Div => BinaryOperator::Divide,
        Infix::And => BinaryOperator::And,
        Infix::Or => BinaryOperator::InclusiveOr,
        Infix::Xor => BinaryOperator::ExclusiveOr,
        Infix::Shl => BinaryOperator::ShiftLeft,
        Infix::Shr => BinaryOperator::ShiftRight,
        Infix::Eq => BinaryOperator::Equal,
        Infix::Lt => BinaryOperator::Less,
        Infix::Le => BinaryOperator::LessEqual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The op table is in another crate, so a checksum detects changes to it. A change alters the generated
    /// code, and so needs a new revision.
    #[test]
    fn a_change_of_the_op_table_requires_a_new_revision() {
        let steps = OPS.iter().flat_map(|(_, op)| op.trace(Class::Float).unwrap().steps);
        let text: String = steps.map(|step| format!("{step:?}\n")).collect();
        // FNV-1a.
        let sum = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(
            (crate::REVISION, sum),
            (13, 16_491_411_917_764_566_367),
            "count `REVISION` up and write the new sum here"
        );
    }
}
