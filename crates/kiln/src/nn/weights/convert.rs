//! Converts stored bytes to elements of a dtype.

use super::source::{Entry, Source};
use crate::{DType, Device, Element, Error, ErrorKind, Result, Shape, Tensor, bf16, f16};
use bytemuck::{Pod, Zeroable};
use kiln_ir::{round_to_odd, with_element};
use safetensors::tensor::Dtype;

/// Number of bytes converted at a time, chosen to stay in cache.
const CHUNK_BYTES: usize = 1 << 16;

/// A stored number. Each stored dtype produces one variant, so the inner loops have no branch on it.
#[derive(Clone, Copy, Debug)]
enum Number {
    Float(f64),
    Integer(i128),
}

/// Element types that numbers convert to.
trait Target: Element {
    /// Returns the nearest element, and whether the conversion is allowed. It is branch-free, so that loops over it
    /// vectorize.
    fn of(number: Number) -> (Self, bool);
}

/// Reads a tensor to a device, in its stored dtype or converted to another.
pub(super) fn read(
    name: &str,
    entry: &Entry,
    source: &Source,
    dtype: Option<DType>,
    device: &Device,
) -> Result<Tensor> {
    Shape::new(&entry.shape).checked().map_err(|error| error.context(format!("{}: {name}", source.name)))?;
    let Some(dtype) = dtype.or_else(|| same(entry.dtype)) else {
        let (found, path) = (entry.describe(), &source.name);
        let message = format!(
            "{path}: {name} expected a dtype that Kiln supports, found {found}; convert it with Weights::to_dtype"
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    with_element!(dtype, T => read_converted::<T>(name, entry, source, device))
}

/// Returns the Kiln dtype with the same elements.
fn same(stored: Dtype) -> Option<DType> {
    match stored {
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::F32 => Some(DType::F32),
        Dtype::F64 => Some(DType::F64),
        Dtype::I8 => Some(DType::I8),
        Dtype::I32 => Some(DType::I32),
        Dtype::I64 => Some(DType::I64),
        Dtype::U8 => Some(DType::U8),
        Dtype::U32 => Some(DType::U32),
        Dtype::BOOL => Some(DType::Bool),
        _ => None,
    }
}

fn read_converted<T: Target>(name: &str, entry: &Entry, source: &Source, device: &Device) -> Result<Tensor> {
    let elements = if same(entry.dtype) == Some(T::DTYPE) {
        // A dtype that is kept is copied from the file straight into its final memory.
        let mut stored = reserved::<T::Stored>(entry)?;
        stored.resize(entry.shape.iter().product(), T::Stored::zeroed());
        source.copy(entry.range.start, bytemuck::cast_slice_mut(&mut stored))?;
        T::from_stored(stored)
    } else {
        converted::<T>(name, entry, source)?
    };
    Tensor::from_slice(&elements, &entry.shape[..], device).map_err(|error| error.context(name.to_string()))
}

fn converted<T: Target>(name: &str, entry: &Entry, source: &Source) -> Result<Vec<T>> {
    use Number::{Float, Integer};
    let conversion = Conversion { name, entry, source };
    match entry.dtype {
        Dtype::F64 => conversion.convert(Float),
        Dtype::F32 => conversion.convert(|x: f32| Float(x.into())),
        Dtype::F16 => conversion.convert(|x: f16| Float(x.into())),
        Dtype::BF16 => conversion.convert(|x: bf16| Float(x.into())),
        // E5M2 is the upper byte of an `f16`: same sign, exponent width and bias.
        Dtype::F8_E5M2 => conversion.convert(|x: u8| Float(f16::from_bits(u16::from(x) << 8).into())),
        Dtype::F8_E4M3 => conversion.convert(|x: u8| Float(e4m3(x))),
        Dtype::I64 => conversion.convert(|x: i64| Integer(x.into())),
        Dtype::U64 => conversion.convert(|x: u64| Integer(x.into())),
        Dtype::I32 => conversion.convert(|x: i32| Integer(x.into())),
        Dtype::U32 => conversion.convert(|x: u32| Integer(x.into())),
        Dtype::I16 => conversion.convert(|x: i16| Integer(x.into())),
        Dtype::U16 => conversion.convert(|x: u16| Integer(x.into())),
        Dtype::I8 => conversion.convert(|x: i8| Integer(x.into())),
        Dtype::U8 => conversion.convert(|x: u8| Integer(x.into())),
        Dtype::BOOL => conversion.convert(|x: u8| Integer((x != 0).into())),
        _ => {
            let (found, path) = (entry.describe(), &source.name);
            let message = format!("{path}: {name} expected numbers of 8 bits or more, found {found}");
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

struct Conversion<'a> {
    name: &'a str,
    entry: &'a Entry,
    source: &'a Source,
}

impl Conversion<'_> {
    fn convert<R: Pod, T: Target>(&self, number: impl Fn(R) -> Number) -> Result<Vec<T>> {
        let mut elements = reserved::<T>(self.entry)?;
        let mut chunk = [0u8; CHUNK_BYTES];
        let mut at = self.entry.range.start;
        while at < self.entry.range.end {
            let length = (self.entry.range.end - at).min(CHUNK_BYTES as u64) as usize;
            self.source.copy(at, &mut chunk[..length])?;
            let numbers = || {
                // The chunk size is a multiple of every element size, so no element crosses two chunks.
                let raw = chunk[..length].chunks_exact(size_of::<R>());
                raw.map(|bytes| number(bytemuck::pod_read_unaligned(bytes)))
            };
            // The first pass only notes whether all elements fit; the second finds the first that does not, for the error.
            let mut fits = true;
            let before = elements.len();
            elements.extend(numbers().map(|number| {
                let (element, is_same) = T::of(number);
                fits &= is_same;
                element
            }));
            if let Some((place, number)) = numbers().enumerate().find(|(_, number)| !fits && !T::of(*number).1) {
                return Err(self.out_of_range(number, before + place, T::DTYPE));
            }
            at += length as u64;
        }
        Ok(elements)
    }

    fn out_of_range(&self, number: Number, at: usize, dtype: DType) -> Error {
        let (path, name, found) = (&self.source.name, self.name, self.entry.describe());
        let value = match number {
            Number::Float(value) => value.to_string(),
            Number::Integer(value) => value.to_string(),
        };
        let message =
            format!("{path}: {name} expected numbers that {dtype} can hold, found {value} at element {at} of {found}");
        Error::new(ErrorKind::InvalidArgument, message)
    }
}

/// Reserves memory for the elements. The source bytes are in the file, so a header cannot request more than a few
/// times the file size.
fn reserved<T>(entry: &Entry) -> Result<Vec<T>> {
    let (mut elements, count) = (Vec::new(), entry.shape.iter().product());
    elements.try_reserve_exact(count).map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("expected memory for {}, found none: {error}", entry.describe()))
    })?;
    Ok(elements)
}

