//! What a kernel wants: its bindings, their types and sizes, its workgroup.

use crate::command::BufferUse;
use kiln_ir::{Result, error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a kernel wants of its caller, as its program says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// The entry point.
    pub entry: String,
    /// Invocations of a workgroup along each axis.
    pub workgroup_size: [u32; 3],
    /// Bytes that a workgroup shares.
    pub workgroup_bytes: u32,
    /// What it takes, by group and binding. The place in this list is the binding's index.
    pub bindings: Vec<Binding>,
}

/// More than any device takes as a value.
const MAX_VALUE_BYTES: u64 = 1 << 30;

/// One binding of a kernel.
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
    /// The type as WGSL writes it.
    pub type_name: String,
    /// The scalars that it consists of, where they all are of one type.
    pub scalar: Option<Scalar>,
    /// The fewest bytes that it takes.
    pub min_bytes: u64,
    /// Bytes from one element to the next, where the binding is an array whose length the caller decides.
    pub stride_bytes: Option<u64>,
    /// The array at its end, where the binding is a struct with one whose length the caller decides.
    pub tail: Option<Tail>,
    /// Where its numbers are; `None` where the caller decides how many there are.
    pub numbers: Option<Numbers>,
    /// The members, where the binding is a value of a struct.
    pub members: Vec<Member>,
}

/// The array with which a struct ends, where the caller decides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Where it begins.
    pub offset: u64,
    /// Bytes from one element to the next.
    pub stride_bytes: u64,
}

/// Where the numbers of a type are in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numbers {
    /// One number.
    One(Scalar),
    /// A vector, the columns of a matrix, or an array.
    Repeated {
        /// How many there are.
        count: u32,
        /// Bytes from one to the next.
        stride_bytes: u32,
        /// Each of them.
        of: Box<Numbers>,
    },
    /// A struct. Each of its members has such numbers.
    Struct(Vec<Member>),
}

impl Numbers {
    pub(super) fn repeated(count: u32, stride_bytes: u32, of: Self) -> Self {
        Self::Repeated { count, stride_bytes, of: Box::new(of) }
    }

    /// Bytes to the end of its last number; `None` where its parts lie in each other, or are none.
    fn end(&self) -> Option<u64> {
        match self {
            Self::One(scalar) => Some(scalar.bytes()),
            Self::Repeated { count, stride_bytes, of } => {
                let (each, stride) = (of.end()?, u64::from(*stride_bytes));
                let before = u64::from(count.checked_sub(1)?).checked_mul(stride)?;
                before.checked_add(each).filter(|_| each <= stride)
            }
            Self::Struct(members) => members.iter().try_fold(0, |end, member| {
                let begin = u64::from(member.offset);
                begin.checked_add(member.numbers.as_ref()?.end()?).filter(|_| begin >= end)
            }),
        }
    }
}

/// How a binding is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindingKind {
    /// A buffer that the kernel reads (`var<storage, read>`).
    Read,
    /// A buffer that the kernel reads and writes (`var<storage, read_write>`).
    ReadWrite,
    /// A value (`var<uniform>`).
    Value,
    /// A value that the runtime gives: where a part of a wide grid begins.
    Grid,
}

impl BindingKind {
    /// Whether it is given as a buffer.
    pub fn is_buffer(self) -> bool {
        self.buffer_use().is_some()
    }

    /// What the kernel does with the buffer; `None` for values.
    pub fn buffer_use(self) -> Option<BufferUse> {
        match self {
            Self::Read => Some(BufferUse::Read),
            Self::ReadWrite => Some(BufferUse::ReadWrite),
            Self::Value | Self::Grid => None,
        }
    }
}

/// A member of a struct that is given as a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The type as WGSL writes it.
    pub type_name: String,
    /// Where it begins.
    pub offset: u32,
    /// How long it is.
    pub bytes: u32,
    /// Where its numbers are, counted from its beginning; `None` where the caller decides how many there are.
    pub numbers: Option<Numbers>,
}

