//! Lanes that record the steps of an op, and the recorded trace as WGSL. The CPU device also compiles traces to
//! machine code.

use super::code::Code;
use super::lane::{Float, Int, Integer, Lane, Machine, Mask, Number, Uint};
use crate::Class;
use std::cell::RefCell;
use std::fmt::Write;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

/// The recorded steps of an op; the last step is the result.
///
/// ```
/// use kiln_ir::op::{self, Expression, Infix, TraceStep, Type};
///
/// let trace = op::MUL.trace(kiln_ir::Class::Float).unwrap();
/// assert_eq!(trace.args, [Type::F32, Type::F32]);
/// // The first two steps are the arguments.
/// assert_eq!(trace.steps[2], TraceStep { ty: Type::F32, expression: Expression::Infix(Infix::Mul, 0, 1) });
/// ```
#[derive(Debug)]
pub struct Trace {
    /// The steps, in topological order.
    pub steps: Vec<TraceStep>,
    /// The types of the arguments.
    pub args: Vec<Type>,
}

/// The type of a step.
///
/// See [`Trace`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `f32`.
    F32,
    /// `i32`.
    I32,
    /// `u32`.
    U32,
    /// A boolean.
    Bool,
}

/// Index of an earlier step.
///
/// See [`Trace`] for an example.
pub type Id = usize;

/// One step of a trace.
///
/// See [`Trace`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceStep {
    /// The type of its value.
    pub ty: Type,
    /// The expression that computes it.
    pub expression: Expression,
}

/// The expression of a step.
///
/// See [`Trace`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expression {
    /// An argument of the op.
    Arg(usize),
    /// A constant, as its bits.
    Literal(u32),
    /// A unary operator.
    Prefix(Prefix, Id),
    /// A binary operator on operands of one type.
    Infix(Infix, Id, Id),
    /// A math function of a float.
    Call(Function, Id),
    /// `a * b + c` of floats, rounded once or twice.
    MulAdd([Id; 3]),
    /// Tests a float for NaN.
    IsNan(Id),
    /// Reinterprets the bits in the step's type.
    Bitcast(Id),
    /// Converts to the step's type. A float converted to an integer is integral, or the result is unspecified.
    Convert(Id),
    /// `[no, yes, mask]`, as WGSL orders them.
    Select([Id; 3]),
}

/// Defines operator enums with their WGSL symbols.
macro_rules! symbols {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident $symbol:literal,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Returns the WGSL symbol.
            fn symbol(self) -> &'static str {
                match self {
                    $(Self::$variant => $symbol,)*
                }
            }
        })*
    };
}

symbols! {
    /// A unary operator.
    Prefix {
        /// Negation.
        Neg "-",
        /// Bitwise complement.
        Invert "~",
        /// Logical negation.
        Not "!",
    }
    /// A binary operator. Integer arithmetic wraps.
    Infix {
        /// Addition.
        Add "+",
        /// Subtraction.
        Sub "-",
        /// Multiplication.
        Mul "*",
        /// Division; an integer divisor is never 0.
        Div "/",
        /// Bitwise or logical AND.
        And "&",
        /// Bitwise or logical OR.
        Or "|",
        /// Bitwise XOR.
        Xor "^",
        /// Left shift by less than 32 bits.
        Shl "<<",
        /// Logical right shift by less than 32 bits.
        Shr ">>",
        /// Equality.
        Eq "==",
        /// Less than.
        Lt "<",
        /// Less than or equal.
        Le "<=",
    }
    /// A math function of a float.
    Function {
        /// Absolute value.
        Abs "abs",
        /// Square root.
        Sqrt "sqrt",
        /// Reciprocal square root.
        InverseSqrt "inverseSqrt",
        /// Rounds down.
        Floor "floor",
        /// Rounds up.
        Ceil "ceil",
        /// Rounds to nearest, ties to even.
        Round "round",
    }
}

thread_local! {
    /// The steps of the trace being recorded; empty outside [`record`].
    static STEPS: RefCell<Vec<TraceStep>> = const { RefCell::new(Vec::new()) };
}

/// Clears the steps when a recording ends, also by a panic.
struct Recording;

impl Recording {
    fn steps() -> Vec<TraceStep> {
        STEPS.with(RefCell::take)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        Self::steps();
    }
}

