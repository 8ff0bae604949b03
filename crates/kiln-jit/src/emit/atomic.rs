//! Atomics: one invocation after the other. A work-group runs on one thread, so its own memory needs no locked instruction.

use super::lanes::flags;
use super::pointer::Base;
use super::{Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::ActivationId;
use crate::sanitize::site::Use;
use crate::types::{Kind, pointee};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, Value, types};
use naga::{AtomicFunction, Expression, Handle, Span, TypeInner};

impl Emitter<'_, '_> {
    pub(crate) fn atomic(
        &mut self,
        id: ActivationId,
        pointer: Handle<Expression>,
        fun: &AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
        span: Span,
    ) -> Result<()> {
        let inner = pointee(self.module, &self.inner(id, pointer));
        let kind = match inner {
            Some(TypeInner::Atomic(scalar)) => Kind::of(scalar).filter(|kind| matches!(kind, Kind::I32 | Kind::U32)),
            _ => None,
        };
        let kind = kind.ok_or_else(|| Refusal::new(span, "expected an atomic integer of 32 bits"))?;
        let pointer = self.pointer(id, pointer)?;
        self.trace_store(id, &pointer, value, span)?;
        let value = self.number(id, value)?;
        let compare = match fun {
            AtomicFunction::Exchange { compare: Some(compare) } => Some(self.number(id, *compare)?),
            _ => None,
        };
        self.check_access(&pointer, Use::Atomic, span)?;
        let is_shared = matches!(pointer.base, Base::Shared);
        let addresses = self.addresses(&pointer);
        // What each saw there before; in registers of its own, since not all may be active.
        let seen: Vec<_> = addresses.iter().map(|_| self.b.declare_var(types::I32)).collect();
        let zero = self.i32(0);
        seen.iter().for_each(|seen| self.b.def_var(*seen, zero));
        self.for_each_active(&mut |e, lane| {
            let (address, value) = (addresses[lane], e.lane(value, lane));
            let old = match compare {
                Some(compare) => {
                    let compare = e.lane(compare, lane);
                    e.exchange_if(address, compare, value, is_shared)
                }
                None => e.change(address, fun, kind, value, is_shared),
            };
            e.b.def_var(seen[lane], old);
        });
        let Some(result) = result else { return Ok(()) };
        let lanes: Vec<Value> = seen.iter().map(|seen| self.b.use_var(*seen)).collect();
        let old = self.of_lanes(kind, &lanes);
        let numbers = match compare {
            None => vec![old],
            Some(compare) => vec![old, self.compare_int(IntCC::Equal, old, compare)],
        };
        self.define(id, result, Operand::Numbers(numbers))
    }

    fn exchange_if(&mut self, address: Value, compare: Value, value: Value, is_shared: bool) -> Value {
        if !is_shared {
            return self.b.ins().atomic_cas(flags().with_aligned(), address, compare, value);
        }
        let old = self.b.ins().load(types::I32, flags(), address, 0);
        let is_equal = self.b.ins().icmp(IntCC::Equal, old, compare);
        let new = self.b.ins().select(is_equal, value, old);
        self.b.ins().store(flags(), new, address, 0);
        old
    }

    fn change(&mut self, address: Value, fun: &AtomicFunction, kind: Kind, value: Value, is_shared: bool) -> Value {
        let op = match (fun, kind) {
            (AtomicFunction::Add, _) => AtomicRmwOp::Add,
            (AtomicFunction::Subtract, _) => AtomicRmwOp::Sub,
            (AtomicFunction::And, _) => AtomicRmwOp::And,
            (AtomicFunction::ExclusiveOr, _) => AtomicRmwOp::Xor,
            (AtomicFunction::InclusiveOr, _) => AtomicRmwOp::Or,
            (AtomicFunction::Min, Kind::I32) => AtomicRmwOp::Smin,
            (AtomicFunction::Min, _) => AtomicRmwOp::Umin,
            (AtomicFunction::Max, Kind::I32) => AtomicRmwOp::Smax,
            (AtomicFunction::Max, _) => AtomicRmwOp::Umax,
            (AtomicFunction::Exchange { .. }, _) => AtomicRmwOp::Xchg,
        };
        if !is_shared {
            return self.b.ins().atomic_rmw(types::I32, flags().with_aligned(), op, address, value);
        }
        let old = self.b.ins().load(types::I32, flags(), address, 0);
        let new = match op {
            AtomicRmwOp::Add => self.b.ins().iadd(old, value),
            AtomicRmwOp::Sub => self.b.ins().isub(old, value),
            AtomicRmwOp::And => self.b.ins().band(old, value),
            AtomicRmwOp::Xor => self.b.ins().bxor(old, value),
            AtomicRmwOp::Or => self.b.ins().bor(old, value),
            AtomicRmwOp::Smin => self.b.ins().smin(old, value),
            AtomicRmwOp::Umin => self.b.ins().umin(old, value),
            AtomicRmwOp::Smax => self.b.ins().smax(old, value),
            AtomicRmwOp::Umax => self.b.ins().umax(old, value),
            AtomicRmwOp::Nand | AtomicRmwOp::Xchg => value,
        };
        self.b.ins().store(flags(), new, address, 0);
        old
    }
}
