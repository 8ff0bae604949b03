//! Memory, kernels, submissions and observation of a [`Device`], delegated to `kiln_device`.

use crate::Device;
use bytemuck::Pod;
use kiln_device::observe::{KernelStatistics, Profiling, WatchId, WatchReport, Watcher};
use kiln_device::{
    Buffer, BufferOptions, Captured, CommandList, DeviceInfo, Kernel, KernelCacheStatistics, KernelExplanation,
    KernelSource, KernelWarmReport, Pool, PoolStatistics, Preload, PreparedKernel, TypedBuffer,
};
use kiln_ir::Result;
use kiln_resource_cache::CacheRegistry;
use kiln_resource_cache::store::DiskStore;
use std::borrow::Borrow;
use std::num::NonZeroUsize;

impl Device {
    /// Returns the name, kind, limits and features of the device.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// assert_eq!(kiln::Device::cpu()?.info().kind, kiln::DeviceKind::Cpu);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn info(&self) -> &DeviceInfo {
        self.runtime().info()
    }

    /// Blocks until all submitted work is done.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// kiln::Tensor::ones(8, kiln::DType::F32, &device)?.exp()?.eval()?; // submits
    /// device.synchronize()?; // waits
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the device error if submitted work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.runtime().synchronize()
    }
}

/// Memory.
impl Device {
    /// Allocates a buffer of `bytes` bytes with unspecified contents.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let buffer = device.buffer(256)?;
    /// assert_eq!(buffer.bytes(), 256);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `OutOfMemory` and `TooLarge` from the [pool](Pool::allocate), and device errors.
    #[inline]
    pub fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.runtime().buffer(bytes)
    }

    /// Allocates a buffer with a label or a usage.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::buffer::BufferOptions;
    ///
    /// let buffer = device.buffer_with(BufferOptions::new(256).label("scratch"))?;
    /// assert_eq!(buffer.bytes(), 256);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`buffer`](Self::buffer).
    #[inline]
    pub fn buffer_with(&self, options: BufferOptions<'_>) -> Result<Buffer> {
        self.runtime().buffer_with(options)
    }

    /// Allocates a buffer of `len` elements with unspecified contents.
    ///
    /// See [`buffer`](crate::buffer) for an example.
    ///
    /// # Errors
    /// Same as [`buffer`](Self::buffer).
    pub fn buffer_of<T: Pod>(&self, len: usize) -> Result<TypedBuffer<T>> {
        self.runtime().buffer_of(len)
    }

    /// Allocates a buffer that holds a copy of `data`.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(device.buffer_from(&[1u32, 2])?.read()?, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`buffer`](Self::buffer) and [`TypedBuffer::write`].
    pub fn buffer_from<T: Pod>(&self, data: &[T]) -> Result<TypedBuffer<T>> {
        self.runtime().buffer_from(data)
    }

    /// Returns the pool that allocates all buffers of this device.
    ///
    /// See [`pool`](crate::pool) for an example.
    pub fn pool(&self) -> &Pool {
        self.runtime().pool()
    }

    /// Returns the counters of the pool.
    ///
    /// See [`caches`](Self::caches) for an example.
    pub fn buffer_pool_stats(&self) -> PoolStatistics {
        self.runtime().buffer_pool_stats()
    }

    /// Returns the cache registry of the device. Plans, kernels in memory, and the caches that you register share one
    /// byte budget. A [trim](CacheRegistry::trim) also releases the free blocks of the [pool](Self::pool).
    ///
    /// Store [buffers](Buffer) in such a cache, not devices or tensors: an entry that holds its own device keeps the
    /// device open until the entry is evicted. The registry creates entries with a
    /// [`Runtime`](crate::device::Runtime), which [`runtime`](Self::runtime) returns.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = kiln::Device::cpu()?;
    /// kiln::Tensor::new([1.0f32], &device)?.exp()?.eval()?;
    /// device.caches().trim(0);
    /// assert_eq!((device.caches().bytes(), device.buffer_pool_stats().bytes_cached), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn caches(&self) -> &CacheRegistry<kiln_device::Device> {
        self.runtime().caches()
    }
}

