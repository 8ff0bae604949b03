//! [`Device`], the handle that users hold, and [`DeviceApi`], the trait that devices implement.

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

/// The interface of a device implementation. It covers memory, plans, kernels and command lists, and knows no ops.
///
/// Submissions are numbered from 1 and complete in that order.
///
/// ```
/// use kiln_device::{Code, KernelKey, KernelModule, KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
/// let program = KernelModule::new(&KernelKey::new(&source, device.info())?, device.info())?;
/// let artifact = device.api().translate(&program)?;
/// assert!(matches!(artifact.code, Code::Wgsl(_)) && artifact.checks.bounds);
/// let loaded = device.api().load(&artifact)?;
/// assert!(loaded.kernel.downcast_ref::<()>().is_some());
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub trait DeviceApi: RawMemory {
    /// Returns the description of the device.
    fn info(&self) -> &DeviceInfo;

    /// Runs the commands, or passes them to the driver, and returns the number of the submission. The pool does not
    /// touch the regions of the buffers until that submission is [completed](RawMemory::completed).
    ///
    /// # Errors
    /// Returns the device's fault; then none of the commands takes effect.
    fn submit(&self, commands: &[Command]) -> Result<u64>;

    /// Returns the properties of the device that plans must respect.
    ///
    /// The default describes a device that runs plans as WGSL kernels.
    fn target(&self) -> Target {
        WgslPlan::target(self.info())
    }

    /// Compiles a plan. `device` is the handle of this implementation, whose kernel cache provides the plan's kernels.
    ///
    /// The default compiles the plan to WGSL kernels.
    ///
    /// # Errors
    /// Returns `Unsupported` if the device cannot run a kernel; `Internal` if the plan is malformed; the device's
    /// fault.
    fn compile(self: Arc<Self>, device: &Device, plan: &Arc<Plan>) -> Result<Arc<dyn CompiledPlan>> {
        Ok(Arc::new(WgslPlan::new(device, plan)?))
    }

    /// Translates a program into code that [`load`](Self::load) accepts, in any process, until the device's
    /// [compiler](DeviceInfo::compiler) changes.
    ///
    /// # Errors
    /// Returns `Unsupported` if the device cannot run such a program or does not know an option of its key.
    fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        Err(error!(Unsupported, "device `{}` expected no kernel, found `{}`", self.info().id, program.key.name()))
    }

    /// Creates a kernel from translated code.
    ///
    /// # Errors
    /// Returns `CompileFailed` if the driver rejects the code; the device's fault.
    fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        Err(error!(Unsupported, "device `{}` expected no kernel, found {artifact:?}", self.info().id))
    }

    /// Registers the caches of the implementation with those of its [`Device`]. Called once, before the first
    /// submission.
    ///
    /// # Errors
    /// Returns `Internal` if a cache cannot be registered.
    fn register_caches(&self, caches: &CacheRegistry<Device>) -> Result<()> {
        let _ = caches;
        Ok(())
    }

    /// Wakes `waker` once `submission` is done or can no longer complete, immediately if that is already so.
    fn notify(&self, submission: u64, waker: Waker);

    /// Returns the fault that ended the device, if any. It is permanent.
    fn fault(&self) -> Option<Error>;
}

/// A kernel created from translated code.
///
/// Returned by [`DeviceApi::load`]; see [`DeviceApi`] for an example.
#[derive(Debug)]
pub struct Loaded {
    /// The kernel.
    pub kernel: RawKernel,
    /// The driver's compiled form of the code, if it reports one; it makes later loads faster.
    pub driver_blob: Option<Vec<u8>>,
}

/// A device with its memory pool and kernel cache. Clones refer to the same device.
///
/// When the last clone is dropped, cached memory is freed; buffers that are still held keep working.
///
/// See the [documentation of the crate](crate) for an example.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    api: Arc<dyn DeviceApi>,
    pool: Pool,
    caches: CacheRegistry<Device>,
    kernels: KernelCache,
    /// Empty command lists that keep their capacity, so that recording does not allocate.
    spare_lists: Mutex<Vec<CommandList>>,
    launches: AtomicU64,
    /// Declared last, so that events of the other fields' drops are still emitted.
    _stream: StreamEnd,
}

/// The maximum bytes of host data in one submission. A driver holds them until the submission is done, and some drivers
/// fail silently if there are too many.
const MAX_HOST_BYTES: u64 = 64 << 20;

const MAX_SPARE_LISTS: usize = 16;

impl Device {
    /// Creates a device with a pool. For crates that implement devices; users open devices with the `kiln` crate.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the pool options contradict each other.
    pub fn new(api: Arc<dyn DeviceApi>, pool: PoolOptions) -> Result<Self> {
        Self::with_kernels(api, pool, KernelCacheOptions::new())
    }

