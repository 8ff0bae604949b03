//! Pointers, address computation and bounds checks.
//!
//! A pointer is a base, a constant offset, a dynamic offset and one pending index. An index is clamped when the
//! pointer is used or indexed again, so the type of the access is known and contiguous accesses can be
//! recognised first.

use super::lanes::{LANES, Lanes, Scalar, VECTOR_LANES, VECTORS};
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::types::{Element, Kind, element, member};
use crate::uniformity::Variable;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{GlobalVariable, Handle, Span, TypeInner};

/// The object that a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Base {
    Variable(Variable),
    /// A buffer or uniform value, by its position in the call context.
    Binding(u32),
    /// Workgroup memory.
    Workgroup,
}

/// A pointer. Offsets are in bytes, but in words for variables of an invocation.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    pub(crate) base: Base,
    /// Type of the pointee.
    pub(crate) inner: TypeInner,
    /// Constant part of the offset.
    pub(crate) offset: u32,
    /// Sum of all indices but the last, already in bounds.
    pub(crate) dynamic_offset: Option<Scalar>,
    /// The last index, not clamped yet.
    pub(crate) index: Option<Index>,
}

/// An index into an array, vector or matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    pub(crate) value: Scalar,
    pub(crate) length: Length,
    /// Distance between elements, in bytes or words.
    pub(crate) stride: u32,
    /// Whether the index is proven in bounds for active invocations.
    pub(crate) is_proven: bool,
}

/// Number of elements. It comes from the type or the binding, never from memory that a kernel can write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Static(u32),
    /// As many elements as fit into a binding from byte `from` on.
    Binding {
        binding: u32,
        from: u32,
        stride: u32,
    },
}

/// Alternative for a strided access whose last lane may be out of bounds: if `in_bounds` is zero, access the
/// clamped offsets lane by lane.
#[derive(Clone, Copy)]
pub(crate) struct Fallback {
    pub(crate) in_bounds: Value,
    pub(crate) base: Value,
    pub(crate) offsets: [Value; VECTORS],
}

/// Where the lanes of a gang access memory.
pub(crate) enum AccessPattern {
    /// All lanes at one address.
    Uniform(Value),
    /// Lane 0 at `address`, the others `stride` bytes apart, subject to the fallback.
    Strided { address: Value, stride: i32, fallback: Option<Fallback> },
    /// Each lane at its own byte offset from `base`.
    Scattered { base: Value, offsets: [Value; VECTORS] },
}

impl Emitter<'_, '_> {
    /// Returns the pointer to a global variable.
    pub(crate) fn global(&mut self, handle: Handle<GlobalVariable>) -> Operand {
        let inner = self.module.types[self.module.global_variables[handle].ty].inner.clone();
        let private = (Base::Variable(Variable::Private(handle)), 0);
        let (base, offset) = self.layout.global(handle).unwrap_or(private);
        Operand::Pointer(Pointer { base, inner, offset, dynamic_offset: None, index: None })
    }

    /// Returns the pointer to a struct member, or to an element with a constant index.
    pub(crate) fn member_pointer(
        &mut self,
        pointer: &Pointer,
        index: u32,
        is_proven: bool,
        span: Span,
    ) -> Result<Pointer> {
        // A constant index into a runtime-sized array needs a bounds check like any other.
        // Index 0 is always in bounds, because a binding has at least one element.
        if let (TypeInner::Array { size: naga::ArraySize::Dynamic, .. }, true) = (&pointer.inner, index > 0) {
            let scalar = self.u32_uniform(index);
            return self.element_pointer(pointer, scalar, is_proven, span);
        }
        let found = member(self.module, &pointer.inner, index);
        let (inner, bytes, words) =
            found.ok_or_else(|| CompileError::new(span, "expected a member of 16 or 32 bits"))?;
        let is_variable = matches!(pointer.base, Base::Variable(_));
        let offset = pointer.offset + if is_variable { words } else { bytes };
        Ok(Pointer { inner, offset, ..pointer.clone() })
    }

