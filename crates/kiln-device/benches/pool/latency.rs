//! The time of a warm allocation and free: the CPU device compared with mimalloc, the GPU device with wgpu.

use crate::Bench;
use crate::harness::report::{Checks, Number, Target, print_arms};
use kiln_device::{BufferOptions, Device, PoolOptions, Usage};
use kiln_gpu::GpuDevice;
use kiln_testkit::arms::{Arm, Results, on_threads, run as run_arms};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::time::Instant;

const PEER: &str = "mimalloc";
/// The alignment that every allocator provides by default, so that the peer takes its fastest path.
const MALLOC_ALIGNMENT: usize = 16;
const WARM_ROUNDS: usize = 3;
/// Blocks held at once in the arms that hold several.
const HELD: usize = 32;

/// The use of a block between its allocation and its free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Nothing.
    Plain,
    /// The first byte is written through the interface of the owner: a mapping on the device, a store elsewhere.
    Touched,
    /// Nothing, with [`HELD`] blocks allocated before the first is freed.
    Held,
}

pub(crate) fn run(bench: &mut Bench) {
    for bytes in [4 << 10, 64 << 10] {
        for threads in [1, 2] {
            for pattern in [Pattern::Plain, Pattern::Touched, Pattern::Held] {
                compare_with_mimalloc(bench, bytes, threads, pattern);
            }
        }
    }
    let Some(gpu) = bench.gpu() else { return };
    for usage in [Usage::Shared, Usage::Storage] {
        compare_with_wgpu(bench, &gpu, usage);
    }
}

/// At most three times the time of the fastest general allocator, which has no budget, labels or statistics.
fn compare_with_mimalloc(bench: &mut Bench, bytes: u64, threads: usize, pattern: Pattern) {
    let kib = bytes >> 10;
    let how = match pattern {
        Pattern::Plain => "",
        Pattern::Touched => ", first byte written",
        Pattern::Held => ", 32 held",
    };
    println!("latency: allocate + free of {kib} KiB{how}, {threads} thread(s), compared with mimalloc");
    let checks = Checks::default();
    let pairs = bench.effort.pick(8192, 4096, 256);
    let device = &bench.cpu(PoolOptions::new());
    let timed = |work: &(dyn Fn(usize) + Sync)| on_threads(threads, |_| work(HELD), |_| work(pairs)) / pairs as f64;
    let mut arms = [
        Arm::new("pool().allocate", || timed(&|pairs| through_pool(device, bytes, pairs, pattern, &checks))),
        Arm::new("device.buffer", || timed(&|pairs| through_buffers(device, bytes, pairs, pattern, &checks))),
        Arm::new(PEER, || timed(&|pairs| through_mimalloc(bytes, pairs, pattern, &checks))),
    ];
    // The pool adapts its limits to the workload.
    run_arms(WARM_ROUNDS, &mut arms);
    let before = device.buffer_pool_stats();
    let results = run_arms(bench.effort.pick(61, 15, 1), &mut arms);
    let after = device.buffer_pool_stats();
    checks.expect(after.bytes_in_use == 0);
    print_arms(&results);
    let reached_driver = after.driver_request_count - before.driver_request_count;
    for arm in ["pool().allocate", "device.buffer"] {
        if reached_driver * 1000 > after.allocation_count - before.allocation_count {
            bench.report.withhold(arm, &format!("{reached_driver} requests reached the driver, so it was not warm"));
        } else if pattern == Pattern::Touched {
            // The target is about allocation and free, and a mapping is more than that.
            let ratio = Number::of(results.ratio(arm, PEER), "x");
            bench.report.note(&format!("{arm} by {PEER}"), &ratio, &checks);
        } else {
            claim_ratio(bench, &results, arm, PEER, Target::AtMost(3.0), &checks);
        }
    }
}

/// Runs `pairs` allocations and frees, in the order of the pattern.
fn in_groups<T>(pairs: usize, pattern: Pattern, mut make: impl FnMut() -> T, mut end: impl FnMut(T)) {
    if pattern != Pattern::Held {
        for _ in 0..pairs {
            end(make());
        }
        return;
    }
    let mut held = Vec::with_capacity(HELD);
    for _ in 0..pairs / HELD {
        held.extend((0..HELD).map(|_| make()));
        held.drain(..).for_each(&mut end);
    }
}

