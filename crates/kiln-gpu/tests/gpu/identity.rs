//! The description of a device.

use crate::support;
use kiln_device::{DeviceKind, NullDevice};
use kiln_gpu::GpuDevice;
use kiln_ir::ErrorKind;

/// Identity, limits, features and memory are reported, and the opened device is the listed one.
#[test]
fn an_opened_device_is_the_listed_one() {
    let Some(device) = support::open(kiln_gpu::GpuOptions::new()) else { return };
    let listed = kiln_gpu::list();
    assert_eq!(device.info(), &listed[0]);
    for (index, info) in listed.iter().enumerate() {
        assert_eq!(info.id, format!("gpu:{index}"));
        assert!(!info.name.is_empty() && !info.driver.is_empty() && !info.driver_version.is_empty(), "{info:?}");
        assert_eq!(info.fingerprint.len(), 32, "{info:?}");
        assert!(info.limits.max_buffer_bytes >= info.limits.max_binding_bytes, "{info:?}");
        assert!(info.limits.max_binding_bytes >= 1 << 20 && info.limits.max_workgroup_invocations >= 64, "{info:?}");
        assert!(info.memory.default_budget_bytes >= 64 << 20, "{info:?}");
        assert!(info.memory.total_bytes.is_none_or(|total| total > info.memory.default_budget_bytes), "{info:?}");
    }
    let software = listed.iter().map(|info| info.kind == DeviceKind::SoftwareGpu);
    assert!(software.is_sorted(), "software drivers are listed last: {listed:#?}");
}

#[test]
fn properties_agree_with_the_description() {
    let Some(device) = support::in_place() else { return };
    let (info, properties) = (device.info(), device.api().properties());
    assert_eq!(properties.max_block_bytes, info.limits.max_buffer_bytes);
    assert_eq!(properties.default_budget_bytes, info.memory.default_budget_bytes);
    assert!(info.memory.shared_with_host);
    assert!(!properties.divisible && properties.copy_alignment == 4);
    let Some(device) = support::staged() else { return };
    assert!(!device.info().memory.shared_with_host);
}

#[test]
fn wgpu_is_accessible_only_on_a_gpu() {
    let Some(device) = support::staged() else { return };
    let gpu = GpuDevice::of(&device).unwrap();
    assert_eq!(
        gpu.wgpu_device().limits().max_compute_workgroups_per_dimension,
        device.info().limits.max_workgroups_per_axis
    );
    let buffer = device.buffer(100).unwrap();
    let (raw, offset) = GpuDevice::wgpu_buffer(&buffer.slice(8..).unwrap()).unwrap();
    assert!(raw.size() >= 100 && offset == 8);
    let null = NullDevice::new().into_device().unwrap();
    assert!(GpuDevice::of(&null).is_none());
    let error = GpuDevice::wgpu_buffer(&null.buffer(4).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// The driver's byte count follows the allocations of the pool.
#[test]
fn the_driver_reports_its_bytes() {
    let Some(device) = support::open(kiln_gpu::GpuOptions::new()) else { return };
    let Some(before) = device.api().driver_bytes() else { return };
    let buffer = device.buffer(96 << 20).unwrap();
    let during = device.api().driver_bytes().unwrap();
    assert!(during >= before + (96 << 20), "{before} {during}");
    drop(buffer);
    device.pool().clear().unwrap();
    let after = device.api().driver_bytes().unwrap();
    assert!(after < during - (90 << 20), "{during} {after}");
}
