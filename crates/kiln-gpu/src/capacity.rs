//! How much memory an adapter has, and how much of it a pool may reserve by default.

use crate::options::shares_memory;
use kiln_device::DeviceKind;

/// What a pool may reserve where neither driver nor system tells how much there is.
const UNKNOWN_BUDGET_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) total_bytes: Option<u64>,
    pub(crate) budget_bytes: u64,
}

impl Capacity {
    /// Asks the system where the adapter works in the system's memory, otherwise the driver.
    ///
    /// What drivers call their own does not count in the first case: llvmpipe always says 2 GiB, an integrated GPU often
    /// names the few MiB that the firmware set aside.
    pub(crate) fn of(adapter: &wgpu::Adapter, kind: DeviceKind) -> Self {
        let total_bytes = if shares_memory(kind) { kiln_device::memory_bytes() } else { device_local_bytes(adapter) };
        Self { total_bytes, budget_bytes: budget(total_bytes, shares_memory(kind)) }
    }
}

/// Half of memory that the host needs as well, four fifths of memory of the device alone.
fn budget(total_bytes: Option<u64>, shared: bool) -> u64 {
    match total_bytes {
        Some(total) if shared => total / 2,
        Some(total) => total / 5 * 4,
        None => UNKNOWN_BUDGET_BYTES,
    }
}

/// The largest heap that Vulkan calls local to the device, or the dedicated memory that DX12 reports.
fn device_local_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    vulkan_bytes(adapter).or_else(|| dx12_bytes(adapter)).filter(|bytes| *bytes > 0)
}

#[cfg(not(target_vendor = "apple"))]
fn vulkan_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the handle is used for one query and destroyed by nobody.
    let vulkan = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = vulkan.shared_instance().raw_instance();
    // SAFETY: `vulkan` keeps its instance alive, and the physical device is one of that instance.
    let properties = unsafe { instance.get_physical_device_memory_properties(vulkan.raw_physical_device()) };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    heaps.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
}

#[cfg(target_vendor = "apple")]
fn vulkan_bytes(_: &wgpu::Adapter) -> Option<u64> {
    None
}

#[cfg(windows)]
fn dx12_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the handle is used for one query and destroyed by nobody.
    let dx12 = unsafe { adapter.as_hal::<wgpu::hal::api::Dx12>() }?;
    // SAFETY: the interface is alive as long as `dx12`.
    let description = unsafe { dx12.raw_adapter().GetDesc() }.ok()?;
    u64::try_from(description.DedicatedVideoMemory).ok()
}

#[cfg(not(windows))]
fn dx12_bytes(_: &wgpu::Adapter) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_leaves_room_for_the_host_where_it_shares_the_memory() {
        assert_eq!(budget(Some(1000), true), 500);
        assert_eq!(budget(Some(1000), false), 800);
        assert_eq!(budget(None, true), UNKNOWN_BUDGET_BYTES);
        assert_eq!(budget(None, false), UNKNOWN_BUDGET_BYTES);
    }

    /// Every Vulkan driver has a heap that it calls local, software drivers included.
    #[test]
    fn a_vulkan_driver_tells_its_memory() {
        let adapters = crate::adapter::find().unwrap_or_default();
        for adapter in adapters.iter().filter(|adapter| adapter.get_info().backend == wgpu::Backend::Vulkan) {
            assert!(device_local_bytes(adapter).is_some_and(|bytes| bytes > 64 << 20), "{:?}", adapter.get_info());
        }
    }

    #[test]
    fn the_system_tells_its_memory() {
        assert!(kiln_device::memory_bytes().is_some_and(|bytes| bytes > 64 << 20));
    }
}
