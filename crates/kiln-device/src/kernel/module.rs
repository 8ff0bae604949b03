//! Creates a module that a device can translate from a key: parsed, validated, specialised, with numbered bindings.

use super::depth::{self, MAX_DECLARATIONS, MAX_DEPTH};
use super::key::KernelKey;
use super::reflect::Reflection;
use super::source::Optimisation;
use super::{bindings, diagnostics, split_grid, text};
use crate::info::{DeviceInfo, Feature};
use kiln_ir::{ErrorKind, Result};
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, ArraySize, GlobalVariable, Handle, Module, ShaderStage, Type, TypeInner};

/// A validated WGSL module with one entry point and no overrides, ready for translation.
///
/// Buffers are in group 0 and values in group 1, numbered from zero in the order of the [reflection](Self::reflection).
///
/// See [`DeviceApi`](crate::DeviceApi) for an example.
#[derive(Debug)]
pub struct KernelModule {
    /// The module.
    pub module: Module,
    /// The result of its validation.
    pub info: ModuleInfo,
    /// The bindings and limits that a launch must respect.
    pub reflection: Reflection,
    /// The key it was created from, with options for the device.
    pub key: KernelKey,
}

impl KernelModule {
    /// Parses, validates and specialises the source of a key.
    ///
    /// # Errors
    /// Returns `CompileFailed` with file, line, column and text if the source has an error; `Unsupported` if it uses a
    /// feature that the device or Kiln lacks.
    pub fn new(key: &KernelKey, device: &DeviceInfo) -> Result<Self> {
        let mut module = parse(key, device)?;
        // Before validation, which visits the members of all types recursively.
        diagnostics::check_types(&module, key)?;
        name_lengths(&mut module);
        let info = validate(&module, device, key)?;
        // After validation, so that errors in the source are reported first.
        let entry = find_entry(&module, key)?;
        let (mut module, _) = specialise(&module, &info, &entry, key)?;
        module.entry_points.retain(|point| point.stage == ShaderStage::Compute && point.name == entry);
        diagnostics::check_inputs(&module, key)?;
        if key.options.optimisation == Optimisation::Full {
            naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
        }
        let grid = if key.wide_grid { Some(split_grid::add_grid_offset(&mut module)?) } else { None };
        // Validated again, because specialisation and the split grid change the module.
        let info = validate(&module, device, key)?;
        let numbered = bindings::number(&mut module, &info, grid, key)?;
        let reflection = reflect(&module, &info, &numbered, grid);
        // Here instead of in the driver, some of which lose the device.
        diagnostics::check_limits(&module, &info, &reflection, device, key)?;
        Ok(Self { module, info, reflection, key: key.clone() })
    }
}

fn parse(key: &KernelKey, device: &DeviceInfo) -> Result<Module> {
    let (text, subgroups) = text::without_subgroups(&key.source);
    if subgroups.is_some() && !device.features.contains(&Feature::Subgroups) {
        let message = format!("expected a device with subgroups, which the kernel enables, found `{}`", device.id);
        return Err(diagnostics::error_at(key, subgroups, ErrorKind::Unsupported, &message));
    }
    let (depth, deepest) = depth::deepest(&text);
    let too_deep = || {
        let expected = format!(
            "brackets and operators nested at most about {MAX_DEPTH} deep, and at most {MAX_DECLARATIONS} declarations"
        );
        diagnostics::error_at(key, Some(deepest), ErrorKind::Unsupported, &format!("expected {expected}, found more"))
    };
    // Before the parser runs, whose recursion would overflow the stack.
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    naga::front::wgsl::parse_str(&text).map_err(|error| {
        let span = error.labels().next().map(|(span, _)| span);
        let diagnostic = error.emit_to_string_with_path(&key.source, &key.name);
        // naga's parser has its own recursion limit for brackets and prefix operators, and reports it without a
        // location.
        let is_too_deep = span.is_none() && diagnostic.contains("recursion limit");
        if is_too_deep { too_deep() } else { diagnostics::compile_error(key, span, &diagnostic) }
    })
}

fn validate(module: &Module, device: &DeviceInfo, key: &KernelKey) -> Result<ModuleInfo> {
    let mut validator = Validator::new(ValidationFlags::all(), capabilities(device));
    validator.validate(module).map_err(|error| diagnostics::invalid(module, &error, key))
}

fn capabilities(device: &DeviceInfo) -> Capabilities {
    // `unpack2x16float` and similar functions need no `enable`.
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SHADER_FLOAT16, device.features.contains(&Feature::ShaderF16));
    capabilities.set(Capabilities::SUBGROUP, device.features.contains(&Feature::Subgroups));
    capabilities.set(Capabilities::SUBGROUP_BARRIER, device.features.contains(&Feature::Subgroups));
    capabilities
}

