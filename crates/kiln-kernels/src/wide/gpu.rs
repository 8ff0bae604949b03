//! Conversions to and from 64 bits in WGSL, which has no 64-bit numbers: integer arithmetic on pairs of words.

use super::WideConvert;
use crate::offsets::{element_kernel, number_type, offsets};
use crate::strided::StridedIter;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{Class, DType, Result};

/// WGSL functions used by the conversions.
const FUNCTIONS: &str = include_str!("convert.wgsl");

pub(super) fn convert(op: &WideConvert, call: &WgslCall<'_>) -> Result<WgslKernel> {
    let x = &call.operands[0];
    let iter = StridedIter::over(&x.layout);
    let mut builder = call.builder();
    let functions = offsets(&mut builder, "at", &iter);
    let (number, value) = (number_type(op.to), value(x.dtype, op));
    let text = format!(
        "{FUNCTIONS}{functions}fn element(i: u32) -> {number} {{\n    let x = load_0(at0(i));\n    return {value};\n}}\n"
    );
    Ok(element_kernel(builder, iter.items(), &text))
}

/// Renders the conversion of the element `x` from a dtype to that of the result, in its class.
fn value(from: DType, op: &WideConvert) -> String {
    let of_i64 = |x: &str| match op.to {
        // A negative or too large index has a high word that is not 0.
        DType::U32 if op.is_index => format!("select(0xffffffffu, {x}.x, {x}.y == 0u)"),
        DType::I32 => format!("bitcast<i32>({x}.x)"),
        DType::U32 => format!("{x}.x"),
        DType::U8 => format!("({x}.x & 0xffu)"),
        DType::I8 => format!("(bitcast<i32>({x}.x << 24u) >> 24u)"),
        DType::Bool => format!("u32(any({x} != vec2<u32>(0u)))"),
        DType::F32 => format!("i64_to_f32({x}, false)"),
        // The store rounds again, so this rounds to odd.
        DType::F16 | DType::BF16 => format!("i64_to_f32({x}, true)"),
        DType::F64 => format!("i64_to_f64({x})"),
        DType::I64 => x.to_string(),
    };
    let of_f64 = |x: &str| match op.to {
        DType::I32 => format!("clamp_to_i32(f64_to_i64({x}))"),
        DType::U32 => format!("clamp_to_u32(f64_to_i64({x}))"),
        DType::U8 => format!("u32(clamp(clamp_to_i32(f64_to_i64({x})), 0, 255))"),
        DType::I8 => format!("clamp(clamp_to_i32(f64_to_i64({x})), -128, 127)"),
        // Without the sign bit, because -0.0 is false.
        DType::Bool => format!("u32(any(({x} & vec2<u32>(0xffffffffu, 0x7fffffffu)) != vec2<u32>(0u)))"),
        DType::F32 => format!("f64_to_f32({x}, false)"),
        DType::F16 | DType::BF16 => format!("f64_to_f32({x}, true)"),
        DType::F64 => x.to_string(),
        DType::I64 => format!("f64_to_i64({x})"),
    };
    match (from, from.class(), op.to) {
        (DType::I64, ..) => of_i64("x"),
        (DType::F64, ..) => of_f64("x"),
        // Every float of up to 32 bits is exact in `f64`, and every integer in `i64`. The shift of an `i32` extends its sign to the high word.
        (_, Class::Float, _) => of_f64("f32_to_f64(x)"),
        (_, Class::Int, _) => of_i64("vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u))"),
        (DType::Bool, ..) => of_i64("vec2<u32>(select(0u, 1u, x != 0u), 0u)"),
        (..) => of_i64("vec2<u32>(x, 0u)"),
    }
}
