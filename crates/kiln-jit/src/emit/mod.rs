//! From a program to Cranelift's instructions.
//!
//! [`Emitter`] walks through the program. It is made of parts that own their state: `runtime` the links to the caller · `gang` the running
//! invocations · `control` the active mask · `group` control flow of the work-group · `layout` and `variable` memory · `spill` values that
//! outlive a region · `budget` limits · `hooks` and `trace` the sanitizer.
//!
//! The walk, in the order of a reading: `lanes` scalars of a gang · `half` · `expression`, `operator`, `math` and `op` arithmetic · `pointer`,
//! `memory` and `large` loads and stores · `atomic` and `subgroup` · `statement` and `versions` control flow of a gang · `region` and
//! `divergent` that of a work-group · `check` calls of the sanitizer.

mod atomic;
mod budget;
mod builtin;
mod check;
mod control;
mod divergent;
mod expression;
mod gang;
mod group;
mod half;
mod hooks;
mod lanes;
mod large;
mod layout;
mod math;
mod memory;
mod op;
mod operator;
mod pointer;
mod region;
mod runtime;
mod spill;
mod statement;
mod subgroup;
mod trace;
mod variable;
mod versions;

pub(crate) use budget::MAX_EMITTED;
pub use lanes::LANES;
pub(crate) use layout::MAX_FRAMES_BYTES;
pub(crate) use runtime::signature;

use crate::analysis::{ActivationId, Analysis, Scope, Variable};
use crate::ranges;
use crate::regions::{Regions, SyncPoints, ValueId, has_return};
use crate::sanitize::site::Site;
use crate::types::Kind;
use crate::{Options, Refusal};
use budget::Budget;
use control::ControlFlow;
use cranelift_codegen::ir::{Block, InstBuilder, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, Variable as Register};
use gang::Gang;
use group::GroupFlow;
use hooks::Hooks;
use lanes::{Number, PARTS, scalar_type, vector_type};
use layout::Layout;
use naga::valid::ModuleInfo;
use naga::{AddressSpace, Expression, Handle, Module, Span, Statement, TypeInner};
use pointer::Pointer;
use runtime::Runtime;
use spill::Spills;
use std::collections::{HashMap, HashSet};
use trace::Traces;
use variable::Variables;

/// What an expression is.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Numbers(Vec<Number>),
    Pointer(Pointer),
    /// A value of too many scalars for registers, in memory that is not written any more.
    Stored(Pointer),
}

/// What is known in an activation while it is emitted.
#[derive(Default)]
struct ActivationState {
    expressions: HashMap<Handle<Expression>, Operand>,
    arguments: Vec<Operand>,
    /// Where results go; for functions without barriers.
    result: Vec<[Register; PARTS]>,
    result_kinds: Vec<Kind>,
    returned: Option<Block>,
}

/// Walks through a program, and emits it.
pub(crate) struct Emitter<'m, 'b> {
    b: FunctionBuilder<'b>,
    module: &'m Module,
    options: &'m Options,
    analysis: Analysis<'m>,
    /// Pointers whose last index is in bounds for active invocations.
    proven: HashSet<ValueId>,
    /// Where in the source the running statement is, or the next one that is known.
    here: Span,
    runtime: Runtime,
    gang: Gang,
    control: ControlFlow,
    group: GroupFlow,
    layout: Layout,
    variables: Variables,
    activations: Vec<ActivationState>,
    spills: Spills<'m>,
    budget: Budget,
    hooks: Hooks,
    traces: Traces,
}

/// What was emitted, beside the instructions.
pub(crate) struct Emitted {
    /// Bytes that the invocations of a work-group share.
    pub(crate) group_bytes: u32,
    /// Bytes of the frame of a gang, and how many of them are in use at the same time.
    pub(crate) frame_bytes: u32,
    pub(crate) frames: u32,
    pub(crate) sites: Vec<Site>,
}

type Result<T> = std::result::Result<T, Refusal>;

/// Emits the only entry point of a module.
pub(crate) fn emit(
    mut b: FunctionBuilder<'_>,
    (module, info): (&Module, &ModuleInfo),
    options: &Options,
    prove: ranges::Prove,
    isa: &dyn TargetIsa,
) -> Result<Emitted> {
    let point = &module.entry_points[0];
    let (runtime, groups) = Runtime::new(&mut b, isa, options.bounded_loops);
    let gang = Gang::new(point.workgroup_size, options.one_by_one, b.ins().iconst(types::I32, 0));
    let analysis = Analysis::new(module, info, Scope::Vector(gang.lanes));
    let proven = if options.trust_proofs {
        prove(module, &analysis, &Analysis::new(module, info, Scope::WorkGroup))
    } else {
        HashSet::new()
    };
    let sync_points = SyncPoints::of_lanes(module, gang.lanes);
    let regions = sync_points.are_in(&point.function.body).then(|| Regions::new(sync_points, &analysis));
    let mut emitter = Emitter {
        module,
        options,
        proven,
        here: Span::UNDEFINED,
        runtime,
        control: ControlFlow::default(),
        group: GroupFlow::default(),
        layout: Layout::new(gang.lanes, if regions.is_some() { gang.count() } else { 1 }),
        gang,
        variables: Variables::default(),
        activations: analysis.activations.iter().map(|_| ActivationState::default()).collect(),
        analysis,
        spills: Spills::new(regions.as_ref()),
        budget: Budget::default(),
        hooks: Hooks::default(),
        traces: Traces::default(),
        b,
    };
    emitter.place_globals(info)?;
    let emitted = emitter.workgroups(groups, regions.as_ref());
    emitted.map_err(|refusal| refusal.or_at(emitter.here))?;
    let Emitter { mut b, runtime, layout, hooks, .. } = emitter;
    runtime.finish(&mut b);
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    Ok(layout.finish(hooks.into_sites()))
}

