//! How the CPU device is opened.

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

/// How long a dispatch may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit(pub(crate) Option<Duration>);

impl Default for TimeLimit {
    fn default() -> Self {
        Self(Some(Duration::from_secs(60)))
    }
}

impl CpuOptions {
    /// The setting that names the vector instructions: a [name](SimdLevel::name) of a level.
    pub const SIMD_SETTING: &str = "KILN_SIMD";

    /// All cores, host access in place, a pool with its defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults, changed by what the settings of a program say: [`SIMD_SETTING`](Self::SIMD_SETTING) is for
    /// [`simd`](Self::simd). A setting that is not there, or empty, changes nothing.
    ///
    /// A library does not read the environment by itself. A program whose settings are the environment's says so:
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
    /// `InvalidArgument` where a setting has a value that it cannot have, with those that it can.
    pub fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Self> {
        match setting(Self::SIMD_SETTING).filter(|value| !value.is_empty()) {
            Some(value) => {
                Ok(Self::new().simd(value.parse().map_err(|error: Error| error.context(Self::SIMD_SETTING))?))
            }
            None => Ok(Self::new()),
        }
    }

    /// Runs kernels on `count` threads, the caller's included. Default: as many as the process may use cores.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = Some(count);
        self
    }

    /// Runs kernels with these vector instructions and not more. Default: what the processor has.
    pub fn simd(mut self, level: SimdLevel) -> Self {
        self.simd = Some(level);
        self
    }

    /// How the host reaches buffers. Default: [`HostAccess::Auto`], which is in place.
    pub fn host_access(mut self, access: HostAccess) -> Self {
        self.host_access = access;
        self
    }

    /// The settings of the memory pool.
    pub fn pool(mut self, options: PoolOptions) -> Self {
        self.pool = options;
        self
    }

    /// The settings of the kernel cache. Default: in memory only.
    pub fn kernels(mut self, kernels: KernelCacheOptions) -> Self {
        self.kernels = kernels;
        self
    }

    /// Keeps compiled kernels in this directory, unless the options of the kernel cache say otherwise.
    pub fn or_disk(mut self, disk: impl FnOnce() -> Option<DiskTier>) -> Self {
        self.kernels = self.kernels.or_disk(disk);
        self
    }

    /// How long a dispatch of a kernel in WGSL may take; `None` for as long as it wants. Default: a minute. A kernel that takes
    /// longer in a loop is stopped, and ends the device as a driver does: what it should have written is not there.
    pub fn time_limit(mut self, limit: Option<Duration>) -> Self {
        self.time_limit = TimeLimit(limit);
        self
    }

    /// Runs plans as the kernels in WGSL that a GPU is given, instead of natively. Default: off. It is there to check those kernels
    /// and their compiler where there is no GPU; natively is faster.
    pub fn plans_as_wgsl(mut self, yes: bool) -> Self {
        self.plans_as_wgsl = yes;
        self
    }

    /// Watches kernels in WGSL while they run, and keeps what is wrong with them for [`take_findings`](crate::take_findings): indices out
    /// of bounds, races, reads of memory that nothing was written to, barriers that not all invocations reach, NaN made of numbers. They
    /// run one invocation at a time, on one thread, and are not kept on disk: this is for debugging. For each byte of a buffer that
    /// they write, it takes eighteen more, or twice as many where there are halves, so that 128 MiB is the most. Plans of tensors run as always.
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

    /// The usage of a buffer that asks for none.
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
        assert!(error.to_string().starts_with("KILN_SIMD: expected a level"), "{error}");
    }
}
