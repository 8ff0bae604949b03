//! Fifty kernels: in a new process from a warm and a cold disk tier, and on one and on all threads.

use crate::Bench;
use crate::harness::report::{Checks, Number, Target, print_arms};
use crate::subjects::{chain, double, doubles, output};
use crate::tiers::device_with_disk;
use kiln_device::KernelSource;
use kiln_gpu::GpuOptions;
use kiln_testkit::arms::{Arm, Quartiles, run as run_arms};
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The directory of the disk tier. If set, this program is the child process that is measured.
pub(crate) const CHILD: &str = "KILN_BENCH_KERNELS_CHILD";

const KERNELS: usize = 50;

fn kernels() -> Vec<KernelSource> {
    (0..KERNELS).map(|number| chain(48, number)).collect()
}

/// The child: gets all kernels on one thread, and prints nanoseconds, disk hits, compiles and the result of one kernel.
pub(crate) fn child(directory: &OsStr) -> ExitCode {
    let device = device_with_disk(Path::new(directory));
    let sources = kernels();
    let began = Instant::now();
    let found: Vec<_> = sources.into_iter().map(|source| device.kernel(source).unwrap()).collect();
    let nanoseconds = began.elapsed().as_nanos();
    let counts = device.kernel_cache_stats();
    let computed =
        output(&device, chain(48, 7)).iter().fold(0u64, |sum, value| sum.rotate_left(5) ^ u64::from(value.to_bits()));
    println!("{nanoseconds} {} {} {}", counts.disk_hits, counts.compiles, computed >> 16);
    ExitCode::from(u8::from(found.len() != KERNELS || !doubles(&device, double())))
}

pub(crate) fn run(bench: &mut Bench) {
    println!("start: {KERNELS} kernels of 48 lines each");
    fresh_process(bench);
    parallel(bench);
}

fn fresh_process(bench: &mut Bench) {
    let warm = tempfile::tempdir().unwrap();
    let checks = Checks::default();
    let computed = std::cell::Cell::new(None);
    let spawn = |directory: &Path, disk_hits: usize| {
        let began = Instant::now();
        let output = Command::new(std::env::current_exe().unwrap()).env(CHILD, directory).output().unwrap();
        let whole = began.elapsed().as_nanos() as f64;
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let expected = [disk_hits as f64, (KERNELS - disk_hits) as f64];
        checks.expect(output.status.success() && numbers.get(1..3) == Some(&expected[..]));
        // All processes must compute what the first one computed.
        let reference = computed.get().unwrap_or(numbers[3]);
        computed.set(Some(reference));
        checks.expect(numbers[3] == reference);
        (numbers[0], whole)
    };
    spawn(warm.path(), 0);
    let mut whole = (Vec::new(), Vec::new());
    let mut arms = [
        Arm::new("kernels from a warm disk", || {
            let (kernels, process) = spawn(warm.path(), KERNELS);
            whole.0.push(process);
            kernels
        }),
        Arm::new("kernels with a cold disk", || {
            let (kernels, process) = spawn(tempfile::tempdir().unwrap().path(), 0);
            whole.1.push(process);
            kernels
        }),
    ];
    let results = run_arms(bench.effort.pick(9, 5, 1), &mut arms);
    drop(arms);
    print_arms(&results);
    let ratio = results.ratio("kernels with a cold disk", "kernels from a warm disk");
    let what = "fresh process, kernels: cold against warm disk";
    bench.report.claim(what, &Number::of(ratio, "x"), Target::AtLeast(1.2), &checks);
    let ratio = Quartiles::new(whole.1).median / Quartiles::new(whole.0).median;
    bench.report.note("the whole process, with opening the device", &Number::new(ratio, "x"), &checks);
}

fn parallel(bench: &mut Bench) {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let device = kiln_gpu::open(0, GpuOptions::new()).unwrap();
    let (sources, checks) = (kernels(), Checks::default());
    let compile = |threads: NonZeroUsize| {
        device.clear_kernels();
        let began = Instant::now();
        let report = device.warm_kernels(&sources, Some(threads));
        checks.expect((report.compiled, report.failed.len()) == (KERNELS, 0));
        began.elapsed().as_nanos() as f64
    };
    let mut arms = [
        Arm::new("compile on one thread", || compile(NonZeroUsize::MIN)),
        Arm::new("compile on all cores", || compile(cores)),
    ];
    let results = run_arms(bench.effort.pick(15, 5, 1), &mut arms);
    drop(arms);
    checks.expect(doubles(&device, double()));
    print_arms(&results);
    let ratio = results.ratio("compile on one thread", "compile on all cores");
    let what = format!("parallel against serial compile, {cores} cores");
    bench.report.claim(&what, &Number::of(ratio, "x"), Target::AtLeast(1.5), &checks);
}
