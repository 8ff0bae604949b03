//! WGSL kernels on the CPU device, compared with loops in Rust.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{
    Device, DiskTier, Grid, KernelCacheOptions, KernelKey, KernelModule, KernelOptions, KernelSource, Optimisation,
    Origin, Value,
};
use kiln_ir::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Invocations in SIMD lanes, and one at a time.
fn devices() -> [Device; 2] {
    let options = || CpuOptions::new().threads(2);
    [options(), options().simd(SimdLevel::Scalar)].map(|options| kiln_cpu::open(options).unwrap())
}

const SAXPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> alpha: f32;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] += alpha * x[id.x]; }
}";

#[test]
fn saxpy_of_lengths_that_fill_no_vector() {
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(SAXPY)).unwrap();
        for len in [1usize, 7, 8, 63, 64, 65, 1000, 5000] {
            let x: Vec<f32> = (0..len).map(|i| i as f32 * 0.5).collect();
            let (x_buffer, mut y_buffer) =
                (device.buffer_from(&x).unwrap(), device.buffer_from(&vec![1.0f32; len]).unwrap());
            kernel
                .launch()
                .bind("x", &x_buffer)
                .bind("y", &mut y_buffer)
                .value("alpha", 3.0f32)
                .over(len as u32)
                .unwrap();
            let expected: Vec<f32> = x.iter().map(|x| 1.0 + 3.0 * x).collect();
            assert_eq!(y_buffer.read().unwrap(), expected, "{len}");
        }
    }
}

/// Subgroup operations, in a workgroup whose last subgroup is partial, after returns, branches and loops.
const SUBGROUPS: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;
fn sum(value: u32) -> u32 { if (value == 1000u) { return 0u; } return subgroupAdd(value); }
@compute @workgroup_size(20) fn main(@builtin(local_invocation_index) l: u32, @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_id) id: u32, @builtin(num_subgroups) count: u32) {
    if (l == 3u) { return; }
    let own = x[l];
    var odd = 0u;
    if (own % 2u == 1u) { odd = subgroupAdd(own); } else { odd = subgroupMax(own) + 500u; }
    var walked = own;
    for (var step = 4u; step > 0u; step /= 2u) { walked += subgroupShuffleXor(walked, step); }
    let bits = subgroupBallot(own > 50u).x;
    y[l] = vec4(sum(own) + subgroupExclusiveAdd(own) * 10000u, odd, walked, bits + size * 256u + lane * 4096u + id * 65536u + count * 1048576u);
}";

#[test]
fn subgroups_are_of_eight_however_they_run() {
    let x: Vec<u32> = (0..20).map(|i| (i * 37 + 11) % 97).collect();
    let here = |lane: &usize| *lane < 20 && *lane != 3;
    let expected: Vec<[u32; 4]> = (0..20usize)
        .filter(here)
        .map(|l| {
            let first = l / 8 * 8;
            let lanes: Vec<usize> = (first..first + 8).filter(here).collect();
            let sum: u32 = lanes.iter().map(|lane| x[*lane]).sum();
            let before: u32 = lanes.iter().filter(|lane| **lane < l).map(|lane| x[*lane]).sum();
            let with = lanes.iter().filter(|lane| x[**lane] % 2 == x[l] % 2).map(|lane| x[*lane]);
            let odd = if x[l] % 2 == 1 { with.sum() } else { with.max().unwrap() + 500 };
            let bits: u32 = lanes.iter().filter(|lane| x[**lane] > 50).map(|lane| 1 << (lane - first)).sum();
            let who = 8 * 256 + (l - first) as u32 * 4096 + l as u32 / 8 * 65536 + 3 * 1_048_576;
            [sum + before * 10_000, odd, 0, bits + who]
        })
        .collect();
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(SUBGROUPS)).unwrap();
        let x = device.buffer_from(&x).unwrap();
        let mut y = device.buffer_from(&vec![0u32; 80]).unwrap();
        kernel.launch().bind("x", &x).bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
        let found: Vec<u32> = y.read().unwrap();
        let found: Vec<[u32; 4]> = found.chunks(4).map(|row| row.try_into().unwrap()).collect();
        // A shuffle from an inactive lane is unspecified, so it is compared only if all lanes are active.
        let sums: Vec<u32> = found[8..16].iter().map(|row| row[2]).collect();
        let sum_of_whole: u32 = (8..16).map(|lane| (lane * 37 + 11) % 97).sum();
        assert_eq!(sums, [sum_of_whole; 8]);
        let found: Vec<[u32; 4]> = (0..20).filter(here).map(|l| [found[l][0], found[l][1], 0, found[l][3]]).collect();
        assert_eq!(found, expected, "{:?}", device.info().compiler);
    }
}

