//! Every use of a lost device returns its fault, and nothing waits forever.

use crate::support::{self, Count, block_on, within_timeout};
use kiln_device::{Buffer, CommandList, Device};
use kiln_gpu::{GpuDevice, GpuOptions, HostAccess};
use kiln_ir::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::task::Waker;

fn assert_lost<T: std::fmt::Debug>(what: &str, result: Result<T>) -> Error {
    let error = result.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{what}: {error}");
    error
}

/// Every operation on a lost device returns the loss.
fn assert_all_lost(device: &Device, buffer: &Buffer) {
    assert_lost("buffer", device.buffer(64));
    assert_lost("write", buffer.write(&vec![0; buffer.bytes() as usize]));
    assert_lost("read", buffer.read());
    assert_lost("map_read", buffer.map_read(<[u8]>::len));
    assert_lost("map_write", buffer.map_write(|bytes| bytes.len()));
    assert_lost("zero", buffer.zero());
    assert_lost("submit", device.submit(CommandList::new()));
    assert_lost("synchronize", device.synchronize());
    assert_lost("wait", device.api().wait(1));
    assert_lost("allocate", device.api().allocate(64, buffer.usage()));
    let access = buffer.access();
    assert_lost("map", device.api().map(access.region(), &mut |_| panic!("called on a lost device")));
    let fault = device.api().fault().unwrap();
    assert!(fault.to_string().contains(&device.info().name), "{fault}");
}

/// A device that is destroyed while idle: the first use detects the loss.
#[test]
fn the_first_use_after_the_loss_finds_it() {
    type Use = fn(&Device, &Buffer) -> Result<()>;
    let uses: [(&str, Use); 5] = [
        ("allocate", |device, _| device.buffer(123_456).map(drop)),
        ("submit", |device, _| device.submit(CommandList::new()).map(drop)),
        ("synchronize", |device, _| device.synchronize()),
        ("write", |_, buffer| buffer.write(&[1; 64])),
        ("read", |_, buffer| buffer.read().map(drop)),
    ];
    for (what, first) in uses {
        for access in [HostAccess::InPlace, HostAccess::Staged] {
            let Some(device) = support::open(GpuOptions::new().host_access(access)) else { return };
            within_timeout(what, move || {
                let buffer = device.buffer(64).unwrap();
                buffer.write(&[7; 64]).unwrap();
                device.synchronize().unwrap();
                GpuDevice::of(&device).unwrap().wgpu_device().destroy();
                assert_lost(what, first(&device, &buffer));
                assert_all_lost(&device, &buffer);
            });
        }
    }
}

/// A device that is destroyed while busy: futures end, and nothing that did not run counts as done.
#[test]
fn a_loss_ends_work_in_flight() {
    for access in [HostAccess::InPlace, HostAccess::Staged] {
        let Some(device) = support::open(GpuOptions::new().host_access(access)) else { return };
        within_timeout("loss while work is in flight", move || {
            let (from, to) = (device.buffer(32 << 20).unwrap(), device.buffer(32 << 20).unwrap());
            from.write(&vec![9; 32 << 20]).unwrap();
            to.zero().unwrap();
            for _ in 0..10 {
                let mut commands = CommandList::new();
                commands.copy(&from, &to).unwrap();
                device.submit(commands).unwrap();
            }
            let before = to.slice(..1024).unwrap().read_async().unwrap();
            GpuDevice::of(&device).unwrap().wgpu_device().destroy();
            // wgpu accepts submissions silently until the work in flight is done. They must not count as done.
            let count = Arc::<Count>::default();
            let submissions: Vec<_> = (0..3).map_while(|_| device.submit(CommandList::new()).ok()).collect();
            for submission in &submissions {
                device.api().notify(*submission, Waker::from(Arc::clone(&count)));
            }
            assert_lost("synchronization after the loss", device.synchronize());
            for submission in &submissions {
                assert_lost("wait after the loss", device.api().wait(*submission));
            }
            count.wait_for(submissions.len() as u32, "wakers after the loss");
            let after = to.slice(..1024).unwrap().read_async();
            assert_lost("read after the loss", after.and_then(block_on));
            // Work submitted before the loss may have completed; then its result must be right.
            if let Ok(bytes) = block_on(before) {
                assert_eq!(bytes, [9; 1024]);
            }
            assert_all_lost(&device, &to);
        });
    }
}

/// An uncaptured error ends the device instead of the process.
#[test]
fn an_uncaptured_error_ends_the_device() {
    let Some(device) = support::open(GpuOptions::new()) else { return };
    let buffer = device.buffer(64).unwrap();
    buffer.write(&[1; 64]).unwrap();
    let gpu = GpuDevice::of(&device).unwrap();
    let usage = wgpu::BufferUsages::MAP_READ;
    let size = u64::MAX / 2;
    let _ = gpu.wgpu_device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage,
        mapped_at_creation: false,
    });
    let error = assert_lost("read", buffer.read());
    assert!(
        error.to_string().contains("uncaptured error") && error.to_string().contains("maximum buffer size"),
        "{error}"
    );
    assert_all_lost(&device, &buffer);
}

/// A request beyond the limit is `TooLarge`, because freeing memory does not help.
#[test]
fn a_buffer_beyond_the_limit_is_too_large() {
    let Some(device) = support::in_place() else { return };
    let max = device.info().limits.max_buffer_bytes;
    let direct = device.api().allocate(max + 1, kiln_device::Usage::Storage).unwrap_err();
    assert_eq!(direct.kind(), ErrorKind::TooLarge);
    assert!(direct.to_string().contains(&max.to_string()), "{direct}");
    assert_eq!(device.buffer(max + 1).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(device.buffer(u64::MAX).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(device.api().fault().is_none(), "a refused request does not end the device");
    assert_eq!(device.buffer_from(&[1u8, 2, 3]).unwrap().read().unwrap(), [1, 2, 3]);
}

#[test]
fn an_index_beyond_the_list_says_how_many_there_are() {
    if support::in_place().is_none() {
        return;
    }
    let count = kiln_gpu::list().len();
    let error = kiln_gpu::open(count, GpuOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.to_string(), format!("expected the index of a GPU below {count}, found {count}"));
}
