//! The trace of an op, computed step by step, against the loops of the CPU: what a GPU is told is what the CPU does.

use super::{Samples, class_of, forms, number, one, result_class};
use crate::SimdLevel;
use crate::op::trace::{Expression, Trace, Type};

/// The result of a trace as a device with exact arithmetic and no fused multiply-add computes it.
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
                ("-", Type::F32) => (-float(a)).to_bits(),
                ("-", _) => of(a).wrapping_neg(),
                ("!", _) => u32::from(of(a) == 0),
                ("~", _) => !of(a),
                other => panic!("no operator {other:?}"),
            },
            Expression::Infix(operator, a, b) => infix(trace.steps[a].ty, operator, of(a), of(b)),
            Expression::Call(function, args) => {
                let [a, ..] = args.map(|id| id.map_or(0.0, float));
                let value = match function {
                    "abs" => a.abs(),
                    "sqrt" => a.sqrt(),
                    "inverseSqrt" => 1.0 / a.sqrt(),
                    "floor" => a.floor(),
                    "ceil" => a.ceil(),
                    "round" => a.round_ties_even(),
                    other => panic!("no function {other}"),
                };
                value.to_bits()
            }
        };
        values.push(value);
    }
    values[values.len() - 1]
}

fn infix(ty: Type, operator: &str, a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let (i, j) = (a as i32, b as i32);
    match (operator, ty) {
        ("+", Type::F32) => (x + y).to_bits(),
        ("-", Type::F32) => (x - y).to_bits(),
        ("*", Type::F32) => (x * y).to_bits(),
        ("/", Type::F32) => (x / y).to_bits(),
        ("==", Type::F32) => u32::from(x == y),
        ("<", Type::F32) => u32::from(x < y),
        ("<=", Type::F32) => u32::from(x <= y),
        ("+", _) => a.wrapping_add(b),
        ("-", _) => a.wrapping_sub(b),
        ("*", _) => a.wrapping_mul(b),
        ("/", Type::I32) => i.wrapping_div(j) as u32,
        ("/", _) => a / b,
        ("==", _) => u32::from(a == b),
        ("<", Type::I32) => u32::from(i < j),
        ("<", _) => u32::from(a < b),
        ("<=", Type::I32) => u32::from(i <= j),
        ("<=", _) => u32::from(a <= b),
        ("&", _) => a & b,
        ("|", _) => a | b,
        ("^", _) => a ^ b,
        ("<<", _) => a << b,
        (">>", _) => a >> b,
        other => panic!("no operator {other:?}"),
    }
}

/// R5.2: the recorded form of every op gives what the CPU gives, also for extreme operands.
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
        let trace = op.classes[class as usize].unwrap().trace();
        let result = result_class(op, class);
        let mut cases: Vec<Vec<u32>> = Vec::new();
        for _ in 0..300 {
            cases.push(samples.args(op, class, 1).into_iter().map(|arg| arg[0]).collect());
            cases.push((0..op.arity()).map(|_| EXTREME[samples.next() as usize % EXTREME.len()]).collect());
        }
        for args in cases {
            // Without fused multiply-add, as here, so the bits are the same on x86-64.
            let found = number(result, interpret(&trace, &args));
            let expected = number(result, one(op, class, SimdLevel::Scalar, &args));
            let mut bound = op.bound(result.dtype());
            if cfg!(target_arch = "x86_64") {
                (bound.ulps, bound.absolute) = (0.0, 0.0);
            }
            let inputs: Vec<f64> =
                args.iter().enumerate().map(|(arg, &word)| number(class_of(op, class, arg), word)).collect();
            assert!(
                bound.allows(result.dtype(), expected, found),
                "{op:?} {class:?} {inputs:?}: {expected:e} {found:e}"
            );
        }
    }
}
