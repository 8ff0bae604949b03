//! Kernels in WGSL: compiled by `kiln-jit`, run by the threads of the device.

use crate::identity::KernelInfo;
use crate::map::{bytes_of, bytes_of_mut};
use crate::sync::Mutex;
use crate::watching::Watching;
use crate::{SimdLevel, Threads};
use kiln_device::{
    Artifact, BufferSet, BufferUse, Code, Dispatch, KernelFlag, KernelModule, Loaded, Optimisation, RawKernel,
    RuntimeChecks,
};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_jit::{
    BoundBuffer, CompileError, CompiledKernel, Compiler, ExecutableKernel, Finding, LANES, LaunchArgs,
    MAX_BINDING_BYTES, Options, Outcome, Scratch,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The version of naga, which changes the programs that are compiled. A test compares it with the lock file.
const NAGA_VERSION: &str = "30.0.1";

/// Whether indices that are proven to be inside are looked at all the same: what runs in a debug build tests the proofs.
const AUDIT: bool = cfg!(debug_assertions);

/// Dispatches of fewer invocations run on the thread that submits them: they are over before another one is awake.
const MIN_PARALLEL_INVOCATIONS: u64 = 1024;
/// Parts of a dispatch for each thread, so that one which comes late still finds some.
const PARTS_PER_THREAD: u64 = 8;
/// The most parts: their number times that of the work-groups of a dispatch is a number of 64 bits.
const MAX_PARTS: u64 = 1 << 14;

/// What a [`RawKernel`] of the CPU device holds.
#[derive(Debug)]
pub(crate) struct CpuKernel {
    pub(crate) code: ExecutableKernel,
    invocations: u64,
    pub(crate) zero_workgroup: bool,
}

/// What compiles and runs the kernels of a device.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// `None` where Cranelift does not know the processor; then kernels are refused.
    compiler: Option<Compiler>,
    /// Invocations do not run as vectors: they are not wanted, or each of them is watched.
    one_by_one: bool,
    /// The sanitizer; `None` where it is off.
    watching: Option<Watching>,
}

impl Kernels {
    pub(crate) fn new(simd: SimdLevel, is_sanitized: bool) -> Self {
        Self {
            compiler: Compiler::new().ok(),
            one_by_one: is_sanitized || simd == SimdLevel::Scalar,
            watching: is_sanitized.then(Watching::default),
        }
    }

    /// What a device says about its kernels; `None` where it runs none.
    pub(crate) fn describe(&self) -> Option<KernelInfo> {
        let lanes = match (self.watching.is_some(), self.one_by_one) {
            (true, _) => "watched",
            (false, true) => "one by one",
            (false, false) => "in vectors",
        };
        let compiler = self.compiler.as_ref()?.name();
        Some(KernelInfo {
            // Everything that changes code is in it.
            compiler: format!(
                "naga {NAGA_VERSION}, {compiler}, invocations {lanes}{}",
                if AUDIT { ", audited" } else { "" }
            ),
            subgroup_size: LANES as u32,
            max_binding_bytes: MAX_BINDING_BYTES,
        })
    }

