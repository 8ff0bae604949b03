//! Every eviction policy against a naive reference: what is evicted, when, and what is left.
//!
//! The reference is a plain list that is searched linearly. It has no shards, stamps or queues.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_resource_cache::{Cache, EvictionOrder, EvictionPolicy, MockClock};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Few, so that operations hit the same keys.
const KEYS: u32 = 12;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_agrees_with_the_naive_reference(
        first in policy(),
        operations in vec(operation(), 1..120),
        shards in prop_oneof![Just(1_usize), Just(4), Just(32)],
    ) {
        let clock = MockClock::new();
        let cache = Cache::builder("plans")
            .policy(first)
            .weigher(|_, value: &Value| value.bytes)
            .clock(clock.clone())
            .shards(shards)
            .build()
            .unwrap();
        let mut reference = Reference::new(first);
        for (step, operation) in operations.iter().enumerate() {
            let serial = step as u64;
            let (got, expected) = apply(operation, serial, &cache, &clock, &mut reference);
            prop_assert_eq!(got, expected, "step {} {:?}", step, operation);
            // Reading metrics evicts stale entries. Not after every step, so that other operations must do it too.
            if step % 4 != 3 {
                continue;
            }
            let metrics = cache.metrics();
            reference.expire();
            prop_assert_eq!(metrics.size, reference.entries.len(), "size after step {} {:?}", step, operation);
            prop_assert_eq!(metrics.bytes, reference.bytes(), "bytes after step {} {:?}", step, operation);
            prop_assert_eq!(metrics.evictions, reference.evictions, "evictions after step {} {:?}", step, operation);
            reference.check_limits();
        }
        for key in 0..KEYS {
            let left = reference.get(key);
            prop_assert_eq!(cache.get(&key).map(|value| value.serial), left, "key {} at the end", key);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// The same order with the system's clock and dense runs of hits, where larger caches sample.
    #[test]
    fn lru_order_is_exact_up_to_256_entries(
        capacity in 1_usize..=256,
        operations in vec((0_u32..400, any::<bool>()), 2_000..6_000),
    ) {
        let policy = EvictionPolicy::size_limited_lru(capacity);
        let cache: Cache<u32, Value> = Cache::builder("plans").policy(policy).build().unwrap();
        let mut reference = Reference::new(policy);
        for (serial, (key, repeat)) in operations.iter().enumerate() {
            for _ in 0..if *repeat { 20 } else { 1 } {
                let value = cache.get_or_insert_with(key, || Value { serial: serial as u64, bytes: 1 }).unwrap();
                prop_assert_eq!(value.serial, reference.get_or_create(*key, serial as u64, 1));
            }
        }
    }
}

#[test]
fn the_order_of_a_large_cache_respects_uses_since_the_last_insertion() {
    let entries = 4_000_u32;
    let policy = EvictionPolicy::size_limited_lru(entries as usize);
    let cache: Cache<u32, u32> = Cache::builder("plans").policy(policy).build().unwrap();
    for key in 0..entries {
        cache.insert(key, key);
    }
    // A dense run over the newer half, in which hits are sampled; then an insertion, and one use of each older entry.
    // Those uses are later, so the newer half is evicted.
    for _ in 0..50 {
        for key in entries / 2..entries {
            assert_eq!(cache.get(&key).as_deref(), Some(&key));
        }
    }
    cache.insert(entries, entries);
    for key in 1..entries / 2 {
        assert_eq!(cache.get(&key).as_deref(), Some(&key));
    }
    for key in entries + 1..=entries + entries / 2 {
        cache.insert(key, key);
    }
    let kept = (1..entries / 2).filter(|key| cache.get(key).is_some()).count();
    let lost = (entries / 2..entries).filter(|key| cache.get(key).is_none()).count();
    assert_eq!((kept, lost), (entries as usize / 2 - 1, entries as usize / 2));
}

#[test]
fn min_entries_protects_from_idle_eviction_and_its_entries_stay_valid() {
    let clock = MockClock::new();
    let policy = EvictionPolicy::idle_timeout(Duration::from_secs(10)).with_min_entries(2);
    let cache: Cache<u32, u32> = Cache::builder("plans").policy(policy).clock(clock.clone()).build().unwrap();
    for key in 0..5 {
        cache.insert(key, key);
    }
    clock.advance(Duration::from_secs(11));
    assert_eq!(cache.len(), 2);
    assert_eq!(cache.metrics().evictions, 3);
    assert!(cache.get(&2).is_none(), "the least recently used went");
    assert_eq!(cache.get(&3).as_deref(), Some(&3), "the floor keeps it, so it is a hit");
    assert_eq!(cache.get(&4).as_deref(), Some(&4));
}

/// Evictions happen in batches, never below `min_entries`, and are reported as one event with their number.
#[test]
fn entry_limit_evicts_in_batches() {
    for (batch, floor, left) in [(1, 0, 10), (4, 0, 7), (10, 0, 1), (100, 0, 1), (4, 8, 9), (4, 10, 10)] {
        let policy = EvictionPolicy::size_limited_lru(10).with_min_entries(floor).with_eviction_batch(batch);
        let (sink, events) = kiln_resource_cache::events::ChannelSink::new(100);
        let cache = Cache::builder("plans").policy(policy).sink(sink).build().unwrap();
        (0..10).for_each(|key| drop(cache.insert(key, key)));
        cache.get(&0);
        cache.get_or_insert_with(&10, || 10).unwrap();
        let metrics = cache.metrics();
        assert_eq!((metrics.size, metrics.evictions), (left, 11 - left as u64), "{batch} {floor}");
        assert!(cache.get(&10).is_some() && (left == 1 || cache.get(&0).is_some()), "the most recently used stay");
        let counts: Vec<usize> = events
            .try_iter()
            .filter_map(|event| match event {
                kiln_resource_cache::events::CacheEvent::CacheEviction { count, .. } => Some(count),
                _ => None,
            })
            .collect();
        assert_eq!(counts, [11 - left], "{batch} {floor}");
    }
}

#[test]
fn min_entries_wins_over_max_bytes() {
    let policy = EvictionPolicy::lru().with_max_bytes(10).with_min_entries(3);
    let cache: Cache<u32, u64> =
        Cache::builder("plans").policy(policy).weigher(|_, bytes: &u64| *bytes).build().unwrap();
    for key in 0..6 {
        cache.insert(key, 8);
    }
    assert_eq!((cache.len(), cache.bytes()), (3, 24));
}

#[test]
fn an_entry_larger_than_max_bytes_is_not_kept_and_evicts_nothing() {
    let policy = EvictionPolicy::lru().with_max_bytes(10);
    let cache: Cache<u32, u64> =
        Cache::builder("plans").policy(policy).weigher(|_, bytes: &u64| *bytes).build().unwrap();
    cache.insert(1, 4);
    cache.insert(2, 4);
    assert_eq!(*cache.get_or_insert_with(&3, || 11).unwrap(), 11);
    assert_eq!(*cache.insert(4, 12), 12);
    assert_eq!((cache.len(), cache.bytes()), (2, 8));
    assert_eq!(cache.metrics().evictions, 2, "both count as evictions");
}

#[test]
fn handles_outlive_eviction_and_evicted_values_are_dropped() {
    let cache: Cache<u32, u32> = Cache::builder("plans").policy(EvictionPolicy::size_limited_lru(1)).build().unwrap();
    let held = cache.insert(1, 10);
    cache.insert(2, 20);
    assert!(cache.get(&1).is_none());
    assert_eq!((*held, Arc::strong_count(&held)), (10, 1));
}

/// A ranking receives the duration of each creation.
#[test]
fn a_ranking_keeps_expensive_entries() {
    let clock = MockClock::new();
    let policy = EvictionPolicy::ranked("cheapest_first", &|entry| entry.create_time.as_secs_f64()).with_max_entries(3);
    let cache: Cache<u64, u64> = Cache::builder("plans").policy(policy).clock(clock.clone()).build().unwrap();
    let create = |seconds: u64| {
        let work = || {
            clock.advance(Duration::from_secs(seconds));
            seconds
        };
        drop(cache.get_or_insert_with(&seconds, work).unwrap());
    };
    [5, 2, 9, 4, 1].into_iter().for_each(create);
    let kept: Vec<u64> = (0..10).filter(|key| cache.contains(key)).collect();
    assert_eq!(kept, [1, 5, 9], "2 made way for 4, and 4 for 1, which nothing made way for yet");
    cache.insert(7, 7);
    assert!(!cache.contains(&1) && cache.contains(&7), "the newest is not among those that are ranked for it");
    cache.insert(8, 8);
    assert!(!cache.contains(&7), "one that was inserted ready-made cost nothing");
}

#[test]
fn min_entries_wins_over_a_ranking() {
    let policy = EvictionPolicy::ranked("worthless", &|_| f64::NAN).with_max_bytes(10).with_min_entries(3);
    let cache: Cache<u32, u64> =
        Cache::builder("plans").policy(policy).weigher(|_, bytes: &u64| *bytes).build().unwrap();
    for key in 0..6 {
        cache.insert(key, 8);
    }
    assert_eq!((cache.len(), cache.bytes()), (3, 24));
    assert_eq!(cache.trim(0), 0);
    assert!((3..6).all(|key| cache.contains(&key)), "of equal score the first inserted go first");
}

/// A ranking with state is leaked once.
#[test]
fn a_ranking_may_be_changed_at_run_time() {
    let cache: Cache<u32, u64> = Cache::builder("plans").weigher(|_, bytes: &u64| *bytes).build().unwrap();
    for (key, bytes) in [(0, 10), (1, 30), (2, 20)] {
        cache.insert(key, bytes);
    }
    let ideal = std::hint::black_box(20.0);
    let nearest =
        Box::leak(Box::new(move |entry: &kiln_resource_cache::EntryMetrics| -(entry.bytes as f64 - ideal).abs()));
    cache.set_policy(EvictionPolicy::ranked("nearest", nearest).with_max_entries(1)).unwrap();
    assert!(cache.contains(&2));
    assert_eq!(cache.policy().name(), "nearest");
    cache.set_policy(EvictionPolicy::size_limited_lru(2)).unwrap();
    (3..6).for_each(|key| drop(cache.insert(key, 1)));
    assert!(cache.contains(&4) && cache.contains(&5) && cache.len() == 2);
}

/// Concurrent requests for one key run one creation, while a ranking evicts other entries.
#[test]
fn single_flight_is_the_same_under_a_ranking() {
    let policy = EvictionPolicy::ranked("least_used", &|entry| entry.hits as f64).with_max_entries(2);
    let cache: Cache<u32, u32> = Cache::builder("plans").policy(policy).build().unwrap();
    let (created, barrier) = (std::sync::atomic::AtomicU32::new(0), std::sync::Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for key in 0..50 {
                    barrier.wait();
                    let create = || {
                        created.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(50));
                        key
                    };
                    assert_eq!(*cache.get_or_insert_with(&key, create).unwrap(), key);
                }
            });
        }
    });
    let metrics = cache.metrics();
    assert!(metrics.size <= 2, "{metrics}");
    assert_eq!(u64::from(created.into_inner()), metrics.misses);
    assert!(metrics.misses >= 50 && metrics.hits + metrics.misses == 400, "{metrics}");
}

