//! Loads and stores: of variables in registers, of variables in the memory of invocations, of buffers and of work-groups.
//!
//! Buffers, values and work-groups have the layout of WGSL. The memory of a vector of invocations has the words of all of them
//! side by side, so that equal indices are one access.

use super::lanes::{LANES, Lanes, Number, PART, PARTS, flags, scalar_type, vector_type};
use super::{Active, Emitter, Operand, Result};
use crate::Refusal;
use crate::abi;
use crate::analysis::Variable;
use crate::sanitize::site::Use;
use crate::types::{Kind, Leaf, element, leaves, member};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use naga::{GlobalVariable, Handle, Span, TypeInner};

/// Where a pointer begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    Variable(Variable),
    /// A buffer or value, by its place among the bindings.
    Bound(u32),
    /// The memory of the work-group.
    Shared,
}

/// A pointer. Offsets are bytes, but words in variables of an invocation.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    pub(crate) base: Base,
    /// What it points to.
    pub(crate) inner: TypeInner,
    pub(crate) offset: u32,
    /// What indices before the last one add, in bounds.
    pub(crate) moved: Option<Number>,
    /// The last index, not yet checked.
    pub(crate) index: Option<Index>,
}

/// An index into an array, vector or matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    pub(crate) number: Number,
    /// How many elements there are, the same for all.
    pub(crate) length: Value,
    /// Bytes or words from one to the next.
    pub(crate) stride: u32,
}

/// Where the scalars of a pointer are.
enum Site {
    /// In one place, at this address.
    One(Value),
    /// From this address on, each so many bytes behind the one before; only where the byte is not zero. Otherwise at these offsets.
    Row { address: Value, stride: i32, holds: Value, base: Value, offsets: [Value; PARTS] },
    /// At these offsets of bytes from an address.
    Each { base: Value, offsets: [Value; PARTS] },
}

impl Emitter<'_, '_> {
    /// The pointer to a global variable.
    pub(crate) fn global(&mut self, handle: Handle<GlobalVariable>) -> Operand {
        let inner = self.module.types[self.module.global_variables[handle].ty].inner.clone();
        let (base, offset) = match (self.bindings.get(&handle), self.shared.get(&handle)) {
            (Some(place), _) => (Base::Bound(*place), 0),
            (_, Some(offset)) => (Base::Shared, *offset),
            _ => (Base::Variable(Variable::Private(handle)), 0),
        };
        Operand::Pointer(Pointer { base, inner, offset, moved: None, index: None })
    }

    /// The pointer to a member or to an element with a known index.
    pub(crate) fn point_to_member(&mut self, pointer: &Pointer, index: u32, span: Span) -> Result<Pointer> {
        let found = member(self.module, &pointer.inner, index);
        let (inner, bytes, words) = found.ok_or_else(|| Refusal::new(span, "expected a member of 16 or 32 bits"))?;
        let is_variable = matches!(pointer.base, Base::Variable(_));
        let offset = pointer.offset + if is_variable { words } else { bytes };
        let mut next = Pointer { inner, offset, ..pointer.clone() };
        // A known index into an array whose length the buffer decides is checked like any other.
        if let (TypeInner::Array { size: naga::ArraySize::Dynamic, .. }, true) = (&pointer.inner, index > 0) {
            let number = self.u32_same(index);
            next = self.point_to_element(pointer, number, span)?;
        }
        Ok(next)
    }

    /// The pointer to an element with a computed index.
    pub(crate) fn point_to_element(&mut self, pointer: &Pointer, number: Number, span: Span) -> Result<Pointer> {
        let found = element(self.module, &pointer.inner);
        let found = found.ok_or_else(|| Refusal::new(span, "expected elements of 16 or 32 bits"))?;
        let is_variable = matches!(pointer.base, Base::Variable(_));
        let stride = if is_variable { found.leaves } else { found.bytes };
        let length = match found.length {
            Some(length) => self.i32(length.cast_signed()),
            None => self.array_length(pointer, found.bytes),
        };
        self.check_index(Some(pointer), pointer.index, span)?;
        let moved = self.moved(pointer);
        Ok(Pointer { inner: found.inner, moved, index: Some(Index { number, length, stride }), ..pointer.clone() })
    }

