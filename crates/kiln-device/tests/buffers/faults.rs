//! Faults are reported: a lost device to every later use, a failed map to its caller. Nothing hangs or silently returns
//! zeros.

use crate::fixture::{WAYS, buffer, device};
use kiln_device::{Buffer, CommandList, Device, DeviceApi, NullDevice, PoolConfig, PoolOptions, Usage};
use kiln_ir::{Error, ErrorKind};
use std::sync::mpsc;
use std::time::Duration;

fn is_lost<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
}

/// Fails instead of hanging.
fn within_ten_seconds(work: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        sender.send(()).unwrap();
    });
    match receiver.recv_timeout(Duration::from_secs(10)) {
        Ok(()) => thread.join().unwrap(),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("still waiting after ten seconds"),
    }
}

/// After a lost submission every use of the device returns the loss.
#[test]
fn a_lost_submission_reaches_every_later_use() {
    within_ten_seconds(|| {
        for usage in WAYS {
            let null = NullDevice::new();
            let device = device(&null);
            let (a, b) = (buffer(&device, 64, usage), buffer(&device, 64, usage));
            a.write(&[1; 64]).unwrap();
            null.lose_submission(1);
            // The device is lost while it runs this, or the caller already gets the error.
            let _ = a.copy_to(&b);
            assert_eq!(null.fault().unwrap().kind(), ErrorKind::DeviceLost);
            assert!(is_lost(b.read()), "no zeros for what never ran");
            assert!(is_lost(b.read_async().and_then(kiln_device::PendingRead::wait)));
            assert!(is_lost(a.write(&[2; 64])));
            assert!(is_lost(b.map_read(<[u8]>::len)));
            assert!(is_lost(b.map_write(|bytes| bytes.fill(0))));
            assert!(is_lost(a.copy_to(&b)) && is_lost(a.copy_to(&a)));
            assert!(is_lost(a.zero()) && is_lost(a.slice(1..3).unwrap().zero()));
            assert!(is_lost(device.buffer(4)) && is_lost(device.buffer_from(&[1u8])));
            assert!(is_lost(device.submit(CommandList::new())));
            assert!(is_lost(device.synchronize()));
            assert!(is_lost(a.slice(..0).unwrap().read()));
        }
    });
}

/// A fault during a wait is the result of the wait.
#[test]
fn a_loss_while_waiting_is_reported() {
    within_ten_seconds(|| {
        for usage in WAYS {
            type Wait = fn(&Device, &Buffer) -> Result<(), Error>;
            let waits: [Wait; 5] = [
                |_, buffer| buffer.read().map(drop),
                |device, _| device.synchronize(),
                |_, buffer| buffer.map_read(<[u8]>::len).map(drop),
                |_, buffer| buffer.map_write(|bytes| bytes.fill(1)),
                |_, buffer| buffer.slice(1..2).and_then(|slice| slice.write(&[1])),
            ];
            for wait in waits {
                let null = NullDevice::new().manual_completion();
                let device = device(&null);
                let target = buffer(&device, 64, usage);
                null.lose_submission(1);
                target.zero().unwrap();
                assert!(is_lost(wait(&device, &target)), "{usage}");
            }
        }
    });
}

/// Submissions before the lost one took effect; it and those after it did not.
#[test]
fn submissions_before_the_loss_took_effect() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (a, b) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]));
    a.write(&[1; 64]).unwrap();
    a.copy_to(&b).unwrap();
    null.complete(1);
    assert_eq!(b.read().unwrap(), [1; 64]);
    null.lose_submission(2);
    b.zero().unwrap();
    b.zero().unwrap();
    null.complete(2);
    assert_eq!((kiln_device::RawMemory::completed(&null), null.fault().is_none()), (2, true));
    null.complete(3);
    assert_eq!(kiln_device::RawMemory::completed(&null), u64::MAX, "nothing touches the memory any more");
    insta::assert_snapshot!(b.read().unwrap_err(), @"device `null` was lost while it ran submission 3");
}

/// The memory of a lost device is freed.
#[test]
fn a_lost_device_leaks_nothing() {
    within_ten_seconds(|| {
        for pooling in [true, false] {
            let null = NullDevice::new().manual_completion();
            let options = PoolOptions::new().clock(kiln_resource_cache::MockClock::new());
            let options = options.config(PoolConfig { pooling, ..PoolConfig::default() });
            let device = null.clone().into_device_with(options).unwrap();
            let storage = buffer(&device, 64, Usage::Storage);
            null.lose_submission(2);
            for step in 0..4 {
                storage.write(&[step; 64]).unwrap();
            }
            assert!(is_lost(storage.read()));
            drop((storage, device));
            assert_eq!(null.live_bytes(), 0);
        }
    });
}

/// A failed map is an error of that call and not of the device; the bytes are unchanged.
#[test]
fn a_failed_map_is_reported_to_its_caller() {
    for usage in WAYS {
        let null = NullDevice::new();
        let device = device(&null);
        let target = buffer(&device, 64, usage);
        target.write(&[1; 64]).unwrap();
        for fail in [
            |buffer: &Buffer| buffer.write(&[2; 64]),
            |buffer: &Buffer| buffer.read().map(drop),
            |buffer: &Buffer| buffer.map_read(|_| panic!("called although the map failed")),
            |buffer: &Buffer| buffer.map_write(|_| panic!("called although the map failed")),
        ] {
            null.fail_map(1);
            assert_eq!(fail(&target).unwrap_err().kind(), ErrorKind::Internal);
            assert_eq!(target.read().unwrap(), [1; 64]);
        }
        null.fail_map(2);
        assert!(target.read().is_ok());
        assert!(target.read().is_err(), "the second map from then");
        drop(target);
        device.pool().cleanup(true);
        assert_eq!(null.live_bytes(), 0);
    }
}

/// A submission that the device refuses does not mark its buffers.
#[test]
fn a_refused_submission_marks_nothing() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let target = buffer(&device, 64, WAYS[0]);
    null.lose_submission(1);
    target.zero().unwrap();
    null.complete(1);
    assert!(is_lost(target.zero()));
    drop(target);
    assert_eq!(device.buffer_pool_stats().live_buffers, 0);
}
