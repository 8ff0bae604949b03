//! From a program to Cranelift's instructions.
//!
//! In the order of a reading: `lanes` scalars of a vector of invocations · `half` · `expression`, `math` and `op` what is computed ·
//! `memory` loads and stores · `atomic` and `subgroup` · `statement` and `twice` control · `region`, `kept` and `apart` work-groups · `check` and `trace` the sanitizer.

mod apart;
mod atomic;
mod builtin;
mod check;
mod expression;
mod half;
mod kept;
mod lanes;
mod large;
mod math;
mod memory;
mod op;
mod operator;
mod pointer;
mod region;
mod statement;
mod subgroup;
mod trace;
mod twice;
mod variable;

pub use lanes::LANES;

use crate::abi;
use crate::analysis::{ActivationId, Analysis, Together, Variable};
use crate::functions::{self, FUEL};
use crate::ranges;
use crate::regions::{Meetings, Place, Regions, has_return};
use crate::sanitize::site::Site;
use crate::types::{Kind, leaf_count};
use crate::{Options, Refusal};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, SigRef, Signature, StackSlot, Value, types};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, Variable as Register};
use kept::Kept;
use lanes::{Number, PARTS, flags, scalar_type, vector_type};
use naga::valid::ModuleInfo;
use naga::{Expression, GlobalVariable, Handle, Module, Span, Statement, TypeInner};
use pointer::Pointer;
use region::{StepTarget, Stepping};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What an expression is.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Numbers(Vec<Number>),
    Pointer(Pointer),
    /// A value of too many scalars for registers, in memory that nobody writes any more.
    Stored(Pointer),
}

/// Which invocations of a vector take part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Active {
    All,
    /// Those whose lanes in these registers are ones.
    Some([Register; PARTS]),
}

/// Where a variable of an invocation lives.
#[derive(Clone, Debug)]
struct Home {
    kinds: Vec<Kind>,
    varies: bool,
    /// A register or two for each scalar; none where it lives in memory alone.
    registers: Vec<[Register; PARTS]>,
    /// The first word in the memory of the vector of invocations, where it has one.
    word: Option<u32>,
}

/// What is known in an activation while it is emitted.
#[derive(Default)]
struct Known {
    expressions: HashMap<Handle<Expression>, Operand>,
    arguments: Vec<Operand>,
    /// Where results go; for functions without barriers.
    result: Vec<[Register; PARTS]>,
    result_kinds: Vec<Kind>,
    returned: Option<Block>,
}

/// What a `break` or `continue` leads to.
struct Target {
    is_loop: bool,
    /// Where control goes when all invocations leave at once.
    on_break: Block,
    on_continue: Block,
    /// Who has left, and who waits for the next round; `None` where all leave at once.
    broke: Option<[Register; PARTS]>,
    continued: Option<[Register; PARTS]>,
}

pub(crate) struct Emitter<'m, 'b> {
    b: FunctionBuilder<'b>,
    module: &'m Module,
    options: &'m Options,
    analysis: Analysis<'m>,
    /// Pointers whose last index is inside for who takes part.
    proven: HashSet<Place>,
    lanes: usize,
    has_fma: bool,
    /// Buffers and values by their place among the bindings.
    bindings: HashMap<Handle<GlobalVariable>, u32>,
    /// Memory of the work-group: the first byte of each variable.
    shared: HashMap<Handle<GlobalVariable>, u32>,
    shared_bytes: u32,
    homes: HashMap<Variable, Home>,
    /// Variables that changed since the region began.
    written: Vec<Variable>,
    /// Words that an invocation has in memory.
    words: u32,
    /// Vectors of invocations that have theirs at the same time: without a barrier, one after the other.
    frames: u32,
    known: Vec<Known>,
    /// What the running region took from earlier ones.
    needs: BTreeSet<Place>,
    /// Where what regions compute for later ones is kept: the first word, and the form.
    kept: HashMap<Place, Kept>,
    kept_places: BTreeSet<Place>,
    /// What decides the way of an invocation where subgroups meet.
    conditions: BTreeSet<Place>,
    /// The activations that run as steps, and those of them that are under way, the innermost last.
    stepping: HashMap<ActivationId, Stepping>,
    chain: Vec<ActivationId>,
    /// Where `break` and `continue` of the whole work-group lead.
    step_targets: Vec<StepTarget>,
    /// Where decisions of the whole work-group are, behind its memory.
    decisions: HashMap<Place, u32>,
    /// Bytes of both: then comes the memory of its invocations.
    group_bytes: u32,
    active: Active,
    /// How many branches that only some take are around, in the running activation.
    branches: u32,
    /// Whether this is for where not all take part, of something that is emitted for both.
    is_partial: bool,
    targets: Vec<Target>,
    call: Value,
    helpers: Value,
    /// Where the memory of the work-group, and of the running vector of invocations, begins.
    scratch: Value,
    frame: Value,
    workgroup: [Value; 3],
    /// The number of the running vector in its work-group.
    gang: Value,
    fuel: Register,
    stopped: Block,
    /// Where code ends that came to where it never comes.
    fault: Block,
    on_floats: SigRef,
    on_watch: SigRef,
    on_event: SigRef,
    slot: StackSlot,
    pointer_bytes: u8,
    /// Instructions so far are counted by these: the budget of a program.
    emitted: usize,
    /// How many registers variables have.
    registers: u64,
    /// What was emitted so far, as often as it runs in a round of the innermost loop of the program around it.
    cost: u64,
    /// How many of them are there twice.
    emitted_twice: usize,
    /// Where in the source the running statement is, or the next one that is known.
    here: Span,
    /// Places that the sanitizer knows by their numbers here.
    sites: Vec<Site>,
    /// Variables that begin without a value, by the number of their first scalar among all of them.
    unwritten: HashMap<Variable, u32>,
    unwritten_count: u32,
    traces: trace::Traces,
}

