//! WGSL types flattened into lists of scalars, with their layout in memory.

use naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner, VectorSize};

/// Type of a scalar. An `f16` is held in registers as the `f32` of the same value, because Cranelift has no
/// `f16` arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    I32,
    U32,
    Bool,
}

impl Kind {
    /// The kind of a naga scalar; `None` if it is not supported (64-bit and abstract types).
    pub(crate) fn of(scalar: Scalar) -> Option<Self> {
        match (scalar.kind, scalar.width) {
            (ScalarKind::Float, 4) => Some(Self::F32),
            (ScalarKind::Float, 2) => Some(Self::F16),
            (ScalarKind::Sint, 4) => Some(Self::I32),
            (ScalarKind::Uint, 4) => Some(Self::U32),
            (ScalarKind::Bool, _) => Some(Self::Bool),
            _ => None,
        }
    }

    /// Whether registers hold it as a float.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }

    /// Size in a buffer or in workgroup memory.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 => 2,
            Self::Bool => 1,
        }
    }
}

/// A scalar of a flattened type, with its byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScalarField {
    pub(crate) kind: Kind,
    pub(crate) offset: u32,
}

/// Maximum number of scalars of a value in registers. Each scalar costs at least one instruction per use.
pub(crate) const MAX_VALUE_SCALARS: usize = 4096;

/// Flattens a type into its scalars in memory order. `None` if the type has an unsupported scalar or more than
/// [`MAX_VALUE_SCALARS`].
pub(crate) fn flatten(module: &Module, inner: &TypeInner) -> Option<Vec<ScalarField>> {
    let mut scalars = Vec::new();
    collect(module, inner, 0, &mut scalars)?;
    Some(scalars)
}

/// Number of scalars of a type. `None` as for [`flatten`], but without its limit.
pub(crate) fn scalar_count(module: &Module, inner: &TypeInner) -> Option<u32> {
    match inner {
        // By multiplication, not by flattening: arrays may be long.
        TypeInner::Array { base, size: ArraySize::Constant(length), .. } => {
            scalar_count(module, &module.types[*base].inner)?.checked_mul(length.get())
        }
        TypeInner::Struct { members, .. } => members
            .iter()
            .try_fold(0u32, |sum, member| sum.checked_add(scalar_count(module, &module.types[member.ty].inner)?)),
        _ => u32::try_from(flatten(module, inner)?.len()).ok(),
    }
}

/// Appends the scalars of a type that starts at byte `at`.
fn collect(module: &Module, inner: &TypeInner, at: u32, scalars: &mut Vec<ScalarField>) -> Option<()> {
    match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
            scalars.push(ScalarField { kind: Kind::of(scalar)?, offset: at });
        }
        TypeInner::Vector { size, scalar } => {
            let kind = Kind::of(scalar)?;
            scalars.extend((0..size as u32).map(|index| ScalarField { kind, offset: at + index * kind.bytes() }));
        }
        TypeInner::Matrix { columns, rows, scalar } => {
            for column in 0..columns as u32 {
                let inner = TypeInner::Vector { size: rows, scalar };
                collect(module, &inner, at + column * column_stride(rows, scalar), scalars)?;
            }
        }
        TypeInner::Array { base, size: ArraySize::Constant(length), stride } => {
            for index in 0..length.get() {
                collect(module, &module.types[base].inner, at + index * stride, scalars)?;
                // Checked inside the loop: an array may have billions of elements.
                if scalars.len() > MAX_VALUE_SCALARS {
                    return None;
                }
            }
        }
        TypeInner::Struct { ref members, .. } => {
            for member in members {
                collect(module, &module.types[member.ty].inner, at + member.offset, scalars)?;
            }
        }
        _ => return None,
    }
    (scalars.len() <= MAX_VALUE_SCALARS).then_some(())
}

/// Distance in bytes between two columns of a matrix.
fn column_stride(rows: VectorSize, scalar: Scalar) -> u32 {
    // WGSL aligns vec3 to 16 bytes, so columns of three rows are padded to four.
    let rows = if rows == VectorSize::Tri { 4 } else { rows as u32 };
    rows * u32::from(scalar.width)
}

/// The elements of an array, vector or matrix: their type and their distance in bytes and in scalars.
pub(crate) struct Element {
    pub(crate) inner: TypeInner,
    pub(crate) bytes: u32,
    pub(crate) scalars: u32,
    /// Number of elements; `None` for a runtime-sized array, whose buffer decides.
    pub(crate) length: Option<u32>,
}

/// Returns the element type that an index into `inner` selects.
pub(crate) fn element(module: &Module, inner: &TypeInner) -> Option<Element> {
    match *inner {
        TypeInner::Vector { size, scalar } => {
            let bytes = Kind::of(scalar)?.bytes();
            Some(Element { inner: TypeInner::Scalar(scalar), bytes, scalars: 1, length: Some(size as u32) })
        }
        TypeInner::Matrix { columns, rows, scalar } => Some(Element {
            inner: TypeInner::Vector { size: rows, scalar },
            bytes: column_stride(rows, scalar),
            scalars: rows as u32,
            length: Some(columns as u32),
        }),
        TypeInner::Array { base, size, stride } => {
            let inner = module.types[base].inner.clone();
            let length = if let ArraySize::Constant(length) = size { Some(length.get()) } else { None };
            Some(Element { bytes: stride, scalars: scalar_count(module, &inner)?, length, inner })
        }
        _ => None,
    }
}

/// Returns the type, byte offset and scalar index of a struct member, or of an element with a constant index.
pub(crate) fn member(module: &Module, inner: &TypeInner, index: u32) -> Option<(TypeInner, u32, u32)> {
    if let TypeInner::Struct { members, .. } = inner {
        let found = members.get(index as usize)?;
        // Scalars are numbered without padding, so the index is the number of scalars before the member.
        let before = members[..index as usize].iter();
        let scalars: Option<u32> = before.map(|member| scalar_count(module, &module.types[member.ty].inner)).sum();
        return Some((module.types[found.ty].inner.clone(), found.offset, scalars?));
    }
    let element = element(module, inner)?;
    Some((element.inner, index.checked_mul(element.bytes)?, index.checked_mul(element.scalars)?))
}

/// Returns the type that a pointer points to.
pub(crate) fn pointee(module: &Module, inner: &TypeInner) -> Option<TypeInner> {
    match *inner {
        TypeInner::Pointer { base, .. } => Some(module.types[base].inner.clone()),
        TypeInner::ValuePointer { size: Some(size), scalar, .. } => Some(TypeInner::Vector { size, scalar }),
        TypeInner::ValuePointer { size: None, scalar, .. } => Some(TypeInner::Scalar(scalar)),
        _ => None,
    }
}

/// Size of a type in memory.
pub(crate) fn bytes(module: &Module, ty: Handle<Type>) -> u32 {
    module.types[ty].inner.try_size(module.to_ctx()).unwrap_or(u32::MAX)
}
