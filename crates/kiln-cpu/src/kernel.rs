//! WGSL kernels: compiled by `kiln-jit`, run on the device's threads.

use crate::identity::KernelInfo;
use crate::map::{bytes_of, bytes_of_mut};
use crate::sanitizer::KernelSanitizer;
use crate::sync::Mutex;
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

/// The version of naga, which affects generated code. A test compares it with the lock file.
const NAGA_VERSION: &str = "30.0.1";

/// Whether elided bounds checks are verified at run time: debug builds test the proofs.
const AUDIT: bool = cfg!(debug_assertions);

/// Dispatches with fewer invocations run on the submitting thread: they end before another thread wakes up.
const MIN_PARALLEL_INVOCATIONS: u64 = 1024;
/// Parts of a dispatch per thread, so that a late thread still finds work.
const PARTS_PER_THREAD: u64 = 8;
/// Maximum number of parts: multiplied by the number of workgroups of a dispatch, it fits in 64 bits.
const MAX_PARTS: u64 = 1 << 14;

/// The payload of a [`RawKernel`] of the CPU device.
#[derive(Debug)]
pub(crate) struct CpuKernel {
    pub(crate) code: ExecutableKernel,
    invocations: u64,
    pub(crate) zero_workgroup: bool,
}

/// Compiles and runs the kernels of a device.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// `None` if Cranelift does not support the processor; kernels are then rejected.
    compiler: Option<Compiler>,
    /// Whether invocations run one at a time instead of in vectors: SIMD is off, or the sanitizer is on.
    one_by_one: bool,
    /// The sanitizer, if it is on.
    sanitizer: Option<KernelSanitizer>,
}

impl Kernels {
    pub(crate) fn new(simd: SimdLevel, is_sanitized: bool) -> Self {
        Self {
            compiler: Compiler::new().ok(),
            one_by_one: is_sanitized || simd == SimdLevel::Scalar,
            sanitizer: is_sanitized.then(KernelSanitizer::default),
        }
    }

    /// Returns the kernel info of the device; `None` if it cannot run kernels.
    pub(crate) fn describe(&self) -> Option<KernelInfo> {
        let lanes = match (self.sanitizer.is_some(), self.one_by_one) {
            (true, _) => "watched",
            (false, true) => "one by one",
            (false, false) => "in vectors",
        };
        let compiler = self.compiler.as_ref()?.name();
        Some(KernelInfo {
            // Must contain everything that affects generated code: it is part of the cache key.
            compiler: format!(
                "naga {NAGA_VERSION}, {compiler}, invocations {lanes}{}",
                if AUDIT { ", audited" } else { "" }
            ),
            subgroup_size: LANES as u32,
            max_binding_bytes: MAX_BINDING_BYTES,
        })
    }

