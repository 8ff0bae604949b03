//! `cleanup`, `clear`, `pre_allocate` and automatic cleanups under pressure.

use crate::fixture::{Rig, divisible, with_budget};
use kiln_device::{BufferOptions, NullDevice, PoolConfig, Record, Usage};
use kiln_ir::ErrorKind;

const SIZE: u64 = 4096;

/// An ordinary cleanup keeps the minimum of every class, an aggressive one nothing.
#[test]
fn cleanup_reports_what_it_released() {
    let rig = Rig::new();
    rig.warm(SIZE, 10);
    rig.warm(256, 5);
    let released = rig.pool.cleanup(false);
    assert_eq!((released.blocks, released.bytes), (7, 6 * SIZE + 256));
    assert_eq!((rig.cached(SIZE), rig.cached(256)), (4, 4));
    let released = rig.pool.cleanup(true);
    assert_eq!((released.blocks, released.bytes), (8, 4 * SIZE + 4 * 256));
    assert_eq!(rig.numbers().bytes_reserved, 0);
    assert_eq!(rig.pool.cleanup(true).blocks, 0);
}

/// The minimum is kept once per class, over all threads.
#[test]
fn cleanup_keeps_the_minimum_over_all_threads() {
    let rig = Rig::new();
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let held = rig.take_many(SIZE, 5);
                barrier.wait();
                drop(held);
            });
        }
    });
    assert_eq!((rig.cached(SIZE), rig.pool.cleanup(false).blocks, rig.cached(SIZE)), (20, 16, 4));
}

/// The least recently returned blocks are released first.
#[test]
fn cleanup_gives_the_coldest_blocks_back() {
    let rig = Rig::new();
    rig.configure(|config| config.min_kept_per_class = 1);
    let blocks = rig.take_many(SIZE, 3);
    let warmest = crate::fixture::place(&blocks[2]);
    drop(blocks);
    rig.pool.cleanup(false);
    assert_eq!(crate::fixture::place(&rig.take(SIZE)), warmest);
}

/// Free slots return to their raw block, which is released with the last of them.
#[test]
fn cleanup_of_slots_releases_whole_raw_blocks() {
    let rig = Rig::divisible();
    rig.configure(|config| config.max_cached_per_class = 300);
    let mut blocks = rig.take_many(256, 256);
    let last = blocks.pop();
    drop(blocks);
    let released = rig.pool.cleanup(true);
    assert_eq!((released.blocks, released.bytes), (255, 0), "one live slot holds the raw block");
    assert_eq!(rig.numbers().bytes_unused_slots, 255 * 256);
    drop(last);
    let released = rig.pool.cleanup(true);
    assert_eq!((released.blocks, released.bytes), (1, 64 << 10));
    assert_eq!(rig.numbers().bytes_reserved, 0);
}

/// `cleanup` never waits; `clear` waits only for the work that uses free blocks.
#[test]
fn clear_waits_for_pending_work() {
    for null in [NullDevice::new(), divisible()] {
        let rig = Rig::with(null.manual_completion(), PoolConfig::default());
        let (first, second) = (rig.buffer(SIZE), rig.buffer(SIZE));
        rig.touch(&first);
        rig.touch(&second);
        drop(first);
        rig.pool.cleanup(true);
        assert_eq!(rig.numbers().bytes_pending, SIZE);
        rig.pool.clear().unwrap();
        assert_eq!(rig.numbers().bytes_cached, 0);
        let completed = rig.null.records().into_iter().filter(|record| matches!(record, Record::Complete { .. }));
        assert_eq!(completed.count(), 1, "only what touches free blocks was waited for");
        drop(second);
    }
}

