//! The types of generated programs, and their memory layout.

use std::fmt;
use std::rc::Rc;

/// A scalar type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    I32,
    U32,
    F32,
    F16,
}

impl Scalar {
    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }

    /// Returns its letter in the pattern of a binding, and its size in bytes.
    fn letter(self) -> (char, usize) {
        match self {
            Self::I32 => ('i', 4),
            Self::U32 | Self::Bool => ('u', 4),
            Self::F32 => ('f', 4),
            Self::F16 => ('h', 2),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

/// A WGSL type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Scalar(Scalar),
    Vector(Scalar, usize),
    /// A matrix of floats; columns, then rows.
    Matrix(Scalar, usize, usize),
    Array(Rc<Type>, usize),
    Struct(Rc<Struct>),
}

/// A struct, whose members are `m0`, `m1` and so on.
#[derive(Debug, PartialEq)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) members: Vec<Type>,
    /// The `@align` and `@size` attributes of each member; 0 for none.
    pub(super) attributes: Vec<(usize, usize)>,
}

impl Struct {
    /// Renders the WGSL declaration.
    pub(super) fn declaration(&self) -> String {
        let texts = self.members.iter().zip(&self.attributes).enumerate().map(|(number, (ty, (align, size)))| {
            let align = if *align > 0 { format!("@align({align}) ") } else { String::new() };
            let size = if *size > 0 { format!("@size({size}) ") } else { String::new() };
            format!("{align}{size}m{number}: {ty}")
        });
        format!("struct {} {{ {} }}", self.name, texts.collect::<Vec<_>>().join(", "))
    }
}

impl Type {
    /// Returns a vector type, or a scalar type if the width is 1.
    pub(super) fn wide(scalar: Scalar, width: usize) -> Self {
        if width == 1 { Self::Scalar(scalar) } else { Self::Vector(scalar, width) }
    }

    pub(super) fn array(of: Self, len: usize) -> Self {
        Self::Array(Rc::new(of), len)
    }

    /// Returns the direct parts of a value and the projection that reaches each of them.
    pub(super) fn inner(&self) -> Vec<(Projection, Type)> {
        match self {
            Self::Scalar(_) => Vec::new(),
            Self::Vector(scalar, width) => vec![(Projection::Index(*width), Self::Scalar(*scalar))],
            Self::Matrix(scalar, columns, rows) => vec![(Projection::Index(*columns), Self::Vector(*scalar, *rows))],
            Self::Array(of, len) => vec![(Projection::Index(*len), (**of).clone())],
            Self::Struct(of) => {
                (of.members.iter().enumerate()).map(|(at, ty)| (Projection::Member(at), ty.clone())).collect()
            }
        }
    }

    /// Creates a struct without attributes.
    pub(super) fn structure(name: impl Into<String>, members: Vec<Self>) -> Self {
        let attributes = vec![(0, 0); members.len()];
        Self::Struct(Rc::new(Struct { name: name.into(), members, attributes }))
    }

    /// Returns whether it is `wanted` or contains one; one with an address if `is_addressed`.
    pub(super) fn contains(&self, wanted: &Self, is_addressed: bool) -> bool {
        self == wanted || self.projections_to(wanted, is_addressed).next().is_some()
    }

    /// Returns the projections that lead to `wanted`. Components of vectors have no address.
    pub(super) fn projections_to(&self, wanted: &Self, is_addressed: bool) -> impl Iterator<Item = (Projection, Self)> {
        let inner = if is_addressed && matches!(self, Self::Vector(..)) { Vec::new() } else { self.inner() };
        inner.into_iter().filter(move |(_, inner)| inner.contains(wanted, is_addressed))
    }

