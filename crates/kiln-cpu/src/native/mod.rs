//! Plans as the CPU runs them: everything that does not depend on the data is decided once, when a program is made.
//!
//! A program runs as one command. All its buffers are locked once; then step after step runs, each over tiles that stay in
//! the first cache, on the caller's thread or, where it is worth it, on all.

mod best;
mod blocks;
mod body;
mod columns;
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

use crate::Threads;
use crate::map::{bytes_of, bytes_of_mut};
use body::bug;
use kiln_device::{Buffer, BufferUse, CommandList, NativeRun};
use kiln_ir::plan::{Place, Plan, Source};
use kiln_ir::{Error, ErrorKind, Result, SimdLevel};
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, OnceLock};
use step::{PlanStep, Room};
use timer::TimedSteps;
use workers::Pieces;

/// A plan that is ready to run on the CPU, as often as wanted, on any number of threads at once.
///
/// [`CpuDevice`](crate::CpuDevice) runs it as a [`NativeRun`] with these buffers, in order: the inputs of the plan, which
/// are read; its slots; and the values that have a buffer of their own, by index. The call's words are the scalars.
pub struct NativeProgram {
    plan: Arc<Plan>,
    name: Arc<str>,
    level: SimdLevel,
    steps: Vec<PlanStep>,
    /// What each buffer must have: those of the slots, of the own values, of the inputs.
    rooms: Vec<Room>,
    /// How many of them are inputs, at least; a run may bring inputs that no step reads.
    inputs: usize,
    scalars: usize,
    /// The steps as they are timed, from the first time on that they are.
    timed_steps: OnceLock<Vec<TimedSteps>>,
}

/// The memory of a run: slots, own values, inputs.
type Bases = SmallVec<[*mut u8; 16]>;

impl NativeProgram {
    /// Makes a plan ready for a level of vector instructions.
    ///
    /// # Errors
    /// `Unsupported` where the processor lacks the level; `Internal` where the plan is not well formed.
    pub fn new(plan: &Arc<Plan>, level: SimdLevel) -> Result<Self> {
        crate::simd::check(level)?;
        let own = plan.values.iter().filter(|value| value.place == Place::Own).count();
        let mut rooms: Vec<Room> = plan.slots.iter().map(|&bytes| Room { bytes, alignment: 4 }).collect();
        let mut places = Vec::with_capacity(plan.values.len());
        for value in &plan.values {
            let bytes = (value.ty.shape.elements() * value.ty.dtype.bytes()) as u64;
            match value.place {
                Place::Slot(slot) if plan.slots.get(slot).is_some_and(|&room| bytes <= room) => places.push(slot),
                Place::Slot(slot) => return Err(bug(format!("a value of {bytes} bytes does not fit slot {slot}"))),
                Place::Own => {
                    places.push(rooms.len());
                    rooms.push(Room { bytes, alignment: value.ty.dtype.bytes() });
                }
            }
        }
        let first_input = plan.slots.len() + own;
        let mut program = Self {
            plan: Arc::clone(plan),
            name: name(plan),
            level,
            steps: Vec::new(),
            rooms,
            inputs: 0,
            scalars: 0,
            timed_steps: OnceLock::new(),
        };
        for step in &plan.steps {
            let find = |source: &Source| match *source {
                Source::Input(input) => Some(first_input + input),
                Source::Value(value) => places.get(value).copied(),
            };
            let made = PlanStep::new(step, plan, &find, level, &mut program.rooms);
            let made = made.map_err(|error| error.context(format!("kernel `{}`", step.kernel.name)))?;
            program.scalars = program.scalars.max(made.scalars());
            program.steps.push(made);
        }
        program.inputs = program.rooms.len() - first_input;
        Ok(program)
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The level that it was made for. Its loops use no instructions above it, maybe fewer.
    pub fn simd(&self) -> SimdLevel {
        self.level
    }

    /// A run: the buffers of all inputs, of all slots, and of all own values, each in order, and the scalars as the bits of
    /// their class.
    ///
    /// # Errors
    /// As [`NativeRun::new`].
    pub fn on<'a>(
        &'a self,
        inputs: &[&'a Buffer],
        slots: &'a [Buffer],
        own: &'a [Buffer],
        scalars: &'a [u32],
    ) -> Result<NativeRun<'a>> {
        let read = inputs.iter().map(|&buffer| (buffer, BufferUse::Read));
        let written = slots.iter().chain(own).map(|buffer| (buffer, BufferUse::Write));
        NativeRun::new(self, &self.name, read.chain(written), scalars)
    }

