//! Tensor functions by name, for programs that evaluate expressions: `kiln eval` and `kiln ops` use this list.
//!
//! A [`Function`] is an elementwise op from the op table, or another method of [`Tensor`] that returns one tensor,
//! from the table in `methods.rs`. Its arguments are [`Dynamic`] values.
//!
//! ```
//! use kiln::function::{Dynamic, Function};
//! use kiln::{Device, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::cpu()?;
//! let x = Tensor::from_slice(&[0.0f32; 4], (2, 2), &device)?;
//! let softmax = Function::by_name("softmax").unwrap();
//! assert_eq!(softmax.signature(), "softmax(x, axis=-1)");
//! let y = softmax.call(&[Dynamic::Tensor(x), Dynamic::Number(1.0)], &device)?;
//! assert_eq!(y.to_vec::<f32>()?, [0.5; 4]);
//! # Ok(())
//! # }
//! ```

mod dynamic;
mod methods;

pub use dynamic::Dynamic;
pub use methods::Method;

use crate::{DType, Device, Error, ErrorKind, Tensor};
use dynamic::FromDynamic;
use kiln_ir::op::{self, ElementOp, Signature};
use std::fmt;

/// A parameter of a function.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// let softmax = kiln::function::Function::by_name("softmax").unwrap();
/// let axis = softmax.parameters()[1];
/// assert_eq!((axis.name, axis.default, axis.takes_rest), ("axis", Some("-1"), false));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// Whether it takes a list, or all remaining arguments.
    pub takes_rest: bool,
    /// The default as source text; `None` if the argument is required.
    pub default: Option<&'static str>,
}

impl Parameter {
    /// Returns the value of the default.
    ///
    /// See [`Dynamic::integer`] for an example.
    pub fn default_value(self) -> Option<Dynamic> {
        self.default.map(Dynamic::parse)
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.takes_rest { "..." } else { "" };
        write!(f, "{}{rest}", self.name)?;
        self.default.map_or(Ok(()), |default| write!(f, "={default}"))
    }
}

/// A tensor function.
///
/// See [`function`](self) for an example.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    /// An elementwise op.
    Op(&'static ElementOp),
    /// Another method of [`Tensor`].
    Method(&'static Method),
}

/// An error of a call, with the argument that caused it, if any.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::function::{Dynamic, Function};
///
/// let relu = Function::by_name("relu").unwrap();
/// let error = relu.call(&[Dynamic::None], &device).unwrap_err();
/// assert_eq!(error.argument, Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CallError {
    /// The position of the argument.
    pub argument: Option<usize>,
    /// The error.
    pub error: Error,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CallError {}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self { argument: None, error }
    }
}

impl Function {
    /// Returns all functions.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let names: Vec<&str> = kiln::function::Function::all().map(|function| function.name()).collect();
    /// assert!(names.contains(&"relu") && names.contains(&"softmax"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn all() -> impl Iterator<Item = Self> {
        op::all().iter().copied().map(Self::Op).chain(methods::ALL.iter().map(Self::Method))
    }

    /// Returns the function with this name.
    ///
    /// See [`function`](self) for an example.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|function| function.name() == name)
    }

    /// Returns the name.
    ///
    /// See [`all`](Self::all) for an example.
    pub fn name(self) -> &'static str {
        match self {
            // Ops whose names are Rust keywords end with `_` in the table.
            Self::Op(op) => op.name.trim_end_matches('_'),
            Self::Method(method) => method.name,
        }
    }

    /// Returns a one-sentence description.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let relu = kiln::function::Function::by_name("relu").unwrap();
    /// assert!(relu.doc().ends_with('.'));
    /// # Ok(())
    /// # }
    /// ```
    pub fn doc(self) -> &'static str {
        match self {
            Self::Op(op) => op.doc,
            Self::Method(method) => method.doc.trim_start(),
        }
    }

    /// Returns the parameters.
    ///
    /// See [`Parameter`] for an example.
    pub fn parameters(self) -> Vec<Parameter> {
        match self {
            Self::Op(op) => {
                op.arguments.iter().map(|&name| Parameter { name, takes_rest: false, default: None }).collect()
            }
            Self::Method(method) => method.parameters.to_vec(),
        }
    }

    /// Returns the name with the parameters: `softmax(x, axis=-1)`.
    ///
    /// See [`function`](self) for an example.
    pub fn signature(self) -> String {
        let parameters: Vec<String> = self.parameters().iter().map(ToString::to_string).collect();
        format!("{}({})", self.name(), parameters.join(", "))
    }

    /// Calls the function with arguments for the leading parameters; the others take their defaults. Functions
    /// without a tensor argument create their result on `device`.
    ///
    /// See [`function`](self) for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if an argument is missing, unexpected, or of the wrong type, and otherwise the error
    /// of the method.
    pub fn call(self, arguments: &[Dynamic], device: &Device) -> Result<Tensor, CallError> {
        let parameters = if let Self::Method(method) = self { method.parameters } else { &[] };
        let mut call = Call { function: self, parameters, arguments, device, next: 0 };
        let result = match self {
            Self::Op(op) => call.apply(op)?,
            Self::Method(method) => (method.call)(&mut call)?,
        };
        if arguments.len() > call.next {
            return Err(call.error(call.next, "expected no more arguments, found one"));
        }
        Ok(result)
    }
}

