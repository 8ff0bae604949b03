//! Names: two kernel types with the same `CACHE_NAME` are an error.

use crate::kernels::{Atlases, Fault, Plans, Tables, create, kept};
use kiln_resource_cache::{CacheErrorKind, CacheRegistry, CacheableKernel, EvictionPolicy};

/// Has the name of `Plans`.
struct Impostor;

impl CacheableKernel for Impostor {
    type Key = u32;
    type CachedResource = u32;
    type Params = u32;
    type Device = ();
    type Error = Fault;
    const CACHE_NAME: &'static str = "plans";

    fn create_cache_key(params: &u32) -> u32 {
        *params
    }

    fn create_cached_resource(key: &u32, _: Option<&()>) -> Result<u32, Fault> {
        Ok(*key)
    }
}

#[test]
fn a_second_type_with_a_taken_name_is_refused_however_it_comes() {
    let registry: CacheRegistry = CacheRegistry::new();
    create::<Plans>(&registry, &[('a', 1)]);
    let Err(Fault::Cache(from_lookup)) = registry.get_or_create::<Impostor>(&1, None) else {
        panic!("the name is taken");
    };
    let from_policy = registry.set_eviction_policy::<Impostor>(EvictionPolicy::none()).unwrap_err();
    assert_eq!(from_lookup.kind(), CacheErrorKind::DuplicateName);
    assert_eq!(from_policy, from_lookup);
    assert_eq!(registry.warm::<Impostor>([1]).failed.len(), 1);
    insta::assert_snapshot!(
        from_lookup,
        @"CACHE_NAME `plans` of `registry::names::Impostor` is taken by `registry::kernels::Plans`, expected a unique name"
    );
    assert_eq!(registry.metrics::<Impostor>(), None);
    assert!(registry.get::<Impostor>(&1).is_none());
}

#[test]
fn the_first_type_keeps_working_after_a_second_was_refused() {
    let registry: CacheRegistry = CacheRegistry::new();
    create::<Plans>(&registry, &[('a', 1)]);
    registry.get_or_create::<Impostor>(&1, None).unwrap_err();
    create::<Plans>(&registry, &[('a', 1), ('b', 2)]);
    assert_eq!(kept::<Plans>(&registry, &[('a', 1), ('b', 2)]), "ab");
    assert_eq!(registry.metrics_by_name().len(), 1);
}

#[test]
fn a_name_belongs_to_the_first_type_in_a_registry() {
    let registry: CacheRegistry = CacheRegistry::new();
    assert_eq!(*registry.get_or_create::<Impostor>(&1, None).unwrap(), 1);
    assert_eq!(registry.get_or_create::<Plans>(&('a', 1), None).unwrap_err().kind(), CacheErrorKind::DuplicateName);
}

#[test]
fn metrics_by_name_are_sorted_and_each_under_its_own_name() {
    let registry = CacheRegistry::new();
    create::<Tables>(&registry, &[('a', 1), ('b', 1), ('c', 1)]);
    create::<Plans>(&registry, &[('a', 1), ('b', 1)]);
    create::<Atlases>(&registry, &[('a', 1)]);
    let sizes: Vec<_> = registry.metrics_by_name().into_iter().map(|(name, metrics)| (name, metrics.size)).collect();
    assert_eq!(sizes, [("atlases", 1), ("plans", 2), ("tables", 3)]);
    assert_eq!(format!("{registry:?}"), r#"CacheRegistry { caches: ["atlases", "plans", "tables"], .. }"#);
}
