//! How a device is found: by a list, by a name, or the best one.

use crate::cache_dir;
use crate::choice::{Choice, choose_from};
use crate::gpus;
#[cfg(feature = "events")]
use crate::metrics::LastWords;
use crate::tensor::run::{Collector, PlanCache};
use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{DeviceInfo, KernelCacheOptions};
use kiln_ir::plan::Target;
use kiln_ir::{Error, ErrorKind, Result};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(feature = "events")]
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A device with its memory pool, and how to get one. Clones are the same device.
///
/// What it can do is in [`kiln_device::Device`], which this dereferences to. Each call that opens a device opens
/// another one, with a pool of its own: open once and clone.
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
    tensors: TensorState,
    #[cfg(feature = "events")]
    last_words: LastWords,
}

#[cfg(feature = "events")]
impl Drop for Inner {
    fn drop(&mut self) {
        self.last_words.say(&self.runtime);
    }
}

/// A device that somebody else may hold.
#[cfg(feature = "events")]
pub(crate) struct WeakDevice(Weak<Inner>);

#[cfg(feature = "events")]
impl WeakDevice {
    pub(crate) fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(Device)
    }

    pub(crate) fn is_of(&self, device: &Device) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&device.0))
    }
}

/// What the tensors of a device share.
pub(crate) struct TensorState {
    /// What plans for the device must respect.
    target: Target,
    pub(crate) plans: PlanCache,
    pub(crate) collector: Collector,
    /// How many keys of random tensors were taken, in the lower half, and the seed of all, mixed, in the upper.
    keys: AtomicU64,
    /// Whether each op's result is searched for NaN and infinities.
    tripwire: AtomicBool,
}

impl Device {
    /// Every device of this machine, without opening one: the CPU device, then the GPUs, the best first.
    ///
    /// Asking the GPU drivers takes time, up to a few tenths of a second.
    pub fn list() -> Vec<DeviceInfo> {
        with_cpu(gpus::probe().unwrap_or_default())
    }

    /// The default device: a real GPU where one can be opened, otherwise the CPU device.
    ///
    /// A software GPU (llvmpipe, SwiftShader, WARP) is slower than the CPU device and serves only when asked for by
    /// [index](Self::gpu) or [name](Self::by_name). [`choose`](Self::choose) says why it is which device.
    ///
    /// # Errors
    /// As [`cpu`](Self::cpu).
    pub fn best() -> Result<Self> {
        Ok(Self::choose()?.device)
    }

    /// The default device as [`best`](Self::best) finds it, with the reason, and why it is none of the others.
    ///
    /// # Errors
    /// As [`cpu`](Self::cpu).
    pub fn choose() -> Result<Choice> {
        let found = gpus::probe();
        let no_gpu = match &found {
            Ok(_) => "no GPU was found".to_string(),
            Err(error) => format!("no GPU was found: {error}"),
        };
        let listed = with_cpu(found.unwrap_or_default());
        let selection = choose_from(&listed, &no_gpu, |info| Self::by_name(&info.id))?;
        Ok(Choice { device: selection.device, reason: selection.reason, rejected: selection.rejected })
    }

    /// The CPU device, with a thread for each core. It needs no driver. Compiled kernels are kept between runs, in
    /// [`kernel_cache_dir`](crate::kernel_cache_dir).
    ///
    /// # Errors
    /// That of the system, where it gives no memory or no threads.
    pub fn cpu() -> Result<Self> {
        Self::cpu_with(CpuOptions::new())
    }

    /// The CPU device with settings of one's own. Kernels are kept in [`kernel_cache_dir`](crate::kernel_cache_dir) where the
    /// settings do not say otherwise.
    ///
    /// # Errors
    /// `InvalidArgument` where the settings contradict each other; otherwise as [`cpu`](Self::cpu).
    pub fn cpu_with(options: CpuOptions) -> Result<Self> {
        kiln_cpu::open(options.or_disk(cache_dir::default_disk)).map(Self::from)
    }

