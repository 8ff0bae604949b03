//! Dynamically typed values.

use crate::{DType, Device, Result, Tensor};
use std::fmt;

/// An argument of a [`Function`](super::Function).
///
/// See [`function`](super) for an example.
#[derive(Clone, Debug)]
pub enum Dynamic {
    /// A tensor.
    Tensor(Tensor),
    /// A number without a dtype: it takes the dtype of the other operands.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// A dtype.
    DType(DType),
    /// A string.
    Text(String),
    /// An omitted argument.
    None,
    /// A list of values.
    List(Vec<Self>),
}

/// The largest magnitude up to which all integers are exact in `f64`.
const MAX_INTEGER: f64 = (1u64 << 53) as f64;

impl Dynamic {
    /// Returns the value of a keyword: `inf`, `nan`, `true`, `false`, `none` or a dtype.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::function::Dynamic;
    ///
    /// assert!(matches!(Dynamic::from_keyword("true"), Some(Dynamic::Flag(true))));
    /// assert!(Dynamic::from_keyword("softmax").is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_keyword(word: &str) -> Option<Self> {
        match word {
            "inf" => Some(Self::Number(f64::INFINITY)),
            "nan" => Some(Self::Number(f64::NAN)),
            "true" | "True" => Some(Self::Flag(true)),
            "false" | "False" => Some(Self::Flag(false)),
            "none" | "None" => Some(Self::None),
            _ => DType::by_name(word).map(Self::DType),
        }
    }

    /// Parses a default: a keyword, or a number.
    pub(super) fn parse(text: &str) -> Self {
        Self::from_keyword(text).or_else(|| text.parse().ok().map(Self::Number)).unwrap_or(Self::None)
    }

    /// Returns the value as an integer if it is a whole number.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::function::{Dynamic, Function};
    ///
    /// assert_eq!(Dynamic::Number(1.5).integer(), None);
    /// let axis = Function::by_name("softmax").unwrap().parameters()[1];
    /// assert_eq!(axis.default_value().and_then(|value| value.integer()), Some(-1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn integer(&self) -> Option<isize> {
        match self {
            // Above 2^53 neighbouring integers are the same `f64`, so the text of the number may have meant another
            // one.
            Self::Number(number) if number.fract() == 0.0 && number.abs() <= MAX_INTEGER => Some(*number as isize),
            _ => None,
        }
    }
}

/// Formats a value for error messages.
impl fmt::Display for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(tensor) => write!(f, "a tensor ({} {})", tensor.dtype(), tensor.shape()),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::DType(dtype) => write!(f, "the dtype {dtype}"),
            Self::Text(_) => f.write_str("a string"),
            Self::None => f.write_str("none"),
            Self::List(items) => match items.iter().map(Self::integer).collect::<Option<Vec<_>>>() {
                Some(integers) => write!(f, "{integers:?}"),
                None => write!(f, "a list of {} values", items.len()),
            },
        }
    }
}

/// A parameter type.
pub(super) trait FromDynamic: Sized {
    /// The name of the type in error messages.
    const EXPECTED: &'static str;
    /// The name of a list of the type in error messages.
    const EXPECTED_LIST: &'static str = Self::EXPECTED;

    /// Converts a value; `None` if it has another type.
    fn from_dynamic(value: &Dynamic, device: &Device) -> Result<Option<Self>>;
}

/// Implements [`FromDynamic`]: how messages name the type and a list of it, and the values that convert.
macro_rules! from_dynamic {
    ($($ty:ty: $expected:literal, $list:literal, |$value:ident, $device:ident| $result:expr;)+) => {$(
        impl FromDynamic for $ty {
            const EXPECTED: &'static str = $expected;
            const EXPECTED_LIST: &'static str = $list;

            fn from_dynamic($value: &Dynamic, $device: &Device) -> Result<Option<Self>> {
                Ok($result)
            }
        }
    )+};
}

from_dynamic! {
    // A number without other operands becomes an `f32`.
    Tensor: "a tensor", "tensors", |value, device| match value {
        Dynamic::Tensor(tensor) => Some(tensor.clone()),
        Dynamic::Number(number) => Some(Tensor::full((), *number, DType::F32, device)?),
        _ => None,
    };
    f64: "a number", "numbers", |value, _device| if let Dynamic::Number(number) = value { Some(*number) } else { None };
    isize: "a whole number", "whole numbers", |value, _device| value.integer();
    i32: "a whole number of 32 bits", "whole numbers", |value, _device| value.integer().and_then(|integer| integer.try_into().ok());
    usize: "a whole number from 0", "lengths from 0", |value, _device| value.integer().and_then(|integer| integer.try_into().ok());
    bool: "true or false", "flags", |value, _device| if let Dynamic::Flag(flag) = value { Some(*flag) } else { None };
    String: "a string such as 'ij,jk->ik'", "strings", |value, _device| if let Dynamic::Text(text) = value { Some(text.clone()) } else { None };
    DType: "a dtype such as f32", "dtypes", |value, _device| match value {
        Dynamic::DType(dtype) => Some(*dtype),
        Dynamic::Text(text) => DType::by_name(text),
        _ => None,
    };
}

impl<T: FromDynamic> FromDynamic for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_dynamic(value: &Dynamic, device: &Device) -> Result<Option<Self>> {
        match value {
            Dynamic::None => Ok(Some(None)),
            _ => Ok(T::from_dynamic(value, device)?.map(Some)),
        }
    }
}

/// A single value is a list of one.
impl<T: FromDynamic> FromDynamic for Vec<T> {
    const EXPECTED: &'static str = T::EXPECTED_LIST;

    fn from_dynamic(value: &Dynamic, device: &Device) -> Result<Option<Self>> {
        let items = if let Dynamic::List(items) = value { items } else { std::slice::from_ref(value) };
        items.iter().map(|item| T::from_dynamic(item, device)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_are_integers() {
        let table =
            [(3.0, Some(3)), (-1.0, Some(-1)), (0.5, None), (f64::NAN, None), (f64::INFINITY, None), (1e300, None)];
        for (number, expected) in table {
            assert_eq!(Dynamic::Number(number).integer(), expected, "{number}");
        }
        let device = Device::cpu().unwrap();
        let integers = |value: Dynamic| Vec::<isize>::from_dynamic(&value, &device).unwrap();
        let list = Dynamic::List(vec![Dynamic::Number(2.0), Dynamic::Number(-1.0)]);
        assert_eq!((list.integer(), integers(list)), (None, Some(vec![2, -1])));
        assert_eq!(integers(Dynamic::List(vec![Dynamic::None])), None);
        assert_eq!(integers(Dynamic::Number(4.0)), Some(vec![4]));
    }
}
