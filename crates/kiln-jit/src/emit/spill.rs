//! Spilling: values and variables that live across regions are stored to the frame and reloaded in the regions
//! that use them.

use super::lanes::{Lanes, Scalar};
use super::pointer::{Base, Index, Length, Pointer};
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::regions::{Regions, ValueId};
use crate::types::{Kind, scalar_count};
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::{InstBuilder, types};
use naga::{Expression, Handle, Span};
use std::collections::{BTreeSet, HashMap};

/// How the lanes of a spilled scalar are stored. Uniform values and bases of linear ones take one word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpilledForm {
    Uniform,
    Linear(i32),
    Varying,
}

/// Where an operand is spilled.
#[derive(Clone, Debug)]
pub(crate) struct Spilled {
    /// Kind, form and frame word of each scalar.
    pub(crate) scalars: Vec<(Kind, SpilledForm, u32)>,
    /// For pointers, everything that is known at compile time. The scalars are its offset and index.
    pub(crate) pointer: Option<Pointer>,
    /// Whether the operand is the value that the pointer points to.
    pub(crate) is_memory_value: bool,
}

/// Spill slots and the sets that decide what is spilled.
#[derive(Default)]
pub(crate) struct Spills<'m> {
    /// The split program; `None` if it has no barriers.
    regions: Option<&'m Regions<'m>>,
    pub(super) slots: HashMap<ValueId, Spilled>,
    /// Byte offsets in workgroup memory of conditions of uniform control flow.
    uniform_conditions: HashMap<ValueId, u32>,
    /// Live-ins of the current region.
    live_ins: BTreeSet<ValueId>,
    /// Set while a single-lane gang emits an operation for its whole subgroup: those values are temporary.
    pub(super) is_suspended: bool,
}

impl<'m> Spills<'m> {
    /// Creates the spills of a program.
    pub(crate) fn new(regions: Option<&'m Regions<'m>>) -> Self {
        Self { regions, ..Self::default() }
    }

    /// Returns the values that a region takes from other regions.
    pub(crate) fn live_ins_of(&self, region: usize) -> &'m BTreeSet<ValueId> {
        &self.regions.expect("the program is split").live_ins[region]
    }

    /// Enters a region, or leaves it with an empty set.
    pub(crate) fn set_live_ins(&mut self, live_ins: &BTreeSet<ValueId>) {
        self.live_ins.clone_from(live_ins);
    }

    /// Whether the value comes from another region.
    pub(crate) fn is_live_in(&self, value: ValueId) -> bool {
        self.live_ins.contains(&value)
    }

    /// Whether another region uses the value.
    pub(crate) fn is_spilled(&self, value: ValueId) -> bool {
        !self.is_suspended && self.regions.is_some_and(|regions| regions.spilled.contains(&value))
    }

    /// Whether the value is a condition of divergent control flow that contains subgroup operations.
    pub(crate) fn is_divergent_condition(&self, value: ValueId) -> bool {
        self.regions.is_some_and(|regions| regions.divergent_conditions.contains(&value))
    }

    /// Assigns a word of workgroup memory to each uniform condition, from byte `first` on.
    pub(crate) fn place_uniform_conditions(&mut self, first: u32) {
        // In the order of a `BTreeSet`, so that a program is always compiled to the same code.
        let uniform_conditions = self.regions.iter().flat_map(|regions| &regions.uniform_conditions);
        self.uniform_conditions = uniform_conditions.copied().zip((first..).step_by(4)).collect();
    }

    /// Returns the byte offset of a uniform condition; `None` if the value is none.
    pub(crate) fn uniform_condition(&self, value: ValueId) -> Option<u32> {
        self.uniform_conditions.get(&value).copied().filter(|_| !self.is_suspended)
    }
}

impl Emitter<'_, '_> {
    /// Reloads the variables and live-ins that earlier regions left.
    pub(crate) fn reload(&mut self, live_ins: &BTreeSet<ValueId>) -> Result<()> {
        self.clear_taints();
        for variable in self.variables.in_scope(|id| self.group.is_running(id)) {
            let storage = self.variables.storage(variable).clone();
            let Some(word) = storage.word else { continue };
            // Every region reloads every variable, so variables times barriers must count against the limit.
            self.budget.spend(storage.registers.len(), self.b.func, self.current_span)?;
            for (i, register) in storage.registers.iter().enumerate() {
                let scalar = self.load_word(word + i as u32, storage.kinds[i], storage.varies);
                self.set_register(*register, storage.varies, scalar);
            }
        }
        self.reload_values(live_ins)
    }

