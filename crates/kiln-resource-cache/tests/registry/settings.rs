//! Settings: policies through the registry, before and after the first use, and rejected settings.

use crate::kernels::{Plans, Tables, create, kept, on_mock_clock};
use kiln_resource_cache::{CacheErrorKind, CacheRegistry, CacheRegistryBuilder, EvictionPolicy};
use std::time::Duration;

const FIVE: [(char, u64); 5] = [('a', 10), ('b', 10), ('c', 10), ('d', 10), ('e', 10)];

#[test]
fn a_policy_set_before_the_first_use_holds_from_the_start() {
    let registry = CacheRegistry::new();
    registry.set_eviction_policy::<Plans>(EvictionPolicy::size_limited_lru(2)).unwrap();
    assert_eq!(registry.metrics::<Plans>().unwrap().size, 0);
    create::<Plans>(&registry, &FIVE);
    create::<Tables>(&registry, &FIVE);
    assert_eq!(kept::<Plans>(&registry, &FIVE), "de");
    assert_eq!(kept::<Tables>(&registry, &FIVE), "abcde", "the policy of another cache");
}

#[test]
fn a_policy_set_at_run_time_applies_at_once() {
    for (policy, expected) in [
        (EvictionPolicy::size_limited_lru(2), "ae"),
        (EvictionPolicy::fifo().with_max_entries(2), "de"),
        (EvictionPolicy::lru().with_max_bytes(35), "ade"),
        (EvictionPolicy::lru().with_max_bytes(35).with_min_entries(4), "acde"),
        (EvictionPolicy::none(), "abcde"),
    ] {
        let registry = CacheRegistry::new();
        create::<Plans>(&registry, &FIVE);
        create::<Plans>(&registry, &FIVE[..1]);
        registry.set_eviction_policy::<Plans>(policy).unwrap();
        assert_eq!(registry.bytes(), 10 * expected.len() as u64, "{policy:?}");
        assert_eq!(registry.metrics::<Plans>().unwrap().size, expected.len(), "{policy:?}");
        assert_eq!(kept::<Plans>(&registry, &FIVE), expected, "{policy:?}");
    }
}

#[test]
fn an_idle_limit_set_at_run_time_expires_idle_entries() {
    let (registry, clock) = on_mock_clock();
    registry.get_or_create::<crate::kernels::Timed>(&('a', 1), None).unwrap();
    clock.advance(Duration::from_secs(10));
    registry.get_or_create::<crate::kernels::Timed>(&('b', 1), None).unwrap();
    registry
        .set_eviction_policy::<crate::kernels::Timed>(EvictionPolicy::idle_timeout(Duration::from_secs(5)))
        .unwrap();
    assert!(registry.get::<crate::kernels::Timed>(&('a', 1)).is_none());
    assert!(registry.get::<crate::kernels::Timed>(&('b', 1)).is_some());
}

#[test]
fn a_bad_policy_is_refused_and_the_old_one_stays_in_force() {
    let registry = CacheRegistry::new();
    let good = EvictionPolicy::size_limited_lru(3);
    registry.set_eviction_policy::<Plans>(good).unwrap();
    create::<Plans>(&registry, &FIVE[..3]);
    for (bad, expected) in [
        (EvictionPolicy::size_limited_lru(1).with_min_entries(2), "min_entries (2) is above max_entries (1)"),
        (EvictionPolicy::size_limited_lru(0), "max_entries is 0"),
        (EvictionPolicy::lru().with_max_bytes(0), "max_bytes is 0"),
        (EvictionPolicy::idle_timeout(Duration::ZERO), "max_idle_duration is 0"),
    ] {
        let error = registry.set_eviction_policy::<Plans>(bad).unwrap_err();
        assert_eq!(error.kind(), CacheErrorKind::InvalidArgument);
        assert!(error.to_string().contains(expected) && error.to_string().contains("`plans`"), "{error}");
        assert_eq!(registry.metrics::<Plans>().unwrap().size, 3, "{bad:?} evicted nothing");
    }
    create::<Plans>(&registry, &FIVE[3..]);
    assert_eq!(kept::<Plans>(&registry, &FIVE), "cde", "the good policy still evicts");
}

#[test]
fn a_registry_with_a_setting_of_zero_is_refused() {
    let builder = || -> CacheRegistryBuilder<()> { CacheRegistry::builder() };
    for (builder, expected) in [
        (builder().byte_budget(0), "byte_budget is 0, expected at least 1"),
        (builder().summary_interval(0), "summary_interval is 0, expected at least 1"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), CacheErrorKind::InvalidArgument);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    builder().byte_budget(1).summary_interval(1).build().unwrap();
}
