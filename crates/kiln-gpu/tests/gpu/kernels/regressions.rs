//! Regression tests.

use super::{gpu_targets, saxpy, targets};
use crate::support;
use kiln_device::{Device, DiskTier, Grid, KernelCacheOptions, KernelKey, KernelModule, KernelSource, Origin};
use kiln_gpu::GpuOptions;
use kiln_ir::ErrorKind;

/// Runs a kernel that writes `y`, over one item.
fn run_one(device: &Device, source: &str, entry: &str) -> Vec<f32> {
    let kernel = device.kernel(KernelSource::wgsl(source).entry(entry)).unwrap();
    let mut y = device.buffer_of::<f32>(4).unwrap();
    y.zero().unwrap();
    kernel.launch().bind("y", &mut y).over(1).unwrap();
    y.read().unwrap()
}

/// A driver reads zeros from a uniform binding that is smaller than a vector.
#[test]
fn an_f16_value_arrives() {
    const SOURCE: &str = "enable f16;
        @group(0) @binding(0) var<uniform> h: f16;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() { y[0] = f32(h); }";
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(SOURCE)).unwrap();
        let mut y = device.buffer_of::<f32>(1).unwrap();
        kernel.launch().bind("y", &mut y).value("h", half::f16::from_f32(0.5)).over(1).unwrap();
        assert_eq!(y.read().unwrap(), [0.5]);
    }
}

/// naga validates pointers to parts of variables as arguments, and its SPIR-V writer panics on them.
#[test]
fn pointers_to_parts_are_rejected_as_arguments() {
    let source = |argument: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
fn add(to: ptr<function, f32>, x: f32) {{ *to += x; }}
@compute @workgroup_size(1) fn main() {{
    var whole = 1.0;
    var parts = array<f32, 2>(2.0, 3.0);
    for (var i = 0u; i < 2u; i++) {{ add({argument}, parts[i]); }}
    y[0] = whole;
}}"
        )
    };
    for device in gpu_targets() {
        assert_eq!(run_one(&device, &source("&whole"), "main")[0], 6.0);
        for argument in ["&parts[i]", "&parts[1]"] {
            let error = device.kernel(KernelSource::wgsl(source(argument)).named("parts.wgsl")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("parts.wgsl:6:"), "{error}");
        }
    }
}

/// naga's WGSL writer renames entry points that end in a digit.
#[test]
fn entry_points_may_have_any_name() {
    for device in targets() {
        for entry in ["main1", "half_add_f16", "x_", "kiln_main"] {
            let source = format!(
                "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
                 @compute @workgroup_size(1) fn {entry}() {{ y[1] = 7.0; }}"
            );
            assert_eq!(run_one(&device, &source, entry), [0.0, 7.0, 0.0, 0.0], "{entry}");
        }
    }
}

/// The f16 packing functions are part of WGSL without `enable f16`.
#[test]
fn f16_values_are_packed_and_unpacked() {
    const SOURCE: &str = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() {
            let v = unpack2x16float(x[0]); y[0] = v.x; y[1] = v.y; y[2] = unpack2x16float(pack2x16float(v * 2.0)).y;
        }";
    let bits = |value: f32| u32::from(half::f16::from_f32(value).to_bits());
    for device in targets() {
        let x = device.buffer_from(&[bits(2.0) | bits(-1.5) << 16]).unwrap();
        let mut y = device.buffer_of::<f32>(3).unwrap();
        device.kernel(KernelSource::wgsl(SOURCE)).unwrap().launch().bind("x", &x).bind("y", &mut y).over(1).unwrap();
        assert_eq!(y.read().unwrap(), [2.0, -1.5, -3.0]);
    }
}

#[test]
fn workgroup_arrays_may_have_a_constant_as_length() {
    const SOURCE: &str = "
        @id(7) override N: u32 = 8u;
        var<workgroup> words: array<u32, N>;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() { words[N - 1u] = N; workgroupBarrier(); y[0] = f32(words[N - 1u]); }";
    for device in targets() {
        // By its name and by its id.
        for (name, value) in [("N", 20.0), ("7", 30.0)] {
            let kernel = device.kernel(KernelSource::wgsl(SOURCE).constant(name, value)).unwrap();
            let mut y = device.buffer_of::<f32>(1).unwrap();
            kernel.launch().bind("y", &mut y).over(1).unwrap();
            assert_eq!(y.read().unwrap(), [value as f32], "{name}");
        }
    }
}

/// Two array types whose lengths become equal must stay unique in the type arena.
#[test]
fn arrays_of_equal_length_by_constant_and_by_number() {
    const SOURCE: &str = "
        override N: u32 = 4u; override M: u32 = 4u;
        var<workgroup> a: array<u32, N>; var<workgroup> b: array<u32, 4>; var<workgroup> c: array<u32, M>;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() { a[3] = 1u; b[3] = 2u; c[3] = 4u; y[0] = f32(a[3] + b[3] + c[3]); }";
    for device in targets() {
        assert_eq!(run_one(&device, SOURCE, "main")[0], 7.0);
    }
}