impl<'m> Emitter<'m, '_> {
    /// Gives every global that the entry point uses its place.
    fn place_globals(&mut self, info: &ModuleInfo) -> Result<()> {
        let uses = info.get_entry_point(0);
        let mut bound = Vec::new();
        for (handle, variable) in self.module.global_variables.iter().filter(|(handle, _)| !uses[*handle].is_empty()) {
            let span = self.module.global_variables.get_span(handle);
            match (variable.space, variable.binding) {
                (AddressSpace::Storage { .. } | AddressSpace::Uniform, Some(binding)) => {
                    bound.push(((binding.group, binding.binding), handle));
                }
                (AddressSpace::WorkGroup, _) => {
                    self.layout.add_shared(handle, crate::types::bytes(self.module, variable.ty));
                }
                (AddressSpace::Private, _) => {
                    let inner = &self.module.types[variable.ty].inner;
                    self.declare(Variable::Private(handle), inner, span, false)?;
                }
                (space, _) => {
                    return Err(Refusal::new(span, format!("expected a variable in memory, found one in {space:?}")));
                }
            }
        }
        bound.sort_by_key(|(number, _)| *number);
        bound.into_iter().zip(0..).for_each(|((_, handle), binding)| self.layout.add_binding(handle, binding));
        Ok(())
    }

    /// Registers for a scalar; one is enough where it is the same for all.
    fn register(&mut self, kind: Kind, varies: bool) -> [Register; PARTS] {
        self.budget.add_registers(if varies { PARTS } else { 1 });
        if varies {
            std::array::from_fn(|_| self.b.declare_var(vector_type(kind)))
        } else {
            [self.b.declare_var(scalar_type(kind)); PARTS]
        }
    }

    fn set_register(&mut self, register: [Register; PARTS], varies: bool, number: Number) {
        if varies {
            let parts = self.parts(number);
            register.iter().zip(parts).for_each(|(register, part)| self.b.def_var(*register, part));
        } else {
            let value = self.lane(number, 0);
            self.b.def_var(register[0], value);
        }
    }

    fn get_register(&mut self, register: [Register; PARTS], varies: bool, kind: Kind) -> Number {
        if varies {
            Number::each(kind, register.map(|register| self.b.use_var(register)))
        } else {
            let value = self.b.use_var(register[0]);
            Number::same(kind, value)
        }
    }

    fn span(&self, id: ActivationId, expression: Handle<Expression>) -> Span {
        self.analysis.activations[id].function.expressions.get_span(expression)
    }

    fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> TypeInner {
        self.analysis.activations[id].info[expression].ty.inner_with(&self.module.types).clone()
    }

    /// Takes a round of a loop that began at this cost from the fuel. Loops inside of it do so themselves.
    fn spend_round(&mut self, before: u64) {
        self.runtime.spend_fuel(&mut self.b, self.budget.round(before));
    }

    /// Whether invocations in the statement may leave its function early, at different times.
    fn may_return(&self, id: ActivationId, statement: &Statement) -> bool {
        self.analysis.returns_divergently(id) && has_return(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::ir::Function;
    use cranelift_frontend::FunctionBuilderContext;

    /// Runs a test with a builder that is in a block.
    pub(crate) fn with_builder(test: impl FnOnce(&mut FunctionBuilder<'_>)) {
        let (mut function, mut context) = (Function::new(), FunctionBuilderContext::new());
        let mut b = FunctionBuilder::new(&mut function, &mut context);
        let block = b.create_block();
        b.switch_to_block(block);
        test(&mut b);
    }

    /// Three variables of these activations.
    pub(crate) fn locals(ids: [ActivationId; 3]) -> [Variable; 3] {
        let module = naga::front::wgsl::parse_str("fn f() { var a: f32; var b: f32; var c: f32; }").unwrap();
        let (_, function) = module.functions.iter().next().unwrap();
        let mut handles = function.local_variables.iter().map(|(handle, _)| handle);
        ids.map(|id| Variable::Local(id, handles.next().unwrap()))
    }
}
