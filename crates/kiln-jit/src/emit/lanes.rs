//! Scalar values across the lanes of a gang, and the instructions on them.

use super::Emitter;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    BlockArg, Endianness, InstBuilder, InstructionData, MemFlagsData, Opcode, Type, Value, ValueDef, types,
};
use cranelift_frontend::FunctionBuilder;

/// Lanes of a vector: 32 bits each in Cranelift's 128-bit vectors.
pub(crate) const VECTOR_LANES: usize = 4;
/// Vectors per gang. Two independent vectors hide instruction latency.
pub(crate) const VECTORS: usize = 2;
/// Invocations of a gang, which is also a subgroup.
///
/// See the [crate documentation](crate) for an example.
pub const LANES: usize = VECTOR_LANES * VECTORS;

/// How a scalar is represented across lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lanes {
    /// The same value in all lanes.
    Uniform(Value),
    /// An integer in lane 0, and the wrapping increment from lane to lane. Indices of this form become
    /// contiguous or strided accesses.
    Linear(Value, i32),
    /// A value per lane.
    Varying([Value; VECTORS]),
}

/// A WGSL scalar in all lanes of a gang. A uniform `bool` is an `i8` of 0 or 1; a varying one is a mask, all
/// ones or all zeros in each 32-bit lane, as vector comparisons produce it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar {
    pub(crate) kind: Kind,
    pub(crate) lanes: Lanes,
}

impl Scalar {
    /// A value that is the same in all lanes.
    pub(crate) fn uniform(kind: Kind, value: Value) -> Self {
        Self { kind, lanes: Lanes::Uniform(value) }
    }

    /// A value per lane.
    pub(crate) fn varying(kind: Kind, parts: [Value; VECTORS]) -> Self {
        Self { kind, lanes: Lanes::Varying(parts) }
    }

    /// Whether the value is known to be the same in all lanes.
    pub(crate) fn is_uniform(&self) -> bool {
        matches!(self.lanes, Lanes::Uniform(_))
    }

    /// Reinterprets the value as another kind of the same representation.
    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// Cranelift type of a vector of a kind.
pub(crate) fn vector_type(kind: Kind) -> Type {
    if kind.is_float() { types::F32X4 } else { types::I32X4 }
}

/// Cranelift type of a uniform scalar of a kind.
pub(crate) fn scalar_type(kind: Kind) -> Type {
    match kind {
        Kind::F32 | Kind::F16 => types::F32,
        Kind::I32 | Kind::U32 => types::I32,
        Kind::Bool => types::I8,
    }
}

/// Flags of all loads and stores: they cannot trap, because every index is clamped or proven in bounds. Not
/// `aligned`, because vector accesses start at any element.
pub(crate) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_endianness(Endianness::Little)
}

/// Emits a constant vector.
pub(crate) fn vector_constant(b: &mut FunctionBuilder<'_>, lanes: [i32; VECTOR_LANES]) -> Value {
    let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
    let constant = b.func.dfg.constants.insert(bytes.into());
    b.ins().vconst(types::I32X4, constant)
}

impl Emitter<'_, '_> {
    /// Emits an `i32` constant.
    pub(crate) fn i32_const(&mut self, value: i32) -> Value {
        self.b.ins().iconst(types::I32, i64::from(value))
    }

    /// Emits a uniform `u32` constant.
    pub(crate) fn u32_uniform(&mut self, value: u32) -> Scalar {
        let value = self.i32_const(value.cast_signed());
        Scalar::uniform(Kind::U32, value)
    }

    /// Emits a uniform `f32` constant.
    pub(crate) fn f32_uniform(&mut self, value: f32) -> Scalar {
        let value = self.b.ins().f32const(value);
        Scalar::uniform(Kind::F32, value)
    }

