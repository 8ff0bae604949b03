//! Loads and stores of variables, buffers and workgroup memory.
//!
//! Buffers, uniform values and workgroup memory have WGSL's layout. In a frame every scalar takes a 32-bit
//! word, and the words of all lanes are adjacent, so that a word at a uniform index is one vector access.

use super::lanes::{LANES, Scalar, VECTOR_LANES, VECTORS, flags, scalar_type, vector_type};
use super::pointer::{AccessPattern, Base, Fallback, Pointer};
use super::{Emitter, Result};
use crate::CompileError;
use crate::sanitizer::site::SiteKind;
use crate::types::{Kind, ScalarField};
use crate::uniformity::Variable;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::Span;

impl Emitter<'_, '_> {
    /// Returns the scalars of the pointee with their byte offsets from it.
    pub(crate) fn pointee_fields(&self, pointer: &Pointer, span: Span) -> Result<Vec<ScalarField>> {
        let mut fields = self.type_fields("a value", &pointer.inner, span)?;
        if let Base::Variable(_) = pointer.base {
            let bytes = self.layout.word_bytes();
            (0..).zip(&mut fields).for_each(|(word, field)| field.offset = word * bytes);
        }
        Ok(fields)
    }

    /// Loads the pointee.
    pub(crate) fn load(&mut self, pointer: &Pointer, span: Span) -> Result<Vec<Scalar>> {
        self.check_access(pointer, SiteKind::Read, span)?;
        if let Base::Variable(variable) = pointer.base
            && let Some(scalars) = self.load_registers(variable, pointer, span)?
        {
            return Ok(scalars);
        }
        let fields = self.pointee_fields(pointer, span)?;
        // Frames store every scalar as a word; buffers have the layout of WGSL.
        let words = matches!(pointer.base, Base::Variable(_));
        // A uniform variable has one word per gang, a varying one a word per lane.
        let in_lanes = match pointer.base {
            Base::Variable(variable) => self.variables.storage(variable).varies,
            _ => false,
        };
        Ok(match self.access_pattern(pointer) {
            // A uniform index into a varying variable: the words of all lanes are adjacent.
            AccessPattern::Uniform(address) if in_lanes => {
                fields.iter().map(|field| self.load_contiguous(address, *field, 4, true)).collect()
            }
            // One scalar load serves all lanes.
            AccessPattern::Uniform(address) => {
                let load = |field: &ScalarField| Scalar::uniform(field.kind, self.load_scalar(address, *field, words));
                fields.iter().map(load).collect()
            }
            AccessPattern::Scattered { base, offsets } => self.gather(base, offsets, &fields, words),
            AccessPattern::Strided { address, stride, fallback: None } => self.load_strided(address, &fields, stride),
            // One comparison at run time chooses between vector loads and a clamped gather.
            AccessPattern::Strided { address, stride, fallback: Some(Fallback { in_bounds, base, offsets }) } => self
                .emit_if_else(
                    in_bounds,
                    |e| e.load_strided(address, &fields, stride),
                    |e| e.gather(base, offsets, &fields, words),
                ),
        })
    }

    /// Loads a variable from registers; `None` if it is in memory.
    fn load_registers(&mut self, variable: Variable, pointer: &Pointer, span: Span) -> Result<Option<Vec<Scalar>>> {
        let storage = self.variables.storage(variable).clone();
        if storage.registers.is_empty() && !storage.kinds.is_empty() {
            return Ok(None);
        }
        let count = self.pointee_fields(pointer, span)?.len();
        let range = pointer.offset as usize..pointer.offset as usize + count;
        let pairs = storage.registers[range.clone()].iter().zip(&storage.kinds[range]);
        Ok(Some(pairs.map(|(register, kind)| self.get_register(*register, storage.varies, *kind)).collect()))
    }

    /// Loads one scalar and converts it to its register form. `in_word`: it is a word of a frame.
    fn load_scalar(&mut self, address: Value, field: ScalarField, in_word: bool) -> Value {
        let offset = field.offset.cast_signed();
        match (field.kind, in_word) {
            (Kind::F16, false) => {
                let bits = self.b.ins().uload16(types::I32, flags(), address, offset);
                self.f16_bits_to_f32(bits)
            }
            (Kind::Bool, false) => self.b.ins().load(types::I8, flags(), address, offset),
            // A word of a frame holds a mask, as varying booleans do in registers.
            (Kind::Bool, true) => {
                let word = self.b.ins().load(types::I32, flags(), address, offset);
                self.b.ins().icmp_imm_s(IntCC::NotEqual, word, 0)
            }
            (kind, _) => self.b.ins().load(scalar_type(kind), flags(), address, offset),
        }
    }

