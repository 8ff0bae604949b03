//! Atomic operations, one lane after the other.
//!
//! Workgroup memory is only accessed by the thread that runs the workgroup, so plain loads and stores suffice
//! there. Buffers are shared between threads and need atomic instructions. Cranelift's are sequentially
//! consistent, which is stronger than the relaxed order that WGSL asks for.

use super::lanes::flags;
use super::pointer::Base;
use super::{Emitter, Operand, Result};
use crate::CompileError;
use crate::sanitizer::site::SiteKind;
use crate::types::{Kind, pointee};
use crate::uniformity::ActivationId;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, Value, types};
use naga::{AtomicFunction, Expression, Handle, Span, TypeInner};

impl Emitter<'_, '_> {
    /// Emits an atomic statement.
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
        let kind = kind.ok_or_else(|| CompileError::new(span, "expected an atomic integer of 32 bits"))?;
        let pointer = self.pointer(id, pointer)?;
        // This and `check_access` below are instrumentation for the sanitizer; they emit nothing in other code.
        self.taint_store(id, &pointer, value, span)?;
        let value = self.scalar(id, value)?;
        let compare = match fun {
            AtomicFunction::Exchange { compare: Some(compare) } => Some(self.scalar(id, *compare)?),
            _ => None,
        };
        self.check_access(&pointer, SiteKind::Atomic, span)?;
        let is_workgroup = matches!(pointer.base, Base::Workgroup);
        let addresses = self.addresses(&pointer);
        // The old value of each lane. In variables, because the code of a lane runs only if the lane is active.
        let old_values: Vec<_> = addresses.iter().map(|_| self.b.declare_var(types::I32)).collect();
        // Every variable needs a definition on the path where its lane is inactive.
        let zero = self.i32_const(0);
        old_values.iter().for_each(|old| self.b.def_var(*old, zero));
        self.for_each_active(&mut |e, lane| {
            let (address, value) = (addresses[lane], e.lane(value, lane));
            let old = match compare {
                Some(compare) => {
                    let compare = e.lane(compare, lane);
                    e.compare_exchange(address, compare, value, is_workgroup)
                }
                None => e.read_modify_write(address, fun, kind, value, is_workgroup),
            };
            e.b.def_var(old_values[lane], old);
        });
        let Some(result) = result else { return Ok(()) };
        let lanes: Vec<Value> = old_values.iter().map(|old| self.b.use_var(*old)).collect();
        let old = self.scalar_of_lanes(kind, &lanes);
        let scalars = match compare {
            None => vec![old],
            Some(compare) => vec![old, self.compare_int(IntCC::Equal, old, compare)],
        };
        self.define(id, result, Operand::Scalars(scalars))
    }

    /// Emits `atomicCompareExchangeWeak` for one lane and returns the old value. It never fails spuriously.
    fn compare_exchange(&mut self, address: Value, compare: Value, value: Value, is_workgroup: bool) -> Value {
        if !is_workgroup {
            // The launch guarantees that bindings are aligned to four bytes, and WGSL aligns atomics in them.
            return self.b.ins().atomic_cas(flags().with_aligned(), address, compare, value);
        }
        let old = self.b.ins().load(types::I32, flags(), address, 0);
        // Stores the old value back if they differ: a select is cheaper than a branch.
        let is_equal = self.b.ins().icmp(IntCC::Equal, old, compare);
        let new = self.b.ins().select(is_equal, value, old);
        self.b.ins().store(flags(), new, address, 0);
        old
    }

    /// Emits any other atomic function for one lane and returns the old value.
    fn read_modify_write(
        &mut self,
        address: Value,
        fun: &AtomicFunction,
        kind: Kind,
        value: Value,
        is_workgroup: bool,
    ) -> Value {
        // naga has one `Min` and `Max`; the kind decides the signedness.
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
        if !is_workgroup {
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
            // `Nand` does not occur: WGSL has no such function.
            AtomicRmwOp::Nand | AtomicRmwOp::Xchg => value,
        };
        self.b.ins().store(flags(), new, address, 0);
        old
    }
}
