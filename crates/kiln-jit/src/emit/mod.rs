//! Code generation: naga IR to Cranelift IR.
//!
//! [`Emitter`] walks the program. Its state is split into parts that each own one concern:
//!
//! - `runtime`: the call context, libcalls, fuel and early exits
//! - `gang`: the gang whose code is being emitted
//! - `control`: the active mask and the jump targets of a gang
//! - `group_flow`: control flow of a workgroup
//! - `layout`, `variable`: memory and variables
//! - `spill`: values that live across regions
//! - `budget`: size limits and the cost of loops
//! - `site_table`, `taint`: state of the sanitizer's instrumentation
//!
//! The walk, in reading order: `lanes` (values across lanes), `f16`, `expression`, `operator`, `math`, `op`
//! (arithmetic), `pointer`, `memory`, `aggregate` (loads and stores), `atomic`, `subgroup`, `statement`, `switch`,
//! `versioning` (control flow of a gang), `workgroup`, `divergent` (control flow of a workgroup), `instrument`
//! (sanitizer calls).
//!
//! All functions are inlined into one Cranelift function. SSA construction is left to `FunctionBuilder`:
//! mutable state such as the mask lives in its variables ("registers" here), and blocks are sealed at the end.

mod aggregate;
mod atomic;
mod budget;
mod builtin;
mod control;
mod divergent;
mod expression;
mod f16;
mod gang;
mod group_flow;
mod instrument;
mod lanes;
mod layout;
mod math;
mod memory;
mod op;
mod operator;
mod pointer;
mod runtime;
mod site_table;
mod spill;
mod statement;
mod subgroup;
mod switch;
mod taint;
mod variable;
mod versioning;
mod workgroup;

pub(crate) use budget::MAX_EMITTED;
pub use lanes::LANES;
pub(crate) use layout::MAX_FRAMES_BYTES;
pub(crate) use runtime::signature;

use crate::ranges;
use crate::regions::{Regions, SyncPoints, ValueId, has_return};
use crate::sanitizer::site::Site;
use crate::types::Kind;
use crate::uniformity::{ActivationId, Scope, Uniformity, Variable};
use crate::{CompileError, Options};
use budget::Budget;
use control::ControlFlow;
use cranelift_codegen::ir::{Block, InstBuilder, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, Variable as Register};
use gang::Gang;
use group_flow::GroupFlow;
use lanes::{Scalar, VECTORS, scalar_type, vector_type};
use layout::Layout;
use naga::valid::ModuleInfo;
use naga::{AddressSpace, Expression, Handle, Module, Span, Statement, TypeInner};
use pointer::Pointer;
use runtime::Runtime;
use site_table::SiteTable;
use spill::Spills;
use std::collections::{HashMap, HashSet};
use taint::Taints;
use variable::Variables;

/// The value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// Its scalars, flattened in the order of [`crate::types::flatten`].
    Scalars(Vec<Scalar>),
    Pointer(Pointer),
    /// A value with too many scalars for registers. The memory is not written again.
    Memory(Pointer),
}

/// State of an activation while it is emitted.
#[derive(Default)]
struct ActivationState {
    /// Values of the expressions that were emitted so far.
    expressions: HashMap<Handle<Expression>, Operand>,
    arguments: Vec<Operand>,
    /// Where the result goes, if the function is not split at barriers.
    result: Vec<[Register; VECTORS]>,
    result_kinds: Vec<Kind>,
    /// The block that a return jumps to.
    returned: Option<Block>,
}

/// Emits a program into a Cranelift function.
pub(crate) struct Emitter<'m, 'b> {
    /// The builder; its current block is where instructions go.
    b: FunctionBuilder<'b>,
    module: &'m Module,
    options: &'m Options,
    uniformity: Uniformity<'m>,
    /// Pointers whose last index is proven in bounds. The proof holds for active invocations only.
    proven: HashSet<ValueId>,
    /// Span of the current statement, or of the next one that has a span.
    current_span: Span,
    runtime: Runtime,
    gang: Gang,
    control: ControlFlow,
    group: GroupFlow,
    layout: Layout,
    variables: Variables,
    activations: Vec<ActivationState>,
    spills: Spills<'m>,
    budget: Budget,
    site_table: SiteTable,
    taints: Taints,
}

/// The results of code generation other than the instructions.
pub(crate) struct Emitted {
    /// Size of workgroup memory with the slots of uniform conditions.
    pub(crate) group_bytes: u32,
    /// Size of a gang's frame, and the number of frames in use at the same time.
    pub(crate) frame_bytes: u32,
    pub(crate) frames: u32,
    pub(crate) sites: Vec<Site>,
}

type Result<T> = std::result::Result<T, CompileError>;

