//! Elementwise ops: each declared once, in the table, with everything that is known about it.

mod code;
mod cpu;
mod lane;
mod math;
mod power;
mod random;
pub mod reference;
mod slope;
mod table;
#[cfg(test)]
mod tests;
mod tolerance;
mod trace;

pub use code::{BitsOp, BitsToFloatOp, CompareOp, FloatOp, IntegerOp, NumberOp, SelectOp};
pub use lane::{Float, Int, Integer, Mask, Number, Uint};
pub use table::*;
pub use tolerance::{Tolerance, ulp};
pub use trace::{Expression, Function, Id, Infix, Prefix, Trace, TraceStep, Type};

use crate::gradient::{ElementGradient, Gradients};
use crate::{Class, DType, SimdLevel};
use code::Loops;
use std::fmt;

/// An elementwise op: one entry of the [table](all).
#[must_use]
pub struct ElementOp {
    /// The name of the op and of its method.
    pub name: &'static str,
    /// What it computes, in a sentence.
    pub doc: &'static str,
    /// Which dtypes it takes and gives.
    pub signature: Signature,
    /// The names of its arguments; none for an op outside the table that does not say them.
    pub arguments: &'static [&'static str],
    loops: Loops,
    reference: Reference,
    intervals: [Interval; 3],
    accuracy: Tolerance,
    is_cheap: bool,
    is_logical: bool,
    pub(crate) gradient: Option<ElementGradient>,
}

/// The op in `f64`, of as many numbers as it takes, by other means than the op itself; truth is 0 or 1. A result of integers is this one
/// without its fraction, modulo 2^32, and 0 where it is infinite or NaN.
pub type Reference = fn(args: &[f64]) -> f64;

/// From where to where an argument is sampled in tests.
pub type Interval = (f64, f64);

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

