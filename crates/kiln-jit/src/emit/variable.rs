//! Variables of an invocation: their storage and initial values.

use super::lanes::{VECTORS, flags, vector_constant};
use super::{Emitter, Result};
use crate::CompileError;
use crate::types::{Kind, scalar_count};
use crate::uniformity::{ActivationId, Variable};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_frontend::Variable as Register;
use naga::{Arena, Expression, Handle, Span, TypeInner};
use std::collections::HashMap;

/// Maximum number of scalars of a variable in registers. Larger ones would be spilled anyway, and would be
/// moved to and from the frame at each barrier.
const MAX_REGISTER_SCALARS: u32 = 64;
/// Maximum number of scalars of a variable.
const MAX_VARIABLE_SCALARS: u32 = 1 << 16;

/// Bytes that take about as long to zero as an expression takes to compute.
const BYTES_PER_COST: u32 = 32;

/// Storage of a variable.
#[derive(Clone, Debug)]
pub(crate) struct VariableStorage {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) varies: bool,
    /// Cranelift variables of each scalar; empty if the variable is in memory only.
    pub(crate) registers: Vec<[Register; VECTORS]>,
    /// First word in the frame, if the variable is in memory or lives across regions.
    pub(crate) word: Option<u32>,
}

/// All variables declared so far.
#[derive(Default)]
pub(crate) struct Variables {
    storages: HashMap<Variable, VariableStorage>,
    /// Variables in registers that were written in the current region and must be stored to the frame at its
    /// end.
    written: Vec<Variable>,
}

impl Variables {
    /// Adds a variable.
    pub(crate) fn insert(&mut self, variable: Variable, storage: VariableStorage) {
        self.storages.insert(variable, storage);
    }

    /// Whether a variable was declared.
    pub(crate) fn contains(&self, variable: Variable) -> bool {
        self.storages.contains_key(&variable)
    }

    /// Returns the storage of a declared variable.
    pub(crate) fn storage(&self, variable: Variable) -> &VariableStorage {
        &self.storages[&variable]
    }

    /// Returns the storage of a variable that is in registers only.
    pub(crate) fn in_registers(&mut self, variable: Variable) -> Option<&mut VariableStorage> {
        self.storages.get_mut(&variable).filter(|storage| storage.word.is_none())
    }

    /// Returns the variables of the running functions and of the module, sorted so that the emitted code is
    /// deterministic.
    pub(crate) fn in_scope(&self, is_running: impl Fn(ActivationId) -> bool) -> Vec<Variable> {
        let mut variables: Vec<Variable> = (self.storages.keys().copied())
            .filter(|variable| match variable {
                Variable::Private(_) => true,
                Variable::Local(id, _) | Variable::Value(id, _) => is_running(*id),
            })
            .collect();
        variables.sort();
        variables
    }

    /// Marks a variable in registers as written.
    pub(crate) fn mark_dirty(&mut self, variable: Variable) {
        // A list and not a set: its order is that of the emitted stores, which must be deterministic.
        if self.storages[&variable].word.is_some() && !self.written.contains(&variable) {
            self.written.push(variable);
        }
    }

    /// Returns the variables written since the last call, and clears the list.
    pub(crate) fn take_dirty(&mut self) -> Vec<Variable> {
        std::mem::take(&mut self.written)
    }
}