fn through_pool(device: &Device, bytes: u64, pairs: usize, pattern: Pattern, checks: &Checks) {
    let pool = device.pool();
    let make = || {
        let allocation = pool.allocate(black_box(bytes)).unwrap();
        if pattern == Pattern::Touched {
            let mut access = allocation.access_mut(0..bytes);
            let mut written = false;
            let touch = &mut |bytes: &mut [u8]| {
                bytes[0] = 1;
                written = true;
            };
            allocation.memory().map_mut(access.region_mut(), touch).unwrap();
            checks.expect(written);
        }
        black_box(&allocation);
        allocation
    };
    in_groups(pairs, pattern, make, drop);
}

fn through_buffers(device: &Device, bytes: u64, pairs: usize, pattern: Pattern, checks: &Checks) {
    let make = || {
        let buffer = device.buffer(black_box(bytes)).unwrap();
        if pattern == Pattern::Touched {
            let len = buffer.map_write(|bytes| {
                bytes[0] = 1;
                bytes.len()
            });
            checks.expect(len.unwrap() as u64 == bytes);
        }
        black_box(&buffer);
        buffer
    };
    in_groups(pairs, pattern, make, drop);
}

fn through_mimalloc(bytes: u64, pairs: usize, pattern: Pattern, checks: &Checks) {
    let layout = Layout::from_size_align(black_box(bytes as usize), MALLOC_ALIGNMENT).unwrap();
    // SAFETY: the layout has a non-zero size.
    let allocate = || unsafe { MiMalloc.alloc(layout) };
    // SAFETY: the block came from this allocator with this layout, and is freed once.
    let free = |block| unsafe { MiMalloc.dealloc(block, layout) };
    // One block stays allocated, so that the peer keeps its page: releasing and taking it again is its slow path.
    let stays = allocate();
    let make = || {
        let block = allocate();
        checks.expect(!block.is_null());
        if pattern == Pattern::Touched {
            // SAFETY: the check above ensures that the block is not null, and it has at least one byte.
            unsafe { block.write_volatile(1) };
        }
        black_box(block)
    };
    in_groups(pairs, pattern, make, free);
    free(stays);
}

/// At least five times as fast as creating and destroying a wgpu buffer.
fn compare_with_wgpu(bench: &mut Bench, device: &Device, usage: Usage) {
    const BYTES: u64 = 4096;
    let options = BufferOptions::new(BYTES).usage(usage);
    let (Some(gpu), Ok(buffer)) = (GpuDevice::of(device), device.buffer_with(options)) else {
        println!("latency: {usage} memory on the GPU: not on this device");
        return;
    };
    let block = GpuDevice::wgpu_buffer(&buffer).unwrap().0;
    let descriptor =
        wgpu::BufferDescriptor { label: None, size: block.size(), usage: block.usage(), mapped_at_creation: false };
    drop(buffer);
    println!("latency: allocate + free of 4 KiB of {usage} memory on the GPU, compared with plain wgpu");
    let checks = Checks::default();
    let pairs = bench.effort.pick(512, 256, 16);
    let timed = |work: &dyn Fn()| {
        let began = Instant::now();
        (0..pairs).for_each(|_| work());
        // Deferred work of wgpu counts as well.
        gpu.wgpu_device().poll(wgpu::PollType::Poll).unwrap();
        began.elapsed().as_nanos() as f64 / f64::from(pairs)
    };
    let kiln = || {
        let buffer = device.buffer_with(options).unwrap();
        checks.expect(black_box(&buffer).bytes() == BYTES);
    };
    let wgpu = || {
        let buffer = gpu.wgpu_device().create_buffer(&descriptor);
        checks.expect(black_box(&buffer).size() >= BYTES);
        buffer.destroy();
    };
    let before = device.buffer_pool_stats().driver_request_count;
    let rounds = bench.effort.pick(61, 15, 1);
    let results =
        run_arms(rounds, &mut [Arm::new("device.buffer", || timed(&kiln)), Arm::new("wgpu", || timed(&wgpu))]);
    checks.expect(device.api().fault().is_none());
    print_arms(&results);
    let reached_driver = device.buffer_pool_stats().driver_request_count - before;
    if reached_driver > 0 {
        let reason = format!("{reached_driver} requests reached the driver, so it was not warm");
        bench.report.withhold("device.buffer", &reason);
        return;
    }
    claim_ratio(bench, &results, "wgpu", "device.buffer", Target::AtLeast(5.0), &checks);
}

fn claim_ratio(bench: &mut Bench, results: &Results, name: &str, base: &str, target: Target, checks: &Checks) {
    let number = Number::of(results.ratio(name, base), "x");
    bench.report.claim(&format!("{name} by {base}"), &number, target, checks);
}
