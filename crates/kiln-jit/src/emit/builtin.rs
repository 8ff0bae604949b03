//! Builtins and arguments: who an invocation is.

use super::lanes::{LANES, Number, PART, PARTS, vector_constant};
use super::{Emitter, Operand, Result};
use crate::analysis::ActivationId;
use crate::types::Kind;
use crate::{Refusal, abi};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Binding, BuiltIn, Span, TypeInner};

impl Emitter<'_, '_> {
    /// What an argument is: a builtin of the entry point, or what the caller gives.
    pub(crate) fn argument(&mut self, id: ActivationId, index: u32) -> Result<Operand> {
        let activation = &self.analysis.activations[id];
        if let Some((caller, arguments)) = activation.caller {
            if self.group.is_split(id) {
                return self.operand(caller, arguments[index as usize]);
            }
            return Ok(self.activations[id].arguments[index as usize].clone());
        }
        let argument = &activation.function.arguments[index as usize];
        let refuse = |binding: Option<&Binding>| {
            Refusal::new(Span::UNDEFINED, format!("expected a builtin of a compute kernel, found {binding:?}"))
        };
        let bindings: Vec<Option<&Binding>> = match &self.module.types[argument.ty].inner {
            TypeInner::Struct { members, .. } => members.iter().map(|member| member.binding.as_ref()).collect(),
            _ => vec![argument.binding.as_ref()],
        };
        let mut numbers = Vec::new();
        for binding in bindings {
            let Some(Binding::BuiltIn(builtin)) = binding else { return Err(refuse(binding)) };
            numbers.extend(self.builtin(*builtin).ok_or_else(|| refuse(binding))?);
        }
        Ok(Operand::Numbers(numbers))
    }

    fn builtin(&mut self, builtin: BuiltIn) -> Option<Vec<Number>> {
        let size = self.module.entry_points[0].workgroup_size;
        let same = |value| Number::same(Kind::U32, value);
        Some(match builtin {
            BuiltIn::LocalInvocationIndex => vec![self.gang.local_index(&mut self.b)],
            BuiltIn::LocalInvocationId => self.local_id().to_vec(),
            BuiltIn::GlobalInvocationId => {
                let local = self.local_id();
                let component = |axis: usize| {
                    let first = self.b.ins().imul_imm_s(self.gang.workgroup[axis], i64::from(size[axis]));
                    self.add_int(same(first), local[axis])
                };
                [0, 1, 2].map(component).to_vec()
            }
            BuiltIn::WorkGroupId => self.gang.workgroup.map(same).to_vec(),
            BuiltIn::NumWorkGroups => self.workgroup_counts().map(same).to_vec(),
            BuiltIn::WorkGroupSize => size.map(|size| self.u32_same(size)).to_vec(),
            BuiltIn::SubgroupSize => vec![self.u32_same(LANES as u32)],
            BuiltIn::SubgroupId => vec![same(self.gang.subgroup(&mut self.b))],
            BuiltIn::NumSubgroups => vec![self.u32_same(self.gang.invocations().div_ceil(LANES as u32))],
            BuiltIn::SubgroupInvocationId => vec![self.gang.subgroup_lane(&mut self.b)],
            _ => return None,
        })
    }

    fn local_id(&mut self) -> [Number; 3] {
        let [x, y, _] = self.module.entry_points[0].workgroup_size;
        if (x as usize).is_multiple_of(self.gang.lanes) {
            let first = self.gang.first_invocation(&mut self.b);
            let row = self.b.ins().udiv_imm_u(first, i64::from(x));
            let column = self.b.ins().urem_imm_u(first, i64::from(x));
            let (layer, row) = (self.b.ins().udiv_imm_u(row, i64::from(y)), self.b.ins().urem_imm_u(row, i64::from(y)));
            return [self.gang.count_from(column), Number::same(Kind::U32, row), Number::same(Kind::U32, layer)];
        }
        let index = self.gang.local_index(&mut self.b);
        let (row, column) = self.divide_small(index, x);
        let (layer, row) = self.divide_small(row, y);
        [column, row, layer]
    }

    /// Quotient and rest of numbers of invocations, which singles hold exactly.
    fn divide_small(&mut self, number: Number, by: u32) -> (Number, Number) {
        let quotient = self.map(Kind::U32, number, |e, x| {
            let ty = if e.is_vector(x) { types::F32X4 } else { types::F32 };
            let float = e.b.ins().fcvt_from_sint(ty, x);
            let (half, share) = (e.float_like(float, 0.5), e.float_like(float, 1.0 / by as f32));
            // In the middle of the step, so that rounding does not matter.
            let middle = e.b.ins().fadd(float, half);
            let quotient = e.b.ins().fmul(middle, share);
            let ty = if e.is_vector(quotient) { types::I32X4 } else { types::I32 };
            e.b.ins().fcvt_to_sint_sat(ty, quotient)
        });
        let by = self.u32_same(by);
        let product = self.multiply_int(quotient, by);
        (quotient, self.subtract(number, product))
    }

    /// The lanes of the first four and the last four invocations, counted from zero.
    pub(crate) fn lane_indices(&mut self) -> [Value; PARTS] {
        std::array::from_fn(|part| {
            vector_constant(&mut self.b, std::array::from_fn(|lane| (part * PART + lane) as i32))
        })
    }

    pub(crate) fn workgroup_counts(&mut self) -> [Value; 3] {
        std::array::from_fn(|axis| self.runtime.field(&mut self.b, types::I32, abi::WORKGROUPS + 4 * axis as i32))
    }
}
