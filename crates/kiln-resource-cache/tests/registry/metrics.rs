//! Metrics: every field changes as documented.

use crate::kernels::{EvenOnly, Fault, Plans, Timed, create, on_mock_clock};
use kiln_resource_cache::{
    CacheError, CacheMetrics, CacheRegistry, CacheableKernel, EvictionPolicy, LastEvent, MockClock,
};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const A: (char, u64) = ('a', 10);
const B: (char, u64) = ('b', 30);

#[test]
fn counters_and_ages_follow_a_script() {
    let (registry, clock) = on_mock_clock();
    let ask = |params| registry.get_or_create::<Timed>(&params, None).unwrap();
    let metrics = || registry.metrics::<Timed>().unwrap();

    ask(A); // created until 4 ms
    assert_eq!(counters(&metrics()), Counters { size: 1, bytes: 10, misses: 1, ..Counters::default() });
    assert_eq!(ages_ms(&metrics()), [Some(0); 4]);

    pass_ms(&clock, 10);
    ask(B); // created until 18 ms
    assert_eq!(counters(&metrics()), Counters { size: 2, bytes: 40, misses: 2, ..Counters::default() });
    assert_eq!(ages_ms(&metrics()), [Some(14), Some(0), Some(14), Some(0)]);

    pass_ms(&clock, 5);
    ask(A); // used at 23 ms
    assert_eq!(
        counters(&metrics()),
        Counters { size: 2, bytes: 40, hits: 1, misses: 2, reuse: 1, ..Counters::default() }
    );
    assert_eq!(ages_ms(&metrics()), [Some(19), Some(5), Some(5), Some(0)]);

    pass_ms(&clock, 7);
    assert_eq!(ages_ms(&metrics()), [Some(26), Some(12), Some(12), Some(7)], "reading the metrics uses no entry");

    registry.set_eviction_policy::<Timed>(EvictionPolicy::size_limited_lru(1)).unwrap(); // B goes
    let after_eviction =
        Counters { size: 1, bytes: 10, hits: 1, misses: 2, evictions: 1, reuse: 1, ..Counters::default() };
    assert_eq!(counters(&metrics()), after_eviction);
    assert_eq!(ages_ms(&metrics()), [Some(26), Some(26), Some(7), Some(7)]);

    ask(B); // comes back, and A goes; created until 34 ms
    let after_refault = Counters { bytes: 30, misses: 3, evictions: 2, refaults: 1, ..after_eviction };
    assert_eq!(counters(&metrics()), after_refault, "the reuse of an entry that is gone still counts");

    registry.clear_cache::<Timed>();
    assert_eq!(counters(&metrics()), Counters { size: 0, bytes: 0, ..after_refault }, "clear resets no counter");
    assert_eq!(ages_ms(&metrics()), [None; 4]);
}

#[test]
fn ages_are_the_extremes_over_all_entries() {
    let (registry, clock) = on_mock_clock();
    let ids: Vec<char> = ('\u{1000}'..='\u{10c7}').collect();
    for id in &ids {
        registry.get_or_create::<Timed>(&(*id, 1), None).unwrap();
    }
    // 200 entries, inserted at 4, 8, ..., 800 ms, then used from the newest to the oldest, one per millisecond.
    for id in ids.iter().rev() {
        pass_ms(&clock, 1);
        registry.get::<Timed>(&(*id, 1)).unwrap();
    }
    pass_ms(&clock, 50);
    let metrics = registry.metrics::<Timed>().unwrap();
    assert_eq!(ages_ms(&metrics), [Some(1046), Some(250), Some(249), Some(50)]);
    assert_eq!(metrics.max_entry_reuse_count, 1);
}

#[test]
fn the_highest_reuse_count_is_that_of_one_entry() {
    let (registry, _) = on_mock_clock();
    for (params, times) in [(A, 4), (B, 8), (A, 2)] {
        for _ in 0..times {
            registry.get_or_create::<Timed>(&params, None).unwrap();
        }
    }
    let metrics = registry.metrics::<Timed>().unwrap();
    assert_eq!((metrics.hits, metrics.max_entry_reuse_count), (12, 7), "B: a creation and 7 hits");
    assert_eq!(metrics.hit_rate(), Some(12.0 / 14.0));
}

#[test]
fn creation_time_is_the_mean_of_all_creations() {
    let (registry, clock) = on_mock_clock();
    registry.set_eviction_policy::<Timed>(EvictionPolicy::none()).unwrap();
    assert_eq!(registry.metrics::<Timed>().unwrap().mean_create_time, None);
    let mean_after = |params| {
        registry.get_or_create::<Timed>(&params, None).unwrap();
        registry.metrics::<Timed>().unwrap().mean_create_time
    };
    assert_eq!(mean_after(A), Some(Duration::from_millis(4)));
    pass_ms(&clock, 100);
    assert_eq!(mean_after(A), Some(Duration::from_millis(4)), "a hit is no creation");
    // A creation that advances another clock, and not that of the registry.
    registry.get_or_create::<Timed>(&B, Some(&MockClock::new())).unwrap();
    assert_eq!(mean_after(A), Some(Duration::from_millis(2)));
}