    /// Returns the pointer to an element with a computed index. Clamps the previous index.
    pub(crate) fn element_pointer(
        &mut self,
        pointer: &Pointer,
        scalar: Scalar,
        is_proven: bool,
        span: Span,
    ) -> Result<Pointer> {
        let found = element(self.module, &pointer.inner);
        let found = found.ok_or_else(|| CompileError::new(span, "expected elements of 16 or 32 bits"))?;
        let is_variable = matches!(pointer.base, Base::Variable(_));
        let stride = if is_variable { found.scalars } else { found.bytes };
        let length = length_of(pointer, &found, span)?;
        self.check_index(Some(pointer), pointer.index, span)?;
        let dynamic_offset = self.dynamic_offset(pointer);
        let index = Some(Index { value: scalar, length, stride, is_proven });
        Ok(Pointer { inner: found.inner, dynamic_offset, index, ..pointer.clone() })
    }

    /// Emits the number of elements.
    pub(crate) fn length_value(&mut self, length: Length) -> Value {
        let (binding, from, stride) = match length {
            Length::Static(length) => return self.i32_const(length.cast_signed()),
            Length::Binding { binding, from, stride } => (binding, from, stride),
        };
        let (_, bytes) = self.runtime.binding(&mut self.b, binding);
        // The size is at most `MAX_BINDING_BYTES`, so it fits.
        let bytes = self.b.ins().ireduce(types::I32, bytes);
        // Cannot wrap: a binding holds everything before the array and at least one element.
        let bytes = self.b.ins().iadd_imm_s(bytes, -i64::from(from));
        self.b.ins().udiv_imm_u(bytes, i64::from(stride))
    }

    /// Emits the last valid index. Arrays are never empty: the launch rejects bindings smaller than one
    /// element.
    fn last_index(&mut self, length: Length) -> Value {
        if let Length::Static(length) = length {
            return self.i32_const(length.saturating_sub(1).cast_signed());
        }
        let length = self.length_value(length);
        self.b.ins().iadd_imm_s(length, -1)
    }

    /// Whether the index needs no clamp. A proof holds for active invocations only, and inactive lanes run
    /// through the same instructions with arbitrary values, so the mask must be full.
    fn can_skip_clamp(&mut self, index: Index) -> bool {
        let can_skip_clamp = index.is_proven && self.control.is_full();
        if can_skip_clamp && self.options.verify_elided_checks {
            self.assert_in_bounds(index);
        }
        can_skip_clamp
    }

    /// Ends the run if an index that is proven in bounds is not.
    fn assert_in_bounds(&mut self, index: Index) {
        let length = self.length_value(index.length);
        let length = Scalar::uniform(Kind::U32, length);
        // All lanes, not only active ones: this is only emitted with a full mask.
        let outside = self.compare_int(IntCC::UnsignedGreaterThanOrEqual, index.value.with_kind(Kind::U32), length);
        let any = match outside.lanes {
            Lanes::Uniform(outside) => outside,
            _ => {
                let outside = self.vectors(outside);
                self.any(outside)
            }
        };
        let inside = self.b.create_block();
        self.b.ins().brif(any, self.runtime.fault, &[], inside, &[]);
        self.b.switch_to_block(inside);
    }

    /// Returns the index clamped to the last element.
    pub(crate) fn clamped_index(&mut self, index: Index) -> Scalar {
        if self.can_skip_clamp(index) {
            return index.value.with_kind(Kind::U32);
        }
        let last = self.last_index(index.length);
        // A constant index below a constant length needs no instruction.
        if let (Lanes::Uniform(value), Some(last)) = (index.value.lanes, self.as_iconst(last))
            && self.as_iconst(value).is_some_and(|value| (value as u32) <= last as u32)
        {
            return index.value.with_kind(Kind::U32);
        }
        // Unsigned minimum: a negative `i32` index is a large `u32` and becomes the last element, as on the GPU
        // device.
        let last = Scalar::uniform(Kind::U32, last);
        self.map_all(Kind::U32, [index.value, last], |e, [x, y]| e.b.ins().umin(x, y))
    }

