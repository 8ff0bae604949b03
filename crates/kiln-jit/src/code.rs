//! Machine code: as bytes that can be stored, and in memory that can be executed.

use crate::abi::{Bound, Call, DONE, Entry, MAX_BOUND_BYTES, STOPPED};
use crate::emit::{Emitted, MAX_FRAMES_BYTES};
use crate::functions::{self, Watch};
use crate::sanitize::site::{self, Site};
use crate::sanitize::{Sanitizer, Watched};
use memmap2::{Mmap, MmapMut};
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Machine code of a program. It has no addresses in it, so it runs wherever it is.
#[derive(Clone, PartialEq)]
pub struct Compiled {
    code: Vec<u8>,
    /// Bytes that the invocations of a work-group share.
    group_bytes: u32,
    /// Bytes of a vector of invocations, and how many of them have theirs at the same time.
    frame_bytes: u32,
    frames: u32,
    /// The places that are checked; none without the sanitizer.
    sites: Arc<[Site]>,
}

/// What a stored form begins with.
const MAGIC: &[u8; 8] = b"kilnjit3";
/// More than any program that is compiled here.
const MAX_CODE_BYTES: usize = 256 << 20;
/// More memory than work-groups share.
const MAX_GROUP_BYTES: u32 = 1 << 20;

impl Compiled {
    pub(crate) fn new(code: &[u8], emitted: Emitted) -> Self {
        let Emitted { group_bytes, frame_bytes, frames, sites } = emitted;
        Self { code: code.to_vec(), group_bytes, frame_bytes, frames, sites: sites.into() }
    }

    /// Finds the lines of what the sanitizer tells in the source that was compiled.
    #[must_use]
    pub fn with_lines_of(mut self, source: &str) -> Self {
        let mut sites = self.sites.to_vec();
        site::locate(&mut sites, source);
        self.sites = sites.into();
        self
    }

    /// The machine code alone.
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// The stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let sites = site::encode(&self.sites);
        let numbers = [self.group_bytes, self.frame_bytes, self.frames, sites.len() as u32].map(u32::to_le_bytes);
        [&MAGIC[..], numbers.as_flattened(), sites.as_bytes(), &self.code].concat()
    }

    /// The code of a stored form; `None` where it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (numbers, rest) = rest.split_at_checked(16)?;
        let mut numbers =
            numbers.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let (group_bytes, frame_bytes, frames) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (sites, code) = rest.split_at_checked(numbers.next()? as usize)?;
        let compiled =
            Self { code: code.to_vec(), group_bytes, frame_bytes, frames, sites: site::decode(sites)?.into() };
        let is_sound = !compiled.code.is_empty() && compiled.code.len() <= MAX_CODE_BYTES && compiled.frames > 0;
        let fits = compiled.group_bytes <= MAX_GROUP_BYTES
            && u64::from(compiled.frame_bytes) * u64::from(compiled.frames) <= MAX_FRAMES_BYTES;
        (is_sound && fits).then_some(compiled)
    }

    /// Bytes of memory that a running thread needs.
    pub fn scratch_bytes(&self) -> u64 {
        u64::from(self.group_bytes) + u64::from(self.frame_bytes) * u64::from(self.frames)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("bytes", &self.code.len())
            .field("scratch_bytes", &self.scratch_bytes())
            .finish()
    }
}

/// Code that can run.
pub struct Code {
    /// Readable and executable, never writable.
    map: Mmap,
    compiled: Compiled,
    helpers: Vec<crate::abi::Helper>,
}

// SAFETY: the helpers are functions, which any thread may call.
unsafe impl Send for Code {}
// SAFETY: as above; the code is never written.
unsafe impl Sync for Code {}

/// What a run is given.
#[derive(Debug)]
pub struct Run<'a> {
    /// Buffers, then values, in the order of their numbers.
    pub bound: &'a [Bound],
    /// Work-groups along each axis.
    pub workgroups: [u32; 3],
    /// When loops have to end.
    pub deadline: Option<Instant>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All work-groups ran.
    Done,
    /// The time was over while a loop ran.
    Stopped,
    /// The code came to where it never comes, which is a fault of this crate: to a way that nothing leads to, or, with
    /// [`Options::audit`](crate::Options::audit), to an index outside that is proven to be inside. Nothing was accessed by it.
    Fault,
}

