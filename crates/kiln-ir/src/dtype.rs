//! Element types.

use half::{bf16, f16};
use std::fmt;

/// What the elements of a tensor are.
///
/// `F16` and `BF16` are for storage: they are computed with as `f32`. `U8` also stands for truth: comparisons give 0 or 1, and a condition is
/// true where it is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    BF16,
    /// IEEE single precision.
    F32,
    /// Signed integers; arithmetic wraps.
    I32,
    /// Unsigned integers; arithmetic wraps.
    U32,
    /// Bytes, and truth values; arithmetic wraps.
    U8,
}

/// What a dtype is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// `f32`, for every floating-point dtype.
    Float,
    /// `i32`.
    Int,
    /// `u32`, for `U32` and `U8`.
    Uint,
}

impl DType {
    /// Every dtype.
    pub const ALL: [Self; 6] = [Self::F16, Self::BF16, Self::F32, Self::I32, Self::U32, Self::U8];

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 => 1,
        }
    }

    /// What it is computed with.
    pub fn class(self) -> Class {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => Class::Float,
            Self::I32 => Class::Int,
            Self::U32 | Self::U8 => Class::Uint,
        }
    }

    /// Whether it is a floating-point dtype.
    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    /// The name in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::U8 => "u8",
        }
    }

    /// The dtype with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl Class {
    /// The dtype that holds such a number whole.
    pub fn dtype(self) -> DType {
        match self {
            Self::Float => DType::F32,
            Self::Int => DType::I32,
            Self::Uint => DType::U32,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is the element of a dtype.
pub trait Element: bytemuck::Pod + PartialEq + fmt::Debug + Send + Sync {
    /// That dtype.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($element:ty => $dtype:ident),*) => {
        $(impl Element for $element {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements!(f16 => F16, bf16 => BF16, f32 => F32, i32 => I32, u32 => U32, u8 => U8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_sizes_are_those_of_the_elements() {
        for dtype in DType::ALL {
            assert_eq!(DType::by_name(dtype.name()), Some(dtype));
            assert_eq!(dtype.class().dtype().class(), dtype.class());
        }
        assert_eq!(DType::by_name("f64"), None);
        assert_eq!([f16::DTYPE.bytes(), f32::DTYPE.bytes(), u8::DTYPE.bytes()], [2, 4, 1]);
    }
}