    /// The CPU device, which watches kernels in WGSL while they run, and keeps what is wrong with them for
    /// [`take_findings`](Self::take_findings). This is for debugging: see [`CpuOptions::sanitized`].
    ///
    /// # Errors
    /// As [`cpu`](Self::cpu).
    pub fn sanitized() -> Result<Self> {
        Self::cpu_with(CpuOptions::new().sanitized(true))
    }

    /// The GPU with this place among the GPUs of [`list`](Self::list), a software GPU too. Compiled kernels are kept between
    /// runs, in [`kernel_cache_dir`](crate::kernel_cache_dir).
    ///
    /// # Errors
    /// `Unsupported` where there is no such GPU, where its driver refuses to open it, or where the feature `gpu` of this
    /// crate is off.
    pub fn gpu(index: usize) -> Result<Self> {
        gpus::open(index, KernelCacheOptions::new()).map(Self::from)
    }

    /// A GPU with settings of one's own. Kernels are kept in [`kernel_cache_dir`](crate::kernel_cache_dir) where the settings
    /// do not say otherwise.
    ///
    /// # Errors
    /// As [`gpu`](Self::gpu), and `InvalidArgument` where the settings contradict each other.
    #[cfg(feature = "gpu")]
    pub fn gpu_with(index: usize, options: kiln_gpu::GpuOptions) -> Result<Self> {
        kiln_gpu::open(index, options.or_disk(cache_dir::default_disk)).map(Self::from)
    }

    /// The device with this name: `cpu`, `gpu` for the first GPU, `gpu:1` for the one with index 1. These are the ids
    /// of [`list`](Self::list), made for settings and command lines.
    ///
    /// # Errors
    /// `InvalidArgument` where the name is none of these or that GPU is not there, with the names that would do;
    /// otherwise as [`cpu`](Self::cpu) and [`gpu`](Self::gpu).
    pub fn by_name(name: &str) -> Result<Self> {
        Self::by_name_with(name, KernelCacheOptions::new())
    }

    /// The device with this name, with a kernel cache of one's own settings.
    ///
    /// # Errors
    /// As [`by_name`](Self::by_name), and `InvalidArgument` where the settings contradict each other.
    pub fn by_name_with(name: &str, kernels: KernelCacheOptions) -> Result<Self> {
        match Name::parse(name) {
            Some(Name::Cpu) => Self::cpu_with(CpuOptions::new().kernels(kernels)),
            Some(Name::Gpu(index)) => {
                let opened = gpus::open(index, kernels).map(Self::from);
                opened.map_err(|error| explain(error, name, index, &Self::list()))
            }
            None => Err(unknown(name, &Self::list())),
        }
    }
}

impl Device {
    /// Whether both handles are of one device, as clones are: tensors of one device can meet.
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

    /// The vector instructions that the CPU device uses; `None` of any other.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::{CpuOptions, Device, SimdLevel};
    ///
    /// let device = Device::cpu_with(CpuOptions::new().simd(SimdLevel::Scalar))?;
    /// assert_eq!(device.simd_level(), Some(SimdLevel::Scalar));
    /// # Ok(())
    /// # }
    /// ```
    pub fn simd_level(&self) -> Option<SimdLevel> {
        kiln_cpu::simd_level(&self.0.runtime)
    }

    /// Takes what a [sanitized](Self::sanitized) device found since the last time; nothing of any other.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::{Device, FindingKind, KernelSource};
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

