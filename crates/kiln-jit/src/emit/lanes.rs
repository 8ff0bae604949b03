//! Scalars of a vector of invocations, and the instructions on them.

use super::Emitter;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    BlockArg, Endianness, InstBuilder, InstructionData, MemFlagsData, Opcode, Type, Value, ValueDef, types,
};
use cranelift_frontend::FunctionBuilder;

/// Lanes of a register.
pub(crate) const PART: usize = 4;
/// Registers of a vector of invocations.
pub(crate) const PARTS: usize = 2;
/// Invocations that run together, where they do not run one by one: a subgroup.
pub const LANES: usize = PART * PARTS;

/// What the invocations of a vector have in a scalar.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lanes {
    /// All the same.
    Same(Value),
    /// An integer that grows by so much from one to the next, and wraps.
    Steps(Value, i32),
    /// Each its own.
    Each([Value; PARTS]),
}

/// A scalar of a vector of invocations. A boolean is a byte of 0 or 1 where it is the same for all, a word of ones or zeros in each lane otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) kind: Kind,
    pub(crate) lanes: Lanes,
}

impl Number {
    pub(crate) fn same(kind: Kind, value: Value) -> Self {
        Self { kind, lanes: Lanes::Same(value) }
    }

    pub(crate) fn each(kind: Kind, parts: [Value; PARTS]) -> Self {
        Self { kind, lanes: Lanes::Each(parts) }
    }

    pub(crate) fn is_same(&self) -> bool {
        matches!(self.lanes, Lanes::Same(_))
    }

    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// The type of a register that holds four of a kind.
pub(crate) fn vector_type(kind: Kind) -> Type {
    if kind.is_float() { types::F32X4 } else { types::I32X4 }
}

/// The type of one of a kind that is the same for all.
pub(crate) fn scalar_type(kind: Kind) -> Type {
    match kind {
        Kind::F32 | Kind::F16 => types::F32,
        Kind::I32 | Kind::U32 => types::I32,
        Kind::Bool => types::I8,
    }
}

pub(crate) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_endianness(Endianness::Little)
}

/// Four integers in a register.
pub(crate) fn vector_constant(b: &mut FunctionBuilder<'_>, lanes: [i32; PART]) -> Value {
    let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
    let constant = b.func.dfg.constants.insert(bytes.into());
    b.ins().vconst(types::I32X4, constant)
}

impl Emitter<'_, '_> {
    pub(crate) fn i32(&mut self, value: i32) -> Value {
        self.b.ins().iconst(types::I32, i64::from(value))
    }

    pub(crate) fn u32_same(&mut self, value: u32) -> Number {
        let value = self.i32(value.cast_signed());
        Number::same(Kind::U32, value)
    }

    pub(crate) fn f32_same(&mut self, value: f32) -> Number {
        let value = self.b.ins().f32const(value);
        Number::same(Kind::F32, value)
    }

    /// A number of a kind, from its value.
    pub(crate) fn constant(&mut self, kind: Kind, value: f64) -> Number {
        let value = match kind {
            Kind::F32 | Kind::F16 => self.b.ins().f32const(value as f32),
            Kind::I32 => self.i32(value as i32),
            Kind::U32 => self.i32((value as u32).cast_signed()),
            Kind::Bool => self.b.ins().iconst(types::I8, i64::from(value != 0.0)),
        };
        Number::same(kind, value)
    }

    /// The integer that a value is known to be.
    pub(crate) fn known(&self, value: Value) -> Option<i64> {
        let ValueDef::Result(inst, _) = self.b.func.dfg.value_def(value) else { return None };
        match self.b.func.dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// The number in each lane.
    pub(crate) fn parts(&mut self, number: Number) -> [Value; PARTS] {
        match number.lanes {
            Lanes::Each(parts) => parts,
            Lanes::Same(value) => {
                let value = if number.kind == Kind::Bool { self.b.ins().bmask(types::I32, value) } else { value };
                [self.b.ins().splat(vector_type(number.kind), value); PARTS]
            }
            Lanes::Steps(base, step) => {
                let base = self.b.ins().splat(types::I32X4, base);
                std::array::from_fn(|part| {
                    let steps = std::array::from_fn(|lane| step.wrapping_mul((part * PART + lane) as i32));
                    let steps = vector_constant(&mut self.b, steps);
                    self.b.ins().iadd(base, steps)
                })
            }
        }
    }

    /// What one invocation has.
    pub(crate) fn lane(&mut self, number: Number, lane: usize) -> Value {
        match number.lanes {
            Lanes::Same(value) => value,
            Lanes::Steps(base, step) => {
                let step = self.i32(step.wrapping_mul(lane as i32));
                self.b.ins().iadd(base, step)
            }
            Lanes::Each(parts) => {
                let value = self.b.ins().extractlane(parts[lane / PART], (lane % PART) as u8);
                if number.kind == Kind::Bool { self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0) } else { value }
            }
        }
    }

