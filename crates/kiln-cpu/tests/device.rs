//! The CPU device as users hold it: buffers, copies, submissions, separate pools.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kiln_cpu::{CpuDevice, CpuOptions, HostAccess, SimdLevel};
use kiln_device::{Buffer, BufferOptions, CommandList, Device, DeviceApi, DeviceKind, Feature, RawMemory, Usage};
use kiln_ir::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

fn open(access: HostAccess) -> Device {
    kiln_cpu::open(CpuOptions::new().threads(2).host_access(access)).unwrap()
}

/// Bytes that differ between neighbours, between chunks of any even size, and between seeds.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|index| ((index ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Both kinds of host access give the same bytes, and each is the one that was requested.
#[test]
fn written_bytes_are_read_back_in_place_and_staged() {
    for (access, usage) in [(HostAccess::InPlace, Usage::Shared), (HostAccess::Staged, Usage::Storage)] {
        let device = open(access);
        assert_eq!(device.info().memory.shared_with_host, access == HostAccess::InPlace);
        for len in [0, 1, 3, 255, 256, 257, 4095, 65_537, (1 << 20) - 1, (1 << 20) + 1, (5 << 20) + 7] {
            let (data, buffer) = (pattern(len, 1), device.buffer(len as u64).unwrap());
            assert_eq!(buffer.usage(), usage);
            buffer.write(&data).unwrap();
            assert_eq!(buffer.read().unwrap(), data, "{len} bytes, {access:?}");
            buffer.map_write(<[u8]>::reverse).unwrap();
            assert!(buffer.map_read(|bytes| bytes.iter().eq(data.iter().rev())).unwrap(), "{len} bytes, {access:?}");
        }
        let staged = device.pool().report().holders.iter().any(|holder| holder.label == "(staging)");
        assert!(!staged, "staging is returned");
        let submissions = device.api().completed();
        assert_eq!(submissions > 0, access == HostAccess::Staged, "only staging submits copies: {submissions}");
    }
}

#[test]
fn odd_slices_are_copied_and_their_neighbours_are_not_touched() {
    for access in [HostAccess::InPlace, HostAccess::Staged] {
        let device = open(access);
        let (from, to) = (device.buffer(1000).unwrap(), device.buffer(1000).unwrap());
        let (a, b) = (pattern(1000, 1), pattern(1000, 2));
        from.write(&a).unwrap();
        to.write(&b).unwrap();
        from.slice(13..500).unwrap().copy_to(&to.slice(7..494).unwrap()).unwrap();
        to.slice(701..702).unwrap().zero().unwrap();
        let mut expected = b;
        expected[7..494].copy_from_slice(&a[13..500]);
        expected[701] = 0;
        assert_eq!(to.read().unwrap(), expected, "{access:?}");
    }
}

/// Sizes around the threshold for parallel execution, and around the chunk size.
#[test]
fn large_copies_and_fills_reach_every_byte_and_no_other() {
    let device = kiln_cpu::open(CpuOptions::new().threads(4)).unwrap();
    for len in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 19) + 13, (33 << 20) + 4097] {
        let (whole_from, whole_to) = (device.buffer(len + 2).unwrap(), device.buffer(len + 2).unwrap());
        let (a, b) = (pattern(len as usize + 2, 1), pattern(len as usize + 2, 2));
        whole_from.write(&a).unwrap();
        whole_to.write(&b).unwrap();
        let (from, to) = (whole_from.slice(1..=len).unwrap(), whole_to.slice(1..=len).unwrap());
        from.copy_to(&to).unwrap();
        let inner = 1..=len as usize;
        let mut expected = b;
        expected[inner.clone()].copy_from_slice(&a[inner.clone()]);
        assert!(whole_to.read().unwrap() == expected, "copy of {len}");
        to.zero().unwrap();
        expected[inner].fill(0);
        assert!(whole_to.read().unwrap() == expected, "fill of {len}");
        assert!(whole_from.read().unwrap() == a, "source of {len}");
    }
}

#[test]
fn commands_of_one_submission_take_effect_in_their_order() {
    let device = open(HostAccess::InPlace);
    let buffers: Vec<_> = (0..3u32).map(|index| device.buffer_from(&[index; 1000]).unwrap()).collect();
    let mut commands = CommandList::new();
    commands.copy(buffers[0].as_bytes(), buffers[1].as_bytes()).unwrap();
    commands.copy(buffers[2].as_bytes(), buffers[0].as_bytes()).unwrap();
    commands.zero(buffers[2].as_bytes()).unwrap();
    commands.copy(buffers[2].as_bytes(), buffers[1].slice(..1000).unwrap().as_bytes()).unwrap();
    device.submit(commands).unwrap();
    let first: Vec<u32> = buffers.iter().map(|buffer| buffer.read().unwrap()[999]).collect();
    assert_eq!(first, [2, 0, 0]);
}

