//! Errors of kernel sources with their location, which naga does not report for some errors, and checks of limits.

use super::key::KernelKey;
use super::reflect::Reflection;
use super::{bindings, text};
use crate::info::DeviceInfo;
use kiln_ir::{Error, ErrorKind, Result};
use naga::valid::{EntryPointError, ModuleInfo, TypeError, ValidationError, WidthError};
use naga::{
    AddressSpace, Binding, Expression, Function, GlobalVariable, Handle, Module, ShaderStage, Span, Type, TypeInner,
    WithSpan,
};

/// Creates an error at a location of the source, or for the source as a whole.
pub(super) fn error_at(key: &KernelKey, span: Option<Span>, kind: ErrorKind, message: &str) -> Error {
    let place = span.filter(Span::is_defined).map(|span| span.location(&key.source));
    let place = place.map_or_else(
        || key.name.clone(),
        |place| format!("{}:{}:{}", key.name, place.line_number, place.line_position),
    );
    Error::new(kind, format!("{place}: {message}"))
}

/// Creates an error with naga's diagnostic below Kiln's message.
pub(super) fn compile_error(key: &KernelKey, span: Option<Span>, diagnostic: &str) -> Error {
    let message = format!("expected a valid kernel, found an error\n{}", diagnostic.trim_end());
    error_at(key, span, ErrorKind::CompileFailed, &message)
}

/// Converts an error of naga's validator.
pub(super) fn invalid(module: &Module, error: &WithSpan<ValidationError>, key: &KernelKey) -> Error {
    use EntryPointError::{ForbiddenStageOperations, OutOfRangeWorkgroupSize};
    // naga gives no location for some errors of entry points and types. These are searched for in the text.
    let mut span = error.spans().next().map(|(span, _)| *span);
    match error.as_inner() {
        ValidationError::EntryPoint { name, source: ForbiddenStageOperations, stage: ShaderStage::Compute } => {
            if let Some(span) = derivative(module, name) {
                let message =
                    "expected operations of a compute kernel, found a derivative, which only fragment shaders have";
                return error_at(key, Some(span), ErrorKind::CompileFailed, message);
            }
            span = span.or_else(|| text::function(&key.source, name));
        }
        ValidationError::EntryPoint { name, source: OutOfRangeWorkgroupSize, .. } => {
            span = span.or_else(|| text::workgroup_size(&key.source, name));
        }
        ValidationError::EntryPoint { name, .. } => span = span.or_else(|| text::function(&key.source, name)),
        ValidationError::Type { handle, source, .. } => {
            span = span.or_else(|| declaration(module, *handle));
            if let TypeError::WidthError(WidthError::MissingCapability { name, .. }) = source {
                let span = span.or_else(|| text::word(&key.source, name));
                let numbers = "f32, i32 or u32, or f16 if the device supports it";
                let message = format!("expected {numbers}, found {name}, which is not supported");
                return error_at(key, span, ErrorKind::CompileFailed, &message);
            }
        }
        _ => {}
    }
    compile_error(key, span, &without_naga_hints(&error.emit_to_string_with_path(&key.source, &key.name)))
}

/// Removes instructions from a diagnostic that only concern users of naga.
fn without_naga_hints(diagnostic: &str) -> String {
    let line = |line: &str| match line.split_once(" values requires the `naga::valid::Capabilities::") {
        Some((number, _)) => format!("{} is not supported\n", number.replace("Using ", "")),
        None => format!("{line}\n"),
    };
    diagnostic.lines().map(line).collect()
}

/// Returns the location of the first derivative that an entry point may call.
fn derivative(module: &Module, entry: &str) -> Option<Span> {
    let find = |function: &Function| {
        let mut derivatives = function.expressions.iter().filter(|(_, it)| matches!(it, Expression::Derivative { .. }));
        derivatives.next().map(|(handle, _)| function.expressions.get_span(handle))
    };
    let own = module.entry_points.iter().find(|point| point.name == entry).and_then(|point| find(&point.function));
    own.or_else(|| module.functions.iter().find_map(|(_, function)| find(function)))
}

/// Returns the location of a variable of the invalid type: naga does not record the locations of types.
fn declaration(module: &Module, at_fault: Handle<Type>) -> Option<Span> {
    let functions = module.functions.iter().map(|(_, function)| function);
    let functions = functions.chain(module.entry_points.iter().map(|point| &point.function));
    let locals = functions.flat_map(|function| {
        let variables = &function.local_variables;
        variables.iter().map(|(local, variable)| (variable.ty, variables.get_span(local)))
    });
    let globals = &module.global_variables;
    let mut variables = globals.iter().map(|(global, variable)| (variable.ty, globals.get_span(global))).chain(locals);
    variables.find(|(ty, _)| has_part(module, *ty, at_fault)).map(|(_, span)| span)
}

fn has_part(module: &Module, ty: Handle<Type>, part: Handle<Type>) -> bool {
    ty == part
        || match &module.types[ty].inner {
            // The recursion is bounded: `check_types` runs before validation and limits the depth of types.
            TypeInner::Array { base, .. } => has_part(module, *base, part),
            TypeInner::Struct { members, .. } => members.iter().any(|member| has_part(module, member.ty, part)),
            _ => false,
        }
}

/// The maximum number of members of a type, nested ones included, and their maximum nesting depth. Code that visits a
/// type visits all members and recurses as deep; the stored form is read by a JSON parser with a recursion limit.
const MAX_TYPE_PARTS: u64 = 4096;
const MAX_TYPE_DEPTH: u64 = 32;

