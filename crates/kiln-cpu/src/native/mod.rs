//! Native execution of plans: everything that does not depend on the data is decided once, when a plan is compiled.
//!
//! Steps run in order, each over tiles that stay in the L1 cache, on the caller's thread or, if it is worth it, on
//! all threads. A run of consecutive native steps (a group) locks all buffers once. A step whose op has no CPU code is
//! a WGSL kernel between two groups.

mod blocks;
mod body;
mod columns;
mod extremum;
mod fold;
mod lanes;
mod load;
mod loops;
mod machine;
mod output;
mod reduce;
mod step;
mod tiles;
mod timer;
mod workers;

pub(crate) use timer::KernelTimer;

use crate::CpuDevice;
use crate::map::{bytes_of, bytes_of_mut};
use body::bug;
use kiln_device::{BufferSet, BufferUse, CompiledPlan, Device, LockedBuffers, PlanRun, WgslStep};
use kiln_ir::kernel::Core;
use kiln_ir::plan::{Place, Plan, Source, Step};
use kiln_ir::{Error, ErrorKind, Result};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use step::{BufferRequirement, PlanStep};
use timer::TimedSteps;
use workers::PlanWorkers;

/// A plan compiled for a CPU device.
pub(crate) struct NativePlan {
    cpu: Arc<CpuDevice>,
    plan: Arc<Plan>,
    name: Arc<str>,
    steps: Vec<PlanStep>,
    /// The steps in order, in groups that each run under one lock.
    groups: Vec<StepGroup>,
    /// The size and alignment required of each buffer: slots, dedicated values, inputs.
    requirements: Vec<BufferRequirement>,
    /// Minimum number of inputs; a run may pass inputs that no step reads.
    inputs: usize,
    scalars: usize,
}

/// Consecutive steps that run under one lock.
enum StepGroup {
    /// Native steps: their range in the plan, and in [`NativePlan::steps`].
    Native {
        of_plan: Range<usize>,
        steps: Range<usize>,
        /// The grouping of the steps for timing, computed when first needed.
        timed_steps: OnceLock<Vec<TimedSteps>>,
    },
    /// A step without CPU code.
    Wgsl(Box<WgslStep>),
}

/// Base addresses of the buffers of a run: slots, dedicated values, inputs.
type Bases = SmallVec<[*mut u8; 16]>;

impl NativePlan {
    /// Compiles a plan for the SIMD level of a device.
    ///
    /// # Errors
    /// Returns `Internal` if the plan is malformed; errors of [`WgslStep::new`] if a step has no CPU code.
    pub(crate) fn new(cpu: Arc<CpuDevice>, device: &Device, plan: &Arc<Plan>) -> Result<Self> {
        let dedicated = plan.values.iter().filter(|value| value.place == Place::Dedicated).count();
        let mut requirements: Vec<BufferRequirement> =
            plan.slots.iter().map(|&bytes| BufferRequirement { bytes, alignment: 4 }).collect();
        // The index of each value's buffer in `requirements`.
        let mut buffers = Vec::with_capacity(plan.values.len());
        for value in &plan.values {
            let bytes = (value.ty.shape.elem_count() * value.ty.dtype.bytes()) as u64;
            match value.place {
                Place::Slot(slot) if plan.slots.get(slot).is_some_and(|&size| bytes <= size) => buffers.push(slot),
                Place::Slot(slot) => return Err(bug(format!("a value of {bytes} bytes does not fit slot {slot}"))),
                Place::Dedicated => {
                    buffers.push(requirements.len());
                    requirements.push(BufferRequirement { bytes, alignment: value.ty.dtype.bytes() });
                }
            }
        }
        let first_input = plan.slots.len() + dedicated;
        let find = |source: &Source| match *source {
            Source::Input(input) => Some(first_input + input),
            Source::Value(value) => buffers.get(value).copied(),
        };
        // `PlanStep::new` appends the requirements of the inputs that a step reads.
        let (mut steps, mut groups, mut scalars) = (Vec::new(), vec![StepGroup::native(0, 0)], 0);
        for (number, step) in plan.steps.iter().enumerate() {
            if !has_host_code(step) {
                groups.push(StepGroup::Wgsl(Box::new(WgslStep::new(device, plan, step)?)));
                groups.push(StepGroup::native(number + 1, steps.len()));
                continue;
            }
            let compiled = PlanStep::new(step, plan, &find, cpu.simd(), &mut requirements);
            let compiled = compiled.map_err(|error| error.context(format!("kernel `{}`", step.kernel.name)))?;
            scalars = scalars.max(compiled.scalars());
            steps.push(compiled);
            if let Some(StepGroup::Native { of_plan, steps, .. }) = groups.last_mut() {
                (of_plan.end, steps.end) = (number + 1, steps.end + 1);
            }
        }
        // A plan without steps is one empty group, so that its run gets a submission number.
        let is_needed = |group: &StepGroup| !matches!(group, StepGroup::Native { steps, .. } if steps.is_empty());
        if groups.len() > 1 {
            groups.retain(is_needed);
        }
        let inputs = requirements.len() - first_input;
        Ok(Self { cpu, plan: Arc::clone(plan), name: name(plan), steps, groups, requirements, inputs, scalars })
    }

