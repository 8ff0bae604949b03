//! Caches used by several threads: single flight, failures, panics, reentrancy, limits under stress.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests are tests")]

use kiln_resource_cache::{Cache, CacheError, CacheErrorKind, EvictionPolicy, LastEvent};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;

#[test]
fn eight_threads_on_one_key_create_it_once() {
    for _ in 0..50 {
        let cache = numbers(EvictionPolicy::none());
        let created = AtomicUsize::new(0);
        let values = on_all_threads(|_| {
            let create = || {
                created.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
                42
            };
            cache.get_or_insert_with(&7, create).unwrap()
        });
        assert_eq!(created.into_inner(), 1);
        assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])), "all share one resource");
        let metrics = cache.metrics();
        assert_eq!((metrics.misses, metrics.hits), (1, THREADS as u64 - 1), "those who waited hit");
    }
}

#[test]
fn a_failed_creation_reaches_every_waiter_and_the_next_call_tries_again() {
    let cache = numbers(EvictionPolicy::none());
    let attempts = AtomicUsize::new(0);
    let barrier = Barrier::new(THREADS);
    let errors = on_all_threads(|_| {
        barrier.wait();
        cache.get_or_try_insert_with(&7, || {
            attempts.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(100));
            Err::<u32, Failure>(Failure("the compiler said no".into()))
        })
    });
    assert_eq!(attempts.load(Ordering::Relaxed), 1, "all of them waited for one attempt");
    for error in errors {
        assert_eq!(error.unwrap_err(), Failure("the compiler said no".into()));
    }
    assert_eq!((cache.len(), cache.metrics().misses), (0, THREADS as u64));
    assert_eq!(*cache.get_or_insert_with(&7, || 1).unwrap(), 1);
}

#[test]
fn a_waiter_with_another_error_type_learns_that_creation_failed() {
    let cache = numbers(EvictionPolicy::none());
    let (other, own) = while_creating(&cache, Err(Failure("typed".into())), |cache| {
        cache.get_or_insert_with(&7, || unreachable!("the other thread creates"))
    });
    assert_eq!(other.unwrap_err(), Failure("typed".into()));
    let error = own.unwrap_err();
    assert_eq!(error.kind(), CacheErrorKind::CreationFailed);
    assert!(error.to_string().contains("`numbers`") && error.to_string().contains('7'), "{error}");
}

#[test]
fn a_panicking_creation_unwinds_its_caller_wakes_the_waiters_and_poisons_nothing() {
    let cache = numbers(EvictionPolicy::none());
    let barrier = Barrier::new(THREADS);
    let outcomes = on_all_threads(|_| {
        barrier.wait();
        let lookup = || {
            cache.get_or_insert_with(&7, || {
                thread::sleep(Duration::from_millis(100));
                panic!("planted")
            })
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(lookup))
    });
    let panicked = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(panicked, 1, "the one who ran the creation");
    for error in outcomes.into_iter().flatten() {
        assert_eq!(error.unwrap_err().kind(), CacheErrorKind::CreationPanicked);
    }
    assert_eq!(cache.len(), 0);
    assert_eq!(*cache.get_or_insert_with(&7, || 1).unwrap(), 1);
}

#[test]
fn a_creation_may_look_up_other_keys_and_other_caches() {
    let cache = numbers(EvictionPolicy::none());
    let other: Cache<String, u32> = Cache::builder("names").build().unwrap();
    let value = cache.get_or_try_insert_with(&1, || {
        let two = cache.get_or_insert_with(&2, || 20)?;
        let name = other.get_or_insert_with(&"three".into(), || 3)?;
        Ok::<u32, CacheError>(*two + *name)
    });
    assert_eq!(*value.unwrap(), 23);
    assert_eq!((cache.len(), other.len()), (2, 1));
}

#[test]
fn a_creation_that_asks_for_its_own_key_gets_an_error() {
    let cache = numbers(EvictionPolicy::none());
    let error = cache.get_or_try_insert_with(&1, || {
        // Through another key as well.
        cache.get_or_try_insert_with(&2, || cache.get_or_insert_with(&1, || 0).map(|value| *value)).map(|value| *value)
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), CacheErrorKind::Reentrant);
    assert!(error.to_string().contains("`numbers`"), "{error}");
    assert_eq!(*cache.get_or_insert_with(&1, || 5).unwrap(), 5, "usable afterwards");
}

