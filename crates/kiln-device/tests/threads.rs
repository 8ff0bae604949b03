//! Pools and buffers used by eight threads: no overlap, no leak, no double free, and the budget holds.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use kiln_device::memory::RawMemory;
use kiln_device::pool::Allocation;
use kiln_device::{Buffer, BufferOptions, Device, NullDevice, Pool, PoolConfig, PoolOptions, Usage, access_pair};
use kiln_ir::ErrorKind;
use kiln_resource_cache::MockClock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const THREADS: u64 = 8;

/// A small reproducible random number generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

fn null(divisible: bool) -> NullDevice {
    NullDevice::new().with_properties(|properties| properties.divisible = divisible)
}

/// An allocation with its pattern.
struct Filled {
    block: Allocation<NullDevice>,
    seed: u8,
}

impl Filled {
    fn new(block: Allocation<NullDevice>, seed: u8) -> Self {
        let mut access = block.access_mut(0..block.bytes());
        block.memory().map_mut(access.region_mut(), &mut |bytes| bytes.fill(seed)).unwrap();
        drop(access);
        Self { block, seed }
    }

    fn check(&self) {
        let access = self.block.access(0..self.block.bytes());
        let seed = self.seed;
        let check = &mut |bytes: &[u8]| assert!(bytes.iter().all(|byte| *byte == seed), "someone else wrote here");
        self.block.memory().map(access.region(), check).unwrap();
    }
}

/// Random sizes and lifetimes, frees on other threads than the allocations, a budget that is too small, and all other
/// pool operations at the same time.
#[test]
fn a_stressed_pool_neither_leaks_nor_overlaps() {
    const BUDGET: u64 = 8 << 20;
    for divisible in [false, true] {
        let null = null(divisible);
        let clock = MockClock::new();
        let config = PoolConfig { budget_bytes: Some(BUDGET), max_cached_per_class: 8, ..PoolConfig::default() };
        let options = PoolOptions::new().config(config).clock(clock.clone());
        let pool = Pool::new(Arc::new(null.clone()), options).unwrap();
        let exchange: Vec<Mutex<Option<Filled>>> = (0..64).map(|_| Mutex::new(None)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (pool, exchange) = (&pool, &exchange);
            let workers: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(move || work(pool, exchange, seed))).collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(null.live_bytes() <= BUDGET, "the driver gave more than the budget");
                    let numbers = pool.statistics();
                    assert!(numbers.bytes_reserved <= BUDGET && numbers.live_buffers <= 64 + THREADS * 33);
                    null.clear_records();
                }
            });
            scope.spawn(|| {
                for step in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    disturb(pool, &clock, step);
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        drop(exchange);
        let numbers = pool.statistics();
        assert_eq!((numbers.live_buffers, numbers.bytes_in_use, numbers.padding_bytes), (0, 0, 0));
        assert_eq!(numbers.bytes_reserved, numbers.bytes_cached + numbers.bytes_unused_slots);
        assert_eq!(numbers.bytes_reserved, null.live_bytes());
        assert!(pool.report().holders.is_empty() && numbers.allocation_count > 10_000);
        pool.clear().unwrap();
        assert_eq!(null.live_bytes(), 0);
        let numbers = pool.statistics();
        assert_eq!(numbers.driver_allocation_count, numbers.driver_release_count);
    }
}

fn work(pool: &Pool<NullDevice>, exchange: &[Mutex<Option<Filled>>], seed: u64) {
    let mut random = Random(seed);
    let mut own: Vec<Filled> = Vec::new();
    for step in 0..4_000_u64 {
        match random.below(10) {
            0..5 => {
                let bytes = if random.below(20) == 0 { random.below(200_000) } else { random.below(5_000) };
                let label = if step % 3 == 0 { "a" } else { "b" };
                match pool.allocate(BufferOptions::new(bytes).label(label)) {
                    Ok(block) => own.push(Filled::new(block, random.next() as u8)),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                        own.truncate(own.len() / 2);
                    }
                }
            }
            5..8 if !own.is_empty() => {
                let at = random.below(own.len() as u64) as usize;
                own.swap_remove(at).check();
            }
            _ => {
                // Another thread frees what this thread allocated, and vice versa.
                let slot = &exchange[random.below(exchange.len() as u64) as usize];
                let taken = std::mem::replace(&mut *slot.lock().unwrap(), own.pop());
                if let Some(taken) = taken {
                    taken.check();
                    let clone = taken.block.clone();
                    drop(taken);
                    drop(clone);
                }
            }
        }
        if own.len() > 32 {
            own.drain(..16).for_each(|filled| filled.check());
        }
    }
    own.iter().for_each(Filled::check);
}

