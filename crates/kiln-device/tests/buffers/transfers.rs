//! Transfers: in place in shared memory, otherwise through pooled staging buffers.

use crate::fixture::{WAYS, buffer, counting, device, pages};
use kiln_device::{BufferOptions, NullDevice, RawMemory, Record, Usage};
use kiln_ir::ErrorKind;

fn maps(null: &NullDevice) -> usize {
    null.records().iter().filter(|record| matches!(record, Record::Map { .. })).count()
}

fn submissions(null: &NullDevice) -> usize {
    null.records().iter().filter(|record| matches!(record, Record::Submit { .. })).count()
}

/// Host-visible memory is accessed in place: one map each, no copy, no staging.
#[test]
fn shared_memory_is_reached_in_place() {
    let null = NullDevice::new();
    let device = device(&null);
    let shared = buffer(&device, 4096, Usage::Shared);
    null.clear_records();
    shared.write(&counting(4096)).unwrap();
    assert_eq!(shared.read().unwrap(), counting(4096));
    assert_eq!(
        null.records(),
        [
            Record::Map { bytes: 4096, write: true, failed: false },
            Record::Map { bytes: 4096, write: false, failed: false }
        ]
    );
}

/// Other memory is accessed through staging and one submission each way.
#[test]
fn storage_is_reached_through_staging() {
    let null = NullDevice::new();
    let device = device(&null);
    let storage = buffer(&device, 4096, Usage::Storage);
    storage.write(&counting(4096)).unwrap();
    assert_eq!(submissions(&null), 1);
    assert_eq!(storage.read().unwrap(), counting(4096));
    assert_eq!((submissions(&null), maps(&null)), (2, 2));
    let usages: Vec<Usage> = null
        .records()
        .into_iter()
        .filter_map(|record| if let Record::Allocate { usage, .. } = record { Some(usage) } else { None })
        .collect();
    assert_eq!(usages, [Usage::Storage, Usage::Upload, Usage::Download]);
}

/// Staging buffers are pooled: after the first round nothing reaches the driver.
#[test]
fn staging_is_pooled() {
    let null = NullDevice::new();
    let device = device(&null);
    let storage = buffer(&device, 10_000, Usage::Storage);
    storage.write(&counting(10_000)).unwrap();
    drop(storage.read().unwrap());
    let before = device.buffer_pool_stats().driver_allocation_count;
    for _ in 0..20 {
        storage.write(&counting(10_000)).unwrap();
        assert_eq!(storage.read().unwrap(), counting(10_000));
    }
    assert_eq!(device.buffer_pool_stats().driver_allocation_count, before);
    assert_eq!(device.buffer_pool_stats().live_buffers, 1);
}

/// A long write uses several submissions with bounded staging.
#[test]
fn long_writes_use_bounded_staging() {
    let null = NullDevice::new();
    let device = device(&null);
    let bytes = (70 << 20) + 3;
    let storage = buffer(&device, bytes, Usage::Storage);
    let data = pages(bytes);
    storage.write(&data).unwrap();
    assert_eq!(submissions(&null), 3);
    let largest = |record: &Record| {
        if let Record::Allocate { bytes, usage: Usage::Upload } = record { Some(*bytes) } else { None }
    };
    assert_eq!(null.records().iter().filter_map(largest).max(), Some(32 << 20));
    assert!(storage.read().unwrap() == data, "every byte is there");
    assert_eq!(submissions(&null), 6);
    assert!(device.buffer_pool_stats().peak_bytes <= (80 << 20) + (64 << 20), "two pieces at once");
}

/// Copies within one allocation use several pieces as well, from the end if the start would be overwritten.
#[test]
fn long_copies_within_one_allocation() {
    let device = device(&NullDevice::new());
    let data = pages(41 << 20);
    for usage in WAYS {
        for (from, to) in [(0, 1 << 20), (1 << 20, 0), (0, 4), (4, 0)] {
            let whole = buffer(&device, 41 << 20, usage);
            whole.write(&data).unwrap();
            let len = 40 << 20;
            whole.slice(from..from + len).unwrap().copy_to(&whole.slice(to..to + len).unwrap()).unwrap();
            let mut expected = data.clone();
            expected.copy_within(from as usize..(from + len) as usize, to as usize);
            assert!(whole.read().unwrap() == expected, "{from} to {to} in {usage} memory");
        }
    }
}

/// A long write has at most two staging pieces in flight.
#[test]
fn long_writes_do_not_fill_the_queue() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let storage = buffer(&device, 160 << 20, Usage::Storage);
    storage.write(&vec![3; 160 << 20]).unwrap();
    let numbers = device.buffer_pool_stats();
    assert!(numbers.peak_reserved_bytes <= (160 << 20) + 3 * (32 << 20), "{} bytes", numbers.peak_reserved_bytes);
    assert!(null.completed() >= 3);
    assert_eq!(storage.slice((160 << 20) - 4..).unwrap().read().unwrap(), [3; 4]);
}

/// Aligned writes do not read first; writes of partial words do.
#[test]
fn only_unaligned_writes_read_first() {
    let null = NullDevice::new();
    let device = device(&null);
    let storage = buffer(&device, 101, Usage::Storage);
    let submissions_of = |range: std::ops::Range<u64>| {
        let slice = storage.slice(range).unwrap();
        let before = submissions(&null);
        slice.write(&counting(slice.bytes())).unwrap();
        submissions(&null) - before
    };
    assert_eq!(submissions_of(0..101), 1, "the rest of the last word is padding");
    assert_eq!(submissions_of(4..101), 1);
    assert_eq!(submissions_of(8..20), 1);
    assert_eq!(submissions_of(1..101), 3, "one word is read and written, then the others are written");
    assert_eq!(submissions_of(4..99), 3, "the rest of the last word is somebody's");
    assert_eq!(submissions_of(1..99), 5);
    assert_eq!(submissions_of(5..7), 2);
}

