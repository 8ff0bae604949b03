//! Host reads and writes, in place and through staging buffers.

use crate::support::{self, filled, pattern};
use kiln_device::{BufferOptions, Device, Feature, Usage};
use kiln_gpu::{GpuOptions, HostAccess};
use kiln_ir::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The options determine the default usage.
#[test]
fn the_default_usage_follows_the_options() {
    let Some(device) = support::in_place() else { return };
    assert_eq!(device.buffer(8).unwrap().usage(), Usage::Shared);
    let Some(device) = support::staged() else { return };
    assert_eq!(device.buffer(8).unwrap().usage(), Usage::Storage);
}

/// Written bytes are read back at any offset and length, and neighbouring bytes do not change.
#[test]
fn every_offset_and_length_survives_a_round_trip() {
    for device in support::both() {
        let usage = device.buffer(1).unwrap().usage();
        let whole = pattern(1, 61);
        let buffer = filled(&device, usage, &whole);
        for start in (0..20).chain([31, 32, 33]) {
            for len in (0..14).chain([27, 28]) {
                let part = pattern(1000 + start * 100 + len, len as usize);
                let slice = buffer.slice(start..start + len).unwrap();
                slice.write(&part).unwrap();
                assert_eq!(slice.read().unwrap(), part, "{usage} {start} {len}");
                let mut expected = whole.clone();
                expected[start as usize..(start + len) as usize].copy_from_slice(&part);
                assert_eq!(buffer.read().unwrap(), expected, "{usage} {start} {len}");
                buffer.write(&whole).unwrap();
            }
        }
    }
}

fn odd_elements(device: &Device) {
    for len in [0usize, 1, 3, 5, 255, 257] {
        let bytes = pattern(len as u64, len);
        assert_eq!(device.buffer_from(&bytes).unwrap().read().unwrap(), bytes);
        let halves: Vec<u16> = bytes.iter().map(|byte| u16::from(*byte) * 257).collect();
        let buffer = device.buffer_from(&halves).unwrap();
        assert_eq!(buffer.read().unwrap(), halves);
        if len > 1 {
            assert_eq!(buffer.slice(1..).unwrap().read().unwrap(), halves[1..]);
        }
    }
    let doubles = [1.5f64, -2.5, f64::MIN_POSITIVE];
    assert_eq!(device.buffer_from(&doubles).unwrap().map_read(<[f64]>::to_vec).unwrap(), doubles);
}

#[test]
fn odd_counts_of_elements_survive_a_round_trip() {
    support::both().for_each(|device| odd_elements(&device));
}

/// A partial write keeps the surrounding bytes, for all usages including staging.
#[test]
fn a_partial_write_keeps_its_neighbours() {
    let Some(device) = support::in_place() else { return };
    for usage in Usage::ALL {
        let bytes = pattern(7, 64);
        let buffer = filled(&device, usage, &bytes);
        let part = buffer.slice(13..22).unwrap();
        part.map_write(|bytes| {
            assert_eq!(bytes.len(), 9);
            bytes[2] = !bytes[2];
        })
        .unwrap();
        let mut expected = bytes;
        expected[15] = !expected[15];
        assert_eq!(buffer.read().unwrap(), expected, "{usage}");
        assert_eq!(part.map_read(<[u8]>::to_vec).unwrap(), expected[13..22], "{usage}");
    }
}

/// The debug mode of the pool accesses device-only storage through `RawMemory::map`.
#[test]
fn the_memory_maps_storage_through_a_copy() {
    let Some(device) = support::staged() else { return };
    let bytes = pattern(3, 99);
    let buffer = filled(&device, Usage::Storage, &bytes);
    let part = buffer.slice(5..44).unwrap();
    let mut calls = 0;
    let mut access = part.access_mut();
    device
        .api()
        .map_mut(access.region_mut(), &mut |found| {
            assert_eq!(found, &bytes[5..44]);
            found[0] = !found[0];
            calls += 1;
        })
        .unwrap();
    drop(access);
    let mut expected = bytes.clone();
    expected[5] = !expected[5];
    let access = part.access();
    device
        .api()
        .map(access.region(), &mut |found| {
            assert_eq!(found, &expected[5..44]);
            calls += 1;
        })
        .unwrap();
    drop(access);
    assert_eq!(calls, 2);
    assert_eq!(buffer.read().unwrap(), expected);
}

/// A closure that panics leaves the buffer usable by host and device.
#[test]
fn a_panic_inside_a_map_leaves_the_buffer_unmapped() {
    let Some(device) = support::in_place() else { return };
    let buffer = filled(&device, Usage::Shared, &[1; 16]);
    let result = catch_unwind(AssertUnwindSafe(|| buffer.map_write(|_| panic!("planted"))));
    assert!(result.is_err());
    let result = catch_unwind(AssertUnwindSafe(|| buffer.map_read(|_| panic!("planted"))));
    assert!(result.is_err());
    let copy = device.buffer(16).unwrap();
    buffer.copy_to(&copy).unwrap();
    assert_eq!(copy.read().unwrap(), [1; 16]);
    buffer.write(&[2; 16]).unwrap();
    assert_eq!(buffer.read().unwrap(), [2; 16]);
    assert!(device.api().fault().is_none());
}

/// A submission from inside a map closure of the same buffer is rejected instead of a deadlock.
#[test]
fn a_submission_inside_a_map_of_its_buffer_is_refused() {
    let Some(device) = support::in_place() else { return };
    let error = support::within_timeout("submission inside a map", move || {
        let (from, to) = (filled(&device, Usage::Shared, &[1; 16]), device.buffer(16).unwrap());
        let inside = from.map_read(|_| from.copy_to(&to)).unwrap();
        from.copy_to(&to).unwrap();
        assert_eq!(to.read().unwrap(), [1; 16]);
        inside.unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn access_in_place_needs_mappable_storage() {
    if support::in_place().is_none() {
        return;
    }
    let without = GpuOptions::new().without(Feature::MappableStorage);
    let error = kiln_gpu::open(0, without.clone().host_access(HostAccess::InPlace)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("mappable-storage") && error.to_string().contains("gpu:0"), "{error}");
    let device = kiln_gpu::open(0, without).unwrap();
    assert_eq!(device.buffer(8).unwrap().usage(), Usage::Storage);
    let error = device.buffer_with(BufferOptions::new(8).usage(Usage::Shared)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