#[test]
fn a_ranking_that_panics_leaves_the_cache_usable() {
    let policy = EvictionPolicy::ranked("broken", &|entry| if entry.bytes == 7 { panic!("seven") } else { 0.0 });
    let cache: Cache<u32, u64> =
        Cache::builder("plans").policy(policy.with_max_entries(2)).weigher(|_, bytes: &u64| *bytes).build().unwrap();
    cache.insert(1, 7);
    cache.insert(2, 1);
    let insert = || cache.get_or_insert_with(&3, || 1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert)).is_err());
    cache.set_policy(EvictionPolicy::size_limited_lru(2)).unwrap();
    assert_eq!(insert().as_deref(), Ok(&1));
    assert_eq!(cache.len(), 2);
}

// The operations.

#[derive(Clone, Debug)]
enum Operation {
    Get(u32),
    GetOrCreate(u32, u64),
    Insert(u32, u64),
    Remove(u32),
    Advance(u64),
    SetPolicy(EvictionPolicy),
    Trim(u64),
    Clear,
}

#[derive(Debug)]
struct Value {
    serial: u64,
    bytes: u64,
}

fn operation() -> impl Strategy<Value = Operation> {
    let bytes = prop_oneof![1_u64..10, Just(0), Just(60)];
    prop_oneof![
        8 => (0..KEYS).prop_map(Operation::Get),
        8 => (0..KEYS, bytes.clone()).prop_map(|(key, bytes)| Operation::GetOrCreate(key, bytes)),
        2 => (0..KEYS, bytes).prop_map(|(key, bytes)| Operation::Insert(key, bytes)),
        1 => (0..KEYS).prop_map(Operation::Remove),
        4 => (0_u64..40).prop_map(Operation::Advance),
        1 => policy().prop_map(Operation::SetPolicy),
        1 => (0_u64..40).prop_map(Operation::Trim),
        1 => Just(Operation::Clear),
    ]
}

