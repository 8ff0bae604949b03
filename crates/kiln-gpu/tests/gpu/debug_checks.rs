//! The debug mode of the pool detects invalid writes, injected here through wgpu.

use crate::support;
use kiln_device::pool::ViolationKind;
use kiln_device::{BufferOptions, Device, PoolOptions};
use kiln_gpu::{GpuDevice, GpuOptions, HostAccess};

const ACCESS: [HostAccess; 2] = [HostAccess::InPlace, HostAccess::Staged];

fn open(access: HostAccess) -> Option<Device> {
    support::open(GpuOptions::new().host_access(access).pool(PoolOptions::new().debug_checks(true)))
}

fn overwrite(device: &Device, raw: &wgpu::Buffer, offset: u64) {
    GpuDevice::of(device).unwrap().wgpu_queue().write_buffer(raw, offset, &[1, 2, 3, 4]);
    device.synchronize().unwrap();
}

#[test]
fn ordinary_use_has_no_findings() {
    for access in ACCESS {
        let Some(device) = open(access) else { return };
        for len in [1, 63, 64, 1000, 4096] {
            let (from, to) = (device.buffer_from(&vec![7u8; len]).unwrap(), device.buffer_of::<u8>(len).unwrap());
            from.copy_to(&to).unwrap();
            drop(from);
            assert_eq!(to.read().unwrap(), vec![7; len]);
        }
        device.pool().clear().unwrap();
        assert_eq!(device.pool().violations(), [], "{access:?}");
    }
}

#[test]
fn a_write_after_free_is_found() {
    for access in ACCESS {
        let Some(device) = open(access) else { return };
        let buffer = device.buffer_with(BufferOptions::new(1000).label("victim")).unwrap();
        let (raw, _) = GpuDevice::wgpu_buffer(&buffer).unwrap();
        drop(buffer);
        overwrite(&device, &raw, 40);
        let next = device.buffer(1000).unwrap();
        assert_eq!(GpuDevice::wgpu_buffer(&next).unwrap().0, raw, "the block is lent again");
        let found = device.pool().violations();
        assert_eq!(found.len(), 1, "{access:?}: {found:?}");
        assert_eq!(
            (found[0].kind, found[0].offset, found[0].found),
            (ViolationKind::WriteAfterFree, 40, 1),
            "{access:?}"
        );
        assert_eq!(found[0].label, "victim");
    }
}

#[test]
fn a_write_beyond_the_end_is_found() {
    for access in ACCESS {
        let Some(device) = open(access) else { return };
        let buffer = device.buffer_with(BufferOptions::new(1000).label("culprit")).unwrap();
        let (raw, _) = GpuDevice::wgpu_buffer(&buffer).unwrap();
        overwrite(&device, &raw, 996);
        overwrite(&device, &raw, 1004);
        drop(buffer);
        device.pool().clear().unwrap();
        let found = device.pool().violations();
        assert_eq!(found.len(), 1, "{access:?}: {found:?}");
        assert_eq!(
            (found[0].kind, found[0].offset, found[0].found),
            (ViolationKind::WriteBeyondEnd, 1004, 1),
            "{access:?}"
        );
        assert_eq!(found[0].label, "culprit");
    }
}
