//! Numbers the bindings of a kernel and reflects their types.

use super::diagnostics;
use super::key::KernelKey;
use super::reflect::{Binding, BindingKind, Member, Scalar, Tail, ValueLayout};
use kiln_ir::{ErrorKind, Result};
use naga::valid::ModuleInfo;
use naga::{AddressSpace, ArraySize, GlobalVariable, Handle, Module, ResourceBinding, StorageAccess, Type, TypeInner};

/// A bound variable and its binding in the source.
pub(super) type NumberedBinding = (Handle<GlobalVariable>, ResourceBinding);

/// Assigns bindings: used buffers to group 0, values to group 1, in the order of the source. Returns the bindings with
/// their original numbers.
///
/// The grid uniform of the runtime comes last, so that the indices of the others do not depend on it.
pub(super) fn number(
    module: &mut Module,
    info: &ModuleInfo,
    grid: Option<Handle<GlobalVariable>>,
    key: &KernelKey,
) -> Result<Vec<NumberedBinding>> {
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
                let found = kind_name(&module.types[variable.ty].inner, space);
                let message = format!(
                    "variable `{name}` expected a storage buffer, a uniform, workgroup or private memory, found {found}"
                );
                let span = module.global_variables.get_span(handle);
                return Err(diagnostics::error_at(key, Some(span), ErrorKind::Unsupported, &message));
            }
        }
    }
    // The grid uniform comes last: a launch checks its arguments against the kernel without it and uses the same
    // indices for the split variant.
    bindings.sort_by_key(|(handle, number)| (Some(*handle) == grid, number.group, number.binding));
    for (_, variable) in module.global_variables.iter_mut() {
        // Unused variables are moved out of the way of the used numbers.
        variable.binding = variable.binding.map(|_| ResourceBinding { group: 2, binding: 0 });
    }
    let mut next = [0, 0];
    for (handle, _) in &bindings {
        let variable = module.global_variables.get_mut(*handle);
        let group = usize::from(variable.space == AddressSpace::Uniform);
        variable.binding = Some(ResourceBinding { group: group as u32, binding: next[group] });
        next[group] += 1;
    }
    Ok(bindings)
}

/// Describes a variable that is not memory.
fn kind_name(ty: &TypeInner, space: AddressSpace) -> String {
    match ty {
        TypeInner::Image { .. } => "a texture".to_string(),
        TypeInner::Sampler { .. } => "a sampler".to_string(),
        TypeInner::AccelerationStructure { .. } => "an acceleration structure".to_string(),
        TypeInner::BindingArray { .. } => "an array of bindings".to_string(),
        _ => format!("{space:?}"),
    }
}

/// Reflects a variable. `grid` is the uniform that the runtime provides.
pub(super) fn binding(
    module: &Module,
    (handle, number): NumberedBinding,
    grid: Option<Handle<GlobalVariable>>,
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
        TypeInner::Struct { members, .. } => (None, reflect_members(module, members)),
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
        tail: tail(module, variable.ty),
        layout: value_layout(module, variable.ty),
        members,
    }
}

fn reflect_members(module: &Module, members: &[naga::StructMember]) -> Vec<Member> {
    let reflect = |member: &naga::StructMember| Member {
        name: member.name.clone().unwrap_or_default(),
        type_name: type_name(module, member.ty),
        offset: member.offset,
        bytes: size(module, member.ty),
        layout: value_layout(module, member.ty),
    };
    members.iter().map(reflect).collect()
}

/// Returns the runtime-sized array at the end of a struct.
fn tail(module: &Module, ty: Handle<Type>) -> Option<Tail> {
    let TypeInner::Struct { members, .. } = &module.types[ty].inner else { return None };
    let last = members.last()?;
    let TypeInner::Array { size: ArraySize::Dynamic, stride, .. } = module.types[last.ty].inner else { return None };
    Some(Tail { offset: last.offset.into(), stride_bytes: stride.into() })
}

/// Returns the layout of the scalars in a type, or `None` if it contains types without a host equivalent or a
/// runtime-sized array.
fn value_layout(module: &Module, ty: Handle<Type>) -> Option<ValueLayout> {
    let one = |scalar: &naga::Scalar| Scalar::of(*scalar).map(ValueLayout::One);
    let vector = |size: naga::VectorSize, scalar: &naga::Scalar| {
        Some(ValueLayout::repeated(size as u32, scalar.width.into(), one(scalar)?))
    };
    match &module.types[ty].inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => one(scalar),
        TypeInner::Vector { size, scalar } => vector(*size, scalar),
        TypeInner::Matrix { columns, rows, scalar } => {
            // A column is aligned as a vector is: three rows take the space of four.
            let stride = naga::proc::Alignment::from(*rows) * u32::from(scalar.width);
            Some(ValueLayout::repeated(*columns as u32, stride, vector(*rows, scalar)?))
        }
        TypeInner::Array { base, size: ArraySize::Constant(length), stride } => {
            Some(ValueLayout::repeated(length.get(), *stride, value_layout(module, *base)?))
        }
        TypeInner::Struct { members, .. } => {
            let members = reflect_members(module, members);
            members.iter().all(|member| member.layout.is_some()).then_some(ValueLayout::Struct(members))
        }
        _ => None,
    }
}

/// Returns the size of a type in bytes; for a runtime-sized array, that of one element.
pub(super) fn size(module: &Module, ty: Handle<Type>) -> u32 {
    module.types[ty].inner.try_size(module.to_ctx()).unwrap_or(u32::MAX)
}

/// Returns the scalar type that a type consists of, if it is a single one.
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

/// Formats a type in WGSL syntax.
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