fn disturb(pool: &Pool<NullDevice>, clock: &MockClock, step: u32) {
    match step % 6 {
        0 => drop(pool.cleanup(step.is_multiple_of(4))),
        1 => {
            clock.advance(Duration::from_secs(61));
            pool.maintain();
        }
        2 => drop(pool.defragment().unwrap()),
        3 => {
            let max_cached_per_class = 4 + step % 30;
            pool.set_config(PoolConfig { max_cached_per_class, ..pool.config() }).unwrap();
        }
        4 => drop(pool.pre_allocate(1000, 4)),
        _ => drop(pool.dashboard()),
    }
    std::thread::sleep(Duration::from_micros(300));
}

/// The limit of a class holds over all threads.
#[test]
fn limits_hold_over_all_threads() {
    for divisible in [false, true] {
        let options = PoolOptions::new().clock(MockClock::new());
        let config = PoolConfig { adaptive: false, ..PoolConfig::default() };
        let pool = Pool::new(Arc::new(null(divisible)), options.config(config)).unwrap();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let blocks: Vec<_> = (0..20).map(|_| pool.allocate(4096).unwrap()).collect();
                        barrier.wait();
                        drop(blocks);
                        let cached: u64 = pool.statistics().classes.iter().map(|class| class.cached_blocks).sum();
                        assert!(cached <= 32, "{cached} blocks are cached");
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!(pool.statistics().classes[0].cached_blocks, 32);
    }
}

/// A thread that only allocates reuses blocks of a thread that only frees.
#[test]
fn blocks_come_back_from_a_thread_that_only_frees() {
    let null = NullDevice::new();
    let pool = Pool::new(Arc::new(null.clone()), PoolOptions::new().clock(MockClock::new())).unwrap();
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Allocation<NullDevice>>(4);
    std::thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop));
        for _ in 0..5_000 {
            sender.send(pool.allocate(4096).unwrap()).unwrap();
        }
        drop(sender);
    });
    let numbers = pool.statistics();
    assert!(numbers.driver_request_count <= 32, "{} requests reached the driver", numbers.driver_request_count);
    assert_eq!((numbers.allocation_count, numbers.live_buffers), (5_000, 0));
}

/// Allocations continue while pools are closed on other threads; nothing leaks.
#[test]
fn blocks_outlive_their_pool_on_other_threads() {
    for divisible in [false, true] {
        for _ in 0..50 {
            let null = null(divisible);
            let pool = Pool::new(Arc::new(null.clone()), PoolOptions::new().clock(MockClock::new())).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4_u8 {
                    let pool = pool.clone();
                    scope.spawn(move || {
                        let kept: Vec<_> = (0..20).map(|_| Filled::new(pool.allocate(1000).unwrap(), thread)).collect();
                        drop(pool.allocate(5000).unwrap());
                        drop(pool);
                        kept.iter().for_each(Filled::check);
                    });
                }
                drop(pool);
            });
            assert_eq!(null.live_bytes(), 0);
        }
    }
}

/// Buffers of a closed device allocate and free staging on several threads; nothing leaks.
#[test]
fn staging_of_buffers_of_a_closed_pool_does_not_leak() {
    for _ in 0..30 {
        let null = NullDevice::new();
        let device = device(&null);
        let buffers: Vec<Buffer> = (0..4).map(|_| storage(&device, 1000)).collect();
        std::thread::scope(|scope| {
            for (thread, buffer) in buffers.into_iter().enumerate() {
                scope.spawn(move || {
                    for step in 0..30 {
                        let data = [(thread * 50 + step) as u8; 1000];
                        buffer.write(&data).unwrap();
                        assert_eq!(buffer.read().unwrap(), data);
                    }
                });
            }
            drop(device);
        });
        assert_eq!(null.live_bytes(), 0);
    }
}

