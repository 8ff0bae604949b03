//! WGSL kernels on the CPU device, compared with the GPU device (a software driver if there is no GPU): the same source,
//! the same buffers, in random order. `cargo bench -p kiln --bench wgsl`

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark prints and ends where it cannot go on"
)]

use kiln::Device;
use kiln::buffer::Buffer;
use kiln::cache::KernelCacheOptions;
use kiln::device::{CpuOptions, SimdLevel};
use kiln::kernel::{Grid, Kernel, KernelOptions, KernelSource};
use kiln_testkit::arms::{self, Quartiles};
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;
const BINS: usize = 256;
const ROUNDS: usize = 15;

const SAXPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = 2.0 * x[id.x] + y[id.x]; }
}";

const CHAIN: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&y)) { return; }
    let one = a[id.x];
    let other = b[id.x];
    y[id.x] = -min(max(abs((one * other + one) * 0.5 - other), one), 0.75);
}";

const MATMUL: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
override n: u32;
var<workgroup> ta: array<f32, 256>;
var<workgroup> tb: array<f32, 256>;
@compute @workgroup_size(16, 16) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    var sum = 0.0;
    for (var k = 0u; k < n; k += 16u) {
        ta[l.y * 16u + l.x] = a[id.y * n + k + l.x];
        tb[l.y * 16u + l.x] = b[(k + l.y) * n + id.x];
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) { sum += ta[l.y * 16u + i] * tb[i * 16u + l.x]; }
        workgroupBarrier();
    }
    c[id.y * n + id.x] = sum;
}";

const REDUCE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> part: array<f32, 256>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    part[l] = x[id.x];
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if (l < step) { part[l] += part[l + step]; }
        workgroupBarrier();
    }
    if (l == 0u) { y[group.x] = part[0]; }
}";

const HISTOGRAM: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>, 256>;
var<workgroup> local: array<atomic<u32>, 256>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    for (var i = 0u; i < 16u; i++) { atomicAdd(&local[x[id.x * 16u + i] & 255u], 1u); }
    workgroupBarrier();
    atomicAdd(&bins[l], atomicLoad(&local[l]));
}";

/// A kernel on a device, with its buffers.
struct Arm {
    device: Device,
    kernel: Kernel,
    inputs: Vec<Buffer>,
    output: Buffer,
    grid: Grid,
    compile: Duration,
}

/// Ends the benchmark if an output is wrong.
type Check = Box<dyn Fn(&[u32])>;

struct Case {
    name: &'static str,
    source: KernelSource,
    inputs: Vec<(&'static str, Vec<u32>)>,
    output: (&'static str, usize),
    grid: [u32; 3],
    check: Check,
}

impl Arm {
    fn new(device: &Device, case: &Case, bounds_checks: bool) -> Self {
        let source = case.source.clone().options(KernelOptions { bounds_checks, ..KernelOptions::default() });
        let began = Instant::now();
        let kernel = device.kernel(&source).unwrap();
        let compile = began.elapsed();
        let inputs = case.inputs.iter().map(|(_, data)| device.buffer_from(data).unwrap().as_bytes().clone()).collect();
        let output = device.buffer(4 * case.output.1 as u64).unwrap();
        let (device, grid) = (device.clone(), Grid::workgroups(case.grid));
        Self { device, kernel, inputs, output, grid, compile }
    }

    fn result(&self) -> Vec<u32> {
        self.output.clone().typed().unwrap().read().unwrap()
    }

    fn run(&mut self, case: &Case) -> Duration {
        self.output.zero().unwrap();
        self.device.synchronize().unwrap();
        let began = Instant::now();
        let mut launch = self.kernel.launch();
        for ((name, _), buffer) in case.inputs.iter().zip(&self.inputs) {
            launch = launch.bind(*name, buffer);
        }
        launch.bind(case.output.0, &mut self.output).grid(self.grid).submit().unwrap();
        self.device.synchronize().unwrap();
        began.elapsed()
    }
}

fn floats(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 37) % 101) as f32 * 0.01 - 0.5).collect()
}

