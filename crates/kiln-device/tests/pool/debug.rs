//! The debug mode: poison and canaries detect injected violations, and report nothing otherwise.

use crate::unprotected::{RawAccess, UnprotectedMemory};
use kiln_device::pool::{Violation, ViolationKind};
use kiln_device::{BufferOptions, CommandList, Device, NullDevice, Pool, PoolOptions, Usage};
use kiln_resource_cache::MockClock;
use std::sync::Arc;

fn options() -> PoolOptions {
    PoolOptions::new().clock(MockClock::new()).debug_checks(true)
}

fn loose_pool() -> (Arc<UnprotectedMemory>, Pool<UnprotectedMemory>) {
    let memory = Arc::new(UnprotectedMemory::default());
    (Arc::clone(&memory), Pool::new(memory, options()).unwrap())
}

fn device(null: NullDevice) -> Device {
    null.into_device_with(options()).unwrap()
}

/// Bytes written after the last handle was dropped are detected when the block is allocated again.
#[test]
fn a_write_after_free_is_found() {
    // At the first byte, in the middle and at the last byte.
    for at in [0, 50, 319] {
        let (_, pool) = loose_pool();
        let block = pool.allocate(BufferOptions::new(200).label("scratch")).unwrap();
        assert_eq!(block.block_bytes(), 320, "64 bytes of canary are in it");
        let backdoor = RawAccess::to(&block);
        drop(block);
        backdoor.write(at..at + 1, 0x11);
        assert_eq!(pool.violations(), [], "no check ran yet");
        let again = pool.allocate(200).unwrap();
        let kind = ViolationKind::WriteAfterFree;
        let found = Violation { kind, label: "scratch".into(), bytes: 200, offset: at as u64, found: 0x11 };
        assert_eq!(pool.violations(), [found]);
        assert_eq!(pool.statistics().violation_count, 1);
        drop(again);
    }
}

/// Bytes written beyond the end are detected when the buffer is dropped.
#[test]
fn a_write_beyond_the_end_is_found() {
    for at in [200, 201, 263, 319] {
        let (_, pool) = loose_pool();
        let block = pool.allocate(BufferOptions::new(200).label("input")).unwrap();
        RawAccess::to(&block).write(at..at + 1, 0x22);
        drop(block);
        let kind = ViolationKind::WriteBeyondEnd;
        let found = Violation { kind, label: "input".into(), bytes: 200, offset: at as u64, found: 0x22 };
        assert_eq!(pool.violations(), [found]);
    }
}

/// A request that fills its class gets a canary by using the next class.
#[test]
fn every_size_has_a_canary() {
    let (_, pool) = loose_pool();
    let mut expected = 0;
    for bytes in [0, 1, 192, 193, 255, 256, 4096, 32 << 10, 300_000] {
        let block = pool.allocate(bytes).unwrap();
        assert!(block.block_bytes() >= bytes + 64);
        RawAccess::to(&block).write(bytes as usize + 3..bytes as usize + 5, 0x33);
        drop(block);
        expected += 1;
        assert_eq!(pool.violations().len(), expected, "{bytes} bytes");
    }
}

/// A copy that a device runs after the buffer was freed and allocated again.
#[test]
fn a_submission_that_runs_late_is_found() {
    let null = NullDevice::new().manual_completion();
    let device = device(null.clone());
    let from = device.buffer_from(&[7u32; 16]).unwrap();
    let to = device.buffer_of::<u32>(16).unwrap();
    // The list bypasses `Device::submit`, so that the pool does not know that it uses the buffer.
    let mut commands = CommandList::new();
    commands.copy(from.as_bytes(), to.as_bytes()).unwrap();
    let submission = device.api().submit(commands.commands()).unwrap();
    drop(commands);
    drop(to);
    null.complete(submission);
    let _again = device.buffer_of::<u32>(16).unwrap();
    let found = device.pool().violations();
    assert_eq!((found.len(), found[0].kind, found[0].found), (1, ViolationKind::WriteAfterFree, 7));
    insta::assert_snapshot!(found[0], @"buffer `(unlabelled)` of 64 bytes was written after it was freed: found 0x07 at byte 0");
}

/// If the buffer is marked, the same late copy is awaited and is no violation.
#[test]
fn a_marked_submission_is_not_a_violation() {
    let device = device(NullDevice::new().manual_completion());
    let from = device.buffer_from(&[7u32; 16]).unwrap();
    for _ in 0..10 {
        let to = device.buffer_of::<u32>(16).unwrap();
        from.copy_to(&to).unwrap();
    }
    assert_eq!(device.pool().violations(), []);
}

/// Odd lengths and offsets, which devices round to whole words, are no violation.
#[test]
fn clean_runs_find_nothing() {
    for usage in Usage::ALL {
        let device = device(NullDevice::new());
        for bytes in (0..80).chain([255, 256, 257, 1021, 4095, 70_001]) {
            let buffer = device.buffer_with(BufferOptions::new(bytes).usage(usage)).unwrap();
            let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            buffer.write(&data).unwrap();
            if bytes > 8 {
                buffer.slice(3..bytes - 2).unwrap().write(&data[3..bytes as usize - 2]).unwrap();
                buffer.slice(1..).unwrap().copy_to(&buffer.slice(..bytes - 1).unwrap()).unwrap();
                buffer.slice(bytes - 3..).unwrap().zero().unwrap();
            }
            drop(buffer.read().unwrap());
        }
        device.pool().cleanup(true);
        drop(device.buffer(100).unwrap());
        assert_eq!(device.pool().violations(), [], "{usage}");
    }
}

/// Preallocated blocks are poisoned like freed ones.
#[test]
fn prepared_blocks_are_checked_too() {
    let (_, pool) = loose_pool();
    pool.pre_allocate(100, 2).unwrap();
    let (first, second) = (pool.allocate(100).unwrap(), pool.allocate(100).unwrap());
    assert_eq!(pool.violations(), []);
    drop((first, second));
}

/// A block that cannot be checked is reported.
#[test]
fn a_map_that_fails_is_reported_as_unchecked() {
    let (memory, pool) = loose_pool();
    let block = pool.allocate(BufferOptions::new(10).label("x")).unwrap();
    memory.set_maps_fail(true);
    drop(block);
    let found = pool.violations();
    assert!(found.len() == 2 && found.iter().all(|violation| violation.kind == ViolationKind::Unchecked));
    insta::assert_snapshot!(found[0], @"buffer `x` of 10 bytes could not be checked");
}

/// The kept violations are bounded, their count is not.
#[test]
fn the_first_64_findings_are_kept() {
    let (_, pool) = loose_pool();
    for _ in 0..100 {
        let block = pool.allocate(10).unwrap();
        RawAccess::to(&block).write(12..13, 0);
        drop(block);
    }
    assert_eq!((pool.violations().len(), pool.statistics().violation_count), (64, 100), "all are counted");
}

/// Without the debug mode nothing is mapped and no byte is added.
#[test]
fn without_the_debug_mode_nothing_is_checked() {
    let pool = Pool::new(Arc::new(UnprotectedMemory::default()), PoolOptions::new().clock(MockClock::new())).unwrap();
    let block = pool.allocate(256).unwrap();
    assert_eq!(block.block_bytes(), 256);
    let backdoor = RawAccess::to(&block);
    drop(block);
    backdoor.write(0..256, 1);
    drop(pool.allocate(256).unwrap());
    assert_eq!(pool.violations(), []);
}
