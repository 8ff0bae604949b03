//! Values and variables that outlive a region: they are spilled to the frame, and reloaded in the regions that use them.

use super::lanes::{Lanes, Number};
use super::pointer::{Base, Index, Length, Pointer};
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::ActivationId;
use crate::regions::{Regions, ValueId};
use crate::types::{Kind, leaf_count};
use cranelift_codegen::ir::{InstBuilder, types};
use naga::{Expression, Handle, Span};
use std::collections::{BTreeSet, HashMap};

/// The lanes of a spilled number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Same,
    Steps(i32),
    Each,
}

/// Where an operand is spilled.
#[derive(Clone, Debug)]
pub(crate) struct Spilled {
    pub(crate) numbers: Vec<(Kind, Form, u32)>,
    pub(crate) pointer: Option<Pointer>,
    /// Whether the operand is what the pointer leads to.
    pub(crate) is_stored: bool,
}

/// The values that are spilled.
#[derive(Default)]
pub(crate) struct Spills<'m> {
    /// The program, where it is split at barriers.
    regions: Option<&'m Regions<'m>>,
    pub(super) slots: HashMap<ValueId, Spilled>,
    /// Where conditions of uniform control flow of the work-group are in its memory.
    decisions: HashMap<ValueId, u32>,
    /// The live-ins of the running region.
    live_ins: BTreeSet<ValueId>,
    /// Whether nothing is spilled, since an invocation runs as its whole subgroup.
    pub(super) is_suspended: bool,
}

impl<'m> Spills<'m> {
    pub(crate) fn new(regions: Option<&'m Regions<'m>>) -> Self {
        Self { regions, ..Self::default() }
    }

    /// The values that a region of the program takes from others.
    pub(crate) fn live_ins_of(&self, region: usize) -> &'m BTreeSet<ValueId> {
        &self.regions.expect("the program is split").live_ins[region]
    }

    /// Begins a region with these live-ins, or ends it with none.
    pub(crate) fn set_live_ins(&mut self, live_ins: &BTreeSet<ValueId>) {
        self.live_ins.clone_from(live_ins);
    }

    pub(crate) fn is_live_in(&self, value: ValueId) -> bool {
        self.live_ins.contains(&value)
    }

    /// Whether another region uses the value.
    pub(crate) fn is_spilled(&self, value: ValueId) -> bool {
        !self.is_suspended && self.regions.is_some_and(|regions| regions.spilled.contains(&value))
    }

    /// Whether the value is a condition of divergent control flow with subgroup operations in it.
    pub(crate) fn is_condition(&self, value: ValueId) -> bool {
        self.regions.is_some_and(|regions| regions.conditions.contains(&value))
    }

    /// Gives each decision of the work-group a word, from this byte of its memory on.
    pub(crate) fn place_decisions(&mut self, first: u32) {
        let decisions = self.regions.iter().flat_map(|regions| &regions.decisions);
        self.decisions = decisions.copied().zip((first..).step_by(4)).collect();
    }

    /// The byte of a decision of the work-group; `None` where the value is none.
    pub(crate) fn decision(&self, value: ValueId) -> Option<u32> {
        self.decisions.get(&value).copied().filter(|_| !self.is_suspended)
    }
}

impl Emitter<'_, '_> {
    /// Reloads what earlier regions left: variables, and live-ins.
    pub(crate) fn reload(&mut self, live_ins: &BTreeSet<ValueId>) -> Result<()> {
        self.forget_traces();
        for variable in self.variables.in_scope(|id| self.group.is_running(id)) {
            let home = self.variables.home(variable).clone();
            let Some(word) = home.word else { continue };
            // Each region does so: many variables and many barriers are more than either.
            self.budget.spend(home.registers.len(), self.b.func, self.here)?;
            for (place, register) in home.registers.iter().enumerate() {
                let number = self.load_word(word + place as u32, home.kinds[place], home.varies);
                self.set_register(*register, home.varies, number);
            }
        }
        self.reload_values(live_ins)
    }

