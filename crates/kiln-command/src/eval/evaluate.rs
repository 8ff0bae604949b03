//! Evaluates a script to a tensor. Nothing is computed here: tensors record what is to be done.

use super::ast::{Argument, Expr, ExprId, ExprKind, Operator, Script};
use super::call::{Call, CallFault, Given};
use super::fault::{Fault, Span};
use super::functions::Callee;
use super::index;
use super::value::Value;
use crate::names::similar;
use kiln::op::{ElementOp, Signature};
use kiln::{DType, Device, Tensor};
use std::collections::BTreeMap;

/// The tensor that a script comes to, where these variables are given.
pub(super) fn evaluate(script: &Script, variables: BTreeMap<String, Value>, device: &Device) -> Result<Tensor, Fault> {
    let mut run = Run { script, device, variables, values: Vec::with_capacity(script.exprs.len()) };
    let mut result = (Value::Nothing, Span { start: 0, end: 0 });
    for statement in &script.statements {
        while run.values.len() <= statement.value.0 {
            let value = run.expr(&script.exprs[run.values.len()])?;
            run.values.push(Some(value));
        }
        result = run.take(statement.value);
        if let Some(target) = &statement.target {
            if Value::of_word(&target.text).is_some() {
                let message = format!("expected a name for a variable, found `{}`, which has a meaning", target.text);
                return Err(Fault::new(target.span, message));
            }
            run.variables.insert(target.text.clone(), result.0.clone());
        }
    }
    match result {
        (Value::Tensor(tensor), _) => Ok(tensor),
        (Value::Number(number), span) => {
            Tensor::full((), number, DType::F32, device).map_err(|error| Fault::new(span, error.to_string()))
        }
        (value, span) => Err(value.instead_of("a tensor as the result", span)),
    }
}

struct Run<'a> {
    script: &'a Script,
    device: &'a Device,
    variables: BTreeMap<String, Value>,
    /// Of the expressions so far. Each is used once, and its value is dropped then: what nobody holds needs no memory.
    values: Vec<Option<Value>>,
}

impl Run<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Value, Fault> {
        match &expr.kind {
            ExprKind::Number(number) => Ok(Value::Number(*number)),
            ExprKind::Text(text) => Ok(Value::Text(text.clone())),
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::List(items) => Ok(Value::List(items.iter().map(|item| self.take(*item).0).collect())),
            ExprKind::Negate(operand) => match self.take(*operand) {
                (Value::Number(number), _) => Ok(Value::Number(-number)),
                operand => self.call("neg", expr.span, expr.span, vec![given(operand)]),
            },
            ExprKind::Binary(operator, left, right) => {
                let (left, right) = (self.take(*left), self.take(*right));
                if let (Value::Number(left), Value::Number(right)) = (&left.0, &right.0)
                    && let Some(number) = fold(*operator, *left, *right)
                {
                    return Ok(Value::Number(number));
                }
                self.call(operator.function, expr.span, expr.span, vec![given(left), given(right)])
            }
            ExprKind::Call { function, arguments } => {
                let argument = |Argument { name, value }: &Argument| {
                    let (value, span) = self.take(*value);
                    Given { name: name.clone(), value, span }
                };
                let arguments = arguments.iter().map(argument).collect();
                self.call(&function.text, function.span, expr.span, arguments)
            }
            ExprKind::Index { of, items } => {
                let (value, span) = self.take(*of);
                let Value::Tensor(tensor) = value else { return Err(value.instead_of("a tensor", span)) };
                index::apply(tensor, items, expr.span, |id| self.take(id)).map(Value::Tensor)
            }
        }
    }

    /// The value of an earlier expression, and its span.
    fn take(&mut self, id: ExprId) -> (Value, Span) {
        let value = self.values.get_mut(id.0).and_then(Option::take);
        (value.unwrap_or(Value::Nothing), self.script.exprs[id.0].span)
    }

    fn name(&self, name: &str, span: Span) -> Result<Value, Fault> {
        if let Some(value) = self.variables.get(name).cloned().or_else(|| Value::of_word(name)) {
            return Ok(value);
        }
        let near = similar(name, self.variables.keys().map(String::as_str));
        let hint = if Callee::by_name(name).is_some() {
            "the function of this name wants its arguments in brackets".to_string()
        } else if !near.is_empty() {
            format!("similar: {}", near.join(", "))
        } else if ["8", "16", "32", "64"].iter().any(|bits| name.ends_with(bits)) {
            format!("the dtypes are {}", DType::ALL.map(DType::name).join(", "))
        } else {
            format!("give it with `--in {name}=FILE.npy`")
        };
        Err(Fault::new(span, format!("unknown name `{name}`; {hint}")))
    }

    fn call(&self, name: &str, name_span: Span, span: Span, given: Vec<Given>) -> Result<Value, Fault> {
        let Some(callee) = Callee::by_name(name) else {
            let near = similar(name, Callee::all().map(Callee::name));
            let hint = match &near[..] {
                [] => "`kiln eval --functions` lists all".to_string(),
                _ => format!("similar: {}", near.join(", ")),
            };
            return Err(Fault::new(name_span, format!("unknown function `{name}`; {hint}")));
        };
        let call = Call::new(callee, given, span, self.device)?;
        let result = match callee {
            Callee::Function(function) => (function.call)(&call),
            Callee::Op(op) => apply(op, &call),
        };
        match result {
            Ok(tensor) => Ok(Value::Tensor(tensor)),
            Err(CallFault::Arguments(fault)) => Err(fault),
            Err(CallFault::Tensors(error)) => Err(Fault::new(span, error.to_string())),
        }
    }
}

