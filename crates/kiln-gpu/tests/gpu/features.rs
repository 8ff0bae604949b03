//! The device works without each of its optional features.

use crate::support::{self, pattern};
use kiln_device::{Device, Feature};
use kiln_gpu::{GpuDevice, GpuOptions};

fn check(device: &Device) {
    let bytes = pattern(11, 333);
    let from = device.buffer_from(&bytes).unwrap();
    let to = device.buffer_of::<u8>(333).unwrap();
    from.copy_to(&to).unwrap();
    assert_eq!(to.read().unwrap(), bytes);
    assert_eq!(support::block_on(to.slice(1..).unwrap().read_async().unwrap()).unwrap(), bytes[1..]);
    to.zero().unwrap();
    assert_eq!(to.read().unwrap(), [0; 333]);
}

#[test]
fn a_device_works_without_each_feature_and_without_all() {
    let Some(full) = support::in_place() else { return };
    let features = &full.info().features;
    let mut none = GpuOptions::new();
    for feature in features {
        none = none.without(*feature);
        let device = kiln_gpu::open(0, GpuOptions::new().without(*feature)).unwrap();
        let mut expected = features.clone();
        expected.remove(feature);
        assert_eq!(device.info().features, expected, "without {feature}");
        assert_ne!(device.info().fingerprint, full.info().fingerprint, "without {feature}");
        assert_eq!(device.info().limits.subgroup_size.is_some(), expected.contains(&Feature::Subgroups));
        check(&device);
    }
    let device = kiln_gpu::open(0, none).unwrap();
    assert!(device.info().features.is_empty());
    assert!(GpuDevice::of(&device).unwrap().wgpu_device().features().is_empty());
    check(&device);
}