    /// Runs a group of native steps, with its buffers locked. Does nothing for a WGSL group.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the buffers or scalars do not match the plan, or if a kernel finds an operand
    /// with invalid elements; `Internal` if a kernel panicked.
    fn run_group(
        &self,
        group: &StepGroup,
        buffers: &BufferSet<'_>,
        scalars: &[u32],
        timer: Option<&mut KernelTimer>,
    ) -> Result<()> {
        let StepGroup::Native { of_plan, steps, timed_steps } = group else { return Ok(()) };
        // Held until the end: the bases are valid only while the lock is held.
        let mut locked = buffers.lock();
        let bases = self.bases(buffers, &mut locked)?;
        let workers = PlanWorkers { threads: self.cpu.threads(), simd: self.cpu.simd() };
        let run = |step: &PlanStep| {
            // SAFETY: `bases` checked that each buffer has the size and alignment that the steps were checked
            // against. `locked` guarantees that nothing else accesses what is written, and nothing writes what is
            // read. The device checked that the processor supports the SIMD level when it was opened.
            unsafe { step.run(&bases, scalars, &workers) }
        };
        let steps = &self.steps[steps.clone()];
        let Some(timer) = timer else { return steps.iter().try_for_each(run) };
        timer.begin();
        for timed in timed_steps.get_or_init(|| timer::timed_steps(&self.plan.steps[of_plan.clone()])) {
            steps[timed.steps.clone()].iter().try_for_each(run)?;
            timer.end(timed);
        }
        Ok(())
    }

    /// Returns the base address of each buffer, in the order of `requirements`: slots and dedicated values, then inputs.
    /// `buffers` has the inputs first.
    fn bases(&self, buffers: &BufferSet<'_>, locked: &mut LockedBuffers<'_>) -> Result<Bases> {
        let written = self.requirements.len() - self.inputs;
        // `run` lists the inputs first, `requirements` lists them last. There may be more than the steps read, but not
        // fewer buffers than `written`: `check` compared the counts.
        let inputs = buffers.buffers().len() - written;
        let mut bases = Bases::with_capacity(self.requirements.len());
        for (index, requirement) in self.requirements.iter().enumerate() {
            let (buffer, start) = if index < written {
                let buffer = inputs + index;
                (buffer, bytes_of_mut(&mut locked.region_mut(buffer))?.as_mut_ptr())
            } else {
                let buffer = index - written;
                (buffer, bytes_of(&locked.region(buffer))?.as_ptr().cast_mut())
            };
            requirement.check(buffer, buffers.buffers()[buffer].0.bytes(), start)?;
            bases.push(start);
        }
        Ok(bases)
    }

