//! Model-checked concurrency: all interleavings of a few threads over single flight, eviction and slots.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p kiln-resource-cache --release --test loom`, as `cargo xtask test
//! --all` does.
#![cfg(loom)]

use kiln_resource_cache::{
    Cache, CacheError, CacheErrorKind, CacheRegistry, CacheRegistrySlot, EvictionPolicy, MockClock,
};
use loom::sync::Arc;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Explores all schedules with at most five preemptions, which is sufficient in practice.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(5);
    builder.check(run);
}

fn cache(policy: EvictionPolicy) -> Arc<Cache<u32, u32>> {
    Arc::new(Cache::builder("numbers").policy(policy).clock(MockClock::new()).shards(1).build().unwrap())
}

fn spawn<T: 'static>(
    cache: &Arc<Cache<u32, u32>>,
    work: impl FnOnce(&Cache<u32, u32>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let cache = Arc::clone(cache);
    thread::spawn(move || work(&cache))
}

#[test]
fn two_threads_create_one_key_once() {
    model(|| {
        let cache = cache(EvictionPolicy::none());
        let created = std::sync::Arc::new(AtomicUsize::new(0));
        let lookup = |created: std::sync::Arc<AtomicUsize>| {
            move |cache: &Cache<u32, u32>| {
                let create = || {
                    thread::yield_now();
                    created.fetch_add(1, Ordering::Relaxed);
                    7
                };
                *cache.get_or_insert_with(&1, create).unwrap()
            }
        };
        let other = spawn(&cache, lookup(created.clone()));
        assert_eq!(lookup(created.clone())(&cache), 7);
        assert_eq!(other.join().unwrap(), 7);
        assert_eq!(created.load(Ordering::Relaxed), 1);
        assert_eq!(cache.len(), 1);
    });
}

#[test]
fn a_failed_creation_wakes_all_waiters() {
    model(|| {
        let cache = cache(EvictionPolicy::none());
        let fail = |cache: &Cache<u32, u32>| {
            cache.get_or_try_insert_with(&1, || {
                thread::yield_now();
                Err::<u32, _>(Failed)
            })
        };
        let other = spawn(&cache, fail);
        assert_eq!(fail(&cache), Err(Failed));
        assert_eq!(other.join().unwrap(), Err(Failed));
        assert_eq!(cache.len(), 0);
        assert_eq!(*cache.get_or_insert_with(&1, || 2).unwrap(), 2);
    });
}

#[test]
fn a_panicking_creation_wakes_all_waiters() {
    model(|| {
        let cache = cache(EvictionPolicy::none());
        let other = spawn(&cache, |cache| {
            let lookup = || cache.get_or_insert_with(&1, || std::panic::resume_unwind(Box::new("planted")));
            catch_unwind(AssertUnwindSafe(lookup)).is_err()
        });
        match cache.get_or_insert_with(&1, || 2) {
            Ok(value) => assert_eq!(*value, 2),
            Err(error) => assert_eq!(error.kind(), CacheErrorKind::CreationPanicked),
        }
        other.join().unwrap();
        assert_eq!(*cache.get_or_insert_with(&1, || 2).unwrap(), 2);
    });
}

#[test]
fn a_cycle_over_two_threads_is_an_error_and_not_a_deadlock() {
    model(|| {
        let cache = cache(EvictionPolicy::none());
        let circle = |own: u32, next: u32| {
            move |cache: &Cache<u32, u32>| {
                cache.get_or_try_insert_with(&own, || cache.get_or_insert_with(&next, || 0).map(|value| *value)).is_ok()
            }
        };
        let other = spawn(&cache, circle(1, 2));
        circle(2, 1)(&cache);
        other.join().unwrap();
    });
}

