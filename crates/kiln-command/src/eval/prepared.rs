//! A call with tensors, made again and again.

use super::call::{Call, CallFault, Given};
use super::fault::Span;
use super::functions::{Callee, Function};
use super::value::Value;
use kiln::op::ElementOp;
use kiln::{Device, Tensor};

/// A call of an op, with its arguments in their places.
pub(crate) struct Prepared<'a>(Form<'a>);

enum Form<'a> {
    Op(&'static ElementOp, Vec<&'a Tensor>),
    Function(&'static Function, Call<'a>),
}

impl<'a> Prepared<'a> {
    /// A call with these tensors as the first arguments.
    pub(crate) fn new(callee: Callee, tensors: &'a [Tensor], device: &'a Device) -> Result<Self, String> {
        match callee {
            Callee::Op(op) => Ok(Self(Form::Op(op, tensors.iter().collect()))),
            Callee::Function(function) => {
                let span = Span { start: 0, end: 0 };
                let given = |tensor: &Tensor| Given { name: None, value: Value::Tensor(tensor.clone()), span };
                let call = Call::new(callee, tensors.iter().map(given).collect(), span, device);
                Ok(Self(Form::Function(function, call.map_err(|fault| fault.message)?)))
            }
        }
    }

    /// The result, which is not computed yet.
    pub(crate) fn call(&self) -> kiln::Result<Tensor> {
        match &self.0 {
            Form::Op(op, tensors) => Tensor::apply(op, tensors),
            Form::Function(function, call) => (function.call)(call).map_err(|fault| match fault {
                CallFault::Tensors(error) => error,
                CallFault::Arguments(fault) => kiln::Error::new(kiln::ErrorKind::InvalidArgument, fault.message),
            }),
        }
    }
}