/// Records an op.
pub(super) fn record<C: Code<N>, const N: usize>() -> Trace {
    // If the op's function panics, its steps must not become part of the next recording on this thread.
    let _recording = Recording;
    let args = C::OPERANDS.map(|class| match class {
        Some(Class::Float) => Type::F32,
        Some(Class::Int) => Type::I32,
        // A boolean argument is 0 or 1 as `u32`; `TracedMask::load` compares it with 0.
        Some(Class::Uint) | None => Type::U32,
        Some(Class::Wide) => unreachable!("64-bit ops run only on the CPU"),
    });
    let mut index = 0;
    let values = args.map(|ty| {
        index += 1;
        push(ty, Expression::Arg(index - 1))
    });
    let result = C::run::<Recorder>(values);
    let mut steps = Recording::steps();
    if result + 1 != steps.len() {
        // The result must be the last step, but an argument, or a step before trailing literals, can be the result.
        let ty = steps[result].ty;
        steps.push(TraceStep { ty, expression: Expression::Bitcast(result) });
    }
    Trace { steps, args: args.to_vec() }
}

fn push(ty: Type, expression: Expression) -> Id {
    STEPS.with_borrow_mut(|steps| {
        steps.push(TraceStep { ty, expression });
        steps.len() - 1
    })
}

impl Type {
    fn name(self, four: bool) -> String {
        let name = match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::Bool => "bool",
        };
        if four { format!("vec4<{name}>") } else { name.to_owned() }
    }

    /// Returns the WGSL literal of a finite number.
    fn literal(self, bits: u32, four: bool) -> String {
        let literal = match self {
            Self::F32 => format!("{:?}f", f32::from_bits(bits)),
            // A conversion, because `-2147483648i` is the negation of a literal that is out of range.
            Self::I32 => format!("i32({})", bits as i32),
            Self::U32 => format!("{bits}u"),
            Self::Bool => format!("{}", bits != 0),
        };
        if four { format!("{}({literal})", self.name(true)) } else { literal }
    }
}

impl Trace {
    /// Returns the type of the result.
    pub(super) fn result(&self) -> Type {
        self.steps.last().map_or(Type::F32, |step| step.ty)
    }

    /// Returns the number of steps that compute something.
    #[cfg(test)]
    pub(super) fn cost(&self) -> usize {
        let computes = |step: &&TraceStep| !matches!(step.expression, Expression::Arg(_) | Expression::Literal(_));
        self.steps.iter().filter(computes).count()
    }

    /// Renders the trace as a WGSL function.
    pub(super) fn wgsl(&self, name: &str, four: bool) -> String {
        let mut text = format!("fn {name}(");
        for (index, ty) in self.args.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}a{index}: {}", ty.name(four));
        }
        let _ = writeln!(text, ") -> {} {{", self.result().name(four));
        for (id, step) in self.steps.iter().enumerate() {
            self.statement(&mut text, id, step, four);
        }
        let _ = writeln!(text, "    return {};\n}}", self.operand(self.steps.len() - 1, four));
        text
    }

    fn statement(&self, text: &mut String, id: Id, step: &TraceStep, four: bool) {
        let of = |id: Id| self.operand(id, four);
        let ty = step.ty.name(four);
        let value = match step.expression {
            Expression::Arg(_) => return,
            Expression::Literal(bits) if step.is_not_finite() => {
                // A `var`, because WGSL rejects constant expressions that are infinite or NaN.
                let _ = writeln!(text, "    var w{id} = {bits:#x}u;");
                format!("{ty}(bitcast<f32>(w{id}))")
            }
            // Finite literals are written where they are used.
            Expression::Literal(_) => return,
            Expression::Prefix(operator, a) => format!("{}{}", operator.symbol(), of(a)),
            Expression::Infix(operator, a, b) => format!("{} {} {}", of(a), operator.symbol(), of(b)),
            Expression::Call(function, a) => format!("{}({})", function.symbol(), of(a)),
            // Not `fma`: drivers may split it and reassociate the terms, which loses the low part of a double-float
            // sum. Kiln forbids that for products and sums (`kiln-gpu` marks them), but cannot for calls.
            Expression::MulAdd([a, b, c]) => format!("{} * {} + {}", of(a), of(b), of(c)),
            Expression::IsNan(a) => {
                let word = |bits: u32| Type::U32.literal(bits, four);
                let bits = Type::U32.name(four);
                format!("(bitcast<{bits}>({}) & {}) > {}", of(a), word(0x7fff_ffff), word(0x7f80_0000))
            }
            Expression::Bitcast(a) => format!("bitcast<{ty}>({})", of(a)),
            Expression::Convert(a) => format!("{ty}({})", of(a)),
            Expression::Select([no, yes, mask]) => format!("select({}, {}, {})", of(no), of(yes), of(mask)),
        };
        let _ = writeln!(text, "    let v{id} = {value};");
    }

    fn operand(&self, id: Id, four: bool) -> String {
        let step = &self.steps[id];
        match step.expression {
            Expression::Arg(index) => format!("a{index}"),
            Expression::Literal(bits) if !step.is_not_finite() => step.ty.literal(bits, four),
            _ => format!("v{id}"),
        }
    }
}