    pub(super) fn align(&self) -> usize {
        match self {
            Self::Scalar(scalar) => scalar.letter().1,
            Self::Vector(scalar, width) | Self::Matrix(scalar, _, width) => {
                scalar.letter().1 * width.next_power_of_two()
            }
            Self::Array(of, _) => of.align(),
            Self::Struct(of) => {
                let aligns =
                    of.members.iter().zip(&of.attributes).map(|(member, (align, _))| member.align().max(*align));
                aligns.max().unwrap_or(4)
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let mut memory = Memory::default();
        self.place(&mut memory);
        memory.pad(self.align());
        memory.bytes
    }

    /// Returns its memory layout as letters of a [pattern](super::Binding::pattern), padded to its alignment.
    pub(super) fn pattern(&self) -> String {
        let mut memory = Memory::default();
        self.place(&mut memory);
        memory.pad(self.align());
        memory.letters
    }

    fn place(&self, memory: &mut Memory) {
        memory.pad(self.align());
        match self {
            Self::Scalar(scalar) => memory.push(*scalar),
            Self::Vector(scalar, width) => (0..*width).for_each(|_| memory.push(*scalar)),
            Self::Struct(of) => {
                for (member, (align, size)) in of.members.iter().zip(&of.attributes) {
                    memory.pad(member.align().max(*align));
                    let end = memory.bytes + size;
                    member.place(memory);
                    memory.pad_to(end);
                }
                memory.pad(self.align());
            }
            Self::Matrix(..) | Self::Array(..) => {
                for (projection, inner) in self.inner() {
                    let Projection::Index(len) = projection else { continue };
                    for _ in 0..len {
                        inner.place(memory);
                        memory.pad(inner.align());
                    }
                }
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(scalar) => write!(f, "{scalar}"),
            Self::Vector(scalar, width) => write!(f, "vec{width}<{scalar}>"),
            Self::Matrix(scalar, columns, rows) => write!(f, "mat{columns}x{rows}<{scalar}>"),
            Self::Array(of, len) => write!(f, "array<{of}, {len}>"),
            Self::Struct(of) => f.write_str(&of.name),
        }
    }
}

/// Access to a direct part of a composite value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Projection {
    /// An index below this.
    Index(usize),
    /// The member with this index.
    Member(usize),
}

#[derive(Default)]
struct Memory {
    letters: String,
    bytes: usize,
}

impl Memory {
    fn push(&mut self, scalar: Scalar) {
        let (letter, bytes) = scalar.letter();
        self.letters.push(letter);
        self.bytes += bytes;
    }

    fn pad(&mut self, align: usize) {
        self.pad_to(self.bytes.next_multiple_of(align));
    }

    fn pad_to(&mut self, bytes: usize) {
        while self.bytes < bytes {
            self.letters.push('_');
            self.bytes += 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_as_the_specification_of_wgsl_lays_it_out() {
        use Scalar::{F16, F32, I32, U32};
        let inner = Type::structure("A", vec![Type::Scalar(U32), Type::Vector(F32, 3)]);
        let outer = vec![Type::Vector(I32, 3), Type::Scalar(I32), inner.clone(), Type::Scalar(F16)];
        let members = vec![Type::Scalar(U32), Type::Scalar(I32)];
        let wide = Struct { name: "C".into(), members, attributes: vec![(0, 12), (16, 0)] };
        assert_eq!(wide.declaration(), "struct C { @size(12) m0: u32, @align(16) m1: i32 }");
        let table = [
            (Type::Vector(I32, 2), "ii"),
            (Type::Vector(F32, 3), "fff__"),
            (Type::Vector(F16, 3), "hhh_"),
            (Type::Matrix(F32, 2, 3), "fff__fff__"),
            (Type::Matrix(F32, 3, 2), "ffffff"),
            (Type::array(Type::Vector(U32, 3), 2), "uuu__uuu__"),
            (inner, "u______fff__"),
            (Type::structure("B", outer), "iiiiu______fff__h_______"),
            (Type::Struct(Rc::new(wide)), "u______i______"),
        ];
        for (ty, expected) in table {
            assert_eq!(ty.pattern(), expected, "{ty}");
        }
    }
}
