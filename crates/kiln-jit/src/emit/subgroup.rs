//! Subgroups: a vector of invocations is one. Where invocations run one by one, as many of them are.

use super::lanes::{LANES, Number, PART, PARTS, vector_constant};
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::ActivationId;
use crate::regions::ValueId;
use crate::types::Kind;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value};
use naga::{CollectiveOperation, Expression, GatherMode, Handle, Span, Statement, SubgroupOperation};
use std::collections::BTreeSet;

impl<'m> Emitter<'m, '_> {
    pub(crate) fn ballot(
        &mut self,
        id: ActivationId,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
    ) -> Result<()> {
        let predicate = match predicate {
            Some(predicate) => self.number(id, predicate)?,
            None => self.constant(Kind::Bool, 1.0),
        };
        let (mask, predicate) = (self.control.lanes(&mut self.b), self.parts(predicate));
        let both = std::array::from_fn(|part| self.b.ins().band(mask[part], predicate[part]));
        let bits = self.mask_bits(both);
        let zero = self.u32_same(0);
        self.define(id, result, Operand::Numbers(vec![Number::same(Kind::U32, bits), zero, zero, zero]))
    }

    pub(crate) fn gather_lanes(
        &mut self,
        id: ActivationId,
        mode: &GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let numbers = self.numbers(id, argument)?;
        if let GatherMode::BroadcastFirst = mode {
            let numbers = numbers.into_iter().map(|number| self.first_active(number)).collect();
            return self.define(id, result, Operand::Numbers(numbers));
        }
        let from = match mode {
            GatherMode::Broadcast(index) => {
                let index = self.number(id, *index)?;
                self.first_active(index)
            }
            _ => self.source_lanes(id, mode)?,
        };
        let numbers = numbers.into_iter().map(|number| self.pick_lanes(number, from)).collect();
        self.define(id, result, Operand::Numbers(numbers))
    }

    /// The lane that each takes its value from.
    fn source_lanes(&mut self, id: ActivationId, mode: &GatherMode) -> Result<Number> {
        let lanes = self.lane_indices();
        let own = Number::each(Kind::U32, lanes);
        Ok(match mode {
            GatherMode::Shuffle(index) => self.number(id, *index)?.with_kind(Kind::U32),
            GatherMode::ShuffleDown(by) => {
                let by = self.number(id, *by)?;
                self.add_int(own, by)
            }
            GatherMode::ShuffleUp(by) => {
                let by = self.number(id, *by)?;
                self.subtract(own, by)
            }
            GatherMode::ShuffleXor(with) => {
                let with = self.number(id, *with)?;
                self.map_all(Kind::U32, [own, with], |e, [x, y]| e.b.ins().bxor(x, y))
            }
            GatherMode::QuadBroadcast(index) => {
                let index = self.number(id, *index)?;
                let (mask, three) = (self.u32_same(!3), self.u32_same(3));
                let first = self.and(own, mask);
                let index = self.and(index.with_kind(Kind::U32), three);
                self.or(first, index)
            }
            GatherMode::QuadSwap(direction) => {
                let with = self.u32_same(*direction as u32 + 1);
                self.map_all(Kind::U32, [own, with], |e, [x, y]| e.b.ins().bxor(x, y))
            }
            GatherMode::BroadcastFirst | GatherMode::Broadcast(_) => own,
        })
    }

    /// What each finds in the lane that it names, all of which are within the vector.
    fn pick_lanes(&mut self, number: Number, from: Number) -> Number {
        if number.is_same() {
            return number;
        }
        let last = self.u32_same(LANES as u32 - 1);
        let from = self.and(from.with_kind(Kind::U32), last);
        let mut picked = self.constant(number.kind, 0.0);
        for lane in 0..LANES {
            let (value, place) = (self.lane(number, lane), self.u32_same(lane as u32));
            let is_here = self.compare_int(IntCC::Equal, from, place);
            picked = self.select(is_here, Number::same(number.kind, value), picked);
        }
        picked
    }

    /// A number that is the same for all, from its lanes where it is not.
    fn first_active(&mut self, number: Number) -> Number {
        if number.is_same() {
            return number;
        }
        let picked = self.b.declare_var(super::lanes::scalar_type(number.kind));
        let first = self.lane(number, 0);
        self.b.def_var(picked, first);
        // From the last to the first, so that the first one's stays.
        let mask = self.control.lanes(&mut self.b);
        let bits = self.mask_bits(mask);
        for lane in (0..self.gang.lanes).rev() {
            let bit = self.b.ins().band_imm_s(bits, 1 << lane);
            let (value, known) = (self.lane(number, lane), self.b.use_var(picked));
            let value = self.b.ins().select(bit, value, known);
            self.b.def_var(picked, value);
        }
        let value = self.b.use_var(picked);
        Number::same(number.kind, value)
    }

    pub(crate) fn collect_lanes(
        &mut self,
        id: ActivationId,
        op: SubgroupOperation,
        how: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
        span: Span,
    ) -> Result<()> {
        let numbers = self.numbers(id, argument)?;
        let results = numbers.into_iter().map(|number| self.collect(op, how, number, span)).collect::<Result<_>>()?;
        self.define(id, result, Operand::Numbers(results))
    }

    /// One lane after the other; inactive ones add nothing.
    fn collect(
        &mut self,
        op: SubgroupOperation,
        how: CollectiveOperation,
        number: Number,
        span: Span,
    ) -> Result<Number> {
        let neutral = neutral(op, number.kind)
            .ok_or_else(|| Refusal::new(span, format!("expected an operation on {:?}, found {op:?}", number.kind)))?;
        let neutral = self.constant(number.kind, neutral);
        let bits = self.active_bits();
        let (mut sum, mut prefixes) = (neutral, Vec::new());
        for lane in 0..self.gang.lanes {
            let value = self.lane(number, lane);
            let mut value = Number::same(number.kind, value);
            if let Some(bits) = bits {
                let bit = self.b.ins().band_imm_s(bits, 1 << lane);
                let is_here = self.b.ins().icmp_imm_s(IntCC::NotEqual, bit, 0);
                value = self.select(Number::same(Kind::Bool, is_here), value, neutral);
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
        Ok(self.of_lanes(number.kind, &prefixes))
    }

    fn combine(&mut self, op: SubgroupOperation, x: Number, y: Number) -> Number {
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

    /// The result of a subgroup operation for an invocation that runs alone: it computes those of the whole subgroup, of the values
    /// that all its invocations spilled, and takes its own.
    pub(crate) fn subgroup_op(
        &mut self,
        id: ActivationId,
        statement: &'m Statement,
        result: Handle<Expression>,
        span: Span,
        live_ins: &BTreeSet<ValueId>,
    ) -> Result<Vec<Number>> {
        let (own, live) = (self.gang.index, self.group.live(id));
        let lane = self.gang.subgroup_lane(&mut self.b);
        let first = self.b.ins().band_imm_u(own, !(LANES as i64 - 1) & 0xffff_ffff);
        let (mut is_here, mut fetched) = (Vec::new(), Vec::new());
        let count = self.gang.count().cast_signed();
        for lane in 0..LANES {
            let number = self.b.ins().iadd_imm_s(first, lane as i64);
            let (count, last) = (self.i32(count), self.i32(count - 1));
            let mut is_active = self.b.ins().icmp(IntCC::UnsignedLessThan, number, count);
            // The last subgroup may have fewer, who are there.
            let number = self.b.ins().umin(number, last);
            self.begin_gang(number);
            if let Some(live) = live {
                let is_live = self.load_flag(live);
                is_active = self.b.ins().band(is_active, is_live);
            }
            is_here.push(is_active);
            self.reload_values(live_ins)?;
            fetched.push(
                live_ins.iter().map(|(id, expression)| self.numbers(*id, *expression)).collect::<Result<Vec<_>>>()?,
            );
        }
        for (place, (id, expression)) in live_ins.iter().enumerate() {
            let mut numbers = Vec::new();
            for scalar in 0..fetched[0][place].len() {
                let lanes: Vec<Value> = fetched.iter().map(|numbers| self.lane(numbers[place][scalar], 0)).collect();
                numbers.push(self.of_lanes(fetched[0][place][scalar].kind, &lanes));
            }
            self.activations[*id].expressions.insert(*expression, Operand::Numbers(numbers));
        }
        let mask = self.of_lanes(Kind::Bool, &is_here);
        let mask = self.parts(mask);
        // As a vector, whose results are not spilled.
        self.control.activate(&mut self.b, mask);
        self.spills.is_suspended = true;
        self.gang.begin_subgroup(&mut self.b, own);
        self.statement(id, statement, span)?;
        let together = self.numbers(id, result)?;
        let is_clean = self.is_sum_of_numbers(id, statement)?;
        let taken = together.iter().map(|number| self.pick_lanes(*number, lane)).collect::<Vec<_>>();
        let mut taken: Vec<Number> =
            taken.into_iter().map(|number| Number::same(number.kind, self.lane(number, 0))).collect();
        self.spills.is_suspended = false;
        self.gang.end_subgroup();
        self.begin_gang(own);
        self.reload_values(live_ins)?;
        if let Some(is_clean) = is_clean {
            self.mark_made(&mut taken, is_clean, &[], span);
        }
        Ok(taken)
    }

    /// For the sanitizer: whether no active invocation brings NaN to a sum or product; `None` where it is no such operation.
    fn is_sum_of_numbers(&mut self, id: ActivationId, statement: &Statement) -> Result<Option<Value>> {
        let Statement::SubgroupCollectiveOperation {
            op: SubgroupOperation::Add | SubgroupOperation::Mul,
            argument,
            ..
        } = statement
        else {
            return Ok(None);
        };
        let numbers = self.numbers(id, *argument)?;
        if !self.options.sanitize || !numbers.iter().any(|number| number.kind.is_float()) {
            return Ok(None);
        }
        let mut clean = [vector_constant(&mut self.b, [-1; PART]); PARTS];
        for number in numbers {
            let parts = self.parts(number);
            clean = std::array::from_fn(|part| {
                let is_number = self.b.ins().fcmp(FloatCC::Equal, parts[part], parts[part]);
                self.b.ins().band(clean[part], is_number)
            });
        }
        let mask = self.control.lanes(&mut self.b);
        let clean = std::array::from_fn(|part| self.b.ins().bor_not(clean[part], mask[part]));
        Ok(Some(self.all(clean)))
    }
}

/// The neutral element of an operation; `None` where it has no such operands.
fn neutral(op: SubgroupOperation, kind: Kind) -> Option<f64> {
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
