//! Reopens a device with other settings.

use kiln::Device;
use kiln::device::CpuOptions;
use kiln::device::HostAccess;
use kiln::pool::{PoolConfig, PoolOptions};
use kiln_bench::Fault;

/// Returns the options of the CPU device with the same threads and SIMD level; `None` for a GPU.
pub(super) fn cpu_options(device: &Device) -> Option<CpuOptions> {
    let threads = device.info().limits.threads.unwrap_or(1) as usize;
    Some(CpuOptions::new().threads(threads).simd(device.simd_level()?))
}

/// Opens the same device again with its own pool.
pub(super) fn reopen(device: &Device, pooling: bool, access: HostAccess) -> Result<Device, Fault> {
    let pool = PoolOptions::new().config(PoolConfig { pooling, ..PoolConfig::default() });
    if let Some(options) = cpu_options(device) {
        return Ok(Device::cpu_with(options.pool(pool).host_access(access))?);
    }
    #[cfg(feature = "gpu")]
    {
        let index = device.info().id.strip_prefix("gpu:").and_then(|index| index.parse().ok());
        let index = index.ok_or_else(|| format!("expected a GPU id such as gpu:0, found {}", device.info().id))?;
        Ok(Device::gpu_with(index, kiln::device::GpuOptions::new().pool(pool).host_access(access))?)
    }
    #[cfg(not(feature = "gpu"))]
    Err(format!("device {} expected support for GPUs, found none", device.info().id).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::device::SimdLevel;

    /// `KILN_SIMD` applies to every arm of a claim.
    #[test]
    fn the_same_device_has_the_same_threads_and_vector_instructions() {
        for level in [SimdLevel::Scalar, SimdLevel::detect()] {
            let device = Device::cpu_with(CpuOptions::new().threads(3).simd(level)).unwrap();
            let again = reopen(&device, false, HostAccess::Staged).unwrap();
            assert_eq!(again.simd_level(), Some(level));
            assert_eq!(again.info().limits.threads, Some(3));
        }
    }
}
