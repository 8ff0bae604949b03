//! Memory planning: values with disjoint lifetimes share a slot.

use super::{Place, Plan, Source, Value};
use crate::graph::TensorType;

/// Assigns a slot to each value that is not an output.
///
/// A slot is released after the last step that reads its value, so no step writes a slot that it reads. Best fit: the
/// smallest free slot that is large enough; otherwise the largest free slot grows, which adds less than a new one
/// would.
pub(super) fn assign(plan: &mut Plan) {
    let last_reads = last_reads(plan);
    plan.slots.clear();
    // The step until which each slot is in use.
    let mut taken_until: Vec<usize> = Vec::new();
    let writers = writers(plan);
    for value in 0..plan.values.len() {
        if plan.values[value].place == Place::Dedicated {
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
        // A value that nothing reads still occupies its slot while its step runs.
        taken_until[slot] = last_reads[value].max(written);
        plan.values[value].place = Place::Slot(slot);
    }
}

/// Returns the step that writes each value. An empty value has no step, and counts as written with the value before
/// it.
fn writers(plan: &Plan) -> Vec<usize> {
    let mut writers = vec![0; plan.values.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        writers[step.writes] = index;
    }
    // Values are numbered in step order.
    for value in 1..writers.len() {
        writers[value] = writers[value].max(writers[value - 1]);
    }
    writers
}

/// Returns the last step that reads each value.
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
    /// Returns, for each value with a dedicated buffer, its index among them.
    pub fn dedicated_values(&self) -> Vec<Option<usize>> {
        let mut own = 0..;
        let number = |value: &Value| if value.place == Place::Dedicated { own.next() } else { None };
        self.values.iter().map(number).collect()
    }

    /// Returns the bytes that a run allocates: all slots and the outputs that are values.
    pub fn peak_bytes(&self) -> u64 {
        let outputs = self.values.iter().filter(|value| value.place == Place::Dedicated);
        self.slots.iter().sum::<u64>() + outputs.map(|value| value.ty.bytes()).sum::<u64>()
    }

    /// Returns the bytes that a run would allocate if no values shared memory.
    pub fn unshared_bytes(&self) -> u64 {
        self.values.iter().map(|value| value.ty.bytes()).sum()
    }

    /// Returns the peak of live bytes: a lower bound of the memory of any plan of these steps.
    pub fn live_bytes(&self) -> u64 {
        let (writers, last_reads) = (writers(self), last_reads(self));
        let live_at = |step: usize| {
            let is_live = |&value: &usize| {
                writers[value] <= step
                    && (self.values[value].place == Place::Dedicated || last_reads[value].max(writers[value]) >= step)
            };
            (0..self.values.len()).filter(is_live).map(|value| self.values[value].ty.bytes()).sum()
        };
        (0..self.steps.len()).map(live_at).max().unwrap_or(0)
    }
}

impl TensorType {
    /// Returns the bytes of all elements without gaps.
    pub fn bytes(&self) -> u64 {
        self.shape.elem_count() as u64 * self.dtype.bytes() as u64
    }
}
