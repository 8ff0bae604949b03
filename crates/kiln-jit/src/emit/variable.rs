//! Variables of an invocation: where they live, and their first values.

use super::lanes::{PARTS, flags, vector_constant};
use super::{Emitter, Result};
use crate::Refusal;
use crate::analysis::{ActivationId, Variable};
use crate::types::{Kind, leaf_count};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable as Register;
use naga::{Arena, Expression, Handle, Span, TypeInner};
use std::collections::HashMap;

/// The most scalars of a variable in registers: more of them are spilled in any case, and moved in and out of them at each barrier.
const MAX_REGISTER_SCALARS: u32 = 64;
/// The most scalars of a variable of an invocation.
const MAX_VARIABLE_SCALARS: u32 = 1 << 16;

/// How many bytes take about as long to clear as an expression to compute.
const BYTES_PER_COST: u32 = 32;

/// Where a variable of an invocation lives.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) varies: bool,
    /// A register or two for each scalar; none where it lives in memory alone.
    pub(crate) registers: Vec<[Register; PARTS]>,
    /// The first word in the frame, where it has one.
    pub(crate) word: Option<u32>,
}

/// The variables that were declared so far.
#[derive(Default)]
pub(crate) struct Variables {
    homes: HashMap<Variable, Home>,
    /// Those in registers that changed since the region began, and live in memory after it.
    written: Vec<Variable>,
}

impl Variables {
    pub(crate) fn insert(&mut self, variable: Variable, home: Home) {
        self.homes.insert(variable, home);
    }

    pub(crate) fn contains(&self, variable: Variable) -> bool {
        self.homes.contains_key(&variable)
    }

    /// The home of a variable that was declared.
    pub(crate) fn home(&self, variable: Variable) -> &Home {
        &self.homes[&variable]
    }

    /// The home of a variable that lives in registers alone.
    pub(crate) fn in_registers(&mut self, variable: Variable) -> Option<&mut Home> {
        self.homes.get_mut(&variable).filter(|home| home.word.is_none())
    }

    /// Those of the running functions and of the module, in order.
    pub(crate) fn in_scope(&self, is_running: impl Fn(ActivationId) -> bool) -> Vec<Variable> {
        let mut variables: Vec<Variable> = (self.homes.keys().copied())
            .filter(|variable| match variable {
                Variable::Private(_) => true,
                Variable::Local(id, _) | Variable::Value(id, _) => is_running(*id),
            })
            .collect();
        variables.sort();
        variables
    }

    /// Notes that the registers of a variable changed.
    pub(crate) fn mark_written(&mut self, variable: Variable) {
        if self.homes[&variable].word.is_some() && !self.written.contains(&variable) {
            self.written.push(variable);
        }
    }

    /// Those that changed since the last call.
    pub(crate) fn take_written(&mut self) -> Vec<Variable> {
        std::mem::take(&mut self.written)
    }
}

impl<'m> Emitter<'m, '_> {
    /// Gives a variable of an invocation its home, in memory as well where it outlives a region.
    pub(crate) fn declare(&mut self, variable: Variable, inner: &TypeInner, span: Span, outlives: bool) -> Result<()> {
        let is_wide = leaf_count(self.module, inner).is_some_and(|count| count > MAX_REGISTER_SCALARS);
        let in_memory = is_wide || self.analysis.indexed.contains(&variable);
        let varies = self.analysis.is_varying(variable);
        let kinds: Vec<Kind> = if in_memory {
            let count = leaf_count(self.module, inner).unwrap_or(u32::MAX);
            if count > MAX_VARIABLE_SCALARS {
                let message = format!("expected a variable of at most {MAX_VARIABLE_SCALARS} scalars, found {count}");
                return Err(Refusal::new(span, message));
            }
            // An array's elements have the same kinds; they are found where it is loaded.
            vec![Kind::U32; count as usize]
        } else {
            self.scalars("a variable", inner, span)?.iter().map(|leaf| leaf.kind).collect()
        };
        let word = if in_memory || outlives { Some(self.layout.reserve(kinds.len(), span)?) } else { None };
        let registers =
            if in_memory { Vec::new() } else { kinds.iter().map(|kind| self.register(*kind, varies)).collect() };
        self.variables.insert(variable, Home { kinds, varies, registers, word });
        Ok(())
    }

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
            if self.variables.contains(Variable::Private(handle)) {
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
        let home = self.variables.home(variable).clone();
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
            self.variables.mark_written(variable);
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
                self.clear(address, home.kinds.len() as u32 * self.layout.word_bytes());
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
        self.budget.cost += u64::from(bytes / BYTES_PER_COST);
        let step = if bytes.is_multiple_of(16) { 16 } else { 4 };
        let zero = |e: &mut Self| if step == 16 { vector_constant(&mut e.b, [0; 4]) } else { e.i32(0) };
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
        let wide = if self.runtime.pointer == types::I64 { offset } else { self.b.ins().ireduce(types::I32, offset) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::tests::locals;

    #[test]
    fn written_variables_that_live_in_memory_are_known_once() {
        let [x, y, z] = locals([1, 0, 2]);
        let mut variables = Variables::default();
        for (variable, word) in [(x, Some(4)), (y, Some(0)), (z, None)] {
            let home = Home { kinds: vec![Kind::F32], varies: false, registers: Vec::new(), word };
            variables.insert(variable, home);
        }
        [x, z, y, x].into_iter().for_each(|variable| variables.mark_written(variable));
        assert_eq!(variables.take_written(), [x, y], "in the order of their first writes");
        assert_eq!(variables.take_written(), []);
        assert_eq!(variables.in_scope(|_| true), [y, x, z], "in the order of activations");
        assert_eq!(variables.in_scope(|id| id == 1), [x]);
    }
}