    /// Emits a uniform constant of a kind. `f64` represents all of its values exactly.
    pub(crate) fn constant(&mut self, kind: Kind, value: f64) -> Scalar {
        let value = match kind {
            Kind::F32 | Kind::F16 => self.b.ins().f32const(value as f32),
            Kind::I32 => self.i32_const(value as i32),
            Kind::U32 => self.i32_const((value as u32).cast_signed()),
            Kind::Bool => self.b.ins().iconst(types::I8, i64::from(value != 0.0)),
        };
        Scalar::uniform(kind, value)
    }

    /// Returns the integer if the value is an `iconst`.
    pub(crate) fn as_iconst(&self, value: Value) -> Option<i64> {
        let ValueDef::Result(inst, _) = self.b.func.dfg.value_def(value) else { return None };
        match self.b.func.dfg.insts[inst] {
            // Cranelift masks the immediate to the width of its type, so a negative `i32` is a positive `i64`
            // here; callers truncate it.
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// Expands the scalar to one value per lane.
    pub(crate) fn vectors(&mut self, scalar: Scalar) -> [Value; VECTORS] {
        match scalar.lanes {
            Lanes::Varying(parts) => parts,
            Lanes::Uniform(value) => {
                // A uniform 0 or 1 becomes a lane mask.
                let value = if scalar.kind == Kind::Bool { self.b.ins().bmask(types::I32, value) } else { value };
                [self.b.ins().splat(vector_type(scalar.kind), value); VECTORS]
            }
            Lanes::Linear(base, step) => {
                let base = self.b.ins().splat(types::I32X4, base);
                std::array::from_fn(|part| {
                    // The multiples of the step are constants.
                    let steps = std::array::from_fn(|lane| step.wrapping_mul((part * VECTOR_LANES + lane) as i32));
                    let steps = vector_constant(&mut self.b, steps);
                    self.b.ins().iadd(base, steps)
                })
            }
        }
    }

    /// Returns the value in one lane.
    pub(crate) fn lane(&mut self, scalar: Scalar, lane: usize) -> Value {
        match scalar.lanes {
            Lanes::Uniform(value) => value,
            Lanes::Linear(base, step) => {
                let step = self.i32_const(step.wrapping_mul(lane as i32));
                self.b.ins().iadd(base, step)
            }
            Lanes::Varying(parts) => {
                let value = self.b.ins().extractlane(parts[lane / VECTOR_LANES], (lane % VECTOR_LANES) as u8);
                if scalar.kind == Kind::Bool { self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0) } else { value }
            }
        }
    }

    /// Builds a scalar from the value of each lane; one value makes it uniform.
    pub(crate) fn scalar_of_lanes(&mut self, kind: Kind, lanes: &[Value]) -> Scalar {
        if let [only] = lanes {
            return Scalar::uniform(kind, *only);
        }
        let parts = std::array::from_fn(|part| {
            let mut lanes = lanes[part * VECTOR_LANES..][..VECTOR_LANES].to_vec();
            if kind == Kind::Bool {
                lanes.iter_mut().for_each(|lane| *lane = self.b.ins().bmask(types::I32, *lane));
            }
            let mut vector = self.b.ins().scalar_to_vector(vector_type(kind), lanes[0]);
            for (i, lane) in lanes.iter().enumerate().skip(1) {
                vector = self.b.ins().insertlane(vector, *lane, i as u8);
            }
            vector
        });
        Scalar::varying(kind, parts)
    }

    /// Applies an instruction that exists for scalars and vectors.
    pub(crate) fn map(&mut self, kind: Kind, x: Scalar, apply: impl Fn(&mut Self, Value) -> Value) -> Scalar {
        self.map_all(kind, [x], |e, [x]| apply(e, x))
    }

    /// [`map`](Self::map) with several operands. The result is uniform if all operands are.
    pub(crate) fn map_all<const N: usize>(
        &mut self,
        kind: Kind,
        scalars: [Scalar; N],
        apply: impl Fn(&mut Self, [Value; N]) -> Value,
    ) -> Scalar {
        // Keep uniform values scalar: one instruction instead of two, and branches need a scalar condition.
        if scalars.iter().all(Scalar::is_uniform) {
            let values = scalars.map(|scalar| self.lane(scalar, 0));
            return Scalar::uniform(kind, apply(self, values));
        }
        let parts = scalars.map(|scalar| self.vectors(scalar));
        Scalar::varying(kind, std::array::from_fn(|part| apply(self, parts.map(|parts| parts[part]))))
    }

    /// Applies an instruction that exists only for scalars, lane by lane.
    pub(crate) fn map_lanes(
        &mut self,
        kind: Kind,
        scalars: &[Scalar],
        apply: impl Fn(&mut Self, &[Value]) -> Value,
    ) -> Scalar {
        let lanes = if scalars.iter().all(Scalar::is_uniform) { 1 } else { LANES };
        let results: Vec<Value> = (0..lanes)
            .map(|lane| {
                let values: Vec<Value> = scalars.iter().map(|scalar| self.lane(*scalar, lane)).collect();
                apply(self, &values)
            })
            .collect();
        self.scalar_of_lanes(kind, &results)
    }

    /// Shifts left by a constant, in a scalar or in each lane.
    pub(crate) fn shift_left(&mut self, x: Value, bits: i32) -> Value {
        // The amount is a scalar for vectors too: Cranelift shifts all lanes by the same amount.
        let bits = self.i32_const(bits);
        self.b.ins().ishl(x, bits)
    }

    /// Shifts right by a constant and fills with zeros.
    pub(crate) fn shift_right(&mut self, x: Value, bits: i32) -> Value {
        let bits = self.i32_const(bits);
        self.b.ins().ushr(x, bits)
    }

    /// Whether a Cranelift value is a vector.
    pub(crate) fn is_vector(&self, value: Value) -> bool {
        self.b.func.dfg.value_type(value).is_vector()
    }

    /// Emits a constant with the shape of `value`: a scalar or a vector.
    pub(crate) fn const_like(&mut self, value: Value, word: u32) -> Value {
        if self.is_vector(value) {
            vector_constant(&mut self.b, [word.cast_signed(); VECTOR_LANES])
        } else {
            self.i32_const(word.cast_signed())
        }
    }

    /// [`const_like`](Self::const_like) for floats.
    pub(crate) fn f32_like(&mut self, value: Value, float: f32) -> Value {
        let constant = self.b.ins().f32const(float);
        if self.is_vector(value) { self.b.ins().splat(types::F32X4, constant) } else { constant }
    }

    /// Bit-casts floats to integers.
    pub(crate) fn f32_to_bits(&mut self, float: Value) -> Value {
        let ty = if self.is_vector(float) { types::I32X4 } else { types::I32 };
        self.b.ins().bitcast(ty, MemFlagsData::new(), float)
    }

    /// Bit-casts integers to floats.
    pub(crate) fn bits_to_f32(&mut self, bits: Value) -> Value {
        let ty = if self.is_vector(bits) { types::F32X4 } else { types::F32 };
        self.b.ins().bitcast(ty, MemFlagsData::new(), bits)
    }

    /// Selects between two values. The condition has their shape: an `i8`, or a mask per lane.
    pub(crate) fn select_value(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        if !self.is_vector(condition) {
            return self.b.ins().select(condition, yes, no);
        }
        let ty = self.b.func.dfg.value_type(yes);
        // `bitselect` needs a mask of the type of its operands.
        let condition =
            if ty == types::I32X4 { condition } else { self.b.ins().bitcast(ty, MemFlagsData::new(), condition) };
        self.b.ins().bitselect(condition, yes, no)
    }

    /// [`select_value`](Self::select_value) on scalars.
    pub(crate) fn select(&mut self, condition: Scalar, yes: Scalar, no: Scalar) -> Scalar {
        self.map_all(yes.kind, [condition, yes, no], |e, [condition, yes, no]| e.select_value(condition, yes, no))
    }

    /// Logical negation.
    pub(crate) fn not(&mut self, x: Scalar) -> Scalar {
        self.map(Kind::Bool, x, |e, x| if e.is_vector(x) { e.b.ins().bnot(x) } else { e.b.ins().bxor_imm_s(x, 1) })
    }

    /// Bitwise and logical conjunction.
    pub(crate) fn and(&mut self, x: Scalar, y: Scalar) -> Scalar {
        self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().band(x, y))
    }

