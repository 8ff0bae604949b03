//! The interface of a kernel: its bindings with their types and sizes, and its workgroup.

use crate::command::BufferUse;
use kiln_ir::{Result, error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The interface of a kernel, as declared by its program.
///
/// ```
/// use kiln_device::{BindingKind, KernelSource, NullDevice, Scalar, Tail, ValueLayout};
///
/// let device = NullDevice::new().into_device()?;
/// let text = "struct Items { n: u32, x: array<f32> } @group(0) @binding(0) var<storage, read_write> items: Items;
///     @compute @workgroup_size(1) fn main() { items.x[0] = f32(items.n); }";
/// let kernel = device.kernel(KernelSource::wgsl(text))?;
/// let items = &kernel.reflection().bindings[0];
/// assert_eq!((items.kind, items.tail), (BindingKind::ReadWrite, Some(Tail { offset: 4, stride_bytes: 4 })));
/// assert_eq!(items.members[0].layout, Some(ValueLayout::One(Scalar::U32)));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// The entry point.
    pub entry: String,
    /// The workgroup size along each axis.
    pub workgroup_size: [u32; 3],
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// The bindings, by group and binding. The position in this list is the index of the binding.
    pub bindings: Vec<Binding>,
}

/// More than any device accepts as a value.
const MAX_VALUE_BYTES: u64 = 1 << 30;

/// A binding of a kernel.
///
/// See [`Reflection`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The name of the variable.
    pub name: String,
    /// `@group` in the source.
    pub group: u32,
    /// `@binding` in the source.
    pub binding: u32,
    /// Buffer or value.
    pub kind: BindingKind,
    /// The type in WGSL syntax.
    pub type_name: String,
    /// The scalar type, if it consists of a single one.
    pub scalar: Option<Scalar>,
    /// The minimum size in bytes.
    pub min_bytes: u64,
    /// The stride in bytes, if the binding is a runtime-sized array.
    pub stride_bytes: Option<u64>,
    /// The runtime-sized array at its end, if the binding is a struct with one.
    pub tail: Option<Tail>,
    /// The layout of its scalars; `None` if it has a runtime-sized array.
    // The name in stored kernels. Without it an old entry would load without its layout.
    #[serde(rename = "numbers")]
    pub layout: Option<ValueLayout>,
    /// The members, if the binding is a struct.
    pub members: Vec<Member>,
}

/// A runtime-sized array at the end of a struct.
///
/// See [`Reflection`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The offset in bytes.
    pub offset: u64,
    /// The stride in bytes.
    pub stride_bytes: u64,
}

/// The layout of the scalars of a type.
///
/// See [`Reflection`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueLayout {
    /// A single scalar.
    One(Scalar),
    /// A vector, the columns of a matrix, or an array.
    Repeated {
        /// The number of elements.
        count: u32,
        /// The stride in bytes.
        stride_bytes: u32,
        /// The layout of an element.
        of: Box<ValueLayout>,
    },
    /// A struct, all of whose members have a layout.
    Struct(Vec<Member>),
}

impl ValueLayout {
    pub(super) fn repeated(count: u32, stride_bytes: u32, of: Self) -> Self {
        Self::Repeated { count, stride_bytes, of: Box::new(of) }
    }

    /// Returns the offset of the end of the last scalar, or `None` if elements overlap or are missing.
    fn end(&self) -> Option<u64> {
        match self {
            // The recursion is bounded: serde_json limits the nesting of stored reflections to 128 levels.
            Self::One(scalar) => Some(scalar.bytes()),
            Self::Repeated { count, stride_bytes, of } => {
                let (each, stride) = (of.end()?, u64::from(*stride_bytes));
                let before = u64::from(count.checked_sub(1)?).checked_mul(stride)?;
                before.checked_add(each).filter(|_| each <= stride)
            }
            Self::Struct(members) => members.iter().try_fold(0, |end, member| {
                let begin = u64::from(member.offset);
                begin.checked_add(member.layout.as_ref()?.end()?).filter(|_| begin >= end)
            }),
        }
    }
}

