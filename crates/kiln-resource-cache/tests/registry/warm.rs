//! Warm-up: creates resources before they are requested.

use crate::kernels::{EvenOnly, Plans, cached, create, kept, with_budget};
use kiln_resource_cache::{CacheRegistry, EvictionPolicy};

#[test]
fn warm_creates_the_missing_counts_no_lookup_and_later_lookups_hit() {
    let registry: CacheRegistry = CacheRegistry::new();
    let report = registry.warm::<Plans>([('a', 1), ('b', 2), ('c', 3)]);
    assert_eq!((report.created, report.already_cached, report.failed.len()), (3, 0, 0));
    let warmed = registry.metrics::<Plans>().unwrap();
    assert_eq!((warmed.size, warmed.bytes, warmed.hits, warmed.misses), (3, 6, 0, 0));
    create::<Plans>(&registry, &[('a', 1), ('b', 2), ('c', 3)]);
    let used = registry.metrics::<Plans>().unwrap();
    assert_eq!((used.hits, used.misses), (3, 0));
}

#[test]
fn warm_skips_cached_entries() {
    let registry: CacheRegistry = CacheRegistry::new();
    let before = registry.get_or_create::<Plans>(&('a', 1), None).unwrap();
    let report = registry.warm::<Plans>([('a', 1), ('b', 2), ('b', 2)]);
    assert_eq!((report.created, report.already_cached), (1, 2));
    let metrics = registry.metrics::<Plans>().unwrap();
    assert_eq!((metrics.hits, metrics.misses, metrics.max_entry_reuse_count), (0, 1, 0), "only the lookup counts");
    assert!(std::sync::Arc::ptr_eq(&before, &cached::<Plans>(&registry, &('a', 1))));
}

#[test]
fn warm_continues_after_a_failure_and_reports_it() {
    let registry: CacheRegistry = CacheRegistry::new();
    let report = registry.warm::<EvenOnly>([2, 3, 4, 5]);
    assert_eq!(report.created, 2);
    let failed: Vec<_> = report.failed.iter().map(|failure| (failure.index, failure.key.as_str())).collect();
    assert_eq!(failed, [(1, "3"), (3, "5")]);
    let metrics = registry.metrics::<EvenOnly>().unwrap();
    assert_eq!((metrics.size, metrics.misses), (2, 0));
    assert!(registry.get::<EvenOnly>(&4).is_some());
}

#[test]
fn warm_takes_owned_and_borrowed_parameters() {
    let registry: CacheRegistry = CacheRegistry::new();
    let list = vec![2, 4];
    assert_eq!(registry.warm::<EvenOnly>(&list).created, 2);
    assert_eq!(registry.warm::<EvenOnly>(list.iter().map(|params| params + 4)).created, 2);
    assert_eq!(registry.warm::<EvenOnly>(list).already_cached, 2);
    assert_eq!(registry.warm::<EvenOnly>([] as [u32; 0]), kiln_resource_cache::WarmReport::default());
}

#[test]
fn warm_keeps_to_the_policy_and_the_budget() {
    let params = [('a', 30), ('b', 30), ('c', 30), ('d', 30)];
    let limited: CacheRegistry = CacheRegistry::new();
    limited.set_eviction_policy::<Plans>(EvictionPolicy::size_limited_lru(3)).unwrap();
    let budgeted = with_budget(60);
    for (registry, expected) in [(limited, "bcd"), (budgeted, "cd")] {
        assert_eq!(registry.warm::<Plans>(params).created, 4);
        assert_eq!(kept::<Plans>(&registry, &params), expected);
    }
}
