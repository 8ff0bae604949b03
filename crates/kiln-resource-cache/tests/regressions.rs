//! Regression tests; each failed before its fix.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_resource_cache::events::{CacheEvent, ChannelSink, EventSink};
use kiln_resource_cache::{
    AdviceKind, Cache, CacheError, CacheErrorKind, CacheRegistry, CacheRegistrySlot, CacheableKernel, EvictionPolicy,
    MockClock,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Weak, mpsc};
use std::time::Duration;
use std::{io, thread};

// Order across threads.

#[test]
fn an_entry_used_by_a_busy_thread_does_not_outlive_later_insertions() {
    let cache: Cache<u32, u32> = Cache::builder("numbers").policy(EvictionPolicy::size_limited_lru(4)).build().unwrap();
    elsewhere(|| insert_all(&cache, 1..=4));
    elsewhere(|| {
        use_another_cache_a_lot();
        cache.get(&1);
    });
    elsewhere(|| insert_all(&cache, 5..=8));
    assert!((1..=4).all(|key| cache.get(&key).is_none()), "all of them were used before four insertions");
}

#[test]
fn a_stale_entry_is_not_returned_though_a_fresh_one_stands_before_it() {
    for _ in 0..50 {
        let clock = MockClock::new();
        let policy = EvictionPolicy::idle_timeout(Duration::from_secs(60));
        let cache: Cache<u32, u32> = Cache::builder("numbers").policy(policy).clock(clock.clone()).build().unwrap();
        elsewhere(|| insert_all(&cache, 1..=4));
        elsewhere(|| {
            for _ in 0..1000 {
                cache.get(&4);
            }
            cache.get(&1);
        });
        clock.advance(Duration::from_secs(50));
        elsewhere(|| drop(cache.get(&2)));
        clock.advance(Duration::from_secs(50));
        assert!(cache.get(&1).is_none(), "idle for 100 s with a limit of 60 s");
        assert!(cache.get(&2).is_some());
    }
}

// User code runs with no lock held.

#[test]
fn a_sink_may_use_the_cache_during_an_oversize_event() {
    struct Asks(Weak<Cache<u32, u64>>);
    impl EventSink for Asks {
        fn record(&self, _: &CacheEvent) -> io::Result<()> {
            let cache = self.0.upgrade().ok_or(io::ErrorKind::NotFound)?;
            cache.metrics();
            cache.policy();
            Ok(())
        }
    }
    must_end(|| {
        let policy = EvictionPolicy::lru().with_max_bytes(10);
        let cache = Arc::new_cyclic(|cache| {
            let builder = Cache::builder("numbers").policy(policy).weigher(|_, bytes: &u64| *bytes);
            builder.sink(Asks(Weak::clone(cache))).build().unwrap()
        });
        assert_eq!(*cache.get_or_insert_with(&1, || 11).unwrap(), 11);
        assert_eq!(cache.sink_failures(), 0);
    });
}

