//! Loads and stores: of variables in registers, of variables in the memory of invocations, of buffers and of work-groups.
//!
//! Buffers, values and work-groups have the layout of WGSL. The memory of a vector of invocations has the words of all of them
//! side by side, so that equal indices are one access.

use super::lanes::{LANES, Number, PART, PARTS, flags, scalar_type, vector_type};
use super::pointer::{Base, Pointer, Site, Unless};
use super::{Emitter, Result};
use crate::Refusal;
use crate::analysis::Variable;
use crate::sanitize::site::Use;
use crate::types::{Kind, Leaf};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::Span;

impl Emitter<'_, '_> {
    /// The scalars of what a pointer leads to, with their offsets in its memory: bytes, or words in variables.
    pub(crate) fn leaves_of(&self, pointer: &Pointer, span: Span) -> Result<Vec<Leaf>> {
        let mut found = self.scalars("a value", &pointer.inner, span)?;
        if let Base::Variable(_) = pointer.base {
            let bytes = self.layout.word_bytes();
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
            Base::Variable(variable) => self.variables.home(variable).varies,
            _ => false,
        };
        Ok(match self.site(pointer) {
            Site::One(address) if in_lanes => found.iter().map(|leaf| self.load_row(address, *leaf, 4, true)).collect(),
            Site::One(address) => {
                let load = |leaf: &Leaf| Number::same(leaf.kind, self.load_scalar(address, *leaf, words));
                found.iter().map(load).collect()
            }
            Site::Each { base, offsets } => self.gather(base, offsets, &found, words),
            Site::Row { address, stride, unless: None } => self.load_rows(address, &found, stride),
            Site::Row { address, stride, unless: Some(Unless { holds, base, offsets }) } => {
                self.either(holds, |e| e.load_rows(address, &found, stride), |e| e.gather(base, offsets, &found, words))
            }
        })
    }