/// A fault during the wait is returned.
#[test]
fn clear_reports_a_fault() {
    let rig = Rig::with(NullDevice::new().manual_completion(), PoolConfig::default());
    rig.null.lose_submission(1);
    rig.leave_pending(SIZE);
    assert_eq!(rig.pool.clear().unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(rig.numbers().bytes_reserved, 0, "nothing touches the memory of a lost device");
}

/// Pressure is the reserved share of the budget.
#[test]
fn memory_pressure_is_reserved_over_budget() {
    let rig = Rig::with_config(with_budget(10 * SIZE));
    assert_eq!(rig.pool.memory_pressure(), 0.0);
    let held = rig.take_many(SIZE, 3);
    assert!((rig.pool.memory_pressure() - 0.3).abs() < 1e-9);
    drop(held);
    assert!((rig.pool.memory_pressure() - 0.3).abs() < 1e-9, "cached memory is reserved too");
    rig.pool.cleanup(true);
    assert_eq!(rig.pool.memory_pressure(), 0.0);
}

/// Above the configured pressure the pool cleans up before it allocates more.
#[test]
fn pressure_triggers_a_cleanup_by_itself() {
    let rig = Rig::with_config(with_budget(100 * SIZE));
    rig.warm(SIZE, 30);
    let _held = rig.take(40 * SIZE);
    assert_eq!((rig.cached(SIZE), rig.numbers().pressure_cleanup_count), (30, 0), "70 % are not above 70 %");
    let _more = rig.take(4 * SIZE);
    assert_eq!((rig.cached(SIZE), rig.numbers().pressure_cleanup_count), (4, 1));
}

/// As many requests as preallocated find a free block, and none of them reaches the driver.
#[test]
fn prepared_blocks_serve_requests() {
    for rig in [Rig::new(), Rig::divisible()] {
        assert_eq!(rig.pool.pre_allocate(SIZE, 100).unwrap(), 100);
        let numbers = rig.numbers();
        assert_eq!((numbers.bytes_cached, numbers.allocation_count), (100 * SIZE, 0));
        let before = rig.driver_allocations();
        let held = rig.take_many(SIZE - 5, 100);
        assert_eq!(rig.driver_allocations(), before);
        assert_eq!(rig.numbers().reuse_count, 100);
        drop(held);
        assert_eq!(rig.cached(SIZE), 100, "the limit follows what was prepared");
        assert_eq!(rig.pool.pre_allocate(SIZE, 50).unwrap(), 50, "enough are free");
        assert_eq!(rig.driver_allocations(), before);
        rig.configure(|_| {});
        assert_eq!(rig.cached(SIZE), 32, "until the settings are set again");
    }
}

/// Blocks that submitted work may use do not count as preallocated.
#[test]
fn pending_blocks_are_not_prepared_ones() {
    let rig = Rig::with(NullDevice::new().manual_completion(), PoolConfig::default());
    rig.leave_pending(SIZE);
    assert_eq!(rig.pool.pre_allocate(SIZE, 2).unwrap(), 2);
    assert_eq!((rig.cached(SIZE), rig.numbers().bytes_cached), (2, 3 * SIZE));
}

/// Under pressure fewer blocks are kept, and the result says how many.
#[test]
fn preparing_says_how_many_there_are() {
    let rig = Rig::with_config(with_budget(10 * SIZE));
    assert_eq!(rig.pool.pre_allocate(SIZE, 10).unwrap(), 5, "under pressure half of what is unused may lie free");
    assert_eq!((rig.cached(SIZE), rig.numbers().bytes_reserved), (5, 5 * SIZE));
}

/// A preallocation that does not fit is an error, and releases everything.
#[test]
fn preparing_more_than_fits_is_an_error() {
    for rig in [Rig::with_config(with_budget(10 * SIZE)), Rig::with(divisible(), with_budget(10 * SIZE))] {
        assert_eq!(rig.pool.pre_allocate(SIZE, 20).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(rig.numbers().bytes_reserved, 0);
    }
}

/// Preallocated blocks do not displace each other, and are not displaced by other requests before the next maintenance.
#[test]
fn prepared_blocks_are_not_displaced_by_the_next_requests() {
    const MIB: u64 = 1 << 20;
    let rig = Rig::new();
    assert_eq!(rig.pool.pre_allocate(MIB, 40).unwrap(), 40);
    assert_eq!(rig.cached(MIB), 40);
    for step in 2..6 {
        drop(rig.take(step * MIB));
    }
    assert_eq!(rig.cached(MIB), 40);
}

/// Requests that are not pooled cannot be preallocated.
#[test]
fn direct_requests_cannot_be_prepared() {
    let rig = Rig::new();
    let error = rig.pool.pre_allocate((256 << 20) + 1, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    insta::assert_snapshot!(error, @"pre_allocate expected pooling and at most 268435456 bytes, found 268435457 bytes");
    assert_eq!(rig.numbers().bytes_reserved, 0);
}

/// Preallocated blocks have the requested usage.
#[test]
fn prepared_blocks_have_a_usage() {
    let rig = Rig::new();
    let options = BufferOptions::new(SIZE).usage(Usage::Upload);
    assert_eq!(rig.pool.pre_allocate(options, 3).unwrap(), 3);
    drop(rig.take(SIZE));
    assert_eq!(rig.numbers().reuse_count, 0);
    drop(rig.pool.allocate(options).unwrap());
    assert_eq!(rig.numbers().reuse_count, 1);
}
