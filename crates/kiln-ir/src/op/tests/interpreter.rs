//! Interprets the trace of each op and compares it with the CPU loops: GPU code computes what the CPU does.

use super::{Samples, class_of, forms, number, one, result_class, whole};
use crate::SimdLevel;
use crate::op::{Expression, Function, Infix, Prefix, Trace, Type};

/// Evaluates a trace with exact arithmetic, without FMA.
fn interpret(trace: &Trace, args: &[u32]) -> u32 {
    let mut values: Vec<u32> = Vec::new();
    for step in &trace.steps {
        let of = |id: usize| values[id];
        let float = |id: usize| f32::from_bits(values[id]);
        let value = match step.expression {
            Expression::Arg(index) => args[index],
            Expression::Literal(bits) => bits,
            Expression::Bitcast(a) => of(a),
            Expression::Select([no, yes, mask]) => of(if of(mask) != 0 { yes } else { no }),
            Expression::Convert(a) => match (trace.steps[a].ty, step.ty) {
                (Type::F32, Type::I32) => float(a) as i32 as u32,
                (Type::I32, Type::F32) => (of(a) as i32 as f32).to_bits(),
                types => panic!("no conversion {types:?}"),
            },
            Expression::Prefix(operator, a) => match (operator, step.ty) {
                (Prefix::Neg, Type::F32) => (-float(a)).to_bits(),
                (Prefix::Neg, _) => of(a).wrapping_neg(),
                (Prefix::Not, _) => u32::from(of(a) == 0),
                (Prefix::Invert, _) => !of(a),
            },
            Expression::Infix(operator, a, b) => infix(trace.steps[a].ty, operator, of(a), of(b)),
            Expression::MulAdd([a, b, c]) => (float(a) * float(b) + float(c)).to_bits(),
            Expression::IsNan(a) => u32::from(float(a).is_nan()),
            Expression::Call(function, a) => {
                let a = float(a);
                let value = match function {
                    Function::Abs => a.abs(),
                    Function::Sqrt => a.sqrt(),
                    Function::InverseSqrt => 1.0 / a.sqrt(),
                    Function::Floor => a.floor(),
                    Function::Ceil => a.ceil(),
                    Function::Round => a.round_ties_even(),
                };
                value.to_bits()
            }
        };
        values.push(value);
    }
    values[values.len() - 1]
}

fn infix(ty: Type, operator: Infix, a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let (i, j) = (a as i32, b as i32);
    match (operator, ty) {
        (Infix::Add, Type::F32) => (x + y).to_bits(),
        (Infix::Sub, Type::F32) => (x - y).to_bits(),
        (Infix::Mul, Type::F32) => (x * y).to_bits(),
        (Infix::Div, Type::F32) => (x / y).to_bits(),
        (Infix::Eq, Type::F32) => u32::from(x == y),
        (Infix::Lt, Type::F32) => u32::from(x < y),
        (Infix::Le, Type::F32) => u32::from(x <= y),
        (Infix::Add, _) => a.wrapping_add(b),
        (Infix::Sub, _) => a.wrapping_sub(b),
        (Infix::Mul, _) => a.wrapping_mul(b),
        (Infix::Div, Type::I32) => i.wrapping_div(j) as u32,
        (Infix::Div, _) => a / b,
        (Infix::Eq, _) => u32::from(a == b),
        (Infix::Lt, Type::I32) => u32::from(i < j),
        (Infix::Lt, _) => u32::from(a < b),
        (Infix::Le, Type::I32) => u32::from(i <= j),
        (Infix::Le, _) => u32::from(a <= b),
        (Infix::And, _) => a & b,
        (Infix::Or, _) => a | b,
        (Infix::Xor, _) => a ^ b,
        (Infix::Shl, _) => a << b,
        (Infix::Shr, _) => a >> b,
    }
}

/// The trace of every op gives the result of the CPU, also for extreme operands.
#[test]
fn a_trace_computes_what_the_loops_compute() {
    const EXTREME: [u32; 12] = [
        0,
        1,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x7f7f_ffff,
        0x4170_0000,
        0xc2d0_0000,
        u32::MAX,
    ];
    let mut samples = Samples(4);
    for (op, class) in forms() {
        let trace = op.trace(class).unwrap();
        let result = result_class(op, class);
        let mut cases: Vec<Vec<u32>> = Vec::new();
        for _ in 0..300 {
            cases.push(samples.args(op, class, 1).into_iter().map(|arg| arg[0]).collect());
            cases.push((0..op.arity()).map(|_| EXTREME[samples.next() as usize % EXTREME.len()]).collect());
        }
        for args in cases {
            // The scalar loop has no FMA on x86-64 either, so the bits must be equal there.
            let found = number(result, interpret(&trace, &args));
            let expected = number(result, one(op, class, SimdLevel::Scalar, &args));
            let mut bound = op.error_bound(whole(result));
            if cfg!(target_arch = "x86_64") {
                (bound.ulps, bound.absolute) = (0.0, 0.0);
            }
            let inputs: Vec<f64> =
                args.iter().enumerate().map(|(arg, &word)| number(class_of(op, class, arg), word)).collect();
            assert!(
                bound.allows(whole(result), expected, found),
                "{op:?} {class:?} {inputs:?}: {expected:e} {found:e}"
            );
        }
    }
}