/// A call in progress, which reads its arguments in order.
struct Call<'a> {
    function: Function,
    /// The parameters of a method.
    parameters: &'static [Parameter],
    arguments: &'a [Dynamic],
    device: &'a Device,
    next: usize,
}

impl Call<'_> {
    /// Returns the next argument, or the default of its parameter.
    fn read<T: FromDynamic>(&mut self) -> Result<T, CallError> {
        let index = self.next;
        // In bounds: the `methods!` macro reads each declared parameter exactly once, in order.
        let parameter = self.parameters[index];
        let default = parameter.default_value();
        let Some(argument) = self.arguments.get(index).or(default.as_ref()) else {
            return Err(self.error(index, &format!("expected `{}`, found no such argument", parameter.name)));
        };
        self.next = index + 1;
        T::from_dynamic(argument, self.device)?.ok_or_else(|| {
            let message = format!("expected {} for `{}`, found {argument}", T::EXPECTED, parameter.name);
            self.error(index, &message)
        })
    }

    fn error(&self, argument: usize, message: &str) -> CallError {
        let message = format!("{} {message}; it is {}", self.function.name(), self.function.signature());
        CallError { argument: Some(argument), error: Error::new(ErrorKind::InvalidArgument, message) }
    }

    /// Applies an elementwise op. Numbers become tensors with the dtype that matches the other operands.
    fn apply(&mut self, op: &'static ElementOp) -> Result<Tensor, CallError> {
        let is_condition = |index: usize| index == 0 && op.signature == Signature::Select;
        let mut tensors = self.arguments.iter().enumerate().filter_map(|(index, argument)| match argument {
            Dynamic::Tensor(tensor) => Some((index, tensor)),
            _ => None,
        });
        // Numbers take shape and dtype from the first tensor; without one they are `f32` scalars.
        let shape = tensors.clone().next().map_or_else(Default::default, |(_, tensor)| tensor.shape().clone());
        let dtype = match op.signature {
            Signature::Bits { .. } | Signature::BitsToFloat { .. } => DType::U32,
            _ => tensors.find(|(index, _)| !is_condition(*index)).map_or(DType::F32, |(_, tensor)| tensor.dtype()),
        };
        let operand = |(index, argument): (usize, &Dynamic)| {
            let dtype = if is_condition(index) { DType::U8 } else { dtype };
            match argument {
                Dynamic::Tensor(tensor) => Ok(tensor.clone()),
                Dynamic::Number(number) => Tensor::full(&shape, *number, dtype, self.device).map_err(|_| {
                    self.error(index, &format!("expected a number that {dtype} can hold, found {number}"))
                }),
                Dynamic::Flag(flag) if matches!(dtype, DType::U8 | DType::Bool) => {
                    Ok(Tensor::full(&shape, u8::from(*flag), dtype, self.device)?)
                }
                _ => Err(self.error(index, &format!("expected a tensor or a number, found {argument}"))),
            }
        };
        let operands = self.arguments.iter().enumerate().map(operand).collect::<Result<Vec<_>, _>>()?;
        self.next = self.arguments.len();
        Ok(Tensor::apply(op, &operands.iter().collect::<Vec<_>>())?)
    }
}