    /// Loads each lane from its own offset.
    fn gather(&mut self, base: Value, offsets: [Value; VECTORS], fields: &[ScalarField], in_word: bool) -> Vec<Scalar> {
        let addresses: Vec<Value> = (0..LANES).map(|lane| self.address(base, offsets, lane)).collect();
        self.gather_at(&addresses, fields, in_word)
    }

    /// Loads each lane from its own address.
    fn gather_at(&mut self, addresses: &[Value], fields: &[ScalarField], in_word: bool) -> Vec<Scalar> {
        // Inactive lanes load too: their addresses are clamped, so that is safe and needs no branch per lane.
        let mut scalars = Vec::with_capacity(fields.len());
        for field in fields {
            // Load the bits of all lanes first, so that they are converted as a vector.
            let is_f16 = field.kind == Kind::F16 && !in_word;
            let load = |address: &Value| match is_f16 {
                true => self.b.ins().uload16(types::I32, flags(), *address, field.offset.cast_signed()),
                false => self.load_scalar(*address, *field, in_word),
            };
            let values: Vec<Value> = addresses.iter().map(load).collect();
            let scalar = self.scalar_of_lanes(if is_f16 { Kind::U32 } else { field.kind }, &values);
            scalars.push(if is_f16 { self.map(Kind::F16, scalar, Self::f16_bits_to_f32) } else { scalar });
        }
        scalars
    }

    /// Loads elements that are `stride` bytes apart.
    fn load_strided(&mut self, address: Value, fields: &[ScalarField], stride: i32) -> Vec<Scalar> {
        if are_vec4s(fields, stride) {
            return self.load_vec4s(address, fields);
        }
        // Gaps between the scalars of neighbouring lanes: no vector load fits.
        if fields.iter().any(|field| field.kind.bytes().cast_signed() != stride) {
            let addresses = self.strided_addresses(address, stride);
            return self.gather_at(&addresses, fields, false);
        }
        fields.iter().map(|field| self.load_contiguous(address, *field, stride, false)).collect()
    }

    /// Loads one scalar of each lane from adjacent memory.
    fn load_contiguous(&mut self, address: Value, field: ScalarField, stride: i32, in_word: bool) -> Scalar {
        let offset = field.offset.cast_signed();
        if field.kind == Kind::F16 && !in_word {
            let halves = self.b.ins().load(types::I16X8, flags(), address, offset);
            let (low, high) = (self.b.ins().uwiden_low(halves), self.b.ins().uwiden_high(halves));
            return Scalar::varying(Kind::F16, [low, high].map(|bits| self.f16_bits_to_f32(bits)));
        }
        // A `bool` in workgroup memory takes one byte, but a lane of its mask four.
        if field.kind == Kind::Bool && !in_word {
            let addresses = self.strided_addresses(address, stride);
            return self.gather_at(&addresses, &[field], false)[0];
        }
        let ty = vector_type(field.kind);
        let bytes = (VECTOR_LANES * 4) as i32;
        Scalar::varying(
            field.kind,
            std::array::from_fn(|part| self.b.ins().load(ty, flags(), address, offset + part as i32 * bytes)),
        )
    }

    /// Loads a `vec4` per lane: one vector each, then a transpose.
    fn load_vec4s(&mut self, address: Value, fields: &[ScalarField]) -> Vec<Scalar> {
        let columns: [[Value; 4]; VECTORS] = std::array::from_fn(|part| {
            let rows: [Value; 4] = std::array::from_fn(|row| {
                self.b.ins().load(types::I8X16, flags(), address, ((part * VECTOR_LANES + row) * 16) as i32)
            });
            self.transpose(rows)
        });
        let scalar = |e: &mut Self, i: usize, field: &ScalarField| {
            let parts = std::array::from_fn(|part| {
                let ty = vector_type(field.kind);
                e.b.ins().bitcast(ty, flags_little(), columns[part][i])
            });
            Scalar::varying(field.kind, parts)
        };
        fields.iter().enumerate().map(|(i, field)| scalar(self, i, field)).collect()
    }

