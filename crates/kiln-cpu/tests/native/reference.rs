//! References in `f64` for programs and reductions, element by element.

use crate::support::Tensor;
use half::{bf16, f16};
use kiln_ir::graph::Reduce;
use kiln_ir::kernel::Instruction;
use kiln_ir::{Class, DType, round_to_odd};

/// The results of a program for every element of a space. All numbers of a class are exact in `f64`; floats are rounded to
/// `f32` after each op, as the ops are defined.
pub(crate) fn evaluate(
    instructions: &[Instruction],
    operands: &[Tensor],
    scalars: &[u32],
    core: &[f64],
    elements: usize,
) -> Vec<f64> {
    let operands: Vec<Vec<f64>> = operands.iter().map(Tensor::numbers).collect();
    let element = |index: usize| {
        let mut values: Vec<f64> = Vec::new();
        for instruction in instructions {
            let value = match instruction {
                Instruction::Load { operand } => operands[*operand][index],
                Instruction::Scalar { scalar, class } => number(scalars[*scalar], *class),
                Instruction::Iota => index as f64,
                Instruction::Core { .. } => core[index],
                Instruction::Op { op, class, args } => {
                    let arg = |position: usize| values[args[position]];
                    in_class(apply(op.name, &arg), *class)
                }
                Instruction::Cast { arg, from, to } => cast(values[*arg], *from, *to),
            };
            values.push(value);
        }
        *values.last().unwrap()
    };
    (0..elements).map(element).collect()
}

fn number(word: u32, class: Class) -> f64 {
    match class {
        Class::Float => f32::from_bits(word).into(),
        Class::Int => (word as i32).into(),
        Class::Uint => word.into(),
        Class::Wide => panic!("programs compute in 32 bits"),
    }
}

fn apply(name: &str, arg: &dyn Fn(usize) -> f64) -> f64 {
    match name {
        "add" => arg(0) + arg(1),
        "sub" => arg(0) - arg(1),
        "mul" => arg(0) * arg(1),
        "neg" => -arg(0),
        "abs" => arg(0).abs(),
        "maximum" => arg(0).max(arg(1)),
        "minimum" => arg(0).min(arg(1)),
        "relu" => arg(0).max(0.0),
        "lt" => f64::from(arg(0) < arg(1)),
        "ge" => f64::from(arg(0) >= arg(1)),
        "where_" => arg(if arg(0) != 0.0 { 1 } else { 2 }),
        _ => panic!("the reference has no `{name}`"),
    }
}

/// A result of arithmetic: rounded, or wrapped.
fn in_class(value: f64, class: Class) -> f64 {
    match class {
        Class::Float => (value as f32).into(),
        Class::Int => (value as i64 as i32).into(),
        Class::Uint => (value as i64 as u32).into(),
        Class::Wide => panic!("programs compute in 32 bits"),
    }
}

pub(crate) fn cast(value: f64, from: Class, to: DType) -> f64 {
    match (from, to) {
        (_, DType::F16) => f16::from_f32(round_to_odd::f32_of(value)).to_f64(),
        (_, DType::BF16) => bf16::from_f32(round_to_odd::f32_of(value)).to_f64(),
        (_, DType::F32) => (value as f32).into(),
        (Class::Float, DType::I32) => (value as i32).into(),
        (Class::Float, DType::U32) => (value as u32).into(),
        (Class::Float, DType::U8) => (value as u8).into(),
        (Class::Float, DType::I8) => (value as i8).into(),
        (_, DType::I8) => (value as i64 as i8).into(),
        (_, DType::Bool) => f64::from(u8::from(value != 0.0)),
        (_, DType::I64 | DType::F64) => panic!("programs compute in 32 bits"),
        (_, DType::I32) => (value as i64 as i32).into(),
        (_, DType::U32) => (value as i64 as u32).into(),
        (_, DType::U8) => (value as i64 as u8).into(),
    }
}

/// Reduces each group of `reduced` adjacent elements to one.
pub(crate) fn reduce(op: Reduce, class: Class, values: &[f64], kept: usize, reduced: usize) -> Vec<f64> {
    let row = |row: usize| {
        let row = &values[row * reduced..(row + 1) * reduced];
        let best = |wins: fn(f64, f64) -> bool| {
            let mut best = 0;
            for (place, &value) in row.iter().enumerate() {
                if wins(value, row[best]) || (value.is_nan() && !row[best].is_nan()) {
                    best = place;
                }
            }
            best
        };
        match op {
            Reduce::Sum => in_class(row.iter().sum(), class),
            Reduce::Mean => row.iter().sum::<f64>() / reduced as f64,
            Reduce::Max => row[best(|a, b| a > b)],
            Reduce::Min => row[best(|a, b| a < b)],
            Reduce::ArgMax => best(|a, b| a > b) as f64,
            Reduce::ArgMin => best(|a, b| a < b) as f64,
        }
    };
    (0..kept).map(row).collect()
}