#[test]
fn lookup_time_is_measured_from_the_first_hit_on() {
    let registry: CacheRegistry = CacheRegistry::new();
    let mean = || registry.metrics::<Plans>().unwrap().mean_lookup_time;
    create::<Plans>(&registry, &[('a', 1)]);
    assert_eq!(mean(), None, "a miss is no hit");
    create::<Plans>(&registry, &[('a', 1)]);
    assert!(mean().unwrap() > Duration::ZERO);
    create::<Plans>(&registry, &[('a', 1); 10_000]);
    assert!(mean().unwrap() > Duration::ZERO);
}

#[test]
fn the_last_event_is_reported() {
    let registry = CacheRegistry::<()>::new();
    registry.set_eviction_policy::<EvenOnly>(EvictionPolicy::none()).unwrap();
    let last = || registry.metrics::<EvenOnly>().unwrap().last_event;
    assert_eq!(last(), None);
    type Action<'a> = (LastEvent, &'a dyn Fn());
    let steps: [Action<'_>; 8] = [
        (LastEvent::Miss, &|| assert!(registry.get::<EvenOnly>(&2).is_none())),
        (LastEvent::Insert, &|| assert_eq!(*registry.get_or_create::<EvenOnly>(&2, None).unwrap(), 1)),
        (LastEvent::Hit, &|| assert!(registry.get::<EvenOnly>(&2).is_some())),
        (LastEvent::Miss, &|| assert_eq!(registry.get_or_create::<EvenOnly>(&3, None), Err(Fault::Odd(3)))),
        (LastEvent::Hit, &|| assert!(registry.get_or_create::<EvenOnly>(&2, None).is_ok())),
        (LastEvent::Eviction, &|| assert_eq!(registry.trim(0).entries_evicted, 1)),
        (LastEvent::Clear, &|| registry.clear_cache::<EvenOnly>()),
        (LastEvent::Insert, &|| assert_eq!(registry.warm::<EvenOnly>([6]).created, 1)),
    ];
    for (at, (expected, step)) in steps.into_iter().enumerate() {
        step();
        assert_eq!(last(), Some(expected), "after step {at}");
    }
}

#[test]
fn a_lookup_served_by_a_creation_under_way_is_a_hit_that_joined() {
    let registry = CacheRegistry::<()>::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..2).map(|_| scope.spawn(|| *registry.get_or_create::<Awaited>(&(), None).unwrap())).collect();
        assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>(), [7, 7]);
    });
    let metrics = registry.metrics::<Awaited>().unwrap();
    assert_eq!((metrics.size, metrics.hits, metrics.misses), (1, 1, 1));
    assert_eq!(metrics.last_event, Some(LastEvent::Joined));
}

/// A creation that continues only after another thread has joined it.
struct Awaited;

/// A key that reports its first comparison, which happens when a second lookup finds the creation in progress.
#[derive(Clone, Debug, Eq)]
struct WatchedKey;

static COMPARED: AtomicBool = AtomicBool::new(false);

impl PartialEq for WatchedKey {
    fn eq(&self, _: &Self) -> bool {
        COMPARED.store(true, Ordering::SeqCst);
        true
    }
}

impl Hash for WatchedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u8.hash(state);
    }
}

impl CacheableKernel for Awaited {
    type Key = WatchedKey;
    type CachedResource = u32;
    type Params = ();
    type Device = ();
    type Error = CacheError;
    const CACHE_NAME: &'static str = "awaited";

    fn create_cache_key((): &()) -> WatchedKey {
        WatchedKey
    }

    fn create_cached_resource(_: &WatchedKey, _: Option<&()>) -> Result<u32, CacheError> {
        while !COMPARED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(7)
    }
}

/// The counters of a `CacheMetrics`, to be compared together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    size: usize,
    bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
    refaults: u64,
    reuse: u64,
}

fn counters(metrics: &CacheMetrics) -> Counters {
    Counters {
        size: metrics.size,
        bytes: metrics.bytes,
        hits: metrics.hits,
        misses: metrics.misses,
        evictions: metrics.evictions,
        refaults: metrics.refaults,
        reuse: metrics.max_entry_reuse_count,
    }
}

/// Returns the ages of the oldest and newest entry, and the longest and shortest idle time, in milliseconds.
fn ages_ms(metrics: &CacheMetrics) -> [Option<u128>; 4] {
    let ages =
        [metrics.oldest_entry_age, metrics.newest_entry_age, metrics.longest_idle_age, metrics.shortest_idle_age];
    ages.map(|age| age.map(|age| age.as_millis()))
}

fn pass_ms(clock: &MockClock, millis: u64) {
    clock.advance(Duration::from_millis(millis));
}