    /// Compiles a program.
    pub(crate) fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        let compiler = self.compiler.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "CPU device expected a processor that Cranelift knows, found another")
        })?;
        let options = program.key.options();
        let checks = RuntimeChecks {
            bounds: options.bounds_checks,
            loops: !options.flags.contains(&KernelFlag::UnboundedLoops),
            zero_workgroup: !options.flags.contains(&KernelFlag::UninitialisedWorkgroup),
        };
        let options = Options {
            optimise: options.optimisation == Optimisation::Full,
            // What is not proven stays checked: out of bounds is memory of this process.
            elide_bounds_checks: !checks.bounds,
            verify_elided_checks: AUDIT,
            fast_math: options.fast_math,
            bounded_loops: checks.loops,
            zero_workgroup: checks.zero_workgroup,
            single_lane: self.one_by_one,
            sanitize: self.watching.is_some(),
        };
        let compiled = compiler.compile(&program.module, &program.info, &options);
        let compiled = compiled.map_err(|error| with_location(program, &error))?;
        let compiled =
            if options.sanitize { compiled.with_source_lines(program.key.to_source().text()) } else { compiled };
        Ok(Artifact {
            reflection: program.reflection.clone(),
            code: Code::Machine(compiled.to_bytes()),
            driver_blob: None,
            checks,
        })
    }

    /// Makes code that runs of compiled code.
    pub(crate) fn load(artifact: &Artifact) -> Result<Loaded> {
        let Code::Machine(bytes) = &artifact.code else {
            let message = format!("CPU device expected machine code, found {artifact:?}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let compiled = CompiledKernel::from_bytes(bytes).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "CPU device expected compiled code, found bytes that are none")
        })?;
        let code = ExecutableKernel::new(compiled).map_err(|error| {
            let message = "CPU device expected memory for machine code, found that the system gives none";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
        let invocations = artifact.reflection.workgroup_size.iter().map(|size| u64::from(*size)).product();
        let kernel = CpuKernel { code, invocations, zero_workgroup: artifact.checks.zero_workgroup };
        Ok(Loaded { kernel: RawKernel::new(kernel), driver_blob: None })
    }

    /// Runs a dispatch. `false`: it took longer than the limit, and what it should have written is not there.
    pub(crate) fn run(&self, dispatch: &Dispatch, threads: &Threads, limit: Option<Duration>) -> Result<bool> {
        let kernel: &CpuKernel = dispatch.kernel().raw().downcast_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                "CPU device expected a kernel of its own, found one of another device",
            )
        })?;
        let name = dispatch.kernel().name();
        let uses = dispatch.buffers().iter().map(|bound| (&bound.buffer, bound.access));
        // Held to the end: the addresses are valid for as long as it lives.
        let buffers = BufferSet::new(uses)?;
        let mut access = buffers.lock();
        let mut bound = Vec::with_capacity(dispatch.buffers().len() + dispatch.values().len());
        for (place, buffer) in dispatch.buffers().iter().enumerate() {
            let data = match buffer.access {
                BufferUse::Read => bytes_of(&access.region(place))?.as_ptr().cast_mut(),
                BufferUse::Write | BufferUse::ReadWrite => bytes_of_mut(&mut access.region_mut(place))?.as_mut_ptr(),
            };
            bound.push(BoundBuffer { data, bytes: buffer.buffer.bytes() });
        }
        let values = dispatch.values().iter();
        bound.extend(
            values.map(|value| BoundBuffer { data: value.bytes.as_ptr().cast_mut(), bytes: value.bytes.len() as u64 }),
        );
        check_bound(dispatch, &bound)?;

        let workgroups = dispatch.workgroups();
        let groups = workgroups.iter().map(|count| u64::from(*count)).product::<u64>();
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let args = LaunchArgs { bindings: &bound, workgroups, deadline };
        if let Some(watching) = &self.watching {
            // SAFETY: as below.
            let outcome = unsafe { watching.run(dispatch, kernel, &args) }?;
            return if outcome == Outcome::Fault { Err(fault(name)) } else { Ok(outcome == Outcome::Done) };
        }
        let (stopped, faulted) = (AtomicBool::new(false), AtomicBool::new(false));
        let parts = if groups * kernel.invocations < MIN_PARALLEL_INVOCATIONS {
            1
        } else {
            groups.min((threads.count() as u64).saturating_mul(PARTS_PER_THREAD)).min(MAX_PARTS)
        };
        let shared = Shared(&args);
        // One for each thread at most, whatever the number of parts.
        let scratches: Mutex<Vec<Scratch>> = Mutex::default();
        threads.run(parts as usize, &|part| {
            let part = part as u64;
            let range = groups * part / parts..groups * (part + 1) / parts;
            // Also of code that has no loops: what it takes is the sum of its parts.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                stopped.store(true, Ordering::Relaxed);
            }
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            let mut scratch = scratches.lock().pop().unwrap_or_default();
            // SAFETY: the launch checked the arguments against what the program declares, and what is above their places. The
            // locks are held, so nobody else touches them. The code was compiled here, or comes from a store that only this user
            // can write, under a key that names this processor and compiler, with a checksum over both.
            let outcome = unsafe { kernel.code.run(shared.get(), range, &mut scratch) };
            if outcome != Outcome::Done {
                stopped.store(true, Ordering::Relaxed);
                faulted.fetch_or(outcome == Outcome::Fault, Ordering::Relaxed);
            }
            scratches.lock().push(scratch);
        })?;
        if faulted.into_inner() { Err(fault(name)) } else { Ok(!stopped.into_inner()) }
    }

    /// Takes what the sanitizer found since the last time; nothing where it is off.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        self.watching.as_ref().map(Watching::take_findings).unwrap_or_default()
    }
}

