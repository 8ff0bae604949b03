//! Opens devices: the default one, by kind, or by name.

use super::choice::{Choice, choose_from};
use super::gpus;
use crate::Device;
use crate::cache::default_disk;
use kiln_cpu::CpuOptions;
use kiln_device::{DeviceInfo, KernelCacheOptions};
use kiln_ir::{Error, ErrorKind, Result};

impl Device {
    /// Lists every device of this machine without opening one: the CPU device, then the GPUs, best first.
    ///
    /// Querying the GPU drivers takes up to a few tenths of a second.
    ///
    /// See [`Device`] for an example.
    pub fn list() -> Vec<DeviceInfo> {
        with_cpu(gpus::probe().unwrap_or_default())
    }

    /// Opens the default device: a hardware GPU if one can be opened, otherwise the CPU device.
    ///
    /// A software GPU (llvmpipe, SwiftShader, WARP) is slower than the CPU device and is opened only by
    /// [index](Self::gpu) or [name](Self::by_name). [`choose`](Self::choose) also returns the reason for the choice.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let device = kiln::Device::best()?;
    /// println!("{} ({})", device.info().name, device.info().kind);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`cpu`](Self::cpu).
    pub fn best() -> Result<Self> {
        Ok(Self::choose()?.device)
    }

    /// Opens the default device as [`best`](Self::best) does, and returns why it was chosen and the others were not.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let choice = kiln::Device::choose()?;
    /// println!("{}: {}", choice.device.info().id, choice.reason);
    /// for rejection in &choice.rejected {
    ///     println!("not {}: {}", rejection.id, rejection.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`cpu`](Self::cpu).
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

    /// Opens the CPU device with one thread per core. It needs no driver. Compiled kernels are stored between runs in
    /// [`kernel_cache_dir`](crate::cache::kernel_cache_dir).
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let device = kiln::Device::cpu()?;
    /// assert_eq!(device.info().id, "cpu");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the system error if memory or threads cannot be allocated.
    pub fn cpu() -> Result<Self> {
        Self::cpu_with(CpuOptions::new())
    }

    /// Opens the CPU device with these settings. Compiled kernels are stored in
    /// [`kernel_cache_dir`](crate::cache::kernel_cache_dir) unless the settings name another directory or none.
    ///
    /// See [`device`](crate::device) for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the settings contradict each other. Otherwise same as [`cpu`](Self::cpu).
    pub fn cpu_with(options: CpuOptions) -> Result<Self> {
        kiln_cpu::open(options.or_disk(default_disk)).map(Self::from)
    }

    /// Opens a CPU device that checks WGSL kernels while they run and collects errors such as data races for
    /// [`take_findings`](Self::take_findings). It is slow and meant for debugging: see [`CpuOptions::sanitized`].
    ///
    /// See `Device::take_findings` for an example.
    ///
    /// # Errors
    /// Same as [`cpu`](Self::cpu).
    pub fn sanitized() -> Result<Self> {
        Self::cpu_with(CpuOptions::new().sanitized(true))
    }

    /// Opens the GPU with this index among the GPUs of [`list`](Self::list), software GPUs included. Compiled kernels
    /// are stored between runs in [`kernel_cache_dir`](crate::cache::kernel_cache_dir).
    ///
    /// ```no_run
    /// # fn main() -> kiln::Result<()> {
    /// let device = kiln::Device::gpu(0)?;
    /// println!("{}", device.info().name);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Unsupported` if the GPU does not exist, its driver fails to open it, or the feature `gpu` of this
    /// crate is off.
    pub fn gpu(index: usize) -> Result<Self> {
        gpus::open(index, KernelCacheOptions::new()).map(Self::from)
    }

    /// Opens a GPU with these settings. Compiled kernels are stored in
    /// [`kernel_cache_dir`](crate::cache::kernel_cache_dir) unless the settings name another directory or none.
    ///
    /// ```no_run
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::cache::KernelCacheOptions;
    /// use kiln::device::GpuOptions;
    ///
    /// let options = GpuOptions::new().kernels(KernelCacheOptions::new().without_disk());
    /// let device = kiln::Device::gpu_with(0, options)?;
    /// println!("{}", device.info().name);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`gpu`](Self::gpu), and `InvalidArgument` if the settings contradict each other.
    #[cfg(feature = "gpu")]
    pub fn gpu_with(index: usize, options: kiln_gpu::GpuOptions) -> Result<Self> {
        kiln_gpu::open(index, options.or_disk(default_disk)).map(Self::from)
    }

    /// Opens the device with this name: `cpu`, `gpu` for the first GPU, `gpu:1` for the GPU with index 1. These are the ids
    /// of [`list`](Self::list), for settings and command lines.
    ///
    /// See [`Device`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` with a list of the valid names if the name is malformed or the GPU does not exist.
    /// Otherwise same as [`cpu`](Self::cpu) and [`gpu`](Self::gpu).
    pub fn by_name(name: &str) -> Result<Self> {
        Self::by_name_with(name, KernelCacheOptions::new())
    }

    /// Opens the device with this name and these kernel cache settings.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// use kiln::cache::KernelCacheOptions;
    ///
    /// let device = kiln::Device::by_name_with("cpu", KernelCacheOptions::new().without_disk())?;
    /// assert!(device.kernel_store().is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`by_name`](Self::by_name), and `InvalidArgument` if the settings contradict each other.
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
                // Each device has exactly one spelling: `gpu:+1` and `gpu:01` are rejected.
                let index: usize = digits.parse().ok().filter(|index: &usize| index.to_string() == digits)?;
                Some(Self::Gpu(index))
            }
        }
    }
}

/// Reports an index past the last GPU as an invalid name. Without any GPU, the driver's message is more
/// useful and is kept.
fn explain(error: Error, name: &str, index: usize, listed: &[DeviceInfo]) -> Error {
    // The list contains the CPU device. Without any GPU the error of the driver says more than the list of devices.
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
