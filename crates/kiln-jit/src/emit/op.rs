//! Functions of the table of ops, on all lanes at once: the steps that tensors are computed with, so that both have one accuracy.

use super::lanes::Number;
use super::{Emitter, Result};
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, types};
use kiln_ir::Class;
use kiln_ir::op::{self, ElementOp, Expression, Function, Infix, Prefix, TraceStep, Type};
use naga::{BinaryOperator, MathFunction as Math, Span};

/// Functions of WGSL that are ops of the table.
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

/// The op that a function of WGSL is.
pub(crate) fn op_of(function: Math) -> Option<&'static ElementOp> {
    OPS.iter().find(|(known, _)| *known == function).map(|(_, op)| *op)
}

impl Emitter<'_, '_> {
    /// What an op on floats gives, rounded to the kind of its operands.
    pub(crate) fn element_op(&mut self, op: &ElementOp, numbers: &[Number], span: Span) -> Result<Number> {
        let kind = numbers[0].kind;
        let trace = op.trace(Class::Float).expect("ops that WGSL has are ops on floats");
        let mut values: Vec<Number> = Vec::with_capacity(trace.steps.len());
        for step in &trace.steps {
            self.budget.spend(1, self.b.func, span)?;
            let value = self.step(step, numbers, &values);
            values.push(value);
        }
        let result = values.pop().expect("an op has steps");
        Ok(self.rounded(result.with_kind(kind)))
    }

    fn step(&mut self, step: &TraceStep, arguments: &[Number], values: &[Number]) -> Number {
        let kind = match step.ty {
            Type::F32 => Kind::F32,
            Type::I32 => Kind::I32,
            Type::U32 => Kind::U32,
            Type::Bool => Kind::Bool,
        };
        match step.expression {
            Expression::Arg(place) => arguments[place].with_kind(kind),
            Expression::Literal(bits) => match kind {
                Kind::F32 | Kind::F16 => self.f32_same(f32::from_bits(bits)),
                Kind::I32 | Kind::U32 => self.u32_same(bits).with_kind(kind),
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
            Expression::MulAdd(places) => self.mul_add(places.map(|place| values[place])),
            Expression::IsNan(x) => self.compare_float(FloatCC::Unordered, values[x], values[x]),
            Expression::Bitcast(x) => match (values[x].kind.is_float(), kind.is_float()) {
                (true, false) => self.map(kind, values[x], Self::bits_of),
                (false, true) => self.map(kind, values[x], Self::float_of),
                _ => values[x].with_kind(kind),
            },
            Expression::Convert(x) => self.convert_number(values[x], kind),
            Expression::Select([no, yes, mask]) => self.select(values[mask], values[yes], values[no]),
        }
    }

    fn call_function(&mut self, function: Function, x: Number) -> Number {
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
        let one = self.f32_same(1.0);
        self.divide(one, result)
    }

    /// `x * y + z`, rounded once where there is an instruction for it.
    pub(crate) fn mul_add(&mut self, numbers: [Number; 3]) -> Number {
        let has_fma = self.runtime.has_fma;
        self.map_all(Kind::F32, numbers, |e, [x, y, z]| {
            if has_fma {
                return e.b.ins().fma(x, y, z);
            }
            let product = e.b.ins().fmul(x, y);
            e.b.ins().fadd(product, z)
        })
    }

    /// A number in another kind. A float that is no integer of that kind gives any.
    fn convert_number(&mut self, x: Number, kind: Kind) -> Number {
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

/// What WGSL calls it.
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

    /// What changes the code changes the key. The table is of another crate, so its functions are known here by a sum.
    #[test]
    fn a_change_of_the_table_is_a_new_revision() {
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
