//! Launches with valid arguments compute; invalid arguments are reported.

use super::{SAXPY, numbers, saxpy, targets};
use crate::support;
use kiln_device::{BindingKind, BufferOptions, Grid, KernelSource, Usage, Value};
use kiln_gpu::GpuOptions;
use kiln_ir::ErrorKind;

#[test]
fn a_kernel_computes_by_name_and_by_index() {
    for device in targets() {
        let kernel = device.kernel(saxpy()).unwrap();
        for by_index in [false, true] {
            let (x, mut y) = (device.buffer_from(&numbers(1000)).unwrap(), device.buffer_from(&numbers(1000)).unwrap());
            let launch = kernel.launch();
            let launch = if by_index {
                launch.bind(0, &x).bind(1, &mut y).value(2, 1000u32)
            } else {
                launch.bind("x", &x).bind("y", &mut y).value("n", 1000u32)
            };
            launch.over(1000).unwrap();
            let expected: Vec<f32> = numbers(1000).iter().map(|x| 2.0 * x + x).collect();
            assert_eq!(y.read().unwrap(), expected);
            assert_eq!(x.read().unwrap(), numbers(1000));
        }
    }
}

#[test]
fn the_reflection_describes_the_kernel() {
    for device in targets() {
        let kernel = device.kernel(saxpy()).unwrap();
        let reflection = kernel.reflection();
        assert_eq!((reflection.entry.as_str(), reflection.workgroup_size), ("main", [64, 1, 1]));
        let seen: Vec<_> = (reflection.bindings.iter())
            .map(|b| (b.name.as_str(), b.group, b.binding, b.kind, b.type_name.as_str(), b.min_bytes, b.stride_bytes))
            .collect();
        let expected = [
            ("x", 0, 0, BindingKind::Read, "array<f32>", 4, Some(4)),
            ("y", 0, 3, BindingKind::ReadWrite, "array<f32>", 4, Some(4)),
            ("n", 1, 0, BindingKind::Value, "u32", 4, None),
        ];
        assert_eq!(seen, expected);
    }
}

/// Every message names the binding, the expectation and the argument; nothing is submitted.
#[test]
fn bad_arguments_are_refused_before_anything_is_submitted() {
    let Some(device) = support::in_place() else { return };
    let other = support::staged().unwrap();
    let kernel = device.kernel(saxpy()).unwrap();
    let (x, mut y) = (device.buffer_from(&numbers(8)).unwrap(), device.buffer_from(&[5.0f32; 8]).unwrap());
    let mut y2 = y.clone();
    let wrong_type = device.buffer_from(&[1u32; 8]).unwrap();
    let wrong_size = device.buffer(12).unwrap().slice(..6).unwrap();
    let empty = device.buffer(0).unwrap();
    let foreign = other.buffer_of::<f32>(8).unwrap();
    let staging = device.buffer_with(BufferOptions::new(32).usage(Usage::Upload)).unwrap();
    let large = device.buffer_from(&numbers(256)).unwrap();
    let slice = large.slice(1..9).unwrap();
    let mut large_tail = large.slice(64..).unwrap();
    let launch = || kernel.launch().value("n", 8u32);
    let table = [
        (launch().bind("x", &x).bind("y", &mut y).submit(), "expected a grid, found none"),
        (
            launch().bind("x", &x).bind("y", &y2).over(8).map(|()| 0),
            "binding y: array<f32> (read_write) expected `&mut`, because the kernel may write it, found a shared reference",
        ),
        (
            launch().bind("z", &x).over(8).map(|()| 0),
            "(0 x: array<f32> (read), 1 y: array<f32> (read_write), 2 n: u32 (value)), found `z`",
        ),
        (launch().bind(7, &x).over(8).map(|()| 0), "found index 7"),
        (
            launch().bind("x", &x).over(8).map(|()| 0),
            "binding y: array<f32> (read_write) expected a buffer, found nothing",
        ),
        (
            kernel.launch().bind("x", &x).bind("y", &mut y).over(8).map(|()| 0),
            "binding n: u32 (value) expected a value, found nothing",
        ),
        (
            launch().bind("x", &wrong_type).over(8).map(|()| 0),
            "binding x: array<f32> (read) expected elements of f32, found u32 (4 bytes each)",
        ),
        (
            launch().bind("x", &wrong_size).bind("y", &mut y).over(8).map(|()| 0),
            "expected a multiple of 4 bytes at an offset in multiples of",
        ),
        (
            launch().bind("x", &empty).bind("y", &mut y).over(8).map(|()| 0),
            "binding x: array<f32> (read) expected at least 4 bytes, found 0",
        ),
        (launch().bind("x", &slice).bind("y", &mut y).over(8).map(|()| 0), "found 32 bytes at offset 4"),
        (
            launch().bind("x", &foreign).over(8).map(|()| 0),
            "expected a buffer of the kernel's device `gpu:0`, found one of another device",
        ),
        (
            launch().bind("x", &staging).bind("y", &mut y).over(8).map(|()| 0),
            "expected a buffer for storage, found one for upload",
        ),
        (
            launch().bind("n", &x).over(8).map(|()| 0),
            "binding n: u32 (value) expected a value (`value`), found a buffer of 32 bytes",
        ),
        (
            launch().value("x", 1u32).over(8).map(|()| 0),
            "binding x: array<f32> (read) expected a buffer (`bind`), found a value",
        ),
        (kernel.launch().value("n", 1.0f32).over(8).map(|()| 0), "value `n` expected u32 (4 bytes), found f32"),
        (
            kernel.launch().value("n", [1u32, 2]).over(8).map(|()| 0),
            "value `n` expected u32 (4 bytes), found vec2<u32>",
        ),
        (
            kernel.launch().value("n.a", 1u32).over(8).map(|()| 0),
            "value `n` expected one of its members (none), found `a`",
        ),
        (launch().bind("x", &x).bind("x", &x).over(8).map(|()| 0), "binding `x` expected one buffer, found two"),
        // A buffer bound twice, read and written, in one dispatch.
        (
            launch().bind("x", &y2.clone()).bind("y", &mut y2).over(8).map(|()| 0),
            "bindings x: array<f32> (read) and y: array<f32> (read_write) expected buffers of their own",
        ),
        (
            launch().bind("x", &large.slice(..64).unwrap()).bind("y", &mut large_tail).over(8).map(|()| 0),
            "found the same buffer, or two slices of one",
        ),
    ];
    for (result, expected) in table {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(expected), "expected `{expected}` in `{error}`");
        assert!(error.to_string().starts_with("launch of kernel `saxpy.wgsl`: "), "{error}");
    }
    assert_eq!(y.read().unwrap(), [5.0; 8], "nothing ran");
}

