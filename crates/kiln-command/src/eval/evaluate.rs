//! Evaluates a script to a tensor. Tensors are lazy, so nothing is computed here.

use super::ast::{Argument, Expr, ExprId, ExprKind, Operator, Script};
use super::call::{Given, call};
use super::fault::{Fault, Span};
use super::index;
use crate::names::{similar, similar_or};
use kiln::function::{Dynamic, Function};
use kiln::{DType, Device, Tensor};
use std::collections::BTreeMap;

/// Evaluates a script with these variables.
pub(super) fn evaluate(
    script: &Script,
    variables: BTreeMap<String, Dynamic>,
    device: &Device,
) -> Result<Tensor, Fault> {
    let mut run = Run { script, device, variables, values: Vec::with_capacity(script.exprs.len()) };
    let mut result = (Dynamic::None, Span { start: 0, end: 0 });
    for statement in &script.statements {
        // Operands precede their expression in the list (see `ast`), so one pass in order evaluates everything.
        while run.values.len() <= statement.value.0 {
            let value = run.expr(&script.exprs[run.values.len()])?;
            run.values.push(Some(value));
        }
        result = run.take(statement.value);
        if let Some(target) = &statement.target {
            if Dynamic::from_keyword(&target.text).is_some() {
                let message = format!("expected a variable name, found the reserved name `{}`", target.text);
                return Err(Fault::new(target.span, message));
            }
            run.variables.insert(target.text.clone(), result.0.clone());
        }
    }
    match result {
        (Dynamic::Tensor(tensor), _) => Ok(tensor),
        (Dynamic::Number(number), span) => {
            Tensor::full((), number, DType::F32, device).map_err(|error| Fault::new(span, error.to_string()))
        }
        (value, span) => Err(Fault::instead_of("a tensor as the result", &value, span)),
    }
}

struct Run<'a> {
    script: &'a Script,
    device: &'a Device,
    variables: BTreeMap<String, Dynamic>,
    /// Values of the expressions so far. Each is used once and taken then, so that unused tensors free their memory.
    values: Vec<Option<Dynamic>>,
}

impl Run<'_> {
    fn expr(&mut self, expr: &Expr) -> Result<Dynamic, Fault> {
        match &expr.kind {
            ExprKind::Number(number) => Ok(Dynamic::Number(*number)),
            ExprKind::Text(text) => Ok(Dynamic::Text(text.clone())),
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::List(items) => Ok(Dynamic::List(items.iter().map(|item| self.take(*item).0).collect())),
            ExprKind::Negate(operand) => match self.take(*operand) {
                (Dynamic::Number(number), _) => Ok(Dynamic::Number(-number)),
                operand => self.call("neg", expr.span, expr.span, vec![given(operand)]),
            },
            ExprKind::Binary(operator, left, right) => {
                let (left, right) = (self.take(*left), self.take(*right));
                // Numbers stay numbers where possible: `reshape(2 * 3, 4)` needs whole numbers, not tensors.
                if let (Dynamic::Number(left), Dynamic::Number(right)) = (&left.0, &right.0)
                    && let Some(number) = fold_constants(*operator, *left, *right)
                {
                    return Ok(Dynamic::Number(number));
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
                let Dynamic::Tensor(tensor) = value else { return Err(Fault::instead_of("a tensor", &value, span)) };
                index::apply(tensor, items, expr.span, |id| self.take(id)).map(Dynamic::Tensor)
            }
        }
    }

    /// Takes the value of an earlier expression, with its span.
    fn take(&mut self, id: ExprId) -> (Dynamic, Span) {
        let value = self.values.get_mut(id.0).and_then(Option::take);
        (value.unwrap_or(Dynamic::None), self.script.exprs[id.0].span)
    }

    fn name(&self, name: &str, span: Span) -> Result<Dynamic, Fault> {
        if let Some(value) = self.variables.get(name).cloned().or_else(|| Dynamic::from_keyword(name)) {
            return Ok(value);
        }
        let near = similar(name, self.variables.keys().map(String::as_str));
        let hint = if Function::by_name(name).is_some() {
            "it is a function: add its arguments in parentheses".to_string()
        } else if !near.is_empty() {
            format!("similar: {}", near.join(", "))
        } else if ["8", "16", "32", "64"].iter().any(|bits| name.ends_with(bits)) {
            format!("the dtypes are {}", DType::ALL.map(DType::name).join(", "))
        } else {
            format!("set it with `--in {name}=FILE.npy`")
        };
        Err(Fault::new(span, format!("unknown name `{name}`; {hint}")))
    }

    fn call(&self, name: &str, name_span: Span, span: Span, given: Vec<Given>) -> Result<Dynamic, Fault> {
        let Some(function) = Function::by_name(name) else {
            let hint = similar_or(name, Function::all().map(Function::name), "`kiln eval --functions` lists all");
            return Err(Fault::new(name_span, format!("unknown function `{name}`; {hint}")));
        };
        call(function, given, span, self.device).map(Dynamic::Tensor)
    }
}

fn given((value, span): (Dynamic, Span)) -> Given {
    Given { name: None, value, span }
}

/// Applies an operator to two numbers. Without a tensor they have no dtype, so this is `f64` arithmetic.
fn fold_constants(operator: Operator, left: f64, right: f64) -> Option<f64> {
    match operator.symbol {
        "+" => Some(left + right),
        "-" => Some(left - right),
        "*" => Some(left * right),
        "/" => Some(left / right),
        "**" => Some(left.powf(right)),
        _ => None,
    }
}