#[test]
fn a_cycle_of_creations_over_threads_is_an_error_for_one_of_them() {
    let cache = numbers(EvictionPolicy::none());
    let barrier = Barrier::new(3);
    let _watchdog = Watchdog::new();
    let results = thread::scope(|scope| {
        let threads = [0, 1, 2].map(|own: u32| {
            let (cache, barrier) = (&cache, &barrier);
            scope.spawn(move || {
                let result = cache.get_or_try_insert_with(&own, || {
                    barrier.wait();
                    cache.get_or_insert_with(&((own + 1) % 3), || 0).map(|next| *next + 1)
                });
                result.map(|value| *value)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let errors = results.iter().filter_map(|result| result.as_ref().err());
    assert!(errors.clone().count() >= 1);
    assert!(errors.clone().all(|error| error.kind() == CacheErrorKind::Reentrant), "{results:?}");
}

#[test]
fn waiting_for_a_thread_that_just_finished_waiting_is_not_a_cycle() {
    let cache = numbers(EvictionPolicy::none());
    // Two threads take turns creating and waiting; a stale edge must not look like a cycle.
    thread::scope(|scope| {
        for start in 0..2 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..20_000 {
                    let key = round * 2 + (round + start) % 2;
                    cache.get_or_insert_with(&key, || key).unwrap();
                    cache.get_or_insert_with(&(key ^ 1), || key ^ 1).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_creation_during_clear_is_returned_but_not_cached() {
    let cache = numbers(EvictionPolicy::none());
    let (old, new) = while_creating(&cache, Ok(1), |cache| {
        cache.clear();
        cache.get_or_insert_with(&7, || 2)
    });
    assert_eq!((*old.unwrap(), *new.unwrap()), (1, 2), "the call after the clear does not get the old value");
    assert_eq!(cache.get(&7).as_deref(), Some(&2), "and neither does anyone later");
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_value_inserted_while_one_is_created_is_replaced_and_counted_once() {
    let cache = numbers(EvictionPolicy::none());
    let (created, _) = while_creating(&cache, Ok(1), |cache| cache.insert(7, 2));
    assert_eq!(*created.unwrap(), 1);
    assert_eq!(cache.get(&7).as_deref(), Some(&1));
    assert_eq!((cache.len(), cache.bytes()), (1, 4));
}

#[test]
fn drops_of_evicted_values_run_with_no_lock_held() {
    struct Reenters(Arc<std::sync::OnceLock<Cache<u32, Reenters>>>, Arc<AtomicUsize>);
    impl Drop for Reenters {
        fn drop(&mut self) {
            if let Some(cache) = self.0.get() {
                cache.get(&1);
                cache.metrics();
                cache.policy();
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let _watchdog = Watchdog::new();
    let cell = Arc::new(std::sync::OnceLock::new());
    let drops = Arc::new(AtomicUsize::new(0));
    let cache = Cache::builder("numbers").policy(EvictionPolicy::size_limited_lru(2)).build().unwrap();
    assert!(cell.set(cache).is_ok());
    let cache = cell.get().unwrap();
    let value = || Reenters(Arc::clone(&cell), Arc::clone(&drops));
    for key in [0, 1, 2, 3, 3] {
        cache.insert(key, value());
    }
    cache.get_or_insert_with(&9, value).unwrap();
    cache.remove(&9);
    cache.trim(0);
    cache.clear();
    assert_eq!(drops.load(Ordering::Relaxed), 6);
}

/// Hits of a dense run on a large cache are sampled; none may be lost.
#[test]
fn every_hit_of_a_dense_run_is_counted() {
    const ENTRIES: u32 = 1_000;
    const PASSES: u32 = 100;
    let cache = numbers(EvictionPolicy::size_limited_lru(2_000));
    for key in 0..ENTRIES {
        cache.insert(key, key);
    }
    on_all_threads(|_| {
        for key in (0..PASSES).flat_map(|_| 0..ENTRIES) {
            assert_eq!(cache.get(&key).as_deref(), Some(&key));
        }
    });
    let metrics = cache.metrics();
    let uses_of_each = u64::from(PASSES) * THREADS as u64;
    assert_eq!((metrics.hits, metrics.misses), (uses_of_each * u64::from(ENTRIES), 0));
    let reuse = metrics.max_entry_reuse_count;
    // Estimated from one hit in 64: the highest of a thousand estimates is off by a factor of two or three.
    assert!((uses_of_each / 2..uses_of_each * 5).contains(&reuse), "{reuse}, and each was used {uses_of_each} times");
    assert!(metrics.mean_lookup_time.is_some());
}

/// Invariants that hold for every interleaving: correct values, strict limits, consistent counters.
#[test]
fn limits_and_counters_hold_under_stress() {
    for policy in [
        EvictionPolicy::size_limited_lru(64),
        EvictionPolicy::fifo().with_max_entries(64).with_min_entries(8),
        EvictionPolicy::lru().with_max_bytes(64 * 4),
        EvictionPolicy::hybrid(64, Duration::from_millis(1)),
    ] {
        let cache = numbers(policy);
        let created = AtomicU64::new(0);
        let lookups = AtomicU64::new(0);
        on_all_threads(|thread| {
            let mut random = Random::new(thread as u64 + 1);
            for _ in 0..20_000 {
                let key = random.below(128);
                match random.below(100) {
                    0 => drop(cache.remove(&key)),
                    1 => drop(cache.insert(key, key * 3)),
                    2 => drop(cache.trim(16 * 4)),
                    3 if random.below(50) == 0 => cache.clear(),
                    4..50 => {
                        lookups.fetch_add(1, Ordering::Relaxed);
                        assert!(cache.get(&key).is_none_or(|value| *value == key * 3));
                    }
                    _ => {
                        lookups.fetch_add(1, Ordering::Relaxed);
                        let value = cache.get_or_insert_with(&key, || {
                            created.fetch_add(1, Ordering::Relaxed);
                            key * 3
                        });
                        assert_eq!(*value.unwrap(), key * 3);
                    }
                }
                assert!(cache.metrics().size <= 64, "the limit holds at every moment");
            }
        });
        let metrics = cache.metrics();
        assert_eq!(metrics.hits + metrics.misses, lookups.into_inner(), "every lookup is a hit or a miss");
        assert!(metrics.misses >= created.into_inner());
        assert_eq!(metrics.bytes, metrics.size as u64 * 4);
        cache.clear();
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
        assert_eq!(cache.metrics().last_event, Some(LastEvent::Clear));
    }
}

fn numbers(policy: EvictionPolicy) -> Cache<u32, u32> {
    Cache::builder("numbers").policy(policy).build().unwrap()
}

/// Runs the work on eight threads at once.
fn on_all_threads<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let _watchdog = Watchdog::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Starts a creation of key 7 in another thread, runs `meanwhile`, then ends the creation as requested. `meanwhile` may
/// itself wait for the creation, which also ends after a timeout.
fn while_creating<T>(
    cache: &Cache<u32, u32>,
    ending: Result<u32, Failure>,
    meanwhile: impl FnOnce(&Cache<u32, u32>) -> T,
) -> (Result<Arc<u32>, Failure>, T) {
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let creator = scope.spawn(move || {
            cache.get_or_try_insert_with(&7, || {
                begun.send(()).unwrap();
                let _ = released.recv_timeout(Duration::from_millis(200));
                ending
            })
        });
        has_begun.recv().unwrap();
        let result = meanwhile(cache);
        drop(release);
        (creator.join().unwrap(), result)
    })
}

/// Ends the test run with a message if a deadlock keeps the guard from being dropped.
struct Watchdog {
    _bark: mpsc::Sender<()>,
}

impl Watchdog {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel::<()>();
        thread::spawn(move || {
            if receiver.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("deadlock: a test in tests/threads.rs made no progress for a minute");
                std::process::abort();
            }
        });
        Self { _bark: sender }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Failure(String);

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        Failure(error.to_string())
    }
}

/// xorshift64*: the same operations in every run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % u64::from(limit)) as u32
    }
}
