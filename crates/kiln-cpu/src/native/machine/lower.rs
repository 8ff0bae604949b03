//! Lowers a body to vector instructions in SSA form: an unlimited number of values, each assigned once.

use super::assembler::{self as asm, Opcode, Shift};
use kiln_ir::kernel::{Instruction, Program};
use kiln_ir::op::{Expression, Function, Infix, Prefix, Trace, Type};
use kiln_ir::{Class, DType};
use std::collections::HashMap;

/// Index of an op; the op defines the value.
pub(super) type Value = usize;

/// A vector operation that produces a value. In a mask, a true lane has all bits set and a false lane none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorOp {
    /// Loads elements of an argument: the opcode that converts them to words, and the element size in bytes.
    Load { argument: usize, opcode: Opcode, bytes: usize },
    /// A constant word in each lane.
    Literal(u32),
    /// A word passed by the run.
    Parameter(usize),
    /// One operand, and an optional immediate byte.
    One(Opcode, Option<u8>, Value),
    /// Two operands, and an optional immediate byte.
    Two(Opcode, Option<u8>, [Value; 2]),
    /// A shift by a constant number of bits.
    Shift(Shift, u8, Value),
    /// `a * b + c`, rounded once.
    MulAdd([Value; 3]),
    /// `[no, yes, mask]`.
    Blend([Value; 3]),
    /// Rounds to the nearest `F16`.
    RoundHalf(Value),
}

/// The inputs of a program: operands, element indices, or results of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    Operand(usize),
    Iota,
    Core,
}

/// A word that is the same for all elements of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// A scalar of the run.
    Scalar(usize),
    /// The single element of a broadcast operand.
    Splat(usize),
}

/// A lowered body.
#[derive(Default)]
pub(super) struct Lowered {
    pub(super) ops: Vec<VectorOp>,
    pub(super) arguments: Vec<Argument>,
    pub(super) parameters: Vec<Parameter>,
    literals: HashMap<u32, Value>,
}

/// Predicates of `CMPPS`: false if either operand is NaN, without signalling an exception.
const EQUAL: u8 = 0x00;
const LESS: u8 = 0x11;
const LESS_OR_EQUAL: u8 = 0x12;
/// True if either operand is NaN.
const UNORDERED: u8 = 0x03;

impl VectorOp {
    /// Returns its operands.
    pub(super) fn inputs(&self) -> &[Value] {
        match self {
            Self::Load { .. } | Self::Literal(_) | Self::Parameter(_) => &[],
            Self::One(_, _, a) | Self::Shift(_, _, a) | Self::RoundHalf(a) => std::slice::from_ref(a),
            Self::Two(_, _, args) => args,
            Self::MulAdd(args) | Self::Blend(args) => args,
        }
    }

    fn inputs_mut(&mut self) -> &mut [Value] {
        match self {
            Self::Load { .. } | Self::Literal(_) | Self::Parameter(_) => &mut [],
            Self::One(_, _, a) | Self::Shift(_, _, a) | Self::RoundHalf(a) => std::slice::from_mut(a),
            Self::Two(_, _, args) => args,
            Self::MulAdd(args) | Self::Blend(args) => args,
        }
    }

    /// Returns whether it is a broadcast constant in memory for the whole run.
    pub(super) fn is_constant(&self) -> bool {
        matches!(self, Self::Literal(_) | Self::Parameter(_))
    }
}

impl Lowered {
    /// Lowers a program; `None` if an op has no instruction. `is_splat` returns whether an operand has a single
    /// element.
    pub(super) fn new(program: &Program, dtypes: &[DType], is_splat: impl Fn(usize) -> bool) -> Option<Self> {
        let mut lowered = Self::default();
        let mut values: Vec<Value> = Vec::with_capacity(program.instructions.len());
        for instruction in &program.instructions {
            let value = match instruction {
                &Instruction::Load { operand } if is_splat(operand) => lowered.parameter(Parameter::Splat(operand)),
                &Instruction::Load { operand } => lowered.load(Argument::Operand(operand), dtypes[operand]),
                &Instruction::Scalar { scalar, .. } => lowered.parameter(Parameter::Scalar(scalar)),
                Instruction::Iota => lowered.load(Argument::Iota, DType::U32),
                // The core passes words of its class; `F32` selects the load of unconverted words.
                Instruction::Core { .. } => lowered.load(Argument::Core, DType::F32),
                Instruction::Op { op, class, args } => {
                    let args: Vec<Value> = args.iter().map(|&arg| values[arg]).collect();
                    lowered.trace(&op.trace(*class)?, &args)?
                }
                &Instruction::Cast { arg, from, to } => lowered.cast(values[arg], from, to)?,
            };
            values.push(value);
        }
        lowered.keep_needed(*values.last()?);
        Some(lowered)
    }

    fn push(&mut self, op: VectorOp) -> Value {
        self.ops.push(op);
        self.ops.len() - 1
    }

    fn literal(&mut self, word: u32) -> Value {
        if let Some(&value) = self.literals.get(&word) {
            return value;
        }
        let value = self.push(VectorOp::Literal(word));
        self.literals.insert(word, value);
        value
    }