/// Subgroups diverge: loops with different trip counts and exits, a switch, a function that returns early.
const SUBGROUPS_APART: &str = "
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
fn until(id: u32, l: u32) -> u32 {
    var sum = 0u;
    for (var i = 0u; i < 9u; i++) {
        if (i > id + 2u) { return sum * 2u; }
        if (i == 1u) { continue; }
        sum += subgroupAdd(i + l % 2u);
    }
    return sum;
}
@compute @workgroup_size(24) fn main(@builtin(local_invocation_index) l: u32, @builtin(subgroup_id) id: u32) {
    var sum = until(id, l);
    switch (id) {
        case 0u, 7u: { sum += 1000u * subgroupAdd(1u); }
        case 1u: { if (l % 2u == 0u) { break; } sum += 1000u * subgroupAdd(2u); }
        default: { sum += 1000u * subgroupMax(l); }
    }
    var round = 0u;
    loop {
        if (round > 5u) { break; }
        sum += 100000u * subgroupMin(1u);
        continuing { round++; break if round > id * 2u; }
    }
    y[l] = sum;
}";

#[test]
fn subgroups_go_their_own_ways() {
    let expected: Vec<u32> = (0..24u32)
        .map(|l| {
            let id = l / 8;
            // Each iteration adds its number eight times, and one for each odd index.
            let until: u32 = (0..=id + 2).filter(|i| *i != 1).map(|i| 8 * i + 4).sum::<u32>() * 2;
            let case = match id {
                0 => 8,
                1 if l % 2 == 0 => 0,
                1 => 8,
                _ => 23,
            };
            until + case * 1000 + (id * 2 + 1).min(6) * 100_000
        })
        .collect();
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(SUBGROUPS_APART)).unwrap();
        let mut y = device.buffer_from(&[0u32; 24]).unwrap();
        kernel.launch().bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
        assert_eq!(y.read().unwrap(), expected, "{:?}", device.info().compiler);
    }
}

const MATMUL: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> n: u32;
var<workgroup> ta: array<f32, 256>;
var<workgroup> tb: array<f32, 256>;
@compute @workgroup_size(16, 16) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    var sum = 0.0;
    for (var t = 0u; t < (n + 15u) / 16u; t++) {
        let k = t * 16u;
        ta[l.y * 16u + l.x] = select(0.0, a[id.y * n + k + l.x], id.y < n && k + l.x < n);
        tb[l.y * 16u + l.x] = select(0.0, b[(k + l.y) * n + id.x], id.x < n && k + l.y < n);
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) { sum += ta[l.y * 16u + i] * tb[i * 16u + l.x]; }
        workgroupBarrier();
    }
    if (id.x < n && id.y < n) { c[id.y * n + id.x] = sum; }
}";

#[test]
fn a_tiled_product_with_barriers_in_a_loop() {
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(MATMUL)).unwrap();
        for n in [16usize, 33, 64] {
            let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
            let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32 - 2.0).collect();
            let (a_buffer, b_buffer) = (device.buffer_from(&a).unwrap(), device.buffer_from(&b).unwrap());
            let mut c = device.buffer_of::<f32>(n * n).unwrap();
            let groups = (n as u32).div_ceil(16);
            kernel
                .launch()
                .bind("a", &a_buffer)
                .bind("b", &b_buffer)
                .bind("c", &mut c)
                .value("n", n as u32)
                .grid(Grid::workgroups([groups, groups, 1]))
                .submit()
                .unwrap();
            let found = c.read().unwrap();
            for row in 0..n {
                for column in 0..n {
                    let expected: f32 = (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum();
                    assert_eq!(found[row * n + column], expected, "{n}: {row} {column}");
                }
            }
        }
    }
}

