//! Rejects call arguments that naga cannot translate.

use kiln_device::KernelModule;
use kiln_ir::{Error, ErrorKind, Result};
use naga::{Block, Expression, Function, Module, Span, Statement, TypeInner};

/// Returns `Unsupported` if a call passes a pointer to a part of a variable.
///
/// naga's validator accepts such a pointer, but its SPIR-V writer panics on it.
pub(crate) fn check(program: &KernelModule) -> Result<()> {
    let module = &program.module;
    let functions = module.functions.iter().map(|(_, function)| function);
    let mut functions = functions.chain(module.entry_points.iter().map(|point| &point.function));
    let Some(span) = functions.find_map(|function| find(module, function, &function.body)) else { return Ok(()) };
    let source = program.key.to_source();
    let place = span.location(source.text());
    let message = format!(
        "{}:{}:{}: expected pointers to whole variables as arguments on a GPU, found one to a part of a variable",
        source.name(),
        place.line_number,
        place.line_position
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// Returns the location of the first call with such an argument in a block or its nested blocks.
fn find(module: &Module, function: &Function, block: &Block) -> Option<Span> {
    let find = |block| find(module, function, block);
    block.span_iter().find_map(|(statement, span)| match statement {
        Statement::Call { function: callee, arguments, .. } => {
            let parameters = &module.functions[*callee].arguments;
            let mut pairs = parameters.iter().zip(arguments);
            let is_part = pairs.any(|(parameter, argument)| {
                // Only pointers: a part of a variable that is passed by value was loaded before the call.
                matches!(module.types[parameter.ty].inner, TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
                    && matches!(
                        function.expressions[*argument],
                        Expression::Access { .. } | Expression::AccessIndex { .. }
                    )
            });
            is_part.then_some(*span)
        }
        Statement::Block(block) => find(block),
        Statement::If { accept, reject, .. } => find(accept).or_else(|| find(reject)),
        Statement::Switch { cases, .. } => cases.iter().find_map(|case| find(&case.body)),
        Statement::Loop { body, continuing, .. } => find(body).or_else(|| find(continuing)),
        _ => None,
    })
}