/// A function that declares an op for each trait that its code can be written for.
macro_rules! constructors {
    ($($(#[doc = $doc:literal])+ $name:ident: $op:ident $(<$n:ident>)?, $arity:tt, $signature:expr;)*) => {
        $($(#[doc = $doc])+
        pub const fn $name<K: $op $(<$n>)? $(, const $n: usize)?>(
            name: &'static str,
            doc: &'static str,
            intervals: [Interval; $arity],
            reference: Reference,
        ) -> Self {
            let mut all = [(0.0, 0.0); 3];
            let mut index = 0;
            while index < $arity {
                all[index] = intervals[index];
                index += 1;
            }
            let accuracy = Tolerance { ulps: 0.5, absolute: 0.0 };
            let loops = code::$name::<K $(, $n)?>();
            let (signature, arguments) = ($signature, &[]);
            let (is_cheap, is_logical, gradient) = (false, false, None);
            Self {
                name,
                doc,
                signature,
                arguments,
                loops,
                reference,
                intervals: all,
                accuracy,
                is_cheap,
                is_logical,
                gradient,
            }
        })*
    };
}

/// Declaring an op: with its name, a sentence, from where to where each argument is sampled in tests, and a reference.
impl ElementOp {
    constructors! {
        /// An op on floats.
        float: FloatOp<N>, N, Signature::Same { arity: N };
        /// An op on numbers of any class.
        number: NumberOp<N>, N, Signature::Same { arity: N };
        /// An op on integers.
        integer: IntegerOp<N>, N, Signature::Same { arity: N };
        /// A question about two numbers of any class.
        compare: CompareOp, 2, Signature::Compare;
        /// A choice between two numbers of any class.
        select: SelectOp, 3, Signature::Select;
        /// An op on `u32`.
        bits: BitsOp<N>, N, Signature::Bits { arity: N };
        /// A float made of `u32`.
        bits_to_float: BitsToFloatOp<N>, N, Signature::BitsToFloat { arity: N };
    }

    /// Names the arguments.
    pub const fn arguments(mut self, names: &'static [&'static str]) -> Self {
        self.arguments = names;
        self
    }

    /// States how far an `f32` may be from the exact result, on any device, in units of its last place. Without this it is rounded
    /// correctly.
    pub const fn ulps(mut self, ulps: f64) -> Self {
        self.accuracy.ulps = ulps;
        self
    }

    /// States an amount on top, for results near zero.
    pub const fn absolute(mut self, absolute: f64) -> Self {
        self.accuracy.absolute = absolute;
        self
    }

    /// States what it makes of the gradient of its result. Without this, `backward` refuses it.
    pub const fn gradient(mut self, gradient: ElementGradient) -> Self {
        self.gradient = Some(gradient);
        self
    }

    /// States that its gradient is zero wherever it has one: steps, questions, and what is made of bits.
    pub const fn flat(self) -> Self {
        self.gradient(|x, _, _| Gradients::from_elem(None, x.len()))
    }

    /// Says that computing it twice costs less than storing it once: it is an instruction or two.
    pub const fn cheap(mut self) -> Self {
        self.is_cheap = true;
        self
    }

    /// States that it gives 0 or 1 wherever its operands are 0 or 1, so that it takes tensors of `Bool`.
    pub const fn logical(mut self) -> Self {
        self.is_logical = true;
        self
    }
}

impl ElementOp {
    /// How many inputs it takes.
    pub fn arity(&self) -> usize {
        match self.signature {
            Signature::Same { arity } | Signature::Bits { arity } | Signature::BitsToFloat { arity } => arity,
            Signature::Compare => 2,
            Signature::Select => 3,
        }
    }

    /// Whether computing it twice costs less than storing it once.
    pub fn is_cheap(&self) -> bool {
        self.is_cheap
    }

    /// Whether it states a gradient.
    pub fn has_gradient(&self) -> bool {
        self.gradient.is_some()
    }

    /// The op in `f64`.
    pub fn reference(&self) -> Reference {
        self.reference
    }

    /// From where to where each argument is sampled in tests.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals[..self.arity()]
    }

    /// How far a result may be from the exact one for the operands that were given, where it is computed alone and stored as this dtype.
    /// Devices may take subnormal numbers for zero. Integers are exact.
    pub fn bound(&self, dtype: DType) -> Tolerance {
        let Tolerance { ulps, absolute } = self.accuracy;
        let (rounding, scale) = match dtype {
            _ if self.signature == Signature::Compare => return Tolerance::EXACT,
            DType::F32 => (0.0, 1.0),
            DType::F16 => (0.5, 2f64.powi(10 - 23)),
            DType::BF16 => (0.5, 2f64.powi(7 - 23)),
            DType::F64 => return Tolerance { ulps: 8.0, absolute: 0.0 },
            _ => return Tolerance::EXACT,
        };
        Tolerance { ulps: rounding + ulps * scale, absolute: absolute + f64::from(f32::MIN_POSITIVE) }
    }

    /// Whether fused programs compute it for operands of this class.
    pub fn takes(&self, class: Class) -> bool {
        self.compiled(class).is_some()
    }

    /// Whether it exists for operands of this dtype, on a device that has arithmetic for it.
    pub fn takes_dtype(&self, dtype: DType) -> bool {
        match dtype {
            DType::I64 => self.loops.wide.i64.is_some(),
            DType::F64 => self.loops.wide.f64.is_some() || self.is_of_floats(),
            DType::Bool => self.is_logical || matches!(self.signature, Signature::Compare | Signature::Select),
            _ => self.takes(dtype.class()),
        }
    }

    /// Computes it on the CPU for elements of `I64`; arguments beyond the arity are empty, truth is 0 or 1. Returns false, and leaves `out`
    /// as it is, where the op does not [take](Self::takes_dtype) them.
    #[must_use]
    pub fn eval_i64(&self, out: &mut [i64], args: [&[i64]; 3]) -> bool {
        let run = self.loops.wide.i64;
        run.map(|run| run(out, args)).is_some()
    }

    /// Computes it on the CPU for elements of `F64`, as [`eval_i64`](Self::eval_i64) does for integers.
    #[must_use]
    pub fn eval_f64(&self, out: &mut [f64], args: [&[f64]; 3]) -> bool {
        if let Some(run) = self.loops.wide.f64 {
            run(out, args);
            return true;
        }
        if !self.is_of_floats() {
            return false;
        }
        let arity = self.arity();
        for (index, out) in out.iter_mut().enumerate() {
            let mut numbers = [0.0; 3];
            numbers.iter_mut().zip(&args[..arity]).for_each(|(number, arg)| *number = arg[index]);
            *out = (self.reference)(&numbers[..arity]);
        }
        true
    }

    /// Whether it takes floats, and no integers.
    fn is_of_floats(&self) -> bool {
        matches!(self.signature, Signature::Same { .. }) && self.takes(Class::Float) && !self.takes(Class::Int)
    }

    fn compiled(&self, class: Class) -> Option<&code::Compiled> {
        self.loops.classes.get(class as usize)?.as_ref()
    }

    /// The loop over operands of this class; `None` where the op has none.
    pub fn tile(&self, class: Class, level: SimdLevel) -> Option<TileLoop> {
        Some(self.compiled(class)?.tile(level))
    }

    /// What it does with operands of this class, step by step.
    pub fn trace(&self, class: Class) -> Option<Trace> {
        Some(self.compiled(class)?.trace())
    }

    /// The op as a WGSL function over operands of this class, under this name, for one element or four at once (`vec4`). Truth is 0 or 1 of
    /// `u32`.
    pub fn wgsl(&self, class: Class, name: &str, four: bool) -> Option<String> {
        Some(self.trace(class)?.wgsl(name, four))
    }
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
