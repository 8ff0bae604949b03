//! The traits that an op's function implements, and the adapters that compile each of them to loops and traces.

use super::TileLoop;
use super::cpu::{self, F64, I64};
use super::lane::{Float, Integer, Lane, Machine, Number, Uint};
use super::trace::{self, Trace};
use crate::{Class, SimdLevel};
use std::marker::PhantomData;

/// An op on `N` floats.
///
/// See [`ElementOp`](crate::op::ElementOp) for an example.
pub trait FloatOp<const N: usize> {
    /// Computes the result.
    fn eval<T: Float>(args: [T; N]) -> T;
}

/// An op on `N` numbers of any class.
///
/// ```
/// use kiln_ir::op::{ElementOp, Number, NumberOp};
///
/// struct Square;
/// impl NumberOp<1> for Square {
///     fn eval<T: Number>([x]: [T; 1]) -> T { x * x }
/// }
/// static OP: ElementOp =
///     ElementOp::number::<Square, 1>("square", "`x * x`.", [(-10.0, 10.0)], |x| x[0] * x[0]);
/// assert!(OP.takes(kiln_ir::Class::Float) && OP.takes(kiln_ir::Class::Int));
/// ```
pub trait NumberOp<const N: usize> {
    /// Computes the result.
    fn eval<T: Number>(args: [T; N]) -> T;
}

/// An op on `N` integers.
///
/// ```
/// use kiln_ir::op::{ElementOp, Integer, IntegerOp};
///
/// struct Differ;
/// impl IntegerOp<2> for Differ {
///     fn eval<T: Integer>([a, b]: [T; 2]) -> T { a ^ b }
/// }
/// static OP: ElementOp =
///     ElementOp::integer::<Differ, 2>("differ", "`a ^ b`.", [(0.0, 99.0); 2], |x| (x[0] as i64 ^ x[1] as i64) as f64);
/// assert!(OP.takes(kiln_ir::Class::Int) && !OP.takes(kiln_ir::Class::Float));
/// ```
pub trait IntegerOp<const N: usize> {
    /// Computes the result.
    fn eval<T: Integer>(args: [T; N]) -> T;
}

/// A comparison of two numbers of any class.
///
/// ```
/// use kiln_ir::op::{CompareOp, ElementOp, Number, Signature};
///
/// struct Same;
/// impl CompareOp for Same {
///     fn eval<T: Number>([a, b]: [T; 2]) -> T::Mask { a.le(b) & b.le(a) }
/// }
/// static OP: ElementOp =
///     ElementOp::compare::<Same>("same", "Whether `a == b`.", [(-3.0, 3.0); 2], |x| f64::from(x[0] == x[1]));
/// assert_eq!(OP.signature, Signature::Compare);
/// ```
pub trait CompareOp {
    /// Computes the mask.
    fn eval<T: Number>(args: [T; 2]) -> T::Mask;
}

/// A selection between two numbers of any class.
///
/// ```
/// use kiln_ir::op::{ElementOp, Number, SelectOp, Signature};
///
/// struct Unless;
/// impl SelectOp for Unless {
///     fn eval<T: Number>(condition: T::Mask, [a, b]: [T; 2]) -> T { T::select(condition, b, a) }
/// }
/// static OP: ElementOp =
///     ElementOp::select::<Unless>("unless", "`a` or `b`.", [(0.0, 1.5); 3], |x| x[if x[0] != 0.0 { 2 } else { 1 }]);
/// assert_eq!(OP.signature, Signature::Select);
/// ```
pub trait SelectOp {
    /// Computes the result.
    fn eval<T: Number>(condition: T::Mask, args: [T; 2]) -> T;
}

/// An op on `N` values of `u32`.
///
/// ```
/// use kiln_ir::op::{BitsOp, ElementOp, Signature, Uint};
///
/// struct Swap;
/// impl BitsOp<1> for Swap {
///     fn eval<T: Uint>([x]: [T; 1]) -> T { (x << T::lit(16)) | (x >> T::lit(16)) }
/// }
/// static OP: ElementOp =
///     ElementOp::bits::<Swap, 1>("swap", "Swaps halves.", [(0.0, 1e9)], |x| f64::from((x[0] as u32).rotate_left(16)));
/// assert_eq!(OP.signature, Signature::Bits { arity: 1 });
/// ```
pub trait BitsOp<const N: usize> {
    /// Computes the result.
    fn eval<T: Uint>(args: [T; N]) -> T;
}