    /// Returns an error if the arguments of a run do not match the plan.
    fn check(&self, run: &PlanRun<'_>) -> Result<()> {
        let slots = self.plan.slots.len();
        let dedicated = self.requirements.len() - self.inputs - slots;
        let PlanRun { inputs, slots: found_slots, outputs, scalars } = run;
        let found = (inputs.len(), found_slots.len(), outputs.len(), scalars.len());
        if found.0 >= self.inputs && (found.1, found.2) == (slots, dedicated) && found.3 >= self.scalars {
            return Ok(());
        }
        let message = format!(
            "expected {} inputs, {slots} slots, {dedicated} outputs and {} scalars, found {}, {}, {} and {}",
            self.inputs, self.scalars, found.0, found.1, found.2, found.3
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

impl CompiledPlan for NativePlan {
    fn run(&self, device: &Device, run: &PlanRun<'_>) -> Result<u64> {
        let in_context = |error: Error| error.context(format!("plan `{}`", self.name));
        self.check(run).map_err(in_context)?;
        let read = run.inputs.iter().map(|&buffer| (buffer, BufferUse::Read));
        let written = run.slots.iter().chain(run.outputs).map(|buffer| (buffer, BufferUse::Write));
        let buffers = BufferSet::new(read.chain(written)).map_err(in_context)?;
        let mut last = 0;
        // No lock is held between groups: a WGSL step locks the same buffers when it is submitted.
        for group in &self.groups {
            last = match group {
                StepGroup::Wgsl(step) => {
                    let mut commands = device.commands();
                    step.record(device, run, &mut commands)?;
                    device.submit(commands)?
                }
                StepGroup::Native { .. } => device.run_on_host(&self.name, &buffers, || {
                    self.cpu.run_native(&self.name, |timer| self.run_group(group, &buffers, run.scalars, timer))
                })?,
            };
        }
        Ok(last)
    }

    fn packs_results(&self) -> bool {
        self.groups.iter().all(|group| matches!(group, StepGroup::Native { .. }))
    }

    fn bytes(&self) -> u64 {
        let kernels = self.groups.iter().map(|group| match group {
            StepGroup::Wgsl(step) => step.bytes(),
            StepGroup::Native { .. } => size_of::<StepGroup>() as u64,
        });
        let steps: usize = self.steps.iter().map(PlanStep::bytes).sum();
        kernels.sum::<u64>() + (size_of::<Self>() + steps + size_of_val(&*self.requirements)) as u64
    }

    fn sources(&self) -> Vec<(&str, &str)> {
        let sources = self.groups.iter().filter_map(|group| match group {
            StepGroup::Wgsl(step) => Some(step.source()),
            StepGroup::Native { .. } => None,
        });
        sources.collect()
    }
}

impl StepGroup {
    /// Creates an empty group that begins at a step of the plan and at an index of [`NativePlan::steps`].
    fn native(of_plan: usize, steps: usize) -> Self {
        Self::Native { of_plan: of_plan..of_plan, steps: steps..steps, timed_steps: OnceLock::new() }
    }
}

/// Returns whether a step runs natively: all do, except hand-written ops that exist only in WGSL.
fn has_host_code(step: &Step) -> bool {
    !matches!(&step.kernel.core, Core::Op { op, .. } if !op.has_host_code())
}

/// Returns the name of a plan: its first kernel, and the number of others.
fn name(plan: &Plan) -> Arc<str> {
    match &plan.steps[..] {
        [] => "nothing".into(),
        [step] => step.kernel.name.as_str().into(),
        [first, rest @ ..] => format!("{} and {} more", first.kernel.name, rest.len()).into(),
    }
}

impl fmt::Debug for NativePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativePlan").field("name", &self.name).field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}
