//! The current gang: the invocations of a workgroup that run in lockstep, one per lane (the term is ISPC's).

use super::lanes::{LANES, Lanes, Scalar};
use super::runtime::Runtime;
use crate::abi;
use crate::types::Kind;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::FunctionBuilder;

/// Partition of a workgroup into gangs, and the gang whose code is being emitted.
pub(crate) struct Gang {
    /// Invocations per gang: [`LANES`] or 1.
    pub(super) lanes: usize,
    workgroup_size: [u32; 3],
    /// `workgroup_id` of the current workgroup.
    pub(super) workgroup: [Value; 3],
    /// Index of the current gang in its workgroup, and the address of its frame.
    pub(super) index: Value,
    pub(super) frame: Value,
}

impl Gang {
    /// Uses gangs of [`LANES`] invocations, or of one if asked to or if the workgroup has only one. `none` is a
    /// placeholder until [`begin`](Self::begin).
    pub(crate) fn new(workgroup_size: [u32; 3], single_lane: bool, none: Value) -> Self {
        // With one invocation per workgroup, seven of eight lanes would be masked off everywhere.
        let lanes = if single_lane || workgroup_size == [1; 3] { 1 } else { LANES };
        Self { lanes, workgroup_size, workgroup: [none; 3], index: none, frame: none }
    }

    /// Whether the gang has more than one lane.
    pub(crate) fn is_vector(&self) -> bool {
        self.lanes > 1
    }

    /// Invocations per workgroup.
    pub(crate) fn invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    /// Gangs per workgroup.
    pub(crate) fn count(&self) -> u32 {
        self.invocations().div_ceil(self.lanes as u32)
    }

    /// Whether the last gang has lanes without an invocation, which are masked off.
    pub(crate) fn has_partial_gang(&self) -> bool {
        !self.invocations().is_multiple_of(self.lanes as u32)
    }

    /// Switches to a gang. Frames follow workgroup memory in the scratch area.
    pub(crate) fn begin(&mut self, b: &mut FunctionBuilder<'_>, runtime: &Runtime, group_bytes: u32, index: Value) {
        self.index = index;
        // The stride comes from the call context because the frame size is known only after everything is
        // emitted.
        let bytes = runtime.field(b, types::I64, abi::FRAME_BYTES);
        let index = b.ins().uextend(types::I64, index);
        let at = b.ins().imul(index, bytes);
        let at = b.ins().iadd_imm_s(at, i64::from(group_bytes));
        let pointer = runtime.pointer;
        let at = if pointer == types::I64 { at } else { b.ins().ireduce(pointer, at) };
        self.frame = b.ins().iadd(runtime.scratch, at);
    }

    /// Switches to a whole subgroup, for a subgroup operation with single-lane gangs. `index` is an invocation
    /// of it.
    pub(crate) fn begin_subgroup(&mut self, b: &mut FunctionBuilder<'_>, index: Value) {
        // The index counts subgroups from here on: `first_invocation` multiplies it by the number of lanes.
        (self.lanes, self.index) = (LANES, b.ins().ushr_imm_u(index, i64::from(LANES.ilog2())));
    }

    /// Returns to single-lane gangs. The caller restores the gang with [`begin`](Self::begin).
    pub(crate) fn end_subgroup(&mut self) {
        self.lanes = 1;
    }

    /// Index of the subgroup in its workgroup.
    pub(crate) fn subgroup(&self, b: &mut FunctionBuilder<'_>) -> Value {
        if self.is_vector() { self.index } else { b.ins().ushr_imm_u(self.index, i64::from(LANES.ilog2())) }
    }

    /// Lane of each invocation in its subgroup.
    pub(crate) fn subgroup_lane(&self, b: &mut FunctionBuilder<'_>) -> Scalar {
        let first = if self.is_vector() {
            b.ins().iconst(types::I32, 0)
        } else {
            b.ins().band_imm_u(self.index, LANES as i64 - 1)
        };
        self.count_from(first)
    }

    /// `first` plus the lane index.
    pub(crate) fn count_from(&self, first: Value) -> Scalar {
        let lanes = if self.is_vector() { Lanes::Linear(first, 1) } else { Lanes::Uniform(first) };
        Scalar { kind: Kind::U32, lanes }
    }

    /// `local_invocation_index` of lane 0.
    pub(crate) fn first_invocation(&self, b: &mut FunctionBuilder<'_>) -> Value {
        b.ins().imul_imm_s(self.index, self.lanes as i64)
    }

    /// `local_invocation_index` of each lane.
    pub(crate) fn local_index(&self, b: &mut FunctionBuilder<'_>) -> Scalar {
        let first = self.first_invocation(b);
        self.count_from(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::tests::with_builder;

    #[test]
    fn work_groups_are_divided_into_gangs() {
        let none = Value::from_u32(0);
        let table = [
            ([1, 1, 1], false, (1, 1, false)),
            ([2, 1, 1], false, (8, 1, true)),
            ([8, 1, 1], false, (8, 1, false)),
            ([5, 5, 1], false, (8, 4, true)),
            ([4, 4, 4], false, (8, 8, false)),
            ([5, 5, 1], true, (1, 25, false)),
        ];
        for (size, single_lane, expected) in table {
            let gang = Gang::new(size, single_lane, none);
            assert_eq!((gang.lanes, gang.count(), gang.has_partial_gang()), expected, "{size:?} {single_lane}");
        }
    }

    #[test]
    fn a_single_lane_gang_can_run_as_its_subgroup() {
        with_builder(|b| {
            let index = b.ins().iconst(types::I32, 19);
            let mut gang = Gang { index, ..Gang::new([32, 1, 1], true, index) };
            assert!(gang.subgroup_lane(b).is_uniform() && gang.local_index(b).is_uniform());
            assert_ne!(gang.subgroup(b), index, "the invocation's number, divided");
            gang.begin_subgroup(b, index);
            assert!(gang.is_vector() && gang.subgroup(b) == gang.index);
            assert!(matches!(gang.local_index(b).lanes, Lanes::Linear(_, 1)));
            gang.end_subgroup();
            assert!(!gang.is_vector());
        });
    }
}
