//! Each number of the statistics in small scenarios with hand-computed values.

use crate::fixture::{Rig, divisible, with_budget};
use kiln_device::pool::RecentActivity;
use kiln_device::{BufferOptions, NullDevice, PoolConfig, Usage};

const SIZE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// An unused pool.
#[test]
fn an_unused_pool_is_all_zero() {
    let rig = Rig::new();
    let numbers = rig.numbers();
    assert_eq!((numbers.allocation_count, numbers.reuse_count, numbers.driver_request_count), (0, 0, 0));
    let rates = [numbers.hit_rate, numbers.allocation_reduction_percent, numbers.fragmentation_percent];
    assert_eq!(rates, [0.0; 3]);
    assert_eq!((numbers.mean_hit_nanos, numbers.mean_miss_nanos, numbers.pressure), (0.0, 0.0, 0.0));
    assert_eq!((numbers.peak_bytes, numbers.peak_reserved_bytes, numbers.driver_bytes), (0, 0, Some(0)));
    assert_eq!((numbers.budget_bytes, numbers.strategy.as_str()), (1 << 30, "fine-classes"));
    assert!(numbers.classes.is_empty());
}

/// Four requests of which one is reused: a quarter are hits, and a quarter do not reach the driver.
#[test]
fn hits_and_reduction() {
    let rig = Rig::new();
    let _a = rig.take(SIZE);
    drop(rig.take(SIZE));
    let _b = rig.take(SIZE);
    let _c = rig.take(SIZE);
    let numbers = rig.numbers();
    assert_eq!((numbers.allocation_count, numbers.reuse_count, numbers.driver_request_count), (4, 1, 3));
    assert!(close(numbers.hit_rate, 0.25) && close(numbers.allocation_reduction_percent, 25.0));
    assert_eq!((numbers.live_buffers, numbers.driver_allocation_count, numbers.driver_release_count), (3, 3, 0));
}

/// Slots of an existing raw block do not reach the driver, but are no hits.
#[test]
fn carved_slots_are_no_hits() {
    let rig = Rig::divisible();
    let _blocks = rig.take_many(256, 4);
    let numbers = rig.numbers();
    assert_eq!((numbers.reuse_count, numbers.carved_count, numbers.driver_request_count), (0, 3, 1));
    assert!(close(numbers.hit_rate, 0.0) && close(numbers.allocation_reduction_percent, 75.0));
    assert_eq!((numbers.bytes_in_use, numbers.bytes_unused_slots), (1024, (64 << 10) - 1024));
}

/// Bytes change from in use to cached to released; peaks stay.
#[test]
fn bytes_and_peaks() {
    let rig = Rig::new();
    let (a, b) = (rig.take(1000), rig.take(5000));
    let numbers = rig.numbers();
    assert_eq!((numbers.bytes_in_use, numbers.bytes_cached, numbers.padding_bytes), (1024 + 5120, 0, 24 + 120));
    drop(b);
    let numbers = rig.numbers();
    assert_eq!((numbers.bytes_in_use, numbers.bytes_cached, numbers.padding_bytes), (1024, 5120, 24));
    rig.pool.cleanup(true);
    let _c = rig.take(256);
    drop(a);
    let numbers = rig.numbers();
    assert_eq!((numbers.bytes_in_use, numbers.bytes_cached), (256, 1024));
    assert_eq!((numbers.peak_bytes, numbers.peak_reserved_bytes), (6144, 6144));
    assert_eq!((numbers.driver_allocation_count, numbers.driver_release_count), (3, 1));
    assert_eq!(numbers.driver_bytes, Some(1280));
}

/// The peak is exact for one thread, for small and large steps, and whenever it is read.
#[test]
fn the_peak_is_exact_for_one_thread() {
    for step in [256, 100 << 10, 256 << 10, 3 * MIB] {
        let rig = Rig::new();
        let mut held = rig.take_many(step, 7);
        held.truncate(2);
        let block = held[0].block_bytes();
        assert_eq!(rig.numbers().peak_bytes, 7 * block);
        held.extend(rig.take_many(step, 4));
        assert_eq!(rig.numbers().peak_bytes, 7 * block, "six are fewer than seven");
        held.extend(rig.take_many(step, 3));
        held.clear();
        assert_eq!(rig.numbers().peak_bytes, 9 * block);
    }
}

/// Fragmentation follows from the sizes of free blocks: nothing free, one piece, many pieces.
#[test]
fn fragmentation_comes_from_free_block_sizes() {
    let rig = Rig::new();
    let held = rig.take(SIZE);
    assert!(close(rig.numbers().fragmentation_percent, 0.0), "nothing is free");
    drop(held);
    assert!(close(rig.numbers().fragmentation_percent, 0.0), "one piece");
    rig.warm(3 * SIZE, 1);
    assert!(close(rig.numbers().fragmentation_percent, 25.0), "three quarters are one piece");
    rig.warm(3 * SIZE, 4);
    assert!(close(rig.numbers().fragmentation_percent, 100.0 * (1.0 - 3.0 / 13.0)));
}

/// Adjacent free slots are one piece.
#[test]
fn fragmentation_of_slots_is_the_longest_run() {
    let rig =
        Rig::with(divisible(), PoolConfig { max_cached_per_class: 0, min_kept_per_class: 0, ..Default::default() });
    let mut blocks = rig.take_many(1024, 64);
    let end = blocks.split_off(48);
    drop(end);
    assert_eq!(rig.numbers().bytes_unused_slots, 16 << 10);
    assert!(close(rig.numbers().fragmentation_percent, 0.0), "the last sixteen slots are one piece");
    let middle = blocks.split_off(40);
    drop(blocks.drain(20..24));
    assert!(close(rig.numbers().fragmentation_percent, 20.0), "four of twenty are elsewhere");
    drop(middle);
    assert!(close(rig.numbers().fragmentation_percent, 100.0 * 4.0 / 28.0));
}

