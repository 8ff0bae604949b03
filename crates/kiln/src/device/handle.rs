//! The device handle, and the state that its tensors share.

use super::name;
#[cfg(feature = "events")]
use crate::metrics::FinalMetrics;
use crate::tensor::run::{Collector, PlanCache};
use kiln_cpu::SimdLevel;
use kiln_ir::plan::Target;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "events")]
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A GPU or the CPU, with its memory pool, caches and tensor state. Clones refer to the same device.
///
/// Each call that opens a device creates a new one with its own pool, and ops do not mix tensors of two devices: open
/// a device once and clone the handle.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// use kiln::Device;
///
/// for info in Device::list() {
///     println!("{}: {} ({})", info.id, info.name, info.kind);
/// }
/// let device = Device::by_name("cpu")?;
/// assert_eq!(device.info().id, "cpu");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    runtime: kiln_device::Device,
    /// The id, with an ordinal if the process opened earlier devices with this id.
    name: String,
    tensors: TensorState,
    #[cfg(feature = "events")]
    final_metrics: FinalMetrics,
}

#[cfg(feature = "events")]
impl Drop for Inner {
    fn drop(&mut self) {
        // Runs before the fields are dropped, so the runtime can still be read.
        self.final_metrics.send(&self.runtime);
    }
}

/// A weak handle to a device.
#[cfg(feature = "events")]
pub(crate) struct WeakDevice(Weak<Inner>);

#[cfg(feature = "events")]
impl WeakDevice {
    pub(crate) fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(Device)
    }

    pub(crate) fn is_of(&self, device: &Device) -> bool {
        // The weak handle keeps the allocation, so the address of a closed device is not reused.
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&device.0))
    }
}

/// State shared by the tensors of a device.
pub(crate) struct TensorState {
    /// The limits that plans for the device must respect.
    target: Target,
    pub(crate) plans: PlanCache,
    pub(crate) collector: Collector,
    /// Low half: the number of random keys handed out. High half: the mixed seed.
    keys: AtomicU64,
    /// Whether the result of every op is checked for NaN and infinities.
    nan_check: AtomicBool,
}

impl Device {
    /// Returns the underlying `kiln-device` device, without tensors. This is for library code that works at that
    /// level, for example a [`CacheableKernel`](crate::cache::CacheableKernel) of its [caches](Self::caches).
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let device = kiln::Device::cpu()?;
    /// let buffer = device.buffer(16)?;
    /// assert!(device.runtime().owns(&buffer));
    /// # Ok(())
    /// # }
    /// ```
    pub fn runtime(&self) -> &kiln_device::Device {
        &self.0.runtime
    }

    /// Returns whether both handles refer to the same device, as clones do. All tensors of an op must be on the same
    /// device.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let (one, other) = (kiln::Device::cpu()?, kiln::Device::cpu()?);
    /// assert!(one.is_same(&one.clone()) && !one.is_same(&other));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the SIMD level that the CPU device uses; `None` for other devices.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::Device;
    /// use kiln::device::{CpuOptions, SimdLevel};
    ///
    /// let device = Device::cpu_with(CpuOptions::new().simd(SimdLevel::Scalar))?;
    /// assert_eq!(device.simd_level(), Some(SimdLevel::Scalar));
    /// # Ok(())
    /// # }
    /// ```
    pub fn simd_level(&self) -> Option<SimdLevel> {
        kiln_cpu::simd_level(&self.0.runtime)
    }

    /// Returns the errors that a [sanitized](Self::sanitized) device found in kernels since the last call; nothing for other devices.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::Device;
    /// use kiln::kernel::{FindingKind, KernelSource};
    ///
    /// let device = Device::sanitized()?;
    /// let kernel = device.kernel(KernelSource::wgsl(
    ///     "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
    ///     @compute @workgroup_size(4) fn main() { y[0] += 1.0; }",
    /// ))?;
    /// let mut y = device.buffer_from(&[0.0f32])?;
    /// kernel.launch().bind("y", &mut y).over(4)?;
    /// let findings = device.take_findings();
    /// assert_eq!((findings[0].kind, findings[0].index), (FindingKind::Race, Some(0)));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "wgsl")]
    pub fn take_findings(&self) -> Vec<kiln_cpu::Finding> {
        kiln_cpu::take_findings(&self.0.runtime)
    }

