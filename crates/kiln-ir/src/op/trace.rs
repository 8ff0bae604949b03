//! Lanes that record what is done with them, and the record as WGSL.

use super::code::Code;
use super::lane::{Float, Int, Integer, Machine, Mask, Number, Uint};
use crate::Class;
use std::cell::RefCell;
use std::fmt::Write;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

/// What an op does, step by step; the last step is the result.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) steps: Vec<Step>,
    pub(super) args: Vec<Type>,
}

/// The type of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    F32,
    I32,
    U32,
    Bool,
}

/// Index of an earlier step.
pub(super) type Id = usize;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) ty: Type,
    pub(super) expression: Expression,
}

/// What a step computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expression {
    /// An argument of the op.
    Arg(usize),
    /// A number, as its bits.
    Literal(u32),
    /// An operator before its operand.
    Prefix(&'static str, Id),
    /// An operator between its operands.
    Infix(&'static str, Id, Id),
    /// A function of WGSL.
    Call(&'static str, [Option<Id>; 3]),
    /// The same bits in the step's type.
    Bitcast(Id),
    /// The number in the step's type.
    Convert(Id),
    /// `[no, yes, mask]`, as WGSL orders them.
    Select([Id; 3]),
}

thread_local! {
    /// The steps of the traces that are being recorded: empty outside of [`record`].
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
}

/// Takes the steps of a recording away when it ends, also when it ends in a panic.
struct Recording;

impl Recording {
    fn steps() -> Vec<Step> {
        STEPS.with(RefCell::take)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        Self::steps();
    }
}

/// The record of an op.
pub(super) fn record<C: Code<N>, const N: usize>() -> Trace {
    let _recording = Recording;
    let args = C::OPERANDS.map(|class| match class {
        Some(Class::Float) => Type::F32,
        Some(Class::Int) => Type::I32,
        Some(Class::Uint) | None => Type::U32,
    });
    let mut index = 0;
    let values = args.map(|ty| {
        index += 1;
        push(ty, Expression::Arg(index - 1))
    });
    let result = C::run::<Recorder>(values);
    let mut steps = Recording::steps();
    if result + 1 != steps.len() {
        // Literals and arguments may come after or stand for the result.
        let ty = steps[result].ty;
        steps.push(Step { ty, expression: Expression::Bitcast(result) });
    }
    Trace { steps, args: args.to_vec() }
}

fn push(ty: Type, expression: Expression) -> Id {
    STEPS.with_borrow_mut(|steps| {
        steps.push(Step { ty, expression });
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
}

impl Trace {
    /// The type of the result.
    pub(super) fn result(&self) -> Type {
        self.steps.last().map_or(Type::F32, |step| step.ty)
    }

    /// How many steps compute something.
    #[cfg(test)]
    pub(super) fn cost(&self) -> usize {
        let computes = |step: &&Step| !matches!(step.expression, Expression::Arg(_) | Expression::Literal(_));
        self.steps.iter().filter(computes).count()
    }

    /// A function of WGSL.
    pub(super) fn wgsl(&self, name: &str, four: bool) -> String {
        let mut text = format!("fn {name}(");
        for (index, ty) in self.args.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(text, "{comma}a{index}: {}", ty.name(four));
        }
        let _ = writeln!(text, ") -> {} {{", self.result().name(four));
        for (id, step) in self.steps.iter().enumerate() {
            self.statement(&mut text, id, step, four);
        }
        let _ = writeln!(text, "    return {};\n}}", self.operand(self.steps.len() - 1, four));
        text
    }

    fn statement(&self, text: &mut String, id: Id, step: &Step, four: bool) {
        let of = |id: Id| self.operand(id, four);
        let ty = step.ty.name(four);
        let value = match step.expression {
            Expression::Arg(_) => return,
            Expression::Literal(bits) if step.is_not_finite() => {
                // A variable, because an expression of constants must not be infinite or a NaN.
                let _ = writeln!(text, "    var w{id} = {bits:#x}u;");
                format!("{ty}(bitcast<f32>(w{id}))")
            }
            Expression::Literal(_) => return,
            Expression::Prefix(operator, a) => format!("{operator}{}", of(a)),
            Expression::Infix(operator, a, b) => format!("{} {operator} {}", of(a), of(b)),
            Expression::Call(function, args) => {
                let args: Vec<String> = args.into_iter().flatten().map(of).collect();
                format!("{function}({})", args.join(", "))
            }
            Expression::Bitcast(a) => format!("bitcast<{ty}>({})", of(a)),
            Expression::Convert(a) => format!("{ty}({})", of(a)),
            Expression::Select([no, yes, mask]) => format!("select({}, {}, {})", of(no), of(yes), of(mask)),
        };
        let _ = writeln!(text, "    let v{id} = {value};");
    }

    fn operand(&self, id: Id, four: bool) -> String {
        let step = &self.steps[id];
        let literal = match step.expression {
            Expression::Arg(index) => return format!("a{index}"),
            Expression::Literal(bits) if !step.is_not_finite() => match step.ty {
                Type::F32 => format!("{:?}f", f32::from_bits(bits)),
                Type::I32 => format!("i32({})", bits as i32),
                Type::U32 => format!("{bits}u"),
                Type::Bool => format!("{}", bits != 0),
            },
            _ => return format!("v{id}"),
        };
        if four { format!("{}({literal})", step.ty.name(true)) } else { literal }
    }
}

impl Step {
    fn is_not_finite(&self) -> bool {
        let Expression::Literal(bits) = self.expression else { return false };
        self.ty == Type::F32 && !f32::from_bits(bits).is_finite()
    }
}

/// The machine that records.
struct Recorder;

/// A recorded `f32`.
#[derive(Clone, Copy)]
struct TracedFloat(Id);

/// A recorded `i32`.
#[derive(Clone, Copy)]
struct TracedInt(Id);

/// A recorded `u32`.
#[derive(Clone, Copy)]
struct TracedUint(Id);

/// A recorded `bool`.
#[derive(Clone, Copy)]
struct TracedMask(Id);

impl Machine for Recorder {
    type Value = Id;
    type Mask = TracedMask;
    type Float = TracedFloat;
    type Int = TracedInt;
    type Uint = TracedUint;

    fn float(value: Id) -> TracedFloat {
        TracedFloat(value)
    }
    fn int(value: Id) -> TracedInt {
        TracedInt(value)
    }
    fn uint(value: Id) -> TracedUint {
        TracedUint(value)
    }
    fn mask(value: Id) -> TracedMask {
        TracedUint(value).ne(TracedUint::lit(0))
    }
    fn from_float(float: TracedFloat) -> Id {
        float.0
    }
    fn from_int(int: TracedInt) -> Id {
        int.0
    }
    fn from_uint(uint: TracedUint) -> Id {
        uint.0
    }
    fn from_mask(mask: TracedMask) -> Id {
        TracedUint::select(mask, TracedUint::lit(1), TracedUint::lit(0)).0
    }
}

macro_rules! infix {
    ($($lane:ident $ty:ident: $($operator:ident $method:ident $text:literal),*;)*) => {
        $($(impl $operator for $lane {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                Self(push(Type::$ty, Expression::Infix($text, self.0, other.0)))
            }
        })*)*
    };
}

infix! {
    TracedMask Bool: BitAnd bitand "&", BitOr bitor "|";
    TracedFloat F32: Add add "+", Sub sub "-", Mul mul "*", Div div "/";
    TracedInt I32: Add add "+", Sub sub "-", Mul mul "*", BitAnd bitand "&", BitOr bitor "|", BitXor bitxor "^";
    TracedUint U32: Add add "+", Sub sub "-", Mul mul "*", BitAnd bitand "&", BitOr bitor "|", BitXor bitxor "^";
}

macro_rules! prefix {
    ($($lane:ident $ty:ident: $operator:ident $method:ident $text:literal;)*) => {
        $(impl $operator for $lane {
            type Output = Self;
            fn $method(self) -> Self {
                Self(push(Type::$ty, Expression::Prefix($text, self.0)))
            }
        })*
    };
}

prefix! {
    TracedMask Bool: Not not "!";
    TracedFloat F32: Neg neg "-";
    TracedInt I32: Neg neg "-";
    TracedInt I32: Not not "~";
    TracedUint U32: Not not "~";
}

/// WGSL has no negative `u32`.
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
                let by_zero = other.eq(Self::small(0));
                let divisor = Self::select(by_zero, Self::small(1), other);
                let quotient = Self(push(Type::$ty, Expression::Infix("/", self.0, divisor.0)));
                Self::select(by_zero, Self::small(0), quotient)
            }
        })*
    };
}

