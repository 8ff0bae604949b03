//! Devices of the machine that the tests run on.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use kiln::device::CpuOptions;
use kiln::nn::Parameter;
use kiln::{DType, Device, DeviceKind, ErrorKind, Tensor};

fn check_round_trip(device: &Device) {
    let data: Vec<u32> = (0..1000).map(|i| i * i).collect();
    assert_eq!(device.buffer_from(&data).unwrap().read().unwrap(), data, "{device:?}");
}

/// The CPU device is listed first; every listed device opens by its id and matches its listed information.
#[test]
fn listed_devices_open_by_their_ids() {
    let listed = Device::list();
    assert_eq!((listed[0].id.as_str(), listed[0].kind), ("cpu", DeviceKind::Cpu));
    for (index, info) in listed.iter().skip(1).enumerate() {
        assert_eq!(info.id, format!("gpu:{index}"));
        assert_ne!(info.kind, DeviceKind::Cpu);
    }
    for info in &listed {
        let device = Device::by_name(&info.id).unwrap();
        assert_eq!(device.info(), info);
        check_round_trip(&device);
    }
}

/// A software GPU is never the default, and opens when requested by name.
#[test]
fn best_is_the_device_that_choose_explains() {
    let listed = Device::list();
    let choice = Device::choose().unwrap();
    let best = Device::best().unwrap();
    assert_eq!(best.info(), choice.device.info());
    let has_real_gpu = listed.iter().any(|info| info.kind.is_real_gpu());
    assert_eq!(best.info().kind == DeviceKind::Cpu, !has_real_gpu, "{choice:?}");
    let mut ids: Vec<&str> = choice.rejected.iter().map(|rejection| rejection.id.as_str()).collect();
    ids.push(&best.info().id);
    ids.sort_unstable();
    let mut expected: Vec<&str> = listed.iter().map(|info| info.id.as_str()).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    check_round_trip(&best);
}

#[test]
fn unknown_device_names_are_errors_that_list_the_valid_ones() {
    for name in ["tpu", "gpu:999", "", "gpu:01"] {
        let error = Device::by_name(name).unwrap_err();
        let has_gpu = Device::list().len() > 1;
        if name == "gpu:999" && !has_gpu {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            continue;
        }
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let start =
            format!("expected the name of a device, `cpu`, `gpu` or `gpu:N`, found `{name}`; this machine has `cpu` (");
        assert!(error.message().starts_with(&start), "{error}");
    }
}

#[test]
fn clones_are_the_same_device_and_devices_have_pools_of_their_own() {
    let (one, other) = (Device::cpu().unwrap(), Device::cpu().unwrap());
    let held = one.clone().buffer(1 << 20).unwrap();
    assert!(one.pool().statistics().bytes_in_use >= 1 << 20);
    assert_eq!(other.pool().statistics().bytes_in_use, 0);
    drop(held);
    assert_eq!(one.pool().statistics().bytes_in_use, 0);
}

#[test]
fn settings_reach_the_device() {
    let device = Device::cpu_with(CpuOptions::new().threads(3)).unwrap();
    assert_eq!(device.info().limits.threads, Some(3));
    assert_eq!(Device::cpu_with(CpuOptions::new().threads(0)).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[cfg(feature = "gpu")]
#[test]
fn gpu_is_the_first_gpu_or_an_error_that_explains() {
    use kiln::device::{Feature, GpuOptions};
    match Device::list().get(1) {
        Some(first) => {
            assert_eq!(Device::by_name("gpu").unwrap().info(), first);
            assert_eq!(Device::gpu(0).unwrap().info(), first);
            let device = Device::gpu_with(0, GpuOptions::new().without(Feature::ShaderF16)).unwrap();
            assert!(!device.info().features.contains(&Feature::ShaderF16));
        }
        None => {
            let error = Device::by_name("gpu").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().starts_with("expected a GPU"), "{error}");
        }
    }
}

#[cfg(not(feature = "gpu"))]
#[test]
fn build_without_gpu_support_says_so() {
    assert_eq!(Device::list().len(), 1);
    let error = Device::gpu(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("feature `gpu`"), "{error}");
    assert!(Device::choose().unwrap().reason.contains("feature `gpu`"));
}

/// Two devices with the same id have different names, in `Display`, in `Debug` and in the errors of ops that mix them.
#[test]
fn devices_of_one_id_have_different_names_in_messages() {
    let (one, other) = (Device::cpu().unwrap(), Device::cpu().unwrap());
    let names = [one.to_string(), other.to_string()];
    assert_ne!(names[0], names[1]);
    assert_eq!(one.clone().to_string(), names[0], "a clone is the same device");
    for (device, name) in [(&one, &names[0]), (&other, &names[1])] {
        assert_eq!(device.info().id, "cpu");
        assert!(name == "cpu" || name.strip_prefix("cpu#").unwrap().parse::<u64>().unwrap() > 1, "{name}");
        assert!(format!("{device:?}").contains(&format!("{name:?}")), "{device:?}");
    }
    assert!(names[1].starts_with("cpu#"), "only the first device of the process has the plain id: {names:?}");

    let [a, b] = [&one, &other].map(|device| Tensor::ones((2, 2), DType::F32, device).unwrap());
    let parameter = Parameter::new(&a).unwrap();
    for error in [a.add(&b).unwrap_err(), Tensor::cat(&[&a, &b], 0).unwrap_err(), parameter.set(&b).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        // The second name may be the first with an ordinal, so the text after it is compared too.
        let text = format!("{error} ").replace(';', " ").replace(", found", " found");
        for name in &names {
            assert!(text.contains(&format!("f32 (2, 2) on {name} ")), "`{name}` in {text}");
        }
    }
}