impl Code {
    /// Puts code where it can run. The memory is written first and made executable then, never both.
    ///
    /// # Errors
    /// That of the system, where it gives no such memory.
    pub fn new(compiled: Compiled) -> std::io::Result<Self> {
        let mut map = MmapMut::map_anon(compiled.code.len().max(1))?;
        map[..compiled.code.len()].copy_from_slice(&compiled.code);
        let map = map.make_exec()?;
        // SAFETY: the range is that of the map.
        let cleared = unsafe { wasmtime_internal_jit_icache_coherence::clear_cache(map.as_ptr().cast(), map.len()) };
        // The error's type is not the same on every system.
        cleared.map_err(|error| std::io::Error::other(error.to_string()))?;
        let flushed = wasmtime_internal_jit_icache_coherence::pipeline_flush_mt();
        flushed.map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self { map, compiled, helpers: functions::table() })
    }

    /// The code as it was compiled.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Runs the work-groups of a range of their numbers, which count along x, then y, then z.
    ///
    /// # Safety
    /// What is bound is what the program wants, in its order: of at least the bytes that it declares, at addresses that are
    /// multiples of four, and for buffers that it writes, nobody else touches them other than runs of this kind. The code is
    /// what [`Compiler::compile`](crate::Compiler::compile) gave for this processor.
    pub unsafe fn run(&self, run: &Run<'_>, range: std::ops::Range<u64>, scratch: &mut Scratch) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.enter(run, range, scratch, std::ptr::null_mut()) }
    }

    /// Runs all work-groups, watched by a sanitizer of [`watch`](Self::watch): all of the launch, or a part that begins with this one.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub unsafe fn run_watched(&self, run: &Run<'_>, first: [u32; 3], sanitizer: &mut Sanitizer) -> Outcome {
        sanitizer.begin_part(first, run.workgroups);
        let groups = run.workgroups.iter().map(|count| u64::from(*count)).product();
        // SAFETY: the caller's promise.
        unsafe { self.enter(run, 0..groups, &mut Scratch::default(), (&raw mut *sanitizer).cast()) }
    }

    /// A sanitizer for one launch. It sees nothing where the code was compiled without.
    pub fn watch(&self, watched: Watched) -> Sanitizer {
        Sanitizer::new(watched, &self.compiled.sites, self.compiled.frames == 1)
    }

    /// # Safety
    /// As [`run`](Self::run); the sanitizer is null, or points to one that nobody else uses.
    unsafe fn enter(
        &self,
        run: &Run<'_>,
        range: std::ops::Range<u64>,
        scratch: &mut Scratch,
        sanitizer: *mut c_void,
    ) -> Outcome {
        debug_assert!(run.bound.iter().all(|bound| bound.bytes <= MAX_BOUND_BYTES));
        scratch.reserve(self.compiled.scratch_bytes());
        let mut watch = Watch { deadline: run.deadline };
        let call = Call {
            bound: run.bound.as_ptr(),
            scratch: scratch.start(),
            helpers: self.helpers.as_ptr(),
            watch: (&raw mut watch).cast(),
            // Without a barrier, the next one may have the memory of the one before.
            frame_bytes: if self.compiled.frames > 1 { self.compiled.frame_bytes.into() } else { 0 },
            workgroups: run.workgroups,
            sanitizer,
        };
        // SAFETY: the map holds code with this signature.
        let entry: Entry = unsafe { std::mem::transmute(self.map.as_ptr()) };
        // SAFETY: the caller's promise; the scratch memory is as long as the code wants.
        let code = unsafe { entry(&raw const call, range.start, range.end) };
        match code {
            DONE => Outcome::Done,
            STOPPED => Outcome::Stopped,
            _ => Outcome::Fault,
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("compiled", &self.compiled).finish_non_exhaustive()
    }
}

/// Memory of a thread that runs code. It grows, and is used again.
#[derive(Debug, Default)]
pub struct Scratch {
    words: Vec<u128>,
}

impl Scratch {
    fn reserve(&mut self, bytes: u64) {
        let words = bytes.div_ceil(16) as usize;
        if self.words.len() < words {
            // Anew rather than longer: the system gives zeros, and only those that are touched take memory.
            self.words = vec![0; words];
        }
    }

    fn start(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}