#[test]
fn values_are_structs_vectors_and_members() {
    const SOURCE: &str = "
        struct Params { scale: f32, shift: vec2<f32>, count: u32 }
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @group(0) @binding(1) var<uniform> params: Params;
        @group(0) @binding(2) var<uniform> tail: vec3<i32>;
        @compute @workgroup_size(1) fn main() {
            out[0] = params.scale; out[1] = params.shift.x; out[2] = params.shift.y;
            out[3] = f32(params.count); out[4] = f32(tail.x); out[5] = f32(tail.z);
        }";
    #[derive(Clone, Copy, bytemuck::NoUninit)]
    #[repr(C)]
    struct Params {
        scale: f32,
        pad: u32,
        shift: [f32; 2],
        count: u32,
        pad2: u32,
    }
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(SOURCE)).unwrap();
        let whole = Params { scale: 1.5, pad: 0, shift: [2.5, 3.5], count: 7, pad2: 0 };
        for in_parts in [false, true] {
            let mut out = device.buffer_of::<f32>(6).unwrap();
            let launch = kernel.launch().bind("out", &mut out).value("tail", [1, 2, 3]);
            let launch = if in_parts {
                launch.value("params.scale", 1.5f32).value("params.shift", [2.5f32, 3.5]).value("params.count", 7u32)
            } else {
                launch.value("params", Value::bytes(&whole))
            };
            launch.over(1).unwrap();
            assert_eq!(out.read().unwrap(), [1.5, 2.5, 3.5, 7.0, 1.0, 3.0]);
        }
        let mut out = device.buffer_of::<f32>(6).unwrap();
        let partly = kernel.launch().bind("out", &mut out).value("tail", [1, 2, 3]).value("params.scale", 1.0f32);
        let error = partly.over(1).unwrap_err();
        assert!(
            error.to_string().contains("value `params` expected all its members, found `shift` missing"),
            "{error}"
        );
    }
}

/// WGSL errors show file, line, column and the offending text.
#[test]
fn errors_in_the_source_show_where_they_are() {
    let Some(device) = support::in_place() else { return };
    let table = [
        (
            SAXPY.replace("ALPHA * x", "ALPHA ** x"),
            "saxpy.wgsl:8:42: expected a valid kernel, found an error",
            "ALPHA ** x[id.x]",
        ),
        (SAXPY.replace("id.x < n", "id.x < m"), "saxpy.wgsl:8:20: ", "no definition in scope for identifier: `m`"),
        (SAXPY.replace("x[id.x] + y", "x[id.y] + n * y"), "saxpy.wgsl:8:", "y[id.x] = ALPHA"),
    ];
    for (source, place, text) in table {
        let error = device.kernel(KernelSource::wgsl(source).named("saxpy.wgsl").entry("main")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CompileFailed, "{error}");
        let message = error.to_string();
        assert!(message.starts_with(place), "expected `{place}` in `{message}`");
        assert!(message.contains(text), "expected `{text}` in `{message}`");
    }
}

