//! What the parts of an expression come to.

use super::fault::{Fault, Span};
use kiln::{DType, Tensor};

/// What a part of an expression comes to.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Tensor(Tensor),
    /// A number without a dtype: it takes that of the tensor that it meets.
    Number(f64),
    Flag(bool),
    DType(DType),
    Text(String),
    /// `none`: a new axis in an index, an argument that is left out in a call.
    Nothing,
    List(Vec<Self>),
}

/// Integers up to here are exact in `f64`.
const MAX_INTEGER: f64 = (1u64 << 53) as f64;

impl Value {
    /// The value of a word of the language, which no variable can have as its name.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "inf" => Some(Self::Number(f64::INFINITY)),
            "nan" => Some(Self::Number(f64::NAN)),
            "true" | "True" => Some(Self::Flag(true)),
            "false" | "False" => Some(Self::Flag(false)),
            "none" | "None" => Some(Self::Nothing),
            _ => DType::by_name(word).map(Self::DType),
        }
    }

    /// As messages name it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tensor(tensor) => format!("a tensor ({} {})", tensor.dtype(), tensor.shape()),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::DType(dtype) => format!("the dtype {dtype}"),
            Self::Text(_) => "a text".to_string(),
            Self::Nothing => "none".to_string(),
            Self::List(items) => match self.integers() {
                Some(integers) => format!("{integers:?}"),
                None => format!("a list of {}", items.len()),
            },
        }
    }

    /// The whole number that it is.
    pub(super) fn integer(&self) -> Option<isize> {
        match self {
            Self::Number(number) if number.fract() == 0.0 && number.abs() <= MAX_INTEGER => Some(*number as isize),
            _ => None,
        }
    }

    /// The whole numbers of a list; one alone is a list of one.
    pub(super) fn integers(&self) -> Option<Vec<isize>> {
        match self {
            Self::List(items) => items.iter().map(Self::integer).collect(),
            _ => Some(vec![self.integer()?]),
        }
    }

    /// The fault of a value in the place of something else.
    pub(super) fn instead_of(&self, wanted: &str, span: Span) -> Fault {
        Fault::new(span, format!("expected {wanted}, found {}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_integers_and_nothing_else_is() {
        let table =
            [(3.0, Some(3)), (-1.0, Some(-1)), (0.5, None), (f64::NAN, None), (f64::INFINITY, None), (1e300, None)];
        for (number, expected) in table {
            assert_eq!(Value::Number(number).integer(), expected, "{number}");
        }
        let list = Value::List(vec![Value::Number(2.0), Value::Number(-1.0)]);
        assert_eq!((list.integer(), list.integers()), (None, Some(vec![2, -1])));
        assert_eq!(Value::List(vec![Value::Nothing]).integers(), None);
        assert_eq!(Value::Number(4.0).integers(), Some(vec![4]));
    }
}
