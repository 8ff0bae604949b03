//! Subgroup operations. A subgroup is a gang of [`LANES`]. With single-lane gangs it is as many consecutive
//! invocations, and each of them emulates the operation of the whole subgroup.

use super::lanes::{LANES, Scalar, VECTOR_LANES, VECTORS, vector_constant};
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::regions::ValueId;
use crate::types::Kind;
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value};
use naga::{CollectiveOperation, Expression, GatherMode, Handle, Span, Statement, SubgroupOperation};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    /// Emits `subgroupBallot`.
    pub(crate) fn ballot(
        &mut self,
        id: ActivationId,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
    ) -> Result<()> {
        let predicate = match predicate {
            Some(predicate) => self.scalar(id, predicate)?,
            None => self.constant(Kind::Bool, 1.0),
        };
        let (mask, predicate) = (self.control.lanes(&mut self.b), self.vectors(predicate));
        // Inactive lanes contribute 0.
        let both = std::array::from_fn(|part| self.b.ins().band(mask[part], predicate[part]));
        let bits = self.mask_bits(both);
        // A ballot has 128 bits, of which a subgroup of eight lanes uses the lowest eight.
        let zero = self.u32_uniform(0);
        self.define(id, result, Operand::Scalars(vec![Scalar::uniform(Kind::U32, bits), zero, zero, zero]))
    }

    /// Emits broadcasts, shuffles and quad operations.
    pub(crate) fn subgroup_gather(
        &mut self,
        id: ActivationId,
        mode: &GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let scalars = self.scalars(id, argument)?;
        if let GatherMode::BroadcastFirst = mode {
            let scalars = scalars.into_iter().map(|scalar| self.first_active(scalar)).collect();
            return self.define(id, result, Operand::Scalars(scalars));
        }
        let from = match mode {
            GatherMode::Broadcast(index) => {
                let index = self.scalar(id, *index)?;
                self.first_active(index)
            }
            _ => self.source_lanes(id, mode)?,
        };
        let scalars = scalars.into_iter().map(|scalar| self.shuffle_lanes(scalar, from)).collect();
        self.define(id, result, Operand::Scalars(scalars))
    }

    /// Returns the source lane of each lane.
    fn source_lanes(&mut self, id: ActivationId, mode: &GatherMode) -> Result<Scalar> {
        // Shuffles are relative to the own lane. Sources outside the subgroup wrap in `shuffle_lanes`.
        let lanes = self.lane_indices();
        let own = Scalar::varying(Kind::U32, lanes);
        Ok(match mode {
            GatherMode::Shuffle(index) => self.scalar(id, *index)?.with_kind(Kind::U32),
            GatherMode::ShuffleDown(by) => {
                let by = self.scalar(id, *by)?;
                self.add_int(own, by)
            }
            GatherMode::ShuffleUp(by) => {
                let by = self.scalar(id, *by)?;
                self.subtract(own, by)
            }
            GatherMode::ShuffleXor(with) => {
                let with = self.scalar(id, *with)?;
                self.map_all(Kind::U32, [own, with], |e, [x, y]| e.b.ins().bxor(x, y))
            }
            GatherMode::QuadBroadcast(index) => {
                let index = self.scalar(id, *index)?;
                let (mask, three) = (self.u32_uniform(!3), self.u32_uniform(3));
                let first = self.and(own, mask);
                let index = self.and(index.with_kind(Kind::U32), three);
                self.or(first, index)
            }
            GatherMode::QuadSwap(direction) => {
                // naga numbers the directions x, y, diagonal; within a quad they are xor with 1, 2 and 3.
                let with = self.u32_uniform(*direction as u32 + 1);
                self.map_all(Kind::U32, [own, with], |e, [x, y]| e.b.ins().bxor(x, y))
            }
            GatherMode::BroadcastFirst | GatherMode::Broadcast(_) => own,
        })
    }

    /// Returns the value that each lane reads from its source lane. Source lanes wrap at the size of the
    /// subgroup.
    fn shuffle_lanes(&mut self, scalar: Scalar, from: Scalar) -> Scalar {
        if scalar.is_uniform() {
            return scalar;
        }
        // `LANES` is a power of two. WGSL leaves the result for other source lanes open; it must not read
        // elsewhere.
        let last = self.u32_uniform(LANES as u32 - 1);
        let from = self.and(from.with_kind(Kind::U32), last);
        // A select per source lane: Cranelift has no shuffle with variable indices of 32-bit lanes.
        let mut picked = self.constant(scalar.kind, 0.0);
        for lane in 0..LANES {
            let (value, lane_index) = (self.lane(scalar, lane), self.u32_uniform(lane as u32));
            let is_here = self.compare_int(IntCC::Equal, from, lane_index);
            picked = self.select(is_here, Scalar::uniform(scalar.kind, value), picked);
        }
        picked
    }

    /// Returns the value of the first active lane, as a uniform scalar.
    fn first_active(&mut self, scalar: Scalar) -> Scalar {
        if scalar.is_uniform() {
            return scalar;
        }
        let picked = self.b.declare_var(super::lanes::scalar_type(scalar.kind));
        let first = self.lane(scalar, 0);
        self.b.def_var(picked, first);
        // From the last lane to the first, so that the first active one wins.
        let mask = self.control.lanes(&mut self.b);
        let bits = self.mask_bits(mask);
        for lane in (0..self.gang.lanes).rev() {
            let bit = self.b.ins().band_imm_s(bits, 1 << lane);
            let (value, known) = (self.lane(scalar, lane), self.b.use_var(picked));
            let value = self.b.ins().select(bit, value, known);
            self.b.def_var(picked, value);
        }
        let value = self.b.use_var(picked);
        Scalar::uniform(scalar.kind, value)
    }

    /// Emits a reduction or scan over the subgroup.
    pub(crate) fn subgroup_collective(
        &mut self,
        id: ActivationId,
        op: SubgroupOperation,
        how: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
        span: Span,
    ) -> Result<()> {
        let scalars = self.scalars(id, argument)?;
        let results = scalars.into_iter().map(|scalar| self.collect(op, how, scalar, span)).collect::<Result<_>>()?;
        self.define(id, result, Operand::Scalars(results))
    }

    /// Combines the lanes in order. Inactive lanes contribute the identity.
    fn collect(
        &mut self,
        op: SubgroupOperation,
        how: CollectiveOperation,
        scalar: Scalar,
        span: Span,
    ) -> Result<Scalar> {
        let identity = identity(op, scalar.kind).ok_or_else(|| {
            CompileError::new(span, format!("expected an operation on {:?}, found {op:?}", scalar.kind))
        })?;
        let identity = self.constant(scalar.kind, identity);
        let bits = self.active_bits();
        // In lane order, so that sums of floats are deterministic.
        let (mut sum, mut prefixes) = (identity, Vec::new());
        for lane in 0..self.gang.lanes {
            let value = self.lane(scalar, lane);
            let mut value = Scalar::uniform(scalar.kind, value);
            if let Some(bits) = bits {
                let bit = self.b.ins().band_imm_s(bits, 1 << lane);
                let is_here = self.b.ins().icmp_imm_s(IntCC::NotEqual, bit, 0);
                value = self.select(Scalar::uniform(Kind::Bool, is_here), value, identity);
            }
            if how == CollectiveOperation::ExclusiveScan {
                prefixes.push(self.lane(sum, 0));
            }
            sum = self.combine(op, sum, value);
            if how == CollectiveOperation::InclusiveScan {
                prefixes.push(self.lane(sum, 0));
            }
        }
        if how == CollectiveOperation::Reduce {
            return Ok(sum);
        }
        Ok(self.scalar_of_lanes(scalar.kind, &prefixes))
    }

    /// Emits one step of a reduction.
    fn combine(&mut self, op: SubgroupOperation, x: Scalar, y: Scalar) -> Scalar {
        match op {
            SubgroupOperation::All | SubgroupOperation::And => self.and(x, y),
            SubgroupOperation::Any | SubgroupOperation::Or => self.or(x, y),
            SubgroupOperation::Add => self.add(x, y),
            SubgroupOperation::Mul => self.multiply(x, y),
            SubgroupOperation::Min => self.minimum(x, y),
            SubgroupOperation::Max => self.maximum(x, y),
            SubgroupOperation::Xor => self.map_all(x.kind, [x, y], |e, [x, y]| e.b.ins().bxor(x, y)),
        }
    }

    /// Emits a subgroup operation for a single-lane gang. It loads the operands that all invocations of its
    /// subgroup spilled, computes the operation as a gang of [`LANES`], and takes the result of its own lane.
    pub(crate) fn subgroup_op(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        result: Handle<Expression>,
        span: Span,
        live_ins: &BTreeSet<ValueId>,
    ) -> Result<Vec<Scalar>> {
        let (own_index, active_word) = (self.gang.index, self.group.active_word(id));
        let lane = self.gang.subgroup_lane(&mut self.b);
        let first = self.b.ins().band_imm_u(own_index, !(LANES as i64 - 1) & 0xffff_ffff);
        // Phase 1: the operands of all invocations of the subgroup, from their frames.
        let (mut active_lanes, mut lane_values) = (Vec::new(), Vec::new());
        let count = self.gang.count().cast_signed();
        for lane in 0..LANES {
            let invocation = self.b.ins().iadd_imm_s(first, lane as i64);
            let (count, last) = (self.i32_const(count), self.i32_const(count - 1));
            let mut is_active = self.b.ins().icmp(IntCC::UnsignedLessThan, invocation, count);
            // The last subgroup may be partial. Clamp the index so that the load stays inside the frames; the
            // lane is inactive.
            let invocation = self.b.ins().umin(invocation, last);
            self.begin_gang(invocation);
            if let Some(active_word) = active_word {
                let is_set = self.load_flag(active_word);
                is_active = self.b.ins().band(is_active, is_set);
            }
            active_lanes.push(is_active);
            self.reload_values(live_ins)?;
            lane_values.push(
                live_ins.iter().map(|(id, expression)| self.scalars(*id, *expression)).collect::<Result<Vec<_>>>()?,
            );
        }
        // Phase 2: transpose them into vectors, as a gang of eight would hold them.
        for (i, (id, expression)) in live_ins.iter().enumerate() {
            let mut scalars = Vec::new();
            for component in 0..lane_values[0][i].len() {
                let lanes: Vec<Value> = lane_values.iter().map(|scalars| self.lane(scalars[i][component], 0)).collect();
                scalars.push(self.scalar_of_lanes(lane_values[0][i][component].kind, &lanes));
            }
            self.activations[*id].expressions.insert(*expression, Operand::Scalars(scalars));
        }
        let mask = self.scalar_of_lanes(Kind::Bool, &active_lanes);
        let mask = self.vectors(mask);
        // Phase 3: emit the operation as a gang. The results are temporary, so nothing is spilled.
        self.control.activate(&mut self.b, mask);
        self.spills.is_suspended = true;
        self.gang.begin_subgroup(&mut self.b, own_index);
        self.statement(id, statement, span)?;
        let subgroup_results = self.scalars(id, result)?;
        let has_nan_free_inputs = self.is_nan_free_sum(id, statement)?;
        // Phase 4: the result of the own lane.
        let own_results = subgroup_results.iter().map(|scalar| self.shuffle_lanes(*scalar, lane)).collect::<Vec<_>>();
        let mut own_results: Vec<Scalar> =
            own_results.into_iter().map(|scalar| Scalar::uniform(scalar.kind, self.lane(scalar, 0))).collect();
        // Back to the own invocation. Its frame, and its reloaded values, replace those of the subgroup.
        self.spills.is_suspended = false;
        self.gang.end_subgroup();
        self.begin_gang(own_index);
        self.reload_values(live_ins)?;
        if let Some(has_nan_free_inputs) = has_nan_free_inputs {
            self.mark_created_nan(&mut own_results, has_nan_free_inputs, &[], span);
        }
        Ok(own_results)
    }

    /// For the sanitizer: whether no active lane contributes NaN to a sum or product. `None` for other
    /// operations.
    fn is_nan_free_sum(&mut self, id: ActivationId, statement: &Statement) -> Result<Option<Value>> {
        let Statement::SubgroupCollectiveOperation {
            op: SubgroupOperation::Add | SubgroupOperation::Mul,
            argument,
            ..
        } = statement
        else {
            return Ok(None);
        };
        let scalars = self.scalars(id, *argument)?;
        if !self.options.sanitize || !scalars.iter().any(|scalar| scalar.kind.is_float()) {
            return Ok(None);
        }
        // Lanes that are inactive count as free of NaN.
        let mut nan_free = [vector_constant(&mut self.b, [-1; VECTOR_LANES]); VECTORS];
        for scalar in scalars {
            let parts = self.vectors(scalar);
            nan_free = std::array::from_fn(|part| {
                let is_number = self.b.ins().fcmp(FloatCC::Equal, parts[part], parts[part]);
                self.b.ins().band(nan_free[part], is_number)
            });
        }
        let mask = self.control.lanes(&mut self.b);
        let nan_free = std::array::from_fn(|part| self.b.ins().bor_not(nan_free[part], mask[part]));
        Ok(Some(self.all(nan_free)))
    }
}

/// Returns the identity of an operation; `None` if it does not apply to the kind.
fn identity(op: SubgroupOperation, kind: Kind) -> Option<f64> {
    Some(match (op, kind) {
        (SubgroupOperation::All, Kind::Bool) | (SubgroupOperation::Mul, _) => 1.0,
        (SubgroupOperation::Any | SubgroupOperation::Add | SubgroupOperation::Or | SubgroupOperation::Xor, _) => 0.0,
        (SubgroupOperation::And, Kind::I32) => -1.0,
        (SubgroupOperation::And | SubgroupOperation::Min, Kind::U32) => u32::MAX.into(),
        (SubgroupOperation::Min, Kind::F32 | Kind::F16) => f64::INFINITY,
        (SubgroupOperation::Max, Kind::F32 | Kind::F16) => f64::NEG_INFINITY,
        (SubgroupOperation::Min, Kind::I32) => i32::MAX.into(),
        (SubgroupOperation::Max, Kind::I32) => i32::MIN.into(),
        (SubgroupOperation::Max, Kind::U32) => 0.0,
        _ => return None,
    })
}