    /// The scalars of a variable in registers; `None` where it lives in memory.
    fn load_registers(&mut self, variable: Variable, pointer: &Pointer, span: Span) -> Result<Option<Vec<Number>>> {
        let home = self.variables.home(variable).clone();
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
            // Halves are converted together.
            let is_half = leaf.kind == Kind::F16 && !in_word;
            let load = |address: &Value| match is_half {
                true => self.b.ins().uload16(types::I32, flags(), *address, leaf.offset.cast_signed()),
                false => self.load_scalar(*address, *leaf, in_word),
            };
            let values: Vec<Value> = addresses.iter().map(load).collect();
            let number = self.of_lanes(if is_half { Kind::U32 } else { leaf.kind }, &values);
            numbers.push(if is_half { self.map(Kind::F16, number, Self::half_value) } else { number });
        }
        numbers
    }

    /// The scalars of elements that begin so many bytes apart.
    fn load_rows(&mut self, address: Value, found: &[Leaf], stride: i32) -> Vec<Number> {
        if are_fours(found, stride) {
            return self.load_fours(address, found);
        }
        if found.iter().any(|leaf| leaf.kind.bytes().cast_signed() != stride) {
            let addresses = self.row_addresses(address, stride);
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
            let addresses = self.row_addresses(address, stride);
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
            if self.variables.home(variable).varies {
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
                if in_word { store(self) } else { self.when_any_active(store) }
            }
            Site::One(address) => self.scatter(&|_, _| address, &found, values, in_word),
            Site::Each { base, offsets } => {
                self.scatter(&|e, lane| e.address(base, offsets, lane), &found, values, in_word);
            }
            Site::Row { address, stride, unless: None } => self.store_rows(address, &found, values, stride),
            Site::Row { address, stride, unless: Some(Unless { holds, base, offsets }) } => {
                let holds = if self.control.is_full() {
                    holds
                } else {
                    let mask = self.control.lanes(&mut self.b);
                    let all = self.all(mask);
                    self.b.ins().band(holds, all)
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
        let home = self.variables.home(variable).clone();
        if home.registers.is_empty() && !home.kinds.is_empty() {
            return false;
        }
        self.variables.mark_written(variable);
        for (place, number) in values.iter().enumerate() {
            let register = home.registers[pointer.offset as usize + place];
            let old = |e: &mut Self| e.get_register(register, true, number.kind);
            let number = if home.varies { self.where_active(*number, old) } else { *number };
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
                    let number = self.where_active(*number, |e| e.load_row(address, *leaf, 4, true));
                    self.store_words(address, *leaf, number);
                }
            }
            Site::Each { base, offsets } => {
                self.scatter(&|e, lane| e.address(base, offsets, lane), &found, values, true);
            }
            Site::Row { .. } => {
                return Err(Refusal::new(span, "expected words of invocations, found a row of elements"));
            }
        }
        Ok(())
    }

    /// A word for each invocation, side by side.
    pub(crate) fn store_words(&mut self, address: Value, leaf: Leaf, number: Number) {
        if !self.gang.is_vector() {
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
        if are_fours(found, stride) {
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

    /// Stores of active invocations, one after the other.
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

    /// A number for active invocations, and the old one for others.
    pub(crate) fn where_active(&mut self, number: Number, old: impl FnOnce(&mut Self) -> Number) -> Number {
        if self.control.is_full() {
            return number;
        }
        let mask = self.control.lanes(&mut self.b);
        let old = old(self);
        self.select(Number::each(Kind::Bool, mask), number, old)
    }

    /// Emits something that runs where any invocation is active.
    pub(crate) fn when_any_active(&mut self, emit: impl FnOnce(&mut Self)) {
        if self.control.is_full() {
            return emit(self);
        }
        let mask = self.control.lanes(&mut self.b);
        let any = self.any(mask);
        self.when(any, emit);
    }

    /// A bit for each active invocation; `None` where all are.
    pub(crate) fn active_bits(&mut self) -> Option<Value> {
        if self.control.is_full() {
            return None;
        }
        let mask = self.control.lanes(&mut self.b);
        Some(self.mask_bits(mask))
    }

    /// Emits something for each lane, which runs where its invocation is active.
    pub(crate) fn for_each_active(&mut self, emit: &mut dyn FnMut(&mut Self, usize)) {
        let bits = self.active_bits();
        for lane in 0..self.gang.lanes {
            match bits {
                None => emit(self, lane),
                Some(bits) => {
                    let bit = self.b.ins().band_imm_s(bits, 1 << lane);
                    self.when(bit, |e| emit(e, lane));
                }
            }
        }
    }

    /// The address of a word of the running gang.
    pub(crate) fn word_address(&mut self, word: u32) -> Value {
        self.b.ins().iadd_imm_s(self.gang.frame, i64::from(word) * i64::from(self.layout.word_bytes()))
    }

    pub(crate) fn load_word(&mut self, word: u32, kind: Kind, varies: bool) -> Number {
        let (address, leaf) = (self.word_address(word), Leaf { kind, offset: 0 });
        if varies {
            return self.load_row(address, leaf, 4, true);
        }
        let value = self.load_scalar(address, leaf, true);
        Number::same(kind, value)
    }

    /// A word of the running invocation that says whether something holds.
    pub(crate) fn load_flag(&mut self, word: u32) -> Value {
        let number = self.load_word(word, Kind::Bool, false);
        self.lane(number, 0)
    }

    pub(crate) fn store_word(&mut self, word: u32, number: Number, varies: bool) {
        let (address, leaf) = (self.word_address(word), Leaf { kind: number.kind, offset: 0 });
        if varies {
            return self.store_words(address, leaf, number);
        }
        let value = self.lane(number, 0);
        self.store_scalar(address, leaf, value, true);
    }
}

/// Whether elements so many bytes apart are vectors of four words, and nothing else.
fn are_fours(found: &[Leaf], stride: i32) -> bool {
    let is_word = |(place, leaf): (usize, &Leaf)| leaf.kind.bytes() == 4 && leaf.offset == 4 * place as u32;
    stride == 16 && found.len() == 4 && found.iter().enumerate().all(is_word)
}

/// For casts between registers of different lanes.
fn flags_little() -> cranelift_codegen::ir::MemFlagsData {
    cranelift_codegen::ir::MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little)
}