fn policy() -> impl Strategy<Value = EvictionPolicy> {
    let order = prop_oneof![
        2 => Just(EvictionPolicy::lru()),
        2 => Just(EvictionPolicy::fifo()),
        1 => Just(EvictionPolicy::ranked("largest_first", &|entry| -(entry.bytes as f64))),
        1 => Just(EvictionPolicy::ranked("least_used", &|entry| entry.hits as f64)),
        1 => Just(EvictionPolicy::ranked("uses_per_age", &|entry| entry.hits as f64 / (1.0 + entry.age.as_secs_f64()))),
        1 => Just(EvictionPolicy::ranked("longest_idle", &|entry| -entry.idle.as_secs_f64())),
    ];
    let limits = (
        proptest::option::of(1_usize..8),
        proptest::option::of(5_u64..50),
        proptest::option::of(5_u64..60),
        0_usize..4,
        1_usize..6,
    );
    (order, limits).prop_map(|(mut policy, (entries, bytes, idle_ms, floor, batch))| {
        if let Some(entries) = entries {
            policy = policy.with_max_entries(entries);
        }
        if let Some(bytes) = bytes {
            policy = policy.with_max_bytes(bytes);
        }
        if let Some(idle_ms) = idle_ms {
            policy = policy.with_max_idle_duration(Duration::from_millis(idle_ms));
        }
        policy.with_min_entries(floor.min(entries.unwrap_or(usize::MAX))).with_eviction_batch(batch)
    })
}