    /// How many elements of so many bytes a buffer has from the pointer on.
    pub(crate) fn array_length(&mut self, pointer: &Pointer, stride: u32) -> Value {
        let Base::Bound(place) = pointer.base else { return self.i32(0) };
        let (_, bytes) = self.bound(place);
        let bytes = self.b.ins().ireduce(types::I32, bytes);
        let bytes = self.b.ins().iadd_imm_s(bytes, -i64::from(pointer.offset));
        self.b.ins().udiv_imm_u(bytes, i64::from(stride))
    }

    /// Address and length in bytes of a buffer or value.
    fn bound(&mut self, place: u32) -> (Value, Value) {
        let pointer = self.b.func.dfg.value_type(self.call);
        let readonly = flags().with_readonly().with_can_move();
        let table = self.b.ins().load(pointer, readonly, self.call, abi::BOUND);
        let at = place.cast_signed() * abi::BOUND_STRIDE;
        let data = self.b.ins().load(pointer, readonly, table, at);
        let bytes = self.b.ins().load(types::I64, readonly, table, at + abi::BOUND_BYTES);
        (data, bytes)
    }

    /// The index, kept inside of its array.
    fn checked(&mut self, index: Index) -> Number {
        let last = self.b.ins().iadd_imm_s(index.length, -1);
        if let (Lanes::Same(value), Some(last)) = (index.number.lanes, self.known(last))
            && self.known(value).is_some_and(|value| (value as u32) <= last as u32)
        {
            return index.number.with_kind(Kind::U32);
        }
        if !self.options.bounds_checks {
            // Who does not take part may have any index, also where nobody does.
            let number = index.number.with_kind(Kind::U32);
            let Active::Some(_) = self.active else { return number };
            let mask = self.active_mask();
            if !number.is_same() {
                return self.and(Number::each(Kind::U32, mask), number);
            }
            let (any, zero) = (self.any(mask), self.u32_same(0));
            return self.select(Number::same(Kind::Bool, any), number, zero);
        }
        let last = Number::same(Kind::U32, last);
        self.map2(Kind::U32, index.number, last, |e, x, y| e.b.ins().umin(x, y))
    }

    /// What the indices of a pointer add to its offset, in bounds.
    pub(crate) fn moved(&mut self, pointer: &Pointer) -> Option<Number> {
        let Some(index) = pointer.index else { return pointer.moved };
        let number = self.checked(index);
        let step = self.u32_same(index.stride);
        let product = self.multiply_int(number, step);
        Some(match pointer.moved {
            Some(moved) => self.add_int(moved, product),
            None => product,
        })
    }