    /// Seeds the random number generator of this device. The same seed gives the same tensors. Other devices generate
    /// the same random bits, so their elements differ only by the rounding of the functions applied to them. The
    /// initial seed is 0.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let make = || kiln::Tensor::rand(4, kiln::DType::F32, &device)?.to_vec::<f32>();
    /// device.set_seed(1);
    /// let first = make()?;
    /// device.set_seed(1);
    /// assert_eq!(make()?, first);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_seed(&self, seed: u64) {
        // The seed is in the upper half and the count of keys in the lower, so that two seeds count through different
        // ranges for 2³² keys.
        self.0.tensors.keys.store(u64::from(mix(seed)) << 32, Ordering::Relaxed);
    }

    /// Returns the key of the next random tensor.
    pub(crate) fn next_key(&self) -> u32 {
        // Relaxed: keys only have to be unique.
        mix(self.0.tensors.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// Checks the result of every op for NaN and infinities. [`Tensor::eval`](crate::Tensor::eval) then returns an
    /// `InvalidArgument` that names the first op that produced one from finite elements. Ops run unfused, one at a
    /// time: this is for debugging.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// device.set_nan_check(true);
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 0.0], 2, &device)?.log()?.mul_scalar(2.0)?;
    /// assert!(x.eval().unwrap_err().to_string().contains("`log`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_nan_check(&self, on: bool) {
        self.0.tensors.nan_check.store(on, Ordering::Relaxed);
    }

    pub(crate) fn has_nan_check(&self) -> bool {
        self.0.tensors.nan_check.load(Ordering::Relaxed)
    }

    #[cfg(feature = "events")]
    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.0))
    }

    #[cfg(feature = "events")]
    pub(crate) fn final_metrics(&self) -> &FinalMetrics {
        &self.0.final_metrics
    }

    /// Returns the limits that plans for the device must respect.
    pub(crate) fn target(&self) -> &Target {
        &self.0.tensors.target
    }

    pub(crate) fn tensors(&self) -> &TensorState {
        &self.0.tensors
    }

    /// Returns the counters of the plan cache. A hit is a computation that was already planned with the same shapes.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// for value in 0..3 {
    ///     kiln::Tensor::from_slice(&[value], 1, &device)?.add_scalar(value)?.eval()?;
    /// }
    /// let plans = device.plan_cache_stats();
    /// assert_eq!((plans.hits, plans.misses), (2, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn plan_cache_stats(&self) -> kiln_resource_cache::CacheMetrics {
        self.0.tensors.plans.statistics()
    }
}

/// Hashes a number so that consecutive numbers give unrelated keys.
pub(crate) fn mix(number: u64) -> u32 {
    // SplitMix64.
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 32) as u32
}

impl From<kiln_device::Device> for Device {
    fn from(runtime: kiln_device::Device) -> Self {
        let (target, plans) = (runtime.api().target(), PlanCache::new(&runtime));
        let (collector, nan_check) = (Collector::default(), AtomicBool::new(false));
        let keys = AtomicU64::new(u64::from(mix(0)) << 32);
        let tensors = TensorState { target, plans, collector, keys, nan_check };
        let name = name::next(&runtime.info().id);
        Self(Arc::new(Inner {
            runtime,
            name,
            tensors,
            #[cfg(feature = "events")]
            final_metrics: FinalMetrics::default(),
        }))
    }
}

impl From<Device> for kiln_device::Device {
    fn from(device: Device) -> Self {
        device.0.runtime.clone()
    }
}

/// Writes the id of the device. A device that was opened when the process had already opened one with this id has an ordinal: `cpu`, then
/// `cpu#2`. [`by_name`](Device::by_name) takes ids, not these names.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.name)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("id", &self.0.name).field("name", &self.info().name).finish()
    }
}
