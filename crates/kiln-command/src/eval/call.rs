//! A call: its arguments, put in the places of a signature.

use super::ast::Word;
use super::fault::{Fault, Span};
use super::functions::Callee;
use super::value::Value;
use crate::terminal::count;
use kiln::{DType, Device, Tensor};
use std::fmt;

/// A parameter as a signature has it: `x` has to be given, `axis=-1` has a value where it is not, and `shape...` takes a
/// list or all arguments that are left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    name: &'static str,
    takes_rest: bool,
    pub(super) default: Option<&'static str>,
}

impl Parameter {
    pub(super) const fn new(name: &'static str, takes_rest: bool, default: Option<&'static str>) -> Self {
        Self { name, takes_rest, default }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.takes_rest { "..." } else { "" };
        write!(f, "{}{rest}", self.name)?;
        self.default.map_or(Ok(()), |default| write!(f, "={default}"))
    }
}

/// An argument with the place that a fault of it has.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) name: Option<Word>,
    pub(super) value: Value,
    pub(super) span: Span,
}

/// The arguments of a call by the names of the signature.
pub(super) struct Call<'a> {
    callee: Callee,
    span: Span,
    pub(super) device: &'a Device,
    arguments: Vec<(&'static str, Value, Span)>,
}

/// Why a call has no value: its arguments, or what the tensors say of them.
#[derive(Debug)]
pub(super) enum CallFault {
    Arguments(Fault),
    Tensors(kiln::Error),
}

impl From<Fault> for CallFault {
    fn from(fault: Fault) -> Self {
        Self::Arguments(fault)
    }
}

impl From<kiln::Error> for CallFault {
    fn from(error: kiln::Error) -> Self {
        Self::Tensors(error)
    }
}

impl<'a> Call<'a> {
    /// Puts arguments in their places: first those without a name, then those with one.
    pub(super) fn new(callee: Callee, given: Vec<Given>, span: Span, device: &'a Device) -> Result<Self, Fault> {
        let (name, parameters) = (callee.name(), callee.parameters());
        let fault = |span, message: String| Fault::new(span, format!("{message}; it is {}", callee.signature()));
        let mut slots: Vec<Option<(Value, Span)>> = vec![None; parameters.len()];
        let mut next = 0;
        for Given { name: keyword, value, span } in given {
            let place = match &keyword {
                Some(word) => {
                    let place = parameters.iter().position(|parameter| parameter.name == word.text);
                    place.ok_or_else(|| fault(word.span, format!("{name} has no argument `{}`", word.text)))?
                }
                None => next,
            };
            let Some(parameter) = parameters.get(place) else {
                let most = count(parameters.len() as u64, "argument");
                return Err(fault(span, format!("{name} expected at most {most}, found more")));
            };
            match (&mut slots[place], keyword) {
                (Some((Value::List(items), all)), None) if parameter.takes_rest && next == place => {
                    items.push(value);
                    *all = all.to(span);
                }
                (Some(_), word) => {
                    let span = word.map_or(span, |word| word.span);
                    return Err(fault(span, format!("{name} expected `{}` once, found it twice", parameter.name)));
                }
                (slot, None) if parameter.takes_rest && !matches!(value, Value::List(_)) => {
                    *slot = Some((Value::List(vec![value]), span));
                }
                (slot, keyword) => {
                    *slot = Some((value, span));
                    next = if keyword.is_none() { next + 1 } else { next };
                }
            }
        }
        let place = |(parameter, slot): (&Parameter, Option<(Value, Span)>)| {
            let value = slot.or_else(|| Some((constant(parameter.default?), span)));
            let missing = || fault(span, format!("{name} expected `{}`, found no such argument", parameter.name));
            value.map(|(value, span)| (parameter.name, value, span)).ok_or_else(missing)
        };
        let arguments = parameters.iter().zip(slots).map(place).collect::<Result<_, _>>()?;
        Ok(Self { callee, span, device, arguments })
    }