/// The kind of a binding.
///
/// See [`Reflection`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindingKind {
    /// A buffer that the kernel reads (`var<storage, read>`).
    Read,
    /// A buffer that the kernel reads and writes (`var<storage, read_write>`).
    ReadWrite,
    /// A value (`var<uniform>`).
    Value,
    /// A value set by the runtime: the offset of a part of a grid that exceeds the device's limit.
    Grid,
}

impl BindingKind {
    /// Returns whether the binding is a buffer.
    pub fn is_buffer(self) -> bool {
        self.buffer_use().is_some()
    }

    /// Returns how the kernel uses the buffer, or `None` for values.
    pub fn buffer_use(self) -> Option<BufferUse> {
        match self {
            Self::Read => Some(BufferUse::Read),
            Self::ReadWrite => Some(BufferUse::ReadWrite),
            Self::Value | Self::Grid => None,
        }
    }
}

/// A member of a struct.
///
/// See [`Reflection`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name.
    pub name: String,
    /// The type in WGSL syntax.
    pub type_name: String,
    /// The offset in bytes.
    pub offset: u32,
    /// The size in bytes.
    pub bytes: u32,
    /// The layout of its scalars, relative to its offset; `None` if it has a runtime-sized array.
    // The name in stored kernels. Without it an old entry would load without its layout.
    #[serde(rename = "numbers")]
    pub layout: Option<ValueLayout>,
}

/// The scalar types of WGSL that a buffer can contain.
///
/// See [`Reflection`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names of WGSL")]
pub enum Scalar {
    F16,
    F32,
    I32,
    U32,
}

impl Scalar {
    /// Returns the size in bytes.
    pub fn bytes(self) -> u64 {
        if self == Self::F16 { 2 } else { 4 }
    }

