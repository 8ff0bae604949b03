//! Regression tests.

use crate::{numbered, on_disk, scale};
use kiln_device::store::Lookup;
use kiln_device::{
    BufferOptions, BufferUse, Device, Feature, Graph, Grid, KernelSource, NullDevice, Outcome, Record, Scalar, Tail,
    Usage, ValueLayout,
};
use kiln_ir::ErrorKind;
use std::sync::Barrier;

fn device() -> Device {
    NullDevice::new().into_device().unwrap()
}

/// Elements with an incompatible layout, or of a type that WGSL lacks, are rejected.
#[test]
fn elements_that_do_not_fit_are_refused() {
    let device = device();
    macro_rules! binds {
        ($element:literal, $type:ty) => {{
            let source = format!(
                "@group(0) @binding(0) var<storage, read_write> x: array<{}>;
                 @compute @workgroup_size(1) fn main() {{ let all = &x; let n = arrayLength(all); }}",
                $element
            );
            let kernel = device.kernel(KernelSource::wgsl(source)).unwrap();
            let mut x = device.buffer_of::<$type>(48).unwrap();
            kernel.launch().bind("x", &mut x).over(1).is_ok()
        }};
    }
    assert!(binds!("u32", u32) && binds!("u32", [u32; 2]) && binds!("vec4<f32>", f32) && binds!("vec4<f32>", [f32; 2]));
    assert!(binds!("vec3<f32>", f32) && binds!("vec3<f32>", [f32; 4]) && binds!("mat3x3<f32>", [f32; 12]));
    assert!(!binds!("u32", u64) && !binds!("u32", i32) && !binds!("u32", u8) && !binds!("f32", f64));
    assert!(!binds!("vec4<f32>", [u32; 4]) && !binds!("u32", [f32; 4]));
    assert!(!binds!("vec3<f32>", [f32; 3]) && !binds!("mat3x3<f32>", [f32; 9]) && !binds!("u32", [u8; 6]));
}

/// An unusable entry is removed even if compiling the kernel fails as well.
#[test]
fn an_unusable_entry_is_removed_even_if_nothing_replaces_it() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    on_disk(&null, directory.path()).kernel(scale()).unwrap();
    let device = on_disk(&null, directory.path());
    null.fail_load(1);
    null.fail_load(2);
    assert!(device.kernel(scale()).is_err());
    let key = device.prepare(&scale()).unwrap().key().encode();
    assert_eq!(device.kernel_store().unwrap().get(&key), Lookup::Miss);
}

/// Every request is counted, including those that waited for a failed compile.
#[test]
fn each_of_many_failing_requests_is_counted() {
    let device = device();
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                device.kernel(KernelSource::wgsl("not a kernel")).unwrap_err();
            });
        }
    });
    assert_eq!(device.kernel_cache_stats().failures, 8);
}

#[test]
fn a_kernel_twice_in_a_list_is_made_once() {
    let device = device();
    let report = device.warm_kernels(&[numbered(1), numbered(2), numbered(1), numbered(1)], None);
    assert_eq!((report.compiled, report.present, report.repeated), (2, 0, 2));
    assert_eq!(device.kernel_cache_stats().compiles, 2);
}

/// A cancelled preload has loaded the most used kernels.
#[test]
fn kernels_are_preloaded_in_the_order_of_their_use() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    // Kernels that are distinguished by their length; the longer, the more used.
    let padded = |number: usize| KernelSource::wgsl(format!("{}{}", numbered(0).text(), " ".repeat(number)));
    for round in 0..6 {
        let device = on_disk(&null, directory.path());
        (round..6).for_each(|number| drop(device.kernel(padded(number)).unwrap()));
    }
    let device = on_disk(&null, directory.path());
    null.clear_records();
    device.preload_kernels(6).unwrap().wait().unwrap();
    let lengths: Vec<u64> = (null.records().iter())
        .filter_map(|record| if let Record::Load { bytes, .. } = record { Some(*bytes) } else { None })
        .collect();
    let shortest = numbered(0).text().len() as u64;
    assert_eq!(lengths, (shortest..shortest + 6).rev().collect::<Vec<_>>());
}