    /// Reloads values that earlier regions computed.
    pub(crate) fn reload_values(&mut self, live_ins: &BTreeSet<ValueId>) -> Result<()> {
        for (id, expression) in live_ins.iter().copied() {
            let spilled = self.spills.slots.get(&(id, expression)).cloned();
            let spilled = spilled
                .ok_or_else(|| Refusal::new(self.span(id, expression), "expected a spilled value, found none"))?;
            let load = |e: &mut Self, (kind, form, word): &(Kind, Form, u32)| match form {
                Form::Same => e.load_word(*word, *kind, false),
                Form::Each => e.load_word(*word, *kind, true),
                Form::Steps(step) => {
                    let base = e.load_word(*word, *kind, false);
                    let base = e.lane(base, 0);
                    Number { kind: *kind, lanes: Lanes::Steps(base, *step) }
                }
            };
            let mut numbers: Vec<Number> = spilled.numbers.iter().map(|number| load(self, number)).collect();
            let operand = match spilled.pointer {
                None => Operand::Numbers(numbers),
                Some(mut pointer) => {
                    if pointer.moved.is_some() {
                        let moved = numbers.remove(0);
                        pointer.moved = Some(self.within(&pointer, moved, self.span(id, expression))?);
                    }
                    if let Some(index) = &mut pointer.index {
                        *index = Index { number: numbers.remove(0), is_proven: false, ..*index };
                    }
                    if spilled.is_stored { Operand::Stored(pointer) } else { Operand::Pointer(pointer) }
                }
            };
            self.activations[id].expressions.insert(expression, operand);
        }
        Ok(())
    }

    /// An offset that comes out of memory, as far as it leads at most: what keeps accesses inside is never a number that somebody wrote.
    fn within(&mut self, pointer: &Pointer, moved: Number, span: Span) -> Result<Number> {
        let size = match pointer.base {
            Base::Variable(_) => leaf_count(self.module, &pointer.inner),
            _ => pointer.inner.try_size(self.module.to_ctx()),
        };
        // Of the last element, where an index follows; the offset is that of a member in it, too.
        let last = match pointer.index.map(|index| (index.length, index.stride)) {
            Some((Length::Known(length), stride)) => length.saturating_sub(1).checked_mul(stride),
            Some((Length::Bound { .. }, _)) => None,
            None => Some(0),
        };
        let end = size.zip(last).and_then(|(size, last)| size.checked_add(last)?.checked_add(pointer.offset));
        let end = end.ok_or_else(|| Refusal::new(span, "expected a pointer into what has a known size"))?;
        let all = match pointer.base {
            Base::Variable(variable) => self.i32(self.variables.home(variable).kinds.len() as i32),
            Base::Shared => self.i32(self.layout.shared_bytes.cast_signed()),
            Base::Bound(place) => {
                let (_, bytes) = self.runtime.bound(&mut self.b, place);
                self.b.ins().ireduce(types::I32, bytes)
            }
        };
        let end = self.i32(end.cast_signed());
        let all = self.b.ins().umax(all, end);
        let most = self.b.ins().isub(all, end);
        Ok(self.map_all(Kind::U32, [moved, Number::same(Kind::U32, most)], |e, [x, y]| e.b.ins().umin(x, y)))
    }

    /// Writes variables that changed to the frame, where the next region finds them.
    pub(crate) fn write_back(&mut self) {
        for variable in self.variables.take_written() {
            let home = self.variables.home(variable).clone();
            let Some(word) = home.word else { continue };
            self.budget.cost += home.registers.len() as u64;
            for (place, register) in home.registers.iter().enumerate() {
                let number = self.get_register(*register, home.varies, home.kinds[place]);
                self.store_word(word + place as u32, number, home.varies);
            }
        }
    }

    /// Makes an operand known, and spills it where another region uses it or control flow of the work-group depends on it.
    pub(crate) fn define(&mut self, id: ActivationId, expression: Handle<Expression>, operand: Operand) -> Result<()> {
        if let Operand::Numbers(numbers) = &operand {
            self.note_decision(id, expression, numbers[0]);
        }
        if self.spills.is_spilled((id, expression)) {
            self.spill((id, expression), &operand)?;
        }
        self.activations[id].expressions.insert(expression, operand);
        Ok(())
    }

