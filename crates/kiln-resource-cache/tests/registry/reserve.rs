//! Reserves: a trim counts them, releases them first, and again after slots returned memory to them.

use crate::kernels::{Plans, create, kept};
use kiln_resource_cache::{CacheRegistry, CacheRegistrySlot, CacheReserve};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pool of blocks of 10 bytes, some of which cannot be released.
#[derive(Clone, Default)]
struct Blocks {
    free: Arc<AtomicU64>,
    stuck: u64,
}

impl Blocks {
    fn add(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl CacheReserve for Blocks {
    fn bytes(&self) -> u64 {
        self.free.load(Ordering::Relaxed) + self.stuck
    }

    fn release(&self, bytes: u64) {
        let gone = bytes.next_multiple_of(10).min(self.free.load(Ordering::Relaxed));
        self.free.fetch_sub(gone, Ordering::Relaxed);
    }
}

/// A slot whose memory comes from the blocks.
struct KeysAndValues(u64, Blocks);

impl CacheRegistrySlot for KeysAndValues {
    fn clear_slot(&mut self) {
        self.1.add(std::mem::take(&mut self.0));
    }

    fn bytes(&self) -> u64 {
        self.0
    }
}

#[test]
fn a_trim_takes_reserves_first_then_entries_then_slots() {
    for (target, after, entries, slots) in [
        (200, 200, 0, 0),
        (155, 150, 0, 0),
        (110, 110, 0, 0),
        (95, 80, 1, 0),
        (70, 50, 2, 0),
        (49, 40, 2, 1),
        (0, 0, 2, 1),
    ] {
        let (registry, blocks) = (CacheRegistry::new(), Blocks::default());
        registry.add_reserve("blocks", blocks.clone());
        blocks.add(90);
        create::<Plans>(&registry, &[('a', 30), ('b', 30)]);
        drop(registry.slot_mut(|| KeysAndValues(50, blocks.clone())));
        let report = registry.trim(target);
        let found = (report.bytes_before, report.bytes_after, report.entries_evicted, report.slots_cleared);
        assert_eq!(found, (200, after, entries, slots), "target {target}");
        assert!(report.reached_target());
        assert_eq!(kept::<Plans>(&registry, &[('a', 30), ('b', 30)]).len(), 2 - entries);
        assert_eq!(registry.bytes() + blocks.bytes(), after, "what the slot returned went too");
    }
}

#[test]
fn a_reserve_that_cannot_go_is_counted_and_reported_and_not_in_the_budget() {
    let registry = CacheRegistry::builder().byte_budget(100).build().unwrap();
    registry.add_reserve("blocks", Blocks { stuck: 500, ..Blocks::default() });
    create::<Plans>(&registry, &[('a', 30), ('b', 30)]);
    assert_eq!(registry.bytes(), 60);
    insta::assert_snapshot!(registry.report(), @r"
    60 of 100 bytes
                60  cache plans (2 entries)
               500  reserve blocks
    ");
    let report = registry.trim(520);
    assert_eq!((report.bytes_before, report.bytes_after, report.entries_evicted), (560, 500, 2));
    let report = registry.trim(100);
    assert_eq!((report.bytes_after, report.reached_target()), (500, false));
}
