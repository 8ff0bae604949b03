//! Calls: binds arguments to the parameters of a signature.

use super::ast::Word;
use super::fault::{Fault, Span};
use crate::terminal::count;
use kiln::function::{Dynamic, Function, Parameter};
use kiln::{Device, Tensor};

/// An argument with its span in the source.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) name: Option<Word>,
    pub(super) value: Dynamic,
    pub(super) span: Span,
}

/// Calls a function. `span` is the span of the call in the source.
pub(super) fn call(function: Function, given: Vec<Given>, span: Span, device: &Device) -> Result<Tensor, Fault> {
    let (arguments, spans): (Vec<Dynamic>, Vec<Span>) = bind(function, given, span)?.into_iter().unzip();
    function.call(&arguments, device).map_err(|fault| {
        let span = fault.argument.and_then(|index| spans.get(index)).copied().unwrap_or(span);
        Fault::new(span, fault.error.to_string())
    })
}

/// Returns an argument for each parameter, in the order of the parameters: positional ones first, then named ones, then defaults.
fn bind(function: Function, given: Vec<Given>, span: Span) -> Result<Vec<(Dynamic, Span)>, Fault> {
    let (name, parameters) = (function.name(), function.parameters());
    let fault = |span, message: String| Fault::new(span, format!("{message}; usage: {}", function.signature()));
    let mut slots: Vec<Option<(Dynamic, Span)>> = vec![None; parameters.len()];
    // The parameter of the next positional argument. It stays at a parameter that takes the rest, so that later ones are appended.
    let mut next = 0;
    for Given { name: keyword, value, span } in given {
        let index = match &keyword {
            Some(word) => {
                let index = parameters.iter().position(|parameter| parameter.name == word.text);
                index.ok_or_else(|| fault(word.span, format!("{name} has no argument `{}`", word.text)))?
            }
            None => next,
        };
        let Some(parameter) = parameters.get(index) else {
            let most = count(parameters.len() as u64, "argument");
            return Err(fault(span, format!("{name} expected at most {most}, found more")));
        };
        match (&mut slots[index], keyword) {
            (Some((Dynamic::List(items), all)), None) if parameter.takes_rest && next == index => {
                items.push(value);
                *all = all.to(span);
            }
            (Some(_), word) => {
                let span = word.map_or(span, |word| word.span);
                return Err(fault(span, format!("{name} expected `{}` once, found it twice", parameter.name)));
            }
            (slot, None) if parameter.takes_rest && !matches!(value, Dynamic::List(_)) => {
                *slot = Some((Dynamic::List(vec![value]), span));
            }
            (slot, keyword) => {
                *slot = Some((value, span));
                next = if keyword.is_none() { next + 1 } else { next };
            }
        }
    }
    let argument = |(parameter, slot): (&Parameter, Option<(Dynamic, Span)>)| {
        let missing = || fault(span, format!("{name} expected `{}`, found no such argument", parameter.name));
        slot.or_else(|| Some((parameter.default_value()?, span))).ok_or_else(missing)
    };
    parameters.iter().zip(slots).map(argument).collect()
}