    /// Reloads values that earlier regions computed.
    pub(crate) fn reload_values(&mut self, live_ins: &BTreeSet<ValueId>) -> Result<()> {
        for (id, expression) in live_ins.iter().copied() {
            let spilled = self.spills.slots.get(&(id, expression)).cloned();
            let spilled = spilled
                .ok_or_else(|| CompileError::new(self.span(id, expression), "expected a spilled value, found none"))?;
            let load = |e: &mut Self, (kind, form, word): &(Kind, SpilledForm, u32)| match form {
                SpilledForm::Uniform => e.load_word(*word, *kind, false),
                SpilledForm::Varying => e.load_word(*word, *kind, true),
                SpilledForm::Linear(step) => {
                    let base = e.load_word(*word, *kind, false);
                    let base = e.lane(base, 0);
                    Scalar { kind: *kind, lanes: Lanes::Linear(base, *step) }
                }
            };
            let mut scalars: Vec<Scalar> = spilled.scalars.iter().map(|scalar| load(self, scalar)).collect();
            let operand = match spilled.pointer {
                None => Operand::Scalars(scalars),
                Some(mut pointer) => {
                    // In the order in which `spill` stores them: the offset, then the index.
                    if pointer.dynamic_offset.is_some() {
                        let dynamic_offset = scalars.remove(0);
                        pointer.dynamic_offset =
                            Some(self.clamp_reloaded_offset(&pointer, dynamic_offset, self.span(id, expression))?);
                    }
                    if let Some(index) = &mut pointer.index {
                        // The proof was about a value in a register. The frame is memory that a compiler bug
                        // elsewhere could have overwritten, so a reloaded index is checked again.
                        *index = Index { value: scalars.remove(0), is_proven: false, ..*index };
                    }
                    if spilled.is_memory_value { Operand::Memory(pointer) } else { Operand::Pointer(pointer) }
                }
            };
            self.activations[id].expressions.insert(expression, operand);
        }
        Ok(())
    }

    /// Clamps an offset that was reloaded from the frame to the object that it points into. No access may rely
    /// on a number in memory to stay in bounds.
    fn clamp_reloaded_offset(&mut self, pointer: &Pointer, dynamic_offset: Scalar, span: Span) -> Result<Scalar> {
        let size = match pointer.base {
            Base::Variable(_) => scalar_count(self.module, &pointer.inner),
            _ => pointer.inner.try_size(self.module.to_ctx()),
        };
        // The index that follows adds at most the offset of the last element; the member's offset comes on top.
        let last = match pointer.index.map(|index| (index.length, index.stride)) {
            Some((Length::Static(length), stride)) => length.saturating_sub(1).checked_mul(stride),
            Some((Length::Binding { .. }, _)) => None,
            None => Some(0),
        };
        let end = size.zip(last).and_then(|(size, last)| size.checked_add(last)?.checked_add(pointer.offset));
        let end = end.ok_or_else(|| CompileError::new(span, "expected a pointer into an object of known size"))?;
        // The clamped offset plus everything that follows it must end inside the object.
        let all = match pointer.base {
            Base::Variable(variable) => self.i32_const(self.variables.storage(variable).kinds.len() as i32),
            Base::Workgroup => self.i32_const(self.layout.workgroup_bytes.cast_signed()),
            Base::Binding(binding) => {
                let (_, bytes) = self.runtime.binding(&mut self.b, binding);
                self.b.ins().ireduce(types::I32, bytes)
            }
        };
        let end = self.i32_const(end.cast_signed());
        // Keeps the subtraction from wrapping, even if the binding is smaller than the type.
        let all = self.b.ins().umax(all, end);
        let most = self.b.ins().isub(all, end);
        Ok(self
            .map_all(Kind::U32, [dynamic_offset, Scalar::uniform(Kind::U32, most)], |e, [x, y]| e.b.ins().umin(x, y)))
    }

    /// Stores the written variables to the frame, where the next region reloads them.
    pub(crate) fn write_back(&mut self) {
        for variable in self.variables.take_dirty() {
            let storage = self.variables.storage(variable).clone();
            let Some(word) = storage.word else { continue };
            self.budget.cost += storage.registers.len() as u64;
            for (i, register) in storage.registers.iter().enumerate() {
                let scalar = self.get_register(*register, storage.varies, storage.kinds[i]);
                self.store_word(word + i as u32, scalar, storage.varies);
            }
        }
    }

    /// Records the value of an expression. Spills it if another region uses it, and stores it if control flow
    /// of the workgroup depends on it.
    pub(crate) fn define(&mut self, id: ActivationId, expression: Handle<Expression>, operand: Operand) -> Result<()> {
        if let Operand::Scalars(scalars) = &operand {
            self.record_condition(id, expression, scalars[0]);
        }
        if self.spills.is_spilled((id, expression)) {
            self.spill((id, expression), &operand)?;
        }
        self.activations[id].expressions.insert(expression, operand);
        Ok(())
    }

