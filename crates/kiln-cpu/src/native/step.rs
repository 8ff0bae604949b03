//! The compiled steps of a plan.

use super::body::{TileProgram, bug};
use super::output::Output;
use super::reduce::ReduceStep;
use super::tiles::{Arena, Memory, Runner};
use super::workers::PlanWorkers;
use kiln_ir::host::{HostCall, HostOperand};
use kiln_ir::kernel::{Core, Operand};
use kiln_ir::plan::{Plan, Source, Step};
use kiln_ir::{DType, Error, ErrorKind, KernelOp, Result, SimdLevel};
use smallvec::SmallVec;
use std::sync::Arc;

/// Elements that one thread takes at a time.
const PART: usize = 1 << 15;

/// The size and alignment required of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferRequirement {
    pub(crate) bytes: u64,
    pub(crate) alignment: usize,
}

impl BufferRequirement {
    pub(crate) fn check(self, buffer: usize, bytes: u64, start: *const u8) -> Result<()> {
        let Self { bytes: expected, alignment } = self;
        if bytes >= expected && (start as usize).is_multiple_of(alignment) {
            return Ok(());
        }
        let offset = start as usize % alignment;
        let message = format!(
            "buffer {buffer} expected {expected} bytes aligned to {alignment}, found {bytes} bytes, misaligned by {offset}"
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

/// A compiled step.
pub(crate) struct PlanStep {
    name: String,
    core: StepCore,
    /// The buffer index of each operand: those of the core, then those of the body.
    reads: SmallVec<[u32; 4]>,
    core_operands: usize,
    writes: u32,
    elements: usize,
    bytes: usize,
}

enum StepCore {
    Map(TileProgram),
    Reduce(Box<ReduceStep>),
    Op { op: Arc<dyn KernelOp>, operands: Vec<Operand>, body: TileProgram, operand_bytes: Vec<usize> },
}

type Pointers = SmallVec<[*const u8; 8]>;

impl PlanStep {
    /// Returns its size in memory in bytes, including machine code.
    pub(crate) fn bytes(&self) -> usize {
        let programs = match &self.core {
            StepCore::Map(program) => program.bytes(),
            StepCore::Reduce(reduce) => size_of::<ReduceStep>() + reduce.input.bytes() + reduce.body.bytes(),
            StepCore::Op { operands, body, .. } => size_of_val(&**operands) + body.bytes(),
        };
        size_of::<Self>() + self.name.len() + programs
    }

    /// Compiles a step. `find` returns the buffer of a source; `requirements` is extended by what the step reads of the
    /// inputs.
    ///
    /// # Errors
    /// Returns `Internal` if the step is malformed.
    pub(crate) fn new(
        step: &Step,
        plan: &Plan,
        find: &dyn Fn(&Source) -> Option<usize>,
        level: SimdLevel,
        requirements: &mut Vec<BufferRequirement>,
    ) -> Result<Self> {
        let kernel = &step.kernel;
        let (elements, dtype) = (kernel.output.shape.elem_count(), kernel.output.dtype);
        let bytes = elements * dtype.bytes();
        let value = plan.values.get(step.writes).filter(|value| value.ty == kernel.output);
        let writes = value.and(find(&Source::Value(step.writes)));
        let writes = writes
            .ok_or_else(|| bug(format!("value {} does not have the type that the kernel writes", step.writes)))?;
        if kernel.body.space.elem_count() != elements {
            return Err(bug(format!("the body's space {} is not the output", kernel.body.space)));
        }
        if step.reads.len() != kernel.operands().count() {
            return Err(bug(format!("{} sources for {} operands", step.reads.len(), kernel.operands().count())));
        }
        let mut reads: SmallVec<[u32; 4]> = SmallVec::new();
        for (source, operand) in step.reads.iter().zip(kernel.operands()) {
            let buffer = find(source).ok_or_else(|| bug(format!("{source:?} does not exist")))?;
            // Loops borrow the output mutably and the operands immutably, so they must not share memory.
            if buffer == writes {
                return Err(bug(format!(
                    "{source:?} shares a buffer with value {}, which the step writes",
                    step.writes
                )));
            }
            let end = (operand.layout.range().end * operand.dtype.bytes()) as u64;
            match *source {
                Source::Value(value) => {
                    let ty = &plan.values[value].ty;
                    if ty.dtype != operand.dtype || end > (ty.shape.elem_count() * ty.dtype.bytes()) as u64 {
                        return Err(bug(format!("{source:?} is read beyond its end or as another dtype")));
                    }
                }
                Source::Input(_) => {
                    if requirements.len() <= buffer {
                        requirements.resize(buffer + 1, BufferRequirement { bytes: 0, alignment: 1 });
                    }
                    let requirement = &mut requirements[buffer];
                    requirement.bytes = requirement.bytes.max(end);
                    requirement.alignment = requirement.alignment.max(operand.dtype.bytes());
                }
            }
            reads.push(buffer as u32);
        }
        // Copies of 64-bit elements run as copies of twice as many words. `bytes` and the checks above are unaffected.
        let words = kernel.as_word_copy();
        let (kernel, elements, dtype) = match &words {
            Some(words) => (words, elements * 2, DType::U32),
            None => (kernel, elements, dtype),
        };
        let body = TileProgram::new(&kernel.body, Some(dtype), level)?;
        let core = StepCore::new(&kernel.core, body, requirements, &reads, level)?;
        if matches!(&core, StepCore::Reduce(reduce) if reduce.kept() != elements) {
            return Err(bug(format!("a reduction does not produce {elements} elements")));
        }
        let (name, core_operands) = (kernel.name.clone(), kernel.core.operands().len());
        Ok(Self { name, core, reads, core_operands, writes: writes as u32, elements, bytes })
    }

    /// Returns the number of scalars that a run must pass.
    pub(crate) fn scalars(&self) -> usize {
        match &self.core {
            StepCore::Map(body) | StepCore::Op { body, .. } => body.scalars,
            StepCore::Reduce(reduce) => reduce.input.scalars.max(reduce.body.scalars),
        }
    }

    /// Runs the step.
    ///
    /// # Safety
    /// The buffers at `bases` must have the size and alignment that were required of them. Nothing else may access what the step
    /// writes, or write what it reads. `scalars` must have as many elements as the step requires, and the processor
    /// must support the SIMD level.
    ///
    /// # Errors
    /// Returns `Internal` if a thread panicked, and the errors of the kernel.
    pub(crate) unsafe fn run(&self, bases: &[*mut u8], scalars: &[u32], workers: &PlanWorkers<'_>) -> Result<()> {
        // A `Runner` requires a nonempty space, because it reads the element of each splat.
        if self.elements == 0 {
            return Ok(());
        }
        let operands: Pointers = self.reads.iter().map(|&buffer| bases[buffer as usize].cast_const()).collect();
        let output = bases[self.writes as usize];
        let (core, epilogue) = operands.split_at(self.core_operands);
        let memory = Memory { operands: epilogue, output, scalars };
        // SAFETY: the step was checked against the requirements when it was compiled; the rest is guaranteed by the caller.
        let done = unsafe {
            match &self.core {
                StepCore::Map(program) => run_map(program, memory, self.elements, workers),
                StepCore::Reduce(reduce) => {
                    let input = Memory { operands: core, output: std::ptr::null_mut(), scalars };
                    reduce.run(input, memory, workers)
                }
                StepCore::Op { op, operands, body, operand_bytes } => {
                    let operands: SmallVec<[HostOperand<'_>; 4]> = operands
                        .iter()
                        .zip(core.iter().zip(operand_bytes))
                        .map(|(Operand { dtype, layout }, (&start, &bytes))| HostOperand {
                            dtype: *dtype,
                            layout,
                            bytes: std::slice::from_raw_parts(start, bytes),
                        })
                        .collect();
                    let output = Output { program: body, memory, elements: self.elements, bytes: self.bytes };
                    op.run(&HostCall { workers, operands: &operands, output: &output })
                }
            }
        };
        done.map_err(|error| error.context(format!("kernel `{}`", self.name)))
    }
}

impl StepCore {
    fn new(
        core: &Core,
        program: TileProgram,
        requirements: &[BufferRequirement],
        reads: &[u32],
        level: SimdLevel,
    ) -> Result<Self> {
        Ok(match core {
            // A map has no core: its `Runner` would read the core's results through a null pointer.
            Core::Map if program.core.is_some() => {
                return Err(bug("a program without a core reads the result of a core".into()));
            }
            Core::Map => Self::Map(program),
            Core::Reduce { op, input, kept } => {
                Self::Reduce(Box::new(ReduceStep::new(*op, input, *kept, program, level)?))
            }
            Core::Op { op, operands } => {
                // A later step may raise the requirement of an input. The slice of this step still has all that it reads, and
                // stays within the buffer.
                let operand_bytes =
                    reads.iter().take(operands.len()).map(|&read| requirements[read as usize].bytes as usize).collect();
                Self::Op { op: Arc::clone(op), operands: operands.clone(), body: program, operand_bytes }
            }
        })
    }
}

/// Runs a program over its whole space.
///
/// # Safety
/// As [`Runner::new`].
unsafe fn run_map(program: &TileProgram, memory: Memory<'_>, elements: usize, workers: &PlanWorkers<'_>) -> Result<()> {
    let cost = elements * program.cost;
    let Some(blocks) = program.blocks else {
        return workers.run(cost, elements.div_ceil(PART), &|part| {
            let range = part * PART..((part + 1) * PART).min(elements);
            let mut arena = Arena::new();
            // SAFETY: guaranteed by the caller; parts have disjoint elements.
            unsafe { Runner::new(program, memory, range.len(), &mut arena).run_range(range) };
        });
    };
    let parts = elements.div_ceil(PART);
    workers.run(cost, parts, &|part| {
        let mut arena = Arena::new();
        // SAFETY: guaranteed by the caller; parts have disjoint blocks.
        unsafe {
            let runner = Runner::new(program, memory, elements, &mut arena);
            // Part `p` begins at block `count * p / parts`: sizes differ by at most one, and no block is lost to rounding.
            let (columns, first) = (runner.block_columns(), |part| blocks.count(runner.block_columns()) * part / parts);
            for number in first(part)..first(part + 1) {
                runner.run_block(blocks.block(number, columns), blocks.pitch);
            }
        }
    })
}