#[test]
fn copies_in_opposite_directions_do_not_wait_for_each_other() {
    let device = open(HostAccess::InPlace);
    let (a, b) = (device.buffer_from(&[1u8; 1000]).unwrap(), device.buffer_from(&[2u8; 1000]).unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let copies = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let (a, b) = (&a, &b);
            std::thread::scope(|scope| {
                let end = Instant::now() + Duration::from_millis(300);
                let copy_on = move |from: &Buffer, to: &Buffer| {
                    while Instant::now() < end {
                        from.copy_to(to).unwrap();
                    }
                };
                scope.spawn(move || copy_on(a.as_bytes(), b.as_bytes()));
                scope.spawn(move || copy_on(b.as_bytes(), a.as_bytes()));
            });
            done.store(true, Ordering::Release);
            (a.read().unwrap(), b.read().unwrap())
        })
    };
    // Not a join, which would hang if the test should fail.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done.load(Ordering::Acquire) {
        assert!(Instant::now() < deadline, "two copies wait for each other");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (a, b) = copies.join().unwrap();
    assert_eq!(a, b);
    assert!(a.iter().all(|byte| *byte == a[0]), "no copy saw half of another");
}

#[test]
fn submissions_are_numbered_and_done_when_they_return() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let device = CpuDevice::new(&CpuOptions::new()).unwrap();
    assert_eq!(device.completed(), 0);
    device.wait(0).unwrap();
    assert_eq!(device.wait(1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for number in 1..=3 {
        assert_eq!(device.submit(&[]).unwrap(), number);
        assert_eq!(device.completed(), number);
        device.wait(number).unwrap();
    }
    let message = device.wait(4).unwrap_err().to_string();
    assert_eq!(message, "CPU device expected a submission up to 3, found 4");
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    device.notify(3, Waker::from(Arc::clone(&flag)));
    assert!(flag.0.load(Ordering::Relaxed), "woken at once");
    assert!(device.fault().is_none());
}

#[test]
fn numbers_of_concurrent_submissions_are_all_different_and_all_done() {
    let device = CpuDevice::new(&CpuOptions::new()).unwrap();
    let submit = || -> Vec<u64> {
        let submit_one = |_| {
            let number = device.submit(&[]).unwrap();
            device.wait(number).unwrap();
            number
        };
        (0..1000).map(submit_one).collect()
    };
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(submit)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=4000).collect::<Vec<_>>());
}

/// Resources of one device are not valid on another, although both are the same CPU.
#[test]
fn two_devices_have_separate_pools() {
    let (a, b) = (open(HostAccess::InPlace), open(HostAccess::InPlace));
    let held = a.buffer_with(BufferOptions::new(1 << 20).label("held")).unwrap();
    assert_eq!((a.buffer_pool_stats().live_buffers, b.buffer_pool_stats().live_buffers), (1, 0));
    drop(b.buffer(1 << 20).unwrap());
    b.pool().clear().unwrap();
    drop(b);
    held.zero().unwrap();
    drop(held);
    assert_eq!(a.buffer_pool_stats().live_buffers, 0);
    let other = open(HostAccess::InPlace);
    let mut commands = CommandList::new();
    commands.zero(&other.buffer(16).unwrap()).unwrap();
    assert_eq!(a.submit(commands).unwrap_err().kind(), ErrorKind::InvalidArgument, "a buffer of another device");
}

#[test]
fn a_buffer_that_can_never_fit_is_too_large() {
    let device = open(HostAccess::InPlace);
    let total = device.info().memory.total_bytes.unwrap();
    assert_eq!(device.buffer(total + 1).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(device.buffer(u64::MAX).unwrap_err().kind(), ErrorKind::TooLarge);
    let api = device.api();
    assert_eq!(api.allocate(total + 1, Usage::Shared).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(api.allocate(u64::MAX, Usage::Shared).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn info_tells_what_open_gives() {
    let (info, device) = (kiln_cpu::info(), kiln_cpu::open(CpuOptions::new()).unwrap());
    assert_eq!(&info, device.info());
    assert_eq!((info.id.as_str(), info.kind, info.driver.as_str()), ("cpu", DeviceKind::Cpu, "native"));
    assert_eq!(info.driver_version, env!("CARGO_PKG_VERSION"));
    assert!(!info.name.is_empty());
    assert_eq!(info.fingerprint.len(), 32);
    let simd = SimdLevel::detect();
    // In SIMD lanes or one at a time.
    assert_eq!(info.limits.subgroup_size, cfg!(feature = "wgsl").then_some((8, 8)));
    assert_eq!(info.features.contains(&Feature::Avx2), matches!(simd, SimdLevel::Avx2 | SimdLevel::Avx512));
    assert_eq!(info.limits.threads, Some(std::thread::available_parallelism().unwrap().get() as u32));
    let properties = device.api().properties();
    assert_eq!(properties.default_budget_bytes, info.memory.default_budget_bytes);
    assert_eq!(properties.max_block_bytes, info.limits.max_buffer_bytes);
}

#[test]
fn no_thread_is_a_wrong_argument() {
    let error = kiln_cpu::open(CpuOptions::new().threads(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let (a, b) = (device.buffer_from(&[7u8; 2 << 20]).unwrap(), device.buffer_of::<u8>(2 << 20).unwrap());
    a.copy_to(&b).unwrap();
    assert_eq!(b.read().unwrap(), [7; 2 << 20], "one thread does all");
}

/// A build without the kernel compiler reports the missing feature.
#[cfg(not(feature = "wgsl"))]
#[test]
fn kernels_need_the_feature_wgsl() {
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    let limits = &device.info().limits;
    assert_eq!((device.info().compiler.as_deref(), limits.max_binding_bytes), (None, limits.max_buffer_bytes));
    let source = kiln_device::KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
    let error = device.kernel(source).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("it needs the feature `wgsl`"), "{error}");
}
