//! Conversions between dtypes, bit by bit.

use crate::support::{Tensor, devices, map, run};
use half::{bf16, f16};
use kiln_ir::kernel::{Instruction, Operand};
use kiln_ir::{Class, DType, Layout, Shape};

/// Hard cases of conversions from `f32`: every upper half, with lower halves around the ties.
fn floats() -> Vec<f32> {
    let low = [0u32, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff];
    (0..=0xffffu32).step_by(7).flat_map(|high| low.map(|low| f32::from_bits(high << 16 | low))).collect()
}

fn tensor<T: bytemuck::Pod>(dtype: DType, values: &[T]) -> Tensor {
    let layout = Layout::contiguous(Shape::from(values.len()));
    Tensor { operand: Operand { dtype, layout }, bytes: bytemuck::cast_slice(values).to_vec() }
}

fn convert<T: bytemuck::Pod, R: bytemuck::Pod>(
    from: DType,
    values: &[T],
    code: &[Instruction],
    to: DType,
) -> Vec<Vec<R>> {
    let input = tensor(from, values);
    let kernel = map(&Shape::from(values.len()), std::slice::from_ref(&input.operand), code.to_vec(), to);
    let results = devices().iter().map(|(_, device)| run(device, &kernel, std::slice::from_ref(&input), &[]));
    results.map(|bytes| bytes.chunks(size_of::<R>()).map(bytemuck::pod_read_unaligned).collect()).collect()
}

const LOAD: Instruction = Instruction::Load { operand: 0 };

/// Stores round to the nearest, ties to even; NaN stays NaN.
#[test]
fn stored_halves_are_the_nearest() {
    let floats = floats();
    for found in convert::<f32, u16>(DType::F32, &floats, &[LOAD], DType::F16) {
        for (&float, found) in floats.iter().zip(found) {
            let (expected, found) = (f16::from_f32_const(float), f16::from_bits(found));
            assert!(
                expected.to_bits() == found.to_bits() || (expected.is_nan() && found.is_nan()),
                "{float:e} {found}"
            );
        }
    }
    for found in convert::<f32, u16>(DType::F32, &floats, &[LOAD], DType::BF16) {
        for (&float, found) in floats.iter().zip(found) {
            let (expected, found) = (bf16::from_f32(float), bf16::from_bits(found));
            assert!(
                expected.to_bits() == found.to_bits() || (expected.is_nan() && found.is_nan()),
                "{float:e} {found}"
            );
        }
    }
}

#[test]
fn loaded_halves_are_exact() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    for found in convert::<u16, f32>(DType::F16, &bits, &[LOAD], DType::F32) {
        for (&bits, found) in bits.iter().zip(found) {
            let expected = f16::from_bits(bits).to_f32_const();
            assert!(expected.to_bits() == found.to_bits() || (expected.is_nan() && found.is_nan()), "{bits:x}");
        }
    }
    for found in convert::<u16, f32>(DType::BF16, &bits, &[LOAD], DType::F32) {
        for (&bits, found) in bits.iter().zip(found) {
            assert_eq!(found.to_bits(), u32::from(bits) << 16);
        }
    }
}

/// Casts round or truncate as documented, and clamp.
#[test]
fn casts_of_floats_clamp_and_round() {
    let floats: Vec<f32> = [0.0, -0.0, 0.5, 1.5, -1.5, 254.9, 255.5, 256.0, -1.0, 65519.9, 65520.0, 3e9, -3e9, 5e9]
        .into_iter()
        .chain([f32::NAN, f32::INFINITY, f32::NEG_INFINITY])
        .collect();
    let cast = |to| [LOAD, Instruction::Cast { arg: 0, from: Class::Float, to }];
    for found in convert::<f32, i32>(DType::F32, &floats, &cast(DType::I32), DType::I32) {
        assert_eq!(found, floats.iter().map(|&x| x as i32).collect::<Vec<_>>());
    }
    for found in convert::<f32, u32>(DType::F32, &floats, &cast(DType::U32), DType::U32) {
        assert_eq!(found, floats.iter().map(|&x| x as u32).collect::<Vec<_>>());
    }
    for found in convert::<f32, u8>(DType::F32, &floats, &cast(DType::U8), DType::U8) {
        assert_eq!(found, [0, 0, 0, 1, 0, 254, 255, 255, 0, 255, 255, 255, 0, 255, 0, 255, 0]);
    }
    for found in convert::<f32, f32>(DType::F32, &floats, &cast(DType::F16), DType::F32) {
        for (&float, found) in floats.iter().zip(found) {
            let expected = f16::from_f64(float.into()).to_f32();
            assert!(expected == found || (float.is_nan() && found.is_nan()), "{float} {found}");
        }
    }
}

/// The nearest `bf16`, computed with integers only.
fn nearest_bf16(x: i32) -> bf16 {
    let (size, mut step) = (i64::from(x).abs(), 1);
    while size / step >= 256 {
        step *= 2;
    }
    let (digits, rest) = (size / step, size % step);
    let is_up = rest * 2 > step || rest * 2 == step && digits % 2 == 1;
    let nearest = (digits + i64::from(is_up)) * step;
    bf16::from_f32((nearest * i64::from(x.signum())) as f32)
}

#[test]
fn casts_of_integers_wrap_and_round_once() {
    let ints: Vec<i32> = [
        0,
        1,
        -1,
        255,
        256,
        -256,
        2049,
        65_519,
        16_777_217,
        -16_777_219,
        i32::MIN,
        i32::MAX,
        0x0102_0304,
        1_077_936_127,
        1_077_936_129,
    ]
    .into_iter()
    .chain((0..1000).map(|i: i32| i.wrapping_mul(2_654_435)))
    .collect();
    let cast = |to| [LOAD, Instruction::Cast { arg: 0, from: Class::Int, to }];
    for found in convert::<i32, u8>(DType::I32, &ints, &cast(DType::U8), DType::U8) {
        assert_eq!(found, ints.iter().map(|&x| x as u8).collect::<Vec<_>>());
    }
    for found in convert::<i32, u32>(DType::I32, &ints, &cast(DType::U32), DType::U32) {
        assert_eq!(found, ints.iter().map(|&x| x as u32).collect::<Vec<_>>());
    }
    for found in convert::<i32, f32>(DType::I32, &ints, &cast(DType::F32), DType::F32) {
        assert_eq!(found, ints.iter().map(|&x| x as f32).collect::<Vec<_>>());
    }
    for found in convert::<i32, f16>(DType::I32, &ints, &cast(DType::F16), DType::F16) {
        assert_eq!(found, ints.iter().map(|&x| f16::from_f64(x.into())).collect::<Vec<_>>());
    }
    for found in convert::<i32, bf16>(DType::I32, &ints, &cast(DType::BF16), DType::BF16) {
        assert_eq!(found, ints.iter().map(|&x| nearest_bf16(x)).collect::<Vec<_>>());
    }
}
