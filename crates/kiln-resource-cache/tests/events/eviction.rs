//! Eviction events: count, reason and remaining size.

use crate::record::{Plans, Recorder, Tables, ask};
use kiln_resource_cache::events::CacheEvent;
use kiln_resource_cache::{Cache, CacheRegistry, EvictionPolicy, EvictionReason, MockClock};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// An operation on a cache with the entries 10, 20 and 30, used in this order a minute ago.
type Change = fn(&Cache<u64, u64>);

#[test]
fn each_reason_is_reported_with_strategy_count_and_size() {
    let shrink: Change = |cache| cache.set_policy(EvictionPolicy::size_limited_lru(1)).unwrap();
    let table: [(EvictionPolicy, Change, Eviction); 14] = [
        (
            EvictionPolicy::size_limited_lru(3),
            |cache| ask(cache, [40]),
            eviction_of("lru", 1, EvictionReason::MaxEntries, 2),
        ),
        (
            EvictionPolicy::fifo().with_max_entries(3),
            |cache| ask(cache, [40]),
            eviction_of("fifo", 1, EvictionReason::MaxEntries, 2),
        ),
        (EvictionPolicy::none(), shrink, eviction_of("lru", 2, EvictionReason::MaxEntries, 1)),
        (
            EvictionPolicy::lru().with_max_bytes(60),
            |cache| ask(cache, [25]),
            eviction_of("lru", 2, EvictionReason::MaxBytes, 1),
        ),
        (
            EvictionPolicy::hybrid(9, 9 * MINUTE).with_max_bytes(60),
            |cache| ask(cache, [1]),
            eviction_of("hybrid", 1, EvictionReason::MaxBytes, 2),
        ),
        (
            EvictionPolicy::idle_timeout(MINUTE / 2),
            |cache| ask(cache, [40]),
            eviction_of("idle_timeout", 3, EvictionReason::Idle, 0),
        ),
        (
            EvictionPolicy::hybrid(9, MINUTE / 2),
            |cache| assert!(cache.get(&10).is_none()),
            eviction_of("hybrid", 3, EvictionReason::Idle, 0),
        ),
        (
            EvictionPolicy::idle_timeout(MINUTE / 2).with_min_entries(2),
            |cache| assert_eq!(cache.len(), 2),
            eviction_of("idle_timeout", 1, EvictionReason::Idle, 2),
        ),
        (
            EvictionPolicy::lru().with_max_bytes(60),
            |cache| ask(cache, [61]),
            eviction_of("lru", 1, EvictionReason::Oversize, 3),
        ),
        (
            EvictionPolicy::none(),
            |cache| assert_eq!(cache.trim(50), 1),
            eviction_of("none", 1, EvictionReason::Trim, 2),
        ),
        (EvictionPolicy::fifo(), |cache| assert_eq!(cache.trim(0), 3), eviction_of("fifo", 3, EvictionReason::Trim, 0)),
        (
            EvictionPolicy::none().with_min_entries(2),
            |cache| assert_eq!(cache.trim(0), 1),
            eviction_of("none", 1, EvictionReason::Trim, 2),
        ),
        (
            EvictionPolicy::ranked("largest_first", &|entry| -(entry.bytes as f64)).with_max_entries(3),
            |cache| {
                ask(cache, [40]);
                assert!(!cache.contains(&30) && cache.contains(&10));
            },
            eviction_of("largest_first", 1, EvictionReason::MaxEntries, 2),
        ),
        (
            EvictionPolicy::ranked("largest_first", &|entry| -(entry.bytes as f64)),
            |cache| assert_eq!(cache.trim(10), 2),
            eviction_of("largest_first", 2, EvictionReason::Trim, 1),
        ),
    ];
    for (policy, change, expected) in table {
        let (recorder, clock) = (Recorder::default(), MockClock::new());
        let cache = Cache::builder("plans")
            .weigher(|_, bytes| *bytes)
            .policy(policy)
            .clock(clock.clone())
            .sink(recorder.clone())
            .build()
            .unwrap();
        ask(&cache, [10, 20, 30]);
        assert_eq!(evictions(&recorder.take()), []);
        clock.advance(MINUTE);
        change(&cache);
        assert_eq!(evictions(&recorder.take()), [("plans".to_owned(), expected)], "{policy:?}");
    }
}

#[test]
fn budget_and_trim_evictions_are_reported_for_each_cache() {
    let recorder = Recorder::default();
    let registry = CacheRegistry::builder().byte_budget(100).sink(recorder.clone()).build().unwrap();
    registry.set_eviction_policy::<Tables>(EvictionPolicy::size_limited_lru(9)).unwrap();
    let plan = |bytes: u64| drop(registry.get_or_create::<Plans>(&bytes, None).unwrap());
    let table = |bytes: u64| drop(registry.get_or_create::<Tables>(&bytes, None).unwrap());
    plan(10);
    plan(11);
    table(12);
    plan(14);
    assert_eq!(evictions(&recorder.take()), []);
    table(86); // 133 bytes: the plans 10 and 11 and the table 12 go
    assert_eq!(
        evictions(&recorder.take()),
        [
            ("plans".to_owned(), eviction_of("none", 2, EvictionReason::Budget, 1)),
            ("tables".to_owned(), eviction_of("lru", 1, EvictionReason::Budget, 1)),
        ]
    );
    plan(101);
    assert_eq!(
        evictions(&recorder.take()),
        [("plans".to_owned(), eviction_of("none", 1, EvictionReason::Oversize, 1))],
        "a single entry larger than the budget"
    );
    registry.trim(0);
    assert_eq!(
        evictions(&recorder.take()),
        [
            ("plans".to_owned(), eviction_of("none", 1, EvictionReason::Trim, 0)),
            ("tables".to_owned(), eviction_of("lru", 1, EvictionReason::Trim, 0)),
        ]
    );
}

#[test]
fn reasons_are_written_in_snake_case() {
    for (reason, expected) in [
        (EvictionReason::MaxEntries, "max_entries"),
        (EvictionReason::MaxBytes, "max_bytes"),
        (EvictionReason::Idle, "idle"),
        (EvictionReason::Oversize, "oversize"),
        (EvictionReason::Budget, "budget"),
        (EvictionReason::Trim, "trim"),
    ] {
        assert_eq!(serde_json::to_value(reason).unwrap(), expected);
    }
}

/// The content of an eviction event, without the cache's name.
#[derive(Clone, Debug, PartialEq)]
struct Eviction {
    strategy: String,
    count: usize,
    reason: EvictionReason,
    size_after: usize,
}

fn eviction_of(strategy: &str, count: usize, reason: EvictionReason, size_after: usize) -> Eviction {
    Eviction { strategy: strategy.to_owned(), count, reason, size_after }
}

/// Returns the eviction events, by cache.
fn evictions(events: &[CacheEvent]) -> Vec<(String, Eviction)> {
    let eviction = |event: &CacheEvent| match event {
        CacheEvent::CacheEviction { cache, strategy, count, reason, size_after } => {
            Some((cache.to_string(), eviction_of(strategy, *count, *reason, *size_after)))
        }
        _ => None,
    };
    events.iter().filter_map(eviction).collect()
}