#[test]
fn limits_hold_when_two_threads_insert_at_once() {
    model(|| {
        let cache = cache(EvictionPolicy::size_limited_lru(1));
        let other = spawn(&cache, |cache| {
            cache.get_or_insert_with(&1, || 1).unwrap();
            assert!(cache.len() <= 1);
        });
        cache.get_or_insert_with(&2, || 2).unwrap();
        assert!(cache.len() <= 1);
        other.join().unwrap();
        let metrics = cache.metrics();
        assert_eq!((metrics.size, metrics.bytes, metrics.evictions), (1, 4, 1));
    });
}

#[test]
fn a_hit_and_an_eviction_of_the_same_entry_agree() {
    model(|| {
        let cache = cache(EvictionPolicy::size_limited_lru(2));
        cache.insert(1, 1);
        cache.insert(2, 2);
        let other = spawn(&cache, |cache| cache.get(&1).is_some());
        cache.insert(3, 3);
        let hit = other.join().unwrap();
        let left: Vec<u32> = [1, 2, 3].into_iter().filter(|key| cache.get(key).is_some()).collect();
        assert!(left == [2, 3] || (hit && left == [1, 3]), "hit {hit}, left {left:?}");
    });
}

#[test]
fn a_creation_that_a_clear_overtakes_is_not_kept_twice_nor_lost() {
    model(|| {
        let cache = cache(EvictionPolicy::none());
        let other = spawn(&cache, |cache| *cache.get_or_insert_with(&1, || 1).unwrap());
        cache.clear();
        let len = cache.len();
        assert!(len <= 1);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(cache.bytes(), cache.len() as u64 * 4);
    });
}

#[test]
fn a_slot_that_is_cleared_while_in_use_is_cleared_afterwards() {
    struct Tokens(u64);
    impl CacheRegistrySlot for Tokens {
        fn clear_slot(&mut self) {
            self.0 = 0;
        }
        fn bytes(&self) -> u64 {
            self.0
        }
    }
    model(|| {
        let registry: Arc<CacheRegistry> = Arc::new(CacheRegistry::new());
        registry.slot_mut(|| Tokens(5));
        let user = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || assert!(matches!(registry.slot_mut(|| Tokens(5)).0, 0 | 5)))
        };
        assert!(registry.clear_slot::<Tokens>());
        user.join().unwrap();
        assert_eq!(registry.slot_mut(|| Tokens(5)).0, 0, "the wish to clear is never lost");
        assert_eq!(registry.bytes(), 0);
    });
}

#[test]
fn two_clears_and_two_users_of_a_slot_leave_no_pending_clear() {
    struct Tokens(u64);
    impl CacheRegistrySlot for Tokens {
        fn clear_slot(&mut self) {
            self.0 = 0;
        }
    }
    model(|| {
        let registry: Arc<CacheRegistry> = Arc::new(CacheRegistry::new());
        registry.slot_mut(|| Tokens(5));
        let clearer = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                registry.clear_slot::<Tokens>();
                registry.slot_mut(|| Tokens(5)).0
            })
        };
        registry.clear_slot::<Tokens>();
        assert_eq!(registry.slot_mut(|| Tokens(5)).0, 0);
        assert_eq!(clearer.join().unwrap(), 0);
        registry.slot_mut(|| Tokens(5)).0 = 7;
        assert_eq!(registry.slot_mut(|| Tokens(5)).0, 7, "from after all clears");
    });
}

#[test]
fn a_policy_set_during_the_first_hit_is_not_overlooked() {
    model(|| {
        let clock = MockClock::new();
        let cache: Arc<Cache<u32, u32>> =
            Arc::new(Cache::builder("numbers").clock(clock.clone()).shards(1).build().unwrap());
        cache.insert(1, 1);
        let other = spawn(&cache, |cache| drop(cache.get(&1)));
        cache.set_policy(EvictionPolicy::idle_timeout(Duration::from_secs(1))).unwrap();
        other.join().unwrap();
        clock.advance(Duration::from_secs(5));
        assert!(cache.get(&1).is_none(), "stale");
    });
}

#[derive(Clone, Debug, PartialEq)]
struct Failed;

impl From<CacheError> for Failed {
    fn from(_: CacheError) -> Self {
        Failed
    }
}
