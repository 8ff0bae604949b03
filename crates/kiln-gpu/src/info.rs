//! Describes an adapter as [`DeviceInfo`], with a fingerprint that is stable across processes.

use crate::capacity::Capacity;
use crate::options::kiln_features;
use kiln_device::{DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, Feature, Usage, fingerprint};

/// Describes adapter `index`, opened with `features` and `limits`.
pub(crate) fn describe(
    index: usize,
    adapter: &wgpu::AdapterInfo,
    features: wgpu::Features,
    limits: &wgpu::Limits,
    capacity: Capacity,
    default_usage: Usage,
) -> DeviceInfo {
    let names = kiln_features(features);
    let subgroups = names.contains(&Feature::Subgroups);
    DeviceInfo {
        id: format!("gpu:{index}"),
        name: adapter.name.clone(),
        kind: kind(adapter.device_type),
        driver: format!("{} {}", adapter.backend, adapter.driver).trim_end().to_string(),
        driver_version: driver_version(adapter),
        compiler: None,
        fingerprint: identify(adapter, features, limits),
        limits: DeviceLimits {
            max_buffer_bytes: max_block_bytes(limits),
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            binding_alignment_bytes: limits.min_storage_buffer_offset_alignment.into(),
            max_workgroups_per_axis: limits.max_compute_workgroups_per_dimension,
            max_value_bytes: limits.max_uniform_buffer_binding_size,
            max_workgroup_size: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            subgroup_size: subgroups.then_some((adapter.subgroup_min_size, adapter.subgroup_max_size)),
            threads: None,
        },
        features: names,
        memory: DeviceMemory {
            total_bytes: capacity.total_bytes,
            default_budget_bytes: capacity.budget_bytes,
            shared_with_host: default_usage == Usage::Shared,
        },
    }
}

pub(crate) fn kind(device_type: wgpu::DeviceType) -> DeviceKind {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::DiscreteGpu,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        wgpu::DeviceType::VirtualGpu => DeviceKind::VirtualGpu,
        wgpu::DeviceType::Cpu => DeviceKind::SoftwareGpu,
        wgpu::DeviceType::Other => DeviceKind::OtherGpu,
    }
}

/// Returns the size of the largest buffer: the adapter's limit, rounded down to whole words, because no copy or map
/// reaches a partial word.
pub(crate) fn max_block_bytes(limits: &wgpu::Limits) -> u64 {
    limits.max_buffer_size / wgpu::COPY_BUFFER_ALIGNMENT * wgpu::COPY_BUFFER_ALIGNMENT
}

/// Returns the version that the driver reports, or the version of the system for Metal, whose driver is part of it.
fn driver_version(adapter: &wgpu::AdapterInfo) -> String {
    if !adapter.driver_info.is_empty() {
        return adapter.driver_info.clone();
    }
    #[cfg(target_vendor = "apple")]
    let version = sysinfo::System::os_version().ok();
    #[cfg(not(target_vendor = "apple"))]
    let version: Option<String> = None;
    format!("{} {}", std::env::consts::OS, version.as_deref().unwrap_or("unknown"))
}

/// Returns the fingerprint: a hash of all adapter properties that can change the code compiled for it.
fn identify(adapter: &wgpu::AdapterInfo, features: wgpu::Features, limits: &wgpu::Limits) -> String {
    let ids = format!("{:04x} {:04x}", adapter.vendor, adapter.device);
    let features = kiln_features(features).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let limits = [
        limits.max_storage_buffer_binding_size,
        limits.max_uniform_buffer_binding_size,
        limits.max_storage_buffers_per_shader_stage.into(),
        limits.min_storage_buffer_offset_alignment.into(),
        limits.max_compute_workgroup_storage_size.into(),
        limits.max_compute_invocations_per_workgroup.into(),
        limits.max_compute_workgroup_size_x.into(),
        limits.max_compute_workgroup_size_y.into(),
        limits.max_compute_workgroup_size_z.into(),
        limits.max_compute_workgroups_per_dimension.into(),
        limits.max_immediate_size.into(),
        adapter.subgroup_min_size.into(),
        adapter.subgroup_max_size.into(),
    ];
    fingerprint(&[
        &adapter.backend.to_string(),
        &ids,
        &adapter.name,
        &adapter.driver,
        &driver_version(adapter),
        &features,
        &format!("{limits:?}"),
        // Compiled pipelines also depend on the system.
        std::env::consts::OS,
        std::env::consts::ARCH,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_adapter() -> wgpu::AdapterInfo {
        let mut adapter = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan);
        adapter.name = "toy".to_string();
        adapter.driver = "toyvk".to_string();
        adapter.driver_info = "1.2".to_string();
        adapter
    }

    /// Every property that can change the code changes the fingerprint.
    #[test]
    fn every_property_changes_the_fingerprint() {
        let features = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP;
        let limits = wgpu::Limits::default();
        let base = identify(&test_adapter(), features, &limits);
        assert_eq!(base, identify(&test_adapter(), features, &limits));
        let adapters: [fn(&mut wgpu::AdapterInfo); 8] = [
            |a| a.name.push('2'),
            |a| a.driver.push('2'),
            |a| a.driver_info.push('2'),
            |a| a.vendor += 1,
            |a| a.device += 1,
            |a| a.backend = wgpu::Backend::Dx12,
            |a| a.subgroup_min_size += 1,
            |a| a.subgroup_max_size += 1,
        ];
        for (number, change) in adapters.iter().enumerate() {
            let mut other = test_adapter();
            change(&mut other);
            assert_ne!(identify(&other, features, &limits), base, "change {number}");
        }
        assert_ne!(identify(&test_adapter(), wgpu::Features::SHADER_F16, &limits), base);
        let small = wgpu::Limits { max_compute_workgroup_storage_size: 1, ..limits };
        assert_ne!(identify(&test_adapter(), features, &small), base);
    }

    #[test]
    fn describe_converts_adapter_properties() {
        let capacity = Capacity { total_bytes: Some(10), budget_bytes: 8 };
        let limits = wgpu::Limits { max_buffer_size: 1023, ..wgpu::Limits::default() };
        let info = describe(3, &test_adapter(), wgpu::Features::SHADER_F16, &limits, capacity, Usage::Storage);
        assert_eq!((info.id.as_str(), info.name.as_str(), info.kind), ("gpu:3", "toy", DeviceKind::DiscreteGpu));
        assert_eq!((info.driver.as_str(), info.driver_version.as_str()), ("vulkan toyvk", "1.2"));
        assert_eq!(info.features.into_iter().collect::<Vec<_>>(), [Feature::ShaderF16]);
        assert_eq!((info.limits.max_buffer_bytes, info.limits.subgroup_size), (1020, None));
        assert_eq!((info.memory.default_budget_bytes, info.memory.shared_with_host), (8, false));
    }

    /// Metal reports neither driver nor version; the version of the system is used.
    #[test]
    fn a_missing_driver_version_is_the_system_version() {
        let mut adapter = test_adapter();
        (adapter.driver, adapter.driver_info) = (String::new(), String::new());
        let limits = wgpu::Limits::default();
        let capacity = Capacity { total_bytes: None, budget_bytes: 1 };
        let info = describe(0, &adapter, wgpu::Features::empty(), &limits, capacity, Usage::Shared);
        assert_eq!(info.driver, "vulkan");
        assert!(info.driver_version.starts_with(std::env::consts::OS), "{}", info.driver_version);
        assert!(info.memory.shared_with_host);
    }
}
