//! Compiled kernels: as storable bytes, and mapped into executable memory.

use crate::abi::{BoundBuffer, CallContext, DONE, Entry, MAX_BINDING_BYTES, TIMED_OUT};
use crate::emit::{Emitted, MAX_FRAMES_BYTES};
use crate::libcalls::{self, Deadline};
use crate::sanitizer::site::{self, Site};
use crate::sanitizer::{LaunchInfo, Sanitizer};
use memmap2::{Mmap, MmapMut};
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Position-independent machine code of a kernel, with the sizes its caller needs.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, PartialEq)]
pub struct CompiledKernel {
    code: Vec<u8>,
    /// Size of workgroup memory, including the slots of uniform conditions.
    group_bytes: u32,
    /// Size of the frame of one gang, and the number of frames in use at the same time (1 without barriers).
    frame_bytes: u32,
    frames: u32,
    /// Instrumentation sites; empty without the sanitizer.
    sites: Arc<[Site]>,
}

/// Prefix of the stored form. The digit is the version of the format.
const MAGIC: &[u8; 8] = b"kilnjit3";
/// Upper bound for stored code, above what the compiler's limits allow. It rejects corrupt input early.
const MAX_CODE_BYTES: usize = 256 << 20;
/// Upper bound for stored workgroup memory, above the device's limit.
const MAX_GROUP_BYTES: u32 = 1 << 20;

impl CompiledKernel {
    /// Combines machine code with the sizes from code generation.
    pub(crate) fn new(code: &[u8], emitted: Emitted) -> Self {
        let Emitted { group_bytes, frame_bytes, frames, sites } = emitted;
        Self { code: code.to_vec(), group_bytes, frame_bytes, frames, sites: sites.into() }
    }

    /// Resolves the spans of instrumentation sites to lines and columns of the source that was compiled.
    #[must_use]
    pub fn with_source_lines(mut self, source: &str) -> Self {
        let mut sites = self.sites.to_vec();
        site::locate(&mut sites, source);
        self.sites = sites.into();
        self
    }

    /// Returns the machine code.
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// Serialises the kernel.
    pub fn to_bytes(&self) -> Vec<u8> {
        let sites = site::encode(&self.sites);
        let numbers = [self.group_bytes, self.frame_bytes, self.frames, sites.len() as u32].map(u32::to_le_bytes);
        [&MAGIC[..], numbers.as_flattened(), sites.as_bytes(), &self.code].concat()
    }

    /// Deserialises a kernel; `None` if the bytes are malformed. Checks the header, not the machine code:
    /// callers must trust where the bytes come from.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (numbers, rest) = rest.split_at_checked(16)?;
        let mut numbers =
            numbers.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let (group_bytes, frame_bytes, frames) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (sites, code) = rest.split_at_checked(numbers.next()? as usize)?;
        let compiled =
            Self { code: code.to_vec(), group_bytes, frame_bytes, frames, sites: site::decode(sites)?.into() };
        // With no frame, the scratch memory would be smaller than the code assumes.
        let is_valid = !compiled.code.is_empty() && compiled.code.len() <= MAX_CODE_BYTES && compiled.frames > 0;
        // The sizes decide how much scratch memory is allocated, so a corrupt header must not ask for
        // gigabytes.
        let fits = compiled.group_bytes <= MAX_GROUP_BYTES
            && u64::from(compiled.frame_bytes) * u64::from(compiled.frames) <= MAX_FRAMES_BYTES;
        (is_valid && fits).then_some(compiled)
    }

    /// Scratch memory that each running thread needs.
    pub fn scratch_bytes(&self) -> u64 {
        u64::from(self.group_bytes) + u64::from(self.frame_bytes) * u64::from(self.frames)
    }
}

impl fmt::Debug for CompiledKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("bytes", &self.code.len())
            .field("scratch_bytes", &self.scratch_bytes())
            .finish()
    }
}

/// A kernel mapped into executable memory.
///
/// See the [crate documentation](crate) for an example.
pub struct ExecutableKernel {
    /// Mapped read-execute, never writable (W^X).
    map: Mmap,
    compiled: CompiledKernel,
    libcalls: Vec<crate::abi::LibCall>,
}

// SAFETY: the libcalls are pointers to functions, which any thread may call.
unsafe impl Send for ExecutableKernel {}
// SAFETY: as above, and the mapping is never written after construction.
unsafe impl Sync for ExecutableKernel {}

/// Arguments of a launch.
///
/// See the [crate documentation](crate) for an example.
#[derive(Debug)]
pub struct LaunchArgs<'a> {
    /// Buffers, then uniform values, in the order of their binding numbers.
    pub bindings: &'a [BoundBuffer],
    /// Number of workgroups along each axis.
    pub workgroups: [u32; 3],
    /// When loops have to stop, if the kernel was compiled with bounded loops.
    pub deadline: Option<Instant>,
}

/// Result of a run.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All workgroups ran.
    Done,
    /// The deadline passed while a loop ran. Output is incomplete.
    TimedOut,
    /// A bug of this crate: the code reached a block that it proved unreachable, or, with
    /// [`Options::verify_elided_checks`](crate::Options::verify_elided_checks), an index that it proved in
    /// bounds is not. The access did not happen.
    Fault,
}

