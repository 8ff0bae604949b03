//! Slices: shared memory, every kind of range, and rejected ranges.

use crate::fixture::{WAYS, buffer, counting, device};
use kiln_device::NullDevice;
use kiln_ir::ErrorKind;
use std::ops::Bound;

/// Every kind of range means the same as for a Rust slice.
#[test]
fn every_kind_of_range() {
    let device = device(&NullDevice::new());
    let data = counting(20);
    for usage in WAYS {
        let whole = buffer(&device, 20, usage);
        whole.write(&data).unwrap();
        let read = |slice: kiln_ir::Result<kiln_device::Buffer>| slice.unwrap().read().unwrap();
        assert_eq!(read(whole.slice(..)), data);
        assert_eq!(read(whole.slice(3..)), data[3..]);
        assert_eq!(read(whole.slice(..7)), data[..7]);
        assert_eq!(read(whole.slice(..=7)), data[..=7]);
        assert_eq!(read(whole.slice(2..9)), data[2..9]);
        assert_eq!(read(whole.slice(2..=9)), data[2..=9]);
        assert_eq!(read(whole.slice((Bound::Excluded(2), Bound::Included(9)))), data[3..=9]);
        assert_eq!(read(whole.slice((Bound::Excluded(2), Bound::Excluded(9)))), data[3..9]);
        assert_eq!(read(whole.slice(20..)), [0; 0]);
        assert_eq!(read(whole.slice(5..5)), [0; 0]);
    }
}

/// Offsets of nested slices are relative to their parent.
#[test]
fn slices_of_slices() {
    let device = device(&NullDevice::new());
    let whole = buffer(&device, 100, WAYS[0]);
    whole.write(&counting(100)).unwrap();
    let outer = whole.slice(10..90).unwrap();
    let inner = outer.slice(5..=9).unwrap();
    assert_eq!((inner.offset(), inner.bytes()), (15, 5));
    assert_eq!(inner.read().unwrap(), counting(100)[15..20]);
    assert!(inner.shares_allocation_with(&whole) && inner.is_on_device_of(&whole));
    assert!(!inner.shares_allocation_with(&buffer(&device, 5, WAYS[0])));
    inner.write(&[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(whole.read().unwrap()[14..21], [counting(100)[14], 1, 2, 3, 4, 5, counting(100)[20]]);
}

/// A slice keeps the memory alive.
#[test]
fn the_memory_lives_with_its_last_slice() {
    let device = device(&NullDevice::new());
    let whole = device.buffer_from(&[1u32, 2, 3, 4]).unwrap();
    let slice = whole.slice(2..).unwrap();
    drop(whole);
    let other = device.buffer_from(&[9u32; 4]).unwrap();
    assert_eq!((slice.read().unwrap(), other.read().unwrap()), (vec![3, 4], vec![9; 4]));
    assert_eq!(device.buffer_pool_stats().live_buffers, 2);
}

/// Ranges outside of the buffer are rejected, whatever their numbers.
#[test]
fn ranges_outside_are_refused() {
    let device = device(&NullDevice::new());
    let whole = buffer(&device, 20, WAYS[0]);
    let slice = whole.slice(4..10).unwrap();
    let messages: Vec<String> = [
        (Bound::Included(0), Bound::Excluded(21)),
        (Bound::Included(0), Bound::Included(20)),
        (Bound::Included(7), Bound::Excluded(6)),
        (Bound::Included(21), Bound::Unbounded),
        (Bound::Excluded(20), Bound::Unbounded),
        (Bound::Excluded(u64::MAX), Bound::Unbounded),
        (Bound::Included(0), Bound::Included(u64::MAX)),
        (Bound::Included(u64::MAX), Bound::Included(u64::MAX)),
    ]
    .into_iter()
    .map(|range| {
        let error = whole.slice(range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    })
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
    assert!(slice.slice(..7).is_err(), "a slice ends where it ends, not where its memory does");
    assert!(slice.slice(..6).is_ok());
}

/// The properties of a buffer.
#[test]
fn a_buffer_describes_itself() {
    let device = device(&NullDevice::new());
    let slice = buffer(&device, 20, WAYS[1]).slice(4..8).unwrap();
    assert_eq!((slice.usage(), slice.device_info().id.as_str()), (WAYS[1], "null"));
    assert_eq!(format!("{slice:?}"), "Buffer { device: \"null\", offset: 4, bytes: 4, usage: Storage }");
    assert_eq!(format!("{device:?}"), "Device { id: \"null\", name: \"null device\" }");
}