    /// Where the first scalar of what a pointer leads to is.
    fn site(&mut self, pointer: &Pointer) -> Site {
        let address_type = self.b.func.dfg.value_type(self.call);
        let (start, scale) = match pointer.base {
            Base::Variable(variable) => {
                let word = self.homes[&variable].word.unwrap_or_default();
                let offset = (word + pointer.offset) * (self.lanes * 4) as u32;
                (self.b.ins().iadd_imm_s(self.frame, i64::from(offset)), (self.lanes * 4) as i32)
            }
            Base::Bound(place) => {
                let (data, _) = self.bound(place);
                (self.b.ins().iadd_imm_s(data, i64::from(pointer.offset)), 1)
            }
            Base::Shared => (self.b.ins().iadd_imm_s(self.scratch, i64::from(pointer.offset)), 1),
        };
        let widen = |e: &mut Self, offset: Value| {
            if address_type == types::I64 { e.b.ins().uextend(types::I64, offset) } else { offset }
        };
        // A row of elements side by side.
        if let (Some(Index { number: Number { lanes: Lanes::Steps(first, step @ 1..=16), .. }, length, stride }), 1) =
            (pointer.index, scale)
            && pointer.moved.is_none_or(|moved| moved.is_same())
        {
            let (wide_first, wide_length) =
                (self.b.ins().uextend(types::I64, first), self.b.ins().uextend(types::I64, length));
            let last = self.b.ins().iadd_imm_s(wide_first, i64::from(step) * (LANES as i64 - 1));
            let holds = self.b.ins().icmp(IntCC::UnsignedLessThan, last, wide_length);
            let base = match pointer.moved {
                Some(Number { lanes: Lanes::Same(moved), .. }) => {
                    let moved = widen(self, moved);
                    self.b.ins().iadd(start, moved)
                }
                _ => start,
            };
            let bytes = self.b.ins().imul_imm_s(wide_first, i64::from(stride));
            let bytes = if address_type == types::I64 { bytes } else { self.b.ins().ireduce(address_type, bytes) };
            let address = self.b.ins().iadd(base, bytes);
            let number = self.checked(Index {
                number: Number { kind: Kind::U32, lanes: Lanes::Steps(first, step) },
                length,
                stride,
            });
            let step_bytes = self.u32_same(stride);
            let offsets = self.multiply_int(number, step_bytes);
            let offsets = self.parts(offsets);
            return Site::Row { address, stride: step * stride.cast_signed(), holds, base, offsets };
        }
        let mut moved = self.moved(pointer);
        if let Base::Variable(variable) = pointer.base
            && self.homes[&variable].varies
        {
            // Words of one invocation are as far apart as there are lanes; each begins at its own.
            let words = moved.unwrap_or_else(|| self.u32_same(0));
            let scale = self.u32_same(scale.cast_unsigned());
            let bytes = self.multiply_int(words, scale);
            if bytes.is_same() {
                let Lanes::Same(bytes) = bytes.lanes else { return Site::One(start) };
                let bytes = widen(self, bytes);
                return Site::One(self.b.ins().iadd(start, bytes));
            }
            let zero = self.i32(0);
            let own = Number { kind: Kind::U32, lanes: Lanes::Steps(zero, 4) };
            let offsets = self.map2(Kind::U32, bytes, own, |e, x, y| e.b.ins().iadd(x, y));
            let offsets = self.parts(offsets);
            return Site::Each { base: start, offsets };
        }
        if let (Some(number), true) = (moved, scale != 1) {
            let scale = self.u32_same(scale.cast_unsigned());
            moved = Some(self.multiply_int(number, scale));
        }
        match moved {
            None => Site::One(start),
            Some(Number { lanes: Lanes::Same(offset), .. }) => {
                let offset = widen(self, offset);
                Site::One(self.b.ins().iadd(start, offset))
            }
            Some(offsets) => {
                let offsets = self.parts(offsets);
                Site::Each { base: start, offsets }
            }
        }
    }

    /// The address of one invocation.
    fn address(&mut self, base: Value, offsets: [Value; PARTS], lane: usize) -> Value {
        let offset = self.b.ins().extractlane(offsets[lane / PART], (lane % PART) as u8);
        let offset = if self.b.func.dfg.value_type(base) == types::I64 {
            self.b.ins().uextend(types::I64, offset)
        } else {
            offset
        };
        self.b.ins().iadd(base, offset)
    }

    /// The scalars of what a pointer leads to, with their offsets in its memory: bytes, or words in variables.
    pub(crate) fn leaves_of(&self, pointer: &Pointer, span: Span) -> Result<Vec<Leaf>> {
        let refuse = || Refusal::new(span, "expected a value of at most some thousand scalars of 16 or 32 bits");
        let mut found = leaves(self.module, &pointer.inner).ok_or_else(refuse)?;
        if let Base::Variable(_) = pointer.base {
            let bytes = (self.lanes * 4) as u32;
            (0..).zip(&mut found).for_each(|(word, leaf)| leaf.offset = word * bytes);
        }
        Ok(found)
    }

