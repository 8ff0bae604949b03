//! The maintenance thread with the system's clock: idle memory is released automatically, and the thread ends with the
//! pool.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use kiln_device::memory::{MemoryProperties, RawBlock, RawMemory, Region, RegionMut, Usage};
use kiln_device::{Device, NullDevice, Pool, PoolConfig, PoolOptions};
use kiln_ir::Result;
use kiln_resource_cache::MockClock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Serialises the tests, because they count the threads of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn device(null: &NullDevice, interval: Duration) -> Device {
    let config = PoolConfig { maintenance_interval: interval, ..PoolConfig::default() };
    null.clone().into_device_with(PoolOptions::new().config(config)).unwrap()
}

fn burst(device: &Device) {
    let buffers: Vec<_> = (0..32).map(|_| device.buffer(MIB).unwrap()).collect();
    drop(buffers);
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the number of maintenance threads of this process, if the system reports them.
fn maintenance_threads() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Some(names.filter(|name| name.trim() == "kiln-pool").count())
}

/// After a burst the memory is released without a request.
#[test]
fn idle_memory_is_released_automatically() {
    let _alone = alone();
    let null = NullDevice::new();
    let device = device(&null, Duration::from_millis(30));
    burst(&device);
    assert!(null.live_bytes() >= 32 * MIB || null.live_bytes() == 0, "one sweep may already have come");
    wait_until("the pool holds nothing", || null.live_bytes() == 0);
    let held = device.buffer(MIB).unwrap();
    burst(&device);
    wait_until("only live buffers are left", || null.live_bytes() == MIB);
    drop(held);
}

/// The thread starts with the first allocation and ends with the pool.
#[test]
fn the_thread_begins_with_memory_and_ends_with_the_pool() {
    let _alone = alone();
    let null = NullDevice::new();
    let device = device(&null, Duration::from_secs(3600));
    wait_until("there is no thread without memory", || maintenance_threads().unwrap_or(0) == 0);
    let buffer = device.buffer(MIB).unwrap();
    let prepared = self::device(&null, Duration::from_secs(3600));
    prepared.pool().pre_allocate(MIB, 1).unwrap();
    wait_until("there is one for each pool", || maintenance_threads().unwrap_or(2) == 2);
    let started = Instant::now();
    drop((device, prepared));
    assert!(started.elapsed() < Duration::from_secs(10), "the end does not wait for the interval");
    wait_until("the threads are gone", || maintenance_threads().unwrap_or(0) == 0);
    buffer.write(&[1; MIB as usize]).unwrap();
    drop(buffer);
    assert_eq!((null.live_bytes(), maintenance_threads().unwrap_or(0)), (0, 0));
}

/// A buffer that outlives its pool starts no thread when it needs staging.
#[test]
fn buffers_without_a_pool_start_no_thread() {
    let _alone = alone();
    let null = NullDevice::new();
    let device = device(&null, Duration::from_millis(10));
    let options = kiln_device::BufferOptions::new(100).usage(Usage::Storage);
    let buffer = device.buffer_with(options).unwrap();
    drop(device);
    buffer.write(&[1; 100]).unwrap();
    assert_eq!(buffer.read().unwrap(), [1; 100]);
    wait_until("no thread is left", || maintenance_threads().unwrap_or(0) == 0);
}

/// A new interval takes effect at once, not after the old one.
#[test]
fn a_new_interval_holds_at_once() {
    let _alone = alone();
    let null = NullDevice::new();
    let device = device(&null, Duration::from_secs(3600));
    burst(&device);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(null.live_bytes(), 32 * MIB);
    let config = PoolConfig { maintenance_interval: Duration::from_millis(20), ..device.pool().config() };
    device.pool().set_config(config).unwrap();
    wait_until("the pool holds nothing", || null.live_bytes() == 0);
}

/// A pool with its own clock has no thread.
#[test]
fn a_pool_with_a_clock_of_its_own_has_no_thread() {
    let _alone = alone();
    let null = NullDevice::new();
    let config = PoolConfig { maintenance_interval: Duration::from_millis(1), ..PoolConfig::default() };
    let options = PoolOptions::new().config(config).clock(MockClock::new());
    let device = null.clone().into_device_with(options).unwrap();
    burst(&device);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((null.live_bytes(), maintenance_threads().unwrap_or(0)), (32 * MIB, 0));
}

/// The thread and explicit calls of `maintain` do not interfere.
#[test]
fn everyone_may_maintain() {
    let _alone = alone();
    let null = NullDevice::new();
    let device = device(&null, Duration::from_millis(1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    drop(device.buffer(4096).unwrap());
                    device.pool().maintain();
                    device.pool().statistics();
                }
            });
        }
    });
    wait_until("the pool holds nothing", || null.live_bytes() == 0);
    assert_eq!(device.buffer_pool_stats().live_buffers, 0);
}

/// Memory that counts calls of `tidy`.
struct Tidied {
    null: NullDevice,
    calls: AtomicU64,
}

impl RawMemory for Tidied {
    fn properties(&self) -> MemoryProperties {
        self.null.properties()
    }

    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
        self.null.allocate(bytes, usage)
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.null.map(region, read)
    }

    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.null.map_mut(region, write)
    }

    fn tidy(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// `tidy` is called after idle blocks were released.
#[test]
fn the_memory_is_tidied_after_maintenance() {
    let _alone = alone();
    let memory = Arc::new(Tidied { null: NullDevice::new(), calls: AtomicU64::new(0) });
    let config = PoolConfig { maintenance_interval: Duration::from_millis(10), ..PoolConfig::default() };
    let pool = Pool::new(Arc::clone(&memory), PoolOptions::new().config(config)).unwrap();
    drop(pool.allocate(MIB).unwrap());
    wait_until("the memory was tidied after it came back", || {
        memory.null.live_bytes() == 0 && memory.calls.load(Ordering::Relaxed) > 0
    });
}