/// The variants for split grids are preloaded as such.
#[test]
fn wide_variants_are_preloaded() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new().with_info(|info| info.limits.max_workgroups_per_axis = 10);
    let launch = |device: &Device| {
        let (x, mut y) = (device.buffer_of::<f32>(4).unwrap(), device.buffer_of::<f32>(4).unwrap());
        let kernel = device.kernel(scale()).unwrap();
        kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 1u32).over(10_000).unwrap();
    };
    launch(&on_disk(&null, directory.path()));
    let device = on_disk(&null, directory.path());
    let report = device.preload_kernels(10).unwrap().wait().unwrap();
    assert_eq!((report.loaded, report.compiled, report.present), (2, 0, 0));
    launch(&device);
    assert_eq!((device.kernel_cache_stats().memory_hits, device.kernel_cache_stats().compiles), (2, 0));
}

/// Keys compare constants bit by bit, and so do explanations.
#[test]
fn a_zero_and_a_negative_zero_are_two_constants() {
    let directory = tempfile::tempdir().unwrap();
    let device = on_disk(&NullDevice::new(), directory.path());
    device.kernel(scale().constant("ALPHA", 0.0)).unwrap();
    assert_eq!(device.explain_kernel(&scale().constant("ALPHA", -0.0)).unwrap().outcome, Outcome::Miss);
}

/// An expression as the length of an array is an anonymous override: naga panicked if another override followed it.
#[test]
fn the_length_of_an_array_may_be_computed_from_constants() {
    let text = "override n: u32; var<workgroup> x: array<u32, n / 2u + 1u>;
        override m: u32 = 3u; var<workgroup> y: array<u32, m * 2u>;
        @compute @workgroup_size(1) fn main() { x[0] = 1u; y[0] = 1u; }";
    let kernel = device().kernel(KernelSource::wgsl(text).constant("n", 14.0)).unwrap();
    assert_eq!(kernel.reflection().workgroup_bytes, (8 + 6) * 4);
}

