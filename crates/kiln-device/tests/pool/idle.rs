//! Idle memory is released automatically, tested with a mock clock.

use crate::fixture::{Rig, divisible};
use kiln_device::{NullDevice, PoolConfig};

const SIZE: u64 = 4096;

/// Two intervals after a burst the pool holds nothing.
#[test]
fn two_intervals_after_a_burst_everything_is_back() {
    for rig in [Rig::new(), Rig::divisible()] {
        for bytes in [256, 300, 5_000, 40_000, 1 << 20] {
            rig.warm(bytes, 30);
        }
        assert!(rig.numbers().bytes_cached > 30 << 20);
        rig.pass_interval();
        let released = rig.pass_interval();
        assert!(released.blocks > 0 && released.bytes > 0);
        assert_eq!((rig.null.live_bytes(), rig.numbers().bytes_reserved), (0, 0));
        assert_eq!(rig.pass_interval().blocks, 0);
    }
}

/// A class that was not used in an interval releases everything, even below `min_kept_per_class`.
#[test]
fn an_unused_class_releases_everything() {
    let rig = Rig::new();
    rig.warm(SIZE, 10);
    rig.warm(256, 3);
    rig.pass_interval();
    rig.warm(SIZE, 1);
    let released = rig.pass_interval();
    assert_eq!(rig.cached(256), 0);
    assert_eq!(rig.cached(SIZE), 4, "the class in use keeps the minimum");
    assert_eq!((released.blocks, released.bytes), (9, 6 * SIZE + 3 * 256));
    rig.numbers();
}

/// A class keeps the blocks that it used in an interval and releases the others.
#[test]
fn a_class_keeps_the_blocks_it_used() {
    let rig = Rig::new();
    rig.warm(SIZE, 30);
    rig.pass_interval();
    assert_eq!(rig.cached(SIZE), 30, "all of them were needed in this interval");
    for expected in [20, 20, 20] {
        rig.warm(SIZE, 20);
        rig.pass_interval();
        assert_eq!(rig.cached(SIZE), expected, "twenty at once are needed");
    }
    rig.warm(SIZE, 1);
    rig.pass_interval();
    assert_eq!(rig.cached(SIZE), 4, "nineteen were not needed, four stay");
}

/// Blocks in use during the whole interval are not idle: they return to the class afterwards.
#[test]
fn blocks_in_use_survive_the_sweep() {
    let rig = Rig::divisible();
    let held = rig.take_many(SIZE, 10);
    for _ in 0..3 {
        rig.pass_interval();
    }
    assert_eq!(rig.numbers().bytes_in_use, 10 * SIZE);
    drop(held);
    assert_eq!(rig.cached(SIZE), 10);
}

/// A free block that submitted work may use is not idle; it is released once that work is done.
#[test]
fn pending_blocks_go_once_their_work_is_done() {
    for null in [NullDevice::new(), divisible()] {
        let rig = Rig::with(null.manual_completion(), PoolConfig::default());
        let submission = rig.leave_pending(SIZE);
        rig.pass_interval();
        rig.pass_interval();
        assert_eq!(rig.numbers().bytes_pending, SIZE);
        rig.null.complete(submission);
        rig.pass_interval();
        assert_eq!(rig.numbers().bytes_reserved, 0);
    }
}

/// A preallocated block counts as used in the interval in which it was created.
#[test]
fn prepared_blocks_live_for_an_interval() {
    let rig = Rig::new();
    assert_eq!(rig.pool.pre_allocate(SIZE, 20).unwrap(), 20);
    rig.pass_interval();
    assert_eq!(rig.cached(SIZE), 20);
    rig.pass_interval();
    assert_eq!(rig.cached(SIZE), 0);
}

/// Blocks left by a thread that ended are released like any others.
#[test]
fn blocks_that_other_threads_left_go_too() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| rig.warm(SIZE, 8));
        }
    });
    assert!(rig.cached(SIZE) >= 8);
    rig.pass_interval();
    rig.pass_interval();
    assert_eq!(rig.numbers().bytes_reserved, 0);
}

/// The minimum holds for a class, not for each thread's part of it.
#[test]
fn the_minimum_is_kept_once_per_class_over_all_threads() {
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
    assert_eq!(rig.cached(SIZE), 20);
    rig.pass_interval();
    rig.warm(SIZE, 1);
    rig.pass_interval();
    assert_eq!(rig.cached(SIZE), 4);
    let released = rig.pool.cleanup(false);
    assert_eq!((released.blocks, rig.cached(SIZE)), (0, 4));
}
