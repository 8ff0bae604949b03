//! Conversions between all dtypes, at the limits of their ranges.

use super::{body, decode, devices, encode, map, run};
use half::{bf16, f16};
use kiln_ir::kernel::{Instruction, Kernel};
use kiln_ir::{Class, DType, Layout, Shape, round_to_odd};

fn cast(length: usize, from: DType, path: &[DType]) -> Kernel {
    let mut instructions = vec![Instruction::Load { operand: 0 }];
    let (mut class, mut last) = (from.class(), from);
    for &to in path {
        instructions.push(Instruction::Cast { arg: instructions.len() - 1, from: class, to });
        (class, last) = (to.class(), to);
    }
    let shape = Shape::from(length);
    map(body(&shape, from, &[Layout::contiguous(shape.clone())], instructions), last)
}

/// Converts a number as Rust does.
fn converted(value: f64, from: Class, to: DType) -> f64 {
    match (from, to) {
        (_, DType::F32) => f64::from(value as f32),
        (_, DType::F16) => f16::from_f32(round_to_odd::f32_of(value)).to_f64(),
        (_, DType::BF16) => bf16::from_f32(round_to_odd::f32_of(value)).to_f64(),
        (Class::Float, DType::I32) => f64::from(value as i32),
        (Class::Float, DType::U32) => f64::from(value as u32),
        (Class::Float, DType::U8) => f64::from(value as u8),
        (Class::Float, DType::I8) => f64::from(value as i8),
        (_, DType::I8) => f64::from(value as i64 as i8),
        (_, DType::Bool) => f64::from(u8::from(value != 0.0)),
        (_, DType::I64 | DType::F64) => panic!("programs compute in 32 bits"),
        (_, DType::I32) => f64::from(value as i64 as i32),
        (_, DType::U32) => f64::from(value as i64 as u32),
        (_, DType::U8) => f64::from(value as i64 as u8),
    }
}

fn is_same(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || (a == b && a.is_sign_negative() == b.is_sign_negative())
}

fn check(found: &[f64], expected: impl Iterator<Item = (f64, f64)>, what: &str) {
    for (&found, (value, expected)) in found.iter().zip(expected) {
        assert!(is_same(found, expected), "{what}: {value:e} expected {expected:e}, found {found:e}");
    }
}

/// Casts follow their documentation: round to nearest, saturate from floats, wrap between integers, NaN to 0.
#[test]
fn every_cast_is_that_of_the_documentation() {
    let numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        127.0,
        128.0,
        -128.0,
        -129.0,
        254.5,
        255.0,
        255.9,
        256.0,
        300.0,
        -300.7,
        2049.0,
        65504.0,
        65519.0,
        65520.0,
        1e5,
        16_777_216.0,
        16_777_217.0,
        16_777_219.0,
        // Next to the midpoint of two numbers of `bf16`, by less than `f32` keeps.
        1_077_936_127.0,
        1_077_936_129.0,
        -1_077_936_129.0,
        4_278_190_081.0,
        2_147_483_520.0,
        2_147_483_647.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        -2.2e9,
        4_294_967_040.0,
        4_294_967_295.0,
        4.3e9,
        1e-8,
        5.9e-8,
        6.1e-5,
        -3e-6,
        3e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    for device in devices() {
        for from in DType::NARROW {
            let operand = encode(from, &numbers);
            let values = decode(from, &operand);
            for to in DType::NARROW {
                let found = run(&device, &cast(numbers.len(), from, &[to]), std::slice::from_ref(&operand), &[]);
                let expected = values.iter().map(|&value| (value, converted(value, from.class(), to)));
                check(&found, expected, &format!("{from} to {to}"));
            }
        }
    }
}

/// Every value of both half-precision dtypes, and the inputs that round to it: ties on both sides and their neighbours.
#[test]
fn half_precision_is_rounded_to_the_nearest_and_ties_to_even() {
    let between = |low: f32, high: f32| {
        let tie = f32::midpoint(low, high);
        [tie.next_down(), tie, tie.next_up()]
    };
    let halves = (0..0xffffu16).step_by(3).flat_map(|bits| {
        let (low, high) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits + 1).to_f32());
        [vec![low], between(low, high).to_vec()].concat()
    });
    let brains = (0..0xffffu16).step_by(3).flat_map(|bits| {
        let (low, high) = (bf16::from_bits(bits).to_f32(), bf16::from_bits(bits + 1).to_f32());
        between(low, high)
    });
    // A driver may flush subnormal `f32` values to zero.
    let values: Vec<f64> =
        halves.chain(brains).filter(|value| *value == 0.0 || !value.is_subnormal()).map(f64::from).collect();
    let operand = encode(DType::F32, &values);
    for device in devices() {
        for to in [DType::F16, DType::BF16] {
            for path in [&[to][..], &[to, DType::F32]] {
                let found = run(&device, &cast(values.len(), DType::F32, path), std::slice::from_ref(&operand), &[]);
                let expected = values.iter().map(|&value| (value, converted(value, Class::Float, to)));
                check(&found, expected, &format!("{path:?}"));
            }
        }
    }
}

/// Every bit pattern of the packed dtypes is read exactly.
#[test]
fn every_half_is_read_exactly() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for device in devices() {
        for from in [DType::F16, DType::BF16] {
            let found = run(&device, &cast(1 << 16, from, &[DType::F32]), std::slice::from_ref(&bytes), &[]);
            let expected = decode(from, &bytes).into_iter().map(|value| (value, value));
            let expected: Vec<(f64, f64)> = expected.collect();
            for (found, (value, expected)) in found.iter().zip(expected) {
                // A driver may flush subnormal `f32` values to zero.
                let may_be_zero = (value as f32).is_subnormal() && *found == 0.0;
                assert!(is_same(*found, expected) || may_be_zero, "{from}: {value:e}, found {found:e}");
            }
        }
    }
}
