//! Pointers: where they lead, kept in bounds.

use super::lanes::{LANES, Lanes, Number, PART, PARTS};
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::Variable;
use crate::types::{Element, Kind, element, member};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{GlobalVariable, Handle, Span, TypeInner};

/// Where a pointer begins.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    pub(crate) length: Length,
    /// Bytes or words from one to the next.
    pub(crate) stride: u32,
    /// Whether it is below the length for active invocations.
    pub(crate) is_proven: bool,
}

/// How many elements there are: what a type says, or what is bound. It is never taken from memory, where anything may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Known(u32),
    /// As many as fit into what is bound at this place, from a byte on.
    Bound {
        place: u32,
        from: u32,
        stride: u32,
    },
}

/// Where elements are that may be no row: only where the byte is zero, at these offsets.
#[derive(Clone, Copy)]
pub(crate) struct Unless {
    pub(crate) holds: Value,
    pub(crate) base: Value,
    pub(crate) offsets: [Value; PARTS],
}

/// Where the scalars of a pointer are.
pub(crate) enum Site {
    /// In one place, at this address.
    One(Value),
    /// From this address on, each so many bytes behind the one before; unless that is not certain.
    Row { address: Value, stride: i32, unless: Option<Unless> },
    /// At these offsets of bytes from an address.
    Each { base: Value, offsets: [Value; PARTS] },
}

impl Emitter<'_, '_> {
    /// The pointer to a global variable.
    pub(crate) fn global(&mut self, handle: Handle<GlobalVariable>) -> Operand {
        let inner = self.module.types[self.module.global_variables[handle].ty].inner.clone();
        let private = (Base::Variable(Variable::Private(handle)), 0);
        let (base, offset) = self.layout.global(handle).unwrap_or(private);
        Operand::Pointer(Pointer { base, inner, offset, moved: None, index: None })
    }

    /// The pointer to a member or to an element with a known index.
    pub(crate) fn point_to_member(
        &mut self,
        pointer: &Pointer,
        index: u32,
        is_proven: bool,
        span: Span,
    ) -> Result<Pointer> {
        // A known index into an array whose length the buffer decides is checked like any other.
        if let (TypeInner::Array { size: naga::ArraySize::Dynamic, .. }, true) = (&pointer.inner, index > 0) {
            let number = self.u32_same(index);
            return self.point_to_element(pointer, number, is_proven, span);
        }
        let found = member(self.module, &pointer.inner, index);
        let (inner, bytes, words) = found.ok_or_else(|| Refusal::new(span, "expected a member of 16 or 32 bits"))?;
        let is_variable = matches!(pointer.base, Base::Variable(_));
        let offset = pointer.offset + if is_variable { words } else { bytes };
        Ok(Pointer { inner, offset, ..pointer.clone() })
    }

    /// The pointer to an element with a computed index.
    pub(crate) fn point_to_element(
        &mut self,
        pointer: &Pointer,
        number: Number,
        is_proven: bool,
        span: Span,
    ) -> Result<Pointer> {
        let found = element(self.module, &pointer.inner);
        let found = found.ok_or_else(|| Refusal::new(span, "expected elements of 16 or 32 bits"))?;
        let is_variable = matches!(pointer.base, Base::Variable(_));
        let stride = if is_variable { found.leaves } else { found.bytes };
        let length = length_of(pointer, &found, span)?;
        self.check_index(Some(pointer), pointer.index, span)?;
        let moved = self.moved(pointer);
        let index = Some(Index { number, length, stride, is_proven });
        Ok(Pointer { inner: found.inner, moved, index, ..pointer.clone() })
    }

    /// A length as a number, the same for all.
    pub(crate) fn length_value(&mut self, length: Length) -> Value {
        let (place, from, stride) = match length {
            Length::Known(length) => return self.i32(length.cast_signed()),
            Length::Bound { place, from, stride } => (place, from, stride),
        };
        let (_, bytes) = self.runtime.bound(&mut self.b, place);
        let bytes = self.b.ins().ireduce(types::I32, bytes);
        let bytes = self.b.ins().iadd_imm_s(bytes, -i64::from(from));
        self.b.ins().udiv_imm_u(bytes, i64::from(stride))
    }

    /// The last index of an array of this length, which is not empty: a launch sees to that.
    fn last_index(&mut self, length: Length) -> Value {
        if let Length::Known(length) = length {
            return self.i32(length.saturating_sub(1).cast_signed());
        }
        let length = self.length_value(length);
        self.b.ins().iadd_imm_s(length, -1)
    }

    /// Whether the index is below the length in every lane. A proof says nothing about inactive invocations.
    fn is_safe(&mut self, index: Index) -> bool {
        let is_safe = index.is_proven && self.control.is_full();
        if is_safe && self.options.audit {
            self.audit(index);
        }
        is_safe
    }

    /// Ends the run where an index is outside that was proven not to be.
    fn audit(&mut self, index: Index) {
        let length = self.length_value(index.length);
        let length = Number::same(Kind::U32, length);
        let outside = self.compare_int(IntCC::UnsignedGreaterThanOrEqual, index.number.with_kind(Kind::U32), length);
        let any = match outside.lanes {
            Lanes::Same(outside) => outside,
            _ => {
                let outside = self.parts(outside);
                self.any(outside)
            }
        };
        let inside = self.b.create_block();
        self.b.ins().brif(any, self.runtime.fault, &[], inside, &[]);
        self.b.switch_to_block(inside);
    }

