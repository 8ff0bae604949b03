//! From a key to a program that a device can translate: parsed, checked, specialised, its bindings numbered.

use super::key::KernelKey;
use super::reflect::{Binding, BindingKind, Member, Reflection, Scalar};
use super::source::Optimisation;
use super::wide;
use crate::info::{DeviceInfo, Feature};
use kiln_ir::{Error, ErrorKind, Result};
use naga::valid::{Capabilities, ModuleInfo, ValidationError, ValidationFlags, Validator};
use naga::{AddressSpace, ArraySize, Handle, Module, ShaderStage, Span, StorageAccess, Type, TypeInner};

/// A kernel's program, for a device to translate: one entry point and no overrides. Buffers are in group 0 and values in
/// group 1, numbered from zero in the order of the [reflection](Self::reflection).
#[derive(Debug)]
pub struct Program {
    /// The program.
    pub module: Module,
    /// What validation found out about it.
    pub info: ModuleInfo,
    /// What it wants of its caller.
    pub reflection: Reflection,
    /// The key that it was made of; its options are for the device.
    pub key: KernelKey,
}

impl Program {
    /// Parses, checks and specialises the source of a key.
    ///
    /// # Errors
    /// `CompileFailed` with file, line, column and text where the source is at fault; `Unsupported` where it wants what
    /// the device, or Kiln, does not have.
    pub fn new(key: &KernelKey, device: &DeviceInfo) -> Result<Self> {
        let mut module = parse(key)?;
        name_lengths(&mut module);
        let info = validate(&module, device, key)?;
        let entry = find_entry(&module, key)?;
        let (mut module, _) = specialise(&module, &info, &entry, key)?;
        module.entry_points.retain(|point| point.stage == ShaderStage::Compute && point.name == entry);
        if key.options.optimisation == Optimisation::Full {
            naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
        }
        let grid = if key.wide_grid { Some(wide::widen(&mut module)?) } else { None };
        let info = validate(&module, device, key)?;
        let bindings = number_bindings(&mut module, &info, key)?;
        let reflection = reflect(&module, &info, &bindings, grid, device, key)?;
        Ok(Self { module, info, reflection, key: key.clone() })
    }
}

fn parse(key: &KernelKey) -> Result<Module> {
    naga::front::wgsl::parse_str(&key.source).map_err(|error| {
        let place = error.location(&key.source);
        compile_error(key, place, &error.emit_to_string_with_path(&key.source, &key.name))
    })
}

fn validate(module: &Module, device: &DeviceInfo, key: &KernelKey) -> Result<ModuleInfo> {
    let mut validator = Validator::new(ValidationFlags::all(), capabilities(device));
    validator.validate(module).map_err(|error| {
        let declared = || Some(declaration(module, error.as_inner())?.location(&key.source));
        let place = error.location(&key.source).or_else(declared);
        compile_error(key, place, &error.emit_to_string_with_path(&key.source, &key.name))
    })
}

/// Where a variable has the type that is at fault: naga does not know where types are.
fn declaration(module: &Module, error: &ValidationError) -> Option<Span> {
    let ValidationError::Type { handle, .. } = error else { return None };
    let functions = module.functions.iter().map(|(_, function)| function);
    let functions = functions.chain(module.entry_points.iter().map(|point| &point.function));
    let locals = functions.flat_map(|function| {
        let variables = &function.local_variables;
        variables.iter().map(|(local, variable)| (variable.ty, variables.get_span(local)))
    });
    let globals = &module.global_variables;
    let mut variables = globals.iter().map(|(global, variable)| (variable.ty, globals.get_span(global))).chain(locals);
    variables.find(|(ty, _)| has_part(module, *ty, *handle)).map(|(_, span)| span)
}

fn has_part(module: &Module, ty: Handle<Type>, part: Handle<Type>) -> bool {
    ty == part
        || match &module.types[ty].inner {
            TypeInner::Array { base, .. } => has_part(module, *base, part),
            TypeInner::Struct { members, .. } => members.iter().any(|member| has_part(module, member.ty, part)),
            _ => false,
        }
}

fn capabilities(device: &DeviceInfo) -> Capabilities {
    // `unpack2x16float` and its like need no `enable`.
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SHADER_FLOAT16, device.features.contains(&Feature::ShaderF16));
    capabilities.set(Capabilities::SUBGROUP, device.features.contains(&Feature::Subgroups));
    capabilities.set(Capabilities::SUBGROUP_BARRIER, device.features.contains(&Feature::Subgroups));
    capabilities
}

/// The picture of naga below a line of Kiln.
fn compile_error(key: &KernelKey, place: Option<naga::SourceLocation>, picture: &str) -> Error {
    let message = format!("expected a valid kernel, found an error\n{}", picture.trim_end());
    refuse_at(key, place, ErrorKind::CompileFailed, &message)
}

fn refuse(key: &KernelKey, kind: ErrorKind, message: &str) -> Error {
    refuse_at(key, None, kind, message)
}