    pub(crate) fn load(&mut self, pointer: &Pointer, span: Span) -> Result<Vec<Number>> {
        self.check_access(pointer, Use::Read, span)?;
        if let Base::Variable(variable) = pointer.base
            && let Some(found) = self.load_registers(variable, pointer, span)?
        {
            return Ok(found);
        }
        let found = self.leaves_of(pointer, span)?;
        let words = matches!(pointer.base, Base::Variable(_));
        let in_lanes = match pointer.base {
            Base::Variable(variable) => self.homes[&variable].varies,
            _ => false,
        };
        Ok(match self.site(pointer) {
            Site::One(address) if in_lanes => {
                let load = |leaf: &Leaf| self.load_row(address, *leaf, 4, true);
                found.iter().map(load).collect()
            }
            Site::One(address) => {
                let mut load = |leaf: &Leaf| {
                    let value = self.load_scalar(address, *leaf, words);
                    Number::same(leaf.kind, value)
                };
                found.iter().map(&mut load).collect()
            }
            Site::Each { base, offsets } => self.gather(base, offsets, &found, words),
            Site::Row { address, stride, holds, base, offsets } => {
                let flat = |numbers: Vec<Number>, e: &mut Self| -> Vec<Value> {
                    numbers.into_iter().flat_map(|number| e.parts(number)).collect()
                };
                let values = self.either(
                    holds,
                    |e| {
                        let numbers = e.load_rows(address, &found, stride);
                        flat(numbers, e)
                    },
                    |e| {
                        let numbers = e.gather(base, offsets, &found, words);
                        flat(numbers, e)
                    },
                );
                let pairs = values.chunks_exact(PARTS).zip(&found);
                pairs.map(|(parts, leaf)| Number::each(leaf.kind, [parts[0], parts[1]])).collect()
            }
        })
    }

    /// The scalars of a variable in registers; `None` where it lives in memory.
    fn load_registers(&mut self, variable: Variable, pointer: &Pointer, span: Span) -> Result<Option<Vec<Number>>> {
        let home = self.homes[&variable].clone();
        if home.registers.is_empty() && !home.kinds.is_empty() {
            return Ok(None);
        }
        let count = self.leaves_of(pointer, span)?.len();
        let range = pointer.offset as usize..pointer.offset as usize + count;
        let pairs = home.registers[range.clone()].iter().zip(&home.kinds[range]);
        Ok(Some(pairs.map(|(register, kind)| self.get_register(*register, home.varies, *kind)).collect()))
    }

    /// One scalar, as it is in registers.
    fn load_scalar(&mut self, address: Value, leaf: Leaf, in_word: bool) -> Value {
        let offset = leaf.offset.cast_signed();
        match (leaf.kind, in_word) {
            (Kind::F16, false) => {
                let bits = self.b.ins().uload16(types::I32, flags(), address, offset);
                self.half_value(bits)
            }
            (Kind::Bool, false) => self.b.ins().load(types::I8, flags(), address, offset),
            (Kind::Bool, true) => {
                let word = self.b.ins().load(types::I32, flags(), address, offset);
                self.b.ins().icmp_imm_s(IntCC::NotEqual, word, 0)
            }
            (kind, _) => self.b.ins().load(scalar_type(kind), flags(), address, offset),
        }
    }

    fn gather(&mut self, base: Value, offsets: [Value; PARTS], found: &[Leaf], in_word: bool) -> Vec<Number> {
        let addresses: Vec<Value> = (0..LANES).map(|lane| self.address(base, offsets, lane)).collect();
        self.gather_at(&addresses, found, in_word)
    }

    fn gather_at(&mut self, addresses: &[Value], found: &[Leaf], in_word: bool) -> Vec<Number> {
        let mut numbers = Vec::with_capacity(found.len());
        for leaf in found {
            let values: Vec<Value> = match (leaf.kind, in_word) {
                // Halves are converted together.
                (Kind::F16, false) => addresses
                    .iter()
                    .map(|address| self.b.ins().uload16(types::I32, flags(), *address, leaf.offset.cast_signed()))
                    .collect(),
                _ => addresses.iter().map(|address| self.load_scalar(*address, *leaf, in_word)).collect(),
            };
            if leaf.kind == Kind::F16 && !in_word {
                let bits = self.of_lanes(Kind::U32, &values);
                numbers.push(self.map(Kind::F16, bits, Self::half_value));
            } else {
                numbers.push(self.of_lanes(leaf.kind, &values));
            }
        }
        numbers
    }

