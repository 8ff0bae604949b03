//! Eight threads with random sizes and lifetimes: nothing leaks or overlaps, and the budget holds.

use crate::Bench;
use crate::harness::report::Checks;
use crate::resident;
use kiln_device::{Buffer, Bytes, Device, PoolConfig, PoolOptions};
use kiln_ir::ErrorKind;
use kiln_testkit::Rng;
use kiln_testkit::arms::on_threads;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: usize = 8;
/// The maximum number of buffers of a thread, and of those that wait to be freed by another thread.
const HELD: usize = 64;
const EXCHANGED: usize = 64;
const LARGEST_LOG2: usize = 18;
/// A budget with room for everything, and one so small that the pool constantly releases blocks and even refuses
/// requests.
const ROOMY_BYTES: u64 = 256 << 20;
const TIGHT_BYTES: u64 = 16 << 20;
/// Resident memory outside of the pool: stacks and heaps of the threads.
const STACKS_BYTES: u64 = 8 << 20;

/// A buffer filled with a unique number.
struct Held {
    buffer: Buffer,
    stamp: u64,
}

/// The state that the threads share.
struct Shared {
    device: Device,
    exchange: Vec<Mutex<Option<Held>>>,
    checks: Checks,
    refused: AtomicU64,
    stamps: AtomicU64,
}

/// With eight threads nothing leaks, no block is allocated twice at a time, and the budget is never exceeded.
pub(crate) fn run(bench: &mut Bench) {
    run_with(bench, bench.effort.pick(1_000_000, 200_000, 20_000), ROOMY_BYTES);
    run_with(bench, bench.effort.pick(100_000, 20_000, 10_000), TIGHT_BYTES);
}

fn run_with(bench: &mut Bench, operations: usize, budget: u64) {
    println!(
        "stress: {THREADS} threads, {operations} operations, 1 B to {}, budget {}, contents written and checked in full",
        Bytes(1 << LARGEST_LOG2),
        Bytes(budget)
    );
    let config = PoolConfig { budget_bytes: Some(budget), ..PoolConfig::default() };
    let shared = Shared {
        device: bench.cpu(PoolOptions::new().config(config)),
        exchange: (0..EXCHANGED).map(|_| Mutex::new(None)).collect(),
        checks: Checks::default(),
        refused: AtomicU64::new(0),
        stamps: AtomicU64::new(1),
    };
    let (nanos, watched) =
        watch(&shared.device, || on_threads(THREADS, |_| {}, |thread| shared.work(thread, operations / THREADS)));
    shared.exchange.iter().for_each(|slot| shared.end(slot.lock().unwrap().take()));
    let statistics = shared.device.buffer_pool_stats();
    println!(
        "  {:.2} million operations per second, hit rate {:.1} %, {} requests, {} refused, {} cleanups by pressure",
        operations as f64 * 1000.0 / nanos,
        100.0 * statistics.hit_rate,
        statistics.allocation_count,
        shared.refused.load(Ordering::Relaxed),
        statistics.pressure_cleanup_count,
    );
    println!(
        "  in use at most {}, reserved at most {}, resident at most {:.1} MiB above the start",
        Bytes(statistics.peak_bytes),
        Bytes(statistics.peak_reserved_bytes),
        resident::mib(watched.resident)
    );
    let report = &mut bench.report;
    report.check("no overlap: every byte as it was written", shared.checks.failed() == 0);
    report.check("no leak: nothing in use at the end", (statistics.bytes_in_use, statistics.live_buffers) == (0, 0));
    let within = watched.reserved.max(statistics.peak_reserved_bytes) <= budget;
    report.check("budget never exceeded, by the pool's numbers", within);
    report.check("budget never exceeded, by the system's", watched.resident <= budget + STACKS_BYTES);
    let cleared = shared.device.pool().clear().is_ok() && shared.device.buffer_pool_stats().bytes_reserved == 0;
    report.check("nothing reserved after clear", cleared);
}

impl Shared {
    fn work(&self, thread: usize, operations: usize) {
        let mut random = Rng::new(thread as u64);
        let mut held: Vec<Option<Held>> = (0..HELD).map(|_| None).collect();
        for _ in 0..operations {
            let slot = &mut held[random.below(HELD)];
            if slot.is_none() {
                *slot = self.make(&mut random);
            } else if random.below(4) == 0 {
                // Another thread frees it.
                let left = std::mem::replace(&mut *self.exchange[random.below(EXCHANGED)].lock().unwrap(), slot.take());
                self.end(left);
            } else {
                self.end(slot.take());
            }
        }
        held.into_iter().for_each(|held| self.end(held));
    }

    fn make(&self, random: &mut Rng) -> Option<Held> {
        // Uniform in the logarithm, so that small size classes occur as often as large ones.
        let below = 1 << (1 + random.below(LARGEST_LOG2));
        let bytes = (1 + random.below(below)) as u64;
        let buffer = match self.device.buffer(bytes) {
            Ok(buffer) => buffer,
            Err(error) => {
                self.checks.expect(error.kind() == ErrorKind::OutOfMemory);
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        };
        self.checks.expect(buffer.bytes() == bytes);
        // An odd multiplier is a bijection, so stamps stay unique, and small numbers differ in the high bytes as well.
        let stamp = self.stamps.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        buffer.map_write(|bytes| fill(bytes, stamp)).unwrap();
        Some(Held { buffer, stamp })
    }

    fn end(&self, held: Option<Held>) {
        let Some(Held { buffer, stamp }) = held else { return };
        self.checks.expect(buffer.map_read(|bytes| is_filled(bytes, stamp)).unwrap());
    }
}

fn fill(bytes: &mut [u8], stamp: u64) {
    let stamp = stamp.to_le_bytes();
    let mut words = bytes.chunks_exact_mut(stamp.len());
    words.by_ref().for_each(|word| word.copy_from_slice(&stamp));
    let rest = words.into_remainder();
    rest.copy_from_slice(&stamp[..rest.len()]);
}

fn is_filled(bytes: &[u8], stamp: u64) -> bool {
    let stamp = stamp.to_le_bytes();
    let words = bytes.chunks_exact(stamp.len());
    let rest = words.remainder();
    // Without an early exit, so that the loop runs at memory speed.
    let wrong = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()) ^ u64::from_ne_bytes(stamp));
    wrong.fold(0, |all, wrong| all | wrong) == 0 && *rest == stamp[..rest.len()]
}

/// The peaks observed during a run.
struct Watched {
    reserved: u64,
    resident: u64,
}

/// Samples the reserved and additional resident bytes while `work` runs.
fn watch(device: &Device, work: impl FnOnce() -> f64) -> (f64, Watched) {
    let (done, start) = (AtomicBool::new(false), resident::bytes());
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Watched { reserved: 0, resident: 0 };
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                seen.reserved = seen.reserved.max(device.buffer_pool_stats().bytes_reserved);
                let more = resident::bytes().zip(start).map_or(0, |(now, start)| now.saturating_sub(start));
                seen.resident = seen.resident.max(more);
            }
            seen
        });
        let nanos = work();
        done.store(true, Ordering::Relaxed);
        (nanos, watcher.join().expect("watching does not panic"))
    })
}
