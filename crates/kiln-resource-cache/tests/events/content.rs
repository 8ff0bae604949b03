//! The content of events: accesses and summaries.

use crate::record::{Fault, Plans, Recorder, Tables, ask, quiet_cache};
use kiln_resource_cache::events::{CacheEvent, EventSink};
use kiln_resource_cache::{Cache, CacheRegistry, EvictionPolicy};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn each_type_of_event_is_one_line_of_json() {
    let recorder = Recorder::default();
    let cache: Cache<u64, u64> = Cache::builder("plans")
        .weigher(|_, bytes| *bytes)
        .policy(EvictionPolicy::size_limited_lru(1))
        .sink(recorder.clone())
        .summary_interval(4)
        .build()
        .unwrap();
    ask(&cache, [64, 64, 8]);
    assert_eq!(cache.get(&9), None);
    insta::assert_snapshot!(recorder.take_lines().join("\n"), @r#"
    {"type":"ResourceCacheAccess","data":{"cache_key":"plans:64","hit":false,"bytes":64}}
    {"type":"ResourceCacheAccess","data":{"cache_key":"plans:64","hit":true,"bytes":64}}
    {"type":"CacheEviction","data":{"cache":"plans","strategy":"lru","count":1,"reason":"max_entries","size_after":0}}
    {"type":"ResourceCacheAccess","data":{"cache_key":"plans:8","hit":false,"bytes":8}}
    {"type":"ResourceCacheAccess","data":{"cache_key":"plans:9","hit":false,"bytes":0}}
    {"type":"ResourceCacheSummary","data":{"cache":"plans","hits":1,"misses":3,"hit_rate":0.25,"size":1}}
    "#);
}

#[test]
fn a_line_has_exactly_the_fields_of_the_requirement_and_reads_back() {
    let recorder = Recorder::default();
    let cache = Cache::builder("plans").sink(recorder.clone()).summary_interval(1).build().unwrap();
    ask(&cache, [1]);
    cache.trim(0);
    let events = recorder.take();
    let expected = [
        ("ResourceCacheAccess", ["cache_key", "hit", "bytes"].as_slice()),
        ("ResourceCacheSummary", &["cache", "hits", "misses", "hit_rate", "size"]),
        ("CacheEviction", &["cache", "strategy", "count", "reason", "size_after"]),
    ];
    assert_eq!(events.len(), expected.len());
    for (event, (kind, fields)) in events.iter().zip(expected) {
        let line = event.to_json_line().unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(names(&json), ["data", "type"], "{line}");
        assert_eq!(json["type"], kind);
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        assert_eq!(names(&json["data"]), fields, "{line}");
        assert_eq!(serde_json::from_str::<CacheEvent>(&line).unwrap(), *event);
    }
}

#[test]
fn a_registry_reports_bytes_of_hits_misses_and_failures() {
    let recorder = Recorder::default();
    let registry = CacheRegistry::builder().sink(recorder.clone()).build().unwrap();
    registry.get_or_create::<Plans>(&500, None).unwrap();
    registry.get_or_create::<Tables>(&700, None).unwrap();
    registry.get_or_create::<Plans>(&500, None).unwrap();
    registry.get::<Tables>(&700).unwrap();
    assert_eq!(registry.get_or_create::<Plans>(&13, None), Err(Fault::Unlucky));
    let access =
        |cache_key: &str, hit, bytes| CacheEvent::ResourceCacheAccess { cache_key: cache_key.into(), hit, bytes };
    assert_eq!(
        recorder.take(),
        [
            access("plans:500", false, 500),
            access("tables:700", false, 700),
            access("plans:500", true, 500),
            access("tables:700", true, 700),
            access("plans:13", false, 0),
        ]
    );
}

#[test]
fn a_warm_up_is_not_an_access() {
    let recorder = Recorder::default();
    let registry = CacheRegistry::builder().sink(recorder.clone()).summary_interval(1).build().unwrap();
    assert_eq!(registry.warm::<Plans>([1, 2, 13]).created, 2);
    assert_eq!(recorder.take(), []);
}

#[test]
fn a_key_with_line_breaks_and_quotes_stays_on_one_line() {
    let recorder = Recorder::default();
    let cache: Cache<String, u8> = Cache::builder("odd \"names\"\n").sink(recorder.clone()).build().unwrap();
    cache.get_or_insert_with(&"a\n\"b\"\u{1}".to_owned(), || 0).unwrap();
    let lines = recorder.take_lines();
    assert_eq!(lines.len(), 1);
    assert!(!lines[0].contains('\n'), "{}", lines[0]);
    let CacheEvent::ResourceCacheAccess { cache_key, .. } = serde_json::from_str(&lines[0]).unwrap() else {
        panic!("expected an access: {}", lines[0]);
    };
    assert_eq!(cache_key, "odd \"names\"\n:\"a\\n\\\"b\\\"\\u{1}\"");
}

#[test]
fn a_summary_comes_every_100_operations_unless_set_otherwise() {
    for (interval, operations, expected_after) in [
        (None, 99, vec![]),
        (None, 100, vec![100]),
        (None, 250, vec![100, 200]),
        (Some(7), 20, vec![7, 14]),
        (Some(1), 3, vec![1, 2, 3]),
    ] {
        let recorder = Recorder::default();
        let mut builder = Cache::builder("plans").sink(recorder.clone());
        if let Some(interval) = interval {
            builder = builder.summary_interval(interval);
        }
        ask(&builder.build().unwrap(), (0..operations).map(|at| at % 10));
        assert_eq!(accesses_before_summaries(&recorder.take()), expected_after, "{operations} by {interval:?}");
    }
}

#[test]
fn a_summary_contains_the_counters_of_its_cache() {
    let recorder = Recorder::default();
    let registry = CacheRegistry::builder().sink(recorder.clone()).summary_interval(10).build().unwrap();
    for at in 0..10_u64 {
        registry.get_or_create::<Plans>(&(at % 2), None).unwrap();
        registry.get_or_create::<Tables>(&(at % 5), None).unwrap();
    }
    let summaries: Vec<_> =
        recorder.take().into_iter().filter(|event| matches!(event, CacheEvent::ResourceCacheSummary { .. })).collect();
    let summary = |cache: &'static str, hits, misses, hit_rate, size| CacheEvent::ResourceCacheSummary {
        cache: cache.into(),
        hits,
        misses,
        hit_rate,
        size,
    };
    assert_eq!(summaries, [summary("plans", 8, 2, 0.8, 2), summary("tables", 5, 5, 0.5, 5)]);
}