impl<'m> Emitter<'m, '_> {
    /// Allocates storage for a variable. `outlives`: it lives across regions and also needs a word in the
    /// frame.
    pub(crate) fn declare(&mut self, variable: Variable, inner: &TypeInner, span: Span, outlives: bool) -> Result<()> {
        let is_wide = scalar_count(self.module, inner).is_some_and(|count| count > MAX_REGISTER_SCALARS);
        // Registers cannot be indexed at run time.
        let in_memory = is_wide || self.uniformity.dynamically_indexed.contains(&variable);
        let varies = self.uniformity.is_varying(variable);
        let kinds: Vec<Kind> = if in_memory {
            let count = scalar_count(self.module, inner).unwrap_or(u32::MAX);
            if count > MAX_VARIABLE_SCALARS {
                let message = format!("expected a variable of at most {MAX_VARIABLE_SCALARS} scalars, found {count}");
                return Err(CompileError::new(span, message));
            }
            // The scalar kinds of a variable in memory come from the type of each access; only their number
            // matters here.
            vec![Kind::U32; count as usize]
        } else {
            self.type_fields("a variable", inner, span)?.iter().map(|field| field.kind).collect()
        };
        // A variable in registers needs a word too if a later region reads it.
        let word = if in_memory || outlives { Some(self.layout.reserve(kinds.len(), span)?) } else { None };
        let registers =
            if in_memory { Vec::new() } else { kinds.iter().map(|kind| self.register(*kind, varies)).collect() };
        self.variables.insert(variable, VariableStorage { kinds, varies, registers, word });
        Ok(())
    }

    /// Allocates storage for the variables of an activation.
    pub(crate) fn declare_locals(&mut self, id: ActivationId, outlive: bool) -> Result<()> {
        let function = self.uniformity.activations[id].function;
        for (handle, local) in function.local_variables.iter() {
            let inner = &self.module.types[local.ty].inner;
            let span = function.local_variables.get_span(handle);
            self.declare(Variable::Local(id, handle), inner, span, outlive)?;
        }
        Ok(())
    }

    /// Initialises the variables of an activation.
    pub(crate) fn init_locals(&mut self, id: ActivationId) -> Result<()> {
        let function = self.uniformity.activations[id].function;
        for (handle, local) in function.local_variables.iter() {
            let span = function.local_variables.get_span(handle);
            self.init_variable(Variable::Local(id, handle), &function.expressions, local.init, span)?;
        }
        Ok(())
    }

    /// Initialises the private variables of the module.
    pub(crate) fn init_privates(&mut self) -> Result<()> {
        let module = self.module;
        for (handle, variable) in module.global_variables.iter() {
            if self.variables.contains(Variable::Private(handle)) {
                let span = module.global_variables.get_span(handle);
                self.init_variable(Variable::Private(handle), &module.global_expressions, variable.init, span)?;
            }
        }
        Ok(())
    }

    /// Stores the initial value, or zeros if there is none.
    fn init_variable(
        &mut self,
        variable: Variable,
        arena: &'m Arena<Expression>,
        init: Option<Handle<Expression>>,
        span: Span,
    ) -> Result<()> {
        let storage = self.variables.storage(variable).clone();
        // The sanitizer forgets what a previous iteration or call left in the variable.
        self.init_variable_taint(variable);
        if init.is_none() {
            self.mark_uninitialised(variable, storage.kinds.len());
        }
        let scalars = match init {
            Some(init) if !self.is_zero(arena, init) => Some(self.constant_scalars(arena, init, span)?),
            _ => None,
        };
        // A variable with registers may have a word as well: the copy for later regions, which `write_back`
        // stores.
        let Some(word) = storage.word.filter(|_| storage.registers.is_empty()) else {
            for (i, register) in storage.registers.iter().enumerate() {
                let scalar = match &scalars {
                    Some(scalars) => scalars[i],
                    None => self.constant(storage.kinds[i], 0.0),
                };
                self.set_register(*register, storage.varies, scalar);
            }
            self.variables.mark_dirty(variable);
            return Ok(());
        };
        match scalars {
            Some(scalars) => {
                for (i, scalar) in scalars.iter().enumerate() {
                    self.store_word(word + i as u32, *scalar, storage.varies);
                }
            }
            None => {
                let address = self.word_address(word);
                self.clear(address, storage.kinds.len() as u32 * self.layout.word_bytes());
            }
        }
        Ok(())
    }

    /// Whether an expression is a zero value.
    pub(crate) fn is_zero(&self, arena: &Arena<Expression>, expression: Handle<Expression>) -> bool {
        match arena[expression] {
            Expression::ZeroValue(_) => true,
            Expression::Constant(constant) => {
                self.is_zero(&self.module.global_expressions, self.module.constants[constant].init)
            }
            _ => false,
        }
    }

    /// Zeroes memory, with vector stores if the size allows it.
    pub(crate) fn clear(&mut self, address: Value, bytes: u32) {
        self.budget.cost += u64::from(bytes / BYTES_PER_COST);
        // Four divides every size: frames consist of words, and workgroup memory of vectors.
        let step = if bytes.is_multiple_of(16) { 16 } else { 4 };
        let zero = |e: &mut Self| if step == 16 { vector_constant(&mut e.b, [0; 4]) } else { e.i32_const(0) };
        // Up to eight stores are unrolled.
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
        let slot = self.b.ins().iadd(address, wide);
        let zero = zero(self);
        self.b.ins().store(flags(), zero, slot, 0);
        let next = self.b.ins().iadd_imm_s(offset, i64::from(step));
        self.b.def_var(at, next);
        let continues = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, i64::from(bytes));
        self.b.ins().brif(continues, header, &[], after, &[]);
        self.b.switch_to_block(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::tests::locals;

    #[test]
    fn dirty_variables_with_a_frame_slot_are_listed_once() {
        let [x, y, z] = locals([1, 0, 2]);
        let mut variables = Variables::default();
        for (variable, word) in [(x, Some(4)), (y, Some(0)), (z, None)] {
            let storage = VariableStorage { kinds: vec![Kind::F32], varies: false, registers: Vec::new(), word };
            variables.insert(variable, storage);
        }
        [x, z, y, x].into_iter().for_each(|variable| variables.mark_dirty(variable));
        assert_eq!(variables.take_dirty(), [x, y], "in the order of their first writes");
        assert_eq!(variables.take_dirty(), []);
        assert_eq!(variables.in_scope(|_| true), [y, x, z], "in the order of activations");
        assert_eq!(variables.in_scope(|id| id == 1), [x]);
    }
}
