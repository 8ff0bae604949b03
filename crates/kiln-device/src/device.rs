//! A device as users hold it, and the trait behind it.

use crate::buffer::{Buffer, BufferSet, TypedBuffer};
use crate::capture::Captured;
use crate::command::{Command, CommandList, Dispatch};
use crate::info::DeviceInfo;
use crate::kernel::{
    Artifact, Kernel, KernelCache, KernelCacheOptions, KernelCacheStatistics, KernelExplanation, KernelKey,
    KernelModule, KernelSource, KernelWarmReport, Preload, PreparedKernel, RawKernel,
};
use crate::memory::RawMemory;
use crate::observe::{StreamEnd, span};
use crate::plan::{CompiledPlan, WgslPlan};
use crate::pool::{Allocation, BufferOptions, Pool, PoolOptions, PoolStatistics};
use bytemuck::Pod;
use kiln_ir::plan::{Plan, Target};
use kiln_ir::{Error, ErrorKind, Result, bail, error};
use kiln_resource_cache::CacheRegistry;
use kiln_resource_cache::store::DiskStore;
use parking_lot::Mutex;
use std::borrow::Borrow;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// What a device must be able to do. It speaks of memory, plans, kernels and command lists, never of ops.
///
/// Submissions are numbered from 1 and end in that order.
pub trait DeviceApi: RawMemory {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Runs the commands, or hands them to the driver, and returns the number of the submission. The regions of the
    /// buffers stay untouched by the pool until that submission is [completed](RawMemory::completed).
    ///
    /// # Errors
    /// The device's fault; then none of the commands takes effect.
    fn submit(&self, commands: &[Command]) -> Result<u64>;

    /// What plans for this device must respect.
    ///
    /// The default is a device that runs plans as WGSL kernels.
    fn target(&self) -> Target {
        WgslPlan::target(self.info())
    }

    /// Makes a plan ready to run. `device` is the device that this is the implementation of: its kernel cache has the plan's kernels.
    ///
    /// The default compiles the plan as WGSL kernels.
    ///
    /// # Errors
    /// `Unsupported` where the device cannot run a kernel; `Internal` where the plan is not well formed; the device's fault.
    fn compile(self: Arc<Self>, device: &Device, plan: &Arc<Plan>) -> Result<Arc<dyn CompiledPlan>> {
        Ok(Arc::new(WgslPlan::new(device, plan)?))
    }

    /// Translates a program into the code that [`load`](Self::load) takes, in every process and until the device's
    /// [compiler](DeviceInfo::compiler) changes.
    ///
    /// # Errors
    /// `Unsupported` where the device does not run such a program or does not know an option of its key.
    fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        Err(error!(Unsupported, "device `{}` expected no kernel, found `{}`", self.info().id, program.key.name()))
    }

    /// Makes a kernel of translated code.
    ///
    /// # Errors
    /// `CompileFailed` where the driver refuses the code; the device's fault.
    fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        Err(error!(Unsupported, "device `{}` expected no kernel, found {artifact:?}", self.info().id))
    }

    /// Adds the caches of the device itself to those of its [`Device`]. Called once, before anything is submitted.
    ///
    /// # Errors
    /// `Internal` where a cache cannot be added.
    fn register_caches(&self, caches: &CacheRegistry<Device>) -> Result<()> {
        let _ = caches;
        Ok(())
    }

    /// Wakes `waker` once `submission` is done or will never be, at once where that is already so.
    fn notify(&self, submission: u64, waker: Waker);

    /// The fault that ended the device, where one did. It stays.
    fn fault(&self) -> Option<Error>;
}

/// A kernel that a device made of translated code.
#[derive(Debug)]
pub struct Loaded {
    /// The kernel.
    pub kernel: RawKernel,
    /// What the driver made of the code, where it tells: loading is faster with it.
    pub driver_blob: Option<Vec<u8>>,
}

/// A device with its memory pool and its kernels. Clones are the same device; when the last one goes, cached memory goes back, and
/// buffers that are still held keep working.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    api: Arc<dyn DeviceApi>,
    pool: Pool,
    caches: CacheRegistry<Device>,
    kernels: KernelCache,
    /// Command lists that were submitted, empty again: recording into one takes no memory from the system.
    spare_lists: Mutex<Vec<CommandList>>,
    launches: AtomicU64,
    /// Last: what goes before it is still told.
    _stream: StreamEnd,
}