    /// Creates a device with a pool and a kernel cache.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the options of the pool or of the cache contradict each other.
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
        // A trim of the caches also releases free blocks of the pool.
        caches.add_reserve("pool", pool.clone());
        api.register_caches(&caches)?;
        let (kernels, spare_lists) = (KernelCache::new(kernels, &caches)?, Mutex::default());
        let (launches, stream) = (AtomicU64::new(0), StreamEnd(Arc::clone(&api)));
        Ok(Self(Arc::new(Inner { api, pool, caches, kernels, spare_lists, launches, _stream: stream })))
    }

    /// Returns the caches of the device, which share one byte budget: loaded kernels, tensor plans, and those that the
    /// device or the user registers. A [trim](CacheRegistry::trim) also frees the unused blocks of the
    /// [pool](Self::pool).
    ///
    /// A [`CacheableKernel`](kiln_resource_cache::CacheableKernel) of this registry is created with the device that the
    /// caller passes. Entries should hold [buffers](Buffer) and not devices or tensors: an entry that holds its own
    /// device keeps the device open.
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

    /// Returns the kernel of a source: from memory, from disk, or compiled now.
    ///
    /// # Errors
    /// Returns `CompileFailed` if the source has an error, with file, line, column and text; `Unsupported` if the
    /// device cannot run it; the device's fault.
    pub fn kernel(&self, source: impl Borrow<KernelSource>) -> Result<Kernel> {
        self.prepare(source.borrow())?.kernel()
    }

    /// Computes the key of a source, for callers that look up its kernel often.
    ///
    /// # Errors
    /// Returns `Unsupported` if the device runs no WGSL kernels.
    pub fn prepare(&self, source: &KernelSource) -> Result<PreparedKernel> {
        Ok(self.prepare_key(KernelKey::new(source, self.info())?))
    }

    pub(crate) fn prepare_key(&self, key: KernelKey) -> PreparedKernel {
        PreparedKernel::new(self.clone(), key)
    }

    pub(crate) fn kernels(&self) -> &KernelCache {
        &self.0.kernels
    }

    /// Returns the counters of the kernel cache.
    pub fn kernel_cache_stats(&self) -> KernelCacheStatistics {
        self.0.kernels.statistics()
    }

    /// Returns the disk tier of the kernel cache, or `None` if there is none or its directory cannot be used.
    pub fn kernel_store(&self) -> Option<&DiskStore> {
        self.0.kernels.store()
    }

    /// Removes all kernels from the memory tier. The disk tier is unchanged.
    pub fn clear_kernels(&self) {
        self.0.kernels.clear_memory();
    }

    /// Explains how a request for this kernel would be served now and, if it would be compiled, why.
    ///
    /// # Errors
    /// Returns the same errors as [`prepare`](Self::prepare).
    pub fn explain_kernel(&self, source: &KernelSource) -> Result<KernelExplanation> {
        crate::kernel::explain(self, source)
    }

    /// Compiles or loads kernels on several threads: `threads`, or as many as the processor has cores.
    pub fn warm_kernels(&self, sources: &[KernelSource], threads: Option<NonZeroUsize>) -> KernelWarmReport {
        let threads = threads.or_else(|| NonZeroUsize::new(crate::cores())).unwrap_or(NonZeroUsize::MIN);
        crate::kernel::warm(self, sources, threads)
    }

    /// Starts to load the `count` most used kernels of the disk tier in the background.
    ///
    /// # Errors
    /// Returns `Io` if no thread can be started.
    pub fn preload_kernels(&self, count: usize) -> Result<Preload> {
        Preload::start(self, count)
    }

    /// Returns an empty command list, reusing the memory of an earlier one.
    #[inline]
    pub fn commands(&self) -> CommandList {
        self.0.spare_lists.lock().pop().unwrap_or_default()
    }

    /// Returns whether the buffer belongs to this device.
    pub fn owns(&self, buffer: &Buffer) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0.api), std::ptr::from_ref(buffer.api()))
    }

    /// Returns the description of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.0.api.info()
    }

    /// Returns the pool of all buffers of this device.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Returns the current numbers of the pool.
    pub fn buffer_pool_stats(&self) -> PoolStatistics {
        self.0.pool.statistics()
    }

    /// Returns the implementation of the device.
    pub fn api(&self) -> &Arc<dyn DeviceApi> {
        &self.0.api
    }

    /// Allocates a buffer of `bytes` bytes with unspecified content and the default usage of this device.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `TooLarge`; see [`Pool::allocate`].
    #[inline]
    pub fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.buffer_with(BufferOptions::new(bytes))
    }

    /// Allocates a buffer with a label or another usage.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `TooLarge`; see [`Pool::allocate`].
    #[inline]
    pub fn buffer_with(&self, options: BufferOptions<'_>) -> Result<Buffer> {
        self.0.api.fault().map_or(Ok(()), Err)?;
        Ok(Buffer::new(self.0.pool.allocate(options)?))
    }

    /// Allocates a buffer of `len` elements with unspecified content.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `TooLarge`; see [`Pool::allocate`].
    pub fn buffer_of<T: Pod>(&self, len: usize) -> Result<TypedBuffer<T>> {
        self.buffer_with(BufferOptions::of::<T>(len)?)?.typed()
    }

    /// Allocates a buffer that contains a copy of `data`.
    ///
    /// # Errors
    /// Returns the same errors as [`buffer_of`](Self::buffer_of) and [`TypedBuffer::write`].
    pub fn buffer_from<T: Pod>(&self, data: &[T]) -> Result<TypedBuffer<T>> {
        let buffer = self.buffer_of(data.len())?;
        buffer.write(data)?;
        Ok(buffer)
    }

    /// Submits the commands and returns the number of the submission, without waiting for it. A list with more than 64
    /// MiB of host data is split into several submissions; the number is that of the last.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a buffer belongs to another device; the device's fault.
    pub fn submit(&self, mut commands: CommandList) -> Result<u64> {
        self.check_owner(&commands)?;
        let submitted = self.submit_owned(commands.commands());
        // Cleared before the lock is taken: dropping buffers returns them to the pool, which may free memory.
        commands.clear();
        let mut spare = self.0.spare_lists.lock();
        if spare.len() < MAX_SPARE_LISTS {
            spare.push(commands);
        }
        submitted
    }

    /// Submits commands whose buffers belong to this device.
    pub(crate) fn submit_owned(&self, commands: &[Command]) -> Result<u64> {
        // Launches are counted after the submission, so that refused ones do not count.
        let submission = submit_in_parts(&*self.0.api, commands)?;
        let launches = commands.iter().filter(|command| matches!(command, Command::Dispatch(_))).count();
        self.0.launches.fetch_add(launches as u64, Ordering::Relaxed);
        Ok(submission)
    }

    /// Returns the number of kernel launches on this device, including replays. Plans that the CPU device runs natively
    /// do not count.
    pub fn launches(&self) -> u64 {
        self.0.launches.load(Ordering::Relaxed)
    }

    /// Compiles a plan for this device.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceApi::compile`].
    pub fn compile(&self, plan: &Arc<Plan>) -> Result<Arc<dyn CompiledPlan>> {
        Arc::clone(&self.0.api).compile(self, plan)
    }

    /// Runs host work on buffers of this device. `work` returns the number of its submission once it has ended. For
    /// devices that run plans.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the buffers belong to another device; the error of `work`; the device's fault.
    pub fn run_on_host(&self, name: &str, buffers: &BufferSet<'_>, work: impl FnOnce() -> Result<u64>) -> Result<u64> {
        self.0.api.fault().map_or(Ok(()), Err)?;
        // All buffers of a set belong to one device, so checking the first is enough.
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
    /// Returns the error of `record`; `InvalidArgument` if a buffer belongs to another device.
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
    /// Returns the device's fault, if a submission did not run.
    pub fn synchronize(&self) -> Result<()> {
        // An empty submission completes after everything submitted before it.
        let last = submit_pinned(&*self.0.api, &[])?;
        self.0.api.wait(last)?;
        self.0.api.fault().map_or(Ok(()), Err)
    }
}

