//! The memory plan: values that are never needed at the same time share a slot.

use super::{Place, Plan, Source, Value};
use crate::graph::TensorType;

/// Gives each value that is not an output a slot.
///
/// A slot is free after the last step that reads its value, so that no step writes what it reads. The smallest free slot that is large enough
/// is taken; otherwise the largest free one grows, which adds less than a new one would.
pub(super) fn assign(plan: &mut Plan) {
    let last_reads = last_reads(plan);
    plan.slots.clear();
    // Until which step each slot is taken.
    let mut taken_until: Vec<usize> = Vec::new();
    let writers = writers(plan);
    for value in 0..plan.values.len() {
        if plan.values[value].place == Place::Own {
            continue;
        }
        let (bytes, written) = (plan.values[value].ty.bytes(), writers[value]);
        let free = |slot: &usize| taken_until[*slot] < written;
        let fitting = (0..plan.slots.len()).filter(free).filter(|&slot| plan.slots[slot] >= bytes);
        let slot = fitting
            .min_by_key(|&slot| plan.slots[slot])
            .or_else(|| (0..plan.slots.len()).filter(free).max_by_key(|&slot| plan.slots[slot]))
            .unwrap_or_else(|| {
                plan.slots.push(0);
                taken_until.push(0);
                plan.slots.len() - 1
            });
        plan.slots[slot] = plan.slots[slot].max(bytes);
        taken_until[slot] = last_reads[value].max(written);
        plan.values[value].place = Place::Slot(slot);
    }
}

/// The step that writes each value. A value without elements has no step, and counts as written where its users begin.
fn writers(plan: &Plan) -> Vec<usize> {
    let mut writers = vec![0; plan.values.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        writers[step.writes] = index;
    }
    // Values are numbered in the order of their steps.
    for value in 1..writers.len() {
        writers[value] = writers[value].max(writers[value - 1]);
    }
    writers
}

/// The last step that reads each value.
fn last_reads(plan: &Plan) -> Vec<usize> {
    let mut last = vec![0; plan.values.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        for read in &step.reads {
            if let Source::Value(value) = *read {
                last[value] = index;
            }
        }
    }
    last
}

impl Plan {
    /// For each value that has a buffer of its own, its number among them.
    pub fn own_values(&self) -> Vec<Option<usize>> {
        let mut own = 0..;
        let number = |value: &Value| if value.place == Place::Own { own.next() } else { None };
        self.values.iter().map(number).collect()
    }

    /// Bytes of all slots and of the outputs that are values: what a run allocates.
    pub fn peak_bytes(&self) -> u64 {
        let outputs = self.values.iter().filter(|value| value.place == Place::Own);
        self.slots.iter().sum::<u64>() + outputs.map(|value| value.ty.bytes()).sum::<u64>()
    }

    /// Bytes of all values: what a run would allocate if none shared memory.
    pub fn unshared_bytes(&self) -> u64 {
        self.values.iter().map(|value| value.ty.bytes()).sum()
    }

    /// Bytes of the values that are needed at the same time, where that is most: no plan of these steps allocates less.
    pub fn live_bytes(&self) -> u64 {
        let (writers, last_reads) = (writers(self), last_reads(self));
        let live_at = |step: usize| {
            let is_live = |&value: &usize| {
                writers[value] <= step
                    && (self.values[value].place == Place::Own || last_reads[value].max(writers[value]) >= step)
            };
            (0..self.values.len()).filter(is_live).map(|value| self.values[value].ty.bytes()).sum()
        };
        (0..self.steps.len()).map(live_at).max().unwrap_or(0)
    }
}

impl TensorType {
    /// Bytes of all elements without gaps.
    pub fn bytes(&self) -> u64 {
        self.shape.elem_count() as u64 * self.dtype.bytes() as u64
    }
}
