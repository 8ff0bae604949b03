//! Running out of memory: the pool cleans up, waits and retries, then returns a detailed error.

use crate::fixture::{Rig, divisible, fill, holds, with_budget};
use crate::unprotected::UnprotectedMemory;
use kiln_device::{BufferOptions, NullDevice, Pool, PoolConfig, PoolOptions, RawMemory, Record, Usage};
use kiln_ir::{Error, ErrorKind};
use kiln_resource_cache::MockClock;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Cached memory that exhausts the budget is released, and the request succeeds.
#[test]
fn cached_memory_makes_room_within_the_budget() {
    for rig in [Rig::with_config(with_budget(MIB)), Rig::with(divisible(), with_budget(MIB))] {
        rig.warm(64 * KIB, 8);
        let block = rig.take(MIB);
        assert_eq!(block.block_bytes(), MIB);
        let numbers = rig.numbers();
        assert_eq!((numbers.bytes_cached, numbers.out_of_memory_count), (0, 0));
    }
}

/// Cached memory that exhausts the driver, whose capacity is below the budget, is released.
#[test]
fn cached_memory_makes_room_in_the_driver() {
    let rig = Rig::with(NullDevice::new().with_capacity(MIB), PoolConfig::default());
    rig.warm(64 * KIB, 8);
    let _block = rig.take(MIB);
    let numbers = rig.numbers();
    assert_eq!((numbers.driver_failure_count, numbers.out_of_memory_count), (1, 0));
}

/// A request waits for free blocks that submitted work uses, if nothing else is left.
#[test]
fn a_request_waits_for_pending_blocks_before_it_fails() {
    let budgeted = Rig::with(NullDevice::new().manual_completion(), with_budget(MIB));
    let small = Rig::with(NullDevice::new().with_capacity(MIB).manual_completion(), PoolConfig::default());
    for rig in [budgeted, small] {
        rig.leave_pending(MIB);
        let _other = rig.take(512 * KIB);
        assert_eq!(rig.null.completed(), 1, "it was waited for");
        assert_eq!(rig.numbers().out_of_memory_count, 0);
    }
}

