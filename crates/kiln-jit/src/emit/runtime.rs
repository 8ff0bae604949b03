//! Access of compiled code to its caller: fields of [`CallContext`](crate::abi::CallContext), libcalls, fuel
//! and early exits.

use super::lanes::{LANES, flags};
use crate::abi;
use crate::libcalls::{self, FUEL};
use crate::sanitizer::Event;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, InstBuilder, SigRef, Signature, StackSlot, StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, Variable as Register};

/// The signature of [`Entry`](crate::abi::Entry).
pub(crate) fn signature(call_conv: CallConv, pointer: Type) -> Signature {
    let mut signature = Signature::new(call_conv);
    signature.params.extend([pointer, types::I64, types::I64].map(AbiParam::new));
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

/// Values and blocks that connect the code to its caller.
pub(crate) struct Runtime {
    /// Address of the call context.
    context: Value,
    /// Address of the scratch memory.
    pub(super) scratch: Value,
    libcalls: Value,
    /// Type of addresses.
    pub(super) pointer: Type,
    float_function_sig: SigRef,
    refuel_sig: SigRef,
    event_sig: SigRef,
    /// Arguments and result of a float function.
    float_args_slot: StackSlot,
    /// Cost that may still run before the next check of the clock, if loops are bounded.
    fuel: Register,
    is_bounded: bool,
    /// Exit taken when the deadline has passed.
    timed_out: Block,
    /// Exit taken by unreachable code and by failed bounds verification.
    pub(super) fault: Block,
    /// Whether `fma` is one instruction. On x86-64 without FMA, Cranelift would call a function.
    pub(super) has_fma: bool,
}

impl Runtime {
    /// Emits the prologue. Returns the range of workgroups to run.
    pub(crate) fn new(b: &mut FunctionBuilder<'_>, isa: &dyn TargetIsa, is_bounded: bool) -> (Self, [Value; 2]) {
        let pointer = isa.pointer_type();
        let start = b.create_block();
        b.append_block_params_for_function_params(start);
        b.switch_to_block(start);
        let params = b.block_params(start);
        let (context, groups) = (params[0], [params[1], params[2]]);
        // Libcalls are `extern "C"`; the default convention of the native target is the C one.
        let mut import = |params: &[Type], returns: &[Type]| {
            let mut signature = Signature::new(isa.default_call_conv());
            signature.params.extend(params.iter().copied().map(AbiParam::new));
            signature.returns.extend(returns.iter().copied().map(AbiParam::new));
            b.import_signature(signature)
        };
        let float_function_sig = import(&[pointer, types::I64], &[]);
        let refuel_sig = import(&[pointer], &[types::I64]);
        let event_sig = import(&[pointer, types::I32, types::I32, types::I64, types::I64], &[]);
        // Room for the two arguments of `atan2`.
        let bytes = (2 * LANES * size_of::<f32>()) as u32;
        let float_args_slot = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4));
        let readonly = flags().with_readonly().with_can_move();
        let scratch = b.ins().load(pointer, readonly, context, abi::SCRATCH);
        let libcalls = b.ins().load(pointer, readonly, context, abi::LIBCALLS);
        let fuel = b.declare_var(types::I64);
        let full = b.ins().iconst(types::I64, FUEL);
        b.def_var(fuel, full);
        let (timed_out, fault) = (b.create_block(), b.create_block());
        let has_flag = |name| isa.isa_flags().iter().any(|flag| flag.name == name && flag.as_bool() == Some(true));
        // Other targets always have it.
        let has_fma = isa.name() != "x64" || has_flag("has_fma");
        let runtime = Self {
            context,
            scratch,
            libcalls,
            pointer,
            float_function_sig,
            refuel_sig,
            event_sig,
            float_args_slot,
            fuel,
            is_bounded,
            timed_out,
            fault,
            has_fma,
        };
        (runtime, groups)
    }

    /// Emits the early exits.
    pub(crate) fn finish(self, b: &mut FunctionBuilder<'_>) {
        for (end, code) in [(self.timed_out, abi::TIMED_OUT), (self.fault, abi::FAULT)] {
            b.switch_to_block(end);
            let code = b.ins().iconst(types::I32, i64::from(code));
            b.ins().return_(&[code]);
        }
    }

    /// Loads a field of the call context, which is constant during a call.
    pub(crate) fn field(&self, b: &mut FunctionBuilder<'_>, ty: Type, offset: i32) -> Value {
        // `readonly` and `can_move` let Cranelift merge these loads and hoist them out of loops.
        b.ins().load(ty, flags().with_readonly().with_can_move(), self.context, offset)
    }

    /// Loads the address and the size in bytes of a binding.
    pub(crate) fn binding(&self, b: &mut FunctionBuilder<'_>, binding: u32) -> (Value, Value) {
        let readonly = flags().with_readonly().with_can_move();
        let table = self.field(b, self.pointer, abi::BINDINGS);
        let at = binding.cast_signed() * abi::BINDING_STRIDE;
        let data = b.ins().load(self.pointer, readonly, table, at);
        let bytes = b.ins().load(types::I64, readonly, table, at + abi::BINDING_BYTES);
        (data, bytes)
    }

    /// Loads the address of a libcall.
    fn libcall(&self, b: &mut FunctionBuilder<'_>, index: i32) -> Value {
        // A direct call would need a relocation, which stored code must not have.
        let offset = index * self.pointer.bytes().cast_signed();
        b.ins().load(self.pointer, flags().with_readonly().with_can_move(), self.libcalls, offset)
    }

    /// Returns the address of the arguments of a float function.
    pub(crate) fn float_args(&self, b: &mut FunctionBuilder<'_>) -> Value {
        b.ins().stack_addr(self.pointer, self.float_args_slot, 0)
    }

    /// Calls a float function by its index. `data` points to `count` floats per argument.
    pub(crate) fn call_float_function(&self, b: &mut FunctionBuilder<'_>, index: i32, data: Value, count: usize) {
        let count = b.ins().iconst(types::I64, count as i64);
        let libcall = self.libcall(b, index);
        b.ins().call_indirect(self.float_function_sig, libcall, &[data, count]);
    }

    /// Calls the sanitizer.
    pub(crate) fn event(
        &self,
        b: &mut FunctionBuilder<'_>,
        event: Event,
        site: u32,
        local: Value,
        arguments: [Value; 2],
    ) {
        let state = self.field(b, self.pointer, abi::SANITIZER);
        let libcall = self.libcall(b, libcalls::event_index(event));
        // `iconst` of an `i32` takes a sign-extended immediate.
        let site = b.ins().iconst(types::I32, i64::from(site.cast_signed()));
        b.ins().call_indirect(self.event_sig, libcall, &[state, site, local, arguments[0], arguments[1]]);
    }

    /// Subtracts the cost of a loop iteration from the fuel. When it is used up, checks the clock and ends the
    /// run if the deadline has passed.
    pub(crate) fn spend_fuel(&self, b: &mut FunctionBuilder<'_>, cost: i64) {
        if !self.is_bounded {
            return;
        }
        let left = b.use_var(self.fuel);
        let left = b.ins().iadd_imm_s(left, -cost);
        b.def_var(self.fuel, left);
        let is_empty = b.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        let (check_clock, after) = (b.create_block(), b.create_block());
        // Taken once per `FUEL` units; keep it out of the loop's code.
        b.set_cold_block(check_clock);
        b.ins().brif(is_empty, check_clock, &[], after, &[]);
        b.switch_to_block(check_clock);
        let deadline = b.ins().load(self.pointer, flags(), self.context, abi::DEADLINE);
        let libcall = self.libcall(b, libcalls::REFUEL);
        let inst = b.ins().call_indirect(self.refuel_sig, libcall, &[deadline]);
        let fuel = b.inst_results(inst)[0];
        b.def_var(self.fuel, fuel);
        let is_over = b.ins().icmp_imm_s(IntCC::SignedLessThan, fuel, 0);
        b.ins().brif(is_over, self.timed_out, &[], after, &[]);
        b.switch_to_block(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::ir::{Function, UserFuncName};
    use cranelift_codegen::settings::{self, Flags};
    use cranelift_frontend::FunctionBuilderContext;
    use naga::MathFunction;

    #[test]
    fn emitted_runtime_calls_pass_the_verifier() {
        let isa = cranelift_native::builder().unwrap().finish(Flags::new(settings::builder())).unwrap();
        let signature = signature(isa.default_call_conv(), isa.pointer_type());
        let mut function = Function::with_name_signature(UserFuncName::user(0, 0), signature);
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut function, &mut context);
        let (runtime, [first, end]) = Runtime::new(&mut b, &*isa, true);
        let number = b.ins().iconst(types::I32, 0);
        runtime.spend_fuel(&mut b, 7);
        let (_, bytes) = runtime.binding(&mut b, 2);
        let data = runtime.float_args(&mut b);
        runtime.call_float_function(&mut b, libcalls::index_of(MathFunction::Atan2).unwrap(), data, 4);
        runtime.event(&mut b, Event::Access, 3, number, [bytes, first]);
        runtime.event(&mut b, Event::Barrier, 3, number, [end, end]);
        b.ins().return_(&[number]);
        runtime.finish(&mut b);
        b.seal_all_blocks();
        b.finalize(isa.frontend_config());
        cranelift_codegen::verify_function(&function, &*isa).unwrap();
        let text = function.display().to_string();
        assert_eq!((text.matches("call_indirect").count(), text.matches("return").count()), (4, 3), "{text}");
    }
}