impl TraceStep {
    fn is_not_finite(&self) -> bool {
        let Expression::Literal(bits) = self.expression else { return false };
        self.ty == Type::F32 && !f32::from_bits(bits).is_finite()
    }
}

/// The machine whose lanes record.
struct Recorder;

/// Defines recording lanes.
macro_rules! traced {
    ($($(#[$doc:meta])* $lane:ident: |$value:ident| $load:expr, |$own:ident| $store:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy)]
        struct $lane(Id);

        impl Lane<Id> for $lane {
            fn load($value: Id) -> Self {
                $load
            }
            fn store(self) -> Id {
                let $own = self;
                $store
            }
        })*
    };
}

traced! {
    /// A recorded `f32`.
    TracedFloat: |value| Self(value), |float| float.0;
    /// A recorded `i32`.
    TracedInt: |value| Self(value), |int| int.0;
    /// A recorded `u32`.
    TracedUint: |value| Self(value), |uint| uint.0;
    /// A recorded `bool`.
    TracedMask: |value| TracedUint(value).ne(TracedUint::lit(0)),
        |mask| TracedUint::select(mask, TracedUint::lit(1), TracedUint::lit(0)).0;
}

impl Machine for Recorder {
    type Value = Id;
    type Mask = TracedMask;
    type Float = TracedFloat;
    type Int = TracedInt;
    type Uint = TracedUint;
}

macro_rules! infix {
    ($($lane:ident $ty:ident: $($operator:ident $method:ident $infix:ident),*;)*) => {
        $($(impl $operator for $lane {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                Self(push(Type::$ty, Expression::Infix(Infix::$infix, self.0, other.0)))
            }
        })*)*
    };
}

infix! {
    TracedMask Bool: BitAnd bitand And, BitOr bitor Or;
    TracedFloat F32: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div;
    TracedInt I32: Add add Add, Sub sub Sub, Mul mul Mul, BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor;
    TracedUint U32: Add add Add, Sub sub Sub, Mul mul Mul, BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor;
}

macro_rules! prefix {
    ($($lane:ident $ty:ident: $operator:ident $method:ident $prefix:ident;)*) => {
        $(impl $operator for $lane {
            type Output = Self;
            fn $method(self) -> Self {
                Self(push(Type::$ty, Expression::Prefix(Prefix::$prefix, self.0)))
            }
        })*
    };
}

prefix! {
    TracedMask Bool: Not not Not;
    TracedFloat F32: Neg neg Neg;
    TracedInt I32: Neg neg Neg;
    TracedInt I32: Not not Invert;
    TracedUint U32: Not not Invert;
}

/// WGSL has no unary minus for `u32`.
impl Neg for TracedUint {
    type Output = Self;
    fn neg(self) -> Self {
        Self::lit(0) - self
    }
}

macro_rules! integer_division {
    ($($lane:ident $ty:ident),*) => {
        $(impl Integer for $lane {}

        impl Div for $lane {
            type Output = Self;
            fn div(self, other: Self) -> Self {
                // The divisor is never 0, as `Infix::Div` promises; the quotient by its replacement is discarded.
                let by_zero = other.eq(Self::small(0));
                let divisor = Self::select(by_zero, Self::small(1), other);
                let quotient = Self(push(Type::$ty, Expression::Infix(Infix::Div, self.0, divisor.0)));
                Self::select(by_zero, Self::small(0), quotient)
            }
        })*
    };
}

integer_division!(TracedInt I32, TracedUint U32);

impl TracedUint {
    /// Masks the shift amount: WGSL takes it modulo 32, but not every driver does.
    fn shift(self, operator: Infix, amount: Self) -> Self {
        let is_literal = STEPS.with_borrow(|steps| matches!(steps[amount.0].expression, Expression::Literal(..32)));
        let amount = if is_literal { amount } else { amount & Self::lit(31) };
        Self(push(Type::U32, Expression::Infix(operator, self.0, amount.0)))
    }
}