    /// Records a run, as [`on`](Self::on) makes it.
    ///
    /// # Errors
    /// As [`CommandList::native`].
    pub fn record(
        self: &Arc<Self>,
        commands: &mut CommandList,
        inputs: &[Buffer],
        slots: &[Buffer],
        own: &[Buffer],
        scalars: Vec<u32>,
    ) -> Result<()> {
        let read = inputs.iter().map(|buffer| (buffer.clone(), BufferUse::Read));
        let written = slots.iter().chain(own).map(|buffer| (buffer.clone(), BufferUse::Write));
        commands.native(Arc::clone(self) as _, Arc::clone(&self.name), read.chain(written), scalars)
    }

    /// Runs the program on the buffers of a call.
    ///
    /// # Errors
    /// `InvalidArgument` where the buffers or scalars are not those of the plan, or where a kernel finds an operand at
    /// fault; `Unsupported` where the program is for a higher level; `Internal` where a kernel panicked.
    pub(crate) fn run(
        &self,
        call: &NativeRun<'_>,
        threads: &Threads,
        level: SimdLevel,
        timer: Option<&mut KernelTimer>,
    ) -> Result<()> {
        if self.level > level {
            let message = format!("expected a program for {level} or less, found one for {}", self.level);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if call.words().len() < self.scalars {
            let (expected, found) = (self.scalars, call.words().len());
            let message = format!("expected {expected} scalars, found {found}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // Held to the end: the bases are valid for as long as it lives.
        let mut access = call.access();
        let bases = self.bases(call, &mut access)?;
        let pieces = Pieces { threads, simd: self.level };
        let run = |step: &PlanStep| {
            // SAFETY: `bases` checked that each buffer has the room and the alignment that the steps were checked
            // against, and `access` proves that nobody else touches what is written, and nobody writes what is read.
            // The level is one that the processor has, by the check in `new`.
            unsafe { step.run(&bases, call.words(), &pieces) }
        };
        let Some(timer) = timer else { return self.steps.iter().try_for_each(run) };
        timer.begin();
        for timed in self.timed_steps.get_or_init(|| timer::timed_steps(&self.plan)) {
            self.steps[timed.steps.clone()].iter().try_for_each(run)?;
            timer.end(timed);
        }
        Ok(())
    }

    /// Where the memory of each buffer begins, in the order of the rooms.
    fn bases(&self, call: &NativeRun<'_>, access: &mut kiln_device::NativeAccess<'_>) -> Result<Bases> {
        let written = self.rooms.len() - self.inputs;
        let found = call.buffers().len();
        let Some(inputs) = found.checked_sub(written).filter(|&inputs| inputs >= self.inputs) else {
            let (inputs, slots) = (self.inputs, self.plan.slots.len());
            let own = written - slots;
            let message = format!("expected {inputs} inputs, {slots} slots and {own} outputs, found {found} buffers");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        };
        let mut bases = Bases::with_capacity(self.rooms.len());
        for (index, room) in self.rooms.iter().enumerate() {
            let (buffer, start) = if index < written {
                let buffer = inputs + index;
                self.check_use(call, buffer, BufferUse::Write)?;
                (buffer, bytes_of_mut(&mut access.region_mut(buffer))?.as_mut_ptr())
            } else {
                let buffer = index - written;
                self.check_use(call, buffer, BufferUse::Read)?;
                (buffer, bytes_of(&access.region(buffer))?.as_ptr().cast_mut())
            };
            room.check(buffer, call.buffers()[buffer].0.bytes(), start)?;
            bases.push(start);
        }
        Ok(bases)
    }

    fn check_use(&self, call: &NativeRun<'_>, buffer: usize, expected: BufferUse) -> Result<()> {
        let found = call.buffers()[buffer].1;
        if found == expected {
            return Ok(());
        }
        let message = format!("buffer {buffer} expected the use {expected:?}, found {found:?}");
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

/// What a program is called: its first kernel, and how many there are.
fn name(plan: &Plan) -> Arc<str> {
    match &plan.steps[..] {
        [] => "nothing".into(),
        [step] => step.kernel.name.as_str().into(),
        [first, rest @ ..] => format!("{} and {} more", first.kernel.name, rest.len()).into(),
    }
}

impl fmt::Debug for NativeProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeProgram")
            .field("name", &self.name)
            .field("steps", &self.steps.len())
            .finish_non_exhaustive()
    }
}
