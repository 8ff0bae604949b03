//! A device once more, with other settings.

use kiln::{CpuOptions, Device, DeviceKind, HostAccess, PoolConfig, PoolOptions};
use kiln_bench::Fault;

/// The same device, opened anew with a pool of its own.
pub(super) fn reopen(device: &Device, pooling: bool, access: HostAccess) -> Result<Device, Fault> {
    let pool = PoolOptions::new().config(PoolConfig { pooling, ..PoolConfig::default() });
    if device.info().kind == DeviceKind::Cpu {
        let threads = device.info().limits.threads.unwrap_or(1) as usize;
        return Ok(Device::cpu_with(CpuOptions::new().threads(threads).pool(pool).host_access(access))?);
    }
    #[cfg(feature = "gpu")]
    {
        let index = device.info().id.strip_prefix("gpu:").and_then(|index| index.parse().ok());
        let index = index.ok_or_else(|| format!("expected a GPU by its number, found {}", device.info().id))?;
        Ok(Device::gpu_with(index, kiln::GpuOptions::new().pool(pool).host_access(access))?)
    }
    #[cfg(not(feature = "gpu"))]
    Err(format!("device {} expected support for GPUs, found none", device.info().id).into())
}