fn given((value, span): (Value, Span)) -> Given {
    Given { name: None, value, span }
}

/// An operator between two numbers. Without a tensor they have no dtype, so this is arithmetic of `f64`.
fn fold(operator: Operator, left: f64, right: f64) -> Option<f64> {
    match operator.symbol {
        "+" => Some(left + right),
        "-" => Some(left - right),
        "*" => Some(left * right),
        "/" => Some(left / right),
        "**" => Some(left.powf(right)),
        _ => None,
    }
}

/// An elementwise op. Numbers become tensors of the dtype that the op wants beside the tensors that it has.
fn apply(op: &'static ElementOp, call: &Call<'_>) -> Result<Tensor, CallFault> {
    let is_condition = |place: usize| place == 0 && op.signature == Signature::Select;
    let tensors = |skip_condition: bool| {
        let beside = call.values().enumerate().filter(move |(place, _)| !(skip_condition && is_condition(*place)));
        beside.filter_map(|(_, (value, _))| if let Value::Tensor(tensor) = value { Some(tensor) } else { None })
    };
    let dtype = match op.signature {
        Signature::Bits { .. } | Signature::BitsToFloat { .. } => DType::U32,
        _ => tensors(true).next().map_or(DType::F32, Tensor::dtype),
    };
    let shape = tensors(false).next().map_or_else(Default::default, |tensor| tensor.shape().clone());
    let operand = |(place, (value, span)): (usize, (&Value, Span))| {
        let dtype = if is_condition(place) { DType::U8 } else { dtype };
        match value {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Number(number) => Tensor::full(&shape, *number, dtype, call.device)
                .map_err(|_| Fault::new(span, format!("expected a number that {dtype} can hold, found {number}"))),
            Value::Flag(flag) if dtype == DType::U8 => Tensor::full(&shape, u8::from(*flag), dtype, call.device)
                .map_err(|error| Fault::new(span, error.to_string())),
            _ => Err(value.instead_of("a tensor or a number", span)),
        }
    };
    let operands = call.values().enumerate().map(operand).collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::apply(op, &operands.iter().collect::<Vec<_>>())?)
}
