//! How a device is found: by a list, by a name, or the best one.

#[cfg(feature = "gpu")]
use crate::cache_dir;
use crate::choice::{Choice, choose_from};
use crate::gpus;
use kiln_cpu::CpuOptions;
use kiln_ir::{Error, ErrorKind, Result};
use kiln_runtime::{DeviceInfo, KernelCacheOptions};
use std::fmt;
use std::ops::Deref;

/// A device with its memory pool, and how to get one. Clones are the same device.
///
/// What it can do is in [`kiln_runtime::Device`], which this dereferences to. Each call that opens a device opens
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
pub struct Device(kiln_runtime::Device);

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

    /// The CPU device, with a thread for each core. It needs no driver.
    ///
    /// # Errors
    /// That of the system, where it gives no memory or no threads.
    pub fn cpu() -> Result<Self> {
        Self::cpu_with(CpuOptions::new())
    }

    /// The CPU device with settings of one's own.
    ///
    /// # Errors
    /// `InvalidArgument` where the settings contradict each other; otherwise as [`cpu`](Self::cpu).
    pub fn cpu_with(options: CpuOptions) -> Result<Self> {
        kiln_cpu::open(options).map(Self)
    }

    /// The GPU with this place among the GPUs of [`list`](Self::list), a software GPU too. Compiled kernels are kept between
    /// runs, in [`kernel_cache_dir`](crate::kernel_cache_dir).
    ///
    /// # Errors
    /// `Unsupported` where there is no such GPU, where its driver refuses to open it, or where the feature `gpu` of this
    /// crate is off.
    pub fn gpu(index: usize) -> Result<Self> {
        gpus::open(index, KernelCacheOptions::new()).map(Self)
    }

    /// A GPU with settings of one's own. Kernels are kept in [`kernel_cache_dir`](crate::kernel_cache_dir) where the settings
    /// do not say otherwise.
    ///
    /// # Errors
    /// As [`gpu`](Self::gpu), and `InvalidArgument` where the settings contradict each other.
    #[cfg(feature = "gpu")]
    pub fn gpu_with(index: usize, options: kiln_gpu::GpuOptions) -> Result<Self> {
        kiln_gpu::open(index, options.or_disk(cache_dir::default_disk)).map(Self)
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

    /// The device with this name, with a kernel cache of one's own settings. The CPU device runs no kernels in WGSL yet, and
    /// has no use for them.
    ///
    /// # Errors
    /// As [`by_name`](Self::by_name), and `InvalidArgument` where the settings contradict each other.
    pub fn by_name_with(name: &str, kernels: KernelCacheOptions) -> Result<Self> {
        match Name::parse(name) {
            Some(Name::Cpu) => Self::cpu(),
            Some(Name::Gpu(index)) => {
                let opened = gpus::open(index, kernels).map(Self);
                opened.map_err(|error| explain(error, name, index, &Self::list()))
            }
            None => Err(unknown(name, &Self::list())),
        }
    }
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
    type Target = kiln_runtime::Device;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<kiln_runtime::Device> for Device {
    fn from(device: kiln_runtime::Device) -> Self {
        Self(device)
    }
}

impl From<Device> for kiln_runtime::Device {
    fn from(device: Device) -> Self {
        device.0
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
