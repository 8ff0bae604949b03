//! `trim` and `report` reach every cache and slot.

use crate::kernels::{Atlases, Plans, Scratch, Tables, clears, create, fill_slot, kept, with_budget};
use kiln_resource_cache::{CacheRegistry, EvictionPolicy, TrimReport};

const A: (char, u64) = ('a', 10);
const B: (char, u64) = ('b', 20);
const C: (char, u64) = ('c', 30);
const D: (char, u64) = ('d', 40);

#[test]
fn trim_to_nothing_empties_every_cache_and_slot() {
    let registry = CacheRegistry::new();
    create::<Plans>(&registry, &[A, B]);
    create::<Tables>(&registry, &[C]);
    create::<Atlases>(&registry, &[D]);
    fill_slot::<1>(&registry, 5);
    fill_slot::<2>(&registry, 7);
    let report = registry.trim(0);
    assert_eq!(numbers(&report), Numbers { before: 112, after: 0, entries: 4, cleared: 2, deferred: 0 });
    assert_eq!((report.target_bytes, report.bytes_freed(), report.reached_target()), (0, 112, true));
    assert_eq!(registry.bytes(), 0);
    assert!(registry.metrics_by_name().iter().all(|(_, metrics)| metrics.size == 0 && metrics.bytes == 0));
    assert_eq!((clears::<1>(&registry), clears::<2>(&registry)), (1, 1));
}

#[test]
fn trim_takes_the_least_recently_used_of_all_caches_first() {
    // In order of use: plans B, tables A, plans C, tables D, plans A; 130 bytes.
    let order = ["plans b", "tables a", "plans c", "tables d", "plans a"];
    for (target, evicted, after) in
        [(130, 0, 130), (129, 1, 110), (110, 1, 110), (101, 2, 100), (99, 3, 70), (31, 4, 10), (9, 5, 0)]
    {
        let registry = CacheRegistry::new();
        create::<Plans>(&registry, &[A, B]);
        create::<Tables>(&registry, &[A, ('d', 60)]);
        create::<Plans>(&registry, &[C]);
        create::<Tables>(&registry, &[('d', 60)]);
        create::<Plans>(&registry, &[A]);
        let report = registry.trim(target);
        let expected = Numbers { before: 130, after, entries: evicted, cleared: 0, deferred: 0 };
        assert_eq!(numbers(&report), expected, "target {target}");
        assert!(report.reached_target());
        let mut left: Vec<String> =
            kept::<Plans>(&registry, &[A, B, C]).chars().map(|id| format!("plans {id}")).collect();
        left.extend(kept::<Tables>(&registry, &[A, ('d', 60)]).chars().map(|id| format!("tables {id}")));
        let mut expected = order[evicted..].to_vec();
        expected.sort_unstable();
        left.sort_unstable();
        assert_eq!(left, expected, "target {target}");
    }
}

#[test]
fn trim_clears_slots_only_after_all_entries_and_largest_first() {
    for (target, entries, cleared) in [
        (60, 2, [0, 0, 0]),
        (59, 2, [0, 1, 0]), // 30 left
        (30, 2, [0, 1, 0]),
        (29, 2, [0, 1, 1]), // 10 left
        (9, 2, [1, 1, 1]),
    ] {
        let registry = CacheRegistry::new();
        fill_slot::<1>(&registry, 10);
        fill_slot::<2>(&registry, 30);
        fill_slot::<3>(&registry, 20);
        create::<Plans>(&registry, &[A, B]);
        let report = registry.trim(target);
        assert_eq!((report.entries_evicted, report.slots_cleared), (entries, cleared.iter().sum::<u32>() as usize));
        assert_eq!(
            [clears::<1>(&registry), clears::<2>(&registry), clears::<3>(&registry)],
            cleared,
            "target {target}"
        );
    }
}

#[test]
fn trim_that_entries_can_satisfy_leaves_slots_alone() {
    let registry = CacheRegistry::new();
    fill_slot::<1>(&registry, 100);
    create::<Plans>(&registry, &[A, B, C]);
    let report = registry.trim(140);
    assert_eq!(numbers(&report), Numbers { before: 160, after: 130, entries: 2, cleared: 0, deferred: 0 });
    assert_eq!(kept::<Plans>(&registry, &[A, B, C]), "c");
    assert_eq!(clears::<1>(&registry), 0);
}