/// Submits the commands, split into several submissions if they carry too much host data. Returns the last number.
pub(crate) fn submit_in_parts(api: &dyn DeviceApi, commands: &[Command]) -> Result<u64> {
    let (mut first, mut pending) = (0, 0);
    for (index, command) in commands.iter().enumerate() {
        let bytes = command.host_bytes();
        // A single command above the limit is submitted alone.
        if pending > 0 && pending + bytes > MAX_HOST_BYTES {
            submit_pinned(api, &commands[first..index])?;
            (first, pending) = (index, 0);
        }
        pending += bytes;
    }
    // A device completes submissions in order, so the number of the last part stands for all of them.
    submit_pinned(api, &commands[first..])
}

/// Submits commands with all their buffers pinned, then marks the buffers with the submission.
///
/// Pinned memory is not moved, and marked memory is not reused before the submission is done. The caller keeps the
/// commands, and with them the buffers, alive until they are marked. Every submission passes through here, so the
/// device reports its fault here.
pub(crate) fn submit_pinned(api: &dyn DeviceApi, commands: &[Command]) -> Result<u64> {
    let buffers = || commands.iter().flat_map(Command::accesses).map(|(buffer, _)| buffer.allocation());
    buffers().for_each(Allocation::pin);
    let _span = span(
        api.recorder(),
        |device| tracing::debug_span!(target: "kiln", "submission", device, commands = commands.len()),
    );
    let submitted = api.submit(commands);
    for allocation in buffers() {
        // Marked before it is unpinned: a defragmentation in between would find the block neither pinned nor busy, and
        // move it while the submission uses the old location.
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