    /// The arguments in the order of the signature.
    pub(super) fn values(&self) -> impl Iterator<Item = (&Value, Span)> {
        self.arguments.iter().map(|(_, value, span)| (value, *span))
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Tensor, CallFault> {
        let (value, span) = self.get(name)?;
        self.tensor_of(value, span)
    }

    /// A tensor; `None` where it is `none`.
    pub(super) fn tensor_or_none(&self, name: &str) -> Result<Option<Tensor>, CallFault> {
        match self.get(name)? {
            (Value::Nothing, _) => Ok(None),
            (value, span) => self.tensor_of(value, span).map(Some),
        }
    }

    pub(super) fn tensors(&self, name: &str) -> Result<Vec<Tensor>, CallFault> {
        match self.get(name)? {
            (Value::List(items), span) => items.iter().map(|item| self.tensor_of(item, span)).collect(),
            (value, span) => Ok(vec![self.tensor_of(value, span)?]),
        }
    }

    /// A number meets no other tensor here, so that it becomes an `f32`.
    fn tensor_of(&self, value: &Value, span: Span) -> Result<Tensor, CallFault> {
        match value {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Number(number) => Ok(Tensor::full((), *number, DType::F32, self.device)?),
            _ => Err(self.wrong("a tensor", value, span)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<f64, CallFault> {
        match self.get(name)? {
            (Value::Number(number), _) => Ok(*number),
            (value, span) => Err(self.wrong(&format!("a number for `{name}`"), value, span)),
        }
    }

    /// A number; `None` where it is `none`.
    pub(super) fn number_or_none(&self, name: &str) -> Result<Option<f64>, CallFault> {
        match self.get(name)? {
            (Value::Nothing, _) => Ok(None),
            _ => self.number(name).map(Some),
        }
    }

    pub(super) fn integer(&self, name: &str) -> Result<isize, CallFault> {
        let (value, span) = self.get(name)?;
        value.integer().ok_or_else(|| self.wrong(&format!("a whole number for `{name}`"), value, span))
    }

    /// A whole number that counts something.
    pub(super) fn count(&self, name: &str) -> Result<usize, CallFault> {
        let (value, span) = self.get(name)?;
        let count = value.integer().and_then(|number| usize::try_from(number).ok());
        count.ok_or_else(|| self.wrong(&format!("a whole number from 0 for `{name}`"), value, span))
    }

    pub(super) fn integers(&self, name: &str) -> Result<Vec<isize>, CallFault> {
        let (value, span) = self.get(name)?;
        value.integers().ok_or_else(|| self.wrong(&format!("whole numbers for `{name}`"), value, span))
    }

    /// Whole numbers; `None` where they are `none`.
    pub(super) fn integers_or_none(&self, name: &str) -> Result<Option<Vec<isize>>, CallFault> {
        match self.get(name)? {
            (Value::Nothing, _) => Ok(None),
            _ => self.integers(name).map(Some),
        }
    }

    /// Lengths along axes.
    pub(super) fn shape(&self, name: &str) -> Result<Vec<usize>, CallFault> {
        let lengths: Option<Vec<usize>> =
            self.integers(name)?.into_iter().map(|length| usize::try_from(length).ok()).collect();
        let (value, span) = self.get(name)?;
        lengths.ok_or_else(|| self.wrong(&format!("lengths from 0 for `{name}`"), value, span))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, CallFault> {
        match self.get(name)? {
            (Value::Flag(flag), _) => Ok(*flag),
            (value, span) => Err(self.wrong(&format!("true or false for `{name}`"), value, span)),
        }
    }

    pub(super) fn dtype(&self, name: &str) -> Result<DType, CallFault> {
        let (value, span) = self.get(name)?;
        let dtype = match value {
            Value::DType(dtype) => Some(*dtype),
            Value::Text(text) => DType::by_name(text),
            _ => None,
        };
        let names = || format!("one of the dtypes {}", DType::ALL.map(DType::name).join(", "));
        dtype.ok_or_else(|| self.wrong(&names(), value, span))
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, CallFault> {
        match self.get(name)? {
            (Value::Text(text), _) => Ok(text),
            (value, span) => Err(self.wrong(&format!("a text for `{name}`, as in 'ij,jk->ik'"), value, span)),
        }
    }

    fn get(&self, name: &str) -> Result<(&Value, Span), CallFault> {
        let found = self.arguments.iter().find(|(known, ..)| *known == name);
        found.map(|(_, value, span)| (value, *span)).ok_or_else(|| {
            let message = format!("expected `{name}` in {}, found no such parameter", self.callee.signature());
            kiln::Error::new(kiln::ErrorKind::Internal, message).into()
        })
    }

    fn wrong(&self, wanted: &str, value: &Value, span: Span) -> CallFault {
        let Fault { span, message } = value.instead_of(wanted, span);
        Fault::new(span, format!("{} {message}; it is {}", self.callee.name(), self.callee.signature())).into()
    }

    /// A fault of the call as a whole.
    pub(super) fn fault(&self, message: String) -> CallFault {
        Fault::new(self.span, message).into()
    }
}

/// The value of a default: a word of the language, or a number.
fn constant(text: &str) -> Value {
    Value::of_word(text).or_else(|| text.parse().ok().map(Value::Number)).unwrap_or(Value::Nothing)
}