#[test]
fn unsupported_kernels_are_rejected_by_name() {
    let Some(device) = support::in_place() else { return };
    let two = "@compute @workgroup_size(1) fn a() {} @compute @workgroup_size(1) fn b() {}";
    let texture =
        "@group(0) @binding(0) var t: texture_2d<f32>; @group(0) @binding(1) var<storage, read_write> o: array<f32>;
        @compute @workgroup_size(1) fn main() { o[0] = textureLoad(t, vec2(0, 0), 0).x; }";
    let same = "@group(0) @binding(0) var<storage, read_write> a: array<f32>; @group(0) @binding(0) var<storage, read_write> b: array<f32>;
        @compute @workgroup_size(1) fn main() { a[0] = b[0]; }";
    let large = "@compute @workgroup_size(1024, 1024) fn main() {}";
    let shared = "var<workgroup> w: array<f32, 1000000>; @group(0) @binding(0) var<storage, read_write> a: array<f32>;
        @compute @workgroup_size(1) fn main() { w[u32(a[0])] = 1.0; workgroupBarrier(); a[1] = w[1]; }";
    let wgsl = KernelSource::wgsl;
    let table = [
        (wgsl(two), ErrorKind::CompileFailed, "expected one compute entry point, or the name of one, found `a`, `b`"),
        (wgsl(two).entry("c"), ErrorKind::CompileFailed, "expected a compute entry point `c`, found `a`, `b`"),
        (wgsl("fn f() {}"), ErrorKind::CompileFailed, "found none"),
        (wgsl(texture), ErrorKind::Unsupported, "variable `t` expected a storage buffer"),
        (wgsl(same), ErrorKind::CompileFailed, "kernel:1:85: "),
        (wgsl(large), ErrorKind::Unsupported, "invocations in a workgroup"),
        (wgsl(shared), ErrorKind::Unsupported, "bytes of workgroup memory"),
        (saxpy().constant("BETA", 1.0), ErrorKind::CompileFailed, "constants of the kernel (ALPHA)"),
        (saxpy().constant("ALPHA", f64::NAN), ErrorKind::CompileFailed, "constants of the kernel (ALPHA)"),
        (saxpy().constant("a b", 1.0), ErrorKind::InvalidArgument, "found `a b`"),
    ];
    for (source, kind, expected) in table {
        let error = device.kernel(source).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "expected `{expected}` in `{error}`");
    }
}

/// Only the bindings that the entry point uses are required.
#[test]
fn an_entry_point_has_its_own_bindings() {
    const SOURCE: &str = "
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<storage, read_write> b: array<f32>;
        @group(0) @binding(2) var<storage, read_write> c: array<f32>;
        @compute @workgroup_size(1) fn first() { b[0] = a[0]; }
        @compute @workgroup_size(2, 3) fn second() { c[0] = 4.0; }";
    for device in targets() {
        let names = |entry: &str| -> Vec<String> {
            let kernel = device.kernel(KernelSource::wgsl(SOURCE).entry(entry)).unwrap();
            kernel.reflection().bindings.iter().map(|binding| binding.name.clone()).collect()
        };
        assert_eq!((names("first"), names("second")), (vec!["a".to_string(), "b".into()], vec!["c".to_string()]));
        let mut c = device.buffer_of::<f32>(1).unwrap();
        let kernel = device.kernel(KernelSource::wgsl(SOURCE).entry("second")).unwrap();
        kernel.launch().bind(0, &mut c).grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
        assert_eq!(c.read().unwrap(), [4.0]);
    }
}

/// A binding sees its slice, not that of an earlier launch with the same buffer.
#[test]
fn a_binding_sees_exactly_its_slice() {
    const SOURCE: &str = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(1) fn main() { y[0] = x[0]; y[1] = f32(arrayLength(&x)); }";
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(SOURCE)).unwrap();
        let x = device.buffer_from(&(0..1024).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let step = (device.info().limits.binding_alignment_bytes as usize / 4).max(1);
        for (start, end) in [(0, 1024), (0, 512), (step, 512), (step, 2 * step), (0, 1024), (2 * step, 1024)] {
            let mut y = device.buffer_of::<f32>(2).unwrap();
            kernel.launch().bind("x", &x.slice(start..end).unwrap()).bind("y", &mut y).over(1).unwrap();
            assert_eq!(y.read().unwrap(), [start as f32, (end - start) as f32]);
        }
    }
}

/// Cached bind groups do not keep memory alive that the pool has released.
#[test]
fn launches_hold_no_memory_of_buffers_that_are_gone() {
    let Some(device) = support::open(GpuOptions::new()) else { return };
    let kernel = device.kernel(saxpy()).unwrap();
    let run = || {
        let (x, mut y) = (device.buffer_of::<f32>(1 << 20).unwrap(), device.buffer_of::<f32>(1 << 20).unwrap());
        kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 1u32).over(1).unwrap();
        device.synchronize().unwrap();
        (x, y)
    };
    drop(run());
    device.pool().clear().unwrap();
    let Some(before) = device.api().driver_bytes() else { return };
    let held: Vec<_> = (0..8).map(|_| run()).collect();
    assert!(device.api().driver_bytes().unwrap() >= before + (48 << 20), "they take memory while they are there");
    drop(held);
    device.pool().clear().unwrap();
    let after = device.api().driver_bytes().unwrap();
    assert!(after <= before + (8 << 20), "{before} bytes before, {after} after");
}
