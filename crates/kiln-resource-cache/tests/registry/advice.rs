//! Advice: low hit rates and tight limits are reported; healthy caches are not.

use crate::kernels::{Atlases, Plans, Tables, create, on_mock_clock};
use kiln_resource_cache::{AdviceKind, CacheError, CacheRegistry, CacheableKernel, EvictionPolicy};
use std::hash::{Hash, Hasher};
use std::time::Duration;

#[test]
fn keys_that_never_repeat_are_a_low_hit_rate() {
    let registry = CacheRegistry::new();
    look_up::<Plans>(&registry, 0, 100);
    let advice = registry.advice();
    assert_eq!(advice.iter().map(|advice| advice.kind).collect::<Vec<_>>(), [AdviceKind::LowHitRate]);
    insta::assert_snapshot!(advice[0], @"cache `plans`: 0 % of 100 lookups hit, 80 % or more is usual; keys rarely repeat: check that the key holds nothing that changes from call to call, or warm it up");
}

#[test]
fn advice_begins_with_100_lookups_and_ends_with_a_hit_rate_of_80_percent() {
    for (hits, misses, expected) in [(0, 99, false), (0, 100, true), (79, 21, true), (80, 20, false), (400, 99, false)]
    {
        let registry = CacheRegistry::new();
        look_up::<Plans>(&registry, hits, misses);
        let metrics = registry.metrics::<Plans>().unwrap();
        assert_eq!((metrics.hits, metrics.misses), (hits.into(), misses.into()));
        assert_eq!(!registry.advice().is_empty(), expected, "{hits} hits, {misses} misses");
    }
}

#[test]
fn cyclic_access_beyond_the_capacity_is_thrashing() {
    let registry = CacheRegistry::new();
    registry.set_eviction_policy::<Cyclic>(EvictionPolicy::size_limited_lru(2)).unwrap();
    for at in 0..120 {
        registry.get_or_create::<Cyclic>(&(at % 3), None).unwrap();
    }
    let advice: Vec<_> = registry.advice().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(advice.join("\n"), @r"
    cache `cyclic`: 0 % of 120 lookups hit, 80 % or more is usual; part of it comes from evictions
    cache `cyclic`: 117 of 120 misses were on entries evicted shortly before; raise max_entries (2)
    ");
}

#[test]
fn the_remedy_for_thrashing_names_the_limits_in_force() {
    let minute = Duration::from_secs(60);
    for (policy, remedy) in [
        (EvictionPolicy::size_limited_lru(2), "raise max_entries (2)"),
        (EvictionPolicy::lru().with_max_bytes(9), "raise max_bytes (9)"),
        (
            EvictionPolicy::hybrid(2, minute).with_max_bytes(9),
            "raise max_entries (2) or max_bytes (9) or max_idle_duration (60s)",
        ),
    ] {
        let registry = CacheRegistry::new();
        registry.set_eviction_policy::<Plans>(policy).unwrap();
        cycle::<Plans>(&registry);
        let advice = registry.advice();
        let thrashing = advice.iter().find(|advice| advice.kind == AdviceKind::Thrashing).unwrap();
        assert!(thrashing.message.ends_with(remedy), "{thrashing}");
    }
    let registry = CacheRegistry::builder().byte_budget(9).build().unwrap();
    cycle::<Plans>(&registry);
    let advice = registry.advice();
    assert!(advice[1].message.ends_with("raise the registry's byte budget, or trim less often"), "{}", advice[1]);
}

#[test]
fn entries_that_expire_between_uses_are_thrashing() {
    let (registry, clock) = on_mock_clock();
    registry
        .set_eviction_policy::<crate::kernels::Timed>(EvictionPolicy::idle_timeout(Duration::from_secs(1)))
        .unwrap();
    for _ in 0..100 {
        registry.get_or_create::<crate::kernels::Timed>(&('a', 1), None).unwrap();
        clock.advance(Duration::from_secs(2));
    }
    let kinds: Vec<_> = registry.advice().iter().map(|advice| advice.kind).collect();
    assert_eq!(kinds, [AdviceKind::LowHitRate, AdviceKind::Thrashing]);
}

#[test]
fn evictions_of_unused_entries_are_not_thrashing() {
    let registry = CacheRegistry::new();
    registry.set_eviction_policy::<Plans>(EvictionPolicy::size_limited_lru(2)).unwrap();
    look_up::<Plans>(&registry, 400, 100);
    assert!(registry.metrics::<Plans>().unwrap().evictions > 90);
    assert_eq!(registry.advice(), []);
}

#[test]
fn advice_of_several_caches_is_sorted_by_name_and_leaves_out_healthy_ones() {
    let registry = CacheRegistry::new();
    look_up::<Tables>(&registry, 0, 100);
    look_up::<Plans>(&registry, 95, 5);
    look_up::<Atlases>(&registry, 0, 100);
    let names: Vec<_> = registry.advice().into_iter().map(|advice| advice.cache).collect();
    assert_eq!(names, ["atlases", "tables"]);
}

/// All keys have the same hash, which makes the count of refaults exact: the ghost list uses a single position.
struct Cyclic;

#[derive(Clone, Debug, PartialEq, Eq)]
struct OneHash(u32);

impl Hash for OneHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u8.hash(state);
    }
}

impl CacheableKernel for Cyclic {
    type Key = OneHash;
    type CachedResource = u32;
    type Params = u32;
    type Device = ();
    type Error = CacheError;
    const CACHE_NAME: &'static str = "cyclic";

    fn create_cache_key(params: &u32) -> OneHash {
        OneHash(*params)
    }

    fn create_cached_resource(key: &OneHash, _: Option<&()>) -> Result<u32, CacheError> {
        Ok(key.0)
    }
}

/// Performs `misses` misses on keys that never repeat, and `hits` hits.
fn look_up<K>(registry: &CacheRegistry, hits: u32, misses: u32)
where
    K: CacheableKernel<Device = (), Params = (char, u64), CachedResource = crate::kernels::Blob, Error = CacheError>,
{
    for at in 0..misses {
        create::<K>(registry, &[(char::from_u32(0x1000 + at).unwrap(), 4)]);
    }
    for _ in 0..hits {
        create::<K>(registry, &[(char::from_u32(0x1000 + misses - 1).unwrap(), 4)]);
    }
}

/// Looks up three keys of 4 bytes in turn, 120 times: each misses if only two fit.
fn cycle<K>(registry: &CacheRegistry)
where
    K: CacheableKernel<Device = (), Params = (char, u64), CachedResource = crate::kernels::Blob, Error = CacheError>,
{
    for id in ['a', 'b', 'c'].into_iter().cycle().take(120) {
        create::<K>(registry, &[(id, 4)]);
    }
}
