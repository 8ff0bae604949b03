//! Explanations of cache misses.

use crate::{numbered, on_disk, scale};
use kiln_device::{KernelSource, NullDevice, Outcome};

#[test]
fn a_new_driver_and_its_stale_entries_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let old = on_disk(&NullDevice::new().with_info(|info| info.driver_version = "A".into()), directory.path());
    for number in 0..40 {
        old.kernel(numbered(number)).unwrap();
    }
    old.kernel(scale()).unwrap();
    let new =
        NullDevice::new().with_info(|info| (info.driver_version, info.fingerprint) = ("B".into(), "other".into()));
    let new = on_disk(&new, directory.path());
    let found = new.explain_kernel(&scale()).unwrap();
    assert_eq!((found.outcome, found.stored, found.stale), (Outcome::Miss, 41, 41));
    let hash = new.prepare(&scale()).unwrap().hash().short();
    let expected = format!(
        "kernel `scale.wgsl` ({hash}) misses because `driver_version` changed from `A` to `B`; 41 entries of the old driver are stale"
    );
    assert_eq!(found.to_string(), expected);

    new.kernel(scale()).unwrap();
    assert_eq!(new.explain_kernel(&scale()).unwrap().outcome, Outcome::MemoryHit);
    new.clear_kernels();
    let found = new.explain_kernel(&scale()).unwrap();
    assert_eq!(
        (found.outcome, found.to_string()),
        (Outcome::DiskHit, format!("kernel `scale.wgsl` ({hash}) is on disk"))
    );
    let stats = new.kernel_cache_stats();
    assert_eq!((stats.memory_hits, stats.compiles), (0, 1), "explaining is not a request");
}

#[test]
fn the_nearest_kernel_is_compared() {
    let directory = tempfile::tempdir().unwrap();
    let device = on_disk(&NullDevice::new(), directory.path());
    let explain = |source: &KernelSource| {
        let text = device.explain_kernel(source).unwrap().to_string();
        text.split_once(") ").map(|(_, text)| text.to_string()).unwrap()
    };
    assert_eq!(explain(&scale()), "misses because nothing is on disk");
    device.kernel(numbered(1)).unwrap();
    assert_eq!(explain(&scale()), "misses because none of the 1 kernels on disk has its name or source");
    device.kernel(scale()).unwrap();
    assert_eq!(explain(&scale().named("other")), "misses because `name` changed from `scale.wgsl` to `other`");
    let two = scale().constant("ALPHA", 2.0);
    assert_eq!(explain(&two), "misses because `constants` changed from nothing to `ALPHA=2`");
    device.kernel(two.clone()).unwrap();
    let both = two.constant("BETA", 1.0).entry("main");
    let expected = "misses because `entry` changed from nothing to `main` and `constants` changed from `ALPHA=2` \
                    to `ALPHA=2 BETA=1`";
    assert_eq!(explain(&both), expected);
    let text = scale().text().replace("ALPHA * x", "ALPHA + x");
    let expected = "misses because `source` changed from `line 8: if (id.x < n) { y[id.x] = ALPHA * x[id.x]; }` to \
                    `line 8: if (id.x < n) { y[id.x] = ALPHA + x[id.x]; }`";
    assert_eq!(explain(&KernelSource::wgsl(text).named("scale.wgsl")), expected);
}
