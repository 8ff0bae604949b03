//! Builtins of the entry point, and function arguments.

use super::lanes::{LANES, Scalar, VECTOR_LANES, VECTORS, vector_constant};
use super::{Emitter, Operand, Result};
use crate::types::Kind;
use crate::uniformity::ActivationId;
use crate::{CompileError, abi};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Binding, BuiltIn, Span, TypeInner};

impl Emitter<'_, '_> {
    /// Returns an argument: builtins for the entry point, otherwise the caller's operand.
    pub(crate) fn argument(&mut self, id: ActivationId, index: u32) -> Result<Operand> {
        let activation = &self.uniformity.activations[id];
        if let Some((caller, arguments)) = activation.caller {
            // In a split function the caller's value may have been reloaded since the call, so it is looked up
            // again.
            if self.group.is_split(id) {
                return self.operand(caller, arguments[index as usize]);
            }
            return Ok(self.activations[id].arguments[index as usize].clone());
        }
        let argument = &activation.function.arguments[index as usize];
        let unsupported = |binding: Option<&Binding>| {
            CompileError::new(Span::UNDEFINED, format!("expected a builtin of a compute kernel, found {binding:?}"))
        };
        let bindings: Vec<Option<&Binding>> = match &self.module.types[argument.ty].inner {
            TypeInner::Struct { members, .. } => members.iter().map(|member| member.binding.as_ref()).collect(),
            _ => vec![argument.binding.as_ref()],
        };
        let mut scalars = Vec::new();
        for binding in bindings {
            let Some(Binding::BuiltIn(builtin)) = binding else { return Err(unsupported(binding)) };
            scalars.extend(self.builtin(*builtin).ok_or_else(|| unsupported(binding))?);
        }
        Ok(Operand::Scalars(scalars))
    }

    /// Returns the scalars of a builtin; `None` if it is not available in compute.
    fn builtin(&mut self, builtin: BuiltIn) -> Option<Vec<Scalar>> {
        let size = self.module.entry_points[0].workgroup_size;
        let same = |value| Scalar::uniform(Kind::U32, value);
        Some(match builtin {
            BuiltIn::LocalInvocationIndex => vec![self.gang.local_index(&mut self.b)],
            BuiltIn::LocalInvocationId => self.local_id().to_vec(),
            BuiltIn::GlobalInvocationId => {
                let local = self.local_id();
                // `workgroup_id * workgroup_size + local_invocation_id`. It stays linear along x, so that
                // `x[id.x]` is a contiguous access.
                let component = |axis: usize| {
                    let first = self.b.ins().imul_imm_s(self.gang.workgroup[axis], i64::from(size[axis]));
                    self.add_int(same(first), local[axis])
                };
                [0, 1, 2].map(component).to_vec()
            }
            BuiltIn::WorkGroupId => self.gang.workgroup.map(same).to_vec(),
            BuiltIn::NumWorkGroups => self.workgroup_counts().map(same).to_vec(),
            BuiltIn::WorkGroupSize => size.map(|size| self.u32_uniform(size)).to_vec(),
            // Constant, also with single-lane gangs: results must not depend on how invocations are scheduled.
            BuiltIn::SubgroupSize => vec![self.u32_uniform(LANES as u32)],
            BuiltIn::SubgroupId => vec![same(self.gang.subgroup(&mut self.b))],
            BuiltIn::NumSubgroups => vec![self.u32_uniform(self.gang.invocations().div_ceil(LANES as u32))],
            BuiltIn::SubgroupInvocationId => vec![self.gang.subgroup_lane(&mut self.b)],
            _ => return None,
        })
    }

    /// Returns `local_invocation_id`.
    fn local_id(&mut self) -> [Scalar; 3] {
        let [x, y, _] = self.module.entry_points[0].workgroup_size;
        // A gang is within one row, so only x varies and the divisions are scalar.
        if (x as usize).is_multiple_of(self.gang.lanes) {
            let first = self.gang.first_invocation(&mut self.b);
            let row = self.b.ins().udiv_imm_u(first, i64::from(x));
            let column = self.b.ins().urem_imm_u(first, i64::from(x));
            let (layer, row) = (self.b.ins().udiv_imm_u(row, i64::from(y)), self.b.ins().urem_imm_u(row, i64::from(y)));
            return [self.gang.count_from(column), Scalar::uniform(Kind::U32, row), Scalar::uniform(Kind::U32, layer)];
        }
        let index = self.gang.local_index(&mut self.b);
        let (row, column) = self.divide_small(index, x);
        let (layer, row) = self.divide_small(row, y);
        [column, row, layer]
    }

    /// Divides an invocation index, which `f32` holds exactly, by a constant. Returns quotient and remainder.
    /// Cranelift has no vector integer division.
    fn divide_small(&mut self, scalar: Scalar, by: u32) -> (Scalar, Scalar) {
        let quotient = self.map(Kind::U32, scalar, |e, x| {
            let ty = if e.is_vector(x) { types::F32X4 } else { types::F32 };
            let float = e.b.ins().fcvt_from_sint(ty, x);
            let (half, share) = (e.f32_like(float, 0.5), e.f32_like(float, 1.0 / by as f32));
            // Half a step away from both neighbours, the rounding error of the product (at most 2^-13 for
            // indices below 1024) cannot reach the next integer.
            let middle = e.b.ins().fadd(float, half);
            let quotient = e.b.ins().fmul(middle, share);
            let ty = if e.is_vector(quotient) { types::I32X4 } else { types::I32 };
            e.b.ins().fcvt_to_sint_sat(ty, quotient)
        });
        let by = self.u32_uniform(by);
        let product = self.multiply_int(quotient, by);
        (quotient, self.subtract(scalar, product))
    }

    /// Returns the lane indices 0 to 7.
    pub(crate) fn lane_indices(&mut self) -> [Value; VECTORS] {
        std::array::from_fn(|part| {
            vector_constant(&mut self.b, std::array::from_fn(|lane| (part * VECTOR_LANES + lane) as i32))
        })
    }

    /// Returns `num_workgroups`.
    pub(crate) fn workgroup_counts(&mut self) -> [Value; 3] {
        std::array::from_fn(|axis| self.runtime.field(&mut self.b, types::I32, abi::WORKGROUPS + 4 * axis as i32))
    }
}