impl ExecutableKernel {
    /// Maps the code. The mapping is writable while the code is copied and executable afterwards, never both.
    ///
    /// # Errors
    /// The system refuses executable memory.
    pub fn new(compiled: CompiledKernel) -> std::io::Result<Self> {
        let mut map = MmapMut::map_anon(compiled.code.len().max(1))?;
        map[..compiled.code.len()].copy_from_slice(&compiled.code);
        let map = map.make_exec()?;
        // SAFETY: the range is exactly the mapping.
        let cleared = unsafe { wasmtime_internal_jit_icache_coherence::clear_cache(map.as_ptr().cast(), map.len()) };
        // The error type differs between platforms.
        cleared.map_err(|error| std::io::Error::other(error.to_string()))?;
        // On AArch64 other cores may have stale instructions in their pipelines; on x86-64 this does nothing.
        let flushed = wasmtime_internal_jit_icache_coherence::pipeline_flush_mt();
        flushed.map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self { map, compiled, libcalls: libcalls::table() })
    }

    /// Returns the kernel that was mapped.
    pub fn compiled(&self) -> &CompiledKernel {
        &self.compiled
    }

    /// Runs a range of workgroups by linear index (x fastest, then y, then z).
    ///
    /// # Safety
    /// - The bindings match the program, in order: each has at least the declared size and an address that is a
    ///   multiple of four.
    /// - Buffers that the program writes are accessed by nothing but runs of the same launch.
    /// - The code was generated by [`Compiler::compile`](crate::Compiler::compile) for this processor.
    pub unsafe fn run(&self, args: &LaunchArgs<'_>, range: std::ops::Range<u64>, scratch: &mut Scratch) -> Outcome {
        // SAFETY: same contract as this function; a null sanitizer is allowed.
        unsafe { self.enter(args, range, scratch, std::ptr::null_mut()) }
    }

    /// Runs all workgroups of `args` under a sanitizer from [`sanitizer`](Self::sanitizer). `args` may be a
    /// part of the launch that starts at workgroup `first`.
    ///
    /// # Safety
    /// Same as [`run`](Self::run).
    pub unsafe fn run_sanitized(&self, args: &LaunchArgs<'_>, first: [u32; 3], sanitizer: &mut Sanitizer) -> Outcome {
        sanitizer.begin_part(first, args.workgroups);
        let groups = args.workgroups.iter().map(|count| u64::from(*count)).product();
        // SAFETY: same contract as this function; the sanitizer is borrowed mutably, so nothing else uses it.
        unsafe { self.enter(args, 0..groups, &mut Scratch::default(), (&raw mut *sanitizer).cast()) }
    }

    /// Creates a sanitizer for one launch. It reports nothing if the kernel was compiled without
    /// [`Options::sanitize`](crate::Options::sanitize).
    pub fn sanitizer(&self, launch: LaunchInfo) -> Sanitizer {
        Sanitizer::new(launch, &self.compiled.sites, self.compiled.frames == 1)
    }

    /// Calls the machine code.
    ///
    /// # Safety
    /// Same as [`run`](Self::run); `sanitizer` is null or points to a [`Sanitizer`] that nothing else uses.
    unsafe fn enter(
        &self,
        args: &LaunchArgs<'_>,
        range: std::ops::Range<u64>,
        scratch: &mut Scratch,
        sanitizer: *mut c_void,
    ) -> Outcome {
        // Part of the contract of `run`: generated code computes offsets as `i32`.
        debug_assert!(args.bindings.iter().all(|binding| binding.bytes <= MAX_BINDING_BYTES));
        scratch.reserve(self.compiled.scratch_bytes());
        let mut deadline = Deadline(args.deadline);
        let call = CallContext {
            bindings: args.bindings.as_ptr(),
            scratch: scratch.start(),
            libcalls: self.libcalls.as_ptr(),
            deadline: (&raw mut deadline).cast(),
            // A stride of 0 lets all gangs share one frame: without barriers each runs to completion before the
            // next.
            frame_bytes: if self.compiled.frames > 1 { self.compiled.frame_bytes.into() } else { 0 },
            workgroups: args.workgroups,
            sanitizer,
        };
        // SAFETY: the mapping starts with a function of this signature, emitted with the C calling convention.
        let entry: Entry = unsafe { std::mem::transmute(self.map.as_ptr()) };
        // SAFETY: the caller guarantees the bindings; the scratch memory has the size that the code asks for,
        // and `call` outlives the call.
        let code = unsafe { entry(&raw const call, range.start, range.end) };
        match code {
            DONE => Outcome::Done,
            TIMED_OUT => Outcome::TimedOut,
            _ => Outcome::Fault,
        }
    }
}

impl fmt::Debug for ExecutableKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableKernel").field("compiled", &self.compiled).finish_non_exhaustive()
    }
}

/// Scratch memory of a thread. It grows on demand and is reused by later runs.
///
/// See the [crate documentation](crate) for an example.
#[derive(Debug, Default)]
pub struct Scratch {
    // `u128` aligns the memory to 16 bytes, the size of a vector.
    words: Vec<u128>,
}

impl Scratch {
    /// Makes room for at least this many bytes.
    fn reserve(&mut self, bytes: u64) {
        let words = bytes.div_ceil(16) as usize;
        if self.words.len() < words {
            // Allocate instead of growing: `vec![0; n]` gets zero pages from the system that are committed on
            // first touch, and the old contents are not needed.
            self.words = vec![0; words];
        }
    }

    /// Returns the address of the memory, aligned to 16 bytes.
    fn start(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}