    /// Writes a value to the memory of the work-group where its control flow depends on it.
    pub(crate) fn note_decision(&mut self, id: ActivationId, expression: Handle<Expression>, number: Number) {
        if let Some(at) = self.spills.decision((id, expression)) {
            self.check_decision(number, self.span(id, expression));
            self.check_way(id, expression);
            self.decide(at, number);
        }
        if self.spills.is_condition((id, expression)) {
            self.check_way(id, expression);
        }
    }

    fn spill(&mut self, value: ValueId, operand: &Operand) -> Result<()> {
        let (numbers, pointer) = match operand {
            Operand::Numbers(numbers) => (numbers.clone(), None),
            Operand::Pointer(pointer) | Operand::Stored(pointer) => {
                let numbers = pointer.moved.into_iter().chain(pointer.index.map(|index| index.number)).collect();
                (numbers, Some(pointer.clone()))
            }
        };
        let first = self.layout.reserve(numbers.len(), self.span(value.0, value.1))?;
        let mut spilled = Vec::with_capacity(numbers.len());
        for (number, word) in numbers.into_iter().zip(first..) {
            let form = match number.lanes {
                Lanes::Same(_) => Form::Same,
                Lanes::Steps(_, step) => Form::Steps(step),
                Lanes::Each(_) => Form::Each,
            };
            let number = match number.lanes {
                Lanes::Steps(base, _) => Number::same(number.kind, base),
                _ => number,
            };
            self.store_word(word, number, matches!(form, Form::Each));
            spilled.push((number.kind, form, word));
        }
        let is_stored = matches!(operand, Operand::Stored(_));
        self.spills.slots.insert(value, Spilled { numbers: spilled, pointer, is_stored });
        Ok(())
    }

    /// Spills the result of a function that is split at barriers; false where it is not.
    pub(crate) fn spill_result(&mut self, id: ActivationId, numbers: &[Number]) -> bool {
        for ((kind, varies, word), number) in self.group.result(id).to_vec().into_iter().zip(numbers) {
            let old = |e: &mut Self| e.load_word(word, kind, true);
            let number = if varies { self.where_active(*number, old) } else { *number };
            self.store_word(word, number, varies);
        }
        self.group.is_split(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Analysis, Scope};
    use crate::regions::SyncPoints;
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    #[test]
    fn live_ins_are_spilled_unless_an_invocation_runs_as_its_subgroup() {
        let source = "var<workgroup> n: u32;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
                let x = i * 3u;
                let c = workgroupUniformLoad(&n) > 3u;
                if (c) { workgroupBarrier(); }
                n = x;
            }";
        let module = naga::front::wgsl::parse_str(source).unwrap();
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).unwrap();
        let analysis = Analysis::new(&module, &info, Scope::Vector(8));
        let regions = Regions::new(SyncPoints::barriers(&module), &analysis);
        let mut spills = Spills::new(Some(&regions));
        let (x, c) = (*regions.spilled.first().unwrap(), *regions.decisions.first().unwrap());
        assert!(spills.is_spilled(x) && !spills.is_spilled(c) && !spills.is_condition(c));
        assert_eq!(spills.decision(c), None, "it has no place yet");
        spills.place_decisions(32);
        assert_eq!((spills.decision(c), spills.decision(x)), (Some(32), None));
        spills.is_suspended = true;
        assert!(!spills.is_spilled(x) && spills.decision(c).is_none());
        spills.is_suspended = false;
        assert!(spills.is_spilled(x) && !spills.slots.contains_key(&x));
        spills.slots.insert(x, Spilled { numbers: vec![(Kind::U32, Form::Each, 5)], pointer: None, is_stored: false });
        assert!(spills.slots.contains_key(&x));
        let last = regions.live_ins.len() - 1;
        spills.set_live_ins(spills.live_ins_of(last));
        assert!(spills.is_live_in(x) && !spills.is_live_in(c));
    }
}
