//! Options of the CPU device.

use kiln_device::{DiskTier, HostAccess, KernelCacheOptions, PoolOptions, Usage};
use kiln_ir::{Error, ErrorKind, Result, SimdLevel};
use std::time::Duration;

/// Settings of [`open`](crate::open).
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_cpu::{CpuOptions, HostAccess};
///
/// let device = kiln_cpu::open(CpuOptions::new().threads(2).host_access(HostAccess::Staged))?;
/// assert_eq!(device.info().limits.threads, Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct CpuOptions {
    threads: Option<usize>,
    simd: Option<SimdLevel>,
    host_access: HostAccess,
    pool: PoolOptions,
    kernels: KernelCacheOptions,
    pub(crate) time_limit: TimeLimit,
    pub(crate) plans_as_wgsl: bool,
    pub(crate) is_sanitized: bool,
}

/// The time limit of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit(pub(crate) Option<Duration>);

impl Default for TimeLimit {
    fn default() -> Self {
        Self(Some(Duration::from_secs(60)))
    }
}

impl CpuOptions {
    /// The setting for the SIMD level: the [name](SimdLevel::name) of a level.
    pub const SIMD_SETTING: &str = "KILN_SIMD";

    /// Creates the defaults: all cores, host access in place, a pool with default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates options from a program's settings: [`SIMD_SETTING`](Self::SIMD_SETTING) sets [`simd`](Self::simd). A
    /// setting that is missing or empty keeps its default.
    ///
    /// The library does not read the environment. A program configured by environment variables passes them
    /// in:
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_ir::Error> {
    /// let options = kiln_cpu::CpuOptions::from_settings(|name| std::env::var(name).ok())?;
    /// # let _ = options;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a setting has an invalid value, with the valid ones.
    pub fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Self> {
        match setting(Self::SIMD_SETTING).filter(|value| !value.is_empty()) {
            Some(value) => {
                Ok(Self::new().simd(value.parse().map_err(|error: Error| error.context(Self::SIMD_SETTING))?))
            }
            None => Ok(Self::new()),
        }
    }

    /// Sets the number of threads that run kernels, including the caller's. Default: the number of cores available to
    /// the process.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = Some(count);
        self
    }

    /// Sets the SIMD level; kernels use no wider instructions. Default: the level of the processor.
    pub fn simd(mut self, level: SimdLevel) -> Self {
        self.simd = Some(level);
        self
    }

    /// Sets how the host accesses buffers. Default: [`HostAccess::Auto`], which is in place.
    pub fn host_access(mut self, access: HostAccess) -> Self {
        self.host_access = access;
        self
    }

    /// Sets the options of the memory pool.
    pub fn pool(mut self, options: PoolOptions) -> Self {
        self.pool = options;
        self
    }

    /// Sets the options of the kernel cache. Default: in memory only.
    pub fn kernels(mut self, kernels: KernelCacheOptions) -> Self {
        self.kernels = kernels;
        self
    }

    /// Sets the disk tier of the kernel cache, unless its options already set or disable it.
    pub fn or_disk(mut self, disk: impl FnOnce() -> Option<DiskTier>) -> Self {
        self.kernels = self.kernels.or_disk(disk);
        self
    }

    /// Sets the time limit of a dispatch of a WGSL kernel; `None` for no limit. Default: one minute. A loop that
    /// exceeds it is stopped and the device is lost, as with a GPU driver: the output is incomplete.
    pub fn time_limit(mut self, limit: Option<Duration>) -> Self {
        self.time_limit = TimeLimit(limit);
        self
    }

    /// Runs plans as the WGSL kernels generated for GPUs instead of natively. Default: off. Tests those kernels and
    /// their compiler without a GPU; native code is faster.
    pub fn plans_as_wgsl(mut self, yes: bool) -> Self {
        self.plans_as_wgsl = yes;
        self
    }

    /// Runs WGSL kernels under the sanitizer and collects errors for [`take_findings`](crate::take_findings):
    /// out-of-bounds indices, data races, reads of uninitialized memory, barriers in non-uniform control flow, and
    /// NaN computed from numbers. For debugging: kernels run one invocation at a time, on one thread, and are not
    /// cached on disk. Each byte of a written buffer needs eighteen more, or twice as many with `f16`, so a dispatch
    /// may write buffers of at most 128 MiB. Tensor plans run as usual.
    pub fn sanitized(mut self, on: bool) -> Self {
        self.is_sanitized = on;
        self
    }

    pub(crate) fn thread_count(&self) -> Result<usize> {
        match self.threads {
            Some(0) => Err(Error::new(ErrorKind::InvalidArgument, "CPU device expected at least one thread, found 0")),
            Some(count) => Ok(count),
            None => Ok(kiln_device::cores()),
        }
    }

    pub(crate) fn simd_level(&self) -> Result<SimdLevel> {
        self.simd.map_or_else(|| Ok(SimdLevel::detect()), |level| crate::simd::check(level).map(|()| level))
    }

    /// Returns the usage of a buffer that does not specify one.
    pub(crate) fn default_usage(&self) -> Usage {
        if self.host_access == HostAccess::Staged { Usage::Storage } else { Usage::Shared }
    }

    pub(crate) fn into_parts(self) -> (PoolOptions, KernelCacheOptions) {
        let kernels = if self.is_sanitized { self.kernels.without_disk() } else { self.kernels };
        (self.pool, kernels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_choose_the_vector_instructions() {
        let of = |value: Option<&str>| {
            CpuOptions::from_settings(|name| value.filter(|_| name == "KILN_SIMD").map(ToString::to_string))
        };
        assert_eq!(of(None).unwrap().simd, None);
        assert_eq!(of(Some("")).unwrap().simd, None, "an empty variable is an unset one");
        assert_eq!(of(Some("scalar")).unwrap().simd, Some(SimdLevel::Scalar));
        let error = of(Some("fast")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().starts_with("KILN_SIMD: expected a SIMD level"), "{error}");
    }
}