    /// A number of what each invocation has.
    pub(crate) fn of_lanes(&mut self, kind: Kind, lanes: &[Value]) -> Number {
        if let [only] = lanes {
            return Number::same(kind, *only);
        }
        let parts = std::array::from_fn(|part| {
            let mut lanes = lanes[part * PART..][..PART].to_vec();
            if kind == Kind::Bool {
                lanes.iter_mut().for_each(|lane| *lane = self.b.ins().bmask(types::I32, *lane));
            }
            let mut vector = self.b.ins().scalar_to_vector(vector_type(kind), lanes[0]);
            for (place, lane) in lanes.iter().enumerate().skip(1) {
                vector = self.b.ins().insertlane(vector, *lane, place as u8);
            }
            vector
        });
        Number::each(kind, parts)
    }

    /// Applies an instruction that exists for scalars and for vectors.
    pub(crate) fn map(&mut self, kind: Kind, x: Number, apply: impl Fn(&mut Self, Value) -> Value) -> Number {
        self.map_all(kind, [x], |e, [x]| apply(e, x))
    }

    pub(crate) fn map_all<const N: usize>(
        &mut self,
        kind: Kind,
        numbers: [Number; N],
        apply: impl Fn(&mut Self, [Value; N]) -> Value,
    ) -> Number {
        if numbers.iter().all(Number::is_same) {
            let values = numbers.map(|number| self.lane(number, 0));
            return Number::same(kind, apply(self, values));
        }
        let parts = numbers.map(|number| self.parts(number));
        Number::each(kind, std::array::from_fn(|part| apply(self, parts.map(|parts| parts[part]))))
    }

    /// Applies an instruction that exists for scalars only.
    pub(crate) fn map_lanes(
        &mut self,
        kind: Kind,
        numbers: &[Number],
        apply: impl Fn(&mut Self, &[Value]) -> Value,
    ) -> Number {
        let lanes = if numbers.iter().all(Number::is_same) { 1 } else { LANES };
        let results: Vec<Value> = (0..lanes)
            .map(|lane| {
                let values: Vec<Value> = numbers.iter().map(|number| self.lane(*number, lane)).collect();
                apply(self, &values)
            })
            .collect();
        self.of_lanes(kind, &results)
    }

    /// Shifts a word, or each lane, by a known number of bits.
    pub(crate) fn shift_left(&mut self, x: Value, bits: i32) -> Value {
        let bits = self.i32(bits);
        self.b.ins().ishl(x, bits)
    }

    /// As [`shift_left`](Self::shift_left), with zeros from above.
    pub(crate) fn shift_right(&mut self, x: Value, bits: i32) -> Value {
        let bits = self.i32(bits);
        self.b.ins().ushr(x, bits)
    }

    pub(crate) fn is_vector(&self, value: Value) -> bool {
        self.b.func.dfg.value_type(value).is_vector()
    }

    /// A constant word beside a value: as a scalar or in each lane.
    pub(crate) fn word_like(&mut self, value: Value, word: u32) -> Value {
        if self.is_vector(value) {
            vector_constant(&mut self.b, [word.cast_signed(); PART])
        } else {
            self.i32(word.cast_signed())
        }
    }

    pub(crate) fn float_like(&mut self, value: Value, float: f32) -> Value {
        let constant = self.b.ins().f32const(float);
        if self.is_vector(value) { self.b.ins().splat(types::F32X4, constant) } else { constant }
    }

    pub(crate) fn bits_of(&mut self, float: Value) -> Value {
        let ty = if self.is_vector(float) { types::I32X4 } else { types::I32 };
        self.b.ins().bitcast(ty, MemFlagsData::new(), float)
    }

