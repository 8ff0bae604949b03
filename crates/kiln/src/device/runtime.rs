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

    /// Blocks until everything submitted so far is done.
    ///
    /// # Errors
    /// The device's fault, where submitted work did not run.
    pub fn synchronize(&self) -> Result<()> {
        self.runtime().synchronize()
    }
}

/// Memory.
impl Device {
    /// Allocates a buffer of `bytes` bytes with unspecified contents.
    ///
    /// # Errors
    /// `OutOfMemory` and `TooLarge` of the [pool](Pool::allocate); the device's fault.
    #[inline]
    pub fn buffer(&self, bytes: u64) -> Result<Buffer> {
        self.runtime().buffer(bytes)
    }

    /// Allocates a buffer with a label or a usage.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    #[inline]
    pub fn buffer_with(&self, options: BufferOptions<'_>) -> Result<Buffer> {
        self.runtime().buffer_with(options)
    }

    /// Allocates a buffer of `len` elements with unspecified contents.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
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
    /// As [`buffer`](Self::buffer) and [`TypedBuffer::write`].
    pub fn buffer_from<T: Pod>(&self, data: &[T]) -> Result<TypedBuffer<T>> {
        self.runtime().buffer_from(data)
    }

    /// Returns the pool that all buffers of this device come from.
    pub fn pool(&self) -> &Pool {
        self.runtime().pool()
    }

    /// Returns the counters of the pool.
    pub fn buffer_pool_stats(&self) -> PoolStatistics {
        self.runtime().buffer_pool_stats()
    }

    /// Returns the caches of the device, which share one byte budget: plans, kernels in memory, and caches that you register. A
    /// [trim](CacheRegistry::trim) also releases the free blocks of the [pool](Self::pool).
    ///
    /// Keep [buffers](Buffer) in such a cache, not devices or tensors: an entry that holds its own device keeps the device open until the
    /// entry is evicted. The registry creates entries with a [`Runtime`](crate::device::Runtime), which [`runtime`](Self::runtime) returns.
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

/// Kernels in WGSL.
impl Device {
    /// Returns the kernel of a source: from memory, from disk, or compiled now.
    ///
    /// # Errors
    /// `CompileFailed` where the source has an error, with file, line, column and text; `Unsupported` where the device cannot
    /// run it; the device's fault.
    pub fn kernel(&self, source: impl Borrow<KernelSource>) -> Result<Kernel> {
        self.runtime().kernel(source)
    }

    /// Computes the cache key of a source once, for callers that request its kernel often.
    ///
    /// # Errors
    /// `Unsupported` where the device runs no WGSL.
    pub fn prepare(&self, source: &KernelSource) -> Result<PreparedKernel> {
        self.runtime().prepare(source)
    }

    /// Compiles or loads kernels on several threads; one per core unless `threads` is given.
    pub fn warm_kernels(&self, sources: &[KernelSource], threads: Option<NonZeroUsize>) -> KernelWarmReport {
        self.runtime().warm_kernels(sources, threads)
    }

    /// Starts to load the `count` most used kernels from disk in the background.
    ///
    /// # Errors
    /// `Io` where no thread can start.
    pub fn preload_kernels(&self, count: usize) -> Result<Preload> {
        self.runtime().preload_kernels(count)
    }

    /// Says whether a request for this kernel would hit memory or disk, and if neither, what changed since it was stored.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn explain_kernel(&self, source: &KernelSource) -> Result<KernelExplanation> {
        self.runtime().explain_kernel(source)
    }

    /// Returns the counters of the kernel cache.
    pub fn kernel_cache_stats(&self) -> KernelCacheStatistics {
        self.runtime().kernel_cache_stats()
    }

    /// Returns the disk tier of the kernel cache; `None` where there is none or its directory cannot be used.
    pub fn kernel_store(&self) -> Option<&DiskStore> {
        self.runtime().kernel_store()
    }

    /// Removes all kernels from memory. Kernels on disk stay.
    pub fn clear_kernels(&self) {
        self.runtime().clear_kernels();
    }
}

/// Submissions.
impl Device {
    /// Returns an empty command list. It reuses the memory of a submitted one.
    #[inline]
    pub fn commands(&self) -> CommandList {
        self.runtime().commands()
    }

    /// Submits commands without waiting for them, and returns the number of the submission. A list with more than 64 MiB of data from the
    /// host becomes several submissions; the number is that of the last.
    ///
    /// # Errors
    /// `InvalidArgument` where a buffer or kernel belongs to another device; the device's fault.
    pub fn submit(&self, commands: CommandList) -> Result<u64> {
        self.runtime().submit(commands)
    }

    /// Returns the number of kernel launches so far, replays included. The CPU device runs plans of tensors without launches.
    pub fn launches(&self) -> u64 {
        self.runtime().launches()
    }

    /// Records commands once, to be replayed many times.
    ///
    /// # Errors
    /// The error of `record`; `InvalidArgument` where a buffer or kernel belongs to another device.
    pub fn capture(&self, record: impl FnOnce(&mut CommandList) -> Result<()>) -> Result<Captured> {
        self.runtime().capture(record)
    }
}

/// Observation; see [`observe`](crate::observe).
impl Device {
    /// Sends all events of this device to a watcher from now on. The device owns the watcher, and delivers everything before its last
    /// handle is gone.
    ///
    /// # Errors
    /// `Unsupported` without the feature `events` of the crate; `Io` where no thread can start.
    pub fn watch(&self, watcher: impl Watcher) -> Result<WatchId> {
        self.runtime().watch(watcher)
    }

    /// Ends a watch after the events of everything submitted are delivered; `None` where there is no such watch. It does not wait when it
    /// is called by a watcher.
    pub fn unwatch(&self, watch: WatchId) -> Option<WatchReport> {
        self.runtime().unwatch(watch)
    }

    /// Emits `tracing` spans with the target `kiln` while it is on. Needs the feature `events` of the crate.
    pub fn set_tracing(&self, on: bool) {
        self.runtime().set_tracing(on);
    }

    /// Counts and times kernels while the returned value lives. The counts stay until profiling starts again.
    ///
    /// The CPU device times every kernel; a GPU those for which it has [timestamps](crate::device::Feature::Timestamps), with a pass per
    /// dispatch. Needs the feature `events` of the crate.
    pub fn profile(&self) -> Profiling {
        self.runtime().profile()
    }

    /// Switches on or off what [`profile`](Self::profile) does, for programs with one place that decides.
    pub fn set_profiling(&self, on: bool) {
        self.runtime().set_profiling(on);
    }

    /// Returns the counts and times of each kernel since profiling began, the longest first. Kernels that a GPU has not finished are
    /// missing: [`synchronize`](Self::synchronize) first.
    pub fn kernel_statistics(&self) -> Vec<KernelStatistics> {
        self.runtime().kernel_statistics()
    }
}
