//! Reentrant creation: resources that are created from other resources.

use crate::kernels::{Fault, must_end};
use kiln_resource_cache::{CacheErrorKind, CacheRegistry, CacheableKernel};
use std::sync::{Arc, Weak};

/// A device that refers to its registry.
struct Host(Weak<CacheRegistry<Host>>);

impl Host {
    fn look_up<K: CacheableKernel<Device = Host, Error = Fault>>(
        host: Option<&Host>,
        params: &K::Params,
    ) -> Result<Arc<K::CachedResource>, Fault> {
        let registry = host.and_then(|host| host.0.upgrade()).ok_or(Fault::NoDevice)?;
        registry.get_or_create::<K>(params, None)
    }
}

/// Declares a kernel type that maps `u32` to `u64` and whose creation may look up others.
macro_rules! hosted_kernel {
    ($kernel:ident, $name:literal, $create:expr) => {
        struct $kernel;

        impl CacheableKernel for $kernel {
            type Key = u32;
            type CachedResource = u64;
            type Params = u32;
            type Device = Host;
            type Error = Fault;
            const CACHE_NAME: &'static str = $name;

            fn create_cache_key(params: &u32) -> u32 {
                *params
            }

            fn create_cached_resource(key: &u32, host: Option<&Host>) -> Result<u64, Fault> {
                let create: fn(u32, Option<&Host>) -> Result<u64, Fault> = $create;
                create(*key, host)
            }
        }
    };
}

hosted_kernel!(Stage, "stages", |key, _| if key == 13 { Err(Fault::Odd(13)) } else { Ok(u64::from(key) * 10) });
hosted_kernel!(Program, "programs", |key, host| {
    Ok(*Host::look_up::<Stage>(host, &key)? + *Host::look_up::<Stage>(host, &(key + 1))?)
});
hosted_kernel!(Fibonacci, "fibonacci", |key, host| match key {
    0 | 1 => Ok(u64::from(key)),
    _ => Ok(*Host::look_up::<Fibonacci>(host, &(key - 1))? + *Host::look_up::<Fibonacci>(host, &(key - 2))?),
});
hosted_kernel!(Ouroboros, "ouroboros", |key, host| Ok(*Host::look_up::<Ouroboros>(host, &key)?));

#[test]
fn a_creation_may_look_up_another_cache_that_is_first_used_by_it() {
    let registry = hosted();
    assert_eq!(*registry.get_or_create::<Program>(&1, None).unwrap(), 30);
    assert_eq!(*registry.get_or_create::<Program>(&2, None).unwrap(), 50);
    let stages = registry.metrics::<Stage>().unwrap();
    assert_eq!((stages.size, stages.misses, stages.hits), (3, 3, 1), "stage 2 is shared by both programs");
}

#[test]
fn a_creation_may_look_up_other_keys_of_its_own_cache() {
    let registry = hosted();
    assert_eq!(*registry.get_or_create::<Fibonacci>(&50, None).unwrap(), 12_586_269_025);
    let metrics = registry.metrics::<Fibonacci>().unwrap();
    assert_eq!((metrics.size, metrics.misses), (51, 51), "each number is created once");
}

#[test]
fn an_inner_failure_fails_the_outer_creation_and_neither_is_kept() {
    let registry = hosted();
    assert_eq!(registry.get_or_create::<Program>(&12, None), Err(Fault::Odd(13)));
    assert_eq!(registry.metrics::<Program>().unwrap().size, 0);
    assert_eq!(registry.metrics::<Stage>().unwrap().size, 1, "stage 12 was fine");
}

#[test]
fn a_creation_that_asks_for_its_own_key_is_an_error_and_not_a_hang() {
    must_end(|| {
        let registry = hosted();
        for _ in 0..2 {
            let Err(Fault::Cache(error)) = registry.get_or_create::<Ouroboros>(&1, None) else {
                panic!("the creation waits for itself");
            };
            assert_eq!(error.kind(), CacheErrorKind::Reentrant);
            assert!(error.to_string().contains("`ouroboros`"), "{error}");
        }
        assert_eq!(registry.metrics::<Ouroboros>().unwrap().size, 0);
    });
}

fn hosted() -> Arc<CacheRegistry<Host>> {
    Arc::new_cyclic(|registry| CacheRegistry::with_device(Host(Weak::clone(registry))))
}