fn refuse_at(key: &KernelKey, place: Option<naga::SourceLocation>, kind: ErrorKind, message: &str) -> Error {
    let place = place.map_or_else(
        || key.name.clone(),
        |place| format!("{}:{}:{}", key.name, place.line_number, place.line_position),
    );
    Error::new(kind, format!("{place}: {message}"))
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
        refuse(key, ErrorKind::CompileFailed, &format!("expected {wanted}, found {found}"))
    })
}

/// The program with its constants in place.
fn specialise(module: &Module, info: &ModuleInfo, entry: &str, key: &KernelKey) -> Result<(Module, ModuleInfo)> {
    let constants = key.constants.iter().map(|(name, value)| (constant_name(module, name), *value)).collect();
    let stage = Some((ShaderStage::Compute, entry));
    match naga::back::pipeline_constants::process_overrides(module, info, stage, &constants) {
        Ok((module, info)) => {
            let mut module = module.into_owned();
            resolve_lengths(&mut module);
            Ok((module, info.into_owned()))
        }
        Err(error) => {
            let names: Vec<String> = (module.overrides.iter())
                .filter_map(|(_, constant)| constant.name.clone().or_else(|| constant.id.map(|id| id.to_string())))
                .collect();
            let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            let message = format!("expected values for the constants of the kernel ({names}), found: {error}");
            Err(refuse(key, ErrorKind::CompileFailed, &message))
        }
    }
}

/// Names the constants that stand for an expression as the length of an array: naga panics where another constant comes
/// after one that has neither name nor number. No caller can give a name with a space.
fn name_lengths(module: &mut Module) {
    let unnamed = module.overrides.iter_mut().filter(|(_, constant)| constant.name.is_none() && constant.id.is_none());
    for (handle, constant) in unnamed {
        constant.name = Some(format!("length {}", handle.index()));
    }
}

/// What naga calls a constant: its number where it has one, whether the caller gave the number or the name.
fn constant_name(module: &Module, given: &str) -> String {
    let mut constants = module.overrides.iter().map(|(_, constant)| constant);
    let id = constants.find(|constant| constant.name.as_deref() == Some(given)).and_then(|constant| constant.id);
    id.map_or_else(|| given.to_string(), |id| id.to_string())
}

/// Writes the lengths of arrays, which may be constants, into their types: not every writer of naga does that itself.
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
        // The arena wants each type once; a name of its own makes it another.
        if module.types.get(&ty).is_some() {
            ty.name = Some(format!("kiln_array_{}", handle.index()));
        }
        module.types.replace(handle, ty);
    }
}

/// Puts the buffers that the kernel uses into group 0 and its values into group 1, in the order of the source's numbers.
/// Returns the bindings with the numbers that they had.
fn number_bindings(
    module: &mut Module,
    info: &ModuleInfo,
    key: &KernelKey,
) -> Result<Vec<(Handle<naga::GlobalVariable>, naga::ResourceBinding)>> {
    let entry = info.get_entry_point(0);
    let mut bindings = Vec::new();
    for (handle, variable) in module.global_variables.iter() {
        if entry[handle].is_empty() {
            continue;
        }
        let name = variable.name.clone().unwrap_or_default();
        match (variable.binding, variable.space) {
            (Some(number), AddressSpace::Storage { .. } | AddressSpace::Uniform) => bindings.push((handle, number)),
            (None, AddressSpace::Private | AddressSpace::WorkGroup) => {}
            (_, space) => {
                let message = format!(
                    "variable `{name}` expected a storage buffer, a uniform, workgroup or private memory, found {space:?}"
                );
                let place = module.global_variables.get_span(handle).location(&key.source);
                return Err(refuse_at(key, Some(place), ErrorKind::Unsupported, &message));
            }
        }
    }
    bindings.sort_by_key(|(_, number)| (number.group, number.binding));
    for (_, variable) in module.global_variables.iter_mut() {
        // Unused variables keep away from the numbers in use.
        variable.binding = variable.binding.map(|_| naga::ResourceBinding { group: 2, binding: 0 });
    }
    let mut next = [0, 0];
    for (handle, _) in &bindings {
        let variable = module.global_variables.get_mut(*handle);
        let group = usize::from(variable.space == AddressSpace::Uniform);
        variable.binding = Some(naga::ResourceBinding { group: group as u32, binding: next[group] });
        next[group] += 1;
    }
    Ok(bindings)
}

fn reflect(
    module: &Module,
    info: &ModuleInfo,
    bindings: &[(Handle<naga::GlobalVariable>, naga::ResourceBinding)],
    grid: Option<Handle<naga::GlobalVariable>>,
    device: &DeviceInfo,
    key: &KernelKey,
) -> Result<Reflection> {
    let (point, uses) = (&module.entry_points[0], info.get_entry_point(0));
    let shared = module
        .global_variables
        .iter()
        .filter(|(handle, variable)| variable.space == AddressSpace::WorkGroup && !uses[*handle].is_empty());
    let shared = shared.map(|(_, variable)| u64::from(size(module, variable.ty)));
    let reflection = Reflection {
        entry: point.name.clone(),
        workgroup_size: point.workgroup_size,
        workgroup_bytes: u32::try_from(shared.sum::<u64>()).unwrap_or(u32::MAX),
        bindings: bindings.iter().map(|(handle, number)| binding(module, *handle, *number, grid)).collect(),
    };
    check_limits(&reflection, device, key)?;
    Ok(reflection)
}

