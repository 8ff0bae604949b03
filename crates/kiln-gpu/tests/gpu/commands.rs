//! Copies, fills, and numbered submissions.

use crate::support::{self, filled, pattern};
use kiln_device::{BufferOptions, CommandList, Usage};
use kiln_ir::ErrorKind;
use std::time::Instant;

/// Commands take effect in list order, between all usages that the device can copy.
#[test]
fn commands_run_in_the_order_of_the_list() {
    let Some(device) = support::in_place() else { return };
    for usage in [Usage::Shared, Usage::Storage] {
        let first = filled(&device, usage, &pattern(1, 32));
        let second = filled(&device, Usage::Storage, &pattern(2, 32));
        let third = device.buffer_with(BufferOptions::new(32).usage(usage)).unwrap();
        let mut commands = CommandList::new();
        commands.copy(&first, &third).unwrap();
        commands.zero(&first.slice(4..12).unwrap()).unwrap();
        commands.copy(&first.slice(..16).unwrap(), &second.slice(8..24).unwrap()).unwrap();
        commands.copy(&third.slice(..4).unwrap(), &second.slice(28..).unwrap()).unwrap();
        device.submit(commands).unwrap();
        let one = pattern(1, 32);
        let mut first_expected = one.clone();
        first_expected[4..12].fill(0);
        let mut second_expected = pattern(2, 32);
        second_expected[8..24].copy_from_slice(&first_expected[..16]);
        second_expected[28..].copy_from_slice(&one[..4]);
        assert_eq!(first.read().unwrap(), first_expected, "{usage}");
        assert_eq!(second.read().unwrap(), second_expected, "{usage}");
        assert_eq!(third.read().unwrap(), one, "{usage}");
    }
}

#[test]
fn slices_of_one_allocation_and_odd_ranges_copy_too() {
    for device in support::both() {
        let buffer = device.buffer_from(&pattern(5, 40)).unwrap().into_bytes();
        let mut expected = pattern(5, 40);
        for (from, to, len) in [(0, 8, 16), (8, 0, 16), (1, 20, 7), (3, 4, 30)] {
            let (source, target) = (buffer.slice(from..from + len).unwrap(), buffer.slice(to..to + len).unwrap());
            source.copy_to(&target).unwrap();
            expected.copy_within(from as usize..(from + len) as usize, to as usize);
            assert_eq!(buffer.read().unwrap(), expected, "{from} {to} {len}");
        }
        buffer.slice(5..11).unwrap().zero().unwrap();
        expected[5..11].fill(0);
        assert_eq!(buffer.read().unwrap(), expected);
    }
}

/// Numbers increase by one, also for an empty list, and submissions complete in order.
#[test]
fn submissions_are_numbered_and_end_in_order() {
    let Some(device) = support::open(kiln_gpu::GpuOptions::new()) else { return };
    assert_eq!(device.api().completed(), 0);
    let (big, copy) = (device.buffer(16 << 20).unwrap(), device.buffer(16 << 20).unwrap());
    for number in 1..=20 {
        let mut commands = CommandList::new();
        if number % 4 != 0 {
            commands.copy(&big, &copy).unwrap();
        }
        assert_eq!(device.submit(commands).unwrap(), number);
        assert!(device.api().completed() <= number);
    }
    device.api().wait(7).unwrap();
    assert!(device.api().completed() >= 7);
    device.api().wait(18).unwrap();
    let begin = Instant::now();
    while device.api().completed() < 20 {
        assert!(begin.elapsed() < support::TIMEOUT, "work ends without anyone waiting for it");
    }
    device.api().wait(3).unwrap();
    device.synchronize().unwrap();
    assert_eq!(device.api().completed(), 21);
    let error = device.api().wait(22).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Two devices have separate pools and reject each other's buffers.
#[test]
fn two_devices_have_separate_pools() {
    let (Some(one), Some(other)) =
        (support::open(kiln_gpu::GpuOptions::new()), support::open(kiln_gpu::GpuOptions::new()))
    else {
        return;
    };
    drop(one.buffer(4096).unwrap());
    let held = one.buffer(4096).unwrap();
    let (mine, theirs) = (one.buffer_pool_stats(), other.buffer_pool_stats());
    assert_eq!((mine.allocation_count, mine.reuse_count), (2, 1));
    assert_eq!((theirs.allocation_count, theirs.bytes_in_use, theirs.bytes_cached), (0, 0, 0));
    let mut commands = CommandList::new();
    commands.zero(&held).unwrap();
    assert_eq!(other.submit(commands).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(held);
    assert!(one.buffer_pool_stats().bytes_cached > 0);
    assert_eq!(other.buffer_pool_stats().bytes_cached, 0);
    // Copies between devices go through the host.
    let (from, to) = (one.buffer_from(&[1u32, 2, 3]).unwrap(), other.buffer_of::<u32>(3).unwrap());
    from.copy_to(&to).unwrap();
    assert_eq!(to.read().unwrap(), [1, 2, 3]);
}