    /// Begins the sequence of random tensors anew: those made from here on are the same after the same seed. On another device they are made
    /// of the same random bits, and differ by no more than the functions that are applied to them. Without a call, the seed is 0.
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
        self.0.tensors.keys.store(u64::from(mix(seed)) << 32, Ordering::Relaxed);
    }

    /// The key of the next random tensor.
    pub(crate) fn next_key(&self) -> u32 {
        mix(self.0.tensors.keys.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes every op search its result for NaN and infinities, and [`Tensor::eval`](crate::Tensor::eval) return an `InvalidArgument` that
    /// names the op which first made one of finite elements. Ops run one by one then, and wait for each other: this is for debugging.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// device.set_tripwire(true);
    /// let x = kiln::Tensor::from_slice(&[1.0f32, 0.0], 2, &device)?.log()?.mul_scalar(2.0)?;
    /// assert!(x.eval().unwrap_err().to_string().contains("`log`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_tripwire(&self, on: bool) {
        self.0.tensors.tripwire.store(on, Ordering::Relaxed);
    }

    pub(crate) fn has_tripwire(&self) -> bool {
        self.0.tensors.tripwire.load(Ordering::Relaxed)
    }

    #[cfg(feature = "events")]
    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.0))
    }

    #[cfg(feature = "events")]
    pub(crate) fn last_words(&self) -> &LastWords {
        &self.0.last_words
    }

    /// What plans for the device must respect.
    pub(crate) fn target(&self) -> &Target {
        &self.0.tensors.target
    }

    pub(crate) fn tensors(&self) -> &TensorState {
        &self.0.tensors
    }

    /// What the cache of plans did so far: hits are computations that were planned before, with the same shapes.
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

/// Well-mixed bits of a number: neighbours give unrelated keys.
pub(crate) fn mix(number: u64) -> u32 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 32) as u32
}

fn with_cpu(gpus: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
    std::iter::once(kiln_cpu::info()).chain(gpus).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Name {
    Cpu,
    Gpu(usize),
}

impl Name {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "cpu" => Some(Self::Cpu),
            "gpu" => Some(Self::Gpu(0)),
            _ => {
                let digits = name.strip_prefix("gpu:")?;
                // One spelling for each device: neither `gpu:+1` nor `gpu:01`.
                let index: usize = digits.parse().ok().filter(|index: &usize| index.to_string() == digits)?;
                Some(Self::Gpu(index))
            }
        }
    }
}

/// A GPU beyond the last one is a wrong name; where there is no GPU at all, the driver's own words help more.
fn explain(error: Error, name: &str, index: usize, listed: &[DeviceInfo]) -> Error {
    let gpus = listed.len().saturating_sub(1);
    if gpus > 0 && index >= gpus { unknown(name, listed).with_source(error) } else { error }
}

fn unknown(name: &str, listed: &[DeviceInfo]) -> Error {
    let found: Vec<String> = listed.iter().map(|info| format!("`{}` ({})", info.id, info.name)).collect();
    let message = format!(
        "expected the name of a device, `cpu`, `gpu` or `gpu:N`, found `{name}`; this machine has {}",
        found.join(", ")
    );
    Error::new(ErrorKind::InvalidArgument, message)
}

impl Deref for Device {
    type Target = kiln_device::Device;

    fn deref(&self) -> &Self::Target {
        &self.0.runtime
    }
}

impl From<kiln_device::Device> for Device {
    fn from(runtime: kiln_device::Device) -> Self {
        let (target, plans) = (runtime.api().target(), PlanCache::new(&runtime));
        let (collector, tripwire) = (Collector::default(), AtomicBool::new(false));
        let keys = AtomicU64::new(u64::from(mix(0)) << 32);
        let tensors = TensorState { target, plans, collector, keys, tripwire };
        Self(Arc::new(Inner {
            runtime,
            tensors,
            #[cfg(feature = "events")]
            last_words: LastWords::default(),
        }))
    }
}

impl From<Device> for kiln_device::Device {
    fn from(device: Device) -> Self {
        device.0.runtime.clone()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.runtime.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling_each() {
        let table = [
            ("cpu", Some(Name::Cpu)),
            ("gpu", Some(Name::Gpu(0))),
            ("gpu:0", Some(Name::Gpu(0))),
            ("gpu:12", Some(Name::Gpu(12))),
            ("", None),
            ("CPU", None),
            ("cpu:0", None),
            ("gpu:", None),
            ("gpu:+1", None),
            ("gpu:01", None),
            ("gpu:-1", None),
            ("gpu:1 ", None),
            ("gpu:99999999999999999999", None),
            ("null", None),
        ];
        for (name, expected) in table {
            assert_eq!(Name::parse(name), expected, "{name}");
        }
    }
}