/// The driver would refuse it too, in its own words or by losing the device.
fn check_limits(reflection: &Reflection, device: &DeviceInfo, key: &KernelKey) -> Result<()> {
    let limits = &device.limits;
    let invocations = reflection.workgroup_size.iter().map(|size| u64::from(*size)).product::<u64>();
    let values = reflection.bindings.iter().filter(|binding| !binding.kind.is_buffer());
    let [x, y, z] = reflection.workgroup_size;
    let [max_x, max_y, max_z] = limits.max_workgroup_size;
    let table = [
        ("invocations in a workgroup", limits.max_workgroup_invocations.into(), invocations),
        ("invocations in a workgroup along x", max_x.into(), x.into()),
        ("invocations in a workgroup along y", max_y.into(), y.into()),
        ("invocations in a workgroup along z", max_z.into(), z.into()),
        ("bytes of workgroup memory", limits.max_workgroup_bytes.into(), reflection.workgroup_bytes.into()),
        ("bytes in a value", limits.max_value_bytes, values.map(|value| value.min_bytes).max().unwrap_or(0)),
    ];
    for (what, limit, found) in table {
        if found > limit {
            let message = format!("expected at most {limit} {what} on `{}`, found {found}", device.id);
            return Err(refuse(key, ErrorKind::Unsupported, &message));
        }
    }
    Ok(())
}

fn binding(
    module: &Module,
    handle: Handle<naga::GlobalVariable>,
    number: naga::ResourceBinding,
    grid: Option<Handle<naga::GlobalVariable>>,
) -> Binding {
    let variable = &module.global_variables[handle];
    let name = variable.name.clone().unwrap_or_else(|| format!("{}:{}", number.group, number.binding));
    let kind = match variable.space {
        AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => BindingKind::ReadWrite,
        AddressSpace::Storage { .. } => BindingKind::Read,
        _ if Some(handle) == grid => BindingKind::Grid,
        _ => BindingKind::Value,
    };
    let (stride_bytes, members) = match &module.types[variable.ty].inner {
        TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => (Some(u64::from(*stride)), Vec::new()),
        TypeInner::Struct { members, .. } => {
            (None, members.iter().map(|member| reflect_member(module, member)).collect())
        }
        _ => (None, Vec::new()),
    };
    Binding {
        name,
        group: number.group,
        binding: number.binding,
        kind,
        type_name: type_name(module, variable.ty),
        scalar: scalar(module, variable.ty),
        min_bytes: size(module, variable.ty).into(),
        stride_bytes,
        members,
    }
}

fn reflect_member(module: &Module, member: &naga::StructMember) -> Member {
    Member {
        name: member.name.clone().unwrap_or_default(),
        type_name: type_name(module, member.ty),
        offset: member.offset,
        bytes: size(module, member.ty),
    }
}

fn size(module: &Module, ty: Handle<Type>) -> u32 {
    module.types[ty].inner.try_size(module.to_ctx()).unwrap_or(u32::MAX)
}

/// The one scalar type that a type consists of.
fn scalar(module: &Module, ty: Handle<Type>) -> Option<Scalar> {
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar)
        | TypeInner::Atomic(scalar)
        | TypeInner::Vector { scalar, .. }
        | TypeInner::Matrix { scalar, .. } => Scalar::of(*scalar),
        TypeInner::Array { base, .. } => scalar(module, *base),
        _ => None,
    }
}

/// A type as WGSL writes it.
fn type_name(module: &Module, ty: Handle<Type>) -> String {
    let scalar_name = |scalar: &naga::Scalar| {
        Scalar::of(*scalar)
            .map_or_else(|| format!("{:?}{}", scalar.kind, u32::from(scalar.width) * 8), |s| s.to_string())
    };
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar) => scalar_name(scalar),
        TypeInner::Atomic(scalar) => format!("atomic<{}>", scalar_name(scalar)),
        TypeInner::Vector { size, scalar } => format!("vec{}<{}>", *size as u8, scalar_name(scalar)),
        TypeInner::Matrix { columns, rows, scalar } => {
            format!("mat{}x{}<{}>", *columns as u8, *rows as u8, scalar_name(scalar))
        }
        TypeInner::Array { base, size: ArraySize::Constant(length), .. } => {
            format!("array<{}, {length}>", type_name(module, *base))
        }
        TypeInner::Array { base, .. } => format!("array<{}>", type_name(module, *base)),
        other => module.types[ty].name.clone().unwrap_or_else(|| format!("{other:?}")),
    }
}