/// What was emitted, beside the instructions.
pub(crate) struct Emitted {
    /// Bytes that the invocations of a work-group share.
    pub(crate) group_bytes: u32,
    /// Bytes of a vector of invocations, and how many of them have theirs at the same time.
    pub(crate) frame_bytes: u32,
    pub(crate) frames: u32,
    pub(crate) sites: Vec<Site>,
}

/// Statements and expressions that a program may become, functions counted where they are called.
pub(crate) const MAX_EMITTED: usize = 200_000;
/// Instructions of Cranelift that a program may become: some statements are hundreds of them, and all are in memory at once.
const MAX_INSTRUCTIONS: usize = 1_000_000;
/// The most scalars of a variable in registers: more of them are spilled in any case, and moved in and out of them at each barrier.
const MAX_REGISTER_SCALARS: u32 = 64;
/// Registers of variables times blocks: what Cranelift looks at to find out which value each of them has where.
const MAX_REGISTERS_IN_BLOCKS: u64 = 50_000_000;
/// The most scalars of a variable of an invocation.
const MAX_VARIABLE_SCALARS: u32 = 1 << 16;
/// The most memory that a thread has for the invocations which it runs.
pub(crate) const MAX_FRAMES_BYTES: u64 = 64 << 20;

/// The signature of compiled code.
pub(crate) fn signature(call_conv: CallConv, pointer: cranelift_codegen::ir::Type) -> Signature {
    let mut signature = Signature::new(call_conv);
    signature.params.extend([pointer, types::I64, types::I64].map(AbiParam::new));
    signature.returns.push(AbiParam::new(types::I32));
    signature
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
    let invocations = point.workgroup_size.iter().product::<u32>();
    let lanes = if invocations == 1 || options.one_by_one { 1 } else { LANES };
    let gangs = invocations.div_ceil(lanes as u32);
    let analysis = Analysis::new(module, info, Together::Vector(lanes));
    let proven = if options.trust_proofs {
        prove(module, &analysis, &Analysis::new(module, info, Together::WorkGroup))
    } else {
        HashSet::new()
    };
    let meetings = Meetings::of_lanes(module, lanes);
    let has_steps = meetings.are_in(&point.function.body);
    let regions = has_steps.then(|| Regions::new(meetings, &analysis));
    let pointer = isa.pointer_type();

    let start = b.create_block();
    b.append_block_params_for_function_params(start);
    b.switch_to_block(start);
    let params = b.block_params(start);
    let (call, first, end) = (params[0], params[1], params[2]);
    let convention = isa.default_call_conv();
    let mut on_floats = Signature::new(convention);
    on_floats.params.extend([pointer, types::I64].map(AbiParam::new));
    let mut on_watch = Signature::new(convention);
    on_watch.params.push(AbiParam::new(pointer));
    on_watch.returns.push(AbiParam::new(types::I64));
    let mut on_event = Signature::new(convention);
    on_event.params.extend([pointer, types::I32, types::I32, types::I64, types::I64].map(AbiParam::new));
    let (on_floats, on_watch) = (b.import_signature(on_floats), b.import_signature(on_watch));
    let on_event = b.import_signature(on_event);
    let slot = cranelift_codegen::ir::StackSlotData::new(
        cranelift_codegen::ir::StackSlotKind::ExplicitSlot,
        (2 * LANES * size_of::<f32>()) as u32,
        4,
    );
    let slot = b.create_sized_stack_slot(slot);
    let scratch = b.ins().load(pointer, flags().with_readonly().with_can_move(), call, abi::SCRATCH);
    let helpers = b.ins().load(pointer, flags().with_readonly().with_can_move(), call, abi::HELPERS);
    let fuel = b.declare_var(types::I64);
    let full = b.ins().iconst(types::I64, FUEL);
    b.def_var(fuel, full);
    let (stopped, fault) = (b.create_block(), b.create_block());
    let zero = b.ins().iconst(types::I32, 0);

    let has_flag = |name| isa.isa_flags().iter().any(|flag| flag.name == name && flag.as_bool() == Some(true));
    let has_fma = isa.name() != "x64" || has_flag("has_fma");
    let mut emitter = Emitter {
        module,
        options,
        analysis,
        proven,
        lanes,
        has_fma,
        bindings: HashMap::new(),
        shared: HashMap::new(),
        shared_bytes: 0,
        homes: HashMap::new(),
        written: Vec::new(),
        words: 0,
        frames: if has_steps { gangs } else { 1 },
        known: Vec::new(),
        needs: BTreeSet::new(),
        kept: HashMap::new(),
        kept_places: BTreeSet::new(),
        conditions: BTreeSet::new(),
        stepping: HashMap::new(),
        chain: Vec::new(),
        step_targets: Vec::new(),
        decisions: HashMap::new(),
        group_bytes: 0,
        active: Active::All,
        branches: 0,
        is_partial: false,
        targets: Vec::new(),
        call,
        helpers,
        scratch,
        frame: scratch,
        workgroup: [zero; 3],
        gang: zero,
        fuel,
        stopped,
        fault,
        on_floats,
        on_watch,
        on_event,
        slot,
        pointer_bytes: pointer.bytes() as u8,
        emitted: 0,
        registers: 0,
        cost: 0,
        emitted_twice: 0,
        here: Span::UNDEFINED,
        sites: Vec::new(),
        unwritten: HashMap::new(),
        unwritten_count: 0,
        traces: trace::Traces::default(),
        b,
    };
    emitter.place_globals(info)?;
    emitter.group_bytes = emitter.shared_bytes;
    emitter.known.resize_with(emitter.analysis.activations.len(), Known::default);
    let written = emitter.workgroups(first, end, gangs, regions.as_ref());
    written.map_err(|refusal| refusal.or_at(emitter.here))?;
    let Emitter { mut b, group_bytes, words, frames, sites, .. } = emitter;
    let frame_bytes = words * (lanes * 4) as u32;
    for (end, code) in [(stopped, abi::STOPPED), (fault, abi::FAULT)] {
        b.switch_to_block(end);
        let code = b.ins().iconst(types::I32, i64::from(code));
        b.ins().return_(&[code]);
    }
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    Ok(Emitted { group_bytes, frame_bytes, frames, sites })
}

