//! Small values that a launch gives to a kernel's uniforms.

use super::reflect::Scalar;
use bytemuck::{NoUninit, Pod};
use std::any::TypeId;

/// A value for a `var<uniform>` of a kernel, or for a member of one.
///
/// Numbers and arrays of two to four of them are checked against the type in the kernel; [`Value::bytes`] is for structs,
/// and only its length is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The type in WGSL; `None` where only the length is known.
    pub(super) type_name: Option<String>,
    pub(super) bytes: Vec<u8>,
}

impl Value {
    /// A struct laid out as the kernel wants it, padding included as explicit fields.
    pub fn bytes<T: NoUninit>(value: &T) -> Self {
        Self { type_name: None, bytes: bytemuck::bytes_of(value).to_vec() }
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

/// What number a Rust type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// One that WGSL has too.
    Scalar(Scalar),
    /// One that WGSL does not have.
    Foreign,
    /// A struct, an array, or something that is not known.
    None,
}

impl Number {
    pub(super) fn of<T: Pod>() -> Self {
        let known = [
            (TypeId::of::<half::f16>(), Self::Scalar(Scalar::F16)),
            (TypeId::of::<f32>(), Self::Scalar(Scalar::F32)),
            (TypeId::of::<i32>(), Self::Scalar(Scalar::I32)),
            (TypeId::of::<u32>(), Self::Scalar(Scalar::U32)),
            (TypeId::of::<half::bf16>(), Self::Foreign),
            (TypeId::of::<f64>(), Self::Foreign),
            (TypeId::of::<i8>(), Self::Foreign),
            (TypeId::of::<u8>(), Self::Foreign),
            (TypeId::of::<i16>(), Self::Foreign),
            (TypeId::of::<u16>(), Self::Foreign),
            (TypeId::of::<i64>(), Self::Foreign),
            (TypeId::of::<u64>(), Self::Foreign),
            (TypeId::of::<i128>(), Self::Foreign),
            (TypeId::of::<u128>(), Self::Foreign),
            (TypeId::of::<isize>(), Self::Foreign),
            (TypeId::of::<usize>(), Self::Foreign),
        ];
        known.into_iter().find(|(id, _)| *id == TypeId::of::<T>()).map_or(Self::None, |(_, number)| number)
    }
}