/// WGSL kernels.
impl Device {
    /// Returns the kernel for a source: from memory, from disk, or newly compiled.
    ///
    /// See [`kernel`](crate::kernel) for an example.
    ///
    /// # Errors
    /// Returns `CompileFailed` with file, line, column and text if the source has an error, `Unsupported` if the
    /// device cannot run it, and device errors.
    pub fn kernel(&self, source: impl Borrow<KernelSource>) -> Result<Kernel> {
        self.runtime().kernel(source)
    }

    /// Computes the cache key of a source once, for callers that request its kernel often.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # if !cfg!(feature = "wgsl") {
    /// #     return Ok(()); // The CPU device runs no WGSL.
    /// # }
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::kernel::KernelSource;
    ///
    /// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
    /// let prepared = device.prepare(&source)?;
    /// assert_eq!(prepared.kernel()?.hash(), prepared.hash());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` if the device cannot run WGSL.
    pub fn prepare(&self, source: &KernelSource) -> Result<PreparedKernel> {
        self.runtime().prepare(source)
    }

    /// Compiles or loads kernels on several threads; one per core unless `threads` is given.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # if !cfg!(feature = "wgsl") {
    /// #     return Ok(()); // The CPU device runs no WGSL.
    /// # }
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::cache::Outcome;
    /// use kiln::kernel::KernelSource;
    ///
    /// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
    /// let report = device.warm_kernels(&[source.clone()], None);
    /// assert!(report.failed.is_empty());
    /// assert_eq!(device.explain_kernel(&source)?.outcome, Outcome::MemoryHit);
    ///
    /// device.clear_kernels();
    /// assert_eq!(device.kernel_cache_stats().entries, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn warm_kernels(&self, sources: &[KernelSource], threads: Option<NonZeroUsize>) -> KernelWarmReport {
        self.runtime().warm_kernels(sources, threads)
    }

    /// Starts loading the `count` most used kernels from disk in the background.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # if !cfg!(feature = "wgsl") {
    /// #     return Ok(()); // The CPU device runs no WGSL.
    /// # }
    /// # let device = kiln::Device::cpu()?;
    /// let preload = device.preload_kernels(100)?;
    /// let report = preload.wait()?;
    /// println!("{} kernels loaded", report.loaded);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Io` if the thread cannot be started.
    pub fn preload_kernels(&self, count: usize) -> Result<Preload> {
        self.runtime().preload_kernels(count)
    }

    /// Explains whether a request for this kernel would hit memory or disk, and if neither, what changed since it was
    /// stored.
    ///
    /// See [`warm_kernels`](Self::warm_kernels) for an example.
    ///
    /// # Errors
    /// Same as [`prepare`](Self::prepare).
    pub fn explain_kernel(&self, source: &KernelSource) -> Result<KernelExplanation> {
        self.runtime().explain_kernel(source)
    }

    /// Returns the counters of the kernel cache.
    ///
    /// See [`warm_kernels`](Self::warm_kernels) for an example.
    pub fn kernel_cache_stats(&self) -> KernelCacheStatistics {
        self.runtime().kernel_cache_stats()
    }

    /// Returns the disk tier of the kernel cache; `None` if there is none or its directory cannot be used.
    ///
    /// See [`by_name_with`](Self::by_name_with) for an example.
    pub fn kernel_store(&self) -> Option<&DiskStore> {
        self.runtime().kernel_store()
    }

    /// Removes all kernels from memory. Kernels on disk stay.
    ///
    /// See [`warm_kernels`](Self::warm_kernels) for an example.
    pub fn clear_kernels(&self) {
        self.runtime().clear_kernels();
    }
}