#[test]
fn with_a_sink_a_key_is_formatted_once_per_access() {
    let cache: Cache<CountedKey, u8> = Cache::builder("keys").sink(Recorder::default()).build().unwrap();
    for (access, expected) in [("miss", 1), ("hit", 2), ("hit", 3)] {
        cache.get_or_insert_with(&CountedKey, || 0).unwrap();
        assert_eq!(FORMATTED.get(), expected, "after a {access}");
    }
}

#[test]
fn without_a_sink_nothing_is_formatted() {
    let cache: Cache<UnformattableKey, u8> =
        Cache::builder("keys").policy(EvictionPolicy::size_limited_lru(2)).build().unwrap();
    for round in 0..2 {
        for key in 0..5 {
            assert!(cache.get(&UnformattableKey(key)).is_none(), "round {round}");
            cache.get_or_insert_with(&UnformattableKey(key), || key).unwrap();
            assert_eq!(cache.get(&UnformattableKey(key)).as_deref(), Some(&key));
            cache.get_or_insert_with(&UnformattableKey(key), || key).unwrap();
        }
    }
    let metrics = cache.metrics();
    assert_eq!((metrics.hits, metrics.misses, metrics.evictions), (20, 20, 8));
    assert_eq!(cache.trim(0), 2);
    assert_eq!(cache.sink_failures(), 0);
}

/// A sink that can be turned on and off.
#[derive(Clone, Default)]
struct Switched(Recorder, Arc<AtomicBool>);

impl EventSink for Switched {
    fn record(&self, event: &CacheEvent) -> std::io::Result<()> {
        assert!(self.is_on(), "recorded while off");
        self.0.record(event)
    }

    fn is_on(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }
}

#[test]
fn a_sink_that_is_off_costs_no_formatting_and_hears_again_when_it_is_on() {
    let sink = Switched::default();
    let policy = EvictionPolicy::size_limited_lru(2);
    let quiet: Cache<UnformattableKey, u8> = Cache::builder("keys").policy(policy).sink(sink.clone()).build().unwrap();
    for key in 0..5 {
        quiet.get_or_insert_with(&UnformattableKey(key), || key).unwrap();
        assert!(quiet.get(&UnformattableKey(key)).is_some());
    }
    let cache = Cache::builder("plans").policy(policy).sink(sink.clone()).build().unwrap();
    for (is_on, recorded) in [(false, 0), (true, 2), (false, 0), (true, 2)] {
        sink.1.store(is_on, Ordering::Relaxed);
        cache.get_or_insert_with(&1u8, || 1u8).unwrap();
        cache.get(&1);
        assert_eq!(sink.0.take().len(), recorded);
    }
}

#[test]
fn inserts_removals_and_clears_are_no_accesses() {
    let recorder = Recorder::default();
    let cache = quiet_cache(recorder.clone());
    cache.insert(1, 10);
    cache.insert(1, 20);
    cache.remove(&1);
    cache.insert(2, 10);
    cache.clear();
    assert_eq!(recorder.take(), []);
}

thread_local! {
    static FORMATTED: Cell<u32> = const { Cell::new(0) };
}

/// Counts how often it is formatted, per thread.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CountedKey;

impl fmt::Debug for CountedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMATTED.set(FORMATTED.get() + 1);
        f.write_str("key")
    }
}

/// Panics when it is formatted.
#[derive(Clone, PartialEq, Eq, Hash)]
struct UnformattableKey(u8);

impl fmt::Debug for UnformattableKey {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no sink is on, so no key may be formatted")
    }
}

/// Returns the names in an object, sorted.
fn names(json: &serde_json::Value) -> Vec<&str> {
    let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Returns the number of accesses before each summary.
fn accesses_before_summaries(events: &[CacheEvent]) -> Vec<usize> {
    let is_access = |event: &&CacheEvent| matches!(event, CacheEvent::ResourceCacheAccess { .. });
    let is_summary = |at: &usize| matches!(events[*at], CacheEvent::ResourceCacheSummary { .. });
    (0..events.len()).filter(is_summary).map(|at| events[..at].iter().filter(is_access).count()).collect()
}