/// The most bytes of host data that one submission brings along. A driver holds them until the submission is done, and some
/// fail without a word where that is too much.
const MAX_HOST_BYTES: u64 = 64 << 20;

const MAX_SPARE_LISTS: usize = 16;

impl Device {
    /// Puts a pool on a device. Users get devices from the `kiln` crate; this is for crates that bring a device.
    ///
    /// # Errors
    /// `InvalidArgument` where the pool's settings contradict each other.
    pub fn new(api: Arc<dyn DeviceApi>, pool: PoolOptions) -> Result<Self> {
        Self::with_kernels(api, pool, KernelCacheOptions::new())
    }

    /// Puts a pool and a kernel cache on a device.
    ///
    /// # Errors
    /// `InvalidArgument` where the settings of the pool or of the cache contradict each other.
    pub fn with_kernels(api: Arc<dyn DeviceApi>, pool: PoolOptions, kernels: KernelCacheOptions) -> Result<Self> {
        let pool = Pool::new(Arc::clone(&api), pool)?;
        let mut caches = CacheRegistry::builder();
        if let Some(clock) = kernels.clock.clone() {
            caches = caches.clock(clock);
        }
        if let Some(recorder) = api.recorder() {
            recorder.set_device(&api.info().id);
            if cfg!(feature = "events") {
                caches = caches.sink(recorder.cache_sink());
            }
        }
        let caches = caches
            .build()
            .map_err(|error| error!(Internal, "expected a registry of caches, found none").with_source(error))?;
        caches.add_reserve("pool", pool.clone());
        api.register_caches(&caches)?;
        let (kernels, spare_lists) = (KernelCache::new(kernels, &caches)?, Mutex::default());
        let (launches, stream) = (AtomicU64::new(0), StreamEnd(Arc::clone(&api)));
        Ok(Self(Arc::new(Inner { api, pool, caches, kernels, spare_lists, launches, _stream: stream })))
    }

