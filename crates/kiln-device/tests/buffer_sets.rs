//! Buffers that are locked together: which sets are rejected, and the lock order.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kiln_device::{Buffer, BufferSet, BufferUse, Device, NullDevice, Usage};
use kiln_ir::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn device() -> Device {
    NullDevice::new().into_device().unwrap()
}

#[test]
fn buffers_that_cannot_be_locked_together_are_refused() {
    let (own, other) = (device(), device());
    let (buffer, foreign) = (own.buffer(64).unwrap(), other.buffer(64).unwrap());
    let halves = [buffer.slice(..32).unwrap(), buffer.slice(32..).unwrap()];
    let staging = own.buffer_with(kiln_device::BufferOptions::new(64).usage(Usage::Upload)).unwrap();
    let (read, write) = (BufferUse::Read, BufferUse::Write);
    let refused: [(&[_], &str); 5] = [
        (&[(&buffer, read), (&foreign, read)], "buffers of one device"),
        (&[(&halves[0], read), (&halves[1], write)], "buffers 0 and 1 in one allocation"),
        (&[(&halves[0], write), (&buffer, write)], "buffers 0 and 1 in one allocation"),
        (&[(&buffer, BufferUse::ReadWrite), (&buffer, read)], "buffers 0 and 1 in one allocation"),
        (&[(&staging, read)], "found upload as buffer 0"),
    ];
    for (buffers, expected) in refused {
        let error = BufferSet::new(buffers.iter().copied()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(expected), "{error}");
    }
    // An allocation that is only read may occur several times. It is locked once: a second read lock would deadlock if
    // a writer waits in between.
    let set = BufferSet::new([(&halves[1], read), (&buffer, read), (&halves[0], read)]).unwrap();
    let locked = set.lock();
    let regions: Vec<_> = (0..3).map(|index| locked.region(index)).collect();
    assert_eq!(regions.iter().map(kiln_device::memory::Region::bytes).collect::<Vec<_>>(), [32, 64, 32]);
    assert_eq!(regions[0].offset(), regions[1].offset() + 32);
}

/// Slices of one allocation that are written together are locked once; a second lock would deadlock.
#[test]
fn slices_that_do_not_overlap_are_written_together() {
    let device = device();
    let buffer = device.buffer(96).unwrap();
    let parts = [buffer.slice(64..).unwrap(), buffer.slice(..32).unwrap(), buffer.slice(32..64).unwrap()];
    let set = BufferSet::new(parts.iter().map(|part| (part, BufferUse::Write))).unwrap();
    let mut locked = set.lock();
    let mut places = Vec::new();
    for index in 0..3 {
        let region = locked.region_mut(index);
        places.push((region.offset(), region.bytes()));
    }
    let start = places[1].0;
    assert_eq!(places, [(start + 64, 32), (start, 32), (start + 32, 32)]);
    drop(locked);
    // An empty slice does not hide an overlap after it.
    let (empty, inside) = (buffer.slice(40..40).unwrap(), buffer.slice(48..56).unwrap());
    let uses = [&parts[2], &empty, &inside].map(|part| (part, BufferUse::Write));
    assert_eq!(BufferSet::new(uses).map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Host work is rejected on buffers of another device.
#[test]
fn host_work_is_refused_on_buffers_of_another_device() {
    let (own, other) = (device(), device());
    let (buffer, foreign) = (own.buffer(64).unwrap(), other.buffer(64).unwrap());
    let run = |buffer| own.run_on_host("work", &BufferSet::new([(buffer, BufferUse::Read)]).unwrap(), || Ok(7));
    assert_eq!(run(&buffer).unwrap(), 7);
    assert_eq!(run(&foreign).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Writers are exclusive, readers are not, and threads that use the same buffers in different orders do not deadlock.
#[test]
fn threads_that_lock_buffers_in_any_order_do_not_deadlock() {
    const ROUNDS: usize = 2000;
    let device = device();
    let buffers: Vec<Buffer> = (0..4).map(|_| device.buffer(64).unwrap()).collect();
    let inside: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (buffers, inside, done) = (&buffers, &inside, &done);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let order: Vec<usize> =
                        (0..4).map(|index| (index * (1 + 2 * (thread % 2)) + thread + round) % 4).collect();
                    let uses = |position: usize| if position == 0 { BufferUse::Write } else { BufferUse::Read };
                    let bound: Vec<_> =
                        order.iter().enumerate().map(|(position, &index)| (&buffers[index], uses(position))).collect();
                    let set = BufferSet::new(bound).unwrap();
                    let mut access = set.lock();
                    assert_eq!(inside[order[0]].fetch_add(1, Ordering::SeqCst), 0, "a writer is alone");
                    assert_eq!((access.region_mut(0).bytes(), access.region(3).bytes()), (64, 64));
                    inside[order[0]].fetch_sub(1, Ordering::SeqCst);
                    drop(access);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let (start, done) = (Instant::now(), &done);
        scope.spawn(move || {
            while done.load(Ordering::SeqCst) < 4 * ROUNDS {
                if start.elapsed() > Duration::from_secs(60) {
                    // Deadlocked threads cannot be joined, so the process exits.
                    std::process::exit(101);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
}
