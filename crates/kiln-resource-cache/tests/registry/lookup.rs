//! Lookups: one cache per kernel type, shared values, the device of a creation, `resource_cache!`.

use crate::kernels::{Blob, EvenOnly, Fault, Plans, Tables, cached, create, kept};
use kiln_resource_cache::{CacheError, CacheRegistry, CacheableKernel, EvictionPolicy, resource_cache};
use std::sync::Arc;

#[test]
fn two_kernel_types_with_one_key_type_keep_separate_caches() {
    let registry = CacheRegistry::new();
    create::<Plans>(&registry, &[('a', 1)]);
    assert_eq!(kept::<Tables>(&registry, &[('a', 1)]), "");
    create::<Tables>(&registry, &[('a', 1), ('b', 2)]);
    let sizes = [registry.metrics::<Plans>().unwrap().size, registry.metrics::<Tables>().unwrap().size];
    assert_eq!(sizes, [1, 2]);
    assert!(!Arc::ptr_eq(&cached::<Plans>(&registry, &('a', 1)), &cached::<Tables>(&registry, &('a', 1))));
}

#[test]
fn lookups_of_one_key_share_one_handle() {
    let registry: CacheRegistry = CacheRegistry::new();
    let first = registry.get_or_create::<Plans>(&('a', 1), None).unwrap();
    let second = registry.get_or_create::<Plans>(&('a', 1), None).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first, &cached::<Plans>(&registry, &('a', 1))));
    assert_eq!(Arc::strong_count(&first), 3, "two handles and the cache's own");
}

#[test]
fn a_value_outlives_clear_and_the_next_lookup_creates_again() {
    let registry: CacheRegistry = CacheRegistry::new();
    let before = registry.get_or_create::<Plans>(&('a', 1), None).unwrap();
    create::<Tables>(&registry, &[('a', 1)]);
    registry.clear_cache::<Plans>();
    assert_eq!(*before, Blob { id: 'a', bytes: 1 });
    assert!(registry.get::<Plans>(&('a', 1)).is_none());
    assert_eq!(kept::<Tables>(&registry, &[('a', 1)]), "a", "clear_cache empties one cache only");
    let after = registry.get_or_create::<Plans>(&('a', 1), None).unwrap();
    assert!(!Arc::ptr_eq(&before, &after));
    registry.clear();
    assert_eq!(registry.bytes(), 0);
    assert_eq!(kept::<Tables>(&registry, &[('a', 1)]), "");
}

#[test]
fn get_creates_nothing_and_counts_a_miss() {
    let registry: CacheRegistry = CacheRegistry::new();
    registry.set_eviction_policy::<Plans>(EvictionPolicy::none()).unwrap();
    assert!(registry.get::<Plans>(&('a', 1)).is_none());
    let metrics = registry.metrics::<Plans>().unwrap();
    assert_eq!((metrics.size, metrics.hits, metrics.misses), (0, 0, 1));
}

#[test]
fn there_are_no_metrics_before_the_first_use() {
    let registry: CacheRegistry = CacheRegistry::new();
    assert_eq!(registry.metrics::<Plans>(), None);
    assert!(registry.metrics_by_name().is_empty());
    create::<Plans>(&registry, &[('a', 1)]);
    assert_eq!(registry.metrics::<Plans>().unwrap().misses, 1);
    assert_eq!(registry.metrics::<Tables>(), None);
}

#[test]
fn two_registries_share_nothing() {
    let (left, right) = (CacheRegistry::new(), CacheRegistry::new());
    create::<Plans>(&left, &[('a', 10)]);
    crate::kernels::fill_slot::<1>(&left, 5);
    assert_eq!(kept::<Plans>(&right, &[('a', 10)]), "");
    assert_eq!((left.bytes(), right.bytes()), (15, 0));
    create::<Plans>(&right, &[('a', 10)]);
    left.clear();
    assert_eq!(kept::<Plans>(&right, &[('a', 10)]), "a");
    assert_eq!((left.bytes(), right.bytes()), (0, 10));
}

#[test]
fn creation_gets_the_callers_device_or_else_the_registrys() {
    struct Named;

    impl CacheableKernel for Named {
        type Key = u32;
        type CachedResource = Option<&'static str>;
        type Params = u32;
        type Device = &'static str;
        type Error = CacheError;
        const CACHE_NAME: &'static str = "named";

        fn create_cache_key(params: &u32) -> u32 {
            *params
        }

        fn create_cached_resource(_: &u32, device: Option<&&'static str>) -> Result<Self::CachedResource, CacheError> {
            Ok(device.copied())
        }
    }

    let created_on =
        |registry: &CacheRegistry<_>, key: u32, device| *registry.get_or_create::<Named>(&key, device).unwrap();
    let bare = CacheRegistry::new();
    let equipped = CacheRegistry::with_device("own");
    let built = CacheRegistry::builder().device("built").build().unwrap();
    for (registry, device, expected) in [
        (&bare, None, None),
        (&bare, Some(&"other"), Some("other")),
        (&equipped, None, Some("own")),
        (&equipped, Some(&"other"), Some("other")),
        (&built, None, Some("built")),
    ] {
        registry.clear();
        assert_eq!(created_on(registry, 1, device), expected);
    }
    assert_eq!((bare.device(), equipped.device()), (None, Some(&"own")));
    // The device is only used by creations: a hit returns the cached resource.
    equipped.clear();
    assert_eq!(created_on(&equipped, 1, None), Some("own"));
    assert_eq!(created_on(&equipped, 1, Some(&"other")), Some("own"));
}

#[test]
fn a_failed_creation_returns_its_error_and_keeps_nothing() {
    let registry = CacheRegistry::new();
    for attempt in 1..=2 {
        assert_eq!(registry.get_or_create::<EvenOnly>(&7, None), Err(Fault::Odd(7)));
        let metrics = registry.metrics::<EvenOnly>().unwrap();
        assert_eq!((metrics.size, metrics.misses), (0, attempt));
    }
    assert_eq!(*registry.get_or_create::<EvenOnly>(&8, None).unwrap(), 4);
}

resource_cache! {
    /// A wrapper for two caches.
    struct Facade<()> {
        /// Plans by parameters.
        fn plan -> Plans;
        fn half -> EvenOnly;
    }
}

#[test]
fn the_facade_has_a_method_per_kernel_type_over_one_registry() {
    let caches = Facade::new(CacheRegistry::new());
    let plan = caches.plan(&('a', 1)).unwrap();
    assert!(Arc::ptr_eq(&plan, &caches.plan(&('a', 1)).unwrap()));
    assert!(Arc::ptr_eq(&plan, &cached::<Plans>(caches.registry(), &('a', 1))));
    assert_eq!(*caches.half(&8).unwrap(), 4);
    assert_eq!(caches.half(&7), Err(Fault::Odd(7)));
    let names: Vec<_> = caches.registry().metrics_by_name().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["even", "plans"]);
}
