//! One device used by many threads.

use crate::support::{self, block_on, filled, pattern};
use kiln_device::{Buffer, CommandList, Device, Usage};
use kiln_gpu::{GpuOptions, HostAccess};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// Eight threads allocate, write, copy and read at once. Each sees its own bytes, and nothing leaks.
#[test]
fn threads_submit_and_read_at_once() {
    for access in [HostAccess::InPlace, HostAccess::Staged] {
        // A separate device, because other tests hold buffers of the shared ones.
        let Some(device) = support::open(GpuOptions::new().host_access(access)) else { return };
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for number in 0..8u64 {
                let (device, barrier) = (&device, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for round in 0..25 {
                        let bytes = pattern(number * 1000 + round, 1 + (number * 977 + round * 131) as usize % 9000);
                        let from = device.buffer_from(&bytes).unwrap();
                        let to = device.buffer_of::<u8>(bytes.len()).unwrap();
                        from.copy_to(&to).unwrap();
                        drop(from);
                        let read = to.read_async().unwrap();
                        let found = if round % 2 == 0 { read.wait() } else { block_on(read) };
                        assert_eq!(found.unwrap(), bytes, "thread {number}, round {round}");
                    }
                });
            }
        });
        assert_eq!(device.buffer_pool_stats().bytes_in_use, 0, "nothing is left");
    }
}

/// Threads that read a buffer in place while others copy from it: wgpu allows neither two maps nor the submission of a
/// mapped buffer, so the device must serialise them without a deadlock.
#[test]
fn readers_and_submitters_of_one_buffer_do_not_collide() {
    let Some(device) = support::in_place() else { return };
    support::within_timeout("readers and submitters", move || {
        let bytes = pattern(99, 4096);
        let buffers = [filled(&device, Usage::Shared, &bytes), filled(&device, Usage::Shared, &bytes)];
        thread::scope(|scope| {
            for number in 0..8usize {
                let (device, buffers, bytes) = (&device, &buffers, &bytes);
                if number % 2 == 0 {
                    scope.spawn(move || read_in_place(&buffers[number % 4 / 2], bytes, number));
                } else {
                    // Half of the lists use the two buffers in the opposite order.
                    let (one, two) = (&buffers[number % 4 / 2], &buffers[1 - number % 4 / 2]);
                    scope.spawn(move || copy_both(device, one, two, bytes));
                }
            }
        });
        assert!(device.api().fault().is_none());
    });
}

fn read_in_place(buffer: &Buffer, bytes: &[u8], seed: usize) {
    for round in 0..60 {
        let start = (seed * 7 + round * 13) % 4000;
        let slice = buffer.slice(start as u64..).unwrap();
        let check = |found: &[u8]| {
            // Long enough for other threads to queue up.
            thread::sleep(Duration::from_millis(1));
            assert_eq!(found, &bytes[start..]);
        };
        slice.map_read(check).unwrap();
    }
}

fn copy_both(device: &Device, one: &Buffer, two: &Buffer, bytes: &[u8]) {
    for _ in 0..60 {
        let targets = [device.buffer(4096).unwrap(), device.buffer(4096).unwrap()];
        let mut commands = CommandList::new();
        commands.copy(one, &targets[0]).unwrap();
        commands.copy(two, &targets[1]).unwrap();
        commands.copy(one, &targets[1]).unwrap();
        device.submit(commands).unwrap();
        assert_eq!(targets[0].read().unwrap(), bytes);
        assert_eq!(targets[1].read().unwrap(), bytes);
    }
}
