//! The memory size of an adapter, and the part of it that a pool may reserve by default.

use crate::options::shares_memory;
use kiln_device::DeviceKind;

/// The default budget if neither the driver nor the system reports a memory size.
const UNKNOWN_BUDGET_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) total_bytes: Option<u64>,
    pub(crate) budget_bytes: u64,
}

impl Capacity {
    /// Queries the memory size: of the system for an adapter that works in system memory, otherwise of the driver.
    ///
    /// In the first case the driver's own report is misleading: llvmpipe always reports 2 GiB, and an integrated GPU
    /// often reports the few MiB that the firmware reserved.
    pub(crate) fn of(adapter: &wgpu::Adapter, kind: DeviceKind) -> Self {
        let total_bytes = if shares_memory(kind) { kiln_device::memory_bytes() } else { device_local_bytes(adapter) };
        Self { total_bytes, budget_bytes: budget(total_bytes, shares_memory(kind)) }
    }
}

/// Returns the default budget: half of memory that is shared with the host, four fifths of dedicated memory.
fn budget(total_bytes: Option<u64>, shared: bool) -> u64 {
    match total_bytes {
        Some(total) if shared => total / 2,
        Some(total) => total / 5 * 4,
        None => UNKNOWN_BUDGET_BYTES,
    }
}

/// Returns the size of the largest device-local heap on Vulkan, or the dedicated memory on DX12.
fn device_local_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    vulkan_bytes(adapter).or_else(|| dx12_bytes(adapter)).filter(|bytes| *bytes > 0)
}

#[cfg(not(target_vendor = "apple"))]
fn vulkan_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the handle is used for one query only, and not destroyed.
    let vulkan = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = vulkan.shared_instance().raw_instance();
    // SAFETY: `vulkan` keeps its instance alive, and the physical device belongs to that instance.
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
    // SAFETY: the handle is used for one query only, and not destroyed.
    let dx12 = unsafe { adapter.as_hal::<wgpu::hal::api::Dx12>() }?;
    // SAFETY: the interface lives as long as `dx12`.
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
    fn shared_memory_has_a_smaller_default_budget() {
        assert_eq!(budget(Some(1000), true), 500);
        assert_eq!(budget(Some(1000), false), 800);
        assert_eq!(budget(None, true), UNKNOWN_BUDGET_BYTES);
        assert_eq!(budget(None, false), UNKNOWN_BUDGET_BYTES);
    }

    /// Every Vulkan driver, software drivers included, has a device-local heap.
    #[test]
    fn vulkan_reports_a_memory_size() {
        let adapters = crate::adapter::find().unwrap_or_default();
        for adapter in adapters.iter().filter(|adapter| adapter.get_info().backend == wgpu::Backend::Vulkan) {
            assert!(device_local_bytes(adapter).is_some_and(|bytes| bytes > 64 << 20), "{:?}", adapter.get_info());
        }
    }

    #[test]
    fn the_system_reports_a_memory_size() {
        assert!(kiln_device::memory_bytes().is_some_and(|bytes| bytes > 64 << 20));
    }
}