    /// Compiles a module.
    pub(crate) fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        let compiler = self.compiler.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "CPU device expected a processor that Cranelift supports, found another")
        })?;
        let options = program.key.options();
        let checks = RuntimeChecks {
            bounds: options.bounds_checks,
            loops: !options.flags.contains(&KernelFlag::UnboundedLoops),
            zero_workgroup: !options.flags.contains(&KernelFlag::UninitialisedWorkgroup),
        };
        let options = Options {
            optimise: options.optimisation == Optimisation::Full,
            // Unproven accesses stay checked: an out-of-bounds access would reach memory of this process.
            elide_bounds_checks: !checks.bounds,
            verify_elided_checks: AUDIT,
            fast_math: options.fast_math,
            bounded_loops: checks.loops,
            zero_workgroup: checks.zero_workgroup,
            single_lane: self.one_by_one,
            sanitize: self.sanitizer.is_some(),
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

    /// Loads compiled code into executable memory.
    pub(crate) fn load(artifact: &Artifact) -> Result<Loaded> {
        let Code::Machine(bytes) = &artifact.code else {
            let message = format!("CPU device expected machine code, found {artifact:?}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let compiled = CompiledKernel::from_bytes(bytes)
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "CPU device expected compiled code, found other bytes"))?;
        let code = ExecutableKernel::new(compiled).map_err(|error| {
            let message = "CPU device expected executable memory from the system, found none";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
        let invocations = artifact.reflection.workgroup_size.iter().map(|size| u64::from(*size)).product();
        let kernel = CpuKernel { code, invocations, zero_workgroup: artifact.checks.zero_workgroup };
        Ok(Loaded { kernel: RawKernel::new(kernel), driver_blob: None })
    }

    /// Runs a dispatch. Returns `false` if it exceeded the time limit; its output is then incomplete.
    pub(crate) fn run(&self, dispatch: &Dispatch, threads: &Threads, limit: Option<Duration>) -> Result<bool> {
        let kernel: &CpuKernel = dispatch.kernel().raw().downcast_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                "CPU device expected a kernel that it loaded, found one of another device",
            )
        })?;
        let name = dispatch.kernel().name();
        let uses = dispatch.buffers().iter().map(|bound| (&bound.buffer, bound.access));
        // Held until the end: the addresses are valid only while the lock is held.
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
            // Values are uniforms, which WGSL cannot write.
            values.map(|value| BoundBuffer { data: value.bytes.as_ptr().cast_mut(), bytes: value.bytes.len() as u64 }),
        );
        check_bound(dispatch, &bound)?;

        let workgroups = dispatch.workgroups();
        let groups = workgroups.iter().map(|count| u64::from(*count)).product::<u64>();
        // A limit beyond the range of the clock is no limit.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let args = LaunchArgs { bindings: &bound, workgroups, deadline };
        if let Some(sanitizer) = &self.sanitizer {
            // SAFETY: as below.
            let outcome = unsafe { sanitizer.run(dispatch, kernel, &args) }?;
            return if outcome == Outcome::Fault { Err(fault(name)) } else { Ok(outcome == Outcome::Done) };
        }
        // Relaxed below: the flags guard no data, and `threads.run` returns only after all parts have completed.
        let (stopped, faulted) = (AtomicBool::new(false), AtomicBool::new(false));
        // Does not overflow: less than 2^48 workgroups (65,535 along each axis) of at most 2^10 invocations.
        let parts = if groups * kernel.invocations < MIN_PARALLEL_INVOCATIONS {
            1
        } else {
            groups.min((threads.count() as u64).saturating_mul(PARTS_PER_THREAD)).min(MAX_PARTS)
        };
        let shared = Shared(&args);
        // At most one per thread, whatever the number of parts.
        let scratches: Mutex<Vec<Scratch>> = Mutex::default();
        threads.run(parts as usize, &|part| {
            let part = part as u64;
            let range = groups * part / parts..groups * (part + 1) / parts;
            // Also for code without loops: the limit applies to the sum of all parts.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                stopped.store(true, Ordering::Relaxed);
            }
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            // The lock is released at the end of the statement, so threads do not wait for each other's kernels.
            let mut scratch = scratches.lock().pop().unwrap_or_default();
            // SAFETY: the launch checked the arguments against the program's declarations, and `check_bound` above
            // checked their order. The locks are held, so nothing else accesses the buffers. The code was compiled
            // here, or comes from a cache that only this user can write, under a key that contains this processor and
            // compiler, with a checksum over both.
            let outcome = unsafe { kernel.code.run(shared.get(), range, &mut scratch) };
            if outcome != Outcome::Done {
                stopped.store(true, Ordering::Relaxed);
                faulted.fetch_or(outcome == Outcome::Fault, Ordering::Relaxed);
            }
            scratches.lock().push(scratch);
        })?;
        if faulted.into_inner() { Err(fault(name)) } else { Ok(!stopped.into_inner()) }
    }

    /// Takes the sanitizer's findings since the last call; empty if it is off.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        self.sanitizer.as_ref().map(KernelSanitizer::take_findings).unwrap_or_default()
    }
}

/// Converts a compile error, prefixed with its source location.
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

/// Checks that the bound buffers have the order, size and alignment that the code expects. The launch guarantees it, but unsafe
/// code depends on it.
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
    let found = "found a broken proof (an index out of bounds, or unreachable code that ran)";
    let message = format!("kernel `{name}` expected to run as compiled, {found}; this is a bug in Kiln");
    Error::new(ErrorKind::Internal, message)
}

/// The launch arguments shared by all threads of a dispatch.
struct Shared<'a>(&'a LaunchArgs<'a>);

impl<'a> Shared<'a> {
    fn get(&self) -> &'a LaunchArgs<'a> {
        self.0
    }
}

// SAFETY: the pointers refer to memory that is locked for the dispatch, and the code follows the rules of WGSL on all
// threads: a data race between invocations is an error of the program, and stays within that memory.
unsafe impl Sync for Shared<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version in the cache key is the one that is linked.
    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"naga\"\nversion = \"{NAGA_VERSION}\"\n")), "{NAGA_VERSION}");
    }
}