    /// The caches of the device under one byte budget: kernels in memory, plans of tensors, and those that the device or the
    /// user adds. A [trim](CacheRegistry::trim) also gives back the free blocks of the [pool](Self::pool).
    ///
    /// A [`CacheableKernel`](kiln_resource_cache::CacheableKernel) of this registry is created with the device that the caller
    /// passes. What is kept here should hold [buffers](Buffer), not devices or tensors: an entry that holds its own device keeps
    /// the device open until the entry goes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use kiln_device::{KernelSource, NullDevice};
    /// let device = NullDevice::new().into_device()?;
    /// device.caches().set_byte_budget(64 << 20)?;
    /// # device.kernel(KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}"))?;
    /// for (name, metrics) in device.caches().metrics_by_name() {
    ///     println!("{name}: {metrics}");
    /// }
    /// device.caches().trim(0);
    /// assert_eq!(device.caches().bytes(), 0);
    /// assert_eq!(device.buffer_pool_stats().bytes_cached, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn caches(&self) -> &CacheRegistry<Self> {
        &self.0.caches
    }

    /// The kernel of a source: from memory, from disk, or compiled now.
    ///
    /// # Errors
    /// `CompileFailed` where the source is at fault, with file, line, column and text; `Unsupported` where the device cannot
    /// run it; the device's fault.
    pub fn kernel(&self, source: impl Borrow<KernelSource>) -> Result<Kernel> {
        self.prepare(source.borrow())?.kernel()
    }

    /// Computes the key of a source, for callers that ask for its kernel often.
    ///
    /// # Errors
    /// `Unsupported` where the device runs no such kernels.
    pub fn prepare(&self, source: &KernelSource) -> Result<PreparedKernel> {
        Ok(self.prepare_key(KernelKey::new(source, self.info())?))
    }

    pub(crate) fn prepare_key(&self, key: KernelKey) -> PreparedKernel {
        PreparedKernel::new(self.clone(), key)
    }

    pub(crate) fn kernels(&self) -> &KernelCache {
        &self.0.kernels
    }

    /// What the kernel cache did so far.
    pub fn kernel_cache_stats(&self) -> KernelCacheStatistics {
        self.0.kernels.statistics()
    }

    /// The disk tier of the kernel cache; `None` where there is none, or where its directory cannot be used.
    pub fn kernel_store(&self) -> Option<&DiskStore> {
        self.0.kernels.store()
    }

    /// Lets the kernel cache forget what is in memory. What is on disk stays.
    pub fn clear_kernels(&self) {
        self.0.kernels.clear_memory();
    }

    /// What a request for this kernel would meet now, and if nothing, why.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn explain_kernel(&self, source: &KernelSource) -> Result<KernelExplanation> {
        crate::kernel::explain(self, source)
    }

    /// Makes kernels ready on several threads, the processor's unless `threads` says otherwise.
    pub fn warm_kernels(&self, sources: &[KernelSource], threads: Option<NonZeroUsize>) -> KernelWarmReport {
        let threads = threads.or_else(|| NonZeroUsize::new(crate::cores())).unwrap_or(NonZeroUsize::MIN);
        crate::kernel::warm(self, sources, threads)
    }

    /// Begins to load the `count` most used kernels on disk, in the background.
    ///
    /// # Errors
    /// `Io` where no thread can start.
    pub fn preload_kernels(&self, count: usize) -> Result<Preload> {
        Preload::start(self, count)
    }

    /// An empty command list, with the memory of an earlier one.
    #[inline]
    pub fn commands(&self) -> CommandList {
        self.0.spare_lists.lock().pop().unwrap_or_default()
    }

    /// Whether the buffer is of this device.
    pub fn owns(&self, buffer: &Buffer) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0.api), std::ptr::from_ref(buffer.api()))
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        self.0.api.info()
    }

    /// The pool that all buffers of this device come from.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// The pool's numbers now.
    pub fn buffer_pool_stats(&self) -> PoolStatistics {
        self.0.pool.statistics()
    }

    /// The device as its crate knows it.
    pub fn api(&self) -> &Arc<dyn DeviceApi> {
        &self.0.api
    }

    /// A buffer of `bytes` bytes with unspecified contents, of the usage that is fastest on this device.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` as the [pool](Pool::allocate) tells them.
    #[inline]
    pub fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.buffer_with(BufferOptions::new(bytes))
    }

    /// A buffer with a label or a usage of its own.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` as the [pool](Pool::allocate) tells them.
    #[inline]
    pub fn buffer_with(&self, options: BufferOptions<'_>) -> Result<Buffer> {
        self.0.api.fault().map_or(Ok(()), Err)?;
        Ok(Buffer::new(self.0.pool.allocate(options)?))
    }

    /// A buffer of `len` elements with unspecified contents.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` as the [pool](Pool::allocate) tells them.
    pub fn buffer_of<T: Pod>(&self, len: usize) -> Result<TypedBuffer<T>> {
        self.buffer_with(BufferOptions::of::<T>(len)?)?.typed()
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    /// As [`buffer_of`](Self::buffer_of) and [`TypedBuffer::write`].
    pub fn buffer_from<T: Pod>(&self, data: &[T]) -> Result<TypedBuffer<T>> {
        let buffer = self.buffer_of(data.len())?;
        buffer.write(data)?;
        Ok(buffer)
    }

    /// Runs the commands, and returns the number of the submission. It does not wait for them. A list that brings more
    /// than 64 MiB from the host runs as several submissions; the number is that of the last.
    ///
    /// # Errors
    /// `InvalidArgument` where a buffer is of another device; the device's fault.
    pub fn submit(&self, mut commands: CommandList) -> Result<u64> {
        self.check_owner(&commands)?;
        let submitted = self.submit_owned(commands.commands());
        commands.clear();
        let mut spare = self.0.spare_lists.lock();
        if spare.len() < MAX_SPARE_LISTS {
            spare.push(commands);
        }
        submitted
    }

    /// Submits commands whose buffers are of this device.
    pub(crate) fn submit_owned(&self, commands: &[Command]) -> Result<u64> {
        let submission = submit_in_parts(&*self.0.api, commands)?;
        let launches = commands.iter().filter(|command| matches!(command, Command::Dispatch(_))).count();
        self.0.launches.fetch_add(launches as u64, Ordering::Relaxed);
        Ok(submission)
    }

    /// How many kernels were launched on this device so far, replays included. Plans that the CPU device runs itself launch none.
    pub fn launches(&self) -> u64 {
        self.0.launches.load(Ordering::Relaxed)
    }

    /// Makes a plan ready to run on this device.
    ///
    /// # Errors
    /// As [`DeviceApi::compile`].
    pub fn compile(&self, plan: &Arc<Plan>) -> Result<Arc<dyn CompiledPlan>> {
        Arc::clone(&self.0.api).compile(self, plan)
    }

    /// Runs work of the host on buffers of this device; `work` returns the number of its submission once it has ended. For devices that run plans.
    ///
    /// # Errors
    /// `InvalidArgument` where the buffers are of another device; what `work` returns; the device's fault.
    pub fn run_on_host(&self, name: &str, buffers: &BufferSet<'_>, work: impl FnOnce() -> Result<u64>) -> Result<u64> {
        self.0.api.fault().map_or(Ok(()), Err)?;
        // The buffers of a set are of one device.
        self.check_buffers(buffers.buffers().first().into_iter().map(|(buffer, _)| *buffer))?;
        let _span = span(
            self.0.api.recorder(),
            |device| tracing::debug_span!(target: "kiln", "submission", device, work = name),
        );
        work()
    }

    /// Records commands once, to be replayed many times; see [`Captured`].
    ///
    /// # Errors
    /// What `record` returns; `InvalidArgument` where a buffer is of another device.
    pub fn capture(&self, record: impl FnOnce(&mut CommandList) -> Result<()>) -> Result<Captured> {
        let mut commands = CommandList::new();
        record(&mut commands)?;
        self.check_owner(&commands)?;
        Ok(Captured::new(self.clone(), commands))
    }

    fn check_owner(&self, commands: &CommandList) -> Result<()> {
        let dispatches = commands.commands().iter().filter_map(Command::as_dispatch);
        if let Some(foreign) = dispatches.map(Dispatch::kernel).find(|kernel| !kernel.is_of(&self.0.api)) {
            let (own, name) = (&self.info().id, foreign.name());
            bail!(InvalidArgument, "submission to device `{own}` expected its own kernels, found `{name}` of another");
        }
        self.check_buffers(commands.accesses().map(|(buffer, _)| buffer))
    }

    fn check_buffers<'a>(&self, buffers: impl Iterator<Item = &'a Buffer>) -> Result<()> {
        for buffer in buffers {
            if !self.owns(buffer) {
                let (own, other) = (&self.info().id, &buffer.device_info().id);
                let message =
                    format!("submission to device `{own}` expected its own buffers, found one of another `{other}`");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        Ok(())
    }

    /// Blocks until everything submitted so far is done.
    ///
    /// # Errors
    /// The device's fault, where something submitted did not run.
    pub fn synchronize(&self) -> Result<()> {
        let last = submit_pinned(&*self.0.api, &[])?;
        self.0.api.wait(last)?;
        self.0.api.fault().map_or(Ok(()), Err)
    }
}

/// Submits the commands, as several submissions where they bring too much from the host for one. Returns the last number.
pub(crate) fn submit_in_parts(api: &dyn DeviceApi, commands: &[Command]) -> Result<u64> {
    let (mut first, mut pending) = (0, 0);
    for (index, command) in commands.iter().enumerate() {
        let bytes = command.host_bytes();
        if pending > 0 && pending + bytes > MAX_HOST_BYTES {
            submit_pinned(api, &commands[first..index])?;
            (first, pending) = (index, 0);
        }
        pending += bytes;
    }
    submit_pinned(api, &commands[first..])
}

/// Submits with every buffer pinned, then marks it with the submission, so that the pool neither moves nor reuses it before
/// that is done. The device checks for its fault here, and so for every way to submit.
/// The caller holds the commands, and with them the buffers, until they are marked.
pub(crate) fn submit_pinned(api: &dyn DeviceApi, commands: &[Command]) -> Result<u64> {
    let buffers = || commands.iter().flat_map(Command::accesses).map(|(buffer, _)| buffer.allocation());
    buffers().for_each(Allocation::pin);
    let _span = span(
        api.recorder(),
        |device| tracing::debug_span!(target: "kiln", "submission", device, commands = commands.len()),
    );
    let submitted = api.submit(commands);
    for allocation in buffers() {
        if let Ok(submission) = submitted {
            allocation.mark_used(submission);
        }
        allocation.unpin();
    }
    submitted
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("id", &self.info().id).field("name", &self.info().name).finish()
    }
}