/// Decodes FP8 E4M3: 4 exponent bits, 3 mantissa bits, no infinity.
fn e4m3(bits: u8) -> f64 {
    // Bias 7. Only the pattern with exponent and fraction all ones is NaN.
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let size = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        // Subnormal: the exponent is that of 1, so the unit is 2^(1 - 7 - 3).
        (0, _) => fraction * 2f64.powi(-9),
        _ => (8.0 + fraction) * 2f64.powi(exponent - 10),
    };
    if bits & 0x80 == 0 { size } else { -size }
}

macro_rules! floats {
    ($($element:ty: |$x:ident| $from:expr),*) => {
        $(impl Target for $element {
            fn of(number: Number) -> (Self, bool) {
                match number {
                    Number::Float($x) => {
                        let element: Self = $from;
                        (element, element.is_finite() | !$x.is_finite())
                    }
                    Number::Integer(integer) => {
                        let $x = integer as f64;
                        let element: Self = $from;
                        (element, element.is_finite() && f64::from(element) as i128 == integer)
                    }
                }
            }
        })*
    };
}

floats!(f16: |x| Self::from_f32(round_to_odd::f32_of(x)), bf16: |x| Self::from_f32(round_to_odd::f32_of(x)), f32: |x| x as Self, f64: |x| x);

macro_rules! integers {
    ($($element:ty),*) => {
        $(impl Target for $element {
            fn of(number: Number) -> (Self, bool) {
                match number {
                    Number::Integer(integer) => (integer as Self, Self::try_from(integer).is_ok()),
                    // The cast saturates, so out-of-range values fail the comparison, except 2^63, which
                    // `i64::MAX as f64` rounds to. The second test excludes it.
                    Number::Float(x) => (x as Self, (x as Self) as f64 == x && x < Self::MAX as f64 + 1.0),
                }
            }
        })*
    };
}

integers!(i8, i32, i64, u8, u32);

/// Only 0 and 1 convert to booleans.
impl Target for bool {
    fn of(number: Number) -> (Self, bool) {
        match number {
            Number::Integer(integer) => (integer != 0, integer == 0 || integer == 1),
            Number::Float(x) => (x != 0.0, x == 0.0 || x == 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T: Target>(number: Number) -> Option<T> {
        let (element, is_same) = T::of(number);
        is_same.then_some(element)
    }

    #[test]
    fn numbers_round_among_floats_and_stay_otherwise() {
        use Number::{Float, Integer};
        assert_eq!(of::<f32>(Float(0.1)), Some(0.1));
        assert_eq!(of::<f16>(Float(65519.0)), Some(f16::MAX));
        assert_eq!(of::<f16>(Float(65520.0)), None);
        assert_eq!(of::<f16>(Float(f64::INFINITY)), Some(f16::INFINITY));
        assert!(of::<f32>(Float(f64::NAN)).is_some_and(f32::is_nan));
        assert_eq!(of::<f32>(Float(1e39)), None);
        assert_eq!(of::<bf16>(Integer(256)), Some(bf16::from_f32(256.0)));
        assert_eq!(of::<bf16>(Integer(257)), None);
        assert_eq!(of::<f32>(Integer(1 << 24)), Some(16_777_216.0));
        assert_eq!(of::<f32>(Integer((1 << 24) + 1)), None);
        assert_eq!(of::<f32>(Integer(u64::MAX.into())), None);
        assert_eq!(of::<f16>(Integer(70_000)), None);
        assert_eq!([255, 256, -1].map(|x| of::<u8>(Integer(x))), [Some(255), None, None]);
        assert_eq!([-3.0, 0.5, 3e9].map(|x| of::<i32>(Float(x))), [Some(-3), None, None]);
        assert_eq!([f64::NAN, f64::INFINITY, 1e300, -1.0].map(|x| of::<u32>(Float(x))), [None; 4]);
    }

    #[test]
    fn small_floats_are_those_of_the_format() {
        let table =
            [(0x00, 0.0), (0x01, 2f64.powi(-9)), (0x08, 2f64.powi(-6)), (0x38, 1.0), (0x7e, 448.0), (0xb8, -1.0)];
        for (bits, value) in table {
            assert_eq!(e4m3(bits), value, "{bits:#x}");
        }
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
    }
}