/// A conversion of `N` values of `u32` to a float.
///
/// ```
/// use kiln_ir::op::{BitsToFloatOp, ElementOp, Float, Int, Signature};
///
/// struct Signed;
/// impl BitsToFloatOp<1> for Signed {
///     fn eval<T: Float>([x]: [T::Bits; 1]) -> T { T::from_int(T::Int::from_bits(x)) }
/// }
/// static OP: ElementOp =
///     ElementOp::bits_to_float::<Signed, 1>("signed", "As `i32`.", [(0.0, 1e9)], |x| f64::from(x[0] as u32 as i32));
/// assert_eq!(OP.signature, Signature::BitsToFloat { arity: 1 });
/// ```
pub trait BitsToFloatOp<const N: usize> {
    /// Computes the result.
    fn eval<T: Float>(args: [T::Bits; N]) -> T;
}

/// An op compiled for operands of one class.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Compiled {
    portable: TileLoop,
    #[cfg(target_arch = "x86_64")]
    avx2: TileLoop,
    trace: fn() -> Trace,
}

impl Compiled {
    const fn of<C: Code<N>, const N: usize>() -> Self {
        Self {
            portable: cpu::portable::<C, N>,
            #[cfg(target_arch = "x86_64")]
            avx2: cpu::avx2::<C, N>,
            trace: trace::record::<C, N>,
        }
    }

    pub(super) fn tile(&self, level: SimdLevel) -> TileLoop {
        match level {
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 | SimdLevel::Avx512 => self.avx2,
            _ => self.portable,
        }
    }

    pub(super) fn trace(&self) -> Trace {
        (self.trace)()
    }
}

/// The compiled op of each class, in the order of [`Class`].
pub(super) type Classes = [Option<Compiled>; 3];

/// An op over untyped values, generic over the machine.
pub(super) trait Code<const N: usize> {
    /// The classes of the operands; `None` is a boolean.
    const OPERANDS: [Option<Class>; N];
    fn run<M: Machine>(args: [M::Value; N]) -> M::Value;
}

/// A type-level [`Class`].
trait ClassType {
    const CLASS: Class;
    type Of<M: Machine>: Number<Mask = M::Mask> + Lane<M::Value>;
}

macro_rules! classes {
    ($($class:ident),*) => {
        $(pub(super) struct $class;

        impl ClassType for $class {
            const CLASS: Class = Class::$class;
            type Of<M: Machine> = M::$class;
        })*
    };
}

/// Implements [`Code`] for each trait above, and for each class of the generic ones.
macro_rules! code {
    ($($adapter:ident $(<$class:ident>)?: $op:ident $(<$n:ident>)?,
        $count:tt: $operands:expr, |$args:ident| $value:expr;)*) => {
        $(struct $adapter<K $(, $class)?>(PhantomData<(K, $($class)?)>);

        impl<K: $op $(<$n>)? $(, $class: ClassType)? $(, const $n: usize)?> Code<$count> for $adapter<K $(, $class)?> {
            const OPERANDS: [Option<Class>; $count] = $operands;
            #[inline(always)]
            fn run<M: Machine>($args: [M::Value; $count]) -> M::Value {
                $value
            }
        })*
    };
}

/// Compiles an op for every class.
macro_rules! every_class {
    ($adapter:ident, $op:ty, $count:tt) => {
        [
            Some(Compiled::of::<$adapter<$op, class::Float>, $count>()),
            Some(Compiled::of::<$adapter<$op, class::Int>, $count>()),
            Some(Compiled::of::<$adapter<$op, class::Uint>, $count>()),
        ]
    };
}

/// Marker types, in their own module because the lane traits have the same names.
mod class {
    use super::{Class, ClassType, Machine};
    classes!(Float, Int, Uint);
}

