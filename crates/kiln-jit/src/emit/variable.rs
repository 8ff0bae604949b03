//! Variables of an invocation: their homes, and their first values.

use super::lanes::flags;
use super::{Emitter, Result};
use crate::analysis::{ActivationId, Variable};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use naga::{Arena, Expression, Handle, Span};

/// How many bytes take about as long to clear as an expression to compute.
const BYTES_PER_COST: u32 = 32;

impl<'m> Emitter<'m, '_> {
    /// Gives the variables of an activation their homes.
    pub(crate) fn declare_locals(&mut self, id: ActivationId, outlive: bool) -> Result<()> {
        let function = self.analysis.activations[id].function;
        for (handle, local) in function.local_variables.iter() {
            let inner = &self.module.types[local.ty].inner;
            let span = function.local_variables.get_span(handle);
            self.declare(Variable::Local(id, handle), inner, span, outlive)?;
        }
        Ok(())
    }

    /// Gives the variables of an activation their first values.
    pub(crate) fn start_locals(&mut self, id: ActivationId) -> Result<()> {
        let function = self.analysis.activations[id].function;
        for (handle, local) in function.local_variables.iter() {
            let span = function.local_variables.get_span(handle);
            self.start_variable(Variable::Local(id, handle), &function.expressions, local.init, span)?;
        }
        Ok(())
    }

    /// Gives the private variables of the module their first values.
    pub(crate) fn start_privates(&mut self) -> Result<()> {
        let module = self.module;
        for (handle, variable) in module.global_variables.iter() {
            if self.homes.contains_key(&Variable::Private(handle)) {
                let span = module.global_variables.get_span(handle);
                self.start_variable(Variable::Private(handle), &module.global_expressions, variable.init, span)?;
            }
        }
        Ok(())
    }

    /// Zeros, unless there are other numbers.
    fn start_variable(
        &mut self,
        variable: Variable,
        arena: &'m Arena<Expression>,
        init: Option<Handle<Expression>>,
        span: Span,
    ) -> Result<()> {
        let home = self.homes[&variable].clone();
        self.start_traces(variable);
        if init.is_none() {
            self.forget(variable, home.kinds.len());
        }
        let numbers = match init {
            Some(init) if !self.is_zero(arena, init) => Some(self.constant_numbers(arena, init, span)?),
            _ => None,
        };
        let Some(word) = home.word.filter(|_| home.registers.is_empty()) else {
            for (place, register) in home.registers.iter().enumerate() {
                let number = match &numbers {
                    Some(numbers) => numbers[place],
                    None => self.constant(home.kinds[place], 0.0),
                };
                self.set_register(*register, home.varies, number);
            }
            if home.word.is_some() && !self.written.contains(&variable) {
                self.written.push(variable);
            }
            return Ok(());
        };
        match numbers {
            Some(numbers) => {
                for (place, number) in numbers.iter().enumerate() {
                    self.store_word(word + place as u32, *number, home.varies);
                }
            }
            None => {
                let address = self.word_address(word);
                self.clear(address, home.kinds.len() as u32 * (self.lanes * 4) as u32);
            }
        }
        Ok(())
    }

    pub(crate) fn is_zero(&self, arena: &Arena<Expression>, expression: Handle<Expression>) -> bool {
        match arena[expression] {
            Expression::ZeroValue(_) => true,
            Expression::Constant(constant) => {
                self.is_zero(&self.module.global_expressions, self.module.constants[constant].init)
            }
            _ => false,
        }
    }

    /// Zeros from an address on; whole registers where there are some.
    pub(crate) fn clear(&mut self, address: Value, bytes: u32) {
        self.cost += u64::from(bytes / BYTES_PER_COST);
        let step = if bytes.is_multiple_of(16) { 16 } else { 4 };
        let zero = |e: &mut Self| if step == 16 { e.vector_constant([0; 4]) } else { e.i32(0) };
        if bytes <= 8 * step {
            let zero = zero(self);
            for at in (0..bytes).step_by(step as usize) {
                self.b.ins().store(flags(), zero, address, at.cast_signed());
            }
            return;
        }
        let at = self.b.declare_var(types::I64);
        let start = self.b.ins().iconst(types::I64, 0);
        self.b.def_var(at, start);
        let (header, after) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        let offset = self.b.use_var(at);
        let wide = if self.address_type() == types::I64 { offset } else { self.b.ins().ireduce(types::I32, offset) };
        let place = self.b.ins().iadd(address, wide);
        let zero = zero(self);
        self.b.ins().store(flags(), zero, place, 0);
        let next = self.b.ins().iadd_imm_s(offset, i64::from(step));
        self.b.def_var(at, next);
        let goes_on = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, i64::from(bytes));
        self.b.ins().brif(goes_on, header, &[], after, &[]);
        self.b.switch_to_block(after);
    }
}
