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

impl Scalar {
    /// The scalar of a Rust type; `None` for all others.
    pub(super) fn of_type<T: Pod>() -> Option<Self> {
        let table = [
            (TypeId::of::<half::f16>(), Self::F16),
            (TypeId::of::<f32>(), Self::F32),
            (TypeId::of::<i32>(), Self::I32),
            (TypeId::of::<u32>(), Self::U32),
        ];
        table.into_iter().find(|(id, _)| *id == TypeId::of::<T>()).map(|(_, scalar)| scalar)
    }
}
