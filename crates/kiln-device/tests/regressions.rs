//! Regression tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use kiln_device::memory::{MemoryProperties, RawBlock, Region, RegionMut};
use kiln_device::{
    Buffer, Command, CommandList, Device, DeviceApi, DeviceInfo, NullDevice, Pool, PoolConfig, PoolOptions, RawMemory,
    Usage,
};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_resource_cache::MockClock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn divisible() -> NullDevice {
    NullDevice::new().with_properties(|properties| properties.divisible = true)
}

fn staged() -> NullDevice {
    NullDevice::new().with_properties(|properties| properties.default_usage = Usage::Storage)
}

fn with_budget(bytes: u64) -> PoolOptions {
    PoolOptions::new().config(PoolConfig { budget_bytes: Some(bytes), ..PoolConfig::default() })
}

fn buffers(device: &Device, bytes: u64, count: usize) -> Vec<Buffer> {
    (0..count).map(|_| device.buffer(bytes).unwrap()).collect()
}

/// Returns the number of requests that reach the driver while `work` runs.
fn driver_requests(device: &Device, work: impl FnOnce()) -> u64 {
    let before = device.buffer_pool_stats().driver_request_count;
    work();
    device.buffer_pool_stats().driver_request_count - before
}

/// A slot is not reused while work uses it, however many are freed at once.
#[test]
fn a_busy_slot_is_not_reused() {
    let null = divisible().manual_completion();
    let device = null.clone().into_device().unwrap();
    let old = buffers(&device, 4096, 60);
    let mut commands = CommandList::new();
    old.iter().for_each(|buffer| commands.zero(buffer).unwrap());
    let submission = device.submit(commands).unwrap();
    drop(old);
    let new = buffers(&device, 4096, 60);
    new.iter().for_each(|buffer| buffer.write(&[7; 4096]).unwrap());
    null.complete(submission);
    assert!(new.iter().all(|buffer| buffer.read().unwrap() == [7; 4096]));
}

/// Memory that work still uses counts against the budget; the pool waits instead of allocating more.
#[test]
fn the_budget_holds_with_work_in_flight() {
    let null = NullDevice::new().manual_completion();
    let device = null.clone().into_device_with(with_budget(64 * MIB)).unwrap();
    for _ in 0..300 {
        device.buffer(MIB).unwrap().zero().unwrap();
        assert!(null.live_bytes() <= 64 * MIB);
    }
    let statistics = device.buffer_pool_stats();
    assert_eq!(statistics.bytes_reserved, null.live_bytes());
    assert!(statistics.reuse_count > 200, "{}", statistics.summary_line());
}

/// Preallocated blocks are not displaced, and a preallocation does not fail because another shard holds unused permits.
#[test]
fn prepared_blocks_are_there() {
    let device = NullDevice::new().into_device().unwrap();
    assert_eq!(device.pool().pre_allocate(MIB, 100).unwrap(), 100);
    assert_eq!(device.buffer_pool_stats().bytes_cached, 100 * MIB);

    let held = std::thread::scope(|scope| {
        let use_twice = || {
            drop(buffers(&device, 65536, 32));
            buffers(&device, 65536, 32)
        };
        scope.spawn(use_twice).join().unwrap()
    });
    assert_eq!(device.pool().pre_allocate(65536, 32).unwrap(), 32);
    drop(held);
}

/// Live buffers alone may exceed the pressure threshold; the remaining memory still serves temporaries without the
/// driver.
#[test]
fn live_buffers_above_the_pressure_do_not_make_a_pool_thrash() {
    for held in [600, 700, 750] {
        let device = NullDevice::new().into_device().unwrap();
        let _weights = buffers(&device, 50 * MIB, held / 50);
        let requests = driver_requests(&device, || (0..50).for_each(|_| drop(buffers(&device, 65536, 100))));
        assert!(requests < 1000, "{requests} of 5000 requests reached the driver with {held} of 1024 MiB held");
    }
}

/// Unused slots between live ones cannot be displaced, so they must not count as displaceable.
#[test]
fn pinned_slabs_do_not_make_a_pool_thrash() {
    let clock = MockClock::new();
    let device = divisible().into_device_with(PoolOptions::new().clock(clock.clone())).unwrap();
    let live: Vec<Buffer> = buffers(&device, 4096, 20_000).into_iter().step_by(64).collect();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(61));
        device.pool().maintain();
    }
    let rotate = || {
        for megabytes in [1, 2, 3] {
            drop(device.buffer(megabytes * MIB).unwrap());
        }
    };
    let requests = driver_requests(&device, || (0..100).for_each(|_| rotate()));
    assert!(requests <= 10, "{requests} of 300 requests reached the driver with {} live slots", live.len());
}