impl<'m> Emitter<'m, '_> {
    /// Gives every global that the entry point uses its place.
    fn place_globals(&mut self, info: &ModuleInfo) -> Result<()> {
        let uses = info.get_entry_point(0);
        let mut bound = Vec::new();
        for (handle, variable) in self.module.global_variables.iter() {
            if uses[handle].is_empty() {
                continue;
            }
            match (variable.space, variable.binding) {
                (naga::AddressSpace::Storage { .. } | naga::AddressSpace::Uniform, Some(binding)) => {
                    bound.push(((binding.group, binding.binding), handle));
                }
                (naga::AddressSpace::WorkGroup, _) => {
                    self.shared.insert(handle, self.shared_bytes);
                    // Whole registers: it is cleared by them.
                    self.shared_bytes += crate::types::bytes(self.module, variable.ty).next_multiple_of(16);
                }
                (naga::AddressSpace::Private, _) => {
                    let inner = &self.module.types[variable.ty].inner;
                    self.declare(
                        Variable::Private(handle),
                        inner,
                        self.module.global_variables.get_span(handle),
                        false,
                    )?;
                }
                (space, _) => {
                    let span = self.module.global_variables.get_span(handle);
                    return Err(Refusal::new(span, format!("expected a variable in memory, found one in {space:?}")));
                }
            }
        }
        bound.sort_by_key(|(number, _)| *number);
        self.bindings = bound.into_iter().zip(0..).map(|((_, handle), place)| (handle, place)).collect();
        Ok(())
    }

    /// Gives a variable of an invocation its home, in memory as well where it outlives a region.
    fn declare(&mut self, variable: Variable, inner: &TypeInner, span: Span, outlives: bool) -> Result<()> {
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
        let word = if in_memory || outlives { Some(self.reserve(kinds.len(), span)?) } else { None };
        let registers =
            if in_memory { Vec::new() } else { kinds.iter().map(|kind| self.register(*kind, varies)).collect() };
        self.homes.insert(variable, Home { kinds, varies, registers, word });
        Ok(())
    }

    /// Gives each invocation so many words of memory, and says which is the first.
    fn reserve(&mut self, count: usize, span: Span) -> Result<u32> {
        let first = self.words;
        let words = u64::from(first) + count as u64;
        let bytes = words * (self.lanes * 4) as u64 * u64::from(self.frames);
        if bytes > MAX_FRAMES_BYTES {
            let message = format!(
                "expected at most {MAX_FRAMES_BYTES} bytes of variables for the invocations of a work-group, found {bytes}"
            );
            return Err(Refusal::new(span, message));
        }
        self.words = words as u32;
        Ok(first)
    }

    /// Registers for a scalar; one is enough where it is the same for all.
    fn register(&mut self, kind: Kind, varies: bool) -> [Register; PARTS] {
        self.registers += if varies { PARTS as u64 } else { 1 };
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

    /// The registers of who takes part; made where all do.
    fn active_mask(&mut self) -> [Value; PARTS] {
        match self.active {
            Active::All => [self.vector_constant([-1; 4]); PARTS],
            Active::Some(registers) => registers.map(|register| self.b.use_var(register)),
        }
    }

    /// From here on, who takes part is in registers, so that control may narrow it.
    fn spread_active(&mut self) -> [Register; PARTS] {
        if let Active::Some(registers) = self.active {
            return registers;
        }
        let mask = self.active_mask();
        let registers = self.new_mask(mask);
        self.active = Active::Some(registers);
        registers
    }

    fn new_mask(&mut self, mask: [Value; PARTS]) -> [Register; PARTS] {
        let registers = std::array::from_fn(|_| self.b.declare_var(types::I32X4));
        self.set_mask(registers, mask);
        registers
    }

    fn set_mask(&mut self, registers: [Register; PARTS], mask: [Value; PARTS]) {
        registers.iter().zip(mask).for_each(|(register, part)| self.b.def_var(*register, part));
    }

    fn span(&self, id: ActivationId, expression: Handle<Expression>) -> Span {
        self.analysis.activations[id].function.expressions.get_span(expression)
    }

    fn inner(&self, id: ActivationId, expression: Handle<Expression>) -> TypeInner {
        self.analysis.activations[id].info[expression].ty.inner_with(&self.module.types).clone()
    }

    /// Counts what is emitted: functions inside of functions can double it each time.
    fn spend(&mut self, items: usize, span: Span) -> Result<()> {
        self.emitted += items;
        self.cost += items as u64;
        if self.emitted > MAX_EMITTED {
            let message = format!(
                "expected at most {MAX_EMITTED} statements, expressions and scalars of large values with functions put in their place, found more"
            );
            return Err(Refusal::new(span, message));
        }
        if self.b.func.dfg.num_insts() > MAX_INSTRUCTIONS {
            let message = format!("expected a program of at most {MAX_INSTRUCTIONS} instructions, found more");
            return Err(Refusal::new(span, message));
        }
        if self.registers * self.b.func.dfg.num_blocks() as u64 > MAX_REGISTERS_IN_BLOCKS {
            return Err(Refusal::new(
                span,
                "expected fewer variables, or fewer branches and accesses, found too many of both",
            ));
        }
        Ok(())
    }

    /// Takes a round of a loop, with all that was emitted since its cost was so much, from what is left before the clock is looked at.
    /// Loops inside of it do so themselves.
    fn spend_round(&mut self, before: u64) {
        if !self.options.bounded_loops {
            return;
        }
        let left = self.b.use_var(self.fuel);
        let cost = (self.cost - before).clamp(1, i32::MAX as u64);
        let left = self.b.ins().iadd_imm_s(left, -(cost as i64));
        self.b.def_var(self.fuel, left);
        let is_empty = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        let (look, after) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(look);
        self.b.ins().brif(is_empty, look, &[], after, &[]);
        self.b.switch_to_block(look);
        let pointer = self.b.func.dfg.value_type(self.call);
        let watch = self.b.ins().load(pointer, flags(), self.call, abi::WATCH);
        let helper = self.helper(functions::REFUEL);
        let inst = self.b.ins().call_indirect(self.on_watch, helper, &[watch]);
        let fuel = self.b.inst_results(inst)[0];
        self.b.def_var(self.fuel, fuel);
        let is_over = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, fuel, 0);
        let stopped = self.stopped;
        self.b.ins().brif(is_over, stopped, &[], after, &[]);
        self.b.switch_to_block(after);
    }

    fn helper(&mut self, place: i32) -> Value {
        let pointer = self.b.func.dfg.value_type(self.helpers);
        let offset = place * i32::from(self.pointer_bytes);
        self.b.ins().load(pointer, flags().with_readonly().with_can_move(), self.helpers, offset)
    }

    /// Whether some who are in the statement may leave its function early, each at its own time.
    fn may_return(&self, id: ActivationId, statement: &Statement) -> bool {
        self.analysis.returns_apart(id) && has_return(statement)
    }
}