/// The efficiency of a class: the share of requests that do not reach the driver, times the share of requested bytes.
#[test]
fn classes_have_numbers_of_their_own() {
    let rig = Rig::new();
    drop(rig.take(SIZE));
    let _held = rig.take(3840);
    let _upload = rig.pool.allocate(BufferOptions::new(SIZE).usage(Usage::Upload)).unwrap();
    let classes = rig.numbers().classes;
    assert_eq!(classes.len(), 2);
    let (shared, upload) = (&classes[0], &classes[1]);
    assert_eq!((shared.usage, shared.class_bytes, shared.direct), (Usage::Shared, SIZE, false));
    assert_eq!((shared.allocation_count, shared.reuse_count, shared.driver_request_count), (2, 1, 1));
    assert_eq!((shared.live_blocks, shared.bytes_in_use, shared.padding_bytes), (1, SIZE, 256));
    assert_eq!((shared.cached_blocks, shared.cached_limit, shared.released_count), (0, 32, 0));
    assert!(close(shared.hit_rate, 0.5));
    assert!(close(shared.efficiency_score, 100.0 * 0.5 * 3840.0 / 4096.0));
    assert_eq!((upload.usage, upload.allocation_count), (Usage::Upload, 1));
    assert!(close(upload.efficiency_score, 0.0) && close(upload.hit_rate, 0.0));
}

/// Released blocks are counted by class; without live blocks, efficiency only considers requests.
#[test]
fn released_blocks_are_counted_by_class() {
    let rig = Rig::new();
    rig.warm(SIZE, 40);
    rig.warm(SIZE, 10);
    let class = rig.class(SIZE);
    assert_eq!((class.released_count, class.cached_blocks, class.live_blocks), (8, 32, 0));
    assert!(close(class.efficiency_score, 20.0) && close(class.hit_rate, 0.2));
    rig.pool.cleanup(true);
    assert_eq!(rig.class(SIZE).released_count, 40);
}

/// Pressure and the counts of failures.
#[test]
fn failures_and_cleanups_are_counted() {
    let rig = Rig::with(NullDevice::new().with_capacity(8 * SIZE), with_budget(10 * SIZE));
    let _held = rig.take_many(SIZE, 7);
    let numbers = rig.numbers();
    assert!(close(numbers.pressure, 0.7) && numbers.pressure_cleanup_count == 0);
    let _more = rig.take(SIZE);
    rig.pool.allocate(SIZE).unwrap_err();
    rig.pool.allocate(3 * SIZE).unwrap_err();
    let numbers = rig.numbers();
    assert_eq!(numbers.out_of_memory_count, 2);
    assert_eq!(numbers.driver_failure_count, 2, "a refusal and a retry; the budget refuses the other request");
    assert_eq!(numbers.pressure_cleanup_count, 1, "when the mark was crossed");
}

/// The activity since the last maintenance.
#[test]
fn recent_activity_is_reset_by_each_maintenance() {
    let rig = Rig::new();
    rig.warm(SIZE, 40);
    let recent = RecentActivity { allocation_count: 40, driver_request_count: 40, driver_release_count: 8 };
    assert_eq!(rig.numbers().recent, recent);
    rig.pass_interval();
    assert_eq!(rig.numbers().recent, RecentActivity::default());
    rig.warm(SIZE, 33);
    let recent = RecentActivity { allocation_count: 33, driver_request_count: 1, driver_release_count: 0 };
    assert_eq!(rig.numbers().recent, recent);
    assert_eq!(rig.numbers().allocation_count, 73);
}

/// Requests are timed, hits and misses separately.
#[test]
fn requests_are_timed() {
    let rig = Rig::new();
    drop(rig.take(SIZE));
    let numbers = rig.numbers();
    assert!(numbers.mean_miss_nanos > 0.0 && numbers.mean_hit_nanos == 0.0, "the first request is timed");
    for _ in 0..64 {
        drop(rig.take(SIZE));
    }
    let again = rig.numbers();
    assert!(again.mean_hit_nanos > 0.0 && again.mean_hit_nanos < 1e9);
    assert_eq!(again.mean_miss_nanos, numbers.mean_miss_nanos, "hits are not among the misses");
}

/// Bytes that submitted work may use are pending, and count as cached.
#[test]
fn pending_bytes_follow_the_device() {
    let rig = Rig::with(NullDevice::new().manual_completion(), PoolConfig::default());
    let (first, second) = (rig.leave_pending(SIZE), rig.leave_pending(MIB));
    assert_eq!((rig.numbers().bytes_pending, rig.numbers().bytes_cached), (SIZE + MIB, SIZE + MIB));
    rig.null.complete(first);
    assert_eq!((rig.numbers().bytes_pending, rig.pool.report().bytes_pending), (MIB, MIB));
    rig.null.complete(second);
    assert_eq!((rig.numbers().bytes_pending, rig.numbers().bytes_cached), (0, SIZE + MIB));
}

/// Blocks that are allocated and freed on different shards add up.
#[test]
fn blocks_that_another_thread_returns_are_counted_once() {
    let rig = Rig::new();
    let blocks = rig.take_many(SIZE, 10);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(blocks));
    });
    let numbers = rig.numbers();
    assert_eq!((numbers.live_buffers, numbers.bytes_in_use, numbers.padding_bytes), (0, 0, 0));
    assert_eq!(rig.class(SIZE).cached_blocks, 10);
    let _again = rig.take_many(SIZE, 10);
    assert_eq!(rig.numbers().reuse_count, 10, "taken from the other thread's list");
}