#[test]
fn trim_stops_at_floors_and_says_that_it_fell_short() {
    let registry = CacheRegistry::new();
    registry.set_eviction_policy::<Plans>(EvictionPolicy::none().with_min_entries(2)).unwrap();
    registry.set_eviction_policy::<Tables>(EvictionPolicy::fifo().with_min_entries(1)).unwrap();
    create::<Plans>(&registry, &[A, B, C]);
    create::<Tables>(&registry, &[A, D, A]);
    fill_slot::<1>(&registry, 5);
    let report = registry.trim(0);
    assert_eq!(numbers(&report), Numbers { before: 115, after: 60, entries: 2, cleared: 1, deferred: 0 });
    assert!(!report.reached_target());
    assert_eq!(report.bytes_freed(), 55);
    assert_eq!(kept::<Plans>(&registry, &[A, B, C]), "bc");
    assert_eq!(kept::<Tables>(&registry, &[A, D]), "a", "A was used last: a trim goes by use under every policy");
}

#[test]
fn trim_defers_a_slot_in_use_and_goes_on_with_the_others() {
    let registry = CacheRegistry::new();
    fill_slot::<1>(&registry, 50);
    fill_slot::<2>(&registry, 20);
    create::<Plans>(&registry, &[A]);
    let busy = registry.slot_mut(Scratch::<1>::default);
    let report = registry.trim(0);
    assert_eq!(numbers(&report), Numbers { before: 80, after: 50, entries: 1, cleared: 1, deferred: 1 });
    assert!(!report.reached_target());
    drop(busy);
    assert_eq!(registry.bytes(), 0, "its user has let go");
    assert_eq!((clears::<1>(&registry), clears::<2>(&registry)), (1, 1));
}

#[test]
fn a_resource_in_use_survives_a_trim() {
    let registry: CacheRegistry = CacheRegistry::new();
    let held = registry.get_or_create::<Plans>(&A, None).unwrap();
    assert_eq!(registry.trim(0).entries_evicted, 1);
    assert_eq!(held.bytes, 10);
    assert_eq!(std::sync::Arc::strong_count(&held), 1, "the cache has let go of it");
}

#[test]
fn report_lists_caches_and_slots_largest_first() {
    let registry = with_budget(1000);
    create::<Plans>(&registry, &[A, B]);
    create::<Tables>(&registry, &[('d', 400)]);
    create::<Atlases>(&registry, &[C]);
    fill_slot::<1>(&registry, 9);
    fill_slot::<2>(&registry, 250);
    let report = registry.report();
    assert_eq!((report.byte_budget, report.bytes, report.sink_failures), (Some(1000), 719, 0));
    let caches: Vec<_> = report.caches.iter().map(|cache| (cache.cache, cache.bytes, cache.entries)).collect();
    assert_eq!(caches, [("tables", 400, 1), ("atlases", 30, 1), ("plans", 30, 2)], "equal sizes are sorted by name");
    assert_eq!(report.slots.iter().map(|slot| slot.bytes).collect::<Vec<_>>(), [250, 9]);
    insta::assert_snapshot!(report, @r"
    719 of 1000 bytes
               400  cache tables (1 entries)
                30  cache atlases (1 entries)
                30  cache plans (2 entries)
               250  slot registry::kernels::Scratch<2>
                 9  slot registry::kernels::Scratch<1>
    ");
}

#[test]
fn report_without_a_budget_includes_lost_events() {
    let (sink, receiver) = kiln_resource_cache::events::ChannelSink::new(1);
    drop(receiver);
    let registry = CacheRegistry::builder().sink(sink).build().unwrap();
    create::<Plans>(&registry, &[A, A]);
    insta::assert_snapshot!(registry.report(), @r"
    10 bytes, no budget
                10  cache plans (1 entries)
    2 events lost by failing sinks
    ");
}

/// The numbers of a `TrimReport`, to be compared together.
#[derive(Debug, PartialEq)]
struct Numbers {
    before: u64,
    after: u64,
    entries: usize,
    cleared: usize,
    deferred: usize,
}

fn numbers(report: &TrimReport) -> Numbers {
    Numbers {
        before: report.bytes_before,
        after: report.bytes_after,
        entries: report.entries_evicted,
        cleared: report.slots_cleared,
        deferred: report.slots_deferred,
    }
}
