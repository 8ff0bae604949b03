//! The links of compiled code to its caller: the fields of [`Call`](crate::Call), the table of functions, the clock, the ways to end.

use super::lanes::{LANES, flags};
use crate::abi;
use crate::functions::{self, FUEL};
use crate::sanitize::Event;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, InstBuilder, SigRef, Signature, StackSlot, StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, Variable as Register};

/// The signature of compiled code.
pub(crate) fn signature(call_conv: CallConv, pointer: Type) -> Signature {
    let mut signature = Signature::new(call_conv);
    signature.params.extend([pointer, types::I64, types::I64].map(AbiParam::new));
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

/// What code uses of its caller and of the processor.
pub(crate) struct Runtime {
    call: Value,
    /// The memory of the thread.
    pub(super) scratch: Value,
    helpers: Value,
    /// The type of addresses.
    pub(super) pointer: Type,
    on_floats: SigRef,
    on_watch: SigRef,
    on_event: SigRef,
    /// Arguments and results of functions on floats.
    slot: StackSlot,
    /// What may run before the next look at the clock, where loops are bounded.
    fuel: Register,
    is_bounded: bool,
    stopped: Block,
    /// Where code goes that came to where it never comes.
    pub(super) fault: Block,
    pub(super) has_fma: bool,
}

impl Runtime {
    /// Begins a function, and returns the first work-group and the one after the last with it.
    pub(crate) fn new(b: &mut FunctionBuilder<'_>, isa: &dyn TargetIsa, is_bounded: bool) -> (Self, [Value; 2]) {
        let pointer = isa.pointer_type();
        let start = b.create_block();
        b.append_block_params_for_function_params(start);
        b.switch_to_block(start);
        let params = b.block_params(start);
        let (call, groups) = (params[0], [params[1], params[2]]);
        let mut import = |params: &[Type], returns: &[Type]| {
            let mut signature = Signature::new(isa.default_call_conv());
            signature.params.extend(params.iter().copied().map(AbiParam::new));
            signature.returns.extend(returns.iter().copied().map(AbiParam::new));
            b.import_signature(signature)
        };
        let on_floats = import(&[pointer, types::I64], &[]);
        let on_watch = import(&[pointer], &[types::I64]);
        let on_event = import(&[pointer, types::I32, types::I32, types::I64, types::I64], &[]);
        let bytes = (2 * LANES * size_of::<f32>()) as u32;
        let slot = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4));
        let readonly = flags().with_readonly().with_can_move();
        let scratch = b.ins().load(pointer, readonly, call, abi::SCRATCH);
        let helpers = b.ins().load(pointer, readonly, call, abi::HELPERS);
        let fuel = b.declare_var(types::I64);
        let full = b.ins().iconst(types::I64, FUEL);
        b.def_var(fuel, full);
        let (stopped, fault) = (b.create_block(), b.create_block());
        let has_flag = |name| isa.isa_flags().iter().any(|flag| flag.name == name && flag.as_bool() == Some(true));
        let has_fma = isa.name() != "x64" || has_flag("has_fma");
        let runtime = Self {
            call,
            scratch,
            helpers,
            pointer,
            on_floats,
            on_watch,
            on_event,
            slot,
            fuel,
            is_bounded,
            stopped,
            fault,
            has_fma,
        };
        (runtime, groups)
    }

    /// Emits the ways to end before all work-groups ran.
    pub(crate) fn finish(self, b: &mut FunctionBuilder<'_>) {
        for (end, code) in [(self.stopped, abi::STOPPED), (self.fault, abi::FAULT)] {
            b.switch_to_block(end);
            let code = b.ins().iconst(types::I32, i64::from(code));
            b.ins().return_(&[code]);
        }
    }

    /// A field of [`Call`](crate::Call), which does not change while code runs.
    pub(crate) fn field(&self, b: &mut FunctionBuilder<'_>, ty: Type, offset: i32) -> Value {
        b.ins().load(ty, flags().with_readonly().with_can_move(), self.call, offset)
    }

    /// Address and length in bytes of a buffer or value, by its binding.
    pub(crate) fn bound(&self, b: &mut FunctionBuilder<'_>, binding: u32) -> (Value, Value) {
        let readonly = flags().with_readonly().with_can_move();
        let table = self.field(b, self.pointer, abi::BOUND);
        let at = binding.cast_signed() * abi::BOUND_STRIDE;
        let data = b.ins().load(self.pointer, readonly, table, at);
        let bytes = b.ins().load(types::I64, readonly, table, at + abi::BOUND_BYTES);
        (data, bytes)
    }

    fn helper(&self, b: &mut FunctionBuilder<'_>, place: i32) -> Value {
        let offset = place * self.pointer.bytes().cast_signed();
        b.ins().load(self.pointer, flags().with_readonly().with_can_move(), self.helpers, offset)
    }

    /// The address of arguments of a function on floats.
    pub(crate) fn floats(&self, b: &mut FunctionBuilder<'_>) -> Value {
        b.ins().stack_addr(self.pointer, self.slot, 0)
    }

    /// Calls the function on floats at a place of the table. The floats are at their address, `count` for each argument.
    pub(crate) fn call_on_floats(&self, b: &mut FunctionBuilder<'_>, place: i32, data: Value, count: usize) {
        let count = b.ins().iconst(types::I64, count as i64);
        let helper = self.helper(b, place);
        b.ins().call_indirect(self.on_floats, helper, &[data, count]);
    }

    /// Calls the sanitizer.
    pub(crate) fn event(
        &self,
        b: &mut FunctionBuilder<'_>,
        event: Event,
        site: u32,
        local: Value,
        numbers: [Value; 2],
    ) {
        let state = self.field(b, self.pointer, abi::SANITIZER);
        let helper = self.helper(b, functions::event_place(event));
        let site = b.ins().iconst(types::I32, i64::from(site.cast_signed()));
        b.ins().call_indirect(self.on_event, helper, &[state, site, local, numbers[0], numbers[1]]);
    }

    /// Takes the cost of a round of a loop from the fuel, and ends the run where that is gone and the time is over.
    pub(crate) fn spend_fuel(&self, b: &mut FunctionBuilder<'_>, cost: i64) {
        if !self.is_bounded {
            return;
        }
        let left = b.use_var(self.fuel);
        let left = b.ins().iadd_imm_s(left, -cost);
        b.def_var(self.fuel, left);
        let is_empty = b.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        let (look, after) = (b.create_block(), b.create_block());
        b.set_cold_block(look);
        b.ins().brif(is_empty, look, &[], after, &[]);
        b.switch_to_block(look);
        let watch = b.ins().load(self.pointer, flags(), self.call, abi::WATCH);
        let helper = self.helper(b, functions::REFUEL);
        let inst = b.ins().call_indirect(self.on_watch, helper, &[watch]);
        let fuel = b.inst_results(inst)[0];
        b.def_var(self.fuel, fuel);
        let is_over = b.ins().icmp_imm_s(IntCC::SignedLessThan, fuel, 0);
        b.ins().brif(is_over, self.stopped, &[], after, &[]);
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
    fn a_function_of_nothing_but_its_runtime_is_valid() {
        let isa = cranelift_native::builder().unwrap().finish(Flags::new(settings::builder())).unwrap();
        let signature = signature(isa.default_call_conv(), isa.pointer_type());
        let mut function = Function::with_name_signature(UserFuncName::user(0, 0), signature);
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut function, &mut context);
        let (runtime, [first, end]) = Runtime::new(&mut b, &*isa, true);
        let number = b.ins().iconst(types::I32, 0);
        runtime.spend_fuel(&mut b, 7);
        let (_, bytes) = runtime.bound(&mut b, 2);
        let data = runtime.floats(&mut b);
        runtime.call_on_floats(&mut b, functions::place_of(MathFunction::Atan2).unwrap(), data, 4);
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