/// Maintenance in a quiet moment does not release what busy moments need.
#[test]
fn a_maintenance_between_frames_keeps_the_working_set() {
    let clock = MockClock::new();
    let device = NullDevice::new().into_device_with(PoolOptions::new().clock(clock.clone())).unwrap();
    let frame = || drop(buffers(&device, 10 * MIB, 30));
    (0..5).for_each(|_| frame());
    for other in 0..3 {
        clock.advance(Duration::from_secs(61));
        device.pool().maintain();
        drop(device.buffer(100_000 + other * 20_000).unwrap());
        assert_eq!(driver_requests(&device, frame), 0, "after maintenance {other}");
    }
}

/// A request that fits is served, even if its class does not fit.
#[test]
fn a_class_larger_than_the_budget_does_not_refuse_a_request_that_fits() {
    let device = NullDevice::new().into_device_with(with_budget(100 * MIB)).unwrap();
    assert_eq!(device.buffer(97 * MIB).unwrap().bytes(), 97 * MIB);
    assert_eq!(device.buffer(101 * MIB).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// Freeing one slot is enough for a request of its class, although work still uses it and the budget is used up.
#[test]
fn a_slot_that_becomes_free_serves_the_next_request() {
    let null = divisible().manual_completion();
    let device = null.into_device_with(with_budget(256 << 10)).unwrap();
    let mut live: Vec<Buffer> = std::iter::from_fn(|| device.buffer(256).ok()).collect();
    let last = live.pop().unwrap();
    last.zero().unwrap();
    drop(last);
    device.buffer(256).unwrap();
}

#[test]
fn empty_typed_buffers_can_be_mapped() {
    for null in [NullDevice::new(), staged()] {
        let device = null.into_device().unwrap();
        let buffer = device.buffer_of::<f64>(0).unwrap();
        assert_eq!(buffer.map_read(<[f64]>::len).unwrap(), 0);
        assert_eq!(buffer.map_write(|elements| elements.len()).unwrap(), 0);
        assert!(buffer.read().unwrap().is_empty());
    }
}

/// A staged transfer does not need a staging buffer as large as the buffer.
#[test]
fn a_buffer_that_fills_most_of_the_budget_can_be_written_read_and_moved() {
    let device = staged().into_device_with(with_budget(240 * MIB)).unwrap();
    let buffer = device.buffer(100 * MIB + 3).unwrap();
    let data: Vec<u8> = (0..buffer.bytes()).map(|at| (at % 251) as u8).collect();
    buffer.write(&data).unwrap();
    assert!(buffer.read().unwrap() == data);

    // Both directions, overlapping, in several pieces.
    let end = 100 * MIB;
    buffer.slice(..end - 64).unwrap().copy_to(&buffer.slice(64..end).unwrap()).unwrap();
    let mut expected = data;
    expected.copy_within(..(end - 64) as usize, 64);
    assert!(buffer.read().unwrap() == expected);
    buffer.slice(64..end).unwrap().copy_to(&buffer.slice(..end - 64).unwrap()).unwrap();
    expected.copy_within(64..end as usize, 0);
    assert!(buffer.read().unwrap() == expected);
}

/// Concurrent writes of different bytes of one word do not undo each other.
#[test]
fn neighbours_in_one_word_keep_their_bytes() {
    let device = staged().into_device().unwrap();
    let buffer = device.buffer(8).unwrap();
    buffer.write(&[0; 8]).unwrap();
    std::thread::scope(|scope| {
        for at in 0..4 {
            let own = buffer.slice(at..=at).unwrap();
            scope.spawn(move || {
                for value in 0..500u32 {
                    own.write(&[value as u8]).unwrap();
                    assert_eq!(own.read().unwrap(), [value as u8]);
                }
            });
        }
    });
}

/// Memory of work that a lost device never completes is released.
#[test]
fn a_lost_device_gives_pending_memory_back() {
    let null = NullDevice::new().manual_completion();
    let device = null.clone().into_device().unwrap();
    let buffer = device.buffer(MIB).unwrap();
    null.lose_submission(1);
    buffer.zero().unwrap();
    drop(buffer);
    assert_eq!(device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(device.pool().clear().unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(null.live_bytes(), 0);
}

#[test]
fn an_alignment_that_blocks_cannot_keep_is_refused() {
    let null = NullDevice::new().with_properties(|properties| properties.copy_alignment = 256);
    let error = null.into_device().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("a power of two, found 256"), "{error}");
}

/// A null device that runs a hook at a selected moment.
struct Hooked {
    null: NullDevice,
    panics: AtomicBool,
    at_submit: Hook<()>,
    at_map: Hook<Error>,
}

type Hook<T> = Mutex<Option<Box<dyn FnOnce() -> T + Send>>>;

impl Hooked {
    fn new(null: NullDevice) -> Arc<Self> {
        let panics = AtomicBool::new(false);
        Arc::new(Self { null, panics, at_submit: Mutex::new(None), at_map: Mutex::new(None) })
    }
}

impl RawMemory for Hooked {
    fn properties(&self) -> MemoryProperties {
        self.null.properties()
    }
    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
        assert!(!self.panics.load(Relaxed), "planted");
        self.null.allocate(bytes, usage)
    }
    fn completed(&self) -> u64 {
        self.null.completed()
    }
    fn wait(&self, submission: u64) -> Result<()> {
        self.null.wait(submission)
    }
    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let hook = self.at_map.lock().unwrap().take();
        match hook {
            Some(hook) => Err(hook()),
            None => self.null.map(region, read),
        }
    }
    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.null.map_mut(region, write)
    }
}