/// Converts a compile error, prefixed with its location in the source.
fn with_location(program: &KernelModule, error: &CompileError) -> Error {
    let source = program.key.to_source();
    let place = match error.span.is_defined() {
        true => {
            let place = error.span.location(source.text());
            format!("{}:{}:{}", source.name(), place.line_number, place.line_position)
        }
        false => source.name().to_string(),
    };
    Error::new(ErrorKind::Unsupported, format!("{place}: {error}"))
}

/// Whether everything that is bound is what the code takes it for, in its order. The launch saw to that; code that trusts it wants to be sure.
fn check_bound(dispatch: &Dispatch, bound: &[BoundBuffer]) -> Result<()> {
    let bindings = &dispatch.kernel().reflection().bindings;
    let places = |wants_buffers: bool| {
        let places = bindings.iter().enumerate().filter(move |(_, binding)| binding.kind.is_buffer() == wants_buffers);
        places.map(|(place, binding)| (place as u32, binding.min_bytes))
    };
    let wanted: Vec<(u32, u64)> = places(true).chain(places(false)).collect();
    let slots = dispatch.buffers().iter().map(|bound| bound.slot).chain(dispatch.values().iter().map(|it| it.slot));
    let is_right = |((slot, min_bytes), bound): (&(u32, u64), &BoundBuffer), found: u32| {
        let is_long = (*min_bytes..=MAX_BINDING_BYTES).contains(&bound.bytes);
        *slot == found && is_long && (bound.data as usize).is_multiple_of(4)
    };
    let all_right = wanted.iter().zip(bound).zip(slots).all(|(pair, slot)| is_right(pair, slot));
    if wanted.len() == bound.len() && all_right {
        return Ok(());
    }
    let found: Vec<u64> = bound.iter().map(|bound| bound.bytes).collect();
    let wants = format!("arguments of at least these bytes, at multiples of four: {wanted:?}");
    let message = format!("kernel `{}` expected {wants}; found {found:?}", dispatch.kernel().name());
    Err(Error::new(ErrorKind::Internal, message))
}

fn fault(name: &str) -> Error {
    let found = "found otherwise (an index outside that is proven to be inside, or a way that nothing leads to)";
    let message = format!("kernel `{name}` expected to run as it was compiled, {found}; this is a fault of Kiln's");
    Error::new(ErrorKind::Internal, message)
}

/// What all threads of a dispatch are given.
struct Shared<'a>(&'a LaunchArgs<'a>);

impl<'a> Shared<'a> {
    fn get(&self) -> &'a LaunchArgs<'a> {
        self.0
    }
}

// SAFETY: the pointers lead to memory that is locked for the dispatch, and the code on all threads keeps to the rules of WGSL:
// what two invocations write and read without an atomic in between is the program's fault, and stays inside of that memory.
unsafe impl Sync for Shared<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version in the key is the one that is built in.
    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"naga\"\nversion = \"{NAGA_VERSION}\"\n")), "{NAGA_VERSION}");
    }
}
