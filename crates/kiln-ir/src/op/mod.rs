//! Elementwise ops. Each is declared once, in the table, with its code, gradient, reference and tolerance.

mod code;
mod cpu;
mod gradients;
mod lane;
mod math;
mod power;
mod random;
pub mod reference;
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
///
/// ```
/// use kiln_ir::op::{ElementOp, Float, FloatOp};
///
/// struct Cube;
/// impl FloatOp<1> for Cube {
///     fn eval<T: Float>([x]: [T; 1]) -> T {
///         x * x * x
///     }
/// }
/// static CUBE: ElementOp = ElementOp::float::<Cube, 1>("cube", "The cube of `x`.", [(-10.0, 10.0)], |x| x[0].powi(3));
/// assert_eq!((CUBE.arity(), CUBE.reference()(&[2.0])), (1, 8.0));
/// ```
#[must_use]
pub struct ElementOp {
    /// The name of the op and of its tensor method.
    pub name: &'static str,
    /// A one-sentence description.
    pub doc: &'static str,
    /// The dtypes of its operands and result.
    pub signature: Signature,
    /// The names of its arguments; may be empty for an op declared outside the table.
    pub arguments: &'static [&'static str],
    loops: Loops,
    reference: Reference,
    intervals: [Interval; 3],
    accuracy: Tolerance,
    is_cheap: bool,
    is_logical: bool,
    pub(crate) gradient: Option<ElementGradient>,
}

/// The reference implementation in `f64`, independent of the op's own code; booleans are 0 or 1. For integer dtypes
/// the result is truncated and wrapped modulo 2^32; infinity and NaN become 0.
///
/// See [`ElementOp`] for an example.
pub type Reference = fn(args: &[f64]) -> f64;

/// The interval from which tests sample an argument.
///
/// See [`ElementOp`] for an example.
pub type Interval = (f64, f64);

/// The dtypes of an op's operands and result.
///
/// See [`ElementOp`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// `arity` tensors of one dtype; the result has the same dtype.
    Same {
        /// Number of operands.
        arity: usize,
    },
    /// Two tensors of one dtype; the result is a `U8` mask of 0 and 1.
    Compare,
    /// A `U8` mask and two tensors of one dtype, which is the dtype of the result.
    Select,
    /// `arity` tensors of `U32`; the result is `U32`.
    Bits {
        /// Number of operands.
        arity: usize,
    },
    /// `arity` tensors of `U32`; the result is `F32`.
    BitsToFloat {
        /// Number of operands.
        arity: usize,
    },
}

/// A loop over a tile. `out` and the arguments have the same length and hold the bits of values of the class.
/// Arguments beyond the op's arity are empty.
///
/// See [`ElementOp`] for an example.
///
/// # Safety
/// The processor must support the SIMD level that the loop was requested for.
pub type TileLoop = unsafe fn(out: &mut [u32], args: [&[u32]; 3]);

/// Defines a constructor for each trait that an op's code can implement.
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
            // A `while`, because a `const fn` cannot iterate with `for`.
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

/// Constructors: each takes a name, a one-sentence description, the test interval of each argument, and a reference.
impl ElementOp {
    constructors! {
        /// Declares an op on floats.
        float: FloatOp<N>, N, Signature::Same { arity: N };
        /// Declares an op on numbers of any class.
        number: NumberOp<N>, N, Signature::Same { arity: N };
        /// Declares an op on integers.
        integer: IntegerOp<N>, N, Signature::Same { arity: N };
        /// Declares a comparison of two numbers of any class.
        compare: CompareOp, 2, Signature::Compare;
        /// Declares a selection between two numbers of any class.
        select: SelectOp, 3, Signature::Select;
        /// Declares an op on `u32`.
        bits: BitsOp<N>, N, Signature::Bits { arity: N };
        /// Declares a conversion of `u32` to float.
        bits_to_float: BitsToFloatOp<N>, N, Signature::BitsToFloat { arity: N };
    }