fn words(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

fn cases() -> Vec<Case> {
    let (x, other) = (floats(LEN), floats(LEN + 5)[5..].to_vec());
    let near = |found: u32, expected: f64| {
        let found = f64::from(f32::from_bits(found));
        assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{found} {expected}");
    };
    let groups = (LEN / 64) as u32;
    let mut cases = vec![
        Case {
            name: "saxpy 1M",
            source: KernelSource::wgsl(SAXPY),
            inputs: vec![("x", words(&x))],
            output: ("y", LEN),
            grid: [groups, 1, 1],
            check: {
                let x = x.clone();
                Box::new(move |found| x.iter().zip(found).for_each(|(x, found)| near(*found, f64::from(*x) * 2.0)))
            },
        },
        Case {
            name: "chain of 8 ops 1M",
            source: KernelSource::wgsl(CHAIN),
            inputs: vec![("a", words(&x)), ("b", words(&other))],
            output: ("y", LEN),
            grid: [groups, 1, 1],
            check: {
                let (x, other) = (x.clone(), other.clone());
                Box::new(move |found| {
                    for ((a, b), found) in x.iter().zip(&other).zip(found) {
                        let (a, b) = (f64::from(*a), f64::from(*b));
                        near(*found, -((a * b + a) * 0.5 - b).abs().max(a).min(0.75));
                    }
                })
            },
        },
        Case {
            name: "tree reduction 1M",
            source: KernelSource::wgsl(REDUCE),
            inputs: vec![("x", words(&x))],
            output: ("y", LEN / 256),
            grid: [(LEN / 256) as u32, 1, 1],
            check: {
                let x = x.clone();
                Box::new(move |found| {
                    for (part, found) in x.chunks(256).zip(found) {
                        near(*found, part.iter().map(|x| f64::from(*x)).sum());
                    }
                })
            },
        },
        Case {
            name: "histogram 1M",
            source: KernelSource::wgsl(HISTOGRAM),
            inputs: vec![("x", (0..LEN as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 16).collect())],
            output: ("bins", BINS),
            grid: [(LEN / 4096) as u32, 1, 1],
            check: Box::new(|found| {
                let mut bins = [0; BINS];
                (0..LEN as u32).for_each(|i| bins[(i.wrapping_mul(2_654_435_761) >> 16 & 255) as usize] += 1);
                assert_eq!(found, bins);
            }),
        },
    ];
    for (name, n) in [("tiled matmul 256", 256usize), ("tiled matmul 512", 512)] {
        let (a, b) = (floats(n * n), floats(n * n + 5)[5..].to_vec());
        cases.push(Case {
            name,
            source: KernelSource::wgsl(MATMUL).constant("n", n as f64),
            inputs: vec![("a", words(&a)), ("b", words(&b))],
            output: ("c", n * n),
            grid: [(n / 16) as u32, (n / 16) as u32, 1],
            check: Box::new(move |found| {
                for row in (0..n).step_by(17) {
                    for column in 0..n {
                        near(
                            found[row * n + column],
                            (0..n).map(|k| f64::from(a[row * n + k]) * f64::from(b[k * n + column])).sum(),
                        );
                    }
                }
            }),
        });
    }
    cases
}

fn main() {
    let kernels = || KernelCacheOptions::new().without_disk();
    let timed = |open: &dyn Fn() -> kiln::Result<Device>| {
        let began = Instant::now();
        open().map(|device| (device, began.elapsed()))
    };
    let open_cpu = || Device::cpu_with(CpuOptions::new().kernels(kernels()));
    let starts = (0..9).map(|_| timed(&open_cpu).unwrap().1.as_secs_f64()).collect();
    let cpu = open_cpu().unwrap();
    let single = Device::cpu_with(CpuOptions::new().simd(SimdLevel::Scalar).kernels(kernels())).unwrap();
    let (gpu, gpu_start) = match timed(&|| Device::by_name_with("gpu", kernels())) {
        Ok(opened) => opened,
        Err(error) => return println!("no GPU device to compare with: {error}"),
    };
    println!("cpu: {}\ngpu: {}", cpu.info().name, gpu.info().name);
    let start = Duration::from_secs_f64(Quartiles::new(starts).median);
    println!("start: cpu {start:.1?}, gpu {gpu_start:.1?}, {:.0} times", gpu_start.as_secs_f64() / start.as_secs_f64());
    println!(
        "{:<20} {:>15} {:>15} {:>15} {:>15} {:>10}   {:>10} {:>12} {:>9}",
        "kernel", "cpu", "proofs trusted", "one by one", "gpu", "gpu / cpu", "compile", "gpu's first", "ratio"
    );
    for case in cases() {
        let arms = [(&cpu, true), (&cpu, false), (&single, true), (&gpu, true)];
        let mut arms = arms.map(|(device, bounds_checks)| Arm::new(device, &case, bounds_checks));
        let first: Vec<Duration> = arms.iter_mut().map(|arm| arm.run(&case)).collect();
        for arm in &arms {
            (case.check)(&arm.result());
        }
        let names = ["cpu", "proofs trusted", "one by one", "gpu"];
        let timed = |(name, arm)| {
            let (arm, case): (&mut Arm, &Case) = (arm, &case);
            arms::Arm::new(name, move || arm.run(case).as_secs_f64())
        };
        let results = arms::run(ROUNDS, &mut names.into_iter().zip(&mut arms).map(timed).collect::<Vec<_>>());
        for arm in &arms {
            (case.check)(&arm.result());
        }
        let [cpu_time, trusting_time, single_time, gpu_time] = names.map(|name| results.quartiles(name));
        // The latency of the first result.
        let (compile, ready) = (arms[0].compile, arms[3].compile + first[3]);
        let text = |Quartiles { low, median, high }| {
            format!("{:.2?} ±{:.0}%", Duration::from_secs_f64(median), (high - low) / median * 50.0)
        };
        println!(
            "{:<20} {:>15} {:>15} {:>15} {:>15} {:>10.2}   {compile:>10.1?} {ready:>12.1?} {:>9.2}",
            case.name,
            text(cpu_time),
            text(trusting_time),
            text(single_time),
            text(gpu_time),
            gpu_time.median / cpu_time.median,
            ready.as_secs_f64() / compile.as_secs_f64(),
        );
    }
}