    /// The scalars of elements that begin so many bytes apart.
    fn load_rows(&mut self, address: Value, found: &[Leaf], stride: i32) -> Vec<Number> {
        if let [a, b, c, d] = found
            && stride == 16
            && found.iter().all(|leaf| leaf.kind.bytes() == 4)
            && [a, b, c, d].iter().enumerate().all(|(place, leaf)| leaf.offset == 4 * place as u32)
        {
            return self.load_fours(address, found);
        }
        if found.iter().any(|leaf| leaf.kind.bytes().cast_signed() != stride) {
            let addresses: Vec<Value> =
                (0..LANES as i64).map(|lane| self.b.ins().iadd_imm_s(address, lane * i64::from(stride))).collect();
            return self.gather_at(&addresses, found, false);
        }
        found.iter().map(|leaf| self.load_row(address, *leaf, stride, false)).collect()
    }

    /// Scalars side by side.
    fn load_row(&mut self, address: Value, leaf: Leaf, stride: i32, in_word: bool) -> Number {
        let offset = leaf.offset.cast_signed();
        if leaf.kind == Kind::F16 && !in_word {
            let halves = self.b.ins().load(types::I16X8, flags(), address, offset);
            let (low, high) = (self.b.ins().uwiden_low(halves), self.b.ins().uwiden_high(halves));
            return Number::each(Kind::F16, [low, high].map(|bits| self.half_value(bits)));
        }
        if leaf.kind == Kind::Bool && !in_word {
            let addresses: Vec<Value> =
                (0..LANES as i64).map(|lane| self.b.ins().iadd_imm_s(address, lane * i64::from(stride))).collect();
            return self.gather_at(&addresses, &[leaf], false)[0];
        }
        let ty = vector_type(leaf.kind);
        let bytes = (PART * 4) as i32;
        Number::each(
            leaf.kind,
            std::array::from_fn(|part| self.b.ins().load(ty, flags(), address, offset + part as i32 * bytes)),
        )
    }

    /// Vectors of four words side by side: a register for each, then rows and columns change places.
    fn load_fours(&mut self, address: Value, found: &[Leaf]) -> Vec<Number> {
        let columns: [[Value; 4]; PARTS] = std::array::from_fn(|part| {
            let rows: [Value; 4] = std::array::from_fn(|row| {
                self.b.ins().load(types::I8X16, flags(), address, ((part * PART + row) * 16) as i32)
            });
            self.transpose(rows)
        });
        let number = |e: &mut Self, place: usize, leaf: &Leaf| {
            let parts = std::array::from_fn(|part| {
                let ty = vector_type(leaf.kind);
                e.b.ins().bitcast(ty, flags_little(), columns[part][place])
            });
            Number::each(leaf.kind, parts)
        };
        found.iter().enumerate().map(|(place, leaf)| number(self, place, leaf)).collect()
    }

