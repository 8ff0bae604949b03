//! The byte budget that all caches and slots of a registry share.

use crate::kernels::{Plans, Scratch, Tables, clears, create, fill_slot, kept, with_budget};
use kiln_resource_cache::EvictionPolicy;

const A: (char, u64) = ('a', 30);
const B: (char, u64) = ('b', 30);
const C: (char, u64) = ('c', 30);
const D: (char, u64) = ('d', 30);

#[test]
fn a_new_entry_over_the_budget_evicts_the_least_recently_used_of_all_caches() {
    let registry = with_budget(100);
    create::<Plans>(&registry, &[A]);
    create::<Tables>(&registry, &[B]);
    create::<Plans>(&registry, &[C, A]); // uses A again: B is now the oldest, then C
    assert_eq!(registry.bytes(), 90, "within the budget nothing goes");
    create::<Tables>(&registry, &[D]);
    assert_eq!(registry.bytes(), 90);
    assert_eq!([registry.metrics::<Plans>(), registry.metrics::<Tables>()].map(|m| m.unwrap().evictions), [0, 1]);
    // 90 + 70: C and A must be evicted, in this order; then it fits exactly.
    create::<Tables>(&registry, &[('e', 70)]);
    assert_eq!(registry.bytes(), 100);
    assert_eq!(kept::<Plans>(&registry, &[A, C]), "");
    assert_eq!(kept::<Tables>(&registry, &[B, D, ('e', 70)]), "de");
}

#[test]
fn the_budget_evicts_least_recently_used_first_even_under_a_fifo_policy() {
    let registry = with_budget(100);
    registry.set_eviction_policy::<Plans>(EvictionPolicy::fifo()).unwrap();
    create::<Plans>(&registry, &[A, B, C, A, D]);
    assert_eq!(kept::<Plans>(&registry, &[A, B, C, D]), "acd");
}

#[test]
fn the_budget_respects_the_floor_of_each_cache() {
    let registry = with_budget(100);
    registry.set_eviction_policy::<Plans>(EvictionPolicy::none().with_min_entries(2)).unwrap();
    create::<Plans>(&registry, &[A, B, C]);
    create::<Tables>(&registry, &[A]); // A of the plans goes: 90 bytes
    create::<Tables>(&registry, &[B]); // the plans are at their floor, so A of the tables goes
    assert_eq!(kept::<Plans>(&registry, &[A, B, C]), "bc");
    assert_eq!(kept::<Tables>(&registry, &[A, B]), "b");
    assert_eq!(registry.bytes(), 90);
}

#[test]
fn floors_win_over_the_budget() {
    let registry = with_budget(50);
    registry.set_eviction_policy::<Plans>(EvictionPolicy::none().with_min_entries(3)).unwrap();
    create::<Plans>(&registry, &[A, B, C, D]);
    assert_eq!(registry.bytes(), 90);
    assert_eq!(kept::<Plans>(&registry, &[A, B, C, D]), "bcd");
}

#[test]
fn an_entry_larger_than_the_budget_is_returned_and_not_kept() {
    let registry = with_budget(100);
    create::<Plans>(&registry, &[A]);
    create::<Tables>(&registry, &[B]);
    for creations in 2..=3 {
        create::<Plans>(&registry, &[('x', 101)]);
        assert_eq!(registry.metrics::<Plans>().unwrap().misses, creations, "it is created again each time");
        assert_eq!(registry.bytes(), 60);
    }
    create::<Tables>(&registry, &[('y', 40)]);
    assert_eq!(kept::<Plans>(&registry, &[A, ('x', 101)]), "a");
    assert_eq!(kept::<Tables>(&registry, &[B, ('y', 40)]), "by");
    create::<Plans>(&registry, &[('z', 100)]);
    assert_eq!(registry.report().caches.iter().map(|cache| cache.entries).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(kept::<Plans>(&registry, &[('z', 100)]), "z", "as large as the budget still fits");
}

#[test]
fn a_slot_counts_in_the_budget_and_is_not_cleared_by_it() {
    let registry = with_budget(100);
    fill_slot::<1>(&registry, 50);
    create::<Plans>(&registry, &[A]);
    create::<Tables>(&registry, &[B]);
    assert_eq!(registry.bytes(), 80);
    assert_eq!(kept::<Plans>(&registry, &[A]), "");
    assert_eq!(kept::<Tables>(&registry, &[B]), "b");
    assert_eq!(*registry.slot_mut(Scratch::<1>::default), Scratch { bytes: 50, clears: 0 });
}

#[test]
fn a_slot_that_exceeds_the_budget_evicts_entries_on_release() {
    let registry = with_budget(100);
    create::<Plans>(&registry, &[A]);
    create::<Tables>(&registry, &[B]);
    create::<Plans>(&registry, &[C]);
    let mut slot = registry.slot_mut(Scratch::<1>::default);
    slot.bytes = 50;
    assert_eq!(registry.bytes(), 90, "not while it is in use");
    drop(slot);
    assert_eq!(registry.bytes(), 80);
    assert_eq!(kept::<Plans>(&registry, &[A, C]), "c");
    assert_eq!(kept::<Tables>(&registry, &[B]), "");
}

#[test]
fn a_slot_that_fills_the_budget_leaves_lookups_working_without_a_cache() {
    let registry = with_budget(100);
    fill_slot::<1>(&registry, 150);
    create::<Plans>(&registry, &[A, A]);
    assert_eq!(registry.bytes(), 150);
    assert_eq!(registry.metrics::<Plans>().unwrap().misses, 2);
    assert_eq!(clears::<1>(&registry), 0);
    fill_slot::<1>(&registry, 70);
    create::<Plans>(&registry, &[A, A]);
    assert_eq!(registry.metrics::<Plans>().unwrap().hits, 1);
}

#[test]
fn the_budget_holds_when_four_threads_create_at_once() {
    let registry = with_budget(1000);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let registry = &registry;
            scope.spawn(move || {
                for at in 0..500_u32 {
                    let id = char::from_u32(0x1000 + (at * 7 + thread) % 90).unwrap();
                    create::<Plans>(registry, &[(id, 30)]);
                    create::<Tables>(registry, &[(id, 50)]);
                }
            });
        }
    });
    let report = registry.report();
    assert!(report.bytes <= 1000, "{report}");
    assert_eq!(report.bytes, report.caches.iter().map(|cache| cache.bytes).sum::<u64>());
    let entries = |name| report.caches.iter().find(|cache| cache.cache == name).unwrap().entries as u64;
    assert_eq!(report.bytes, entries("plans") * 30 + entries("tables") * 50);
}

#[test]
fn a_budget_set_at_run_time_holds_at_once() {
    let registry = kiln_resource_cache::CacheRegistry::new();
    create::<Plans>(&registry, &[A, B]);
    create::<Tables>(&registry, &[C, D]);
    assert_eq!(registry.report().byte_budget, None);
    registry.set_byte_budget(70).unwrap();
    assert_eq!((registry.bytes(), registry.report().byte_budget), (60, Some(70)));
    assert_eq!(kept::<Plans>(&registry, &[A, B]), "");
    create::<Plans>(&registry, &[A]);
    assert_eq!(kept::<Tables>(&registry, &[C, D]), "d");
    let error = registry.set_byte_budget(0).unwrap_err();
    assert!(error.to_string().starts_with("byte_budget is 0, expected at least 1"), "{error}");
    registry.set_byte_budget(u64::MAX).unwrap();
    create::<Plans>(&registry, &[B, C]);
    assert_eq!((registry.bytes(), registry.report().byte_budget), (120, None));
}