/// Limits the size of types: a struct with two members of another struct, and so on, doubles it at each level.
pub(super) fn check_types(module: &Module, key: &KernelKey) -> Result<()> {
    // Members and depth by handle: a type comes after the types of its members.
    let mut known: Vec<(u64, u64)> = Vec::with_capacity(module.types.len());
    for (_, ty) in module.types.iter() {
        let of = |part: Handle<Type>| known.get(part.index()).copied().unwrap_or((u64::MAX, u64::MAX));
        let inside: Vec<Handle<Type>> = match &ty.inner {
            TypeInner::Array { base, .. } => vec![*base],
            TypeInner::Struct { members, .. } => members.iter().map(|member| member.ty).collect(),
            _ => Vec::new(),
        };
        let parts = inside.iter().fold(1, |sum: u64, part| sum.saturating_add(of(*part).0));
        let depth = inside.iter().map(|part| of(*part).1).max().unwrap_or(0).saturating_add(1);
        if parts > MAX_TYPE_PARTS || depth > MAX_TYPE_DEPTH {
            let name = ty.name.as_deref().unwrap_or("array");
            let limits = format!("at most {MAX_TYPE_PARTS} nested members, {MAX_TYPE_DEPTH} deep");
            let message = format!("type `{name}` expected {limits}, found {parts}, {depth} deep");
            return Err(error_at(key, text::structure(&key.source, name), ErrorKind::Unsupported, &message));
        }
        known.push((parts, depth));
    }
    Ok(())
}

/// Checks that the only entry point takes inputs that a compute kernel can receive.
pub(super) fn check_inputs(module: &Module, key: &KernelKey) -> Result<()> {
    let point = &module.entry_points[0];
    for argument in &point.function.arguments {
        let is_location = |binding: &Option<Binding>| matches!(binding, Some(Binding::Location { .. }));
        let ty = &module.types[argument.ty];
        let in_struct = matches!(&ty.inner, TypeInner::Struct { members, .. }
            if members.iter().any(|member| is_location(&member.binding)));
        if is_location(&argument.binding) || in_struct {
            let span = match &ty.name {
                Some(name) if in_struct => text::location(&key.source, "struct", name),
                _ => text::location(&key.source, "fn", &point.name),
            };
            let name = argument.name.as_deref().unwrap_or_default();
            let message = format!("argument `{name}` expected a builtin of a compute kernel, found `@location`");
            return Err(error_at(key, span, ErrorKind::Unsupported, &message));
        }
    }
    Ok(())
}

/// Checks the limits of the device. A driver would report an excess in its own words, or lose the device.
pub(super) fn check_limits(
    module: &Module,
    info: &ModuleInfo,
    reflection: &Reflection,
    device: &DeviceInfo,
    key: &KernelKey,
) -> Result<()> {
    let limits = &device.limits;
    let size = reflection.workgroup_size.map(u64::from);
    let group = || text::workgroup_size(&key.source, &reflection.entry);
    let axes = ["x", "y", "z"].into_iter().zip(limits.max_workgroup_size).zip(size);
    let axes = axes
        .map(|((axis, limit), found)| (format!("invocations in a workgroup along {axis}"), u64::from(limit), found));
    let whole =
        ("invocations in a workgroup".to_string(), limits.max_workgroup_invocations.into(), size.iter().product());
    for (what, limit, found) in std::iter::once(whole).chain(axes) {
        if found > limit {
            return Err(limit_error(&what, limit, &found.to_string(), group(), device, key));
        }
    }
    let largest = |space| largest(module, info, space);
    let (limit, found) = (limits.max_workgroup_bytes.into(), u64::from(reflection.workgroup_bytes));
    if let Some((variable, bytes)) = largest(AddressSpace::WorkGroup).filter(|_| found > limit) {
        let name = module.global_variables[variable].name.as_deref().unwrap_or_default();
        let (found, span) =
            (format!("{found}, of which `{name}` has {bytes}"), module.global_variables.get_span(variable));
        return Err(limit_error("bytes of workgroup memory", limit, &found, Some(span), device, key));
    }
    match largest(AddressSpace::Uniform).filter(|(_, bytes)| *bytes > limits.max_value_bytes) {
        Some((variable, bytes)) => {
            let span = module.global_variables.get_span(variable);
            Err(limit_error("bytes in a value", limits.max_value_bytes, &bytes.to_string(), Some(span), device, key))
        }
        None => Ok(()),
    }
}

fn limit_error(what: &str, limit: u64, found: &str, span: Option<Span>, device: &DeviceInfo, key: &KernelKey) -> Error {
    let message = format!("expected at most {limit} {what} on `{}`, found {found}", device.id);
    error_at(key, span, ErrorKind::Unsupported, &message)
}

/// Returns the largest used variable and its size in bytes.
fn largest(module: &Module, info: &ModuleInfo, space: AddressSpace) -> Option<(Handle<GlobalVariable>, u64)> {
    let uses = info.get_entry_point(0);
    let variables = module.global_variables.iter();
    let variables = variables.filter(|(handle, variable)| variable.space == space && !uses[*handle].is_empty());
    variables
        .map(|(handle, variable)| (handle, u64::from(bindings::size(module, variable.ty))))
        // `max_by_key` returns the last of equal sizes; reversed, the error names the first declaration.
        .max_by_key(|(handle, bytes)| (*bytes, std::cmp::Reverse(handle.index())))
}