    /// Returns the dynamic offset including the pending index, in bounds.
    /// Unsigned arithmetic cannot overflow here: the clamped index times the stride is below the size of the
    /// object.
    pub(crate) fn dynamic_offset(&mut self, pointer: &Pointer) -> Option<Scalar> {
        let Some(index) = pointer.index else { return pointer.dynamic_offset };
        let scalar = self.clamped_index(index);
        let step = self.u32_uniform(index.stride);
        let product = self.multiply_int(scalar, step);
        Some(match pointer.dynamic_offset {
            Some(dynamic_offset) => self.add_int(dynamic_offset, product),
            None => product,
        })
    }

    /// Computes the addresses of the first scalar of the pointee.
    pub(crate) fn access_pattern(&mut self, pointer: &Pointer) -> AccessPattern {
        let address_type = self.runtime.pointer;
        // Variables count in words; one word of an invocation is `word_bytes` from the next.
        let (start, scale) = match pointer.base {
            Base::Variable(variable) => {
                let word = self.variables.storage(variable).word.unwrap_or_default();
                (self.word_address(word + pointer.offset), self.layout.word_bytes().cast_signed())
            }
            Base::Binding(binding) => {
                let (data, _) = self.runtime.binding(&mut self.b, binding);
                (self.b.ins().iadd_imm_s(data, i64::from(pointer.offset)), 1)
            }
            Base::Workgroup => (self.b.ins().iadd_imm_s(self.runtime.scratch, i64::from(pointer.offset)), 1),
        };
        // Offsets are unsigned and below 2^31.
        let widen = |e: &mut Self, offset: Value| {
            if address_type == types::I64 { e.b.ins().uextend(types::I64, offset) } else { offset }
        };
        // Contiguous or strided elements. The limit on the step keeps the gang's span small, so that one
        // comparison of the last lane's index, in 64 bits so that it cannot wrap, covers all lanes.
        if let (Some(index), 1) = (pointer.index, scale)
            && let Lanes::Linear(first, step @ 1..=16) = index.value.lanes
            && pointer.dynamic_offset.is_none_or(|dynamic_offset| dynamic_offset.is_uniform())
            && let Some(stride) = step.checked_mul(index.stride.cast_signed())
            // The offset of the last lane must fit the `i32` of Cranelift's immediate offsets.
            && stride.checked_mul(LANES as i32).is_some()
        {
            // If the first index is negative, its zero-extension is beyond every length, so the comparison
            // below fails.
            let wide_first = self.b.ins().uextend(types::I64, first);
            let base = match pointer.dynamic_offset {
                Some(Scalar { lanes: Lanes::Uniform(dynamic_offset), .. }) => {
                    let dynamic_offset = widen(self, dynamic_offset);
                    self.b.ins().iadd(start, dynamic_offset)
                }
                _ => start,
            };
            let bytes = self.b.ins().imul_imm_s(wide_first, i64::from(index.stride));
            let bytes = if address_type == types::I64 { bytes } else { self.b.ins().ireduce(address_type, bytes) };
            // May be any number if the index is out of bounds. It is only used where `in_bounds` holds or the
            // index is proven.
            let address = self.b.ins().iadd(base, bytes);
            // Proven for all lanes, so no fallback is needed.
            if self.can_skip_clamp(index) {
                return AccessPattern::Strided { address, stride, fallback: None };
            }
            let last = self.b.ins().iadd_imm_s(wide_first, i64::from(step) * (LANES as i64 - 1));
            let length = self.length_value(index.length);
            let length = self.b.ins().uextend(types::I64, length);
            let in_bounds = self.b.ins().icmp(IntCC::UnsignedLessThan, last, length);
            // The fallback clamps each lane separately.
            let scalar = self.clamped_index(index);
            let step_bytes = self.u32_uniform(index.stride);
            let offsets = self.multiply_int(scalar, step_bytes);
            let offsets = self.vectors(offsets);
            return AccessPattern::Strided { address, stride, fallback: Some(Fallback { in_bounds, base, offsets }) };
        }
        let mut dynamic_offset = self.dynamic_offset(pointer);
        if let Base::Variable(variable) = pointer.base
            && self.variables.storage(variable).varies
        {
            // In a frame, the words of one invocation are `lanes` words apart, and each lane starts at its own
            // word.
            let words = dynamic_offset.unwrap_or_else(|| self.u32_uniform(0));
            let scale = self.u32_uniform(scale.cast_unsigned());
            let bytes = self.multiply_int(words, scale);
            if bytes.is_uniform() {
                let Lanes::Uniform(bytes) = bytes.lanes else { return AccessPattern::Uniform(start) };
                let bytes = widen(self, bytes);
                return AccessPattern::Uniform(self.b.ins().iadd(start, bytes));
            }
            let zero = self.i32_const(0);
            // Lane `n` starts `n` words into the slot.
            let own = Scalar { kind: Kind::U32, lanes: Lanes::Linear(zero, 4) };
            let offsets = self.map_all(Kind::U32, [bytes, own], |e, [x, y]| e.b.ins().iadd(x, y));
            let offsets = self.vectors(offsets);
            return AccessPattern::Scattered { base: start, offsets };
        }
        if let (Some(scalar), true) = (dynamic_offset, scale != 1) {
            let scale = self.u32_uniform(scale.cast_unsigned());
            dynamic_offset = Some(self.multiply_int(scalar, scale));
        }
        match dynamic_offset {
            None => AccessPattern::Uniform(start),
            Some(Scalar { lanes: Lanes::Uniform(offset), .. }) => {
                let offset = widen(self, offset);
                AccessPattern::Uniform(self.b.ins().iadd(start, offset))
            }
            Some(offsets) => {
                let offsets = self.vectors(offsets);
                AccessPattern::Scattered { base: start, offsets }
            }
        }
    }

