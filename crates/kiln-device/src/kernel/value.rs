//! Values for the uniforms of a kernel.

use super::reflect::Scalar;
use bytemuck::{NoUninit, Pod};
use std::any::TypeId;

/// A value for a `var<uniform>` of a kernel, or for a member of one.
///
/// Numbers and arrays of two to four numbers are checked against the type in the kernel. For [`Value::bytes`] (structs)
/// and [`Value::slice`] (arrays), only the length is checked.
///
/// Passed to [`Launch::value`](crate::Launch::value); see [`Kernel`](crate::Kernel) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The WGSL type; `None` if only the length is known.
    pub(super) type_name: Option<String>,
    pub(super) bytes: Vec<u8>,
}

impl Value {
    /// Creates a value from a struct with the layout of the kernel, including padding as explicit fields.
    pub fn bytes<T: NoUninit>(value: &T) -> Self {
        Self { type_name: None, bytes: bytemuck::bytes_of(value).to_vec() }
    }

    /// Creates a value from an array with the length and stride of the kernel.
    pub fn slice<T: NoUninit>(values: &[T]) -> Self {
        Self { type_name: None, bytes: bytemuck::cast_slice(values).to_vec() }
    }
}

macro_rules! numbers {
    ($($number:ty => $name:literal),*) => {$(
        impl From<$number> for Value {
            fn from(value: $number) -> Self {
                Self { type_name: Some($name.to_string()), bytes: bytemuck::bytes_of(&value).to_vec() }
            }
        }

        impl<const N: usize> From<[$number; N]> for Value {
            fn from(values: [$number; N]) -> Self {
                let type_name = Some(format!("vec{N}<{}>", $name));
                Self { type_name, bytes: bytemuck::cast_slice(&values).to_vec() }
            }
        }
    )*};
}

numbers! { f32 => "f32", i32 => "i32", u32 => "u32", half::f16 => "f16" }

macro_rules! ids {
    ($($ty:ty),*) => { [$(TypeId::of::<$ty>()),*] };
}

/// The kind of number that a Rust type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// A scalar that WGSL has as well.
    Scalar(Scalar),
    /// An array of two to four scalars that WGSL has as well.
    Array(Scalar),
    /// A number that WGSL does not have.
    Foreign,
    /// A struct, another array, or an unknown type.
    None,
}

impl Number {
    pub(super) fn of<T: Pod>() -> Self {
        let scalar = scalar_of::<T, half::f16>(Scalar::F16)
            .or_else(|| scalar_of::<T, f32>(Scalar::F32))
            .or_else(|| scalar_of::<T, i32>(Scalar::I32))
            .or_else(|| scalar_of::<T, u32>(Scalar::U32));
        if let Some(number) = scalar {
            return number;
        }
        let foreign = ids![half::bf16, f64, i8, u8, i16, u16, i64, u64, i128, u128, isize, usize];
        if foreign.contains(&TypeId::of::<T>()) { Self::Foreign } else { Self::None }
    }
}

/// Returns the kind of `T` if it is `S` or an array of two to four `S`.
fn scalar_of<T: Pod, S: Pod>(scalar: Scalar) -> Option<Number> {
    let id = TypeId::of::<T>();
    let arrays = ids![[S; 2], [S; 3], [S; 4]];
    match id {
        _ if id == TypeId::of::<S>() => Some(Number::Scalar(scalar)),
        _ if arrays.contains(&id) => Some(Number::Array(scalar)),
        _ => None,
    }
}
