//! The channel and `tracing` sinks, sinks that use caches, and events of several threads.

use crate::record::{Plans, Recorder, Tables, ask, key_of, must_end, quiet_cache};
use kiln_resource_cache::events::{CacheEvent, ChannelSink, EventSink, TracingSink};
use kiln_resource_cache::{Cache, CacheRegistry, EvictionPolicy};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

#[test]
fn a_channel_delivers_events_in_order() {
    let (sink, events) = ChannelSink::new(100);
    let cache = quiet_cache(sink);
    ask(&cache, [3, 1, 3, 2]);
    assert_eq!(events.try_iter().filter_map(|event| key_of(&event)).collect::<Vec<_>>(), [3, 1, 3, 2]);
    assert_eq!(cache.sink_failures(), 0);
}

#[test]
fn a_full_channel_drops_and_counts_but_never_blocks() {
    must_end(|| {
        let (sink, events) = ChannelSink::new(2);
        let cache = quiet_cache(sink);
        ask(&cache, 0..5);
        assert_eq!(cache.sink_failures(), 3);
        assert_eq!(events.try_iter().filter_map(|event| key_of(&event)).collect::<Vec<_>>(), [0, 1]);
        ask(&cache, [9]);
        assert_eq!(events.try_iter().count(), 1, "there is room again");
        assert_eq!(cache.sink_failures(), 3);
    });
}

#[test]
fn a_channel_without_a_receiver_counts_every_event() {
    let (sink, events) = ChannelSink::new(100);
    let cache = quiet_cache(sink);
    ask(&cache, [1]);
    drop(events);
    ask(&cache, [1, 2, 3]);
    assert_eq!(cache.sink_failures(), 3);
    assert_eq!(cache.metrics().size, 3);
}

#[test]
fn tracing_gets_every_event_with_its_fields() {
    let cache = Cache::builder("plans")
        .weigher(|_, bytes| *bytes)
        .policy(EvictionPolicy::size_limited_lru(1))
        .sink(TracingSink)
        .summary_interval(2)
        .build()
        .unwrap();
    let log = crate::failure::log_of(|| ask(&cache, [64, 8]));
    let expected = [
        ("TRACE", json!({"message": "ResourceCacheAccess", "cache_key": "plans:64", "hit": false, "bytes": 64})),
        (
            "DEBUG",
            json!({
                "message": "CacheEviction", "cache": "plans", "strategy": "lru", "count": 1, "reason": "MaxEntries",
                "size_after": 0
            }),
        ),
        ("TRACE", json!({"message": "ResourceCacheAccess", "cache_key": "plans:8", "hit": false, "bytes": 8})),
        (
            "DEBUG",
            json!({"message": "ResourceCacheSummary", "cache": "plans", "hits": 0, "misses": 2, "hit_rate": 0.0, "size": 1}),
        ),
    ];
    assert_eq!(log.len(), expected.len());
    for (entry, (level, fields)) in log.iter().zip(expected) {
        assert_eq!((entry.target.as_str(), entry.level.as_str()), ("kiln_resource_cache", level));
        assert_eq!(serde_json::Value::Object(entry.fields.clone()), fields);
    }
}

#[test]
fn every_sink_gets_every_event() {
    let (first, second) = (Recorder::default(), Recorder::default());
    let cache: Cache<u64, u64> = Cache::builder("plans").sink(first.clone()).sink(second.clone()).build().unwrap();
    ask(&cache, [1, 1, 2]);
    let events = first.take();
    assert_eq!(events.len(), 3);
    assert_eq!(second.take(), events);
}

#[test]
fn a_sink_may_use_another_cache() {
    must_end(|| {
        struct Interning(Cache<String, u64>);

        impl EventSink for Interning {
            fn record(&self, event: &CacheEvent) -> io::Result<()> {
                let line = event.to_json_line()?;
                self.0.get_or_insert_with(&line, || line.len() as u64).map_err(io::Error::other)?;
                Ok(())
            }
        }

        let inner_events = Recorder::default();
        let inner = Cache::builder("lines").sink(inner_events.clone()).build().unwrap();
        let cache = quiet_cache(Interning(inner));
        ask(&cache, [1, 1, 1, 2]);
        assert_eq!(cache.sink_failures(), 0);
        let hits: Vec<bool> = inner_events
            .take()
            .iter()
            .map(|event| matches!(event, CacheEvent::ResourceCacheAccess { hit: true, .. }))
            .collect();
        assert_eq!(
            hits,
            [false, false, true, false],
            "the miss and the hit of 1 are two lines; its second hit repeats one"
        );
    });
}

#[test]
fn a_sink_may_inspect_its_own_registry() {
    must_end(|| {
        /// Calls every method that takes a lock and emits no event.
        struct InspectingSink(Weak<CacheRegistry>, Recorder);

        impl EventSink for InspectingSink {
            fn record(&self, event: &CacheEvent) -> io::Result<()> {
                let registry = self.0.upgrade().ok_or(io::ErrorKind::NotFound)?;
                registry.metrics_by_name();
                registry.report();
                registry.advice();
                self.1.record(event)
            }
        }

        let recorder = Recorder::default();
        let registry = Arc::new_cyclic(|registry| {
            let sink = InspectingSink(Weak::clone(registry), recorder.clone());
            CacheRegistry::builder().sink(sink).summary_interval(2).build().unwrap()
        });
        registry.set_eviction_policy::<Plans>(EvictionPolicy::size_limited_lru(2)).unwrap();
        for key in [1, 2, 3, 3] {
            registry.get_or_create::<Plans>(&key, None).unwrap();
            registry.get_or_create::<Tables>(&key, None).unwrap();
        }
        registry.trim(0);
        registry.set_eviction_policy::<Plans>(EvictionPolicy::none()).unwrap();
        assert_eq!(registry.report().sink_failures, 0);
        let mut counts = BTreeMap::new();
        for event in recorder.take() {
            let json = serde_json::to_value(&event).unwrap();
            *counts.entry(json["type"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
        // Evictions: plan 1 by its limit, then table 1, plan 2, table 2, plan 3, table 3 in turn by the trim.
        let expected = [("CacheEviction", 6), ("ResourceCacheAccess", 8), ("ResourceCacheSummary", 4)];
        assert_eq!(counts, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    });
}

#[test]
fn events_of_four_threads_are_all_emitted() {
    let recorder = Recorder::default();
    let cache: Cache<u64, u64> = Cache::builder("plans").sink(recorder.clone()).build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || ask(cache, (0..500).map(|at| at % 50 + thread)));
        }
    });
    let events = recorder.take();
    let mut per_key = BTreeMap::new();
    for key in events.iter().filter_map(key_of) {
        *per_key.entry(key).or_insert(0) += 1;
    }
    let expected: BTreeMap<u64, u64> = (0..53)
        .map(|key| (key, 10 * (0..4).filter(|thread| (*thread..thread + 50).contains(&key)).count() as u64))
        .collect();
    assert_eq!(per_key, expected);
    let hits = events.iter().filter(|event| matches!(event, CacheEvent::ResourceCacheAccess { hit: true, .. })).count();
    assert_eq!(hits as u64, cache.metrics().hits);
    let summaries = events.iter().filter(|event| matches!(event, CacheEvent::ResourceCacheSummary { .. })).count();
    assert_eq!(summaries, 2000 / 100);
}