    /// Transposes four vectors of four words with two rounds of shuffles.
    fn transpose(&mut self, rows: [Value; 4]) -> [Value; 4] {
        // Interleave pairs of rows (`unpcklps` and `unpckhps` on x86-64), then combine their halves.
        let low = self.words_of([0, 4, 1, 5]);
        let high = self.words_of([2, 6, 3, 7]);
        let (first, second) = (self.words_of([0, 1, 4, 5]), self.words_of([2, 3, 6, 7]));
        let mut pick = |a, b, words| self.b.ins().shuffle(a, b, words);
        let (ab_low, ab_high) = (pick(rows[0], rows[1], low), pick(rows[0], rows[1], high));
        let (cd_low, cd_high) = (pick(rows[2], rows[3], low), pick(rows[2], rows[3], high));
        [
            pick(ab_low, cd_low, first),
            pick(ab_low, cd_low, second),
            pick(ab_high, cd_high, first),
            pick(ab_high, cd_high, second),
        ]
    }

    /// Returns the byte shuffle that moves whole words of two vectors.
    fn words_of(&mut self, words: [u8; 4]) -> cranelift_codegen::ir::Immediate {
        let bytes: Vec<u8> = words.iter().flat_map(|word| (0..4).map(move |byte| word * 4 + byte)).collect();
        self.b.func.dfg.immediates.push(bytes.into())
    }

    /// Stores to the pointee, for active lanes.
    pub(crate) fn store(&mut self, pointer: &Pointer, values: &[Scalar], span: Span) -> Result<()> {
        self.check_access(pointer, SiteKind::Write, span)?;
        self.check_stored(pointer, values, span)?;
        if let Base::Variable(variable) = pointer.base {
            if self.store_registers(variable, pointer, values) {
                return Ok(());
            }
            if self.variables.storage(variable).varies {
                return self.store_variable(pointer, values, span);
            }
        }
        let fields = self.pointee_fields(pointer, span)?;
        let in_word = matches!(pointer.base, Base::Variable(_));
        match self.access_pattern(pointer) {
            AccessPattern::Uniform(address) if values.iter().all(Scalar::is_uniform) => {
                let store = |e: &mut Self| {
                    for (field, scalar) in fields.iter().zip(values) {
                        let value = e.lane(*scalar, 0);
                        e.store_scalar(address, *field, value, in_word);
                    }
                };
                // A uniform variable is only written in uniform control flow, so there is no mask to apply.
                if in_word { store(self) } else { self.when_any_active(store) }
            }
            AccessPattern::Uniform(address) => self.scatter(&|_, _| address, &fields, values, in_word),
            AccessPattern::Scattered { base, offsets } => {
                self.scatter(&|e, lane| e.address(base, offsets, lane), &fields, values, in_word);
            }
            AccessPattern::Strided { address, stride, fallback: None } => {
                self.store_strided(address, &fields, values, stride);
            }
            // One comparison at run time chooses between vector stores and a clamped scatter.
            AccessPattern::Strided { address, stride, fallback: Some(Fallback { in_bounds, base, offsets }) } => {
                // A vector store writes all lanes, so it needs a full mask as well. A load does not: reading
                // for an inactive lane is harmless.
                let in_bounds = if self.control.is_full() {
                    in_bounds
                } else {
                    let mask = self.control.lanes(&mut self.b);
                    let all = self.all(mask);
                    self.b.ins().band(in_bounds, all)
                };
                self.emit_if_else(
                    in_bounds,
                    |e| {
                        e.store_strided(address, &fields, values, stride);
                        Vec::new()
                    },
                    |e| {
                        e.scatter(&|e, lane| e.address(base, offsets, lane), &fields, values, in_word);
                        Vec::new()
                    },
                );
            }
        }
        Ok(())
    }

    /// Stores to a variable in registers; false if it is in memory.
    fn store_registers(&mut self, variable: Variable, pointer: &Pointer, values: &[Scalar]) -> bool {
        let storage = self.variables.storage(variable).clone();
        if storage.registers.is_empty() && !storage.kinds.is_empty() {
            return false;
        }
        self.variables.mark_dirty(variable);
        for (i, scalar) in values.iter().enumerate() {
            let register = storage.registers[pointer.offset as usize + i];
            let old = |e: &mut Self| e.get_register(register, true, scalar.kind);
            let scalar = if storage.varies { self.where_active(*scalar, old) } else { *scalar };
            self.set_register(register, storage.varies, scalar);
        }
        true
    }