/// The scalar types of WGSL that a buffer can hold.
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
    /// The size of one.
    pub fn bytes(self) -> u64 {
        if self == Self::F16 { 2 } else { 4 }
    }

    /// The scalar of a naga type; `None` where a buffer of the host cannot hold it.
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
    /// Bytes that it has outside of itself: bindings, their names and their members.
    pub(super) fn bytes(&self) -> u64 {
        let binding = |binding: &Binding| {
            let members = size_of_val(binding.members.as_slice());
            size_of::<Binding>() + binding.name.len() + binding.type_name.len() + members
        };
        self.bindings.iter().map(binding).sum::<usize>() as u64
    }

    /// Whether what it says of sizes and places can be: a stored one may be anything.
    pub(super) fn is_sound(&self) -> bool {
        let is_sound = |binding: &Binding| {
            let is_inside = |numbers: &Option<Numbers>, bytes: u64| {
                numbers.as_ref().is_none_or(|numbers| numbers.end().is_some_and(|end| end <= bytes))
            };
            let fits = |member: &Member| {
                u64::from(member.offset) + u64::from(member.bytes) <= binding.min_bytes
                    && is_inside(&member.numbers, member.bytes.into())
            };
            let size = binding.kind.is_buffer() || (1..=MAX_VALUE_BYTES).contains(&binding.min_bytes);
            let tail = binding.tail.is_none_or(|tail| tail.stride_bytes > 0 && tail.offset <= binding.min_bytes);
            size && binding.members.iter().all(fits)
                && is_inside(&binding.numbers, binding.min_bytes)
                && tail
                && binding.stride_bytes != Some(0)
        };
        self.workgroup_size.iter().all(|size| *size > 0) && self.bindings.iter().all(is_sound)
    }

    /// The binding with this name or index, and its place.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none, with all that there are.
    pub fn find(&self, place: BindingName<'_>) -> Result<(usize, &Binding)> {
        let mut visible = self.bindings.iter().enumerate().filter(|(_, binding)| binding.kind != BindingKind::Grid);
        let found = visible.find(|(index, binding)| match place {
            BindingName::Index(wanted) => *index == wanted,
            BindingName::Name(name) => binding.name == name,
        });
        found.ok_or_else(|| error!(InvalidArgument, "expected one of the bindings ({}), found {place}", self.listing()))
    }

    /// Its bindings for a message: `0 x: array<f32> (read), 1 n: u32 (value)`.
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

/// How a caller names a binding: by the name of its variable, or by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingName<'a> {
    /// The name of the variable.
    Name(&'a str),
    /// The place in [`Reflection::bindings`].
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

    /// Values are put where a stored reflection says: not outside of them, and not more numbers than there is room for.
    #[test]
    fn numbers_that_lie_in_each_other_or_outside_are_not_sound() {
        let one = || Numbers::One(Scalar::F32);
        let member = |offset, bytes, numbers| Member {
            name: "m".to_string(),
            type_name: "f32".to_string(),
            offset,
            bytes,
            numbers: Some(numbers),
        };
        let binding = |numbers: Numbers, tail: Option<Tail>, members: Vec<Member>| Binding {
            name: "x".to_string(),
            group: 0,
            binding: 0,
            kind: BindingKind::Value,
            type_name: "T".to_string(),
            scalar: None,
            min_bytes: 16,
            stride_bytes: None,
            tail,
            numbers: Some(numbers),
            members,
        };
        let pair = |second: u32| Numbers::Struct(vec![member(0, 4, one()), member(second, 4, one())]);
        let tail = |offset: u64, stride_bytes: u64| Some(Tail { offset, stride_bytes });
        let table = [
            (binding(Numbers::repeated(4, 4, one()), tail(16, 4), vec![member(12, 4, one())]), true),
            (binding(Numbers::repeated(5, 4, one()), None, vec![]), false),
            (binding(Numbers::repeated(0, 4, one()), None, vec![]), false),
            (binding(Numbers::repeated(u32::MAX, 0, one()), None, vec![]), false),
            (binding(Numbers::repeated(2, 2, one()), None, vec![]), false),
            (binding(pair(12), None, vec![]), true),
            (binding(pair(13), None, vec![]), false),
            (binding(pair(3), None, vec![]), false),
            (binding(one(), None, vec![member(0, 4, pair(4))]), false),
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
            assert_eq!(reflection.is_sound(), expected, "{reflection:?}");
        }
    }
}