integer_division!(TracedInt I32, TracedUint U32);

impl TracedUint {
    /// WGSL takes the amount of a shift modulo 32, but not every driver does.
    fn shift(self, operator: &'static str, amount: Self) -> Self {
        let is_literal = STEPS.with_borrow(|steps| matches!(steps[amount.0].expression, Expression::Literal(..32)));
        let amount = if is_literal { amount } else { amount & Self::lit(31) };
        Self(push(Type::U32, Expression::Infix(operator, self.0, amount.0)))
    }
}

impl Shl for TracedUint {
    type Output = Self;
    fn shl(self, amount: Self) -> Self {
        self.shift("<<", amount)
    }
}

impl Shr for TracedUint {
    type Output = Self;
    fn shr(self, amount: Self) -> Self {
        self.shift(">>", amount)
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
                TracedMask(push(Type::Bool, Expression::Infix("==", self.0, other.0)))
            }
            fn lt(self, other: Self) -> TracedMask {
                TracedMask(push(Type::Bool, Expression::Infix("<", self.0, other.0)))
            }
            fn le(self, other: Self) -> TracedMask {
                TracedMask(push(Type::Bool, Expression::Infix("<=", self.0, other.0)))
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
        is_nan (x.to_bits() & TracedUint::lit(0x7fff_ffff)).gt(TracedUint::lit(0x7f80_0000)),
        abs Self(push(Type::F32, Expression::Call("abs", [Some(x.0), None, None])));
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
    fn call(function: &'static str, args: [Option<Id>; 3]) -> Self {
        Self(push(Type::F32, Expression::Call(function, args)))
    }
}

impl Float for TracedFloat {
    type Bits = TracedUint;
    type Int = TracedInt;

    fn lit(value: f32) -> Self {
        Self(push(Type::F32, Expression::Literal(value.to_bits())))
    }
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // Not `fma`: drivers may take that apart and put terms together anew, which loses the low part of a sum in two parts.
        // Kiln forbids that for products and sums (`kiln-gpu` marks them), but cannot for calls.
        self * factor + term
    }
    fn sqrt(self) -> Self {
        Self::call("sqrt", [Some(self.0), None, None])
    }
    fn rsqrt(self) -> Self {
        Self::call("inverseSqrt", [Some(self.0), None, None])
    }
    fn floor(self) -> Self {
        Self::call("floor", [Some(self.0), None, None])
    }
    fn ceil(self) -> Self {
        Self::call("ceil", [Some(self.0), None, None])
    }
    fn round(self) -> Self {
        Self::call("round", [Some(self.0), None, None])
    }
    fn nearest(self) -> (Self, TracedInt) {
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
