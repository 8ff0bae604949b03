//! The default directory of the kernel cache.

#![cfg(all(feature = "gpu", target_os = "linux"))]

use kiln::Device;
use kiln::cache::DiskTierState;
use kiln::kernel::{KernelSource, Origin};
use std::process::Command;

const CHILD: &str = "KILN_TEST_DEFAULT_CACHE";

/// The disk tier is on by default, in the cache directory of the user, which only the user can access.
#[test]
fn kernels_are_kept_in_the_users_cache_directory_by_default() {
    if Device::list().len() < 2 {
        assert!(std::env::var_os("CI").is_none(), "no GPU although `CI` is set");
        println!("skipped: there is no GPU");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    for expected in ["Compiled", "Disk"] {
        // In a child process, because the directory depends on the environment.
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, expected)
            .env("XDG_CACHE_HOME", home.path())
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    }
    let directory = home.path().join("kiln/kernels");
    let mode = std::os::unix::fs::PermissionsExt::mode(&directory.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

/// The child process of the test above; does nothing when run directly.
#[test]
fn child() {
    let Ok(expected) = std::env::var(CHILD) else { return };
    let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
    let origin = |device: &Device| {
        assert!(matches!(device.kernel_cache_stats().disk, DiskTierState::Unopened));
        device.kernel(&source).unwrap().origin()
    };
    assert_eq!(format!("{:?}", origin(&Device::gpu(0).unwrap())), expected);
    assert_eq!(origin(&Device::by_name("gpu").unwrap()), Origin::Disk);
    assert_eq!(origin(&Device::gpu_with(0, kiln::device::GpuOptions::new()).unwrap()), Origin::Disk);
    assert!(kiln::cache::kernel_cache_dir().unwrap().is_dir());
}
