//! The running gang: a vector of invocations of a work-group that run together, or one invocation.

use super::lanes::{LANES, Lanes, Number};
use super::runtime::Runtime;
use crate::abi;
use crate::types::Kind;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::FunctionBuilder;

/// How work-groups are divided into gangs, and which one runs.
pub(crate) struct Gang {
    /// Invocations of a gang.
    pub(super) lanes: usize,
    workgroup_size: [u32; 3],
    /// The running work-group.
    pub(super) workgroup: [Value; 3],
    /// The number of the running gang in its work-group, and where its frame begins.
    pub(super) index: Value,
    pub(super) frame: Value,
}

impl Gang {
    /// Gangs of [`LANES`] invocations, or of one.
    pub(crate) fn new(workgroup_size: [u32; 3], one_by_one: bool, none: Value) -> Self {
        let lanes = if one_by_one || workgroup_size == [1; 3] { 1 } else { LANES };
        Self { lanes, workgroup_size, workgroup: [none; 3], index: none, frame: none }
    }

    pub(crate) fn is_vector(&self) -> bool {
        self.lanes > 1
    }

    pub(crate) fn invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }

    /// Gangs of a work-group.
    pub(crate) fn count(&self) -> u32 {
        self.invocations().div_ceil(self.lanes as u32)
    }

    /// Whether the last gang has lanes without an invocation.
    pub(crate) fn is_ragged(&self) -> bool {
        !self.invocations().is_multiple_of(self.lanes as u32)
    }

    /// From here on, this gang runs, whose frame is among those behind the memory of the work-group.
    pub(crate) fn begin(&mut self, b: &mut FunctionBuilder<'_>, runtime: &Runtime, group_bytes: u32, index: Value) {
        self.index = index;
        let bytes = runtime.field(b, types::I64, abi::FRAME_BYTES);
        let index = b.ins().uextend(types::I64, index);
        let at = b.ins().imul(index, bytes);
        let at = b.ins().iadd_imm_s(at, i64::from(group_bytes));
        let pointer = runtime.pointer;
        let at = if pointer == types::I64 { at } else { b.ins().ireduce(pointer, at) };
        self.frame = b.ins().iadd(runtime.scratch, at);
    }

    /// From here on, the subgroup of an invocation runs, until it ends and an invocation begins.
    pub(crate) fn begin_subgroup(&mut self, b: &mut FunctionBuilder<'_>, index: Value) {
        (self.lanes, self.index) = (LANES, b.ins().ushr_imm_u(index, i64::from(LANES.ilog2())));
    }

    pub(crate) fn end_subgroup(&mut self) {
        self.lanes = 1;
    }

    /// The number of the subgroup in its work-group.
    pub(crate) fn subgroup(&self, b: &mut FunctionBuilder<'_>) -> Value {
        if self.is_vector() { self.index } else { b.ins().ushr_imm_u(self.index, i64::from(LANES.ilog2())) }
    }

    /// The lane of each invocation in its subgroup.
    pub(crate) fn subgroup_lane(&self, b: &mut FunctionBuilder<'_>) -> Number {
        let first = if self.is_vector() {
            b.ins().iconst(types::I32, 0)
        } else {
            b.ins().band_imm_u(self.index, LANES as i64 - 1)
        };
        self.count_from(first)
    }

    /// From `first` on, one more in each lane.
    pub(crate) fn count_from(&self, first: Value) -> Number {
        let lanes = if self.is_vector() { Lanes::Steps(first, 1) } else { Lanes::Same(first) };
        Number { kind: Kind::U32, lanes }
    }

    /// `local_invocation_index` of the first invocation.
    pub(crate) fn first_invocation(&self, b: &mut FunctionBuilder<'_>) -> Value {
        b.ins().imul_imm_s(self.index, self.lanes as i64)
    }

    /// `local_invocation_index`.
    pub(crate) fn local_index(&self, b: &mut FunctionBuilder<'_>) -> Number {
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
        for (size, one_by_one, expected) in table {
            let gang = Gang::new(size, one_by_one, none);
            assert_eq!((gang.lanes, gang.count(), gang.is_ragged()), expected, "{size:?} {one_by_one}");
        }
    }

    #[test]
    fn an_invocation_alone_knows_its_subgroup_and_can_run_as_it() {
        with_builder(|b| {
            let index = b.ins().iconst(types::I32, 19);
            let mut gang = Gang { index, ..Gang::new([32, 1, 1], true, index) };
            assert!(gang.subgroup_lane(b).is_same() && gang.local_index(b).is_same());
            assert_ne!(gang.subgroup(b), index, "the invocation's number, divided");
            gang.begin_subgroup(b, index);
            assert!(gang.is_vector() && gang.subgroup(b) == gang.index);
            assert!(matches!(gang.local_index(b).lanes, Lanes::Steps(_, 1)));
            gang.end_subgroup();
            assert!(!gang.is_vector());
        });
    }
}