    /// Four registers of four words each, with rows as columns.
    fn transpose(&mut self, rows: [Value; 4]) -> [Value; 4] {
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

    /// What a shuffle of bytes takes to move whole words of two registers.
    fn words_of(&mut self, words: [u8; 4]) -> cranelift_codegen::ir::Immediate {
        let bytes: Vec<u8> = words.iter().flat_map(|word| (0..4).map(move |byte| word * 4 + byte)).collect();
        self.b.func.dfg.immediates.push(bytes.into())
    }

    pub(crate) fn store(&mut self, pointer: &Pointer, values: &[Number], span: Span) -> Result<()> {
        self.check_access(pointer, Use::Write, span)?;
        self.check_stored(pointer, values, span)?;
        if let Base::Variable(variable) = pointer.base {
            if self.store_registers(variable, pointer, values) {
                return Ok(());
            }
            if self.homes[&variable].varies {
                return self.store_variable(pointer, values, span);
            }
        }
        let found = self.leaves_of(pointer, span)?;
        let in_word = matches!(pointer.base, Base::Variable(_));
        match self.site(pointer) {
            Site::One(address) if values.iter().all(Number::is_same) => {
                let store = |e: &mut Self| {
                    for (leaf, number) in found.iter().zip(values) {
                        let value = e.lane(*number, 0);
                        e.store_scalar(address, *leaf, value, in_word);
                    }
                };
                match self.active {
                    Active::Some(_) if !in_word => {
                        let mask = self.active_mask();
                        let any = self.any(mask);
                        self.when(any, store);
                    }
                    _ => store(self),
                }
            }
            Site::One(address) => self.scatter(&|_, _| address, &found, values, in_word),
            Site::Each { base, offsets } => {
                self.scatter(&|e, lane| e.address(base, offsets, lane), &found, values, in_word);
            }
            Site::Row { address, stride, holds, base, offsets } => {
                let holds = match self.active {
                    Active::All => holds,
                    Active::Some(_) => {
                        let mask = self.active_mask();
                        let all = self.all(mask);
                        self.b.ins().band(holds, all)
                    }
                };
                self.either(
                    holds,
                    |e| {
                        e.store_rows(address, &found, values, stride);
                        Vec::new()
                    },
                    |e| {
                        e.scatter(&|e, lane| e.address(base, offsets, lane), &found, values, in_word);
                        Vec::new()
                    },
                );
            }
        }
        Ok(())
    }

    /// Stores to a variable in registers; false where it lives in memory.
    fn store_registers(&mut self, variable: Variable, pointer: &Pointer, values: &[Number]) -> bool {
        let home = self.homes[&variable].clone();
        if home.registers.is_empty() && !home.kinds.is_empty() {
            return false;
        }
        if home.word.is_some() && !self.written.contains(&variable) {
            self.written.push(variable);
        }
        for (place, number) in values.iter().enumerate() {
            let register = home.registers[pointer.offset as usize + place];
            let mut number = *number;
            if let (true, Active::Some(_)) = (home.varies, self.active) {
                let mask = self.active_mask();
                let old = self.get_register(register, true, number.kind);
                number = self.select(Number::each(Kind::Bool, mask), number, old);
            }
            self.set_register(register, home.varies, number);
        }
        true
    }

    /// Stores to a variable that lives in the memory of invocations, where each has its own word.
    fn store_variable(&mut self, pointer: &Pointer, values: &[Number], span: Span) -> Result<()> {
        let found = self.leaves_of(pointer, span)?;
        match self.site(pointer) {
            Site::One(address) => {
                for (leaf, number) in found.iter().zip(values) {
                    let mut number = *number;
                    if let Active::Some(_) = self.active {
                        let mask = self.active_mask();
                        let old = self.load_row(address, *leaf, 4, true);
                        number = self.select(Number::each(Kind::Bool, mask), number, old);
                    }
                    self.store_words(address, *leaf, number);
                }
            }
            Site::Each { base, offsets } | Site::Row { base, offsets, .. } => {
                self.scatter(&|e, lane| e.address(base, offsets, lane), &found, values, true);
            }
        }
        Ok(())
    }

    /// A word for each invocation, side by side.
    pub(crate) fn store_words(&mut self, address: Value, leaf: Leaf, number: Number) {
        if self.lanes == 1 {
            let value = self.lane(number, 0);
            return self.store_scalar(address, leaf, value, true);
        }
        let bytes = (PART * 4) as i32;
        for (part, value) in self.parts(number).into_iter().enumerate() {
            self.b.ins().store(flags(), value, address, leaf.offset.cast_signed() + part as i32 * bytes);
        }
    }

    fn store_scalar(&mut self, address: Value, leaf: Leaf, value: Value, in_word: bool) {
        let offset = leaf.offset.cast_signed();
        match (leaf.kind, in_word) {
            (Kind::F16, false) => {
                let bits = self.half_bits(value);
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

    fn store_rows(&mut self, address: Value, found: &[Leaf], values: &[Number], stride: i32) {
        if stride == 16 && found.len() == 4 && found.iter().all(|leaf| leaf.kind.bytes() == 4) {
            return self.store_fours(address, values);
        }
        for (leaf, number) in found.iter().zip(values) {
            let offset = leaf.offset.cast_signed();
            match leaf.kind {
                Kind::F16 if stride == 2 => {
                    let [low, high] = self.parts(*number).map(|part| self.half_bits(part));
                    let halves = self.b.ins().unarrow(low, high);
                    self.b.ins().store(flags(), halves, address, offset);
                }
                Kind::F32 | Kind::I32 | Kind::U32 if stride == 4 => self.store_words(address, *leaf, *number),
                _ => {
                    for lane in 0..LANES {
                        let value = self.lane(*number, lane);
                        let leaf = Leaf { offset: leaf.offset + lane as u32 * stride.cast_unsigned(), ..*leaf };
                        self.store_scalar(address, leaf, value, false);
                    }
                }
            }
        }
    }

    /// Vectors of four words, side by side.
    fn store_fours(&mut self, address: Value, values: &[Number]) {
        let columns: Vec<[Value; PARTS]> = values.iter().map(|number| self.parts(*number)).collect();
        for part in 0..PARTS {
            let mut columns = columns.iter().map(|column| column[part]);
            let rows = std::array::from_fn(|_| {
                let column = columns.next().unwrap_or(address);
                self.b.ins().bitcast(types::I8X16, flags_little(), column)
            });
            for (row, value) in self.transpose(rows).into_iter().enumerate() {
                self.b.ins().store(flags(), value, address, ((part * PART + row) * 16) as i32);
            }
        }
    }

    /// Stores of those who take part, one after the other.
    fn scatter(
        &mut self,
        address: &dyn Fn(&mut Self, usize) -> Value,
        found: &[Leaf],
        values: &[Number],
        in_word: bool,
    ) {
        self.for_each_active(&mut |e, lane| {
            let address = address(e, lane);
            for (leaf, number) in found.iter().zip(values) {
                let value = e.lane(*number, lane);
                e.store_scalar(address, *leaf, value, in_word);
            }
        });
    }

    /// Emits something for each invocation, to be run for those who take part.
    pub(crate) fn for_each_active(&mut self, emit: &mut dyn FnMut(&mut Self, usize)) {
        let bits = match self.active {
            Active::All => None,
            Active::Some(_) => {
                let mask = self.active_mask();
                Some(self.mask_bits(mask))
            }
        };
        for lane in 0..self.lanes {
            match bits {
                None => emit(self, lane),
                Some(bits) => {
                    let bit = self.b.ins().band_imm_s(bits, 1 << lane);
                    self.when(bit, |e| emit(e, lane));
                }
            }
        }
    }

    /// The address of what a pointer leads to, for one invocation.
    pub(crate) fn addresses(&mut self, pointer: &Pointer) -> Vec<Value> {
        match self.site(pointer) {
            Site::One(address) => vec![address; self.lanes],
            Site::Each { base, offsets } | Site::Row { base, offsets, .. } => {
                (0..LANES).map(|lane| self.address(base, offsets, lane)).collect()
            }
        }
    }

    /// The address of a word of the running vector of invocations.
    pub(crate) fn word_address(&mut self, word: u32) -> Value {
        self.b.ins().iadd_imm_s(self.frame, i64::from(word) * (self.lanes * 4) as i64)
    }

    pub(crate) fn load_word(&mut self, word: u32, kind: Kind, varies: bool) -> Number {
        let (address, leaf) = (self.word_address(word), Leaf { kind, offset: 0 });
        if varies {
            return self.load_row(address, leaf, 4, true);
        }
        let value = self.load_scalar(address, leaf, true);
        Number::same(kind, value)
    }

    pub(crate) fn store_word(&mut self, word: u32, number: Number, varies: bool) {
        let (address, leaf) = (self.word_address(word), Leaf { kind: number.kind, offset: 0 });
        if varies {
            return self.store_words(address, leaf, number);
        }
        let value = self.lane(number, 0);
        self.store_scalar(address, leaf, value, true);
    }

    /// The type of addresses.
    pub(crate) fn address_type(&self) -> Type {
        self.b.func.dfg.value_type(self.call)
    }
}

/// For casts between registers of different lanes.
fn flags_little() -> cranelift_codegen::ir::MemFlagsData {
    cranelift_codegen::ir::MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little)
}
