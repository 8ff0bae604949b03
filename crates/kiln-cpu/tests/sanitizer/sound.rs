//! Correct kernels, and devices without the sanitizer.

use super::{X_Y, expect, found, found_with, open};
use kiln_cpu::{CpuOptions, FindingKind};
use kiln_device::{Grid, KernelFlag, KernelOptions, KernelSource};

/// Typical correct kernels have no findings.
#[test]
fn sound_kernels_are_silent() {
    let saxpy = "y[id.x] = y[id.x] + 3u * x[id.x];";
    let reduce = "part[l] = x[id.x]; workgroupBarrier();
        for (var step = 32u; step > 0u; step >>= 1u) { if (l < step) { part[l] += part[l + step]; } workgroupBarrier(); }
        if (l == 0u) { y[g.x] = part[0]; }";
    let scan = "part[l] = x[id.x]; workgroupBarrier();
        for (var step = 1u; step < 64u; step <<= 1u) {
            var value = part[l]; if (l >= step) { value += part[l - step]; }
            workgroupBarrier(); part[l] = value; workgroupBarrier();
        }
        y[id.x] = part[l];";
    let uniform = "if (l == 0u) { part[0] = x[g.x]; } let value = workgroupUniformLoad(&part[0]);
        if (value > 0u) { workgroupBarrier(); } part[l] = value; y[id.x] = part[l];";
    let neighbours = "var sum = x[id.x]; if (id.x > 0u) { sum += x[id.x - 1u]; } y[id.x] = sum;";
    for body in [saxpy, reduce, scan, uniform, neighbours] {
        let kernel = format!(
            "{X_Y}var<workgroup> part: array<u32, 64>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: Id, @builtin(workgroup_id) g: Id,
                @builtin(local_invocation_index) l: u32) {{ {body} }}"
        );
        expect(&found(&kernel, 256, 4), &[]);
    }
    let histogram = "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
        var<workgroup> bins: array<atomic<u32>, 16>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: Id, @builtin(local_invocation_index) l: u32) {
            if (l < 16u) { atomicStore(&bins[l], 0u); }
            workgroupBarrier();
            atomicAdd(&bins[x[id.x] % 16u], 1u);
            workgroupBarrier();
            if (l < 16u) { atomicAdd(&y[l], atomicLoad(&bins[l])); }
        }";
    expect(&found(histogram, 256, 4), &[]);
    let options = KernelOptions { flags: [KernelFlag::UninitialisedWorkgroup].into(), ..KernelOptions::default() };
    expect(&found_with(histogram, 256, 4, options), &[]);
    let mailbox = "@group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: Id) {
            if (id.x % 2u == 0u) { atomicStore(&y[0], id.x); } else { atomicMax(&y[1], atomicLoad(&y[0])); }
        }";
    expect(&found(mailbox, 4, 2), &[]);
}

/// The usual tiled matrix product, on sizes that are not multiples of the tile.
#[test]
fn a_tiled_product_is_silent() {
    const MATMUL: &str = "
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<storage, read> b: array<f32>;
        @group(0) @binding(2) var<storage, read_write> c: array<f32>;
        @group(0) @binding(3) var<uniform> n: u32;
        var<workgroup> ta: array<array<f32, 8>, 8>;
        var<workgroup> tb: array<array<f32, 8>, 8>;
        fn at(row: u32, column: u32, wants_a: bool) -> f32 {
            if (row >= n || column >= n) { return 0.0; }
            if (wants_a) { return a[row * n + column]; }
            return b[row * n + column];
        }
        @compute @workgroup_size(8, 8)
        fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
            var sum = 0.0;
            for (var k = 0u; k < n; k += 8u) {
                ta[l.y][l.x] = at(id.y, k + l.x, true);
                tb[l.y][l.x] = at(k + l.y, id.x, false);
                workgroupBarrier();
                for (var i = 0u; i < 8u; i++) { sum += ta[l.y][i] * tb[i][l.x]; }
                workgroupBarrier();
            }
            if (id.x < n && id.y < n) { c[id.y * n + id.x] = sum; }
        }";
    let device = open();
    let run = |text: &str| {
        let kernel = device.kernel(KernelSource::wgsl(text)).unwrap();
        let n = 20usize;
        let (a, b) =
            (device.buffer_from(&vec![2.0f32; n * n]).unwrap(), device.buffer_from(&vec![0.5f32; n * n]).unwrap());
        let mut c = device.buffer_of::<f32>(n * n).unwrap();
        let launch = kernel.launch().bind("a", &a).bind("b", &b).bind("c", &mut c).value("n", n as u32);
        launch.grid(Grid::workgroups([3, 3, 1])).submit().unwrap();
        assert_eq!(c.read().unwrap(), vec![n as f32; n * n]);
        kiln_cpu::take_findings(&device)
    };
    expect(&run(MATMUL), &[]);
    // Without the second barrier, the tiles of the next iteration are written while other invocations still read.
    let second = MATMUL.rfind("workgroupBarrier();").unwrap();
    let without = format!("{}{}", &MATMUL[..second], &MATMUL[second + "workgroupBarrier();".len()..]);
    let found = run(&without);
    assert!(!found.is_empty() && found.iter().all(|finding| finding.kind == FindingKind::Race), "{found:?}");
}

/// The memory of the sanitizer is bounded.
#[test]
fn buffers_that_are_too_large_to_watch_are_refused() {
    let device = open();
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main() { y[0] = 1u; }";
    let kernel = device.kernel(KernelSource::wgsl(source)).unwrap();
    let mut y = device.buffer((128 << 20) + 4).unwrap();
    let error = kernel.launch().bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit().unwrap_err();
    assert_eq!(error.kind(), kiln_ir::ErrorKind::TooLarge);
    assert!(error.to_string().contains("at most 134217728 bytes, found 134217732"), "{error}");
}

/// A device without the sanitizer reports nothing, and a sanitized device compiles separate code.
#[test]
fn only_a_sanitized_device_finds_anything() {
    let plain = kiln_cpu::open(CpuOptions::new()).unwrap();
    assert_ne!(plain.info().compiler, open().info().compiler);
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main() { y[9] = 1u; }";
    let kernel = plain.kernel(KernelSource::wgsl(source)).unwrap();
    let mut y = plain.buffer_of::<u32>(4).unwrap();
    kernel.launch().bind("y", &mut y).over(4).unwrap();
    assert!(kiln_cpu::take_findings(&plain).is_empty());
}