    /// Returns the address of one lane.
    pub(crate) fn address(&mut self, base: Value, offsets: [Value; VECTORS], lane: usize) -> Value {
        let offset = self.b.ins().extractlane(offsets[lane / VECTOR_LANES], (lane % VECTOR_LANES) as u8);
        let offset = if self.b.func.dfg.value_type(base) == types::I64 {
            self.b.ins().uextend(types::I64, offset)
        } else {
            offset
        };
        self.b.ins().iadd(base, offset)
    }

    /// Returns the addresses of all lanes of a strided access.
    pub(crate) fn strided_addresses(&mut self, address: Value, stride: i32) -> Vec<Value> {
        (0..LANES as i64).map(|lane| self.b.ins().iadd_imm_s(address, lane * i64::from(stride))).collect()
    }

    /// Returns the address of each lane, for accesses that are emitted lane by lane.
    pub(crate) fn addresses(&mut self, pointer: &Pointer) -> Vec<Value> {
        match self.access_pattern(pointer) {
            AccessPattern::Uniform(address) => vec![address; self.gang.lanes],
            AccessPattern::Strided { address, stride, fallback: None } => self.strided_addresses(address, stride),
            AccessPattern::Scattered { base, offsets }
            | AccessPattern::Strided { fallback: Some(Fallback { base, offsets, .. }), .. } => {
                (0..LANES).map(|lane| self.address(base, offsets, lane)).collect()
            }
        }
    }
}

/// Returns the number of elements of the pointee.
pub(crate) fn length_of(pointer: &Pointer, element: &Element, span: Span) -> Result<Length> {
    match (element.length, pointer.base) {
        (Some(length), _) => Ok(Length::Static(length)),
        (None, Base::Binding(binding)) => Ok(Length::Binding { binding, from: pointer.offset, stride: element.bytes }),
        (None, _) => Err(CompileError::new(span, "expected an array of a known length outside of buffers")),
    }
}
