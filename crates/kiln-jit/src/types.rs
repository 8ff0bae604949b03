//! Types of WGSL as lists of scalars, in registers and in memory.

use naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner, VectorSize};

/// What a scalar is. In registers a half is a single that has such a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    I32,
    U32,
    Bool,
}

impl Kind {
    /// The kind of a scalar of naga; `None` where the processor does not get it here.
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

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }

    /// Bytes in a buffer or in memory of a work-group.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 => 2,
            Self::Bool => 1,
        }
    }
}

/// A scalar inside of a type: what it is, and where it begins in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) kind: Kind,
    pub(crate) offset: u32,
}

/// The most scalars that a value may have: more would be a program of that many instructions.
pub(crate) const MAX_LEAVES: usize = 4096;

/// The scalars of a type in order; `None` where there is one that the processor does not get here, or too many.
pub(crate) fn leaves(module: &Module, inner: &TypeInner) -> Option<Vec<Leaf>> {
    let mut leaves = Vec::new();
    collect(module, inner, 0, &mut leaves)?;
    Some(leaves)
}

/// How many scalars a type has; `None` as [`leaves`], but for any length of an array.
pub(crate) fn leaf_count(module: &Module, inner: &TypeInner) -> Option<u32> {
    match inner {
        TypeInner::Array { base, size: ArraySize::Constant(length), .. } => {
            leaf_count(module, &module.types[*base].inner)?.checked_mul(length.get())
        }
        TypeInner::Struct { members, .. } => members
            .iter()
            .try_fold(0u32, |sum, member| sum.checked_add(leaf_count(module, &module.types[member.ty].inner)?)),
        _ => u32::try_from(leaves(module, inner)?.len()).ok(),
    }
}

fn collect(module: &Module, inner: &TypeInner, at: u32, leaves: &mut Vec<Leaf>) -> Option<()> {
    match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
            leaves.push(Leaf { kind: Kind::of(scalar)?, offset: at });
        }
        TypeInner::Vector { size, scalar } => {
            let kind = Kind::of(scalar)?;
            leaves.extend((0..size as u32).map(|index| Leaf { kind, offset: at + index * kind.bytes() }));
        }
        TypeInner::Matrix { columns, rows, scalar } => {
            for column in 0..columns as u32 {
                let inner = TypeInner::Vector { size: rows, scalar };
                collect(module, &inner, at + column * column_stride(rows, scalar), leaves)?;
            }
        }
        TypeInner::Array { base, size: ArraySize::Constant(length), stride } => {
            for index in 0..length.get() {
                collect(module, &module.types[base].inner, at + index * stride, leaves)?;
                if leaves.len() > MAX_LEAVES {
                    return None;
                }
            }
        }
        TypeInner::Struct { ref members, .. } => {
            for member in members {
                collect(module, &module.types[member.ty].inner, at + member.offset, leaves)?;
            }
        }
        _ => return None,
    }
    (leaves.len() <= MAX_LEAVES).then_some(())
}

/// Bytes from one column of a matrix to the next.
fn column_stride(rows: VectorSize, scalar: Scalar) -> u32 {
    let rows = if rows == VectorSize::Tri { 4 } else { rows as u32 };
    rows * u32::from(scalar.width)
}

/// An element of an array, vector or matrix: its type, and from one to the next the bytes and the scalars.
pub(crate) struct Element {
    pub(crate) inner: TypeInner,
    pub(crate) bytes: u32,
    pub(crate) leaves: u32,
    /// How many there are; `None` where the buffer decides.
    pub(crate) length: Option<u32>,
}

/// What an index into a type selects.
pub(crate) fn element(module: &Module, inner: &TypeInner) -> Option<Element> {
    match *inner {
        TypeInner::Vector { size, scalar } => {
            let bytes = Kind::of(scalar)?.bytes();
            Some(Element { inner: TypeInner::Scalar(scalar), bytes, leaves: 1, length: Some(size as u32) })
        }
        TypeInner::Matrix { columns, rows, scalar } => Some(Element {
            inner: TypeInner::Vector { size: rows, scalar },
            bytes: column_stride(rows, scalar),
            leaves: rows as u32,
            length: Some(columns as u32),
        }),
        TypeInner::Array { base, size, stride } => {
            let inner = module.types[base].inner.clone();
            let length = if let ArraySize::Constant(length) = size { Some(length.get()) } else { None };
            Some(Element { bytes: stride, leaves: leaf_count(module, &inner)?, length, inner })
        }
        _ => None,
    }
}

/// A member of a struct, or an element with a known index: its type, and where it begins in bytes and in scalars.
pub(crate) fn member(module: &Module, inner: &TypeInner, index: u32) -> Option<(TypeInner, u32, u32)> {
    if let TypeInner::Struct { members, .. } = inner {
        let found = members.get(index as usize)?;
        let before = members[..index as usize].iter();
        let leaves: Option<u32> = before.map(|member| leaf_count(module, &module.types[member.ty].inner)).sum();
        return Some((module.types[found.ty].inner.clone(), found.offset, leaves?));
    }
    let element = element(module, inner)?;
    Some((element.inner, index.checked_mul(element.bytes)?, index.checked_mul(element.leaves)?))
}

/// What a pointer points to.
pub(crate) fn pointee(module: &Module, inner: &TypeInner) -> Option<TypeInner> {
    match *inner {
        TypeInner::Pointer { base, .. } => Some(module.types[base].inner.clone()),
        TypeInner::ValuePointer { size: Some(size), scalar, .. } => Some(TypeInner::Vector { size, scalar }),
        TypeInner::ValuePointer { size: None, scalar, .. } => Some(TypeInner::Scalar(scalar)),
        _ => None,
    }
}

/// Bytes of a type in memory.
pub(crate) fn bytes(module: &Module, ty: Handle<Type>) -> u32 {
    module.types[ty].inner.try_size(module.to_ctx()).unwrap_or(u32::MAX)
}
