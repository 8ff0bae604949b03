//! Several devices, and buffers that outlive their device.

use crate::fixture::{WAYS, buffer, counting, device};
use kiln_device::{Device, DeviceKind, NullDevice, Pool, PoolConfig, PoolOptions};
use std::sync::Arc;

/// Two devices have two pools.
#[test]
fn devices_have_separate_pools() {
    let (first, second) = (NullDevice::new(), NullDevice::new());
    let (a, b) = (device(&first), device(&second));
    drop(a.buffer(4096).unwrap());
    let held = b.buffer(4096).unwrap();
    assert_eq!((a.buffer_pool_stats().bytes_cached, b.buffer_pool_stats().bytes_cached), (4096, 0));
    assert_eq!((first.live_bytes(), second.live_bytes()), (4096, 4096));
    a.pool().cleanup(true);
    a.pool().set_config(PoolConfig { pooling: false, ..PoolConfig::default() }).unwrap();
    assert_eq!((first.live_bytes(), second.live_bytes()), (0, 4096));
    assert!(b.pool().config().pooling);
    drop(held);
    assert_eq!(b.buffer_pool_stats().bytes_cached, 4096);
}

/// Copies between devices go through the host, aligned or not, for every pair of usages.
#[test]
fn copies_between_devices() {
    let (a, b) = (device(&NullDevice::new().manual_completion()), device(&NullDevice::new()));
    for from in WAYS {
        for to in WAYS {
            for range in [0..101, 3..50, 100..101, 7..7] {
                let (source, target) = (buffer(&a, 101, from), buffer(&b, 101, to));
                source.write(&counting(101)).unwrap();
                target.write(&[0; 101]).unwrap();
                assert!(!source.is_on_device_of(&target));
                source.slice(range.clone()).unwrap().copy_to(&target.slice(range.clone()).unwrap()).unwrap();
                let expected: Vec<u8> =
                    (0..101).map(|at| if range.contains(&at) { counting(101)[at as usize] } else { 0 }).collect();
                assert_eq!(target.read().unwrap(), expected, "{from} to {to}, {range:?}");
            }
        }
    }
}

/// Buffers outlive their device and its pool and stay fully usable; their memory is freed with them.
#[test]
fn buffers_outlive_their_device() {
    for usage in WAYS {
        let null = NullDevice::new();
        let device = device(&null);
        let (kept, other) = (buffer(&device, 101, usage), buffer(&device, 101, usage));
        kept.write(&counting(101)).unwrap();
        drop(buffer(&device, 1 << 20, usage));
        let clone = device.clone();
        drop(device);
        assert!(null.live_bytes() > 1 << 20, "a clone is the same device");
        drop(clone);
        assert!(null.live_bytes() < 1024, "what was cached is gone");
        kept.slice(1..).unwrap().write(&counting(100)).unwrap();
        assert_eq!(kept.slice(1..).unwrap().read().unwrap(), counting(100));
        kept.copy_to(&other).unwrap();
        assert_eq!(other.read().unwrap(), kept.read().unwrap());
        assert_eq!(kept.device_info().kind, DeviceKind::Null);
        assert_eq!(null.live_bytes(), 512, "staging is not kept without a pool");
        drop((kept, other));
        assert_eq!(null.live_bytes(), 0);
    }
}

/// A handle of the pool keeps the pool open without the device.
#[test]
fn a_pool_handle_keeps_the_pool() {
    let null = NullDevice::new();
    let device = device(&null);
    let pool: Pool = device.pool().clone();
    drop(device);
    drop(pool.allocate(4096).unwrap());
    assert_eq!((null.live_bytes(), pool.statistics().bytes_cached), (4096, 4096));
    drop(pool);
    assert_eq!(null.live_bytes(), 0);
}

/// The description of a device, and validation of its pool options.
#[test]
fn a_device_is_described() {
    let null = NullDevice::new();
    let device = device(&null);
    assert_eq!((device.info().id.as_str(), device.info().kind), ("null", DeviceKind::Null));
    assert_eq!(device.info().fingerprint.len(), 32);
    assert_eq!(device.info().memory.default_budget_bytes, device.buffer_pool_stats().budget_bytes);
    assert_eq!(device.api().info(), device.info());
    let wrong = PoolOptions::new().config(PoolConfig { budget_bytes: Some(0), ..PoolConfig::default() });
    assert!(Device::new(Arc::new(null), wrong).is_err());
}
