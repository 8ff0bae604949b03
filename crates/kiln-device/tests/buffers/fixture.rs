//! Devices and buffers of each usage, with a clock that stands still.

use kiln_device::{Buffer, BufferOptions, Device, NullDevice, PoolOptions, Usage};
use kiln_resource_cache::MockClock;

/// The two ways in which the host reaches storage: in place and through staging.
pub(crate) const WAYS: [Usage; 2] = [Usage::Shared, Usage::Storage];

/// A device whose pool starts no thread.
pub(crate) fn device(null: &NullDevice) -> Device {
    null.clone().into_device_with(PoolOptions::new().clock(MockClock::new())).unwrap()
}

/// A buffer of a usage.
pub(crate) fn buffer(device: &Device, bytes: u64, usage: Usage) -> Buffer {
    device.buffer_with(BufferOptions::new(bytes).usage(usage)).unwrap()
}

/// Many bytes, cheaply: each page differs from its neighbours.
pub(crate) fn pages(bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    data.chunks_mut(4096).enumerate().for_each(|(page, bytes)| bytes.fill(page as u8 ^ (page >> 8) as u8));
    data
}

/// Bytes that differ from their neighbours.
pub(crate) fn counting(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8)).collect()
}