    /// Bitwise and logical disjunction.
    pub(crate) fn or(&mut self, x: Scalar, y: Scalar) -> Scalar {
        self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().bor(x, y))
    }

    /// Compares floats.
    pub(crate) fn compare_float(&mut self, how: FloatCC, x: Scalar, y: Scalar) -> Scalar {
        self.map_all(Kind::Bool, [x, y], |e, [x, y]| e.b.ins().fcmp(how, x, y))
    }

    /// Compares integers.
    pub(crate) fn compare_int(&mut self, how: IntCC, x: Scalar, y: Scalar) -> Scalar {
        self.map_all(Kind::Bool, [x, y], |e, [x, y]| e.b.ins().icmp(how, x, y))
    }

    /// Returns an `i8` that is nonzero if any lane is set.
    pub(crate) fn any(&mut self, mask: [Value; VECTORS]) -> Value {
        // The vectors are combined first: one test instead of two.
        let both = self.b.ins().bor(mask[0], mask[1]);
        self.b.ins().vany_true(both)
    }

    /// Returns an `i8` that is nonzero if all lanes are set.
    pub(crate) fn all(&mut self, mask: [Value; VECTORS]) -> Value {
        let both = self.b.ins().band(mask[0], mask[1]);
        self.b.ins().vall_true(both)
    }

    /// Packs a mask into bits, lane 0 in bit 0.
    pub(crate) fn mask_bits(&mut self, mask: [Value; VECTORS]) -> Value {
        // The high bit decides, because a lane of a mask is all ones or all zeros.
        let [low, high] = mask.map(|part| self.b.ins().vhigh_bits(types::I32, part));
        let high = self.shift_left(high, VECTOR_LANES as i32);
        self.b.ins().bor(low, high)
    }

    /// Emits `then` under a condition (an `i8`).
    pub(crate) fn emit_if(&mut self, condition: Value, then: impl FnOnce(&mut Self)) {
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(condition, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        then(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    /// Emits an if-else whose branches return scalars of the same kinds, and merges them as varying scalars.
    pub(crate) fn emit_if_else(
        &mut self,
        condition: Value,
        yes: impl FnOnce(&mut Self) -> Vec<Scalar>,
        no: impl FnOnce(&mut Self) -> Vec<Scalar>,
    ) -> Vec<Scalar> {
        let (on_yes, on_no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(condition, on_yes, &[], on_no, &[]);
        self.b.switch_to_block(on_yes);
        let scalars = yes(self);
        // Varying in every case: results come only from strided accesses, which single-lane gangs do not have.
        let arguments: Vec<Value> = scalars.iter().flat_map(|scalar| self.vectors(*scalar)).collect();
        // Block parameters are phi nodes.
        let result = |scalar: &Scalar| {
            let ty = vector_type(scalar.kind);
            Scalar::varying(scalar.kind, std::array::from_fn(|_| self.b.append_block_param(after, ty)))
        };
        let results = scalars.iter().map(result).collect();
        self.b.ins().jump(after, &arguments.into_iter().map(BlockArg::Value).collect::<Vec<_>>());
        self.b.switch_to_block(on_no);
        let scalars = no(self);
        let arguments: Vec<Value> = scalars.iter().flat_map(|scalar| self.vectors(*scalar)).collect();
        self.b.ins().jump(after, &arguments.into_iter().map(BlockArg::Value).collect::<Vec<_>>());
        self.b.switch_to_block(after);
        results
    }
}