    /// Stores to a varying variable in the frame, where each lane has its own word.
    fn store_variable(&mut self, pointer: &Pointer, values: &[Scalar], span: Span) -> Result<()> {
        let fields = self.pointee_fields(pointer, span)?;
        match self.access_pattern(pointer) {
            AccessPattern::Uniform(address) => {
                for (field, scalar) in fields.iter().zip(values) {
                    // Inactive lanes write their old value back. No other thread accesses the frame.
                    let scalar = self.where_active(*scalar, |e| e.load_contiguous(address, *field, 4, true));
                    self.store_words(address, *field, scalar);
                }
            }
            AccessPattern::Scattered { base, offsets } => {
                self.scatter(&|e, lane| e.address(base, offsets, lane), &fields, values, true);
            }
            AccessPattern::Strided { .. } => {
                return Err(CompileError::new(span, "expected words of invocations, found a row of elements"));
            }
        }
        Ok(())
    }

    /// Stores one word per lane to adjacent memory.
    pub(crate) fn store_words(&mut self, address: Value, field: ScalarField, scalar: Scalar) {
        if !self.gang.is_vector() {
            let value = self.lane(scalar, 0);
            return self.store_scalar(address, field, value, true);
        }
        let bytes = (VECTOR_LANES * 4) as i32;
        for (part, value) in self.vectors(scalar).into_iter().enumerate() {
            self.b.ins().store(flags(), value, address, field.offset.cast_signed() + part as i32 * bytes);
        }
    }

    /// Converts one scalar to its memory form and stores it.
    fn store_scalar(&mut self, address: Value, field: ScalarField, value: Value, in_word: bool) {
        let offset = field.offset.cast_signed();
        match (field.kind, in_word) {
            (Kind::F16, false) => {
                let bits = self.f32_to_f16_bits(value);
                self.b.ins().istore16(flags(), bits, address, offset);
            }
            (Kind::Bool, true) => {
                let word = self.b.ins().bmask(types::I32, value);
                self.b.ins().store(flags(), word, address, offset);
            }
            _ => {
                self.b.ins().store(flags(), value, address, offset);
            }
        }
    }

    /// Stores elements that are `stride` bytes apart. All lanes are active.
    fn store_strided(&mut self, address: Value, fields: &[ScalarField], values: &[Scalar], stride: i32) {
        if are_vec4s(fields, stride) {
            return self.store_vec4s(address, values);
        }
        for (field, scalar) in fields.iter().zip(values) {
            let offset = field.offset.cast_signed();
            match field.kind {
                Kind::F16 if stride == 2 => {
                    let [low, high] = self.vectors(*scalar).map(|part| self.f32_to_f16_bits(part));
                    // Saturating narrowing is exact here: `f16` bits are below 2^16.
                    let halves = self.b.ins().unarrow(low, high);
                    self.b.ins().store(flags(), halves, address, offset);
                }
                Kind::F32 | Kind::I32 | Kind::U32 if stride == 4 => self.store_words(address, *field, *scalar),
                _ => {
                    for lane in 0..LANES {
                        let value = self.lane(*scalar, lane);
                        let field =
                            ScalarField { offset: field.offset + lane as u32 * stride.cast_unsigned(), ..*field };
                        self.store_scalar(address, field, value, false);
                    }
                }
            }
        }
    }

    /// Stores a `vec4` per lane: a transpose, then one vector each.
    fn store_vec4s(&mut self, address: Value, values: &[Scalar]) {
        let columns: Vec<[Value; VECTORS]> = values.iter().map(|scalar| self.vectors(*scalar)).collect();
        for part in 0..VECTORS {
            let mut columns = columns.iter().map(|column| column[part]);
            let rows = std::array::from_fn(|_| {
                // `are_vec4s` guarantees four columns; the default only satisfies the iterator.
                let column = columns.next().unwrap_or(address);
                self.b.ins().bitcast(types::I8X16, flags_little(), column)
            });
            for (row, value) in self.transpose(rows).into_iter().enumerate() {
                self.b.ins().store(flags(), value, address, ((part * VECTOR_LANES + row) * 16) as i32);
            }
        }
    }

