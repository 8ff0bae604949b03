//! Memory hit, disk hit, compile.

use crate::Bench;
use crate::harness::report::{Checks, Number, Target, print_arms};
use crate::subjects::{chain, double, doubles, matmul, output, with_library};
use kiln_device::{Device, DiskTier, KernelCacheOptions, KernelKey, KernelModule, KernelSource, Origin};
use kiln_gpu::GpuOptions;
use kiln_testkit::arms::{Arm, run as run_arms};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

pub(crate) fn device_with_disk(directory: &Path) -> Device {
    let kernels = KernelCacheOptions::new().disk(DiskTier::new(directory.join("kernels")));
    kiln_gpu::open(0, GpuOptions::new().kernels(kernels)).unwrap()
}

/// A memory hit through a prepared kernel.
pub(crate) fn memory(bench: &mut Bench) {
    let neighbours = bench.effort.pick(200, 50, 4);
    println!("memory: a kernel from the memory tier, {neighbours} others in it");
    let device = kiln_gpu::open(0, GpuOptions::new()).unwrap();
    let others: Vec<KernelSource> = (0..neighbours).map(|number| chain(1, number)).collect();
    device.warm_kernels(&others, None);
    let prepared = device.prepare(&double()).unwrap();
    let checks = Checks::default();
    checks.expect(doubles(&device, double()));
    let (source, operations) = (double(), bench.effort.pick(20_000, 5_000, 10));
    let timed = |work: &dyn Fn()| {
        let began = Instant::now();
        (0..operations).for_each(|_| work());
        began.elapsed().as_nanos() as f64 / f64::from(operations)
    };
    let before = device.kernel_cache_stats();
    let mut arms = [
        Arm::new("prepared kernel", || timed(&|| drop(black_box(prepared.kernel().unwrap())))),
        Arm::new("by source, hashed each time", || timed(&|| drop(black_box(device.kernel(source.clone()).unwrap())))),
    ];
    let results = run_arms(bench.effort.pick(41, 11, 1), &mut arms);
    drop(arms);
    let after = device.kernel_cache_stats();
    checks.expect(after.compiles == before.compiles && after.memory_hits > before.memory_hits);
    print_arms(&results);
    let hit = results.quartiles("prepared kernel");
    bench.report.claim("memory hit by a prepared kernel", &Number::of(hit, "ns"), Target::AtMost(200.0), &checks);
}

/// The time saved by a disk hit, for each kernel, and the breakdown of the rest.
pub(crate) fn disk(bench: &mut Bench) {
    println!("disk: a kernel from the disk tier against a compile of its source, both until it can be launched");
    let directory = tempfile::tempdir().unwrap();
    let (warm, cold) = (device_with_disk(directory.path()), kiln_gpu::open(0, GpuOptions::new()).unwrap());
    let library = with_library();
    let claimed = library.name().to_string();
    for source in [double(), chain(64, 0), matmul(), library] {
        let name = source.name().to_string();
        let checks = Checks::default();
        // Also stores the kernel.
        checks.expect(output(&warm, source.clone()) == output(&cold, source.clone()));
        let timed = |device: &Device, origin: Origin| {
            // Otherwise the memory tier would answer.
            device.clear_kernels();
            let began = Instant::now();
            let kernel = device.kernel(source.clone()).unwrap();
            let nanoseconds = began.elapsed().as_nanos() as f64;
            checks.expect(kernel.origin() == origin);
            nanoseconds
        };
        let translate = || {
            let began = Instant::now();
            let key = KernelKey::new(&source, cold.info()).unwrap();
            let program = KernelModule::new(&key, cold.info()).unwrap();
            black_box(cold.api().translate(&program).unwrap());
            began.elapsed().as_nanos() as f64
        };
        let mut arms = [
            Arm::new("compile", || timed(&cold, Origin::Compiled)),
            Arm::new("disk hit", || timed(&warm, Origin::Disk)),
            Arm::new("of a compile: parse and translate", translate),
        ];
        let results = run_arms(bench.effort.pick(31, 9, 1), &mut arms);
        drop(arms);
        warm.clear_kernels();
        checks.expect(output(&warm, source.clone()) == output(&cold, source.clone()));
        println!(" {name}, {} bytes of WGSL", source.text().len());
        print_arms(&results);
        let saved = Number::of(results.ratio("compile", "disk hit"), "x");
        if name == claimed {
            bench.report.claim("disk hit against compile", &saved, Target::AtLeast(3.0), &checks);
        } else {
            bench.report.note("disk hit against compile", &saved, &checks);
        }
    }
    let blobs = stored_blobs(&warm);
    println!(" the driver's own blob: kept for {} of {} kernels ({} bytes)", blobs.0, blobs.1, blobs.2);
}

/// Returns how many stored kernels have a driver blob, their total number, and the bytes of the blobs.
fn stored_blobs(device: &Device) -> (usize, usize, usize) {
    let store = device.kernel_store().unwrap();
    let payloads = store.entries().unwrap().into_iter().filter_map(|entry| store.get(&entry.key).into_payload());
    // The blob is the last of four parts, each preceded by its length.
    let blobs = payloads.map(|payload| {
        let mut rest = &payload[..];
        let mut last = 0;
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            last = u64::from_le_bytes(*length) as usize;
            rest = &after[last..];
        }
        last
    });
    blobs.fold((0, 0, 0), |(kept, all, bytes), blob| (kept + usize::from(blob > 0), all + 1, bytes + blob))
}