#[test]
fn keys_are_dropped_with_no_lock_held() {
    #[derive(Clone)]
    struct Key(u32, Weak<Cache<Key, u64>>);
    impl std::fmt::Debug for Key {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Key {}
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl Drop for Key {
        fn drop(&mut self) {
            self.1.upgrade().map(|cache| (cache.metrics(), cache.policy()));
        }
    }
    must_end(|| {
        let policy = EvictionPolicy::lru().with_max_bytes(10);
        let cache: Cache<Key, u64> =
            Cache::builder("numbers").policy(policy).weigher(|_, bytes: &u64| *bytes).build().unwrap();
        let cache = Arc::new(cache);
        let key = |n| Key(n, Arc::downgrade(&cache));
        for bytes in [5, 11, 6] {
            cache.get_or_insert_with(&key(1), || bytes).unwrap();
            cache.insert(key(2), bytes);
            cache.insert(key(2), bytes);
        }
        cache
            .get_or_try_insert_with(&key(3), || {
                cache.clear();
                Ok::<_, CacheError>(5)
            })
            .unwrap();
        assert_eq!(cache.len(), 0);
    });
}

#[test]
fn a_cycle_over_two_caches_is_an_error() {
    must_end(|| {
        let caches: [Cache<u32, u32>; 2] = ["a", "b"].map(|name| Cache::builder(name).build().unwrap());
        let barrier = Barrier::new(2);
        let results = thread::scope(|scope| {
            let (caches, barrier) = (&caches, &barrier);
            let circle = |own: usize| {
                scope.spawn(move || {
                    let create = || {
                        barrier.wait();
                        caches[1 - own].get_or_insert_with(&1, || 0).map(|value| *value)
                    };
                    caches[own].get_or_try_insert_with(&1, create).map(|value| *value)
                })
            };
            [circle(0), circle(1)].map(|thread| thread.join().unwrap())
        });
        let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(
            !errors.is_empty() && errors.iter().all(|error| error.kind() == CacheErrorKind::Reentrant),
            "{errors:?}"
        );
        assert!(errors[0].to_string().contains("the creation of 1"), "{}", errors[0]);
    });
}

// Replacement.

#[test]
fn a_key_that_is_replaced_is_never_missing() {
    let policy = EvictionPolicy::lru().with_max_bytes(1000);
    let cache: Cache<u32, u32> = Cache::builder("numbers").policy(policy).build().unwrap();
    cache.insert(1, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..100_000 {
                cache.insert(1, value);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert!(cache.get(&1).is_some());
        }
    });
    assert_eq!((cache.len(), cache.metrics().misses), (1, 0));
}

#[test]
fn replacement_and_cleared_creations_evict_no_other_entries() {
    for policy in [EvictionPolicy::lru(), EvictionPolicy::fifo()] {
        let cache: Cache<u32, u32> = Cache::builder("numbers").policy(policy.with_max_entries(2)).build().unwrap();
        insert_all(&cache, 1..=2);
        cache.insert(1, 10);
        assert_eq!((cache.get(&1).as_deref(), cache.get(&2).as_deref()), (Some(&10), Some(&2)));
        let created = cache.get_or_insert_with(&3, || {
            cache.clear();
            insert_all(&cache, 4..=5);
            3
        });
        assert_eq!(*created.unwrap(), 3);
        assert_eq!((cache.len(), cache.metrics().evictions), (2, 1), "one made way before the creation, none after");
    }
}

#[test]
fn the_value_that_is_replaced_is_not_evicted_for_its_successor() {
    let policy = EvictionPolicy::lru().with_max_bytes(100);
    let cache: Cache<u32, u64> =
        Cache::builder("numbers").policy(policy).weigher(|_, bytes: &u64| *bytes).build().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    (1..5).for_each(|key| drop(cache.get(&key)));
                }
            });
        }
        let _done = SetOnDrop(&done);
        for _ in 0..3_000 {
            (1..5).for_each(|key| drop(cache.insert(key, 10)));
            for bytes in [50, 100, 10, 100] {
                cache.insert(0, bytes);
                assert!(cache.bytes() <= 100, "{} of 100 bytes", cache.bytes());
            }
        }
    });
}

// Sampled hits before a policy with an idle limit was set are counted once.

#[test]
fn hits_before_and_after_an_idle_limit_add_up() {
    let cache: Cache<u32, u32> = Cache::builder("numbers").build().unwrap();
    insert_all(&cache, 0..300);
    let hit = |times: u64| (0..times).for_each(|_| assert!(cache.get(&7).is_some()));
    hit(100_010);
    cache.set_policy(EvictionPolicy::idle_timeout(Duration::from_secs(3600))).unwrap();
    hit(1_000);
    cache.set_policy(EvictionPolicy::none()).unwrap();
    hit(100_010);
    assert_eq!(cache.metrics().hits, 201_020);
}

// The budget and trim.

