//! Kernels in WGSL: compiled by `kiln-jit`, run by the threads of the device.

use crate::Threads;
use crate::map::{bytes_of, bytes_of_mut};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_jit::{Bound, Compiled, Compiler, Finding, MAX_BOUND_BYTES, Options, Outcome, Refusal, Run, Scratch, Watched};
use kiln_runtime::{
    Artifact, BindingKind, BufferUse, Code, Dispatch, KernelFlag, Loaded, NativeRun, Program, RawKernel, RuntimeChecks,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Dispatches of fewer invocations run on the thread that submits them: they are over before another one is awake.
const MIN_PARALLEL_INVOCATIONS: u64 = 1024;
/// Parts of a dispatch for each thread, so that one which comes late still finds some.
const PARTS_PER_THREAD: u64 = 8;

/// Bytes of buffers that a watched dispatch may write: to know who touched them takes a dozen times as many.
const MAX_WATCHED_BYTES: u64 = 128 << 20;

/// What a [`RawKernel`] of the CPU device holds.
#[derive(Debug)]
struct CpuKernel {
    code: kiln_jit::Code,
    invocations: u64,
    zero_workgroup: bool,
}

/// How kernels of a device run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// Invocations do not run as vectors.
    pub(crate) one_by_one: bool,
    /// What they do is watched.
    pub(crate) sanitize: bool,
}

/// Compiles a program.
pub(crate) fn translate(compiler: &Compiler, program: &Program, mode: Mode) -> Result<Artifact> {
    let options = program.key.options();
    let checks = RuntimeChecks {
        bounds: options.bounds_checks,
        loops: !options.flags.contains(&KernelFlag::UnboundedLoops),
        zero_workgroup: !options.flags.contains(&KernelFlag::UninitialisedWorkgroup),
    };
    let options = Options {
        bounds_checks: checks.bounds,
        fast_math: options.fast_math,
        bounded_loops: checks.loops,
        zero_workgroup: checks.zero_workgroup,
        one_by_one: mode.one_by_one,
        sanitize: mode.sanitize,
    };
    let compiled = compiler.compile(&program.module, &program.info, &options);
    let compiled = compiled.map_err(|refusal| refused(program, &refusal))?;
    let compiled = if mode.sanitize { compiled.with_lines_of(program.key.to_source().text()) } else { compiled };
    Ok(Artifact {
        reflection: program.reflection.clone(),
        code: Code::Machine(compiled.to_bytes()),
        driver_blob: None,
        checks,
    })
}

/// The refusal with its place in the source.
fn refused(program: &Program, refusal: &Refusal) -> Error {
    let source = program.key.to_source();
    let place = match refusal.span.is_defined() {
        true => {
            let place = refusal.span.location(source.text());
            format!("{}:{}:{}", source.name(), place.line_number, place.line_position)
        }
        false => source.name().to_string(),
    };
    Error::new(ErrorKind::Unsupported, format!("{place}: {refusal}"))
}