/// The host waits only for work that uses the buffer.
#[test]
fn host_access_waits_for_work_on_the_buffer() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (a, b, c) = (buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]), buffer(&device, 64, WAYS[0]));
    a.write(&[1; 64]).unwrap();
    c.write(&[3; 64]).unwrap();
    a.copy_to(&b).unwrap();
    b.copy_to(&c).unwrap();
    assert_eq!(null.completed(), 0);
    assert_eq!(b.map_read(<[u8]>::to_vec).unwrap(), [1; 64]);
    assert_eq!(null.completed(), 2, "the second copy reads the buffer");
    a.copy_to(&c).unwrap();
    b.write(&[7; 64]).unwrap();
    assert_eq!(null.completed(), 2, "the third copy does not touch the buffer");
    a.write(&[9; 64]).unwrap();
    assert_eq!(null.completed(), 3, "a write waits for the copies that read");
    assert_eq!(c.read().unwrap(), [1; 64]);
}

/// Later submissions see a staged write.
#[test]
fn staged_writes_are_seen_by_later_submissions() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let (a, b) = (buffer(&device, 64, Usage::Storage), buffer(&device, 64, Usage::Storage));
    a.write(&[1; 64]).unwrap();
    a.copy_to(&b).unwrap();
    a.write(&[2; 64]).unwrap();
    assert_eq!(null.completed(), 0, "nothing waited");
    assert_eq!((b.read().unwrap(), a.read().unwrap()), (vec![1; 64], vec![2; 64]));
}

/// Copies within one allocation: forwards, backwards, overlapping, onto themselves.
#[test]
fn copies_within_one_allocation() {
    for usage in WAYS {
        let device = device(&NullDevice::new());
        for (from, to) in [(0..40, 20..60), (20..60, 0..40), (0..40, 4..44), (3..43, 0..40), (8..20, 8..20)] {
            let whole = buffer(&device, 64, usage);
            whole.write(&counting(64)).unwrap();
            let (source, target) = (whole.slice(from.clone()).unwrap(), whole.slice(to.clone()).unwrap());
            source.copy_to(&target).unwrap();
            let mut expected = counting(64);
            expected.copy_within(from.start as usize..from.end as usize, to.start as usize);
            assert_eq!(whole.read().unwrap(), expected, "{from:?} to {to:?} in {usage} memory");
        }
    }
}

/// Copies between usages take one submission if everything is aligned.
#[test]
fn copies_between_usages() {
    let null = NullDevice::new();
    let device = device(&null);
    for from in Usage::ALL {
        for to in Usage::ALL {
            let (source, target) = (buffer(&device, 64, from), buffer(&device, 64, to));
            source.write(&counting(64)).unwrap();
            let before = submissions(&null);
            source.copy_to(&target).unwrap();
            // Only the host reads downloads, and only the host writes uploads.
            let by_device = from != Usage::Download && to != Usage::Upload;
            let staged = [from == Usage::Storage, to == Usage::Storage].map(usize::from);
            let expected = if by_device { 1 } else { staged[0] + staged[1] };
            assert_eq!(submissions(&null) - before, expected, "{from} to {to}");
            assert_eq!(target.read().unwrap(), counting(64));
        }
    }
}

#[test]
fn copies_of_different_lengths_are_refused() {
    let device = device(&NullDevice::new());
    let error = buffer(&device, 4, WAYS[0]).copy_to(&buffer(&device, 8, WAYS[0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    insta::assert_snapshot!(error, @"copy expected equal lengths, found 4 and 8 bytes");
}

/// Zeroing changes only the range, in one submission if it is aligned.
#[test]
fn zeroing_a_range() {
    let null = NullDevice::new();
    let device = device(&null);
    for usage in WAYS {
        for range in [0..64, 4..60, 3..10, 63..64, 5..5] {
            let whole = buffer(&device, 64, usage);
            whole.write(&[7; 64]).unwrap();
            whole.slice(range.clone()).unwrap().zero().unwrap();
            let expected: Vec<u8> = (0..64).map(|at| if range.contains(&at) { 0 } else { 7 }).collect();
            assert_eq!(whole.read().unwrap(), expected, "{range:?} in {usage} memory");
        }
    }
}

/// Staging buffers have a label for reports.
#[test]
fn staging_has_a_label() {
    let null = NullDevice::new().manual_completion();
    let device = device(&null);
    let storage = buffer(&device, 4096, Usage::Storage);
    let pending = storage.read_async().unwrap();
    let labels: Vec<String> = device.pool().report().holders.into_iter().map(|holder| holder.label).collect();
    assert_eq!(labels, ["(staging)", "(unlabelled)"]);
    drop(pending);
    assert_eq!(device.pool().report().holders.len(), 1);
}

/// If there is no memory for staging, the error says so.
#[test]
fn no_room_for_staging_is_an_error() {
    let null = NullDevice::new().with_capacity(8192);
    let device = device(&null);
    let storage = device.buffer_with(BufferOptions::new(8192).usage(Usage::Storage).label("all")).unwrap();
    for error in [storage.write(&[0; 8192]).unwrap_err(), storage.read().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("buffer `(staging)`"), "{error}");
    }
}