code! {
    Floats: FloatOp<N>, N: [Some(Class::Float); N], |args| K::eval(args.map(M::Float::load)).store();
    Numbers<C>: NumberOp<N>, N: [Some(C::CLASS); N], |args| K::eval(args.map(<C::Of<M>>::load)).store();
    Ints: IntegerOp<N>, N: [Some(Class::Int); N], |args| K::eval(args.map(M::Int::load)).store();
    Uints: IntegerOp<N>, N: [Some(Class::Uint); N], |args| K::eval(args.map(M::Uint::load)).store();
    Compares<C>: CompareOp, 2: [Some(C::CLASS); 2], |args| K::eval(args.map(<C::Of<M>>::load)).store();
    Selects<C>: SelectOp, 3: [None, Some(C::CLASS), Some(C::CLASS)], |args| {
        let [condition, yes, no] = args;
        K::eval(M::Mask::load(condition), [yes, no].map(<C::Of<M>>::load)).store()
    };
    Bits: BitsOp<N>, N: [Some(Class::Uint); N], |args| K::eval(args.map(M::Uint::load)).store();
    BitsToFloats: BitsToFloatOp<N>, N: [Some(Class::Uint); N], |args| K::eval::<M::Float>(args.map(M::Uint::load)).store();
}

/// All compiled forms of an op.
#[derive(Clone, Copy)]
pub(super) struct Loops {
    pub(super) classes: Classes,
    pub(super) wide: WideLoops,
}

/// The loops of an op over 64-bit elements; `None` if unsupported.
#[derive(Clone, Copy)]
pub(super) struct WideLoops {
    pub(super) i64: Option<WideLoop<i64>>,
    /// `None` for float ops: they evaluate their [reference](super::ElementOp::reference) in `f64`.
    pub(super) f64: Option<WideLoop<f64>>,
}

/// A loop over 64-bit elements. `out` and all arguments have the same length. Booleans are 0 or 1.
pub(super) type WideLoop<T> = fn(out: &mut [T], args: [&[T]; 3]);

/// Creates the loop of a function, for either element type.
macro_rules! wide_loop {
    ($ty:ty, $lane:ident, $count:tt, |$args:ident| $value:expr) => {
        |out: &mut [$ty], args: [&[$ty]; 3]| {
            let length = out.len();
            // Slices of the same length, so that the compiler can remove the bounds checks in the loop.
            let args: [&[$ty]; $count] = std::array::from_fn(|arg| &args[arg][..length]);
            for (index, out) in out.iter_mut().enumerate() {
                let $args: [$lane; $count] = std::array::from_fn(|arg| $lane(args[arg][index]));
                *out = $value;
            }
        }
    };
}

const NO_WIDE: WideLoops = WideLoops { i64: None, f64: None };

pub(super) const fn float<K: FloatOp<N>, const N: usize>() -> Loops {
    Loops { classes: [Some(Compiled::of::<Floats<K>, N>()), None, None], wide: NO_WIDE }
}

pub(super) const fn number<K: NumberOp<N>, const N: usize>() -> Loops {
    let wide = WideLoops {
        i64: Some(wide_loop!(i64, I64, N, |args| K::eval(args).0)),
        f64: Some(wide_loop!(f64, F64, N, |args| K::eval(args).0)),
    };
    Loops { classes: every_class!(Numbers, K, N), wide }
}

pub(super) const fn integer<K: IntegerOp<N>, const N: usize>() -> Loops {
    let classes = [None, Some(Compiled::of::<Ints<K>, N>()), Some(Compiled::of::<Uints<K>, N>())];
    Loops { classes, wide: WideLoops { i64: Some(wide_loop!(i64, I64, N, |args| K::eval(args).0)), f64: None } }
}

pub(super) const fn compare<K: CompareOp>() -> Loops {
    let wide = WideLoops {
        i64: Some(wide_loop!(i64, I64, 2, |args| i64::from(K::eval(args)))),
        f64: Some(wide_loop!(f64, F64, 2, |args| f64::from(u8::from(K::eval(args))))),
    };
    Loops { classes: every_class!(Compares, K, 2), wide }
}

pub(super) const fn select<K: SelectOp>() -> Loops {
    let wide = WideLoops {
        i64: Some(wide_loop!(i64, I64, 3, |args| K::eval(args[0].0 != 0, [args[1], args[2]]).0)),
        f64: Some(wide_loop!(f64, F64, 3, |args| K::eval(args[0].0 != 0.0, [args[1], args[2]]).0)),
    };
    Loops { classes: every_class!(Selects, K, 3), wide }
}

pub(super) const fn bits<K: BitsOp<N>, const N: usize>() -> Loops {
    Loops { classes: [None, None, Some(Compiled::of::<Bits<K>, N>())], wide: NO_WIDE }
}

pub(super) const fn bits_to_float<K: BitsToFloatOp<N>, const N: usize>() -> Loops {
    Loops { classes: [None, None, Some(Compiled::of::<BitsToFloats<K>, N>())], wide: NO_WIDE }
}