    /// The index, kept inside of its array.
    pub(crate) fn checked(&mut self, index: Index) -> Number {
        if self.is_safe(index) {
            return index.number.with_kind(Kind::U32);
        }
        let last = self.last_index(index.length);
        if let (Lanes::Same(value), Some(last)) = (index.number.lanes, self.known(last))
            && self.known(value).is_some_and(|value| (value as u32) <= last as u32)
        {
            return index.number.with_kind(Kind::U32);
        }
        let last = Number::same(Kind::U32, last);
        self.map_all(Kind::U32, [index.number, last], |e, [x, y]| e.b.ins().umin(x, y))
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
    pub(crate) fn site(&mut self, pointer: &Pointer) -> Site {
        let address_type = self.runtime.pointer;
        let (start, scale) = match pointer.base {
            Base::Variable(variable) => {
                let word = self.variables.home(variable).word.unwrap_or_default();
                (self.word_address(word + pointer.offset), self.layout.word_bytes().cast_signed())
            }
            Base::Bound(place) => {
                let (data, _) = self.runtime.bound(&mut self.b, place);
                (self.b.ins().iadd_imm_s(data, i64::from(pointer.offset)), 1)
            }
            Base::Shared => (self.b.ins().iadd_imm_s(self.runtime.scratch, i64::from(pointer.offset)), 1),
        };
        let widen = |e: &mut Self, offset: Value| {
            if address_type == types::I64 { e.b.ins().uextend(types::I64, offset) } else { offset }
        };
        // A row of elements side by side.
        if let (Some(index), 1) = (pointer.index, scale)
            && let Lanes::Steps(first, step @ 1..=16) = index.number.lanes
            && pointer.moved.is_none_or(|moved| moved.is_same())
            && let Some(stride) = step.checked_mul(index.stride.cast_signed())
            && stride.checked_mul(LANES as i32).is_some()
        {
            let wide_first = self.b.ins().uextend(types::I64, first);
            let base = match pointer.moved {
                Some(Number { lanes: Lanes::Same(moved), .. }) => {
                    let moved = widen(self, moved);
                    self.b.ins().iadd(start, moved)
                }
                _ => start,
            };
            let bytes = self.b.ins().imul_imm_s(wide_first, i64::from(index.stride));
            let bytes = if address_type == types::I64 { bytes } else { self.b.ins().ireduce(address_type, bytes) };
            let address = self.b.ins().iadd(base, bytes);
            if self.is_safe(index) {
                return Site::Row { address, stride, unless: None };
            }
            let last = self.b.ins().iadd_imm_s(wide_first, i64::from(step) * (LANES as i64 - 1));
            let length = self.length_value(index.length);
            let length = self.b.ins().uextend(types::I64, length);
            let holds = self.b.ins().icmp(IntCC::UnsignedLessThan, last, length);
            let number = self.checked(index);
            let step_bytes = self.u32_same(index.stride);
            let offsets = self.multiply_int(number, step_bytes);
            let offsets = self.parts(offsets);
            return Site::Row { address, stride, unless: Some(Unless { holds, base, offsets }) };
        }
        let mut moved = self.moved(pointer);
        if let Base::Variable(variable) = pointer.base
            && self.variables.home(variable).varies
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
            let offsets = self.map_all(Kind::U32, [bytes, own], |e, [x, y]| e.b.ins().iadd(x, y));
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
    pub(crate) fn address(&mut self, base: Value, offsets: [Value; PARTS], lane: usize) -> Value {
        let offset = self.b.ins().extractlane(offsets[lane / PART], (lane % PART) as u8);
        let offset = if self.b.func.dfg.value_type(base) == types::I64 {
            self.b.ins().uextend(types::I64, offset)
        } else {
            offset
        };
        self.b.ins().iadd(base, offset)
    }

    /// The addresses of elements that begin so many bytes apart.
    pub(crate) fn row_addresses(&mut self, address: Value, stride: i32) -> Vec<Value> {
        (0..LANES as i64).map(|lane| self.b.ins().iadd_imm_s(address, lane * i64::from(stride))).collect()
    }

    /// The address of what a pointer leads to, for one invocation.
    pub(crate) fn addresses(&mut self, pointer: &Pointer) -> Vec<Value> {
        match self.site(pointer) {
            Site::One(address) => vec![address; self.gang.lanes],
            Site::Row { address, stride, unless: None } => self.row_addresses(address, stride),
            Site::Each { base, offsets } | Site::Row { unless: Some(Unless { base, offsets, .. }), .. } => {
                (0..LANES).map(|lane| self.address(base, offsets, lane)).collect()
            }
        }
    }
}

/// How many elements there are where a pointer leads.
pub(crate) fn length_of(pointer: &Pointer, element: &Element, span: Span) -> Result<Length> {
    match (element.length, pointer.base) {
        (Some(length), _) => Ok(Length::Known(length)),
        (None, Base::Bound(place)) => Ok(Length::Bound { place, from: pointer.offset, stride: element.bytes }),
        (None, _) => Err(Refusal::new(span, "expected an array of a known length outside of buffers")),
    }
}