    /// Stores a value to workgroup memory if it is a condition of uniform control flow.
    pub(crate) fn record_condition(&mut self, id: ActivationId, expression: Handle<Expression>, scalar: Scalar) {
        if let Some(at) = self.spills.uniform_condition((id, expression)) {
            self.check_uniform_condition(scalar, self.span(id, expression));
            self.check_branch_taint(id, expression);
            self.store_uniform_condition(at, scalar);
        }
        if self.spills.is_divergent_condition((id, expression)) {
            self.check_branch_taint(id, expression);
        }
    }

    /// Stores an operand to new words of the frame.
    fn spill(&mut self, value: ValueId, operand: &Operand) -> Result<()> {
        let (scalars, pointer) = match operand {
            Operand::Scalars(scalars) => (scalars.clone(), None),
            Operand::Pointer(pointer) | Operand::Memory(pointer) => {
                let scalars =
                    pointer.dynamic_offset.into_iter().chain(pointer.index.map(|index| index.value)).collect();
                (scalars, Some(pointer.clone()))
            }
        };
        // Words are never reused for another value: the analysis knows live-ins of regions, but no live ranges.
        let first = self.layout.reserve(scalars.len(), self.span(value.0, value.1))?;
        let mut spilled = Vec::with_capacity(scalars.len());
        for (scalar, word) in scalars.into_iter().zip(first..) {
            // Keep the form: a reloaded linear index still gives a contiguous access.
            let form = match scalar.lanes {
                Lanes::Uniform(_) => SpilledForm::Uniform,
                Lanes::Linear(_, step) => SpilledForm::Linear(step),
                Lanes::Varying(_) => SpilledForm::Varying,
            };
            let scalar = match scalar.lanes {
                Lanes::Linear(base, _) => Scalar::uniform(scalar.kind, base),
                _ => scalar,
            };
            self.store_word(word, scalar, matches!(form, SpilledForm::Varying));
            spilled.push((scalar.kind, form, word));
        }
        let is_memory_value = matches!(operand, Operand::Memory(_));
        self.spills.slots.insert(value, Spilled { scalars: spilled, pointer, is_memory_value });
        Ok(())
    }

    /// Spills the result of a function; false if the function is not split at barriers.
    pub(crate) fn spill_result(&mut self, id: ActivationId, scalars: &[Scalar]) -> bool {
        for ((kind, varies, word), scalar) in self.group.result(id).to_vec().into_iter().zip(scalars) {
            // Lanes that returned earlier have their result in the word already.
            let old = |e: &mut Self| e.load_word(word, kind, true);
            let scalar = if varies { self.where_active(*scalar, old) } else { *scalar };
            self.store_word(word, scalar, varies);
        }
        self.group.is_split(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::SyncPoints;
    use crate::uniformity::{Scope, Uniformity};
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    #[test]
    fn live_ins_are_spilled_unless_suspended_for_a_subgroup_op() {
        let source = "var<workgroup> n: u32;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
                let x = i * 3u;
                let c = workgroupUniformLoad(&n) > 3u;
                if (c) { workgroupBarrier(); }
                n = x;
            }";
        let module = naga::front::wgsl::parse_str(source).unwrap();
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).unwrap();
        let uniformity = Uniformity::new(&module, &info, Scope::Gang(8));
        let regions = Regions::new(SyncPoints::barriers(&module), &uniformity);
        let mut spills = Spills::new(Some(&regions));
        let (x, c) = (*regions.spilled.first().unwrap(), *regions.uniform_conditions.first().unwrap());
        assert!(spills.is_spilled(x) && !spills.is_spilled(c) && !spills.is_divergent_condition(c));
        assert_eq!(spills.uniform_condition(c), None, "it has no place yet");
        spills.place_uniform_conditions(32);
        assert_eq!((spills.uniform_condition(c), spills.uniform_condition(x)), (Some(32), None));
        spills.is_suspended = true;
        assert!(!spills.is_spilled(x) && spills.uniform_condition(c).is_none());
        spills.is_suspended = false;
        assert!(spills.is_spilled(x) && !spills.slots.contains_key(&x));
        spills.slots.insert(
            x,
            Spilled { scalars: vec![(Kind::U32, SpilledForm::Varying, 5)], pointer: None, is_memory_value: false },
        );
        assert!(spills.slots.contains_key(&x));
        let last = regions.live_ins.len() - 1;
        spills.set_live_ins(spills.live_ins_of(last));
        assert!(spills.is_live_in(x) && !spills.is_live_in(c));
    }
}