/// Two devices at once: each pool has its own counts.
#[test]
fn devices_on_all_threads_have_separate_pools() {
    let nulls = [NullDevice::new(), NullDevice::new()];
    let devices = [device(&nulls[0]), device(&nulls[1])];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let devices = &devices;
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for step in 0..300_u32 {
                    let (from, to) = if step % 2 == 0 { (0, 1) } else { (1, 0) };
                    let bytes = random.below(3_000) + 1;
                    let (a, b) = (storage(&devices[from], bytes), devices[to].buffer(bytes).unwrap());
                    let data = vec![random.next() as u8; bytes as usize];
                    a.write(&data).unwrap();
                    a.copy_to(&b).unwrap();
                    assert_eq!(b.read().unwrap(), data);
                }
            });
        }
    });
    for (device, null) in devices.iter().zip(&nulls) {
        let numbers = device.buffer_pool_stats();
        assert_eq!((numbers.live_buffers, numbers.bytes_reserved), (0, null.live_bytes()));
        device.pool().clear().unwrap();
        assert_eq!(null.live_bytes(), 0);
    }
}

/// Bytes of one word are written by several threads at once, and none is lost.
#[test]
fn neighbours_in_one_word_do_not_overwrite_each_other() {
    let device = device(&NullDevice::new());
    let whole = storage(&device, 16);
    whole.write(&[0; 16]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let own = whole.slice(1 + thread..2 + thread).unwrap();
            scope.spawn(move || {
                for step in 0..200_u8 {
                    own.write(&[step]).unwrap();
                    assert_eq!(own.read().unwrap(), [step], "the byte of thread {thread}");
                }
            });
        }
    });
    let mut expected = [0; 16];
    expected[1..9].fill(199);
    assert_eq!(whole.read().unwrap(), expected);
}

/// Threads that lock the same two buffers in opposite directions do not deadlock.
#[test]
fn pairs_in_opposite_directions_do_not_deadlock() {
    let device = device(&NullDevice::new());
    let (a, b) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (from, to) = if thread % 2 == 0 { (&a, &b) } else { (&b, &a) };
            scope.spawn(move || {
                for _ in 0..20_000 {
                    drop(access_pair(from, to));
                }
            });
        }
    });
}

/// Submissions and moves at once: no submitted copy is lost.
#[test]
fn moving_while_submitting_loses_no_write() {
    let null = null(true);
    let device = device(&null);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let device = &device;
                scope.spawn(move || {
                    let mut random = Random(thread + 1);
                    for _ in 0..150 {
                        // A few buffers stay between many that are freed, so that there is something to move.
                        let mut buffers: Vec<Buffer> = (0..60).map(|_| device.buffer(1024).unwrap()).collect();
                        let source = device.buffer(1024).unwrap();
                        let data = [random.next() as u8; 1024];
                        source.write(&data).unwrap();
                        buffers.retain(|_| random.below(6) == 0);
                        buffers.iter().for_each(|buffer| source.copy_to(buffer).unwrap());
                        assert!(buffers.iter().all(|buffer| buffer.read().unwrap() == data));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                device.pool().defragment().unwrap();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(device.buffer_pool_stats().live_buffers, 0);
}

/// Statistics are read while maintenance runs: recent activity is never negative.
#[test]
fn statistics_and_maintenance_at_once() {
    let clock = MockClock::new();
    let pool = Pool::new(Arc::new(NullDevice::new()), PoolOptions::new().clock(clock.clone())).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..50_000).for_each(|_| drop(pool.allocate(256).unwrap())));
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                clock.advance(Duration::from_secs(61));
                pool.maintain();
            }
        });
        for _ in 0..2_000 {
            let numbers = pool.statistics();
            assert!(numbers.recent.allocation_count <= numbers.allocation_count);
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn device(null: &NullDevice) -> Device {
    null.clone().into_device_with(PoolOptions::new().clock(MockClock::new())).unwrap()
}

fn storage(device: &Device, bytes: u64) -> Buffer {
    device.buffer_with(BufferOptions::new(bytes).usage(Usage::Storage)).unwrap()
}
