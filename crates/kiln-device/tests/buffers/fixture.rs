//! Devices and buffers of each usage, with a mock clock.

use kiln_device::{Buffer, BufferOptions, Device, NullDevice, PoolOptions, Usage};
use kiln_resource_cache::MockClock;

/// The two kinds of host access: in place and through staging.
pub(crate) const WAYS: [Usage; 2] = [Usage::Shared, Usage::Storage];

/// Creates a device whose pool starts no thread.
pub(crate) fn device(null: &NullDevice) -> Device {
    null.clone().into_device_with(PoolOptions::new().clock(MockClock::new())).unwrap()
}

/// Allocates a buffer of a usage.
pub(crate) fn buffer(device: &Device, bytes: u64, usage: Usage) -> Buffer {
    device.buffer_with(BufferOptions::new(bytes).usage(usage)).unwrap()
}

/// Returns many bytes cheaply: each page differs from its neighbours.
pub(crate) fn pages(bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    data.chunks_mut(4096).enumerate().for_each(|(page, bytes)| bytes.fill(page as u8 ^ (page >> 8) as u8));
    data
}

/// Returns bytes that differ from their neighbours.
pub(crate) fn counting(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8)).collect()
}