/// A slot that becomes free between live ones serves the request that waited for it.
#[test]
fn a_request_waits_for_pending_slots_before_it_fails() {
    let rig = Rig::with(divisible().manual_completion(), with_budget(256 * KIB));
    let mut blocks: Vec<_> = (0..1024).map(|_| rig.buffer(256)).collect();
    assert_eq!(rig.pool.allocate(256).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let dropped = [900, 600, 300, 10].map(|at| blocks.swap_remove(at));
    rig.touch_all(&dropped);
    drop(dropped);
    let again = rig.take_many(256, 4);
    let numbers = rig.numbers();
    assert_eq!((numbers.live_buffers, numbers.out_of_memory_count), (1024, 1));
    drop((blocks, again));
}

/// A fault during the wait is returned instead of `OutOfMemory`.
#[test]
fn a_fault_while_waiting_is_reported_as_such() {
    let rig = Rig::with(NullDevice::new().manual_completion(), with_budget(MIB));
    rig.null.lose_submission(1);
    rig.leave_pending(MIB);
    assert_eq!(rig.pool.allocate(MIB / 2).unwrap_err().kind(), ErrorKind::DeviceLost);
}

/// The error contains the request, the holders, and what could help.
#[test]
fn the_error_names_the_holders() {
    let rig = Rig::with_config(with_budget(MIB));
    let _weights = rig.take_labelled(600 * KIB, "weights");
    let _activations = [rig.take_labelled(100 * KIB, "activations"), rig.take_labelled(100 * KIB, "activations")];
    let _nobody = rig.take(10);
    let options = BufferOptions::new(300 * KIB).label("gradients").usage(Usage::Storage);
    let error = rig.pool.allocate(options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    insta::assert_snapshot!(error);
}

/// Long lists of holders are truncated; the driver's error is the reason and the source.
#[test]
fn the_error_names_the_largest_holders_and_the_driver_error() {
    let rig = Rig::with(divisible().with_capacity(MIB), PoolConfig::default());
    let _held: Vec<_> = (1..=8).map(|n| rig.take_labelled(n * 100, &format!("layer {n}"))).collect();
    let error = rig.pool.allocate(MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    insta::assert_snapshot!(error);
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.to_string().starts_with("null device found"), "{source}");
}

/// Without holders the error says so.
#[test]
fn the_error_without_holders() {
    let rig = Rig::with(NullDevice::new().with_capacity(KIB), PoolConfig::default());
    let error = rig.pool.allocate(MIB).unwrap_err();
    insta::assert_snapshot!(error);
}

/// A request that can never fit is `TooLarge`, whatever is free, and does not count as out of memory.
#[test]
fn requests_that_never_fit_are_too_large() {
    let budgeted = Rig::with_config(with_budget(MIB));
    let null = NullDevice::new().with_properties(|properties| properties.max_block_bytes = MIB / 2);
    let limited = Rig::with(null, with_budget(MIB));
    let messages: Vec<String> = [budgeted, limited]
        .iter()
        .map(|rig| {
            let _held = rig.take(256);
            let error = rig.pool.allocate(BufferOptions::new(MIB + 1).label("image")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert_eq!(rig.numbers().out_of_memory_count, 0);
            error.to_string()
        })
        .collect();
    insta::assert_snapshot!(messages.join("\n"));
}

/// The largest size within the budget succeeds, in a class and direct; sizes near 2^64 are refused without overflow.
#[test]
fn sizes_at_the_limit_of_the_budget() {
    let rig = Rig::with_config(with_budget(MIB));
    drop(rig.take(MIB));
    let direct = Rig::with_config(with_budget(300 * MIB));
    drop(direct.take(300 * MIB));
    for bytes in [300 * MIB + 1, u64::MAX, u64::MAX - 4095] {
        assert_eq!(direct.pool.allocate(bytes).unwrap_err().kind(), ErrorKind::TooLarge, "{bytes} bytes");
    }
    let unlimited = Rig::with_config(with_budget(u64::MAX));
    assert_eq!(unlimited.pool.allocate(u64::MAX).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// Other errors of the driver are returned with their kind, and nothing is released for them.
#[test]
fn other_errors_of_the_driver_are_not_retried() {
    let memory = Arc::new(UnprotectedMemory::default());
    let pool = Pool::new(Arc::clone(&memory), PoolOptions::new().clock(MockClock::new())).unwrap();
    drop(pool.allocate(4096).unwrap());
    memory.fail_with(Error::new(ErrorKind::DeviceLost, "the cable was pulled"));
    let error = pool.allocate(MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert_eq!(error.to_string(), "buffer `(unlabelled)`: the cable was pulled");
    assert_eq!((memory.refused(), pool.statistics().bytes_cached), (1, 4096));
    assert_eq!(pool.statistics().out_of_memory_count, 0);
}

/// For every n, a failure of the n-th allocation leaks nothing and leaves live buffers untouched.
#[test]
fn nothing_leaks_after_failures() {
    for divide in [false, true] {
        for n in 1..30 {
            let null = NullDevice::new().with_properties(|properties| properties.divisible = divide);
            let rig = Rig::with(null, PoolConfig::default());
            // The retries fail as well.
            for retry in 0..4 {
                rig.null.fail_allocation(n + retry);
            }
            let mut held = Vec::new();
            let mut failures = 0;
            for step in 0..40_u64 {
                match rig.pool.allocate((step * 997) % 50_000 + 1) {
                    Ok(block) => {
                        fill(&block, step as u8);
                        held.push((block, step as u8));
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
                        failures += 1;
                    }
                }
                rig.numbers();
            }
            assert!(failures > 0 || divide, "four failures in a row are one error");
            assert!(held.iter().all(|(block, seed)| holds(block, *seed)));
            let refused = rig.null.records().iter().filter(|r| matches!(r, Record::AllocationFailed { .. })).count();
            let numbers = rig.numbers();
            assert_eq!((numbers.driver_failure_count, numbers.out_of_memory_count), (refused as u64, failures));
            held.clear();
            rig.pool.cleanup(true);
            assert_eq!((rig.null.live_bytes(), rig.numbers().bytes_reserved), (0, 0));
        }
    }
}

/// A failed request does not change the numbers of use.
#[test]
fn a_failed_request_is_not_counted_as_served() {
    let rig = Rig::with_config(with_budget(MIB));
    let _held = rig.take_labelled(MIB, "all");
    rig.pool.allocate(BufferOptions::new(MIB).label("late")).unwrap_err();
    let numbers = rig.numbers();
    assert_eq!((numbers.allocation_count, numbers.live_buffers, numbers.out_of_memory_count), (1, 1, 1));
    let holders: Vec<_> = rig.pool.report().holders.into_iter().map(|holder| holder.label).collect();
    assert_eq!(holders, ["all"]);
}