/// Runs an operation on both, and returns both results.
fn apply(
    operation: &Operation,
    serial: u64,
    cache: &Cache<u32, Value>,
    clock: &MockClock,
    reference: &mut Reference,
) -> (Option<u64>, Option<u64>) {
    match *operation {
        Operation::Get(key) => (cache.get(&key).map(|value| value.serial), reference.get(key)),
        Operation::GetOrCreate(key, bytes) => {
            let value = cache.get_or_insert_with(&key, || Value { serial, bytes }).unwrap();
            (Some(value.serial), Some(reference.get_or_create(key, serial, bytes)))
        }
        Operation::Insert(key, bytes) => {
            cache.insert(key, Value { serial, bytes });
            reference.insert(key, serial, bytes);
            (None, None)
        }
        Operation::Remove(key) => (cache.remove(&key).map(|value| value.serial), reference.remove(key)),
        Operation::Advance(ms) => {
            clock.advance(Duration::from_millis(ms));
            reference.now += ms;
            (None, None)
        }
        Operation::SetPolicy(policy) => {
            cache.set_policy(policy).unwrap();
            reference.set_policy(policy);
            (None, None)
        }
        Operation::Trim(target) => (Some(cache.trim(target) as u64), Some(reference.trim(target))),
        Operation::Clear => {
            cache.clear();
            reference.expire();
            reference.entries.clear();
            (None, None)
        }
    }
}

/// The naive reference: entries in order of insertion, each with the time and turn of its last use.
struct Reference {
    policy: EvictionPolicy,
    entries: Vec<ReferenceEntry>,
    now: u64,
    turn: u64,
    evictions: u64,
}

struct ReferenceEntry {
    key: u32,
    serial: u64,
    bytes: u64,
    created_at: u64,
    used_at: u64,
    used_turn: u64,
    hits: u64,
}

impl ReferenceEntry {
    /// Returns the score of the entry under the rankings of [`policy`].
    fn score(&self, ranking: &str, now: u64) -> Option<f64> {
        let seconds = |at: u64| Duration::from_millis(now - at).as_secs_f64();
        match ranking {
            "largest_first" => Some(-(self.bytes as f64)),
            "least_used" => Some(self.hits as f64),
            "uses_per_age" => Some(self.hits as f64 / (1.0 + seconds(self.created_at))),
            "longest_idle" => Some(-seconds(self.used_at)),
            _ => None,
        }
    }
}

impl Reference {
    fn new(policy: EvictionPolicy) -> Self {
        Self { policy, entries: Vec::new(), now: 0, turn: 0, evictions: 0 }
    }

    fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    fn get(&mut self, key: u32) -> Option<u64> {
        self.expire();
        self.turn += 1;
        let entry = self.entries.iter_mut().find(|entry| entry.key == key)?;
        (entry.used_at, entry.used_turn) = (self.now, self.turn);
        entry.hits += 1;
        Some(entry.serial)
    }

    fn get_or_create(&mut self, key: u32, serial: u64, bytes: u64) -> u64 {
        if let Some(serial) = self.get(key) {
            return serial;
        }
        // Before the creation: room for one more, but not below `min_entries`.
        if self.is_at_max_entries() && self.entries.len() > self.policy.min_entries() {
            self.evict_batch();
        }
        self.shrink_to_max_bytes();
        self.admit(key, serial, bytes);
        serial
    }

    fn insert(&mut self, key: u32, serial: u64, bytes: u64) {
        self.expire();
        self.entries.retain(|entry| entry.key != key);
        self.admit(key, serial, bytes);
    }

    fn admit(&mut self, key: u32, serial: u64, bytes: u64) {
        self.turn += 1;
        let policy = self.policy;
        if bytes > policy.max_bytes().unwrap_or(u64::MAX) && self.entries.len() >= policy.min_entries() {
            self.evictions += 1;
            return;
        }
        if self.is_at_max_entries() {
            self.evict_batch();
        }
        while self.bytes() + bytes > policy.max_bytes().unwrap_or(u64::MAX)
            && !self.entries.is_empty()
            && self.entries.len() >= policy.min_entries()
        {
            self.evict(policy.order());
        }
        let (now, used_turn) = (self.now, self.turn);
        self.entries.push(ReferenceEntry { key, serial, bytes, created_at: now, used_at: now, used_turn, hits: 0 });
    }

    fn is_at_max_entries(&self) -> bool {
        self.policy.max_entries().is_some_and(|max| self.entries.len() >= max)
    }

    /// Evicts one entry, and the rest of a batch as far as `min_entries` allows.
    fn evict_batch(&mut self) {
        for count in 0..self.policy.eviction_batch() {
            if count == 0 || self.entries.len() > self.policy.min_entries() {
                self.evict(self.policy.order());
            }
        }
    }

    fn remove(&mut self, key: u32) -> Option<u64> {
        self.expire();
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at).serial)
    }

    fn set_policy(&mut self, policy: EvictionPolicy) {
        self.expire();
        self.policy = policy;
        self.expire();
        while self.entries.len() > policy.max_entries().unwrap_or(usize::MAX) {
            self.evict(policy.order());
        }
        self.shrink_to_max_bytes();
    }

    fn trim(&mut self, target: u64) -> u64 {
        self.expire();
        let before = self.evictions;
        while self.bytes() > target && self.entries.len() > self.policy.min_entries() {
            self.evict(self.policy.order());
        }
        self.evictions - before
    }

    fn shrink_to_max_bytes(&mut self) {
        while self.bytes() > self.policy.max_bytes().unwrap_or(u64::MAX)
            && self.entries.len() > self.policy.min_entries()
        {
            self.evict(self.policy.order());
        }
    }

    fn expire(&mut self) {
        let Some(max_idle) = self.policy.max_idle_duration() else { return };
        while self.entries.len() > self.policy.min_entries() {
            let oldest = self.oldest_by_use();
            if self.now - self.entries[oldest].used_at <= max_idle.as_millis() as u64 {
                return;
            }
            self.entries.remove(oldest);
            self.evictions += 1;
        }
    }

    fn evict(&mut self, order: EvictionOrder) {
        let score = |at: &usize| self.entries[*at].score(self.policy.name(), self.now);
        let victim = match order {
            // The first of equal score.
            _ if score(&0).is_some() => {
                (0..self.entries.len()).min_by(|a, b| score(a).partial_cmp(&score(b)).unwrap()).unwrap()
            }
            EvictionOrder::Lru => self.oldest_by_use(),
            EvictionOrder::Fifo => 0,
        };
        self.entries.remove(victim);
        self.evictions += 1;
    }

    fn oldest_by_use(&self) -> usize {
        (0..self.entries.len()).min_by_key(|&at| self.entries[at].used_turn).unwrap()
    }

    /// Limits hold unless `min_entries` takes precedence.
    fn check_limits(&self) {
        let len = self.entries.len();
        assert!(len <= self.policy.max_entries().unwrap_or(usize::MAX));
        assert!(len <= self.policy.min_entries() || self.bytes() <= self.policy.max_bytes().unwrap_or(u64::MAX));
    }
}