    /// Converts a naga type; `None` if it has no host equivalent.
    pub(super) fn of(scalar: naga::Scalar) -> Option<Self> {
        match (scalar.kind, scalar.width) {
            (naga::ScalarKind::Float, 2) => Some(Self::F16),
            (naga::ScalarKind::Float, 4) => Some(Self::F32),
            (naga::ScalarKind::Sint, 4) => Some(Self::I32),
            (naga::ScalarKind::Uint, 4) => Some(Self::U32),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Reflection {
    /// Returns the heap size in bytes: bindings, their names and their members.
    pub(super) fn bytes(&self) -> u64 {
        let binding = |binding: &Binding| {
            let members = size_of_val(binding.members.as_slice());
            size_of::<Binding>() + binding.name.len() + binding.type_name.len() + members
        };
        self.bindings.iter().map(binding).sum::<usize>() as u64
    }

    /// Returns whether sizes and offsets are consistent. A stored reflection may contain anything.
    pub(super) fn is_consistent(&self) -> bool {
        let is_consistent = |binding: &Binding| {
            let is_inside = |layout: &Option<ValueLayout>, bytes: u64| {
                layout.as_ref().is_none_or(|layout| layout.end().is_some_and(|end| end <= bytes))
            };
            let fits = |member: &Member| {
                // A member without bytes could begin one past the end.
                member.bytes > 0
                    && u64::from(member.offset) + u64::from(member.bytes) <= binding.min_bytes
                    && is_inside(&member.layout, member.bytes.into())
            };
            let size = binding.kind.is_buffer() || (1..=MAX_VALUE_BYTES).contains(&binding.min_bytes);
            let tail = binding.tail.is_none_or(|tail| tail.stride_bytes > 0 && tail.offset <= binding.min_bytes);
            size && binding.members.iter().all(fits)
                && is_inside(&binding.layout, binding.min_bytes)
                && tail
                && binding.stride_bytes != Some(0)
        };
        self.workgroup_size.iter().all(|size| *size > 0) && self.bindings.iter().all(is_consistent)
    }

    /// Returns the index and the binding with this name or index.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if there is none; the message lists all bindings.
    pub fn find(&self, place: BindingName<'_>) -> Result<(usize, &Binding)> {
        let mut visible = self.bindings.iter().enumerate().filter(|(_, binding)| binding.kind != BindingKind::Grid);
        let found = visible.find(|(index, binding)| match place {
            BindingName::Index(wanted) => *index == wanted,
            BindingName::Name(name) => binding.name == name,
        });
        found.ok_or_else(|| error!(InvalidArgument, "expected one of the bindings ({}), found {place}", self.listing()))
    }

    /// Lists the bindings for a message: `0 x: array<f32> (read), 1 n: u32 (value)`.
    pub(crate) fn listing(&self) -> String {
        let visible = self.bindings.iter().enumerate().filter(|(_, binding)| binding.kind != BindingKind::Grid);
        let texts: Vec<String> = visible.map(|(index, binding)| format!("{index} {binding}")).collect();
        if texts.is_empty() { "it has none".to_string() } else { texts.join(", ") }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BindingKind::Read => "read",
            BindingKind::ReadWrite => "read_write",
            BindingKind::Value | BindingKind::Grid => "value",
        };
        write!(f, "{}: {} ({kind})", self.name, self.type_name)
    }
}

/// Identifies a binding by the name of its variable or by its index.
///
/// Passed to [`Launch::bind`](crate::Launch::bind); see [`Kernel`](crate::Kernel) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingName<'a> {
    /// The name of the variable.
    Name(&'a str),
    /// The position in [`Reflection::bindings`].
    Index(usize),
}

impl<'a> From<&'a str> for BindingName<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl From<usize> for BindingName<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for BindingName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Index(index) => write!(f, "index {index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values are written at the offsets of a stored reflection, so overlapping and out-of-range layouts are rejected.
    #[test]
    fn overlapping_or_out_of_range_scalars_are_rejected() {
        let one = || ValueLayout::One(Scalar::F32);
        let member = |offset, bytes, layout| Member {
            name: "m".to_string(),
            type_name: "f32".to_string(),
            offset,
            bytes,
            layout: Some(layout),
        };
        let binding = |layout: ValueLayout, tail: Option<Tail>, members: Vec<Member>| Binding {
            name: "x".to_string(),
            group: 0,
            binding: 0,
            kind: BindingKind::Value,
            type_name: "T".to_string(),
            scalar: None,
            min_bytes: 16,
            stride_bytes: None,
            tail,
            layout: Some(layout),
            members,
        };
        let pair = |second: u32| ValueLayout::Struct(vec![member(0, 4, one()), member(second, 4, one())]);
        let tail = |offset: u64, stride_bytes: u64| Some(Tail { offset, stride_bytes });
        let table = [
            (binding(ValueLayout::repeated(4, 4, one()), tail(16, 4), vec![member(12, 4, one())]), true),
            (binding(ValueLayout::repeated(5, 4, one()), None, vec![]), false),
            (binding(ValueLayout::repeated(0, 4, one()), None, vec![]), false),
            (binding(ValueLayout::repeated(u32::MAX, 0, one()), None, vec![]), false),
            (binding(ValueLayout::repeated(2, 2, one()), None, vec![]), false),
            (binding(pair(12), None, vec![]), true),
            (binding(pair(13), None, vec![]), false),
            (binding(pair(3), None, vec![]), false),
            (binding(one(), None, vec![member(0, 4, pair(4))]), false),
            (binding(one(), None, vec![Member { bytes: 0, layout: None, ..member(16, 0, one()) }]), false),
            (binding(one(), tail(0, 0), vec![]), false),
            (binding(one(), tail(17, 4), vec![]), false),
        ];
        for (binding, expected) in table {
            let reflection = Reflection {
                entry: String::new(),
                workgroup_size: [1; 3],
                workgroup_bytes: 0,
                bindings: vec![binding],
            };
            assert_eq!(reflection.is_consistent(), expected, "{reflection:?}");
        }
    }
}