const REDUCE: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> total: atomic<u32>;
var<workgroup> part: array<u32, 128>;
@compute @workgroup_size(128) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    part[l] = select(0u, x[id.x], id.x < arrayLength(&x));
    workgroupBarrier();
    for (var step = 64u; step > 0u; step >>= 1u) {
        if (l < step) { part[l] += part[l + step]; }
        workgroupBarrier();
    }
    if (l == 0u) { atomicAdd(&total, part[0]); }
}";

#[test]
fn a_tree_of_sums_ends_in_an_atomic() {
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(REDUCE)).unwrap();
        let x: Vec<u32> = (0..10_000).map(|i| i * 7 % 101).collect();
        let (buffer, mut total) = (device.buffer_from(&x).unwrap(), device.buffer_from(&[0u32]).unwrap());
        kernel.launch().bind("x", &buffer).bind("total", &mut total).over(10_000).unwrap();
        assert_eq!(total.read().unwrap(), [x.iter().sum::<u32>()]);
    }
}

const WAYS: &str = "
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
fn collatz(start: u32) -> u32 {
    var n = start;
    var steps = 0u;
    loop {
        if (n <= 1u) { break; }
        if (n == 7u) { return 1000u + steps; }
        if (n % 2u == 0u) { n /= 2u; } else { n = 3u * n + 1u; }
        steps++;
    }
    return steps;
}
@compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = collatz(id.x);
    for (var i = 0u; i < id.x; i++) {
        if (i % 3u == 1u) { continue; }
        if (i > 20u) { break; }
        switch i % 4u { case 0u, 2u: { sum += i; } case 1u: { if (id.x % 2u == 0u) { break; } sum += 100u; } default: { sum += 7u; } }
    }
    y[id.x] = sum;
}";

#[test]
fn invocations_go_different_ways() {
    let collatz = |start: u32| {
        let (mut n, mut steps) = (start, 0);
        while n > 1 {
            if n == 7 {
                return 1000 + steps;
            }
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    let expected: Vec<u32> = (0..96u32)
        .map(|id| {
            let mut sum = collatz(id);
            for i in 0..id {
                if i % 3 == 1 {
                    continue;
                }
                if i > 20 {
                    break;
                }
                match i % 4 {
                    0 | 2 => sum += i,
                    1 if id % 2 == 0 => {}
                    1 => sum += 100,
                    _ => sum += 7,
                }
            }
            sum
        })
        .collect();
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(WAYS)).unwrap();
        let mut y = device.buffer_of::<u32>(96).unwrap();
        kernel.launch().bind("y", &mut y).over(96).unwrap();
        assert_eq!(y.read().unwrap(), expected);
    }
}

/// Invocations that return within a branch do not affect those that take the other one.
const PARTS: &str = "
struct Pair { first: i32, second: vec2<i32> }
@group(0) @binding(0) var<storage, read_write> y: array<i32>;
var<private> shared_by_all: array<i32, 3>;
fn add(to: ptr<function, i32>, x: i32) { *to += x; }
fn put(to: ptr<function, vec2<i32>>, i: i32, x: i32) { (*to)[i] = x; }
fn keep(to: ptr<private, i32>, x: i32) { *to = *to * 10 + x; }
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lid: u32) {
    let i = i32(lid);
    var pairs = array<Pair, 2>(Pair(1, vec2(2, 3)), Pair(4, vec2(5, 6)));
    var numbers = array<i32, 4>();
    add(&pairs[i % 2].first, 100 * i);
    put(&pairs[1].second, i, 7 * i);
    add(&numbers[i], 1);
    keep(&shared_by_all[i % 3], i);
    keep(&shared_by_all[i % 3], i);
    y[i] = pairs[0].first + pairs[1].first + 10000 * pairs[1].second.x + 1000000 * pairs[1].second.y
        + 100000000 * numbers[3] + shared_by_all[i % 3];
}";