impl DeviceApi for Hooked {
    fn info(&self) -> &DeviceInfo {
        self.null.info()
    }
    fn submit(&self, commands: &[Command]) -> Result<u64> {
        let submission = self.null.submit(commands)?;
        let hook = self.at_submit.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(submission)
    }
    fn notify(&self, submission: u64, waker: Waker) {
        self.null.notify(submission, waker);
    }
    fn fault(&self) -> Option<Error> {
        self.null.fault()
    }
}

#[test]
fn a_panic_of_the_driver_does_not_leak_budget() {
    let memory = Hooked::new(NullDevice::new());
    memory.panics.store(true, Relaxed);
    let pool = Pool::new(Arc::clone(&memory), PoolOptions::new()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| pool.allocate(MIB))).is_err());
    assert_eq!(pool.statistics().bytes_reserved, 0);
    memory.panics.store(false, Relaxed);
    pool.allocate(MIB).unwrap();
}

/// A block is not moved after the device has read its location.
#[test]
fn defragment_does_not_move_buffers_being_submitted() {
    let hooked = Hooked::new(divisible().manual_completion());
    let device = Device::new(Arc::clone(&hooked) as Arc<dyn DeviceApi>, PoolOptions::new()).unwrap();
    let mut live: Vec<Option<Buffer>> = buffers(&device, 4096, 128).into_iter().map(Some).collect();
    for (at, buffer) in live.iter_mut().enumerate() {
        if at != 3 && !(64..100).contains(&at) {
            *buffer = None;
        }
    }
    let buffer = live[3].take().unwrap();
    buffer.write(&[1; 4096]).unwrap();
    let pool = device.pool().clone();
    *hooked.at_submit.lock().unwrap() = Some(Box::new(move || {
        std::thread::spawn(move || pool.defragment().unwrap()).join().unwrap();
    }));
    buffer.zero().unwrap();
    device.synchronize().unwrap();
    assert_eq!(buffer.read().unwrap(), [0; 4096]);
}

#[test]
fn a_move_that_fails_keeps_the_books() {
    let hooked = Hooked::new(divisible());
    let config = PoolConfig { max_cached_per_class: 0, min_kept_per_class: 0, ..PoolConfig::default() };
    let options = PoolOptions::new().config(config);
    let device = Device::new(Arc::clone(&hooked) as Arc<dyn DeviceApi>, options).unwrap();
    let all = buffers(&device, 4096, 128);
    let (first, others) = (all[3].clone(), vec![all[64].clone(), all[65].clone()]);
    drop(all);
    // The slab that the block is to be moved to becomes empty just when the copy fails.
    *hooked.at_map.lock().unwrap() = Some(Box::new(move || {
        drop(others);
        Error::new(ErrorKind::Internal, "planted")
    }));
    assert_eq!(device.pool().defragment().unwrap_err().to_string(), "planted");
    assert_eq!(device.buffer_pool_stats().bytes_reserved, hooked.null.live_bytes());
    drop(first);
    assert_eq!((device.buffer_pool_stats().bytes_reserved, hooked.null.live_bytes()), (0, 0));
}

/// A request that cannot be served returns an error, however long others keep the device busy.
#[test]
fn out_of_memory_is_returned_while_others_work() {
    let null = NullDevice::new().manual_completion();
    let device = null.into_device_with(with_budget(64 * MIB)).unwrap();
    let _held = device.buffer(40 * MIB).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = || {
            while !stop.load(Relaxed) {
                buffers(&device, 4096, 64).iter().for_each(|buffer| buffer.zero().unwrap());
            }
        };
        scope.spawn(work);
        scope.spawn(work);
        let (sender, receiver) = std::sync::mpsc::channel();
        let device = device.clone();
        std::thread::spawn(move || sender.send(device.buffer(30 * MIB).map(drop)));
        let answer = receiver.recv_timeout(Duration::from_secs(60));
        stop.store(true, Relaxed);
        assert_eq!(answer.unwrap().unwrap_err().kind(), ErrorKind::OutOfMemory);
    });
}