    /// Sets the names of the arguments.
    pub const fn arguments(mut self, names: &'static [&'static str]) -> Self {
        self.arguments = names;
        self
    }

    /// Sets the maximum error of an `f32` result on any device, in ULP. Default: correctly rounded.
    pub const fn ulps(mut self, ulps: f64) -> Self {
        self.accuracy.ulps = ulps;
        self
    }

    /// Sets an absolute tolerance in addition, for results near zero.
    pub const fn absolute(mut self, absolute: f64) -> Self {
        self.accuracy.absolute = absolute;
        self
    }

    /// Sets the gradient. Without one, `backward` returns an error.
    pub const fn gradient(mut self, gradient: ElementGradient) -> Self {
        self.gradient = Some(gradient);
        self
    }

    /// Declares the gradient to be zero: steps, comparisons and bit operations.
    pub const fn zero_gradient(self) -> Self {
        self.gradient(|x, _, _| Gradients::from_elem(None, x.len()))
    }

    /// Marks the op as cheaper to recompute than to store: one or two instructions.
    pub const fn cheap(mut self) -> Self {
        self.is_cheap = true;
        self
    }

    /// Declares that the result is 0 or 1 if all operands are, so that the op accepts `Bool`.
    pub const fn logical(mut self) -> Self {
        self.is_logical = true;
        self
    }
}

impl ElementOp {
    /// Returns the number of operands.
    pub fn arity(&self) -> usize {
        match self.signature {
            Signature::Same { arity } | Signature::Bits { arity } | Signature::BitsToFloat { arity } => arity,
            Signature::Compare => 2,
            Signature::Select => 3,
        }
    }

    /// Returns whether the op is cheaper to recompute than to store.
    pub fn is_cheap(&self) -> bool {
        self.is_cheap
    }

    /// Returns whether the op declares a gradient.
    pub fn has_gradient(&self) -> bool {
        self.gradient.is_some()
    }

    /// Returns the reference implementation in `f64`.
    pub fn reference(&self) -> Reference {
        self.reference
    }

    /// Returns the test interval of each argument.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals[..self.arity()]
    }

    /// Returns the tolerance of a result that is computed alone and stored as this dtype. Devices may flush subnormal
    /// numbers to zero. Integers are exact.
    pub fn error_bound(&self, dtype: DType) -> Tolerance {
        let Tolerance { ulps, absolute } = self.accuracy;
        // The error of the computation in `f32`, in ULP of the narrower dtype, plus half an ULP for the store. The smallest
        // normal number is added because subnormal results may be flushed to zero.
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

    /// Returns whether fused programs support the op for this class.
    pub fn takes(&self, class: Class) -> bool {
        self.compiled(class).is_some()
    }

    /// Returns whether the op supports operands of this dtype, on a device with arithmetic for it.
    pub fn takes_dtype(&self, dtype: DType) -> bool {
        match dtype {
            DType::I64 => self.loops.wide.i64.is_some(),
            DType::F64 => self.loops.wide.f64.is_some() || self.is_of_floats(),
            DType::Bool => self.is_logical || matches!(self.signature, Signature::Compare | Signature::Select),
            _ => self.takes(dtype.class()),
        }
    }

    /// Evaluates the op on the CPU for `I64`. Arguments beyond the arity are empty; booleans are 0 or 1. Returns
    /// false and leaves `out` unchanged if the op does not [support](Self::takes_dtype) the dtype.
    #[must_use]
    pub fn eval_i64(&self, out: &mut [i64], args: [&[i64]; 3]) -> bool {
        let run = self.loops.wide.i64;
        run.map(|run| run(out, args)).is_some()
    }

    /// Evaluates the op on the CPU for `F64`, like [`eval_i64`](Self::eval_i64).
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

    /// Returns whether it accepts floats but no integers.
    fn is_of_floats(&self) -> bool {
        matches!(self.signature, Signature::Same { .. }) && self.takes(Class::Float) && !self.takes(Class::Int)
    }

    fn compiled(&self, class: Class) -> Option<&code::Compiled> {
        self.loops.classes.get(class as usize)?.as_ref()
    }

    /// Returns the loop for operands of this class; `None` if the op does not support it.
    pub fn tile(&self, class: Class, level: SimdLevel) -> Option<TileLoop> {
        Some(self.compiled(class)?.tile(level))
    }

    /// Returns the recorded steps of the op for operands of this class.
    pub fn trace(&self, class: Class) -> Option<Trace> {
        Some(self.compiled(class)?.trace())
    }

    /// Returns the op as a WGSL function with this name for operands of this class, scalar or `vec4`. Booleans are 0
    /// or 1 as `u32`.
    pub fn wgsl(&self, class: Class, name: &str, four: bool) -> Option<String> {
        Some(self.trace(class)?.wgsl(name, four))
    }
}

/// Ops are compared by identity.
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