/// Pointers to elements, some with indices out of bounds.
#[test]
fn functions_get_pointers_to_parts() {
    for device in devices() {
        let mut y = device.buffer_of::<i32>(8).unwrap();
        device.kernel(KernelSource::wgsl(PARTS)).unwrap().launch().bind("y", &mut y).over(8).unwrap();
        let expected: Vec<i32> = (0..8)
            .map(|i| {
                let second = if i == 0 { [0, 6] } else { [5, 7 * i] };
                let last = i32::from(i >= 3);
                5 + 100 * i + 10_000 * second[0] + 1_000_000 * second[1] + 100_000_000 * last + 11 * i
            })
            .collect();
        assert_eq!(y.read().unwrap(), expected);
    }
}

#[test]
fn others_go_on_where_all_of_a_branch_return() {
    const RETURNS: &str = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let v = y[id.x];
            if (v % 2u == 0u) { if (v < 100u) { y[id.x] = 1u; return; } } else { y[id.x] = 2u; }
            y[id.x] += 10u;
        }";
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(RETURNS)).unwrap();
        let mut y = device.buffer_from(&[0u32, 3, 2, 5, 4, 7, 6, 9, 0, 100, 1, 102, 2, 3, 104, 5]).unwrap();
        kernel.launch().bind("y", &mut y).over(16).unwrap();
        assert_eq!(y.read().unwrap(), [1, 12, 1, 12, 1, 12, 1, 12, 1, 110, 12, 112, 1, 12, 114, 12]);
    }
}

/// Code without active lanes accesses no memory, also in a loop that all have left.
#[test]
fn code_without_active_lanes_accesses_no_memory() {
    const GONE: &str = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            for (var k = 0u; k < 9u; k++) {
                if (id.x < 1000u) { y[id.x] = 5u; return; }
                y[id.x] = x[x[0]];
            }
        }";
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(GONE)).unwrap();
        let (x, mut y) = (device.buffer_from(&[0x1fff_ffffu32]).unwrap(), device.buffer_of::<u32>(16).unwrap());
        kernel.launch().bind("x", &x).bind("y", &mut y).over(16).unwrap();
        assert_eq!(y.read().unwrap(), [5; 16]);
    }
}

/// Compilation is deterministic, so cached code does not depend on when it was compiled.
#[test]
fn code_is_the_same_every_time() {
    const PRIVATES: &str = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<private> a: u32; var<private> b: vec2<u32>; var<private> c: vec3<u32>; var<private> d: vec4<u32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            a = i; b.y = i * 2u; c.z = i * 3u; d.w = i * 4u;
            workgroupBarrier();
            y[i] = a + b.y + c.z + d.w;
        }";
    for device in devices() {
        let key = KernelKey::new(&KernelSource::wgsl(PRIVATES), device.info()).unwrap();
        let program = KernelModule::new(&key, device.info()).unwrap();
        let codes: Vec<_> = (0..8).map(|_| device.api().translate(&program).unwrap().code).collect();
        assert!(codes.iter().all(|code| *code == codes[0]));
    }
}

/// An infinite loop is stopped, and reading its output is an error.
#[test]
fn a_loop_without_end_is_stopped() {
    const ENDLESS: &str = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8) fn main() { loop { if (y[0] == 7u) { break; } } }";
    let options = CpuOptions::new().time_limit(Some(Duration::from_millis(20)));
    let device = kiln_cpu::open(options).unwrap();
    let kernel = device.kernel(KernelSource::wgsl(ENDLESS).named("endless.wgsl")).unwrap();
    let mut y = device.buffer_from(&[0u32]).unwrap();
    let error = kernel.launch().bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert!(error.to_string().contains("`endless.wgsl` expected to end within 20ms"), "{error}");
    assert_eq!(y.read().unwrap_err().to_string(), error.to_string());
}

