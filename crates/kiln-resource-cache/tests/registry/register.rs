//! Caches that are registered with a builder, and whose resources are created by closures.

use crate::kernels::{Plans, create, kept, with_budget};
use kiln_resource_cache::events::ChannelSink;
use kiln_resource_cache::{Cache, CacheBuilder, CacheErrorKind, CacheRegistry, EvictionPolicy, MockClock};
use std::sync::Arc;

fn texts() -> CacheBuilder<u32, String> {
    Cache::builder("texts").weigher(|_, text: &String| text.len() as u64)
}

#[test]
fn a_registered_cache_is_a_cache_of_the_registry() {
    let (sink, events) = ChannelSink::new(10);
    let registry: CacheRegistry = CacheRegistry::builder().sink(sink).build().unwrap();
    let texts = registry.register(texts().policy(EvictionPolicy::size_limited_lru(2))).unwrap();
    let borrowed = String::from("abcdefgh");
    for key in 1..=3 {
        assert_eq!(texts.get_or_insert_with(&key, || borrowed[..key as usize].to_owned()).unwrap().len(), key as usize);
    }
    create::<Plans>(&registry, &[('a', 10)]);
    let sizes: Vec<_> = registry.metrics_by_name().into_iter().map(|(name, it)| (name, it.size, it.bytes)).collect();
    assert_eq!(sizes, [("plans", 1, 10), ("texts", 2, 5)]);
    assert_eq!(registry.bytes(), 15);
    assert_eq!(events.try_iter().count(), 5, "four misses and an eviction");
    registry.clear();
    assert!(texts.is_empty());
}

#[test]
fn the_budget_holds_for_insertions_through_a_handle() {
    let registry = with_budget(100);
    let texts = registry.register(texts()).unwrap();
    create::<Plans>(&registry, &[('a', 60)]);
    texts.insert(1, "x".repeat(30));
    texts.get_or_insert_with(&2, || "x".repeat(50)).unwrap();
    assert_eq!((registry.bytes(), kept::<Plans>(&registry, &[('a', 60)])), (80, String::new()));
    texts.insert(3, "x".repeat(101));
    assert_eq!((registry.bytes(), texts.metrics().oversize), (80, 1));
    drop(registry);
    texts.insert(4, "x".repeat(90));
    assert_eq!(texts.len(), 3, "a cache outlives its registry, without its budget");
}

#[test]
fn a_name_is_taken_by_the_types_that_came_first() {
    let registry: CacheRegistry = CacheRegistry::new();
    let first = registry.register(texts()).unwrap();
    let again = registry.register(texts().policy(EvictionPolicy::fifo())).unwrap();
    assert!(Arc::ptr_eq(&first, &again), "the same cache, as it is");
    assert_eq!(again.policy(), EvictionPolicy::none());
    let other = registry.register(Cache::<u64, String>::builder("texts")).unwrap_err();
    assert_eq!(other.kind(), CacheErrorKind::DuplicateName);
    create::<Plans>(&registry, &[('a', 1)]);
    let kernels = registry.register(Cache::<u32, u32>::builder("plans")).unwrap_err();
    assert!(kernels.to_string().contains("is taken by `registry::kernels::Plans`"), "{kernels}");
    let handle = registry.cache::<Plans>().unwrap();
    assert!(handle.contains(&('a', 1)));
    assert!(registry.register(Cache::<(char, u64), crate::kernels::Blob>::builder("plans")).is_err(), "a kernel's own");
}

#[test]
fn a_registered_cache_has_no_clock_and_no_sinks_of_its_own() {
    let registry: CacheRegistry = CacheRegistry::new();
    for builder in [texts().clock(MockClock::new()), texts().sink(ChannelSink::new(1).0), texts().summary_interval(7)] {
        let error = registry.register(builder).unwrap_err();
        assert_eq!(error.kind(), CacheErrorKind::InvalidArgument);
        assert!(error.to_string().starts_with("cache `texts`: expected the clock, sinks"), "{error}");
    }
    let error = registry.register(texts().policy(EvictionPolicy::size_limited_lru(0))).unwrap_err();
    assert!(error.to_string().contains("max_entries is 0"), "{error}");
    assert!(registry.metrics_by_name().is_empty());
}