    fn load(&mut self, argument: Argument, dtype: DType) -> Value {
        let index = position_or_push(&mut self.arguments, argument);
        let (opcode, bytes) = match dtype {
            DType::F32 | DType::I32 | DType::U32 => (asm::MOVUPS, 4),
            DType::F16 => (asm::CVTPH2PS, 2),
            DType::BF16 => (asm::PMOVZXWD, 2),
            DType::U8 | DType::Bool => (asm::PMOVZXBD, 1),
            DType::I8 => (asm::PMOVSXBD, 1),
            DType::I64 | DType::F64 => unreachable!("64-bit elements have no arithmetic in programs"),
        };
        let load = self.push(VectorOp::Load { argument: index, opcode, bytes });
        if dtype == DType::BF16 { self.push(VectorOp::Shift(Shift::Left, 16, load)) } else { load }
    }

    fn parameter(&mut self, parameter: Parameter) -> Value {
        let index = position_or_push(&mut self.parameters, parameter);
        self.push(VectorOp::Parameter(index))
    }

    /// Lowers a cast that takes only a few instructions; `None` for any other.
    fn cast(&mut self, a: Value, from: Class, to: DType) -> Option<Value> {
        Some(match (from, to) {
            (Class::Float, DType::F32) | (Class::Int | Class::Uint, DType::I32 | DType::U32) => a,
            (Class::Float, DType::F16) => self.push(VectorOp::RoundHalf(a)),
            (Class::Int, DType::F32) => self.push(VectorOp::One(asm::CVTDQ2PS, None, a)),
            (Class::Int | Class::Uint, DType::U8) => self.with_literal(asm::PAND, a, 0xff),
            (Class::Int | Class::Uint, DType::I8) => {
                let high = self.push(VectorOp::Shift(Shift::Left, 24, a));
                self.push(VectorOp::Shift(Shift::RightSigned, 24, high))
            }
            // For example, AVX2 neither converts unsigned integers nor saturates when it converts floats.
            _ => return None,
        })
    }

    /// Inlines the trace of an op with these arguments.
    fn trace(&mut self, trace: &Trace, args: &[Value]) -> Option<Value> {
        let mut values: Vec<Value> = Vec::with_capacity(trace.steps.len());
        for step in &trace.steps {
            let value = match step.expression {
                Expression::Arg(index) => args[index],
                Expression::Literal(bits) if step.ty == Type::Bool => self.literal(if bits == 0 { 0 } else { !0 }),
                Expression::Literal(bits) => self.literal(bits),
                Expression::Prefix(prefix, a) => self.prefix(prefix, step.ty, values[a]),
                Expression::Infix(infix, a, b) => self.infix(infix, trace.steps[a].ty, [values[a], values[b]])?,
                Expression::Call(function, a) => self.call(function, values[a]),
                Expression::MulAdd(args) => self.push(VectorOp::MulAdd(args.map(|arg| values[arg]))),
                Expression::IsNan(a) => self.push(VectorOp::Two(asm::CMPPS, Some(UNORDERED), [values[a]; 2])),
                Expression::Bitcast(a) => values[a],
                Expression::Convert(a) => {
                    // `CVTPS2DQ` rounds by the current mode, which is irrelevant: the float is already integral.
                    let opcode = if step.ty == Type::F32 { asm::CVTDQ2PS } else { asm::CVTPS2DQ };
                    self.push(VectorOp::One(opcode, None, values[a]))
                }
                Expression::Select(args) => self.select(args.map(|arg| values[arg])),
            };
            values.push(value);
        }
        values.last().copied()
    }

    fn two(&mut self, opcode: Opcode, args: [Value; 2]) -> Value {
        self.push(VectorOp::Two(opcode, None, args))
    }

    fn with_literal(&mut self, opcode: Opcode, a: Value, word: u32) -> Value {
        let literal = self.literal(word);
        self.two(opcode, [a, literal])
    }

    /// Lowers a selection. `MINPS` and `MAXPS` select like these comparisons, including for NaN.
    fn select(&mut self, [no, yes, mask]: [Value; 3]) -> Value {
        match self.ops[mask] {
            VectorOp::Two(asm::CMPPS, Some(LESS), compared) if compared == [yes, no] => self.two(asm::MINPS, [yes, no]),
            VectorOp::Two(asm::CMPPS, Some(LESS), compared) if compared == [no, yes] => self.two(asm::MAXPS, [yes, no]),
            _ => self.push(VectorOp::Blend([no, yes, mask])),
        }
    }

    fn prefix(&mut self, prefix: Prefix, ty: Type, a: Value) -> Value {
        match (prefix, ty) {
            // Flips the sign bit, because 0 - x would give 0 instead of -0 for x = 0.
            (Prefix::Neg, Type::F32) => self.with_literal(asm::PXOR, a, 0x8000_0000),
            (Prefix::Neg, _) => {
                let zero = self.literal(0);
                self.two(asm::PSUBD, [zero, a])
            }
            (Prefix::Invert | Prefix::Not, _) => self.with_literal(asm::PXOR, a, !0),
        }
    }