/// Memory of work in flight is part of the working set.
#[test]
fn frames_of_submitted_temporaries_do_not_make_a_pool_thrash() {
    let null = NullDevice::new().manual_completion();
    let device = null.clone().into_device().unwrap();
    let frame = || (0..30).for_each(|_| device.buffer(10 * MIB).unwrap().zero().unwrap());
    for number in 0..12 {
        let requests = driver_requests(&device, frame);
        assert!(requests == 0 || number < 3, "{requests} requests of frame {number} reached the driver");
        null.complete(u64::MAX);
        drop(device.buffer(100_000 + number * 20_000).unwrap());
    }
}

/// A preallocation waits for work as a request does.
#[test]
fn preparing_waits_for_pending_memory() {
    let null = NullDevice::new().manual_completion();
    let device = null.into_device_with(with_budget(64 * MIB)).unwrap();
    buffers(&device, 3 * MIB, 20).iter().for_each(|buffer| buffer.zero().unwrap());
    // Fewer than requested, because the pool is above the pressure threshold then.
    assert!(device.pool().pre_allocate(MIB, 20).unwrap() >= 4);
}

/// Staging buffers shrink to the available memory.
#[test]
fn staging_shrinks_with_the_room() {
    for (budget, bytes) in [(100 * MIB, 60 * MIB + 2), (64 * MIB, 40 * MIB)] {
        let device = staged().into_device_with(with_budget(budget)).unwrap();
        let buffer = device.buffer(bytes).unwrap();
        let data: Vec<u8> = (0..bytes).map(|at| (at % 253) as u8).collect();
        buffer.write(&data).unwrap();
        assert!(buffer.read().unwrap() == data);
        let odd = buffer.slice(1..bytes - 1).unwrap();
        assert!(odd.read().unwrap() == data[1..data.len() - 1]);
    }
}

/// A closed pool does not reuse a slot that work still uses.
#[test]
fn staging_after_the_device_is_gone_is_not_shared() {
    let null = divisible().with_properties(|properties| properties.default_usage = Usage::Storage).manual_completion();
    let device = null.clone().into_device().unwrap();
    let (a, b) = (device.buffer(256).unwrap(), device.buffer(256).unwrap());
    let upload = kiln_device::BufferOptions::new(256).usage(Usage::Upload);
    let _neighbour = device.buffer_with(upload).unwrap();
    drop(device);
    a.write(&[1; 256]).unwrap();
    b.write(&[2; 256]).unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap()), (vec![1; 256], vec![2; 256]));
}

/// An infinite interval turns maintenance off, and can be shortened again.
#[test]
fn an_endless_interval_can_be_shortened() {
    let config = |maintenance_interval| PoolConfig { maintenance_interval, ..PoolConfig::default() };
    let options = PoolOptions::new().config(config(Duration::MAX));
    let null = NullDevice::new();
    let device = null.clone().into_device_with(options).unwrap();
    drop(device.buffer(MIB).unwrap());
    device.pool().set_config(config(Duration::from_millis(5))).unwrap();
    for _ in 0..1000 {
        if null.live_bytes() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} bytes are still held", null.live_bytes());
}

/// Maintenance releases memory of work that a lost device never completes.
#[test]
fn maintenance_releases_the_memory_of_a_lost_device() {
    let (clock, null) = (MockClock::new(), NullDevice::new().manual_completion());
    let device = null.clone().into_device_with(PoolOptions::new().clock(clock.clone())).unwrap();
    null.lose_submission(1);
    device.buffer(MIB).unwrap().zero().unwrap();
    device.synchronize().unwrap_err();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(61));
        device.pool().maintain();
    }
    assert_eq!(null.live_bytes(), 0);
}

/// Commands copy neither from downloads nor to uploads; `Buffer::copy_to` handles them through the host.
#[test]
fn staging_memory_is_copied_by_the_host_where_the_device_cannot() {
    let device = NullDevice::new().into_device().unwrap();
    let of = |usage| device.buffer_with(kiln_device::BufferOptions::new(8).usage(usage)).unwrap();
    let (upload, download) = (of(Usage::Upload), of(Usage::Download));
    let mut commands = CommandList::new();
    for refused in [commands.copy(&download, &upload), commands.zero(&upload)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    download.write(&[5; 8]).unwrap();
    download.copy_to(&upload).unwrap();
    assert_eq!(upload.read().unwrap(), [5; 8]);
    upload.zero().unwrap();
    assert_eq!(upload.read().unwrap(), [0; 8]);
}