impl Shl for TracedUint {
    type Output = Self;
    fn shl(self, amount: Self) -> Self {
        self.shift(Infix::Shl, amount)
    }
}

impl Shr for TracedUint {
    type Output = Self;
    fn shr(self, amount: Self) -> Self {
        self.shift(Infix::Shr, amount)
    }
}

impl Mask for TracedMask {}

macro_rules! numbers {
    ($($lane:ident $ty:ident: |$x:ident| small $small:expr, is_nan $is_nan:expr, abs $abs:expr;)*) => {
        $(impl Number for $lane {
            type Mask = TracedMask;
            fn small($x: u8) -> Self {
                $small
            }
            fn eq(self, other: Self) -> TracedMask {
                TracedMask(push(Type::Bool, Expression::Infix(Infix::Eq, self.0, other.0)))
            }
            fn lt(self, other: Self) -> TracedMask {
                TracedMask(push(Type::Bool, Expression::Infix(Infix::Lt, self.0, other.0)))
            }
            fn le(self, other: Self) -> TracedMask {
                TracedMask(push(Type::Bool, Expression::Infix(Infix::Le, self.0, other.0)))
            }
            fn is_nan(self) -> TracedMask {
                let $x = self;
                $is_nan
            }
            fn abs(self) -> Self {
                let $x = self;
                $abs
            }
            fn select(mask: TracedMask, yes: Self, no: Self) -> Self {
                Self(push(Type::$ty, Expression::Select([no.0, yes.0, mask.0])))
            }
        })*
    };
}

numbers! {
    TracedFloat F32: |x| small Self::lit(f32::from(x)),
        is_nan TracedMask(push(Type::Bool, Expression::IsNan(x.0))), abs Self::call(Function::Abs, x);
    TracedInt I32: |x| small Self(push(Type::I32, Expression::Literal(u32::from(x)))),
        is_nan { let _ = x; TracedMask(push(Type::Bool, Expression::Literal(0))) },
        abs Self::select(x.lt(Self::small(0)), -x, x);
    TracedUint U32: |x| small Self::lit(u32::from(x)),
        is_nan { let _ = x; TracedMask(push(Type::Bool, Expression::Literal(0))) },
        abs x;
}

impl Uint for TracedUint {
    fn lit(value: u32) -> Self {
        Self(push(Type::U32, Expression::Literal(value)))
    }
}

impl Int for TracedInt {
    type Bits = TracedUint;

    fn to_bits(self) -> TracedUint {
        TracedUint(push(Type::U32, Expression::Bitcast(self.0)))
    }
    fn from_bits(bits: TracedUint) -> Self {
        Self(push(Type::I32, Expression::Bitcast(bits.0)))
    }
}

impl TracedFloat {
    fn call(function: Function, x: Self) -> Self {
        Self(push(Type::F32, Expression::Call(function, x.0)))
    }
}

impl Float for TracedFloat {
    type Bits = TracedUint;
    type Int = TracedInt;

    fn lit(value: f32) -> Self {
        Self(push(Type::F32, Expression::Literal(value.to_bits())))
    }
    fn mul_add(self, factor: Self, term: Self) -> Self {
        Self(push(Type::F32, Expression::MulAdd([self.0, factor.0, term.0])))
    }
    fn sqrt(self) -> Self {
        Self::call(Function::Sqrt, self)
    }
    fn rsqrt(self) -> Self {
        Self::call(Function::InverseSqrt, self)
    }
    fn floor(self) -> Self {
        Self::call(Function::Floor, self)
    }
    fn ceil(self) -> Self {
        Self::call(Function::Ceil, self)
    }
    fn round(self) -> Self {
        Self::call(Function::Round, self)
    }
    fn nearest(self) -> (Self, TracedInt) {
        // Rounded first: WGSL truncates and `CVTPS2DQ` rounds to nearest, but both convert an integral float exactly.
        let rounded = self.round();
        (rounded, TracedInt(push(Type::I32, Expression::Convert(rounded.0))))
    }
    fn from_int(value: TracedInt) -> Self {
        Self(push(Type::F32, Expression::Convert(value.0)))
    }
    fn to_bits(self) -> TracedUint {
        TracedUint(push(Type::U32, Expression::Bitcast(self.0)))
    }
    fn from_bits(bits: TracedUint) -> Self {
        Self(push(Type::F32, Expression::Bitcast(bits.0)))
    }
}