/// Emits the only entry point of a module.
pub(crate) fn emit(
    mut b: FunctionBuilder<'_>,
    (module, info): (&Module, &ModuleInfo),
    options: &Options,
    prove: ranges::BoundsProver,
    isa: &dyn TargetIsa,
) -> Result<Emitted> {
    let point = &module.entry_points[0];
    let (runtime, groups) = Runtime::new(&mut b, isa, options.bounded_loops);
    let gang = Gang::new(point.workgroup_size, options.single_lane, b.ins().iconst(types::I32, 0));
    let uniformity = Uniformity::new(module, info, Scope::Gang(gang.lanes));
    // Proofs about loads need workgroup uniformity: another invocation may change memory between two loads.
    let proven = if options.elide_bounds_checks {
        prove(module, &uniformity, &Uniformity::new(module, info, Scope::WorkGroup))
    } else {
        HashSet::new()
    };
    let sync_points = SyncPoints::for_lanes(module, gang.lanes);
    let regions = sync_points.are_in(&point.function.body).then(|| Regions::new(sync_points, &uniformity));
    let mut emitter = Emitter {
        module,
        options,
        proven,
        current_span: Span::UNDEFINED,
        runtime,
        control: ControlFlow::default(),
        group: GroupFlow::default(),
        // With barriers, all gangs of a workgroup are in flight, so each needs its own frame.
        layout: Layout::new(gang.lanes, if regions.is_some() { gang.count() } else { 1 }),
        gang,
        variables: Variables::default(),
        activations: uniformity.activations.iter().map(|_| ActivationState::default()).collect(),
        uniformity,
        spills: Spills::new(regions.as_ref()),
        budget: Budget::default(),
        site_table: SiteTable::default(),
        taints: Taints::default(),
        b,
    };
    // First, because frames start after workgroup memory: its size must be final when the first frame is
    // addressed.
    emitter.place_globals(info)?;
    let emitted = emitter.workgroups(groups, regions.as_ref());
    emitted.map_err(|error| error.with_default_span(emitter.current_span))?;
    let Emitter { mut b, runtime, layout, site_table, .. } = emitter;
    runtime.finish(&mut b);
    // Blocks of loops and early exits get predecessors late, so all are sealed here instead of one by one.
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    Ok(layout.finish(site_table.into_sites()))
}

impl<'m> Emitter<'m, '_> {
    /// Assigns a location to every global that the entry point uses.
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
                    self.layout.add_workgroup_variable(handle, crate::types::bytes(self.module, variable.ty));
                }
                (AddressSpace::Private, _) => {
                    let inner = &self.module.types[variable.ty].inner;
                    self.declare(Variable::Private(handle), inner, span, false)?;
                }
                (space, _) => {
                    return Err(CompileError::new(
                        span,
                        format!("expected a variable in memory, found one in {space:?}"),
                    ));
                }
            }
        }
        // The order of the call context: by group, then by binding number. Unused bindings have no entry.
        bound.sort_by_key(|(slot, _)| *slot);
        bound.into_iter().zip(0..).for_each(|((_, handle), binding)| self.layout.add_binding(handle, binding));
        Ok(())
    }

    /// Declares the Cranelift variables of a scalar: one if it is uniform, otherwise one per vector.
    fn register(&mut self, kind: Kind, varies: bool) -> [Register; VECTORS] {
        self.budget.add_registers(if varies { VECTORS } else { 1 });
        if varies {
            std::array::from_fn(|_| self.b.declare_var(vector_type(kind)))
        } else {
            // One variable, repeated to have the type of the varying case; only the first entry is used.
            [self.b.declare_var(scalar_type(kind)); VECTORS]
        }
    }

    /// Assigns a value to the variables of a scalar.
    fn set_register(&mut self, register: [Register; VECTORS], varies: bool, scalar: Scalar) {
        if varies {
            let parts = self.vectors(scalar);
            register.iter().zip(parts).for_each(|(register, part)| self.b.def_var(*register, part));
        } else {
            let value = self.lane(scalar, 0);
            self.b.def_var(register[0], value);
        }
    }

    /// Reads the variables of a scalar.
    fn get_register(&mut self, register: [Register; VECTORS], varies: bool, kind: Kind) -> Scalar {
        if varies {
            Scalar::varying(kind, register.map(|register| self.b.use_var(register)))
        } else {
            let value = self.b.use_var(register[0]);
            Scalar::uniform(kind, value)
        }
    }

    /// Returns the span of an expression, which may be undefined.
    fn span(&self, id: ActivationId, expression: Handle<Expression>) -> Span {
        self.uniformity.activations[id].function.expressions.get_span(expression)
    }

    /// Returns the resolved type of an expression.
    fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> TypeInner {
        self.uniformity.activations[id].info[expression].ty.inner_with(&self.module.types).clone()
    }

    /// Charges one iteration of a loop that started at cost `before`. Inner loops charge their own iterations.
    fn spend_iteration(&mut self, before: u64) {
        self.runtime.spend_fuel(&mut self.b, self.budget.iteration_cost(before));
    }

    /// Whether invocations may return from inside the statement while others stay active.
    fn may_return(&self, id: ActivationId, statement: &Statement) -> bool {
        self.uniformity.returns_divergently(id) && has_return(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_codegen::ir::Function;
    use cranelift_frontend::FunctionBuilderContext;

    /// Runs a test with a builder that has a current block.
    pub(crate) fn with_builder(test: impl FnOnce(&mut FunctionBuilder<'_>)) {
        let (mut function, mut context) = (Function::new(), FunctionBuilderContext::new());
        let mut b = FunctionBuilder::new(&mut function, &mut context);
        let block = b.create_block();
        b.switch_to_block(block);
        test(&mut b);
    }

    /// Returns three local variables, one in each of these activations.
    pub(crate) fn locals(ids: [ActivationId; 3]) -> [Variable; 3] {
        let module = naga::front::wgsl::parse_str("fn f() { var a: f32; var b: f32; var c: f32; }").unwrap();
        let (_, function) = module.functions.iter().next().unwrap();
        let mut handles = function.local_variables.iter().map(|(handle, _)| handle);
        ids.map(|id| Variable::Local(id, handles.next().unwrap()))
    }
}
