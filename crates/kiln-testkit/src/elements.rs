//! Conversion of numbers to elements of a dtype and back. `f64` holds every element exactly, except `I64` beyond 2^53.

use half::{bf16, f16};
use kiln_ir::{DType, round_to_odd};

/// Encodes numbers as little-endian elements: floats rounded once, to nearest; integers truncated and clamped, 0 for NaN.
pub fn encode(numbers: &[f64], dtype: DType) -> Vec<u8> {
    let each = |encode: &dyn Fn(f64, &mut Vec<u8>)| {
        let mut bytes = Vec::with_capacity(numbers.len() * dtype.bytes());
        numbers.iter().for_each(|&number| encode(number, &mut bytes));
        bytes
    };
    match dtype {
        DType::F16 => each(&|number, bytes| bytes.extend(f16::from_f32(round_to_odd::f32_of(number)).to_le_bytes())),
        DType::BF16 => each(&|number, bytes| bytes.extend(bf16::from_f32(round_to_odd::f32_of(number)).to_le_bytes())),
        DType::F32 => each(&|number, bytes| bytes.extend((number as f32).to_le_bytes())),
        DType::I32 => each(&|number, bytes| bytes.extend((number as i32).to_le_bytes())),
        DType::U32 => each(&|number, bytes| bytes.extend((number as u32).to_le_bytes())),
        DType::U8 => each(&|number, bytes| bytes.push(number as u8)),
        DType::I8 => each(&|number, bytes| bytes.push(number as i8 as u8)),
        DType::Bool => each(&|number, bytes| bytes.push(u8::from(number != 0.0))),
        DType::F64 => each(&|number, bytes| bytes.extend(number.to_le_bytes())),
        DType::I64 => each(&|number, bytes| bytes.extend((number as i64).to_le_bytes())),
    }
}

/// Decodes little-endian elements.
///
/// # Panics
/// Panics if the bytes are not whole elements.
pub fn decode(bytes: &[u8], dtype: DType) -> Vec<f64> {
    assert_eq!(bytes.len() % dtype.bytes(), 0, "{} bytes are not a whole number of {dtype} elements", bytes.len());
    let words = bytes.chunks_exact(dtype.bytes());
    let four = |word: &[u8]| [word[0], word[1], word[2], word[3]];
    match dtype {
        DType::F16 => words.map(|word| f16::from_le_bytes([word[0], word[1]]).to_f64()).collect(),
        DType::BF16 => words.map(|word| bf16::from_le_bytes([word[0], word[1]]).to_f64()).collect(),
        DType::F32 => words.map(|word| f32::from_le_bytes(four(word)).into()).collect(),
        DType::I32 => words.map(|word| i32::from_le_bytes(four(word)).into()).collect(),
        DType::U32 => words.map(|word| u32::from_le_bytes(four(word)).into()).collect(),
        DType::U8 | DType::Bool => words.map(|word| word[0].into()).collect(),
        DType::I8 => words.map(|word| (word[0] as i8).into()).collect(),
        DType::F64 => bytes.as_chunks().0.iter().map(|word| f64::from_le_bytes(*word)).collect(),
        DType::I64 => bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word) as f64).collect(),
    }
}

/// Returns the number after a round trip through the dtype.
pub fn rounded(number: f64, dtype: DType) -> f64 {
    decode(&encode(&[number], dtype), dtype)[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_where_the_dtype_holds_them_and_are_rounded_where_not() {
        let table = [
            (DType::F16, 65504.0, 65504.0),
            (DType::F16, 65520.0, f64::INFINITY),
            (DType::F16, 2049.0, 2048.0),
            (DType::BF16, 257.0, 256.0),
            (DType::BF16, 259.0, 260.0),
            (DType::F32, 16_777_217.0, 16_777_216.0),
            (DType::I32, -2_147_483_648.0, -2_147_483_648.0),
            (DType::U32, 4_294_967_295.0, 4_294_967_295.0),
            (DType::U8, 300.7, 255.0),
            (DType::U8, -3.0, 0.0),
            (DType::I8, -300.0, -128.0),
            (DType::Bool, 0.5, 1.0),
            (DType::F64, 0.1, 0.1),
            (DType::I64, -1e18, -1e18),
        ];
        for (dtype, number, expected) in table {
            assert_eq!(rounded(number, dtype), expected, "{number} as {dtype}");
        }
        assert!(rounded(f64::NAN, DType::BF16).is_nan());
        assert_eq!(rounded(f64::NAN, DType::I32), 0.0);
    }
}
