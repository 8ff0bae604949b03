//! Converts between arrays of files and tensors.

use crate::npy::{Array, Kind};
use half::f16;
use kiln::{DType, Device, Element, Tensor};

/// Converts an array to a tensor, with a note if the conversion changes its dtype.
pub(super) fn to_tensor(array: &Array, device: &Device) -> Result<(Tensor, Option<String>), String> {
    let shape: Option<Vec<usize>> = array.shape.iter().map(|length| usize::try_from(*length).ok()).collect();
    let shape = shape.ok_or("expected lengths within the address space, found more")?;
    let data = &array.data;
    let tensor = match array.kind {
        Kind::F16 => tensor(&elements(data, f16::from_le_bytes), shape, device),
        Kind::F32 => tensor(&elements(data, f32::from_le_bytes), shape, device),
        Kind::F64 => tensor(&elements(data, |bytes| f64::from_le_bytes(bytes) as f32), shape, device),
        Kind::I8 => tensor(&elements(data, i8::from_le_bytes), shape, device),
        Kind::I32 => tensor(&elements(data, i32::from_le_bytes), shape, device),
        Kind::I64 => tensor(&narrowed(data)?, shape, device),
        Kind::U32 => tensor(&elements(data, u32::from_le_bytes), shape, device),
        Kind::U8 => tensor(data, shape, device),
        Kind::Bool => tensor(&elements(data, |[byte]: [u8; 1]| byte != 0), shape, device),
    }?;
    let note = match array.kind {
        Kind::F64 | Kind::I64 => Some(format!("{} is read as {}", array.kind, tensor.dtype())),
        _ => None,
    };
    Ok((tensor, note))
}

fn tensor<T: Element>(elements: &[T], shape: Vec<usize>, device: &Device) -> Result<Tensor, String> {
    Tensor::from_slice(elements, shape, device).map_err(|error| error.to_string())
}

fn elements<const BYTES: usize, T>(data: &[u8], element: impl Fn([u8; BYTES]) -> T) -> Vec<T> {
    // The length is a multiple of the element size, so there is no remainder.
    data.as_chunks().0.iter().map(|bytes| element(*bytes)).collect()
}

/// Narrows 64-bit integers to 32 bits.
fn narrowed(data: &[u8]) -> Result<Vec<i32>, String> {
    let number = |(place, number): (usize, i64)| {
        i32::try_from(number)
            .map_err(|_| format!("expected numbers that i32 can hold, found {number} at index {place}"))
    };
    elements(data, i64::from_le_bytes).into_iter().enumerate().map(number).collect()
}

/// Returns the element type of a dtype in a file; `None` if NumPy has none.
pub(super) fn kind(dtype: DType) -> Option<Kind> {
    Kind::by_name(dtype.name())
}

/// Computes a tensor and converts it to an array.
pub(super) fn to_array(tensor: &Tensor, kind: Kind) -> kiln::Result<Array> {
    let data = match tensor.dtype() {
        DType::F16 => bytes(&tensor.to_vec::<f16>()?, f16::to_le_bytes),
        DType::BF16 | DType::F32 => bytes(&tensor.to_vec::<f32>()?, f32::to_le_bytes),
        DType::I32 => bytes(&tensor.to_vec::<i32>()?, i32::to_le_bytes),
        DType::U32 => bytes(&tensor.to_vec::<u32>()?, u32::to_le_bytes),
        DType::F64 => bytes(&tensor.to_vec::<f64>()?, f64::to_le_bytes),
        DType::I8 => bytes(&tensor.to_vec::<i8>()?, i8::to_le_bytes),
        DType::I64 => bytes(&tensor.to_vec::<i64>()?, i64::to_le_bytes),
        DType::U8 | DType::Bool => tensor.to_vec::<u8>()?,
    };
    Ok(Array { kind, shape: tensor.shape().iter().map(|length| *length as u64).collect(), data })
}

fn bytes<const BYTES: usize, T: Copy>(elements: &[T], bytes: impl Fn(T) -> [u8; BYTES]) -> Vec<u8> {
    elements.iter().flat_map(|element| bytes(*element)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(kind: Kind, data: Vec<u8>) -> Array {
        Array { kind, shape: vec![data.len() as u64 / kind.bytes()], data }
    }

    #[test]
    fn arrays_of_every_dtype_round_trip() {
        let device = Device::cpu().unwrap();
        for kind in DType::NARROW.into_iter().filter_map(kind) {
            for (shape, count) in [(vec![], 1), (vec![2, 3], 6), (vec![2, 0], 0)] {
                let data =
                    (1..=count * kind.bytes() as u8).map(|byte| if kind == Kind::Bool { byte % 2 } else { byte });
                let data = data.collect();
                let array = Array { kind, shape, data };
                let (tensor, note) = to_tensor(&array, &device).unwrap();
                assert_eq!((to_array(&tensor, kind).unwrap(), note), (array, None));
            }
        }
    }

    #[test]
    fn other_numbers_are_converted_with_a_note() {
        let device = Device::cpu().unwrap();
        let doubles = array(Kind::F64, [0.1, -1e300, 2.0f64].map(f64::to_le_bytes).concat());
        let (tensor, note) = to_tensor(&doubles, &device).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [0.1, f32::NEG_INFINITY, 2.0]);
        assert_eq!(note.as_deref(), Some("f64 is read as f32"));
        let (tensor, _) = to_tensor(&array(Kind::I64, [3, -4i64].map(i64::to_le_bytes).concat()), &device).unwrap();
        assert_eq!(tensor.to_vec::<i32>().unwrap(), [3, -4]);
        let error = to_tensor(&array(Kind::I64, [3, 1i64 << 31].map(i64::to_le_bytes).concat()), &device).unwrap_err();
        assert_eq!(error, "expected numbers that i32 can hold, found 2147483648 at index 1");
        let (tensor, note) = to_tensor(&array(Kind::Bool, vec![0, 1, 7]), &device).unwrap();
        assert_eq!((tensor.to_vec::<bool>().unwrap(), note), (vec![false, true, true], None));
    }
}