/// Submissions.
impl Device {
    /// Returns an empty command list. It reuses the memory of a submitted one.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let (x, y) = (device.buffer_from(&[1u32, 2])?, device.buffer_of::<u32>(2)?);
    /// let mut commands = device.commands();
    /// commands.copy(x.as_bytes(), y.as_bytes())?;
    /// device.submit(commands)?;
    /// assert_eq!(y.read()?, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn commands(&self) -> CommandList {
        self.runtime().commands()
    }

    /// Submits commands without waiting for them, and returns the submission number. A list with more than 64 MiB of
    /// data from the host is split into several submissions; the number is that of the last.
    ///
    /// See [`commands`](Self::commands) for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a buffer or kernel belongs to another device, and device errors.
    pub fn submit(&self, commands: CommandList) -> Result<u64> {
        self.runtime().submit(commands)
    }

    /// Returns the number of kernel launches so far, replays included. The CPU device runs tensor plans without
    /// launches.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// assert_eq!(device.launches(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn launches(&self) -> u64 {
        self.runtime().launches()
    }

    /// Records commands once for repeated replay.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let (x, y) = (device.buffer_from(&[1u32, 2])?, device.buffer_of::<u32>(2)?);
    /// let copy = device.capture(|commands| commands.copy(x.as_bytes(), y.as_bytes()))?;
    /// copy.replay()?;
    /// x.write(&[3, 4])?;
    /// copy.replay()?;
    /// assert_eq!(y.read()?, [3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error of `record`, and `InvalidArgument` if a buffer or kernel belongs to another device.
    pub fn capture(&self, record: impl FnOnce(&mut CommandList) -> Result<()>) -> Result<Captured> {
        self.runtime().capture(record)
    }
}

/// Observation; see [`observe`](crate::observe).
impl Device {
    /// Sends all later events of this device to a watcher. The device owns the watcher, and delivers all events
    /// before its last handle is dropped.
    ///
    /// See [`observe`](crate::observe) for an example.
    ///
    /// # Errors
    /// Returns `Unsupported` without the feature `events` of the crate, and `Io` if the thread cannot be started.
    pub fn watch(&self, watcher: impl Watcher) -> Result<WatchId> {
        self.runtime().watch(watcher)
    }

    /// Ends a watch after the events of all submitted work are delivered; `None` if there is no such watch. It does
    /// not wait if called by a watcher.
    ///
    /// See [`observe`](crate::observe) for an example.
    pub fn unwatch(&self, watch: WatchId) -> Option<WatchReport> {
        self.runtime().unwatch(watch)
    }

    /// Turns `tracing` spans with the target `kiln` on or off. Needs the feature `events` of the crate.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// device.set_tracing(true); // spans go to the subscriber of the program
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_tracing(&self, on: bool) {
        self.runtime().set_tracing(on);
    }

    /// Counts and times kernels while the returned value lives. The counts stay until profiling starts again.
    ///
    /// The CPU device times every kernel; a GPU times those for which it has
    /// [timestamps](crate::device::Feature::Timestamps), with one pass per dispatch. Needs the feature `events` of
    /// the crate.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let profiling = device.profile();
    /// kiln::Tensor::ones(1000, kiln::DType::F32, &device)?.add_scalar(1.0)?.eval()?;
    /// drop(profiling);
    /// for kernel in device.kernel_statistics() {
    ///     println!("{}: {} launches, {:?}", kernel.name, kernel.launches, kernel.total);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn profile(&self) -> Profiling {
        self.runtime().profile()
    }

    /// Turns [profiling](Self::profile) on or off, for programs that control it in one place.
    ///
    /// See [`profile`](Self::profile) for an example.
    pub fn set_profiling(&self, on: bool) {
        self.runtime().set_profiling(on);
    }

    /// Returns the counts and times of each kernel since profiling started, longest first. Kernels that a GPU has not
    /// finished are missing: call [`synchronize`](Self::synchronize) first.
    ///
    /// See [`profile`](Self::profile) for an example.
    pub fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        self.runtime().kernel_statistics()
    }
}