/// A user's variable may have the name of a generated one.
#[test]
fn generated_names_are_available_to_users() {
    const SOURCE: &str = "
        @group(0) @binding(0) var<uniform> kiln_grid: u32;
        @group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { atomicAdd(&counts[id.x % 4u], kiln_grid); }";
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(SOURCE)).unwrap();
        for workgroups in [8, device.info().limits.max_workgroups_per_axis / 4 * 4 + 4] {
            let mut counts = device.buffer_from(&[0u32; 4]).unwrap();
            let launch = kernel.launch().bind("counts", &mut counts).value("kiln_grid", 3u32);
            launch.grid(Grid::workgroups([workgroups, 1, 1])).submit().unwrap();
            assert_eq!(counts.read().unwrap(), [workgroups / 4 * 3; 4]);
        }
    }
}

/// An odd number of `f16` is bound up to the end of its last word.
#[test]
fn an_odd_number_of_halves_can_be_bound() {
    const SOURCE: &str = "enable f16;
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < 3u) { y[id.x] = y[id.x] * 2.0h; } }";
    let halves = |values: [f32; 3]| values.map(half::f16::from_f32);
    for device in targets() {
        let mut y = device.buffer_from(&halves([1.0, 2.0, 3.0])).unwrap();
        device.kernel(KernelSource::wgsl(SOURCE)).unwrap().launch().bind("y", &mut y).over(3).unwrap();
        assert_eq!(y.read().unwrap(), halves([2.0, 4.0, 6.0]));
        let mut part = y.slice(..1).unwrap();
        let error =
            device.kernel(KernelSource::wgsl(SOURCE)).unwrap().launch().bind("y", &mut part).over(1).unwrap_err();
        assert!(error.to_string().contains("expected a multiple of 4 bytes"), "{error}");
    }
}

/// The buffers of an empty problem may be empty, and an empty grid above the limit runs nothing.
#[test]
fn an_empty_problem_is_valid() {
    let Some(device) = support::open(GpuOptions::new()) else { return };
    let kernel = device.kernel(saxpy()).unwrap();
    let (x, mut y) = (device.buffer_of::<f32>(0).unwrap(), device.buffer_of::<f32>(0).unwrap());
    kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 0u32).over(0).unwrap();
    let launch = kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 0u32);
    launch.over((0u32, u32::MAX, u32::MAX)).unwrap();
    assert_eq!(device.kernel_cache_stats().compiles, 1, "no variant for a wide grid");
    let error = kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 0u32).over(1).unwrap_err();
    assert!(error.to_string().contains("expected at least 4 bytes, found 0"), "{error}");
}

/// Stored code that loses the device is removed, so that it does so only once.
#[test]
fn stored_code_that_ends_the_device_is_removed() {
    if support::in_place().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let kernels = KernelCacheOptions::new().disk(DiskTier::new(directory.path().join("kernels")));
        kiln_gpu::open(0, GpuOptions::new().kernels(kernels)).unwrap()
    };
    let device = open();
    device.kernel(saxpy()).unwrap();
    let (store, key) = (device.kernel_store().unwrap(), device.prepare(&saxpy()).unwrap().key().encode());
    let mut payload = store.get(&key).into_payload().unwrap();
    let magic = payload.windows(4).position(|word| word == 0x0723_0203u32.to_le_bytes()).unwrap();
    payload[magic] ^= 0xff;
    store.put(&key, &payload).unwrap();
    let second = open();
    // The driver may reject the code or lose the device.
    let first_try = second.kernel(saxpy());
    assert!(first_try.is_err() || first_try.is_ok_and(|kernel| kernel.origin() == Origin::Compiled));
    assert_eq!(second.kernel_cache_stats().disk_entries_unusable, 1);
    let third = open();
    assert_eq!(third.kernel_cache_stats().disk_entries_unusable, 0);
    assert!(third.kernel(saxpy()).is_ok() && third.kernel_cache_stats().disk_entries_unusable == 0);
}

/// A pipeline cache blob of another driver is ignored.
#[test]
fn a_foreign_blob_of_the_driver_is_ignored() {
    for device in targets() {
        let key = KernelKey::new(&saxpy(), device.info()).unwrap();
        let program = KernelModule::new(&key, device.info()).unwrap();
        let mut artifact = device.api().translate(&program).unwrap();
        let mut header = b"WGPUPLCH".to_vec();
        header.extend([0, 0, 0, 1, 9, 9, 9, 9]);
        header.resize(128, 7);
        for blob in [vec![1, 2, 3], header] {
            artifact.driver_blob = Some(blob);
            assert!(device.api().load(&artifact).is_ok());
            assert!(device.api().fault().is_none());
        }
    }
}