#[test]
fn the_budget_holds_and_trim_reaches_its_target_while_another_thread_hits() {
    let registry: CacheRegistry = CacheRegistry::builder().byte_budget(1000).build().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for key in 40..60 {
                    registry.get::<Plans>(&key);
                    registry.get::<Tables>(&key);
                }
            }
        });
        let _done = SetOnDrop(&done);
        for round in 0..20_000_u64 {
            registry.get_or_create::<Plans>(&(40 + round % 20), None).unwrap();
            registry.get_or_create::<Tables>(&(40 + round * 7 % 20), None).unwrap();
            assert!(registry.bytes() <= 1000, "{} of 1000 bytes", registry.bytes());
        }
        for _ in 0..50 {
            registry.warm::<Plans>(40..60);
            assert_eq!(registry.trim(0).bytes_after, 0);
        }
    });
}

#[test]
fn stale_entries_leave_before_live_ones_of_another_cache() {
    let clock = MockClock::new();
    let registry: CacheRegistry = CacheRegistry::builder().clock(clock.clone()).byte_budget(100).build().unwrap();
    registry.set_eviction_policy::<Plans>(EvictionPolicy::idle_timeout(Duration::from_secs(1))).unwrap();
    registry.get_or_create::<Tables>(&30, None).unwrap();
    registry.get_or_create::<Plans>(&60, None).unwrap();
    clock.advance(Duration::from_secs(2));
    registry.get_or_create::<Tables>(&31, None).unwrap();
    assert!(registry.get::<Tables>(&30).is_some(), "the stale plan made room");
    assert_eq!(registry.bytes(), 61);
}

#[test]
fn weights_beyond_reason_do_not_overflow() {
    let cache: Cache<u32, u32> = Cache::builder("numbers").weigher(|_, _| u64::MAX).build().unwrap();
    insert_all(&cache, 1..=3);
    assert_eq!(cache.bytes(), 3 << 48);
    cache.clear();
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn two_types_of_one_path_that_claim_one_name_are_an_error() {
    let registry: CacheRegistry = CacheRegistry::new();
    {
        kernel!(Local, "local");
        registry.get_or_create::<Local>(&1, None).unwrap();
    }
    kernel!(Local, "local");
    assert_eq!(registry.get_or_create::<Local>(&1, None).unwrap_err().kind(), CacheErrorKind::DuplicateName);
}

#[test]
fn concurrent_clears_leave_no_pending_clear() {
    struct Slow(Vec<u32>, Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>);
    impl CacheRegistrySlot for Slow {
        fn clear_slot(&mut self) {
            self.0.clear();
            if let Some((entered, go)) = self.1.take() {
                entered.send(()).unwrap();
                go.recv().unwrap();
            }
        }
    }
    let registry: CacheRegistry = CacheRegistry::new();
    let (entered, has_entered) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    registry.slot_mut(|| Slow(vec![], Some((entered, may_go))));
    thread::scope(|scope| {
        scope.spawn(|| registry.clear());
        has_entered.recv().unwrap();
        registry.clear();
        go.send(()).unwrap();
    });
    registry.slot_mut::<Slow>(|| unreachable!("filled above")).0.push(7);
    assert_eq!(registry.slot_mut::<Slow>(|| unreachable!("filled above")).0, [7], "from after both clears");
}

#[test]
fn a_slot_survives_a_panic_in_its_own_clear() {
    struct PanicsOnce(bool);
    impl CacheRegistrySlot for PanicsOnce {
        fn clear_slot(&mut self) {
            if std::mem::take(&mut self.0) {
                std::panic::resume_unwind(Box::new("planted"));
            }
        }
    }
    let registry: CacheRegistry = CacheRegistry::new();
    let slot = registry.slot_mut(|| PanicsOnce(true));
    registry.clear();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(slot))).is_err());
    assert!(!registry.slot_mut(|| PanicsOnce(true)).0);
}

