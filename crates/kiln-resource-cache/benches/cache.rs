//! `cargo bench -p kiln-resource-cache`: compares Kiln's cache with quick_cache and moka in one run.
//!
//! Each line is the median over rounds. In each round all arms run once, in random order, on the same keys, and their
//! outputs are checked. The ratio is the peer's time divided by Kiln's in the same round, again the median: above 1
//! means that Kiln is faster. Numbers of different runs on a shared machine are not comparable.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first fault")]

use kiln_resource_cache::{Cache, CacheError, CacheRegistry, CacheableKernel, EvictionPolicy};
use kiln_testkit::Rng;
use kiln_testkit::arms::{Arm, Results, on_threads, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Key = (u32, u32, u32);

const ENTRIES: u32 = 1000;
const CAPACITY: usize = 2000;
/// Passes over the keys in one measurement.
const PASSES: u64 = 8;

fn key(n: u32) -> Key {
    (n, n ^ 0x5555, n.wrapping_mul(7))
}

fn value(key: &Key) -> u64 {
    u64::from(key.0) + u64::from(key.1)
}

struct Sums;

impl CacheableKernel for Sums {
    type Key = Key;
    type CachedResource = u64;
    type Params = Key;
    type Device = ();
    type Error = CacheError;
    const CACHE_NAME: &'static str = "sums";

    fn create_cache_key(params: &Key) -> Key {
        *params
    }

    fn create_cached_resource(key: &Key, _device: Option<&()>) -> Result<u64, CacheError> {
        Ok(value(key))
    }
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--test");
    let rounds = if quick { 1 } else { 81 };
    println!(
        "kiln-resource-cache compared with its peers: ns per operation, median of {rounds} rounds; ratio = peer / kiln\n"
    );
    for threads in [1, 2] {
        for (name, keys) in [("uniform keys", uniform_keys()), ("one hot key", vec![key(7); 1 << 14])] {
            hits(&format!("hit, {name}, {threads} thread(s)"), &keys, threads, rounds);
        }
    }
    println!();
    evicting_misses(if quick { 1 } else { 15 });
}

/// Returns keys in random order, the same for every arm.
fn uniform_keys() -> Vec<Key> {
    let mut rng = Rng::new(1);
    (0..1 << 14).map(|_| key(rng.below(ENTRIES as usize) as u32)).collect()
}

fn hits(title: &str, keys: &[Key], threads: usize, rounds: usize) {
    let kiln: Cache<Key, u64> =
        Cache::builder("sums").policy(EvictionPolicy::size_limited_lru(CAPACITY)).build().unwrap();
    let registry = CacheRegistry::<()>::new();
    registry.set_eviction_policy::<Sums>(EvictionPolicy::size_limited_lru(CAPACITY)).unwrap();
    let idle: Cache<Key, u64> =
        Cache::builder("idle").policy(EvictionPolicy::hybrid(CAPACITY, Duration::from_secs(3600))).build().unwrap();
    let quick: quick_cache::sync::Cache<Key, Arc<u64>> = quick_cache::sync::Cache::new(CAPACITY);
    let moka: moka::sync::Cache<Key, Arc<u64>> = moka::sync::Cache::new(CAPACITY as u64);
    let moka_idle: moka::sync::Cache<Key, Arc<u64>> =
        moka::sync::Cache::builder().max_capacity(CAPACITY as u64).time_to_idle(Duration::from_secs(3600)).build();
    for key in (0..ENTRIES).map(key) {
        kiln.insert(key, value(&key));
        idle.insert(key, value(&key));
        registry.get_or_create::<Sums>(&key, None).unwrap();
        quick.insert(key, Arc::new(value(&key)));
        moka.insert(key, Arc::new(value(&key)));
        moka_idle.insert(key, Arc::new(value(&key)));
    }
    let expected: u64 = keys.iter().map(value).sum::<u64>() * PASSES * threads as u64;
    let over_keys = |get: &(dyn Fn(&Key) -> u64 + Sync)| {
        let total = AtomicU64::new(0);
        let elapsed = on_threads(
            threads,
            |_| {},
            |_| {
                let mut sum = 0;
                for _ in 0..PASSES {
                    sum += keys.iter().map(get).sum::<u64>();
                }
                total.fetch_add(sum, Ordering::Relaxed);
            },
        );
        assert_eq!(total.into_inner(), expected, "an arm returned wrong values");
        elapsed / (keys.len() as f64 * PASSES as f64)
    };
    let results = run(
        rounds,
        &mut [
            Arm::new("kiln", || over_keys(&|key| *kiln.get(key).unwrap())),
            Arm::new("kiln registry", || over_keys(&|key| *registry.get_or_create::<Sums>(key, None).unwrap())),
            Arm::new("quick_cache", || over_keys(&|key| *quick.get(key).unwrap())),
            Arm::new("moka", || over_keys(&|key| *moka.get(key).unwrap())),
            Arm::new("kiln, idle limit", || over_keys(&|key| *idle.get(key).unwrap())),
            Arm::new("moka, idle limit", || over_keys(&|key| *moka_idle.get(key).unwrap())),
        ],
    );
    print(title, &results, &["quick_cache", "moka"]);
}

/// Misses that evict, in full caches of two sizes. The cost may grow with the memory that is touched, but not with the
/// number of entries.
fn evicting_misses(rounds: usize) {
    const OPERATIONS: u32 = 20_000;
    let full = |entries: u32| {
        let kiln: Cache<Key, u64> =
            Cache::builder("full").policy(EvictionPolicy::size_limited_lru(entries as usize)).build().unwrap();
        let quick: quick_cache::sync::Cache<Key, Arc<u64>> = quick_cache::sync::Cache::new(entries as usize);
        for n in 0..entries {
            kiln.insert(key(n), value(&key(n)));
            quick.insert(key(n), Arc::new(value(&key(n))));
        }
        (kiln, quick)
    };
    let (small, quick_small) = full(1000);
    let (large, quick_large) = full(1_000_000);
    // Above all keys inserted so far, and never repeated, so that every lookup is a miss. One per arm, as the caches are.
    let next = [const { std::cell::Cell::new(10_000_000_u32) }; 4];
    let fresh_keys = |arm: usize, create: &dyn Fn(Key) -> u64| {
        let first = next[arm].get();
        next[arm].set(first + OPERATIONS);
        let mut sum = 0;
        let began = std::time::Instant::now();
        for n in first..first + OPERATIONS {
            sum += create(key(n));
        }
        let nanos = began.elapsed().as_nanos() as f64;
        assert_eq!(sum, (first..first + OPERATIONS).map(|n| value(&key(n))).sum::<u64>());
        nanos / f64::from(OPERATIONS)
    };
    let kiln_miss = |cache: &Cache<Key, u64>, key: Key| *cache.get_or_insert_with(&key, || value(&key)).unwrap();
    let quick_miss = |cache: &quick_cache::sync::Cache<Key, Arc<u64>>, key: Key| {
        *cache.get_or_insert_with(&key, || Ok::<_, ()>(Arc::new(value(&key)))).unwrap()
    };
    let results = run(
        rounds,
        &mut [
            Arm::new("kiln, 1,000", || fresh_keys(0, &|key| kiln_miss(&small, key))),
            Arm::new("kiln, 1,000,000", || fresh_keys(1, &|key| kiln_miss(&large, key))),
            Arm::new("quick_cache, 1,000", || fresh_keys(2, &|key| quick_miss(&quick_small, key))),
            Arm::new("quick_cache, 1,000,000", || fresh_keys(3, &|key| quick_miss(&quick_large, key))),
        ],
    );
    assert_eq!((small.len(), large.len()), (1000, 1_000_000));
    let evicted = small.metrics().evictions;
    assert!(evicted >= u64::from(OPERATIONS), "every miss evicts: {evicted}");
    print("miss that evicts, by entries", &results, &[]);
    let median = |name| results.quartiles(name).median;
    println!(
        "growth from 1,000 to 1,000,000 entries: kiln {:.2} x (at most 4), quick_cache {:.2} x",
        median("kiln, 1,000,000") / median("kiln, 1,000"),
        median("quick_cache, 1,000,000") / median("quick_cache, 1,000"),
    );
}

/// Prints medians and minima, and the ratios of the selected peers to the first arm.
fn print(title: &str, results: &Results, peers: &[&str]) {
    println!("{title}");
    for name in results.names() {
        let median = results.quartiles(name).median;
        let min = results.samples(name).iter().copied().fold(f64::INFINITY, f64::min);
        print!("  {name:<24} {median:>8.1} ns   min {min:>8.1}");
        if peers.contains(&name) {
            print!("   ratio {:>5.2}", results.ratio(name, "kiln").median);
        }
        println!();
    }
}
