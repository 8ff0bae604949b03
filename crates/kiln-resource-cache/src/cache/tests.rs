//! Stress test against a model: all events of a multi-threaded run are recorded in the order in which they took effect,
//! and replayed on a single-threaded reference.

use super::Cache;
use crate::metrics::LastEvent;
use crate::policy::EvictionPolicy;

/// A plain list in LRU order, oldest first.
struct Model {
    oldest_first: Vec<u64>,
    max_entries: usize,
}

impl Model {
    fn replay(&mut self, step: usize, event: LastEvent, hash: u64) {
        let at = self.oldest_first.iter().position(|&other| other == hash);
        match event {
            LastEvent::Hit => {
                let at = at.unwrap_or_else(|| panic!("step {step}: a hit on an entry that is not there"));
                let hash = self.oldest_first.remove(at);
                self.oldest_first.push(hash);
            }
            LastEvent::Miss => assert_eq!(at, None, "step {step}: a miss on an entry that is there"),
            LastEvent::Insert => {
                assert_eq!(at, None, "step {step}: inserted twice");
                self.oldest_first.push(hash);
                assert!(self.oldest_first.len() <= self.max_entries, "step {step}: over the limit");
            }
            LastEvent::Eviction => {
                assert_eq!(at, Some(0), "step {step}: evicted an entry that is not the least recently used");
                self.oldest_first.remove(0);
            }
            LastEvent::Remove => {
                self.oldest_first.remove(at.unwrap_or_else(|| panic!("step {step}: removed what is not there")));
            }
            LastEvent::Clear => self.oldest_first.clear(),
            LastEvent::Joined => {}
        }
    }
}

/// Uses one shard, whose lock gives all events one order.
#[test]
fn concurrent_events_replay_on_a_single_threaded_model() {
    const MAX_ENTRIES: usize = 24;
    let policy = EvictionPolicy::size_limited_lru(MAX_ENTRIES);
    let cache: Cache<u64, u64> = Cache::builder("model").policy(policy).shards(1).build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                for _ in 0..20_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (key, choice) = ((random >> 40) % 40, (random >> 50) % 64);
                    match choice {
                        0 => drop(cache.remove(&key)),
                        1 => drop(cache.insert(key, key)),
                        2 if key == 0 => cache.clear(),
                        3..30 => drop(cache.get(&key)),
                        _ => assert_eq!(*cache.get_or_insert_with(&key, || key).unwrap(), key),
                    }
                }
            });
        }
    });
    let journal = std::mem::take(&mut cache.shards[0].lock().journal);
    let mut model = Model { oldest_first: Vec::new(), max_entries: MAX_ENTRIES };
    let mut hits = 0;
    for (step, &(event, hash)) in journal.iter().enumerate() {
        hits += u64::from(matches!(event, LastEvent::Hit | LastEvent::Joined));
        model.replay(step, event, hash);
    }
    let metrics = cache.metrics();
    assert_eq!(metrics.hits, hits);
    assert_eq!(metrics.size, model.oldest_first.len());
    for key in 0..40 {
        assert_eq!(cache.get(&key).is_some(), model.oldest_first.contains(&cache.hash(&key)), "key {key}");
    }
}

#[test]
fn queue_items_of_removed_entries_do_not_accumulate() {
    for policy in [EvictionPolicy::lru(), EvictionPolicy::fifo()] {
        let cache: Cache<u32, u32> = Cache::builder("items").policy(policy).build().unwrap();
        cache.insert(100, 100);
        for round in 0..10_000 {
            cache.insert(round % 7, round);
            cache.remove(&(round % 7));
        }
        let items = cache.eviction.lock().queue_items();
        assert!(items < 200, "{items} items for one entry");
        assert_eq!(cache.trim(0), 1, "the entry that stayed is still in line");
    }
}