    pub(crate) fn float_of(&mut self, bits: Value) -> Value {
        let ty = if self.is_vector(bits) { types::F32X4 } else { types::F32 };
        self.b.ins().bitcast(ty, MemFlagsData::new(), bits)
    }

    /// One of two values by a condition of the same form, as comparisons give it.
    pub(crate) fn choose(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        if !self.is_vector(condition) {
            return self.b.ins().select(condition, yes, no);
        }
        let ty = self.b.func.dfg.value_type(yes);
        let condition =
            if ty == types::I32X4 { condition } else { self.b.ins().bitcast(ty, MemFlagsData::new(), condition) };
        self.b.ins().bitselect(condition, yes, no)
    }

    pub(crate) fn select(&mut self, condition: Number, yes: Number, no: Number) -> Number {
        self.map_all(yes.kind, [condition, yes, no], |e, [condition, yes, no]| e.choose(condition, yes, no))
    }

    pub(crate) fn not(&mut self, x: Number) -> Number {
        self.map(Kind::Bool, x, |e, x| if e.is_vector(x) { e.b.ins().bnot(x) } else { e.b.ins().bxor_imm_s(x, 1) })
    }

    pub(crate) fn and(&mut self, x: Number, y: Number) -> Number {
        self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().band(x, y))
    }

    pub(crate) fn or(&mut self, x: Number, y: Number) -> Number {
        self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().bor(x, y))
    }

    pub(crate) fn compare_float(&mut self, how: FloatCC, x: Number, y: Number) -> Number {
        self.map_all(Kind::Bool, [x, y], |e, [x, y]| e.b.ins().fcmp(how, x, y))
    }

    pub(crate) fn compare_int(&mut self, how: IntCC, x: Number, y: Number) -> Number {
        self.map_all(Kind::Bool, [x, y], |e, [x, y]| e.b.ins().icmp(how, x, y))
    }

    /// A byte that says whether the condition holds in any lane of the mask's registers.
    pub(crate) fn any(&mut self, mask: [Value; PARTS]) -> Value {
        let both = self.b.ins().bor(mask[0], mask[1]);
        self.b.ins().vany_true(both)
    }

    /// A byte that says whether the condition holds in all lanes.
    pub(crate) fn all(&mut self, mask: [Value; PARTS]) -> Value {
        let both = self.b.ins().band(mask[0], mask[1]);
        self.b.ins().vall_true(both)
    }

    /// A bit for each lane of a mask, the first lane's lowest.
    pub(crate) fn mask_bits(&mut self, mask: [Value; PARTS]) -> Value {
        let [low, high] = mask.map(|part| self.b.ins().vhigh_bits(types::I32, part));
        let high = self.shift_left(high, PART as i32);
        self.b.ins().bor(low, high)
    }

    /// Emits `then` where a byte is not zero.
    pub(crate) fn when(&mut self, condition: Value, then: impl FnOnce(&mut Self)) {
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(condition, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        then(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    /// Emits both, each of which gives as many numbers of the same kinds, and returns those of the one that ran, in each lane.
    pub(crate) fn either(
        &mut self,
        condition: Value,
        yes: impl FnOnce(&mut Self) -> Vec<Number>,
        no: impl FnOnce(&mut Self) -> Vec<Number>,
    ) -> Vec<Number> {
        let (on_yes, on_no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(condition, on_yes, &[], on_no, &[]);
        self.b.switch_to_block(on_yes);
        let numbers = yes(self);
        let arguments: Vec<Value> = numbers.iter().flat_map(|number| self.parts(*number)).collect();
        let result = |number: &Number| {
            let ty = vector_type(number.kind);
            Number::each(number.kind, std::array::from_fn(|_| self.b.append_block_param(after, ty)))
        };
        let results = numbers.iter().map(result).collect();
        self.b.ins().jump(after, &arguments.into_iter().map(BlockArg::Value).collect::<Vec<_>>());
        self.b.switch_to_block(on_no);
        let numbers = no(self);
        let arguments: Vec<Value> = numbers.iter().flat_map(|number| self.parts(*number)).collect();
        self.b.ins().jump(after, &arguments.into_iter().map(BlockArg::Value).collect::<Vec<_>>());
        self.b.switch_to_block(after);
        results
    }
}