/// So is a long run without a loop or with few iterations: workgroups that copy much.
#[test]
fn work_without_a_loop_is_stopped_too() {
    let copies = |rounds: u32| {
        let copies = "b = a; a = b;".repeat(8);
        format!(
            "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
            var<private> a: array<u32, 16384>; var<private> b: array<u32, 16384>;
            @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                a[id.x % 16384u] = id.x;
                for (var round = 0u; round < {rounds}u; round++) {{ {copies} }}
                y[0] = a[5];
            }}"
        )
    };
    // Without a limit it takes minutes.
    for (rounds, groups) in [(1, 4096), (4096, 1)] {
        let device = kiln_cpu::open(CpuOptions::new().time_limit(Some(Duration::from_millis(50)))).unwrap();
        let kernel = device.kernel(KernelSource::wgsl(copies(rounds))).unwrap();
        let mut y = device.buffer_from(&[0u32]).unwrap();
        let began = std::time::Instant::now();
        let error = kernel.launch().bind("y", &mut y).grid(Grid::workgroups([groups, 1, 1])).submit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        // Far below the time of the whole run, also on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

fn double(device: &Device) -> Origin {
    let source = KernelSource::wgsl(SAXPY).named("saxpy.wgsl");
    let kernel = device.kernel(source).unwrap();
    let (x, mut y) = (device.buffer_from(&[1.0f32, 2.0]).unwrap(), device.buffer_from(&[0.0f32; 2]).unwrap());
    kernel.launch().bind("x", &x).bind("y", &mut y).value("alpha", 2.0f32).over(2).unwrap();
    assert_eq!(y.read().unwrap(), [2.0, 4.0]);
    kernel.origin()
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Machine code from disk runs without compiling; damaged bytes are a miss, and never run. Code for another SIMD
/// level has another key.
#[test]
fn machine_code_is_kept_on_disk_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let open = |options: CpuOptions| {
        let disk = DiskTier::new(directory.path().join("kernels"));
        kiln_cpu::open(options.kernels(KernelCacheOptions::new().disk(disk))).unwrap()
    };
    assert_eq!(double(&open(CpuOptions::new())), Origin::Compiled);
    let device = open(CpuOptions::new());
    assert_eq!(double(&device), Origin::Disk);
    assert_eq!(double(&open(CpuOptions::new().simd(SimdLevel::Scalar))), Origin::Compiled);
    drop(device);

    let mut damaged = 0;
    for path in files(directory.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.windows(7).any(|window| window == b"kilnjit") {
            let last = bytes.len() - 20;
            bytes[last] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 2, "one file for each kernel");
    assert_eq!(double(&open(CpuOptions::new())), Origin::Compiled);
    assert_eq!(double(&open(CpuOptions::new())), Origin::Disk);
}

/// Bitcasts of `f16` and `bool` to their own type, which naga accepts.
#[test]
fn bitcasts_of_halves_keep_them() {
    const BITCASTS: &str = "enable f16;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let halves = bitcast<vec2<f16>>(vec2<f16>(f16(y[id.x]), 0.5h));
            let is_large = bitcast<vec2<bool>>(halves > vec2<f16>(2.0h));
            y[id.x] = f32(bitcast<f16>(halves.x) + halves.y) + select(0.0, 100.0, is_large.x);
        }";
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(BITCASTS)).unwrap();
        let mut y = device.buffer_from(&[0.0f32, 1.0, 2.0, 3.0, -4.0, 5.0, 6.0, 7.0]).unwrap();
        kernel.launch().bind("y", &mut y).over(8).unwrap();
        assert_eq!(y.read().unwrap(), [0.5, 1.5, 2.5, 103.5, -3.5, 105.5, 106.5, 107.5]);
    }
}

/// A program with more conditions around barriers than fit in a page.
#[test]
fn decisions_around_barriers_are_as_many_as_the_program_has() {
    let branch = |place: u32| format!("if (n > {place}u) {{ y[i] += 1u; storageBarrier(); }}\n");
    let branches: String = (0..260).map(branch).collect();
    let program = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @group(0) @binding(1) var<uniform> n: u32;
        @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) {{ {branches} }}"
    );
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(program.as_str())).unwrap();
        let mut y = device.buffer_of::<u32>(16).unwrap();
        kernel.launch().bind("y", &mut y).value("n", 255u32).over(16).unwrap();
        assert_eq!(y.read().unwrap(), [255; 16]);
    }
}