#[test]
fn limits_of_values_and_axes_are_checked_at_compile_time() {
    let value = "@group(0) @binding(0) var<uniform> v: array<vec4<f32>, 5000>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() { y[0] = v[1].x; }";
    let axis = "@compute @workgroup_size(1, 1, 65) fn main() {}";
    for (source, expected) in [(value, "bytes in a value"), (axis, "along z on `null`, found 65")] {
        let error = device().kernel(KernelSource::wgsl(source)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_kernel_of_another_device_is_refused_by_name() {
    let (one, other) = (device(), device());
    let kernel = one.kernel(numbered(1)).unwrap();
    let mut commands = other.commands();
    kernel.launch().grid(Grid::over(1)).record(&mut commands).unwrap();
    let error = other.submit(commands).unwrap_err();
    assert!(error.to_string().contains("expected its own kernels, found `number 1` of another"), "{error}");
}

/// Staging buffers of recorded writes belong to the list; an upload buffer of the user does not.
#[test]
fn graphs_order_the_uploads_of_a_user() {
    let device = device();
    let upload = device.buffer_with(BufferOptions::new(16).usage(Usage::Upload)).unwrap();
    upload.write(&[1; 16]).unwrap();
    let y = device.buffer(16).unwrap();
    let list = |from: &kiln_device::Buffer| {
        let mut commands = device.commands();
        commands.write(&y, &[3; 16]).unwrap();
        commands.copy(from, &y).unwrap();
        commands
    };
    let mut graph = Graph::new();
    graph.buffer("y", &y).unwrap();
    let error = graph.commands("upload", list(&upload)).unwrap_err();
    assert!(error.to_string().contains("node `upload` expected buffers that the graph declares"), "{error}");
    graph.buffer("upload", &upload).unwrap();
    graph.host("fill", [(&upload, BufferUse::Write)], |[upload]| upload.write(&[9; 16])).unwrap();
    graph.commands("upload", list(&upload)).unwrap();
    assert!(graph.to_mermaid().contains("-->"), "an edge between them:\n{}", graph.to_mermaid());
    graph.compile().unwrap().run().unwrap();
    assert_eq!(y.read().unwrap(), [9; 16]);
}

/// Graphs limit the host data of a submission as well.
#[test]
fn graphs_bound_the_host_bytes_of_a_submission() {
    let null = NullDevice::new();
    let device = null.clone().into_device().unwrap();
    let target = device.buffer(48 << 20).unwrap();
    let mut commands = device.commands();
    for byte in [1u8, 2] {
        commands.write(&target, &vec![byte; 48 << 20]).unwrap();
    }
    let mut graph = Graph::new();
    graph.buffer("target", &target).unwrap();
    graph.commands("write", commands).unwrap();
    let plan = graph.compile().unwrap();
    null.clear_records();
    plan.run().unwrap();
    assert_eq!(null.records().iter().filter(|record| matches!(record, Record::Submit { .. })).count(), 2);
}

/// The payload of a panic may panic again when it is dropped.
#[test]
fn a_panic_that_panics_when_dropped_ends_the_run() {
    struct Twice;
    impl Drop for Twice {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("again");
            }
        }
    }
    let device = device();
    let buffer = device.buffer(16).unwrap();
    let mut graph = Graph::new();
    graph.buffer("b", &buffer).unwrap();
    graph.host("throws", [(&buffer, BufferUse::Write)], |_| std::panic::panic_any(Twice)).unwrap();
    let error = graph.compile().unwrap().run().unwrap_err();
    assert!(error.to_string().contains("`throws`"), "{error}");
}

/// `enable subgroups;` is part of WGSL but unknown to naga: the key keeps the text, and a device without subgroups
/// rejects it.
#[test]
fn subgroups_may_be_enabled_where_the_device_has_them() {
    let text = "// enable f16, subgroups;\nenable\n  subgroups;\n@compute @workgroup_size(1) fn main() { let x = subgroupAdd(1u); }";
    let source = KernelSource::wgsl(text).named("k.wgsl");
    let device = |has: bool| {
        let null = NullDevice::new().with_info(|info| {
            info.features.retain(|feature| *feature != Feature::Subgroups);
            info.features.extend(has.then_some(Feature::Subgroups));
        });
        null.into_device().unwrap()
    };
    assert_eq!(device(true).kernel(source.clone()).unwrap().key().to_source().text(), text);
    let error = device(false).kernel(source.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let message = "k.wgsl:3:3: expected a device with subgroups, which the kernel enables, found `null`";
    assert_eq!(error.to_string(), message);
    // The locations of later errors are unchanged.
    let wrong = KernelSource::wgsl(text.replace("1u", "x")).named("k.wgsl");
    let error = device(true).kernel(wrong).unwrap_err().to_string();
    assert!(error.starts_with("k.wgsl:4:61: ") && error.contains("no definition in scope"), "{error}");
}

/// The reflection contains the offsets of scalars in a uniform, and of the runtime-sized array at the end of a struct.
#[test]
fn reflections_contain_offsets_of_scalars_and_arrays() {
    let text = "struct Item { at: vec3<f32>, mass: f32 } struct World { count: u32, items: array<Item> }
        struct Inner { a: f16, b: vec2<i32> } struct Params { inner: Inner, steps: array<vec4<u32>, 3> }
        @group(0) @binding(0) var<storage, read_write> w: World;
        @group(0) @binding(1) var<uniform> m: mat2x3<f32>;
        @group(0) @binding(2) var<uniform> p: Params;
        @compute @workgroup_size(1) fn main() {
            w.items[0].mass = m[0].x + f32(p.inner.a) + f32(p.steps[0].x);
        }";
    let device = NullDevice::new().with_info(|info| info.features.extend([Feature::ShaderF16])).into_device().unwrap();
    let kernel = device.kernel(KernelSource::wgsl(format!("enable f16; {text}"))).unwrap();
    let [w, m, p] = &kernel.reflection().bindings[..] else { panic!("{:?}", kernel.reflection()) };
    assert_eq!((w.tail, w.layout.as_ref()), (Some(Tail { offset: 16, stride_bytes: 16 }), None));
    let repeated = |count, stride_bytes, of| ValueLayout::Repeated { count, stride_bytes, of: Box::new(of) };
    let vector = |count, scalar: Scalar| repeated(count, scalar.bytes() as u32, ValueLayout::One(scalar));
    assert_eq!((m.tail, &m.layout), (None, &Some(repeated(2, 16, vector(3, Scalar::F32)))));
    let [inner, steps] = &p.members[..] else { panic!("{p:?}") };
    let Some(ValueLayout::Struct(members)) = &inner.layout else { panic!("{inner:?}") };
    let members: Vec<_> = members.iter().map(|member| (member.offset, member.layout.clone().unwrap())).collect();
    assert_eq!(members, [(0, ValueLayout::One(Scalar::F16)), (8, vector(2, Scalar::I32))]);
    assert_eq!(steps.layout, Some(repeated(3, 16, vector(4, Scalar::U32))));
}