    /// Stores the active lanes one after the other, so that the highest lane wins at equal addresses.
    fn scatter(
        &mut self,
        address: &dyn Fn(&mut Self, usize) -> Value,
        fields: &[ScalarField],
        values: &[Scalar],
        in_word: bool,
    ) {
        self.for_each_active(&mut |e, lane| {
            let address = address(e, lane);
            for (field, scalar) in fields.iter().zip(values) {
                let value = e.lane(*scalar, lane);
                e.store_scalar(address, *field, value, in_word);
            }
        });
    }

    /// Returns the new value in active lanes and the old one in inactive lanes.
    pub(crate) fn where_active(&mut self, scalar: Scalar, old: impl FnOnce(&mut Self) -> Scalar) -> Scalar {
        if self.control.is_full() {
            return scalar;
        }
        let mask = self.control.lanes(&mut self.b);
        let old = old(self);
        self.select(Scalar::varying(Kind::Bool, mask), scalar, old)
    }

    /// Emits code that runs if any lane is active.
    pub(crate) fn when_any_active(&mut self, emit: impl FnOnce(&mut Self)) {
        if self.control.is_full() {
            return emit(self);
        }
        let mask = self.control.lanes(&mut self.b);
        let any = self.any(mask);
        self.emit_if(any, emit);
    }

    /// Returns a bit per active lane; `None` if the mask is known to be full.
    pub(crate) fn active_bits(&mut self) -> Option<Value> {
        if self.control.is_full() {
            return None;
        }
        let mask = self.control.lanes(&mut self.b);
        Some(self.mask_bits(mask))
    }

    /// Emits code for each lane that runs if the lane is active.
    pub(crate) fn for_each_active(&mut self, emit: &mut dyn FnMut(&mut Self, usize)) {
        // Computed before the branches, so that the value dominates the code of all lanes.
        let bits = self.active_bits();
        for lane in 0..self.gang.lanes {
            match bits {
                None => emit(self, lane),
                Some(bits) => {
                    let bit = self.b.ins().band_imm_s(bits, 1 << lane);
                    self.emit_if(bit, |e| emit(e, lane));
                }
            }
        }
    }

    /// Returns the address of a word in the current gang's frame.
    pub(crate) fn word_address(&mut self, word: u32) -> Value {
        self.b.ins().iadd_imm_s(self.gang.frame, i64::from(word) * i64::from(self.layout.word_bytes()))
    }

    /// Loads a word of the frame: of all lanes if it varies, otherwise of the gang.
    pub(crate) fn load_word(&mut self, word: u32, kind: Kind, varies: bool) -> Scalar {
        let (address, field) = (self.word_address(word), ScalarField { kind, offset: 0 });
        if varies {
            return self.load_contiguous(address, field, 4, true);
        }
        let value = self.load_scalar(address, field, true);
        Scalar::uniform(kind, value)
    }

    /// Loads a boolean word of a single-lane gang.
    pub(crate) fn load_flag(&mut self, word: u32) -> Value {
        let scalar = self.load_word(word, Kind::Bool, false);
        self.lane(scalar, 0)
    }

    /// Stores a word of the frame.
    pub(crate) fn store_word(&mut self, word: u32, scalar: Scalar, varies: bool) {
        let (address, field) = (self.word_address(word), ScalarField { kind: scalar.kind, offset: 0 });
        if varies {
            return self.store_words(address, field, scalar);
        }
        let value = self.lane(scalar, 0);
        self.store_scalar(address, field, value, true);
    }
}

/// Whether the elements are exactly `vec4`s of 32-bit scalars.
fn are_vec4s(fields: &[ScalarField], stride: i32) -> bool {
    let is_word = |(i, field): (usize, &ScalarField)| field.kind.bytes() == 4 && field.offset == 4 * i as u32;
    stride == 16 && fields.len() == 4 && fields.iter().enumerate().all(is_word)
}

/// Flags of bit-casts between vectors with different lane widths, which need an explicit byte order.
fn flags_little() -> cranelift_codegen::ir::MemFlagsData {
    cranelift_codegen::ir::MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little)
}