#[test]
fn a_reentrant_clear_of_a_slot_terminates() {
    struct Returns(Weak<CacheRegistry>, u32, bool);
    impl CacheRegistrySlot for Returns {
        fn clear_slot(&mut self) {
            self.1 += 1;
            let registry = self.0.upgrade().unwrap();
            registry.clear();
            if self.2 {
                registry.slot_mut::<Returns>(|| unreachable!("filled below"));
            }
        }
    }
    must_end(|| {
        let registry: Arc<CacheRegistry> = Arc::new(CacheRegistry::new());
        registry.slot_mut(|| Returns(Arc::downgrade(&registry), 0, false));
        registry.clear();
        assert_eq!(registry.slot_mut::<Returns>(|| unreachable!("filled above")).1, 1, "cleared once");
        registry.slot_mut::<Returns>(|| unreachable!("filled above")).2 = true;
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| registry.clear()));
        assert!(refused.is_err(), "asking for a slot while clearing it is refused, not waited for");
    });
}

#[test]
fn a_trim_to_zero_clears_slots_without_a_size() {
    struct Silent(u32);
    impl CacheRegistrySlot for Silent {
        fn clear_slot(&mut self) {
            self.0 = 0;
        }
    }
    let registry: CacheRegistry = CacheRegistry::new();
    let mut slot = registry.slot_mut(|| Silent(1));
    slot.0 = 2;
    assert_eq!(registry.trim(0).slots_deferred, 1);
    drop(slot);
    assert_eq!(registry.slot_mut(|| Silent(1)).0, 0);
}

#[test]
fn advice_sees_thrashing_in_large_caches_and_resources_too_large_to_keep() {
    let cache: Cache<u32, u64> = Cache::builder("numbers")
        .policy(EvictionPolicy::size_limited_lru(20_000).with_max_bytes(1 << 20))
        .weigher(|_, bytes: &u64| *bytes)
        .build()
        .unwrap();
    for key in (0..3).flat_map(|_| 0..30_000) {
        cache.get_or_insert_with(&key, || 1).unwrap();
    }
    cache.get_or_insert_with(&u32::MAX, || 2 << 20).unwrap();
    let kinds: Vec<_> = cache.advice().into_iter().map(|advice| advice.kind).collect();
    assert_eq!(kinds, [AdviceKind::LowHitRate, AdviceKind::Thrashing, AdviceKind::Oversize]);
}

// Events.

#[test]
fn a_panicking_creation_is_reported_as_a_miss() {
    let (sink, events) = ChannelSink::new(10);
    let cache: Cache<u32, u32> = Cache::builder("numbers").sink(sink).build().unwrap();
    let lookup = || cache.get_or_insert_with(&1, || std::panic::resume_unwind(Box::new("planted")));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(lookup)).is_err());
    let expected = CacheEvent::ResourceCacheAccess { cache_key: "numbers:1".into(), hit: false, bytes: 0 };
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [expected]);
}

fn insert_all(cache: &Cache<u32, u32>, keys: impl IntoIterator<Item = u32>) {
    for key in keys {
        cache.insert(key, key);
    }
}

/// Runs work on a new thread.
fn elsewhere(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(work);
    });
}

fn use_another_cache_a_lot() {
    let cache: Cache<u32, u32> = Cache::builder("other").build().unwrap();
    cache.insert(0, 0);
    for _ in 0..1000 {
        cache.get(&0);
    }
}

/// Ends the loop of another thread, also if an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Fails instead of hanging.
fn must_end(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    if is_done.recv_timeout(Duration::from_secs(20)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("a deadlock: no progress for 20 s");
    }
    worker.join().unwrap();
}

/// A kernel type whose resource is its key, which is also its size in bytes.
macro_rules! kernel {
    ($kernel:ident, $name:literal) => {
        struct $kernel;

        impl CacheableKernel for $kernel {
            type Key = u64;
            type CachedResource = u64;
            type Params = u64;
            type Device = ();
            type Error = CacheError;
            const CACHE_NAME: &'static str = $name;

            fn create_cache_key(params: &u64) -> u64 {
                *params
            }

            fn create_cached_resource(key: &u64, _: Option<&()>) -> Result<u64, CacheError> {
                Ok(*key)
            }

            fn resource_bytes(bytes: &u64) -> u64 {
                *bytes
            }
        }
    };
}
use kernel;

kernel!(Plans, "plans");
kernel!(Tables, "tables");
