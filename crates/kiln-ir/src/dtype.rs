//! Element types.

use half::{bf16, f16};
use std::fmt;

/// The data type of a tensor's elements.
///
/// Every device can store, copy and cast all of them. Arithmetic is fused into kernels for [`Class::Float`],
/// [`Class::Int`] and [`Class::Uint`]. `I64` and `F64` have no arithmetic on a GPU, because WGSL has none; the CPU
/// device supports their elementwise ops and reductions, unfused.
///
/// ```
/// use kiln_ir::{Class, DType, Element};
///
/// assert_eq!((f32::DTYPE, u8::DTYPE), (DType::F32, DType::U8));
/// assert_eq!((DType::F16.bytes(), DType::F16.class()), (2, Class::Float));
/// assert_eq!(DType::by_name("bf16"), Some(DType::BF16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE half precision; computed as `f32`.
    F16,
    /// bfloat16, the upper half of an `f32`; computed as `f32`.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// Signed 8-bit integers; computed as `i32`, results wrap.
    I8,
    /// Signed 32-bit integers; arithmetic wraps.
    I32,
    /// Signed 64-bit integers; arithmetic wraps.
    I64,
    /// Unsigned 8-bit integers, also used for the masks that comparisons return (0 or 1); computed as `u32`, results
    /// wrap.
    U8,
    /// Unsigned 32-bit integers; arithmetic wraps.
    U32,
    /// Booleans, one byte each, which must be 0 or 1. They support logic, comparisons and selection, but no
    /// arithmetic.
    Bool,
}

/// The type in which a dtype is computed.
///
/// See [`DType`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// `f32`, for `F16`, `BF16` and `F32`.
    Float,
    /// `i32`, for `I32` and `I8`.
    Int,
    /// `u32`, for `U32`, `U8` and `Bool`.
    Uint,
    /// 64 bits, for `I64` and `F64`. Fused programs only load and store such elements.
    Wide,
}

impl DType {
    /// Every dtype.
    pub const ALL: [Self; 10] =
        [Self::F16, Self::BF16, Self::F32, Self::F64, Self::I8, Self::I32, Self::I64, Self::U8, Self::U32, Self::Bool];

    /// The dtypes of at most 32 bits, which fused programs can compute.
    pub const NARROW: [Self; 8] =
        [Self::F16, Self::BF16, Self::F32, Self::I8, Self::I32, Self::U8, Self::U32, Self::Bool];

    /// Returns the size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Returns the class that this dtype is computed in.
    pub fn class(self) -> Class {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => Class::Float,
            Self::I8 | Self::I32 => Class::Int,
            Self::U8 | Self::U32 | Self::Bool => Class::Uint,
            Self::F64 | Self::I64 => Class::Wide,
        }
    }

    /// Returns whether this is a floating-point dtype that fused kernels, hand-written kernels and gradients support.
    /// `F64` is not.
    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    /// Returns whether elements have 64 bits.
    pub fn is_wide(self) -> bool {
        self.class() == Class::Wide
    }

    /// Returns the dtype that results are computed in: `F32` for `F16`, `U32` for `U8`, itself for `I64`.
    pub fn computed(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => Self::F32,
            Self::I8 | Self::I32 => Self::I32,
            Self::U8 | Self::U32 | Self::Bool => Self::U32,
            Self::F64 | Self::I64 => self,
        }
    }

    /// Returns the name used in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::Bool => "bool",
        }
    }

    /// Returns the dtype with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that represents the elements of a dtype.
///
/// See [`DType`] for an example.
pub trait Element: bytemuck::NoUninit + PartialEq + fmt::Debug + Send + Sync {
    /// The corresponding dtype.
    const DTYPE: DType;

    /// The type used to read the element from memory: `Self`, except for `bool`, which has invalid bit patterns.
    type Stored: bytemuck::Pod;

    /// Converts stored values to elements.
    fn from_stored(stored: Vec<Self::Stored>) -> Vec<Self>;
}

macro_rules! elements {
    ($($element:ty => $dtype:ident),*) => {
        $(impl Element for $element {
            const DTYPE: DType = DType::$dtype;
            type Stored = Self;

            fn from_stored(stored: Vec<Self>) -> Vec<Self> {
                stored
            }
        })*
    };
}

elements!(f16 => F16, bf16 => BF16, f32 => F32, f64 => F64, i8 => I8, i32 => I32, i64 => I64, u8 => U8, u32 => U32);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    type Stored = u8;

    fn from_stored(stored: Vec<u8>) -> Vec<Self> {
        stored.into_iter().map(|byte| byte != 0).collect()
    }
}

/// Evaluates an expression with a type alias bound to the Rust element type of a dtype.
///
/// ```
/// use kiln_ir::{DType, with_element};
///
/// assert_eq!(with_element!(DType::F64, T => size_of::<T>()), 8);
/// ```
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $element:ident => $value:expr) => {
        $crate::with_element!(@ $dtype, $element => $value;
            F16 $crate::half::f16, BF16 $crate::half::bf16, F32 f32, F64 f64, I8 i8, I32 i32, I64 i64, U8 u8, U32 u32, Bool bool)
    };
    (@ $dtype:expr, $element:ident => $value:expr; $($name:ident $ty:ty),*) => {
        match $dtype {
            $($crate::DType::$name => {
                type $element = $ty;
                $value
            })*
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_sizes_are_those_of_the_elements() {
        for dtype in DType::ALL {
            assert_eq!(DType::by_name(dtype.name()), Some(dtype));
            assert_eq!(dtype.computed().class(), dtype.class());
        }
        assert_eq!(DType::by_name("f128"), None);
        assert_eq!([f16::DTYPE.bytes(), f32::DTYPE.bytes(), u8::DTYPE.bytes()], [2, 4, 1]);
        assert_eq!([f64::DTYPE.bytes(), i64::DTYPE.bytes(), i8::DTYPE.bytes(), bool::DTYPE.bytes()], [8, 8, 1, 1]);
        assert_eq!(bool::from_stored(vec![0, 1, 2]), [false, true, true]);
    }
}
