//! Buffers of elements.

use crate::fixture::{WAYS, buffer, device};
use kiln_device::{BufferOptions, NullDevice, TypedBuffer};
use kiln_ir::ErrorKind;
use std::ops::Bound;

/// Elements are written and read, in place and through staging.
#[test]
fn elements_round_trip() {
    let device = device(&NullDevice::new());
    for usage in WAYS {
        let options = BufferOptions::of::<f64>(5).unwrap().usage(usage);
        let buffer: TypedBuffer<f64> = device.buffer_with(options).unwrap().typed().unwrap();
        let values = [1.5, -2.5, f64::MAX, 0.0, 7.25];
        buffer.write(&values).unwrap();
        assert_eq!(buffer.read().unwrap(), values);
        assert_eq!((buffer.len(), buffer.is_empty()), (5, false));
        buffer.map_write(|values| values[2] *= 0.5).unwrap();
        assert_eq!(buffer.map_read(|values| values[2]).unwrap(), f64::MAX / 2.0);
        buffer.slice(1..3).unwrap().zero().unwrap();
        assert_eq!(buffer.read().unwrap(), [1.5, 0.0, 0.0, 0.0, 7.25]);
        let copy = device.buffer_of(5).unwrap();
        buffer.copy_to(&copy).unwrap();
        assert_eq!(copy.read().unwrap(), buffer.read().unwrap());
        let clone = buffer.clone();
        assert!(clone.as_bytes().shares_allocation_with(buffer.as_bytes()));
        assert_eq!(clone.into_bytes().bytes(), 40);
    }
}

/// Ranges count elements, not bytes.
#[test]
fn slices_count_elements() {
    let device = device(&NullDevice::new());
    let buffer = device.buffer_from(&[10u32, 11, 12, 13, 14]).unwrap();
    let read = |slice: kiln_ir::Result<TypedBuffer<u32>>| slice.unwrap().read().unwrap();
    assert_eq!(read(buffer.slice(..)), [10, 11, 12, 13, 14]);
    assert_eq!(read(buffer.slice(3..)), [13, 14]);
    assert_eq!(read(buffer.slice(..2)), [10, 11]);
    assert_eq!(read(buffer.slice(..=2)), [10, 11, 12]);
    assert_eq!(read(buffer.slice(1..=1)), [11]);
    assert_eq!(read(buffer.slice((Bound::Excluded(1), Bound::Unbounded))), [12, 13, 14]);
    assert_eq!(read(buffer.slice(5..)), [0; 0]);
    assert_eq!(read(buffer.slice(2..).unwrap().slice(1..)), [13, 14]);
    assert!(buffer.slice(2..2).unwrap().is_empty());
}

/// Ranges outside are rejected, whatever their numbers, and the message contains the element size.
#[test]
fn ranges_outside_are_refused() {
    let device = device(&NullDevice::new());
    let buffer = device.buffer_from(&[10u32, 11]).unwrap();
    for range in [
        (Bound::Included(0), Bound::Excluded(3)),
        (Bound::Included(0), Bound::Included(2)),
        (Bound::Included(3), Bound::Unbounded),
        (Bound::Excluded(2), Bound::Unbounded),
        (Bound::Excluded(usize::MAX), Bound::Unbounded),
        (Bound::Unbounded, Bound::Included(usize::MAX)),
        (Bound::Included(usize::MAX), Bound::Excluded(usize::MAX)),
    ] {
        assert_eq!(buffer.slice(range).unwrap_err().kind(), ErrorKind::InvalidArgument, "{range:?}");
    }
    insta::assert_snapshot!(buffer.slice(1..3).unwrap_err(), @"elements of 4 bytes: slice expected a range within 0..8, found 4..12");
}

/// Bytes convert to elements only if length and offset allow it.
#[test]
fn bytes_become_elements_where_they_fit() {
    let device = device(&NullDevice::new());
    let bytes = buffer(&device, 24, WAYS[0]);
    assert_eq!(bytes.clone().typed::<u64>().unwrap().len(), 3);
    assert_eq!(bytes.slice(8..).unwrap().typed::<u64>().unwrap().len(), 2);
    assert_eq!(bytes.slice(1..4).unwrap().typed::<u8>().unwrap().len(), 3);
    assert_eq!(bytes.slice(4..16).unwrap().typed::<[u32; 3]>().unwrap().len(), 1);
    let refusals = [
        bytes.slice(..20).unwrap().typed::<u64>().map(drop),
        bytes.slice(4..12).unwrap().typed::<u64>().map(drop),
        bytes.slice(1..5).unwrap().typed::<u32>().map(drop),
        bytes.slice(..16).unwrap().typed::<u128>().map(drop),
        bytes.slice(..0).unwrap().typed::<()>().map(drop),
    ];
    for refusal in &refusals {
        assert_eq!(refusal.as_ref().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    insta::assert_snapshot!(refusals[1].as_ref().unwrap_err(), @"typed buffer expected an offset in multiples of the alignment (at most 8) and a length in multiples of the element, found offset 4 and length 8 for elements of 8 bytes aligned to 8");
}

/// A buffer without elements is valid.
#[test]
fn no_elements() {
    let device = device(&NullDevice::new());
    let none = device.buffer_from::<f32>(&[]).unwrap();
    assert!(none.is_empty() && none.read().unwrap().is_empty());
    none.write(&[]).unwrap();
    none.zero().unwrap();
    assert_eq!(none.map_read(<[f32]>::len).unwrap(), 0);
    assert_eq!(none.map_write(|values| values.len()).unwrap(), 0);
    none.copy_to(&device.buffer_of(0).unwrap()).unwrap();
    assert!(none.slice(..).unwrap().is_empty());
}

/// Data of another length is rejected, in elements and in bytes.
#[test]
fn data_of_another_length_is_refused() {
    let device = device(&NullDevice::new());
    let buffer = device.buffer_from(&[1u32, 2]).unwrap();
    for data in [&[1u32][..], &[1, 2, 3], &[]] {
        assert_eq!(buffer.write(data).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    insta::assert_snapshot!(buffer.write(&[1, 2, 3]).unwrap_err(), @"write expected 8 bytes, as long as the buffer, found 12");
    assert_eq!(buffer.read().unwrap(), [1, 2], "nothing was written");
    assert_eq!(
        format!("{buffer:?}"),
        "TypedBuffer<u32>(Buffer { device: \"null\", offset: 0, bytes: 8, usage: Shared })"
    );
}

#[test]
fn too_many_elements_are_too_large() {
    let device = device(&NullDevice::new());
    assert_eq!(device.buffer_of::<u64>(usize::MAX).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(device.buffer_of::<u8>(2 << 30).unwrap_err().kind(), ErrorKind::TooLarge);
}