fn find_entry(module: &Module, key: &KernelKey) -> Result<String> {
    let kernels: Vec<&str> = (module.entry_points.iter())
        .filter(|point| point.stage == ShaderStage::Compute)
        .map(|point| point.name.as_str())
        .collect();
    let found = match kernels[..] {
        _ if !key.entry.is_empty() => kernels.iter().find(|name| **name == key.entry).copied(),
        [only] => Some(only),
        _ => None,
    };
    found.map(str::to_string).ok_or_else(|| {
        let wanted = if key.entry.is_empty() {
            "one compute entry point, or the name of one".to_string()
        } else {
            format!("a compute entry point `{}`", key.entry)
        };
        let found = if kernels.is_empty() { "none".to_string() } else { format!("`{}`", kernels.join("`, `")) };
        diagnostics::error_at(key, None, ErrorKind::CompileFailed, &format!("expected {wanted}, found {found}"))
    })
}

/// Replaces the overrides of a module by their values.
fn specialise(module: &Module, info: &ModuleInfo, entry: &str, key: &KernelKey) -> Result<(Module, ModuleInfo)> {
    let constants = key.constants.iter().map(|(name, value)| (constant_name(module, name), *value)).collect();
    let stage = Some((ShaderStage::Compute, entry));
    match process_overrides(module, info, stage, &constants) {
        Ok((module, info)) => {
            let mut module = module.into_owned();
            resolve_lengths(&mut module);
            Ok((module, info.into_owned()))
        }
        Err(PipelineConstantError::MissingValue(given)) => {
            // naga identifies an override by its `@id` if it has one.
            let is_it = |constant: &naga::Override| {
                constant.name.as_ref() == Some(&given) || constant.id.is_some_and(|id| id.to_string() == given)
            };
            let found = module.overrides.iter().find(|(_, constant)| is_it(constant));
            let span = found.map(|(handle, _)| module.overrides.get_span(handle));
            let name = found.and_then(|(_, constant)| constant.name.as_ref()).unwrap_or(&given);
            let message = format!("expected a value for the constant `{name}`, found none");
            Err(diagnostics::error_at(key, span, ErrorKind::CompileFailed, &message))
        }
        Err(error) => {
            let names: Vec<String> = (module.overrides.iter())
                .filter_map(|(_, constant)| constant.name.clone().or_else(|| constant.id.map(|id| id.to_string())))
                .collect();
            let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            let message = format!("expected values for the constants of the kernel ({names}), found: {error}");
            Err(diagnostics::error_at(key, None, ErrorKind::CompileFailed, &message))
        }
    }
}

/// Names the anonymous overrides that naga creates for array lengths: it panics if another override follows one that
/// has neither a name nor an id. The names contain a space, so that no caller can set them.
fn name_lengths(module: &mut Module) {
    let unnamed = module.overrides.iter_mut().filter(|(_, constant)| constant.name.is_none() && constant.id.is_none());
    for (handle, constant) in unnamed {
        constant.name = Some(format!("length {}", handle.index()));
    }
}

/// Returns naga's identifier of an override: its id if it has one, whether the caller used the id or the name.
fn constant_name(module: &Module, given: &str) -> String {
    let mut constants = module.overrides.iter().map(|(_, constant)| constant);
    let id = constants.find(|constant| constant.name.as_deref() == Some(given)).and_then(|constant| constant.id);
    id.map_or_else(|| given.to_string(), |id| id.to_string())
}

/// Writes array lengths that are overrides into their types, because not all writers of naga resolve them.
fn resolve_lengths(module: &mut Module) {
    let pending: Vec<_> = (module.types.iter())
        .filter_map(|(handle, ty)| match ty.inner {
            TypeInner::Array { base, size: size @ ArraySize::Pending(_), stride } => {
                let naga::proc::IndexableLength::Known(length) = size.resolve(module.to_ctx()).ok()? else {
                    return None;
                };
                let inner = TypeInner::Array { base, size: ArraySize::Constant(length.try_into().ok()?), stride };
                Some((handle, Type { name: ty.name.clone(), inner }))
            }
            _ => None,
        })
        .collect();
    for (handle, mut ty) in pending {
        // Types must be unique in the arena; a distinct name makes an equal type unique.
        if module.types.get(&ty).is_some() {
            ty.name = Some(format!("kiln_array_{}", handle.index()));
        }
        module.types.replace(handle, ty);
    }
}

fn reflect(
    module: &Module,
    info: &ModuleInfo,
    numbered: &[bindings::NumberedBinding],
    grid: Option<Handle<GlobalVariable>>,
) -> Reflection {
    let (point, uses) = (&module.entry_points[0], info.get_entry_point(0));
    let shared = module
        .global_variables
        .iter()
        .filter(|(handle, variable)| variable.space == AddressSpace::WorkGroup && !uses[*handle].is_empty());
    let shared = shared.map(|(_, variable)| u64::from(bindings::size(module, variable.ty)));
    Reflection {
        entry: point.name.clone(),
        workgroup_size: point.workgroup_size,
        workgroup_bytes: u32::try_from(shared.sum::<u64>()).unwrap_or(u32::MAX),
        bindings: numbered.iter().map(|numbered| bindings::binding(module, *numbered, grid)).collect(),
    }
}