/// Makes code that runs of compiled code.
pub(crate) fn load(artifact: &Artifact) -> Result<Loaded> {
    let Code::Machine(bytes) = &artifact.code else {
        let message = format!("CPU device expected machine code, found {artifact:?}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    };
    let compiled = Compiled::from_bytes(bytes).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "CPU device expected compiled code, found bytes that are none")
    })?;
    let code = kiln_jit::Code::new(compiled).map_err(|error| {
        let message = "CPU device expected memory for machine code, found that the system gives none";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    let invocations = artifact.reflection.workgroup_size.iter().map(|size| u64::from(*size)).product();
    let kernel = CpuKernel { code, invocations, zero_workgroup: artifact.checks.zero_workgroup };
    Ok(Loaded { kernel: RawKernel::new(kernel), driver_blob: None })
}

/// Runs a dispatch, watched where there is a place for what is found. `false`: it took longer than the limit, and what it should have
/// written is not there.
pub(crate) fn run(
    dispatch: &Dispatch,
    threads: &Threads,
    limit: Option<Duration>,
    findings: Option<&Mutex<Vec<Finding>>>,
) -> Result<bool> {
    let kernel: &CpuKernel = dispatch.kernel().raw().downcast_ref().ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "CPU device expected a kernel of its own, found one of another device")
    })?;
    let name = dispatch.kernel().name();
    let uses = dispatch.buffers().iter().map(|bound| (&bound.buffer, bound.access));
    // Held to the end: the addresses are valid for as long as it lives.
    let locked = NativeRun::new(&(), name, uses, &[])?;
    let mut access = locked.access();
    let mut bound = Vec::with_capacity(dispatch.buffers().len() + dispatch.values().len());
    for (place, buffer) in dispatch.buffers().iter().enumerate() {
        let data = match buffer.access {
            BufferUse::Read => bytes_of(&access.region(place))?.as_ptr().cast_mut(),
            BufferUse::Write | BufferUse::ReadWrite => bytes_of_mut(&mut access.region_mut(place))?.as_mut_ptr(),
        };
        let bytes = buffer.buffer.bytes();
        if bytes >= MAX_BOUND_BYTES || !(data as usize).is_multiple_of(4) {
            let wants = format!("less than {MAX_BOUND_BYTES} bytes at a multiple of four");
            let message = format!("kernel `{name}` expected {wants} for each buffer, found {bytes} at {data:?}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        bound.push(Bound { data, bytes });
    }
    let values = dispatch.values().iter();
    bound.extend(values.map(|value| Bound { data: value.bytes.as_ptr().cast_mut(), bytes: value.bytes.len() as u64 }));

    let workgroups = dispatch.workgroups();
    let groups = workgroups.iter().map(|count| u64::from(*count)).product::<u64>();
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let given = Run { bound: &bound, workgroups, deadline };
    if let Some(findings) = findings {
        check_watched(dispatch)?;
        let mut sanitizer = kernel.code.watch(watched(dispatch, kernel));
        // SAFETY: as below.
        let outcome = unsafe { kernel.code.run_watched(&given, &mut sanitizer) };
        let mut findings = lock(findings);
        sanitizer.into_findings().into_iter().for_each(|finding| Finding::add(&mut findings, finding));
        return Ok(outcome == Outcome::Done);
    }
    let stopped = AtomicBool::new(false);
    let parts = if groups * kernel.invocations < MIN_PARALLEL_INVOCATIONS {
        1
    } else {
        groups.min(threads.count() as u64 * PARTS_PER_THREAD)
    };
    let shared = Shared(&given);
    threads.run(parts as usize, &|part| {
        let part = part as u64;
        let range = groups * part / parts..groups * (part + 1) / parts;
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the launch checked the arguments against what the program declares, and the loop above their places. The
        // locks are held, so nobody else touches them. The code was compiled here, or comes from a store that only this user
        // can write, under a key that names this processor and compiler, with a checksum over both.
        if unsafe { kernel.code.run(shared.get(), range, &mut Scratch::default()) } == Outcome::Stopped {
            stopped.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(!stopped.into_inner())
}

/// The findings, whatever became of a thread that held them.
pub(crate) fn lock(findings: &Mutex<Vec<Finding>>) -> MutexGuard<'_, Vec<Finding>> {
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is memory to watch what a dispatch writes.
fn check_watched(dispatch: &Dispatch) -> Result<()> {
    let written = dispatch.buffers().iter().filter(|bound| bound.access.is_write());
    let bytes: u64 = written.map(|bound| bound.buffer.bytes()).sum();
    if bytes > MAX_WATCHED_BYTES {
        let message = format!(
            "sanitizer expected a kernel that writes buffers of at most {MAX_WATCHED_BYTES} bytes, found {bytes}"
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

/// What the sanitizer knows about a dispatch.
fn watched(dispatch: &Dispatch, kernel: &CpuKernel) -> Watched {
    let (loaded, reflection) = (dispatch.kernel(), dispatch.kernel().reflection());
    let is_grid =
        |slot: u32| reflection.bindings.get(slot as usize).is_some_and(|bound| bound.kind == BindingKind::Grid);
    let grid = dispatch.values().iter().find(|value| is_grid(value.slot));
    // The first work-group of a part of a wide grid comes first in it.
    let word = |axis: usize| {
        let bytes = grid.and_then(|grid| grid.bytes.get(4 * axis..)?.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    Watched {
        kernel: loaded.name().to_string(),
        workgroup_size: reflection.workgroup_size,
        workgroups: dispatch.workgroups(),
        first_workgroup: std::array::from_fn(word),
        zero_workgroup: kernel.zero_workgroup,
    }
}

/// What all threads of a dispatch are given.
struct Shared<'a>(&'a Run<'a>);

impl<'a> Shared<'a> {
    fn get(&self) -> &'a Run<'a> {
        self.0
    }
}

// SAFETY: the pointers lead to memory that is locked for the dispatch, and the code on all threads keeps to the rules of WGSL:
// what two invocations write and read without an atomic in between is the program's fault, and stays inside of that memory.
unsafe impl Sync for Shared<'_> {}
