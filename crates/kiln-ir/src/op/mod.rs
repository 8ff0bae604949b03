//! Elementwise ops: each declared once, in the table, with everything that is known about it.

use crate::{Class, SimdLevel};
use std::fmt;

/// An elementwise op: one entry of the [table](all).
pub struct ElementOp {
    /// The name of the op and of its method.
    pub name: &'static str,
    /// What it computes, in a sentence.
    pub doc: &'static str,
    /// Which dtypes it takes and gives.
    pub signature: Signature,
}

/// Which dtypes an op takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// `arity` tensors of one dtype, and a result of the same.
    Same {
        /// How many.
        arity: usize,
    },
    /// Two tensors of one dtype, and a `U8` of 0 and 1.
    Compare,
    /// A `U8`, and two tensors of one dtype, which is that of the result.
    Select,
    /// `arity` tensors of `U32`, and a result of `U32`.
    Bits {
        /// How many.
        arity: usize,
    },
    /// `arity` tensors of `U32`, and a result of `F32`.
    BitsToFloat {
        /// How many.
        arity: usize,
    },
}

/// A loop over a tile: each element of `out` of those of the arguments, all equally long; values are the bits of the class. Arguments beyond
/// the op's arity are empty.
///
/// # Safety
/// The processor has the instructions of the level that the loop was asked for.
pub type TileLoop = unsafe fn(out: &mut [u32], args: [&[u32]; 3]);

impl ElementOp {
    /// How many inputs it takes.
    pub fn arity(&self) -> usize {
        match self.signature {
            Signature::Same { arity } | Signature::Bits { arity } | Signature::BitsToFloat { arity } => arity,
            Signature::Compare => 2,
            Signature::Select => 3,
        }
    }

    /// The loop over operands of this class; `None` where the op has none.
    pub fn tile(&self, class: Class, level: SimdLevel) -> Option<TileLoop> {
        let _ = (class, level);
        None
    }

    /// The op as a WGSL function over operands of this class, under this name, for one element or four at once (`vec4`).
    pub fn wgsl(&self, class: Class, name: &str, four: bool) -> Option<String> {
        let _ = (class, name, four);
        None
    }
}

/// Every op.
pub fn all() -> &'static [&'static ElementOp] {
    &[]
}

/// Ops are the same where they are the same entry.
impl PartialEq for ElementOp {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for ElementOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