/// Options change the code, not the results.
#[test]
fn optimisation_changes_the_code_and_not_the_results() {
    let n = 33usize;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
    for device in devices() {
        let mut codes = Vec::new();
        for optimisation in [Optimisation::None, Optimisation::Full] {
            let options = KernelOptions { optimisation, ..KernelOptions::default() };
            let source = KernelSource::wgsl(MATMUL).options(options);
            let key = KernelKey::new(&source, device.info()).unwrap();
            let program = KernelModule::new(&key, device.info()).unwrap();
            codes.push(device.api().translate(&program).unwrap().code);
            let kernel = device.kernel(source).unwrap();
            let (buffer, mut c) = (device.buffer_from(&a).unwrap(), device.buffer_of::<f32>(n * n).unwrap());
            let launch = kernel.launch().bind("a", &buffer).bind("b", &buffer).bind("c", &mut c).value("n", n as u32);
            launch.grid(Grid::workgroups([3, 3, 1])).submit().unwrap();
            let expected = |at: usize| (0..n).map(|k| a[at / n * n + k] * a[k * n + at % n]).sum::<f32>();
            assert_eq!(c.read().unwrap(), (0..n * n).map(expected).collect::<Vec<f32>>());
        }
        assert!(codes[0] != codes[1], "the same code");
    }
}

/// A buffer larger than the code can address is rejected by the launch, as on other devices.
#[test]
fn a_buffer_beyond_the_limit_of_bindings_is_refused() {
    let [device, _] = devices();
    let limits = &device.info().limits;
    assert_eq!(limits.max_binding_bytes, limits.max_buffer_bytes.min((1 << 31) - 16));
    if limits.max_binding_bytes == limits.max_buffer_bytes {
        // There is not enough memory for such a buffer.
        return;
    }
    let mut y = device.buffer(limits.max_binding_bytes + 16).unwrap();
    let kernel = device.kernel(KernelSource::wgsl(REDUCE)).unwrap();
    let mut total = device.buffer_from(&[0u32]).unwrap();
    let error = kernel.launch().bind("x", &mut y).bind("total", &mut total).over(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("expected at most 2147483632 bytes, found 2147483648"), "{error}");
}

/// Code is in memory that is executable and not writable; no memory is both.
#[cfg(target_os = "linux")]
#[test]
fn memory_of_code_is_not_writable() {
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let kernel = device.kernel(KernelSource::wgsl(SAXPY)).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // Not backed by a file: generated code.
    assert!(maps.lines().any(|line| line.contains(" r-xp ") && line.ends_with(" 0 ")), "{maps}");
    assert!(!maps.lines().any(|line| line.contains(" rwx")), "{maps}");
    drop(kernel);
}

/// A grid above the limit of an axis adds one value, bound after those of the kernel, whatever their binding numbers are.
#[test]
fn values_of_wide_grids_are_in_their_places() {
    let text = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @group(4294967295u) @binding(4294967295u) var<uniform> u: vec2<u32>;
        @group(4294967295u) @binding(0) var<uniform> v: array<vec4<u32>, 64>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
            if (g.x >= 69872u) { y[g.x - 69872u] = v[(g.x - 69872u) / 2u].x + u.y * g.x + n.x; }
        }";
    for device in devices() {
        let kernel = device.kernel(KernelSource::wgsl(text)).unwrap();
        let mut y = device.buffer_from(&[0u32; 128]).unwrap();
        let v: Vec<u32> = (0..256).map(|i| i * 1000).collect();
        let launch =
            kernel.launch().bind("y", &mut y).value("u", Value::slice(&[5u32, 7])).value("v", Value::slice(&v));
        launch.grid(Grid::workgroups([70_000, 1, 1])).submit().unwrap();
        let expected: Vec<u32> = (0..128).map(|i| i / 2 * 4000 + 7 * (69_872 + i) + 70_000).collect();
        assert_eq!(y.read().unwrap(), expected);
    }
}
