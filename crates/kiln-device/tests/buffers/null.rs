//! The null device records operations and injects faults.

use crate::fixture::{WAYS, buffer, device};
use kiln_device::{DeviceApi, NullDevice, RawMemory, Record, Usage};
use kiln_ir::ErrorKind;

/// All operations are recorded in order.
#[test]
fn operations_are_recorded_in_order() {
    let null = NullDevice::new();
    let device = device(&null);
    let block = buffer(&device, 300, Usage::Storage);
    block.zero().unwrap();
    null.fail_map(1);
    buffer(&device, 10, Usage::Shared).write(&[1; 10]).unwrap_err();
    drop(block);
    device.pool().cleanup(true);
    assert_eq!(
        null.records(),
        [
            Record::Allocate { bytes: 320, usage: Usage::Storage },
            Record::Submit { submission: 1, commands: 1 },
            Record::Complete { submission: 1 },
            Record::Allocate { bytes: 256, usage: Usage::Shared },
            Record::Map { bytes: 10, write: true, failed: true },
            Record::Release { bytes: 256 },
            Record::Release { bytes: 320 },
        ]
    );
    null.clear_records();
    assert_eq!(null.records(), []);
}

/// Faults fire at the n-th event after they were injected, once, and independently.
#[test]
fn faults_strike_once_at_their_event() {
    let null = NullDevice::new();
    let outcome = |null: &NullDevice| null.allocate(16, Usage::Shared).is_ok();
    assert!(outcome(&null));
    null.fail_allocation(2);
    null.fail_allocation(4);
    let outcomes: Vec<bool> = (0..6).map(|_| outcome(&null)).collect();
    assert_eq!(outcomes, [true, false, true, false, true, true]);
    let error = {
        null.fail_allocation(1);
        null.allocate(16, Usage::Shared).unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}

/// The capacity limits the driver, whatever the pool's budget is.
#[test]
fn capacity_limits_live_bytes() {
    let null = NullDevice::new().with_capacity(100);
    let first = null.allocate(60, Usage::Shared).unwrap();
    insta::assert_snapshot!(null.allocate(41, Usage::Upload).unwrap_err(), @"null device found 101 of 100 bytes");
    assert_eq!(null.records()[1], Record::AllocationFailed { bytes: 41, usage: Usage::Upload });
    assert_eq!((null.live_bytes(), null.driver_bytes()), (60, Some(60)));
    drop(first);
    assert!(null.allocate(100, Usage::Shared).is_ok());
    assert_eq!(null.live_bytes(), 0, "dropped at once");
}

/// Submissions complete in order, when they are awaited or completed explicitly.
#[test]
fn submissions_end_in_order() {
    let null = NullDevice::new().manual_completion();
    for number in 1..=4 {
        assert_eq!(null.submit(&[]).unwrap(), number);
    }
    assert_eq!(null.completed(), 0);
    null.wait(2).unwrap();
    assert_eq!(null.completed(), 2);
    null.complete(1);
    assert_eq!(null.completed(), 2, "completed submissions stay completed");
    null.complete(100);
    assert_eq!(null.completed(), 4);
    assert_eq!(null.submit(&[]).unwrap(), 5);
}

/// A submission that another thread runs counts as done only after it took effect.
#[test]
fn submissions_of_threads_are_done_when_they_say_so() {
    let device = device(&NullDevice::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let device = &device;
            scope.spawn(move || {
                let storage = buffer(device, 4096, WAYS[1]);
                for step in 0..300_u32 {
                    let data = [step as u8 ^ (thread << 6); 4096];
                    storage.write(&data).unwrap();
                    assert!(storage.read().unwrap() == data, "thread {thread} read before its copy ran");
                }
            });
        }
    });
}