    fn infix(&mut self, infix: Infix, ty: Type, [a, b]: [Value; 2]) -> Option<Value> {
        let is_float = ty == Type::F32;
        let opcode = match infix {
            Infix::Add if is_float => asm::ADDPS,
            Infix::Sub if is_float => asm::SUBPS,
            Infix::Mul if is_float => asm::MULPS,
            Infix::Div if is_float => asm::DIVPS,
            Infix::Eq | Infix::Lt | Infix::Le if is_float => {
                let comparison = match infix {
                    Infix::Eq => EQUAL,
                    Infix::Lt => LESS,
                    _ => LESS_OR_EQUAL,
                };
                return Some(self.push(VectorOp::Two(asm::CMPPS, Some(comparison), [a, b])));
            }
            Infix::Add => asm::PADDD,
            Infix::Sub => asm::PSUBD,
            Infix::Mul => asm::PMULLD,
            Infix::Div => return None,
            Infix::And => asm::PAND,
            Infix::Or => asm::POR,
            Infix::Xor => asm::PXOR,
            Infix::Shl | Infix::Shr => return Some(self.shift(infix == Infix::Shl, a, b)),
            Infix::Eq => asm::PCMPEQD,
            Infix::Lt if ty == Type::I32 => return Some(self.two(asm::PCMPGTD, [b, a])),
            // a < b is !(b <= a).
            Infix::Lt => {
                let not_less = self.infix(Infix::Le, ty, [b, a])?;
                return Some(self.with_literal(asm::PXOR, not_less, !0));
            }
            Infix::Le if ty == Type::I32 => {
                let greater = self.two(asm::PCMPGTD, [a, b]);
                return Some(self.with_literal(asm::PXOR, greater, !0));
            }
            // AVX2 has no unsigned comparison: a <= b if a is the unsigned minimum of both.
            Infix::Le => {
                let smaller = self.two(asm::PMINUD, [a, b]);
                return Some(self.two(asm::PCMPEQD, [smaller, a]));
            }
        };
        Some(self.two(opcode, [a, b]))
    }

    fn shift(&mut self, is_left: bool, a: Value, amount: Value) -> Value {
        match self.ops[amount] {
            // Below 32: the trace masks every other amount, which makes it an `And` instead of a literal.
            VectorOp::Literal(bits) => {
                self.push(VectorOp::Shift(if is_left { Shift::Left } else { Shift::Right }, bits as u8, a))
            }
            _ => self.two(if is_left { asm::PSLLVD } else { asm::PSRLVD }, [a, amount]),
        }
    }

    fn call(&mut self, function: Function, a: Value) -> Value {
        // The immediate of `ROUNDPS`: the rounding mode, with the inexact exception suppressed.
        let round = |direction: u8| VectorOp::One(asm::ROUNDPS, Some(8 | direction), a);
        match function {
            Function::Abs => self.with_literal(asm::PAND, a, 0x7fff_ffff),
            Function::Sqrt => self.push(VectorOp::One(asm::SQRTPS, None, a)),
            Function::InverseSqrt => {
                // Not `RSQRTPS`, which has only 12 correct bits: the result must equal that of the loops.
                let root = self.push(VectorOp::One(asm::SQRTPS, None, a));
                let one = self.literal(1f32.to_bits());
                self.two(asm::DIVPS, [one, root])
            }
            Function::Round => self.push(round(0)),
            Function::Floor => self.push(round(1)),
            Function::Ceil => self.push(round(2)),
        }
    }

    /// Removes dead values, and moves each to just before its first use, which shortens live ranges.
    fn keep_needed(&mut self, result: Value) {
        let (arguments, parameters) = (std::mem::take(&mut self.arguments), std::mem::take(&mut self.parameters));
        let mut order: Vec<VectorOp> = Vec::new();
        let mut places: Vec<Option<Value>> = vec![None; self.ops.len()];
        // Depth-first search in postorder, without recursion: a value returns with `has_inputs` once its inputs have
        // places. Arguments and parameters are renumbered, so that those of dead loads are not passed.
        let mut stack = vec![(result, false)];
        while let Some((value, has_inputs)) = stack.pop() {
            if places[value].is_some() {
                continue;
            }
            if !has_inputs {
                stack.push((value, true));
                stack.extend(self.ops[value].inputs().iter().rev().map(|&input| (input, false)));
                continue;
            }
            places[value] = Some(order.len());
            order.push(match self.ops[value] {
                VectorOp::Load { argument, opcode, bytes } => {
                    let argument = position_or_push(&mut self.arguments, arguments[argument]);
                    VectorOp::Load { argument, opcode, bytes }
                }
                VectorOp::Parameter(index) => {
                    VectorOp::Parameter(position_or_push(&mut self.parameters, parameters[index]))
                }
                mut op => {
                    op.inputs_mut().iter_mut().for_each(|input| *input = places[*input].unwrap_or_default());
                    op
                }
            });
        }
        self.ops = order;
        self.literals.clear();
    }
}

fn position_or_push<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|other| *other == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}
